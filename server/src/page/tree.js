// A conversation as a tree of messages. Editing or regenerating a message adds a sibling of it, so
// that nothing is ever lost; `chosen` says which child of each message is on the shown path.
//
// The root is a node without a message. Nodes are kept in a Map by id.

import { natural } from "./numbers.js";

const ROOT = "root";
/** The most nodes of a conversation: a longer one is not read. */
export const MAX_NODES = 10_000;
// The numbers that turn.js writes of an answer. The first ones are always there.
const COUNTS = ["cached", "evaluated", "generated", "prompt"];
const NUMBERS = ["promptMs", "generatedMs", "perSecond", "reused", "replayed", "reevaluated", "difference", "fromDisk", "seq"];

/** Return an id that is random enough for one browser. */
export function newId() {
  const numbers = crypto.getRandomValues(new Uint32Array(3));
  return Array.from(numbers, (n) => n.toString(36)).join("");
}

/** Return a conversation without messages. */
export function newConversation(system = "") {
  const now = Date.now();
  const nodes = new Map([[ROOT, { id: ROOT, parent: null, children: [], chosen: null }]]);
  return { id: newId(), title: "", system, created: now, updated: now, nodes };
}

/** Add a message under `parent` (null: at the beginning), choose it, and return its node. */
export function addMessage(conversation, parent, role, fields = {}) {
  const above = parent ?? conversation.nodes.get(ROOT);
  const now = Date.now();
  const node = {
    id: newId(), parent: above.id, role, children: [], chosen: null,
    text: "", reasoning: "", files: [], finish: null, error: null, stats: null, created: now, updated: now, ...fields,
  };
  conversation.nodes.set(node.id, node);
  above.children.push(node.id);
  above.chosen = node.id;
  return node;
}

/** Return the messages on the chosen path, from the first to the last. */
export function path(conversation) {
  const nodes = [];
  let node = conversation.nodes.get(ROOT);
  while (node.chosen !== null) {
    node = conversation.nodes.get(node.chosen);
    nodes.push(node);
  }
  return nodes;
}

/** Return the messages above a node, from the first one, without the node itself. */
export function above(conversation, node) {
  const nodes = [];
  let at = parentOf(conversation, node);
  while (at !== null) {
    nodes.unshift(at);
    at = parentOf(conversation, at);
  }
  return nodes;
}

/** Return the message above a node, or null at the beginning. */
export function parentOf(conversation, node) {
  return node.parent === ROOT ? null : conversation.nodes.get(node.parent);
}

/** Return the ids of a node and its siblings, in the order in which they were made. */
export function siblings(conversation, node) {
  return conversation.nodes.get(node.parent).children;
}

/** Choose the sibling that lies `step` further, and return it; null if there is none. */
export function chooseSibling(conversation, node, step) {
  const ids = siblings(conversation, node);
  const id = ids[ids.indexOf(node.id) + step];
  if (id === undefined) return null;
  conversation.nodes.get(node.parent).chosen = id;
  return conversation.nodes.get(id);
}

/** Return the number of messages in all branches. */
export function size(conversation) {
  return conversation.nodes.size - 1;
}

/** Return true for an answer that is still being written, or was cut off. */
export function isUnfinished(node) {
  return node.role === "assistant" && node.finish === null && node.error === null;
}

/**
 * Take in another copy of the conversation, the stored one. Messages of either copy stay, as none
 * is ever deleted alone; of a message in both, the later words are taken. The branches that are
 * shown stay. `known` has a title and a system message: where the conversation still has these, it
 * takes the other copy's.
 */
export function merge(conversation, stored, known) {
  for (const name of ["title", "system"]) {
    if (conversation[name] === known?.[name]) conversation[name] = stored[name];
  }
  conversation.updated = Math.max(conversation.updated, stored.updated);
  for (const [id, other] of stored.nodes) {
    const node = conversation.nodes.get(id);
    if (node) mergeNode(node, other);
    else conversation.nodes.set(id, other);
  }
}

