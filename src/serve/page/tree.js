// A chat is a tree of messages, of which one path is shown: to edit a message or to ask for another
// answer adds a sibling, and nothing is lost. Plain values, as they are stored and exported:
//   chat  {id, title, renamed, created, updated, model, settings, nodes, chosen}
//   node  {id, parent, role, content, time}, and where they apply: reasoning, thinkingMs, calls
//         [{id, name, arguments}], callId and name (of a tool's result), finish, error, stats
// `parent` is the id of another node, or '' for the first one. `chosen` maps the id of a parent to
// that of the child that is shown; without an entry it is the newest.

const ROLES = ['user', 'assistant', 'tool'];
const MAX_TITLE = 80;

function newChat(settings) {
  const now = Date.now();
  return { id: newId(), title: '', renamed: false, created: now, updated: now, model: '',
    settings: { ...settings }, nodes: [], chosen: {} };
}

function addNode(chat, parent, fields) {
  const node = { id: newId(), parent: parent?.id ?? '', content: '', time: Date.now(), ...fields };
  chat.nodes.push(node);
  chat.chosen[node.parent] = node.id;
  chat.updated = node.time;
  if (!chat.title && node.role === 'user') chat.title = titleOf(node.content);
  return node;
}

function titleOf(text) {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= MAX_TITLE ? line : line.slice(0, MAX_TITLE - 1) + '…';
}

// The nodes from the first to the last that are shown.
function pathOf(chat) {
  const children = new Map();
  for (const node of chat.nodes) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  const path = [];
  for (let family = children.get(''); family; family = children.get(path.at(-1).id))
    path.push(family.find((node) => node.id === chat.chosen[node.parent]) ?? family.at(-1));
  return path;
}

function siblingsOf(chat, node) {
  return chat.nodes.filter((other) => other.parent === node.parent);
}

function parentOf(chat, node) {
  return chat.nodes.find((other) => other.id === node.parent) ?? null;
}

function hasSaidNothing(node) {
  return node.role === 'assistant' && !node.content && !node.calls?.length;
}

// The messages of a request that asks for what comes at `node`.
function messagesBefore(chat, node) {
  const messages = [];
  for (let at = parentOf(chat, node); at; at = parentOf(chat, at))
    if (!hasSaidNothing(at)) messages.unshift(messageOf(at));
  const system = chat.settings.system?.trim();
  return system ? [{ role: 'system', content: system }, ...messages] : messages;
}

function messageOf(node) {
  const message = { role: node.role, content: node.content };
  if (node.role === 'tool') message.tool_call_id = node.callId;
  if (!node.calls?.length) return message;
  // Models that think between calls want to see what they thought.
  if (node.reasoning) message.reasoning_content = node.reasoning;
  message.tool_calls = node.calls.map((call) => (
    { id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
  return message;
}

function chatHas(chat, words) {
  const texts = [chat.title, ...chat.nodes.map((node) => node.content)].map((text) => text.toLowerCase());
  return words.every((word) => texts.some((text) => text.includes(word)));
}

// A chat of an imported file with nothing in it but what this page knows; null if it is none.
function readChat(value) {
  const text = (given) => (typeof given === 'string' ? given : '');
  const time = (given) => (Number.isFinite(given) ? given : Date.now());
  if (!Array.isArray(value?.nodes)) return null;
  const nodes = [];
  const known = new Set(['']);
  for (const given of value.nodes) {
    // A parent stands before its children, so no chat can go in circles.
    if (!ROLES.includes(given?.role) || !text(given.id) || known.has(given.id) || !known.has(given.parent)) continue;
    known.add(given.id);
    const node = { id: given.id, parent: given.parent, role: given.role, content: text(given.content), time: time(given.time) };
    for (const key of ['reasoning', 'callId', 'name', 'finish', 'error']) if (text(given[key])) node[key] = given[key];
    if (Number.isFinite(given.thinkingMs)) node.thinkingMs = given.thinkingMs;
    if (Array.isArray(given.calls))
      node.calls = given.calls.map((call) => ({ id: text(call?.id), name: text(call?.name), arguments: text(call?.arguments) }));
    nodes.push(node);
  }
  const chosen = Object.fromEntries(Object.entries(value.chosen ?? {}).filter(([, child]) => known.has(child)));
  return { id: newId(), title: text(value.title).slice(0, MAX_TITLE), renamed: value.renamed === true, created: time(value.created),
    updated: time(value.updated), model: text(value.model), settings: readSettings(value.settings), nodes, chosen };
}
