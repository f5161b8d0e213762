// One message on the screen. feed() adds what has arrived since the last time; refresh() makes anew
// what else may have changed: actions, versions, figures, errors.

class MessageView {
  constructor(chat, node) {
    this.chat = chat;
    this.node = node;
    this.shown = { content: 0, reasoning: 0 };  // characters that feed() has written
    this.body = el('div', { class: 'body' });
    this.calls = el('div', { class: 'calls' });
    this.foot = el('div', { class: 'foot' });
    this.element = el('article', { class: 'message ' + node.role, 'aria-label': this.name() }, this.body, this.calls, this.foot);
    if (node.role === 'assistant') this.markdown = new Markdown(this.body);
    else if (node.role === 'user') this.body.append(el('p', { text: node.content }));
    else this.showResult();
    this.feed();
    this.refresh();
  }

  name() {
    return { user: t('you'), assistant: t('assistant'), tool: t('toolResult', this.node.name ?? '') }[this.node.role];
  }

  get run() { return app.runs.get(this.node.id) ?? null; }

  showResult() {
    this.body.append(el('details', { class: 'fold' },
      el('summary', {}, icon('wrench'), el('span', { text: this.name() })), el('pre', { text: this.node.content, tabindex: 0 })));
  }

  feed() {
    if (!this.markdown) return;
    const { content, reasoning = '' } = this.node;
    if (reasoning) this.feedReasoning(reasoning);
    if (content.length > this.shown.content) this.markdown.push(content.slice(this.shown.content));
    this.shown.content = content.length;
    if (this.run) this.foot.replaceChildren(this.figures());
    else this.markdown.end();
    this.feedCalls();
  }

  feedReasoning(reasoning) {
    if (!this.thought) {
      const body = el('div', { class: 'body' });
      const running = this.run !== null && !this.node.content;
      this.thought = { title: el('span'), text: new Markdown(body), fold: el('details', { class: 'fold thought', open: running }) };
      this.thought.fold.append(el('summary', {}, icon('bulb'), this.thought.title), body);
      this.element.prepend(this.thought.fold);
    }
    this.thought.text.push(reasoning.slice(this.shown.reasoning));
    this.shown.reasoning = reasoning.length;
    const over = !this.run || this.node.thinkingMs !== undefined;
    if (over && !this.thought.over) {
      this.thought.text.end();
      this.thought.fold.open = false;
    }
    this.thought.over = over;
    this.thought.fold.classList.toggle('live', !over);
    this.thought.title.textContent = this.node.thinkingMs === undefined ? t('thinking') : t('thought', formatTime(this.node.thinkingMs));
  }

  feedCalls() {
    for (const [index, call] of (this.node.calls ?? []).entries()) {
      this.calls.children[index] ?? this.calls.append(el('details', { class: 'fold call' },
        el('summary', {}, icon('wrench'), el('span')), el('pre', { tabindex: 0 })));
      const [summary, text] = this.calls.children[index].children;
      summary.lastChild.textContent = t('calls', call.name);
      text.textContent = this.run ? call.arguments : indented(call.arguments);
    }
  }

  // After the end of an answer, a switch of versions, or a change of language.
  refresh() {
    this.feed();
    const live = this.run !== null;
    this.element.classList.toggle('live', live);
    this.element.querySelector(':scope > .trouble')?.remove();
    this.results?.remove();
    if (live) return;
    const trouble = this.trouble();
    if (trouble) this.foot.before(trouble);
    if (this.wantsResults()) this.calls.after(this.results = this.resultForm());
    this.foot.replaceChildren(...this.actions().filter((action) => action !== null), this.figures());
  }

  trouble() {
    const { error, finish, retry } = this.node;
    const cut = { length: 'cutLength', aborted: 'cutStop' }[finish];
    if (!error) return cut ? el('p', { class: 'trouble mild', text: t(cut) }) : null;
    const again = textButton('', () => app.retry(this.node));
    countDown(again, retry);
    return el('div', { class: 'trouble', role: 'alert' }, el('p', { text: error }), again);
  }

