// Elements are made by el() and their text is set as text: nothing on this page is ever parsed as
// HTML, which the Content-Security-Policy (trusted types) enforces.

const $ = (id) => document.getElementById(id);

// Attributes: `text` is the content, `on` an object of listeners, true and false set and leave out
// an attribute without a value; `label` is for readers and, on buttons, a tooltip.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === undefined || value === null) continue;
    if (name === 'text') element.textContent = value;
    else if (name === 'label') label(element, value);
    else if (name === 'on')
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function label(element, text) {
  element.setAttribute('aria-label', text);
  if (element.tagName === 'BUTTON') element.title = text;
}

const SVG = 'http://www.w3.org/2000/svg';

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A symbol of page.html.
function icon(name) {
  return svg('svg', { class: 'icon', 'aria-hidden': 'true' }, svg('use', { href: '#i-' + name }));
}

function iconButton(name, text, click) {
  return el('button', { class: 'quiet', type: 'button', label: text, on: { click } }, icon(name));
}

function textButton(text, click, kind = '') {
  return el('button', { class: kind, type: 'button', text, on: { click } });
}

// Texts of page.html: data-t is an element's content, data-label its name, data-hint a placeholder.
function translatePage() {
  for (const element of document.querySelectorAll('[data-t]')) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll('[data-label]')) label(element, t(element.dataset.label));
  for (const element of document.querySelectorAll('[data-hint]')) element.placeholder = t(element.dataset.hint);
}

// For readers of the screen: said when they have finished what they say now.
function announce(text) {
  $('live').textContent = '';
  setTimeout(() => { $('live').textContent = text; }, 50);
}

// A passing message, perhaps with one thing to do.
function toast(text, action = null) {
  const note = el('div', { class: 'toast', role: 'status' }, el('span', { text }));
  const close = () => note.remove();
  if (action) note.append(textButton(action.text, () => { close(); action.run(); }, 'link'));
  $('toasts').append(note);
  setTimeout(close, action ? 8000 : 3500);
}

async function copyText(text, button = null) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages that came over plain HTTP from another machine have no clipboard of their own.
    if (!copyBySelection(text)) return toast(t('notCopied'));
  }
  announce(t('copied'));
  if (!button) return toast(t('copied'));
  button.classList.add('done');
  setTimeout(() => button.classList.remove('done'), 1500);
}

function copyBySelection(text) {
  const area = el('textarea', { class: 'unseen', readonly: true });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  before?.focus();
  return copied;
}

// A button that copies what `text` returns and shows for a moment that it did.
function copyButton(text, name = t('copy'), symbol = 'copy') {
  const button = iconButton(symbol, name, () => copyText(text(), button));
  const done = icon('check');
  done.classList.add('when-done');
  button.append(done);
  return button;
}

function saveFile(name, text) {
  const link = el('a', { download: name, href: URL.createObjectURL(new Blob([text], { type: 'application/json' })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A text box that is as high as its text, up to the limit of its style.
function fitHeight(area) {
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 2 + 'px';
}

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');
