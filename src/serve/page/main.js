// Start-up, panels and drawers, keys, theme and language.

const settingsPanel = new SettingsPanel($('settings'), (chat) => app.changed(chat));
let serverPanel = null;

const NARROW = matchMedia('(max-width: 899px)');
const THEMES = { auto: ['auto', 'themeAuto'], light: ['sun', 'themeLight'], dark: ['moon', 'themeDark'] };

// Settings and server share a place. On a narrow screen they and the list of chats lie over the
// conversation, which then takes no focus.
const panels = {
  toggle(name) {
    const open = $(name).hidden;
    this.close();
    if (!open) return;
    $(name).hidden = false;
    $('open-' + name).setAttribute('aria-expanded', 'true');
    this.opener = $('open-' + name);
    this.update();
    $(name).querySelector('button').focus();
    if (name === 'server') serverPanel.start();
  },

  close() {
    const open = !$('settings').hidden || !$('server').hidden;
    for (const name of ['settings', 'server']) {
      $(name).hidden = true;
      $('open-' + name).setAttribute('aria-expanded', 'false');
    }
    this.closeDrawers();
    if (open) this.opener.focus();
  },

  toggleChats() {
    const open = document.body.classList.toggle(NARROW.matches ? 'chats-open' : 'chats-hidden');
    this.opener = $('menu');
    this.update();
    if (open && NARROW.matches) $('new-chat').focus();
  },

  // What lies over the conversation goes; what stands beside it stays.
  closeDrawers() {
    const over = document.body.classList.contains('chats-open');
    document.body.classList.remove('chats-open');
    this.update();
    if (over) this.opener.focus();
  },

  anyOver() {
    return NARROW.matches && (document.body.classList.contains('chats-open') || !$('settings').hidden || !$('server').hidden);
  },

  update() {
    const over = this.anyOver();
    $('scrim').hidden = !over;
    $('main').inert = over;
    $('sidebar').inert = NARROW.matches && !document.body.classList.contains('chats-open');
  },
};

function showTheme() {
  const theme = preference('theme') in THEMES ? preference('theme') : 'auto';
  const [symbol, name] = THEMES[theme];
  document.documentElement.dataset.theme = theme;
  $('theme').replaceChildren(icon(symbol));
  label($('theme'), t(name));
  return theme;
}

function nextTheme() {
  const names = Object.keys(THEMES);
  remember('theme', names[(names.indexOf(showTheme()) + 1) % names.length]);
  showTheme();
}

function showLanguage() {
  translatePage();
  showTheme();
  $('language').textContent = t('language');
  serverPanel.build();
  settingsPanel.show(conversation.chat);
  conversation.redraw();
  sidebar.show();
}

function switchLanguage() {
  chooseLanguage(LANGUAGES.find((name) => name !== language));
  remember('language', language);
  showLanguage();
  serverPanel.start();
}

function sendInput() {
  if (app.runOf(conversation.chat) || !$('input').value.trim()) return;
  app.send($('input').value);
  $('input').value = '';
  fitHeight($('input'));
}

function editLast() {
  const last = pathOf(conversation.chat).findLast((node) => node.role === 'user');
  if (last && !app.runOf(conversation.chat)) conversation.views.get(last.id).edit();
}

function pressed(event) {
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (command && !event.shiftKey && key === 'k') {
    event.preventDefault();
    if (NARROW.matches && !document.body.classList.contains('chats-open')) panels.toggleChats();
    $('search').focus();
  } else if (command && event.shiftKey && key === 'o') {
    event.preventDefault();
    panels.closeDrawers();
    app.startChat();
  } else if (event.key === 'Escape') {
    if (panels.anyOver()) panels.close();
    else if (app.runOf(conversation.chat)) app.stop();
    else if (!$('settings').hidden || !$('server').hidden) { panels.close(); app.focusInput(); }
  }
}

function listen() {
  const clicks = { skip: () => app.focusInput(), menu: () => panels.toggleChats(), 'close-sidebar': () => panels.closeDrawers(),
    'new-chat': () => { panels.closeDrawers(); app.startChat(); }, import: () => $('file').click(),
    export: () => exportChats([...app.chats.values()]), language: switchLanguage, theme: nextTheme, send: sendInput,
    stop: () => app.stop(), 'to-end': () => conversation.toEnd(), scrim: () => panels.close(),
    'open-settings': () => panels.toggle('settings'), 'open-server': () => panels.toggle('server') };
  for (const [id, click] of Object.entries(clicks)) $(id).addEventListener('click', click);
  $('input').addEventListener('input', () => fitHeight($('input')));
  $('input').addEventListener('keydown', (event) => {
    if (sends(event)) { event.preventDefault(); sendInput(); }
    if (event.key === 'ArrowUp' && !$('input').value) { event.preventDefault(); editLast(); }
  });
  $('search').addEventListener('input', () => sidebar.show());
  $('model').addEventListener('change', () => modelChoice.chosen());
  $('scroller').addEventListener('scroll', () => conversation.scrolled(), { passive: true });
  $('file').addEventListener('change', () => {
    if ($('file').files[0]) app.importFile($('file').files[0]);
    $('file').value = '';
  });
  document.addEventListener('keydown', pressed);
  document.addEventListener('visibilitychange', () => serverPanel.start());
  window.addEventListener('pagehide', () => store.saveAll());
  window.addEventListener('online', () => health.connect());
  NARROW.addEventListener('change', () => panels.update());
}

async function main() {
  chooseLanguage(preference('language') ?? preferredLanguage());
  serverPanel = new ServerPanel($('server'));
  conversation.chat = newChat(lastSettings());
  for (const chat of await store.open()) {
    // What was being written when the page was left has ended there.
    for (const node of chat.nodes) if (node.role === 'assistant') node.finish ??= 'aborted';
    app.chats.set(chat.id, chat);
  }
  const last = app.chats.get(preference('chat'));
  if (last) conversation.chat = last;
  showLanguage();
  listen();
  panels.update();
  await health.connect();
  if (!NARROW.matches && !$('banner').hasChildNodes()) app.focusInput();
  document.body.classList.add('ready');
}

main();