  // Versions and what can be done. Versions come first, because they are about all the rest.
  actions() {
    const { role } = this.node;
    const buttons = [this.versions(), this.node.content ? copyButton(() => this.node.content) : null];
    if (role === 'user') buttons.push(iconButton('edit', t('edit'), () => this.edit()));
    if (role !== 'assistant') return buttons;
    if (!this.node.error || this.node.content) buttons.push(iconButton('redo', t('regenerate'), () => app.regenerate(this.node)));
    const cut = ['length', 'aborted', 'error'].includes(this.node.finish);
    const isLast = pathOf(this.chat).at(-1) === this.node;
    if (cut && isLast && this.node.content && !this.node.calls?.length)
      buttons.push(iconButton('more', t('goOn'), () => app.goOn(this.node)));
    buttons.push(copyButton(() => curlOf(this.chat, this.node), t('curl'), 'terminal'));
    return buttons;
  }

  versions() {
    const all = siblingsOf(this.chat, this.node);
    const at = all.indexOf(this.node);
    const step = (name, text, to) => {
      const button = iconButton(name, text, () => app.choose(this.chat, all[to]));
      button.disabled = !all[to];
      return button;
    };
    if (all.length < 2) return null;
    return el('span', { class: 'versions' }, step('left', t('previous'), at - 1),
      el('span', { text: t('version', at + 1, all.length) }), step('right', t('next'), at + 1));
  }

  figures() {
    const figures = this.run?.figures() ?? this.node.stats;
    const parts = [];
    if (figures?.rate) parts.push(t('speed', formatNumber(figures.rate, figures.rate < 100 ? 1 : 0)));
    if (figures?.firstMs !== undefined) parts.push(t('firstToken', formatTime(figures.firstMs)));
    if (figures?.tokens) parts.push(t('tokens', formatNumber(figures.tokens)));
    return el('span', { class: 'figures', text: parts.join(' · ') });
  }

  edit() {
    const area = el('textarea', { 'aria-label': t('edit') });
    const stop = () => { box.replaceWith(this.body); this.foot.hidden = false; };
    const send = () => { stop(); if (area.value.trim()) app.resend(this.node, area.value); };
    const box = el('div', { class: 'editing' }, area,
      el('div', { class: 'row' }, textButton(t('cancel'), stop), textButton(t('save'), send, 'primary')));
    area.value = this.node.content;
    area.addEventListener('input', () => fitHeight(area));
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { event.stopPropagation(); stop(); app.focusInput(); }
      if (sends(event)) { event.preventDefault(); send(); }
    });
    this.body.replaceWith(box);
    this.foot.hidden = true;
    fitHeight(area);
    area.focus();
  }

  wantsResults() {
    return this.node.calls?.length > 0 && !this.node.error && pathOf(this.chat).at(-1) === this.node;
  }

  resultForm() {
    const areas = this.node.calls.map((call) => (
      el('textarea', { rows: 2, class: 'mono', placeholder: t('toolResultHint'), 'aria-label': t('toolResult', call.name) })));
    const send = () => app.sendResults(this.node, areas.map((area) => area.value));
    return el('div', { class: 'results' },
      ...areas.flatMap((area, index) => [el('label', { text: t('toolResult', this.node.calls[index].name) }), area]),
      el('div', { class: 'row' }, textButton(t('sendResults'), send, 'primary')));
  }
}

function indented(json) {
  try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

// Enter without Shift, and not the Enter with which an input method takes a word.
function sends(event) {
  return event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.keyCode !== 229;
}

// A button that says for how many seconds it is too early.
function countDown(button, seconds = 0) {
  button.textContent = seconds > 0 ? t('retryIn', seconds) : t('retry');
  if (seconds > 0) setTimeout(() => { if (button.isConnected) countDown(button, seconds - 1); }, 1000);
}
