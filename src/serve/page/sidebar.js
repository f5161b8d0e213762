// The list of chats, the newest first, and the search in them.

const DAY = 24 * 3600 * 1000;

const sidebar = {
  // The list is made anew; with thousands of chats that is still a matter of milliseconds.
  show() {
    const words = $('search').value.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const chats = [...app.chats.values()].filter((chat) => chatHas(chat, words)).sort((a, b) => b.updated - a.updated);
    const items = [];
    let group = '';
    for (const chat of chats) {
      const name = this.groupOf(chat.updated);
      if (name !== group) items.push(el('li', { class: 'group', text: name }));
      group = name;
      items.push(this.item(chat));
    }
    if (!chats.length) items.push(el('li', { class: 'note', text: t(words.length ? 'noMatch' : 'noChats') }));
    $('chats').replaceChildren(...items);
  },

  groupOf(time) {
    const today = new Date().setHours(0, 0, 0, 0);
    return t(time >= today ? 'today' : time >= today - DAY ? 'yesterday' : 'earlier');
  },

  item(chat) {
    const isOpen = chat === conversation.chat;
    const open = el('button', { class: 'chat', type: 'button', text: chat.title || t('newChat'), 'aria-current': isOpen && 'true',
      on: { click: () => { app.open(chat); panels.closeDrawers(); } } });
    const item = el('li', { class: isOpen ? 'open' : '' }, open,
      iconButton('edit', t('rename'), () => this.rename(chat, item)), iconButton('trash', t('remove'), () => app.remove(chat)));
    if (app.runOf(chat)) open.append(el('i', { class: 'busy' }));
    return item;
  },

  rename(chat, item) {
    const field = el('input', { 'aria-label': t('rename'), maxlength: MAX_TITLE });
    field.value = chat.title;
    const finish = (keep) => {
      if (keep && field.value.trim()) Object.assign(chat, { title: titleOf(field.value), renamed: true });
      store.save(chat);
      this.show();
      conversation.showState();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' && !sends(event)) return;
      event.stopPropagation();
      field.onblur = null;
      finish(event.key === 'Enter');
    });
    field.onblur = () => finish(true);
    item.replaceChildren(field);
    field.select();
  },
};

// The models of /v1/models; what was chosen is the chat's, and what the next new chat starts with.
const modelChoice = {
  show() {
    const { chat } = conversation;
    const names = app.models.map((model) => model.id);
    if (!names.includes(chat.model)) chat.model = names[0] ?? chat.model;
    $('model').replaceChildren(...(names.length ? names : [chat.model]).map((name) => el('option', { value: name, text: name })));
    $('model').value = chat.model;
    $('model').hidden = !chat.model;
    conversation.showState();
  },

  chosen() {
    conversation.chat.model = $('model').value;
    remember('model', $('model').value);
    app.changed(conversation.chat);
    conversation.showState();
  },
};
