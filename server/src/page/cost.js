// What going back would cost: the held sequences that the server lists, matched with the messages of
// the conversation.

import { count, natural } from "./numbers.js";
import { endOf } from "./turn.js";
import { parentOf } from "./tree.js";

// A sequence may hold a token less than was generated: the last one is not evaluated.
const SLACK = 2;

/** Return the answer of GET /backstitch/cache with everything checked, so that it can be drawn. */
export function readCache(data) {
  const list = Array.isArray(data?.sequences) ? data.sequences.slice(0, 1000) : [];
  const counters = {};
  for (const [name, value] of Object.entries(data?.counters ?? {})) counters[name] = natural(value) ?? 0;
  return { sequences: list.map(readSequence), counters, nCtx: natural(data?.n_ctx), nSlots: natural(data?.n_slots) };
}

function readSequence(raw) {
  const ranges = Array.isArray(raw?.positions) ? raw.positions.slice(0, 5000) : [];
  return {
    seq: natural(raw?.seq) ?? 0,
    slot: natural(raw?.slot),
    isBusy: raw?.is_busy === true,
    tokens: natural(raw?.n_tokens) ?? 0,
    idleMs: natural(raw?.idle_ms) ?? 0,
    bytes: natural(raw?.n_bytes) ?? 0,
    text: typeof raw?.text_begin === "string" ? raw.text_begin : "",
    ranges: ranges.map(readRange).filter((range) => range.to > range.from),
  };
}

function readRange(raw) {
  const kind = ["held", "replayed", "reevaluated"].includes(raw?.cost) ? raw.cost : "reevaluated";
  return { from: natural(raw?.from) ?? 0, to: natural(raw?.to) ?? 0, restoredFrom: natural(raw?.restored_from) ?? 0, kind };
}

/** Return the sequence that holds the conversation's last answer, or null. */
export function sequenceOf(nodes, sequences) {
  const last = nodes.findLast((node) => endOf(node) !== null);
  if (!last) return null;
  const end = endOf(last);
  const fits = sequences.filter((sequence) =>
    sequence.seq === last.stats.seq ? sequence.tokens >= end - SLACK : Math.abs(sequence.tokens - end) <= SLACK);
  const score = (sequence) => (sequence.seq === last.stats.seq ? 2 : 0) + (beginsLike(sequence, nodes[0]) ? 1 : 0);
  return fits.sort((a, b) => score(b) - score(a) || a.idleMs - b.idleMs)[0] ?? null;
}

function beginsLike(sequence, first) {
  const words = first.text.trim().slice(0, 16);
  return words !== "" && sequence.text.includes(words);
}

/** Return {kind, tokens}: the work to return to a position of a sequence. */
export function costAt(sequence, position) {
  const range = sequence.ranges.find(({ from, to }) => from <= position && position < to);
  if (position === 0 || position >= sequence.tokens || !range || range.kind === "held") return { kind: "held", tokens: 0 };
  return { kind: range.kind, tokens: Math.max(0, position - range.restoredFrom) };
}

/** Return the position at which a message begins; null if it is not known. */
export function beginOf(conversation, node) {
  if (node.role === "assistant") return node.stats?.prompt ?? null;
  const before = parentOf(conversation, node);
  if (before === null) return 0;
  const end = endOf(before);
  if (end === null) return null;
  // Prompts leave out the reasoning of earlier answers: the message may begin sooner than they ended.
  const prompts = node.children.map((id) => conversation.nodes.get(id).stats?.prompt ?? Infinity);
  return Math.min(end, ...prompts);
}

/** Return a cost in words. */
export function costInWords({ kind, tokens }) {
  if (kind === "held" || tokens === 0) return "free";
  return kind === "replayed" ? `replays ${count(tokens, "token")}` : `re-evaluates ${count(tokens, "token")}`;
}
