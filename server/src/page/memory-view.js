// The picture of the model's memory: the last turn, the sequence of this conversation with the cost
// of going back to each of its messages, and the other sequences that the server holds.

import { beginOf, costAt, costInWords } from "./cost.js";
import { el, svg } from "./dom.js";
import { bytes, count, duration, whole } from "./numbers.js";
import { reasonOf } from "./turn.js";

const WIDTH = 300;
const MOST_CELLS = 40;
const MOST_LISTED = 50;

const KINDS = {
  held: "free",
  replayed: "by replay",
  reevaluated: "by re-evaluation",
};

/**
 * Return the picture. `state` has cache, error, conversation, nodes (the shown messages), sequence
 * (of the conversation, or null) and focus (a function that moves to a message by its id).
 */
export function drawMemory(state) {
  if (state.error) return [el("p", { class: "hint" }, `No picture: ${state.error}`)];
  const last = state.nodes.findLast((node) => node.stats !== null && node.stats !== undefined);
  return [
    last && drawTurn(last.stats),
    drawConversation(state),
    drawSequences(state.cache, state.sequence),
    drawCounters(state.cache),
  ].filter(Boolean);
}

function section(title, ...children) {
  return el("section", { class: "card" }, el("h3", null, title), ...children);
}

// The prompt of the last turn as a bar: what was held, replayed, re-evaluated and new.
function drawTurn(stats) {
  const replayed = Math.min(stats.replayed ?? 0, stats.cached);
  const again = Math.min(stats.reevaluated ?? 0, stats.evaluated);
  const parts = [
    ["held", "reused", stats.cached - replayed],
    ["replayed", "replayed", replayed],
    ["reevaluated", "re-evaluated", again],
    ["new", "new", stats.evaluated - again],
  ];
  const share = stats.prompt ? Math.round((100 * stats.cached) / stats.prompt) : 0;
  const words = parts.filter(([, , n]) => n > 0).map(([, name, n]) => `${whole(n)} ${name}`).join(", ");
  return section("Last turn",
    el("p", { class: "figure" }, el("strong", null, `${share} %`), ` of ${count(stats.prompt, "token")} reused`),
    bar(parts.map(([kind, , n]) => [kind, n]), `Prompt of the last turn: ${words}.`),
    legend(parts.filter(([, , n]) => n > 0).map(([kind, name, n]) => [kind, `${whole(n)} ${name}`])),
    el("p", { class: "hint" }, turnInWords(stats)));
}