// All tabs find the siblings in the order in which they were stored.
function mergeNode(node, { children, chosen, ...words }) {
  node.children = [...new Set([...children, ...node.children])];
  node.chosen ??= chosen;
  if (words.updated > node.updated) Object.assign(node, words);
}

/** Return the conversation as plain data for JSON. */
export function toData(conversation) {
  return { ...conversation, version: 1, nodes: [...conversation.nodes.values()] };
}

/**
 * Return the conversation that plain data holds. The data may come from anywhere: fields are copied
 * one by one, and whatever does not form a tree is an error.
 */
export function fromData(data) {
  if (!isObject(data) || data.version !== 1 || !Array.isArray(data.nodes)) throw new Error("this is no conversation");
  if (data.nodes.length > MAX_NODES) throw new Error("the conversation has more than 10,000 messages");
  const nodes = new Map();
  for (const raw of data.nodes) {
    const node = readNode(raw);
    if (nodes.has(node.id)) throw new Error(`two messages have the id ${node.id}`);
    nodes.set(node.id, node);
  }
  checkTree(nodes);
  return {
    id: isId(data.id) ? data.id : newId(), title: string(data.title).slice(0, 200), system: string(data.system),
    created: number(data.created) ?? Date.now(), updated: number(data.updated) ?? Date.now(), nodes,
  };
}

function readNode(raw) {
  if (!isObject(raw) || !isId(raw.id) || !Array.isArray(raw.children) || !raw.children.every(isId)) {
    throw new Error("a message is malformed");
  }
  const children = [...raw.children];
  const chosen = children.includes(raw.chosen) ? raw.chosen : (children.at(-1) ?? null);
  if (raw.id === ROOT) return { id: ROOT, parent: null, children, chosen };
  if (!isId(raw.parent) || !["user", "assistant"].includes(raw.role)) throw new Error("a message is malformed");
  const files = Array.isArray(raw.files) ? raw.files.filter(isObject) : [];
  return {
    id: raw.id, parent: raw.parent, role: raw.role, children, chosen,
    text: string(raw.text), reasoning: string(raw.reasoning),
    files: files.map((file) => ({ name: string(file.name), text: string(file.text) })),
    finish: typeof raw.finish === "string" ? raw.finish : null,
    error: typeof raw.error === "string" ? raw.error : null,
    stats: isObject(raw.stats) ? readStats(raw.stats) : null,
    created: number(raw.created) ?? 0,
    updated: number(raw.updated) ?? number(raw.created) ?? 0,
  };
}

// Every node but the root is the child of its parent, once, and can be reached from the root.
function checkTree(nodes) {
  if (!nodes.has(ROOT)) throw new Error("the conversation has no beginning");
  const seen = new Set();
  const open = [ROOT];
  while (open.length > 0) {
    const id = open.pop();
    if (seen.has(id)) throw new Error("a message is in two places");
    seen.add(id);
    for (const child of nodes.get(id).children) {
      if (nodes.get(child)?.parent !== id) throw new Error("a message is in no place");
      open.push(child);
    }
  }
  if (seen.size !== nodes.size) throw new Error("a message is in no place");
}

// Without the counts that are always there, nothing can be drawn.
function readStats(raw) {
  if (COUNTS.some((name) => natural(raw[name]) === null)) return null;
  const names = [...COUNTS, ...NUMBERS].filter((name) => natural(raw[name]) !== null);
  const stats = Object.fromEntries(names.map((name) => [name, raw[name]]));
  if (typeof raw.why === "string") stats.why = raw.why.slice(0, 200);
  return stats;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isId(value) {
  return typeof value === "string" && /^[a-z0-9]{1,40}$/.test(value);
}

function string(value) {
  return typeof value === "string" ? value : "";
}

function number(value) {
  return Number.isFinite(value) ? value : null;
}
