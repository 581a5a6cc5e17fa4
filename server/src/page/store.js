// Conversations and settings in this browser's storage. Each conversation lies under a key of its
// own, beside a short head for the list, so that several tabs do not overwrite each other's.

import { fromData, size, toData } from "./tree.js";

const HEAD = "backstitch:head:";
const CHAT = "backstitch:chat:";
const SETTINGS = "backstitch:settings";

// Used where the browser refuses storage: everything works until the page is closed.
class NoStorage {
  #values = new Map();
  get length() { return this.#values.size; }
  key(n) { return [...this.#values.keys()][n] ?? null; }
  getItem(key) { return this.#values.get(key) ?? null; }
  setItem(key, value) { this.#values.set(key, value); }
  removeItem(key) { this.#values.delete(key); }
}

const storage = openStorage();

function openStorage() {
  try {
    window.localStorage.getItem(HEAD);
    return window.localStorage;
  } catch {
    return new NoStorage();
  }
}

/** Return true if conversations outlive the page. */
export function isLasting() {
  return !(storage instanceof NoStorage);
}

/** Return the heads of all conversations, {id, title, updated}, the latest first. */
export function list() {
  const heads = [];
  for (let n = 0; n < storage.length; n += 1) {
    const key = storage.key(n);
    if (!key.startsWith(HEAD)) continue;
    const head = parse(storage.getItem(key));
    if (head) heads.push({ id: key.slice(HEAD.length), title: String(head.title), updated: Number(head.updated) || 0 });
  }
  return heads.sort((a, b) => b.updated - a.updated);
}

/** Return a conversation; null if it is not there or damaged. */
export function load(id) {
  const data = parse(storage.getItem(CHAT + id));
  if (data === null) return null;
  try {
    return fromData(data);
  } catch (error) {
    console.warn(`Conversation ${id}: ${error.message}`);
    return null;
  }
}

/** Keep a conversation. Throws if the browser's storage is full. An empty one is not kept. */
export function save(conversation) {
  if (size(conversation) === 0) return;
  storage.setItem(CHAT + conversation.id, JSON.stringify(toData(conversation)));
  storage.setItem(HEAD + conversation.id, JSON.stringify({ title: conversation.title, updated: conversation.updated }));
}

/** Drop a conversation. */
export function remove(id) {
  storage.removeItem(HEAD + id);
  storage.removeItem(CHAT + id);
}

/** Return the conversation's id if a key of the storage belongs to one, else null. */
export function idOfKey(key) {
  return key?.startsWith(CHAT) ? key.slice(CHAT.length) : null;
}

/** Return the settings. Those that are not set are missing. */
export function loadSettings() {
  const settings = parse(storage.getItem(SETTINGS));
  return typeof settings === "object" && settings !== null ? settings : {};
}

/** Keep the settings. */
export function saveSettings(settings) {
  storage.setItem(SETTINGS, JSON.stringify(settings));
}

/** Return a short value that is kept under a name. */
export function loadValue(name) {
  return storage.getItem(`backstitch:${name}`);
}

/** Keep a short value under a name, unless the storage is full. */
export function saveValue(name, value) {
  try {
    storage.setItem(`backstitch:${name}`, value);
  } catch {
    // Open panels and the theme are not worth a notice.
  }
}

function parse(text) {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}