function turnInWords(stats) {
  const sentences = [];
  if (stats.why) sentences.push(`${capital(reasonOf(stats))}.`);
  if (stats.difference !== null && stats.difference !== undefined && stats.why !== "complete") {
    sentences.push(`First differing token: ${whole(stats.difference)}.`);
  }
  if (stats.fromDisk) sentences.push(`${count(stats.fromDisk, "token")} came from disk.`);
  if (stats.promptMs) sentences.push(`The prompt took ${duration(stats.promptMs)}.`);
  return sentences.join(" ");
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function drawConversation({ sequence, conversation, nodes, focus }) {
  if (nodes.length === 0) return null;
  if (!sequence) {
    return section("This conversation",
      el("p", { class: "hint" }, "Its tokens are not held as they are here. The next answer evaluates what is missing."));
  }
  const marks = nodes.map((node) => beginOf(conversation, node)).filter((at) => at !== null && at <= sequence.tokens);
  return section("This conversation",
    el("p", { class: "figure" }, el("strong", null, whole(sequence.tokens)), ` tokens, ${bytes(sequence.bytes)}`),
    drawSequence(sequence, marks),
    legend(Object.entries(KINDS).filter(([kind]) => sequence.ranges.some((range) => range.kind === kind))),
    el("p", { class: "hint" }, rangesInWords(sequence)),
    el("h4", null, "Going back to a message"),
    el("ol", { class: "returns" }, ...nodes.map((node) => drawReturn(node, conversation, sequence, focus))));
}

function drawReturn(node, conversation, sequence, focus) {
  const begin = beginOf(conversation, node);
  const isKnown = begin !== null && begin <= sequence.tokens;
  const cost = isKnown ? costAt(sequence, begin) : null;
  const text = (node.text || node.files[0]?.name || "…").trim().slice(0, 60);
  return el("li", null, el("button", { type: "button", class: "return", "data-key": `return ${node.id}`, onclick: () => focus(node.id) },
    el("span", { class: "who" }, node.role === "user" ? "You" : "Answer"),
    el("span", { class: "what" }, text),
    el("span", { class: `how ${cost?.kind ?? ""}` }, cost === null ? "not known yet" : costInWords(cost))));
}

/** Return the number of positions of each kind, and the largest cost, of a sequence. */
function summary(sequence) {
  const positions = { held: 0, replayed: 0, reevaluated: 0 };
  let most = 0;
  const checkpoints = new Set();
  for (const { from, to, restoredFrom, kind } of sequence.ranges) {
    positions[kind] += to - from;
    if (kind === "held") continue;
    most = Math.max(most, to - 1 - restoredFrom);
    if (restoredFrom > 0) checkpoints.add(restoredFrom);
  }
  return { positions, most, checkpoints: [...checkpoints] };
}

function rangesInWords(sequence) {
  const { positions, most, checkpoints } = summary(sequence);
  if (positions.replayed + positions.reevaluated === 0) return "Every position is held: going back is free.";
  const last = sequence.ranges.at(-1);
  const window = last.kind === "held" && last.to - last.from > 1 ? ` The last ${whole(last.to - last.from)} positions are held.` : "";
  return `${count(checkpoints.length, "checkpoint")}; going back costs ${count(most, "token")} at most.${window}`;
}

// Cells of the memory, coloured by the cost of going back to them, above the cost as a curve.
function drawSequence(sequence, marks) {
  const { positions, most, checkpoints } = summary(sequence);
  const scale = WIDTH / Math.max(1, sequence.tokens);
  const words = Object.entries(KINDS).map(([kind, name]) => `${whole(positions[kind])} ${name}`).join(", ");
  const label = `Positions that can be returned to: ${words}; ${count(checkpoints.length, "checkpoint")}.`;
  const size = cellSize(sequence.tokens);
  return el("div", { class: "sequence" },
    svg("svg", { viewBox: `0 0 ${WIDTH} 64`, role: "img", "aria-label": label },
      ...sequence.ranges.map(({ from, to, kind }) => rect(kind, from * scale, 8, (to - from) * scale, 18)),
      ...cellGaps(sequence.tokens, size, scale),
      ...checkpoints.map((at) => svg("path", { class: "checkpoint", d: `M${at * scale - 3} 1h6l-3 5z` })),
      ...sequence.ranges.map((range) => costCurve(range, most, scale)),
      svg("path", { class: "axis", d: `M0 62.5h${WIDTH}` }),
      ...marks.map((at) => svg("path", { class: "mark", d: `M${clampMark(at * scale)} 7v55` }))),
    el("p", { class: "hint axis-words" }, el("span", null, "0"),
      el("span", null, `a cell: ${whole(size)} · ▾ checkpoint · ┆ message`), el("span", null, whole(sequence.tokens))));
}

function clampMark(x) {
  return Math.min(WIDTH - 0.5, Math.max(0.5, x));
}

function rect(kind, x, y, width, height) {
  return svg("rect", { class: kind, x, y, width: Math.max(0.6, width), height });
}

// Cells of a power of two of tokens, so that they stay wide enough to be seen.
function cellSize(tokens) {
  let size = 16;
  while (tokens / size > MOST_CELLS) size *= 2;
  return size;
}

function cellGaps(tokens, size, scale) {
  const gaps = [];
  for (let at = size; at < tokens; at += size) gaps.push(svg("path", { class: "gap", d: `M${at * scale} 8v18` }));
  return gaps;
}

// From a checkpoint on, the cost grows by a token a position.
function costCurve({ from, to, restoredFrom, kind }, most, scale) {
  if (kind === "held" || most === 0) return svg("path", { class: `curve ${kind}`, d: `M${from * scale} 62h${(to - from) * scale}` });
  const y = (position) => 62 - (28 * Math.max(0, position - restoredFrom)) / most;
  return svg("path", { class: `curve ${kind}`,
    d: `M${from * scale} 62V${y(from)}L${to * scale} ${Math.max(34, y(to - 1))}V62z` });
}

function drawSequences(cache, shown) {
  if (cache.sequences.length === 0) return section("Held sequences", el("p", { class: "hint" }, "The memory is empty."));
  const listed = [...cache.sequences].sort((a, b) => b.isBusy - a.isBusy || a.idleMs - b.idleMs).slice(0, MOST_LISTED);
  const rest = cache.sequences.length - listed.length;
  return section(`Held sequences (${cache.sequences.length})`,
    el("ul", { class: "held-list" }, ...listed.map((sequence) => drawHeld(sequence, cache, sequence === shown))),
    rest > 0 && el("p", { class: "hint" }, `and ${whole(rest)} more`));
}

function drawHeld(sequence, cache, isShown) {
  const where = [
    isShown ? "this conversation" : null,
    sequence.isBusy ? "busy" : `idle ${duration(sequence.idleMs)}`,
    sequence.slot !== null ? `slot ${sequence.slot}` : null,
  ].filter(Boolean).join(" · ");
  const longest = cache.nCtx || Math.max(...cache.sequences.map((other) => other.tokens), 1);
  const scale = WIDTH / Math.max(longest, sequence.tokens);
  return el("li", { class: sequence.isBusy ? "busy" : null },
    el("p", { class: "held-text" }, sequence.text || "(no text)"),
    svg("svg", { viewBox: `0 0 ${WIDTH} 7`, "aria-hidden": "true" }, rect("empty", 0, 0, WIDTH, 7),
      ...sequence.ranges.map(({ from, to, kind }) => rect(kind, from * scale, 0, (to - from) * scale, 7))),
    el("p", { class: "hint" }, `${count(sequence.tokens, "token")} · ${bytes(sequence.bytes)} · ${where}`));
}

function drawCounters({ counters, nCtx, nSlots }) {
  const asked = (counters.n_prompt ?? 0) + (counters.n_cached ?? 0);
  // A server with several keys counts for none of them.
  const counted = Object.keys(counters).length > 0 ? [
    ["Prompt tokens reused", asked ? `${whole(counters.n_cached)} of ${whole(asked)}` : "none yet"],
    ["Tokens written", whole(counters.n_generated ?? 0)],
    ["Sequences held", whole(counters.n_held ?? 0)],
    ["Dropped to make room", whole(counters.n_evicted ?? 0)],
  ] : [];
  const rows = [
    ...counted,
    nCtx !== null && ["Context", count(nCtx, "token")],
    nSlots !== null && ["Slots", whole(nSlots)],
  ].filter(Boolean);
  return section("Since the server began",
    el("dl", { class: "counters" }, ...rows.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
}

function bar(parts, label) {
  const total = parts.reduce((sum, [, n]) => sum + n, 0) || 1;
  let x = 0;
  const rects = parts.filter(([, n]) => n > 0).map(([kind, n]) => {
    const width = (WIDTH * n) / total;
    const drawn = rect(kind, x, 0, width, 14);
    x += width;
    return drawn;
  });
  return svg("svg", { viewBox: `0 0 ${WIDTH} 14`, role: "img", "aria-label": label }, ...rects);
}

function legend(entries) {
  return el("ul", { class: "legend" }, ...entries.map(([kind, name]) => el("li", null,
    svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, rect(kind, 0, 0, 10, 10)), name)));
}
