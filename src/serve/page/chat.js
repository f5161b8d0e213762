// The conversation: which chat is shown, what is sent, and how often what arrives is drawn.

const conversation = {
  chat: null,
  views: new Map(),  // by the id of the node
  sticks: true,      // the end is kept in view while it grows

  show(chat) {
    if (chat !== this.chat) this.views.clear();
    const stay = chat === this.chat ? $('scroller').scrollTop : null;
    this.chat = chat;
    const path = pathOf(chat);
    for (const node of path) {
      const view = this.views.get(node.id);
      if (view) view.refresh();
      else this.views.set(node.id, new MessageView(chat, node));
    }
    const elements = path.map((node) => this.views.get(node.id).element);
    $('thread').replaceChildren(...(path.length ? elements : [this.welcome()]));
    if (stay === null || this.sticks) this.toEnd();
    else $('scroller').scrollTop = stay;
    this.showState();
  },

  // Everything anew, in another language.
  redraw() {
    this.views.clear();
    if (this.chat) this.show(this.chat);
  },

  welcome() {
    const name = this.chat.model || app.models[0]?.id || 'Skiff';
    return el('div', { class: 'welcome' }, icon('boat'), el('h2', { text: t('greeting') }),
      el('p', { class: 'note', text: t('greetingNote', name) }),
      el('div', { class: 'tries' }, ...['try1', 'try2', 'try3'].map((key) => textButton(t(key), () => app.send(t(key))))));
  },

  showState() {
    const run = app.runOf(this.chat);
    $('send').hidden = run !== null;
    $('stop').hidden = run === null;
    $('title').textContent = this.chat.title || t('newChat');
    document.title = this.chat.title ? this.chat.title + ' – Skiff' : 'Skiff';
    $('hint').textContent = t('hint');
    const used = pathOf(this.chat).findLast((node) => node.context)?.context;
    const limit = app.models.find((model) => model.id === this.chat.model)?.max_model_len ?? app.models[0]?.max_model_len;
    $('context').textContent = used && limit ? t('contextUse', formatNumber(used), formatNumber(limit)) : '';
  },

  toEnd() {
    this.sticks = true;
    $('scroller').scrollTop = $('scroller').scrollHeight;
    $('to-end').hidden = true;
  },

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = $('scroller');
    this.sticks = scrollHeight - scrollTop - clientHeight < 48;
    $('to-end').hidden = this.sticks;
  },
};

// Draws what has arrived at most once a frame, and so that drawing takes a quarter of the time at
// most: the page answers its user however long an answer is.
const painter = {
  dirty: new Set(),
  waiting: false,
  restUntil: 0,

  soon(node) {
    this.dirty.add(node.id);
    if (this.waiting) return;
    this.waiting = true;
    const rest = this.restUntil - performance.now();
    const next = () => requestAnimationFrame(() => this.paint());
    if (rest > 0) setTimeout(next, rest);
    else next();
  },

  paint() {
    this.waiting = false;
    const start = performance.now();
    for (const id of this.dirty) conversation.views.get(id)?.feed();
    this.dirty.clear();
    if (conversation.sticks) conversation.toEnd();  // also lays out, which is part of the cost
    this.restUntil = performance.now() + 3 * (performance.now() - start);
  },
};

// What the user does to chats; other parts call these by name.
const app = {
  chats: new Map(),  // by id
  runs: new Map(),   // answers under way, by the id of their node
  models: [],

  runOf(chat) {
    return [...this.runs.values()].find((run) => run.chat === chat) ?? null;
  },

  open(chat) {
    conversation.show(chat);
    settingsPanel.show(chat);
    sidebar.show();
    modelChoice.show();
    remember('chat', chat.id);
  },

  startChat() {
    const last = conversation.chat;
    const chat = last && last.nodes.length === 0 ? last : newChat(lastSettings());
    chat.model ||= preference('model') ?? '';
    this.open(chat);
    this.focusInput();
  },

  focusInput() { $('input').focus(); },

  send(text) {
    const { chat } = conversation;
    if (!text.trim() || this.runOf(chat)) return;
    this.chats.set(chat.id, chat);
    remember('chat', chat.id);
    const user = addNode(chat, pathOf(chat).at(-1), { role: 'user', content: text.trim() });
    conversation.sticks = true;
    this.answer(chat, user);
  },

  answer(chat, parent) {
    return this.generate(chat, addNode(chat, parent, { role: 'assistant' }));
  },

  async generate(chat, node, continued = false) {
    const run = new Run(chat, node);
    if (chat === conversation.chat) conversation.views.delete(node.id);
    this.runs.set(node.id, run);
    if (chat === conversation.chat) conversation.show(chat);
    sidebar.show();
    announce(t('generating'));
    await run.fill(continued, () => {
      painter.soon(node);
      store.saveSoon(chat);
    });
    this.runs.delete(node.id);
    chat.updated = Date.now();
    if (this.chats.has(chat.id)) await store.save(chat);  // it may have been deleted meanwhile
    if (chat === conversation.chat) conversation.show(chat);
    sidebar.show();
    if (run.error) return this.failed(run.error);
    announce(t('answered', node.content.slice(0, 400)));
  },

  failed(error) {
    if (error.status === 401) return this.connect();
    if (error.kind === 'network') health.watch();
  },

  // Another answer beside this one. A failed one without any text is replaced.
  regenerate(node) {
    const { chat } = conversation;
    if (this.runOf(chat)) return;
    if (hasSaidNothing(node) && !node.reasoning) return this.generate(chat, node);
    this.answer(chat, parentOf(chat, node));
  },

  retry(node) { this.regenerate(node); },

  goOn(node) {
    if (!this.runOf(conversation.chat)) this.generate(conversation.chat, node, true);
  },

  resend(node, text) {
    const { chat } = conversation;
    if (this.runOf(chat)) return;
    this.answer(chat, addNode(chat, parentOf(chat, node), { role: 'user', content: text.trim() }));
    this.focusInput();
  },

  sendResults(node, results) {
    const { chat } = conversation;
    if (this.runOf(chat)) return;
    let parent = node;
    node.calls.forEach((call, index) => {
      parent = addNode(chat, parent, { role: 'tool', callId: call.id, name: call.name, content: results[index] });
    });
    this.answer(chat, parent);
    this.focusInput();
  },

  choose(chat, node) {
    if (this.runOf(chat)) return;
    chat.chosen[node.parent] = node.id;
    conversation.sticks = false;
    conversation.show(chat);
    store.save(chat);
  },

  stop() { this.runOf(conversation.chat)?.stop(); },

  changed(chat) {
    if (!this.chats.has(chat.id)) return;
    store.saveSoon(chat);
  },

  remove(chat) {
    this.runOf(chat)?.stop();
    this.chats.delete(chat.id);
    store.remove(chat);
    if (chat === conversation.chat) this.startChat();
    sidebar.show();
    const bringBack = () => { this.chats.set(chat.id, chat); store.save(chat); this.open(chat); };
    toast(t('removed'), { text: t('undo'), run: bringBack });
  },

  async importFile(file) {
    try {
      const chats = readExport(await file.text());
      for (const chat of chats) { this.chats.set(chat.id, chat); await store.save(chat); }
      toast(t('imported', chats.length));
    } catch (error) {
      toast(t('notImported', error.message));
    }
    sidebar.show();
  },

  connect() { return health.connect(); },
  closePanels() { panels.close(); },
};
