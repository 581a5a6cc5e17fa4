// Conversations and settings in this browser's storage. Each conversation lies under a key of its
// own, beside a short head for the list. Several tabs may have the same conversation: each of them
// takes in what the others stored before it stores its own, so that nothing is overwritten.

import { fromData, MAX_NODES, merge, size, toData } from "./tree.js";

const HEAD = "backstitch:head:";
const CHAT = "backstitch:chat:";
const SETTINGS = "backstitch:settings";
// A lock for each answer that is being written. Browsers have locks only where the page comes by
// HTTPS or from this machine.
const WRITING = "backstitch:writing:";

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
// The title and the system message of each conversation that were last read or stored here: other
// ones in the storage are another tab's, other ones in the conversation are changes of this tab.
const known = new WeakMap();

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
    const conversation = fromData(data);
    remember(conversation, conversation);
    return conversation;
  } catch (error) {
    console.warn(`Conversation ${id}: ${error.message}`);
    return null;
  }
}

/** Take in what other tabs stored of a conversation. */
export function pull(conversation) {
  const stored = load(conversation.id);
  if (stored !== null) take(conversation, stored);
}

function take(conversation, stored) {
  merge(conversation, stored, known.get(conversation));
  remember(conversation, stored);
}

/**
 * Keep a conversation, with what other tabs stored of it. An empty one is not kept. Throws an error
 * that says why it cannot be kept; what is stored then stays.
 */
export function save(conversation) {
  if (size(conversation) === 0) return;
  const { id } = conversation;
  const stored = load(id);
  if (stored !== null) {
    take(conversation, stored);
  } else if (storage.getItem(CHAT + id) !== null) {
    throw new Error("Another version of this page stored the conversation in a form that this one cannot read");
  }
  if (conversation.nodes.size > MAX_NODES) throw new Error("A conversation has at most 10,000 messages");
  try {
    storage.setItem(CHAT + id, JSON.stringify(toData(conversation)));
    storage.setItem(HEAD + id, JSON.stringify({ title: conversation.title, updated: conversation.updated }));
  } catch {
    throw new Error("This browser’s storage is full");
  }
  remember(conversation, conversation);
}

function remember(conversation, { title, system }) {
  known.set(conversation, { title, system });
}

/** Return true if a conversation was stored, and is no longer. */
export function isRemoved(conversation) {
  return known.has(conversation) && storage.getItem(CHAT + conversation.id) === null;
}

/** Tell other tabs that this one writes a node, until a promise is kept. */
export function holdNode(id, done) {
  navigator.locks?.request(WRITING + id, () => done);
}

/** Wait until no other tab writes a node. `onBusy` is called if one does. */
export async function whenNodeIsFree(id, onBusy) {
  const name = WRITING + id;
  const isFree = await navigator.locks?.request(name, { mode: "shared", ifAvailable: true }, (lock) => lock !== null);
  if (isFree !== false) return;
  onBusy();
  await navigator.locks.request(name, { mode: "shared" }, () => {});
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
