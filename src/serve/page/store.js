// Where chats live: IndexedDB of this browser, or the page's memory where the browser keeps no data.
// Preferences are in localStorage; the API key is in sessionStorage alone, until the tab is closed.

const EXPORT_FORMAT = 'skiff-chats';

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const store = {
  base: null,
  waiting: new Map(),  // chats that will be written, and the timers that will

  // Returns all chats. Without a data base the page works, and says that it keeps nothing.
  async open() {
    try {
      const opening = indexedDB.open('skiff', 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore('chats', { keyPath: 'id' });
      this.base = await done(opening);
      return await done(this.chats('readonly').getAll());
    } catch {
      this.base = null;
      toast(t('noStorage'));
      return [];
    }
  },

  chats(mode) {
    return this.base.transaction('chats', mode).objectStore('chats');
  },

  async save(chat) {
    clearTimeout(this.waiting.get(chat)?.timer);
    this.waiting.delete(chat);
    if (!this.base) return;
    try {
      await done(this.chats('readwrite').put(chat));
    } catch (error) {
      toast(String(error.message ?? error));
    }
  },

  // While an answer arrives, its chat is written about once a second.
  saveSoon(chat) {
    if (this.waiting.has(chat)) return;
    this.waiting.set(chat, { timer: setTimeout(() => this.save(chat), 1000) });
  },

  saveAll() {
    for (const chat of [...this.waiting.keys()]) this.save(chat);
  },

  async remove(chat) {
    clearTimeout(this.waiting.get(chat)?.timer);
    this.waiting.delete(chat);
    if (this.base) await done(this.chats('readwrite').delete(chat.id)).catch(() => {});
  },
};

// Both kinds of storage may be forbidden; then nothing is remembered.
const memory = {
  read(storage, name) {
    try { return window[storage].getItem('skiff.' + name); } catch { return null; }
  },
  write(storage, name, value) {
    try {
      if (value === null || value === '') window[storage].removeItem('skiff.' + name);
      else window[storage].setItem('skiff.' + name, value);
    } catch { /* see above */ }
  },
};

function preference(name) { return memory.read('localStorage', name); }
function remember(name, value) { memory.write('localStorage', name, value); }
function apiKey() { return memory.read('sessionStorage', 'key') ?? ''; }
// A header can carry no other characters.
function setApiKey(key) { memory.write('sessionStorage', 'key', key.replace(/[^\x21-\x7e]/g, '')); }

function exportChats(chats) {
  const stamp = new Date().toISOString().slice(0, 10);
  saveFile(`skiff-chats-${stamp}.json`, JSON.stringify({ format: EXPORT_FORMAT, version: 1, chats }, null, 1));
}

// Chats of a file that exportChats() made; throws if it is another. They get new names, so that
// nothing that is here already is replaced.
function readExport(text) {
  const file = JSON.parse(text);
  if (file?.format !== EXPORT_FORMAT || !Array.isArray(file.chats)) throw new Error(t('noSuchFile'));
  return file.chats.map(readChat).filter((chat) => chat !== null);
}
