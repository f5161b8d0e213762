// What a request says besides its messages, and the panel in which it is set. Settings are texts as
// they were typed, and an empty one is not sent: then the server's default counts.

const NUMBERS = [
  { key: 'temperature', min: 0, step: 0.1 },
  { key: 'top_p', min: 0, max: 1, step: 0.05 },
  { key: 'top_k', min: -1, step: 1 },
  { key: 'max_tokens', min: 1, step: 1, empty: 'asFits' },
  { key: 'repetition_penalty', min: 0, step: 0.05 },
  { key: 'presence_penalty', min: -2, max: 2, step: 0.1, usual: 0 },
  { key: 'frequency_penalty', min: -2, max: 2, step: 0.1, usual: 0 },
  { key: 'seed', step: 1, empty: 'anySeed' },
];
const TEXTS = ['system', 'stops', 'thinking', 'schema', 'tools'];
const SETTINGS = [...NUMBERS.map((field) => field.key), ...TEXTS];

let serverDefaults = {};  // what /config-info says

function readSettings(value) {
  return Object.fromEntries(SETTINGS.filter((key) => typeof value?.[key] === 'string').map((key) => [key, value[key]]));
}

function lastSettings() {
  try { return readSettings(JSON.parse(preference('settings'))); } catch { return {}; }
}

function parsedBox(text, wanted, problem, isRight) {
  let value;
  try { value = JSON.parse(text); } catch (error) { throw new ApiError('input', t(problem, error.message)); }
  if (!isRight(value)) throw new ApiError('input', t(problem, t(wanted)));
  return value;
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const schemaOf = (text) => parsedBox(text, 'wantObject', 'badSchema', isObject);

// A function may be given without its wrapping.
function toolsOf(text) {
  const list = parsedBox(text, 'wantList', 'badTools', (value) => Array.isArray(value) && value.every(isObject));
  return list.map((tool) => (tool.function ? tool : { type: 'function', function: tool }));
}

// The fields of a request; throws ApiError if one cannot be read.
function requestFields(settings) {
  const fields = {};
  for (const { key } of NUMBERS) {
    if (!settings[key]?.trim()) continue;
    fields[key] = Number(settings[key]);
    if (!Number.isFinite(fields[key])) throw new ApiError('input', `${t(key)}: ${settings[key]}`);
  }
  const stops = (settings.stops ?? '').split('\n').filter((stop) => stop !== '').map((stop) => stop.replaceAll('\\n', '\n'));
  if (stops.length) fields.stop = stops;
  if (settings.thinking) fields.enable_thinking = settings.thinking === 'on';
  if (settings.tools?.trim()) fields.tools = toolsOf(settings.tools);
  if (settings.schema?.trim())
    fields.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema: schemaOf(settings.schema) } };
  return fields;
}

// Fills the panel with the settings of `chat`; `changed` is called after each change.
class SettingsPanel {
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
  }

  show(chat) {
    this.chat = chat;
    const scroll = this.root.scrollTop;
    this.root.replaceChildren(
      panelHead(t('settings')),
      el('p', { class: 'note', text: t('settingsNote') }),
      this.area('system', { rows: 4, placeholder: t('systemHint') }),
      el('h3', { text: t('sampling') }),
      el('p', { class: 'note', text: t('samplingNote') }),
      el('div', { class: 'numbers' }, ...NUMBERS.map((field) => this.number(field))),
      this.thinking(),
      this.area('stops', { rows: 2, class: 'mono' }),
      el('h3', { text: 'JSON' }),
      this.json('schema', schemaOf, '{"type": "object", "properties": {…}}'),
      this.json('tools', toolsOf, '[{"name": "get_weather", "parameters": {…}}]'),
      el('p', { class: 'note', text: t('toolsNote') }),
      textButton(t('reset'), () => this.reset(), 'wide'),
      el('h3', { text: t('access') }), this.key(), el('h3', { text: t('shortcuts') }), this.keys());
    this.root.scrollTop = scroll;
  }

  set(key, value) {
    this.chat.settings[key] = value;
    remember('settings', JSON.stringify(readSettings(this.chat.settings)));
    this.changed(this.chat);
  }

  reset() {
    for (const key of SETTINGS) delete this.chat.settings[key];
    this.set('system', '');
    this.show(this.chat);
  }

  field(key, control) {
    control.value = this.chat.settings[key] ?? '';
    control.id = 'set-' + key;
    const name = { stops: 'stops', thinking: 'thinkingMode', schema: 'schema', tools: 'tools', system: 'system' }[key] ?? key;
    return el('div', { class: 'field' }, el('label', { for: control.id, text: t(name) }), control);
  }

  number({ key, empty, usual, ...bounds }) {
    const known = serverDefaults[key] ?? usual;
    const hint = empty && !known ? t(empty) : known === undefined ? '' : formatNumber(known, 3);
    const control = el('input', { type: 'number', inputmode: 'decimal', placeholder: hint, ...bounds });
    control.addEventListener('input', () => {
      control.setAttribute('aria-invalid', String(!control.validity.valid && !control.validity.stepMismatch));
      this.set(key, control.value);
    });
    return this.field(key, control);
  }

  area(key, attributes) {
    const control = el('textarea', attributes);
    control.addEventListener('input', () => this.set(key, control.value));
    return this.field(key, control);
  }

  // A box that says below it what is wrong with its JSON.
  json(key, parse, placeholder) {
    const field = this.area(key, { rows: 4, class: 'mono', placeholder, spellcheck: 'false', 'aria-describedby': 'bad-' + key });
    const control = field.lastChild;
    const problem = el('p', { class: 'problem', id: 'bad-' + key, role: 'status' });
    const check = () => {
      problem.textContent = '';
      try { if (control.value.trim()) parse(control.value); } catch (error) { problem.textContent = error.message; }
      control.setAttribute('aria-invalid', String(problem.textContent !== ''));
    };
    control.addEventListener('input', check);
    check();
    field.append(problem);
    return field;
  }

  thinking() {
    const choices = { '': 'thinkingDefault', on: 'thinkingOn', off: 'thinkingOff' };
    const control = el('select', {}, ...Object.entries(choices).map(([value, name]) => el('option', { value, text: t(name) })));
    control.addEventListener('change', () => this.set('thinking', control.value));
    return this.field('thinking', control);
  }

  key() {
    const control = el('input', { type: 'password', id: 'key', autocomplete: 'off', spellcheck: 'false' });
    control.value = apiKey();
    control.addEventListener('change', () => { setApiKey(control.value); app.connect(); });
    return el('div', { class: 'field' }, el('label', { for: 'key', text: t('key') }), control,
      el('p', { class: 'note', text: t('keyNote') }));
  }

  keys() {
    const rows = [['Ctrl K', 'keySearch'], ['Ctrl ⇧ O', 'keyNew'], ['Esc', 'keyStop'], ['↑', 'keyEdit']];
    return el('dl', { class: 'keys' }, ...rows.flatMap(([key, name]) => (
      [el('dt', {}, el('kbd', { text: key })), el('dd', { text: t(name) })])));
  }
}

function panelHead(title) {
  return el('div', { class: 'head' }, el('h2', { text: title }), iconButton('close', t('close'), () => app.closePanels()));
}
