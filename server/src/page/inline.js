// Markdown inside of a block: emphasis, code, links, line breaks. The text is a model's, so that
// everything becomes text nodes and a few known elements, and the work is bounded: looking for the
// end of a construct stops after MOST_TEXT characters or MOST_OPEN open constructs.

import { el } from "./dom.js";

const MOST_TEXT = 2000;
const MOST_OPEN = 32;
const MOST_DEPTH = 4;

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
const WORD = /[\p{L}\p{N}_]/u;
// Text up to the next character that may mean something, or the beginning of a bare URL.
const PLAIN = /(?:(?!https?:\/\/|!\[)[^\\`*_~[<!\n])+/y;
const BARE_URL = /https?:\/\/[^\s<>"'`*]+/y;
const ANGLE_URL = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const TARGET = /\(\s{0,20}<?([^\s()<>]{0,2000}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500})?)>?(?:\s{1,20}"[^"]{0,500}")?\s{0,20}\)/y;

/** Return the nodes of a text. */
export function inline(text, depth = 0) {
  // Emphasis that is open: each entry holds the nodes after its mark. The first is the text itself.
  const open = [{ mark: "", count: 0, nodes: [] }];
  const missing = new Set();
  let at = 0;
  while (at < text.length) {
    const piece = read(text, at, depth, missing);
    if (piece.mark) closeOrOpen(open, piece);
    else append(open.at(-1).nodes, piece.node);
    at += piece.length;
  }
  while (open.length > 1) giveUp(open);
  return open[0].nodes;
}

/** Return a link if the address is one of the web's, else a text. Links open apart from this page. */
export function link(address, nodes) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // A relative address means nothing here.
  }
  if (url === null || !["http:", "https:"].includes(url.protocol)) return el("span", null, ...nodes);
  return el("a", { href: url.href, title: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, ...nodes);
}

// Return what begins at `at`: its length, with a node or with a mark of emphasis.
function read(text, at, depth, missing) {
  const plain = match(PLAIN, text, at);
  if (plain) return { length: plain[0].length, node: plain[0] };
  switch (text[at]) {
    case "\\": return readEscape(text, at);
    case "\n": return readBreak(text, at);
    case "`": return readCode(text, at, missing);
    case "*": case "_": case "~": return readMark(text, at);
    case "[": case "!": return readLink(text, at, depth) ?? { length: 1, node: text[at] };
    case "<": return readAngle(text, at) ?? { length: 1, node: "<" };
    default: return readBareUrl(text, at) ?? { length: 1, node: text[at] };
  }
}

function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function readEscape(text, at) {
  const next = text[at + 1];
  if (next === "\n") return { length: 2, node: el("br") };
  if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) return { length: 2, node: next };
  return { length: 1, node: "\\" };
}

// A line that ends in two spaces breaks there.
function readBreak(text, at) {
  return { length: 1, node: text.slice(Math.max(0, at - 2), at) === "  " ? el("br") : "\n" };
}

// Code ends with as many backticks as it began with. `missing` holds the numbers that were sought
// in vain, so that many backticks do not cost many searches.
function readCode(text, at, missing) {
  const ticks = match(/`+/y, text, at)[0];
  const literal = { length: ticks.length, node: ticks };
  if (missing.has(ticks.length)) return literal;
  const runs = /`+/g;
  runs.lastIndex = at + ticks.length;
  for (let run = runs.exec(text); run; run = runs.exec(text)) {
    if (run[0].length !== ticks.length) continue;
    const code = text.slice(at + ticks.length, run.index).replace(/\n/g, " ");
    const trimmed = /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code;
    return { length: runs.lastIndex - at, node: el("code", null, trimmed) };
  }
  missing.add(ticks.length);
  return literal;
}

// A run of *, _ or ~ opens emphasis before a word, and closes it after one.
function readMark(text, at) {
  const mark = text[at];
  let length = 1;
  while (text[at + length] === mark) length += 1;
  const before = text[at - 1] ?? " ";
  const after = text[at + length] ?? " ";
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [punctuationBefore, punctuationAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  let canOpen = !spaceAfter && (!punctuationAfter || spaceBefore || punctuationBefore);
  let canClose = !spaceBefore && (!punctuationBefore || spaceAfter || punctuationAfter);
  // A long row of marks is a drawing.
  if (length > 3) return { length, node: text.slice(at, at + length) };
  // snake_case is no emphasis; neither is a single ~.
  if (mark === "_" && WORD.test(before) && WORD.test(after)) canOpen = canClose = false;
  if (mark === "~" && length !== 2) canOpen = canClose = false;
  return { length, mark, canOpen, canClose };
}

// [text](address). Pictures are not loaded: they become links.
function readLink(text, at, depth) {
  const isPicture = text[at] === "!";
  const start = at + (isPicture ? 2 : 1);
  if ((isPicture && text[at + 1] !== "[") || depth >= MOST_DEPTH) return null;
  const end = closingBracket(text, start);
  const target = end === null ? null : match(TARGET, text, end + 1);
  if (!target) return null;
  const label = text.slice(start, end);
  const nodes = isPicture ? [`Picture: ${label || target[1]}`] : inline(label, MOST_DEPTH);
  return { length: end + 1 + target[0].length - at, node: link(target[1], nodes) };
}

function closingBracket(text, start) {
  let level = 1;
  const last = Math.min(text.length, start + MOST_TEXT);
  for (let at = start; at < last; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") level += 1;
    else if (text[at] === "]") level -= 1;
    if (level === 0) return at;
    if (level > MOST_OPEN) return null;
  }
  return null;
}

function readAngle(text, at) {
  const found = match(ANGLE_URL, text, at);
  return found && { length: found[0].length, node: link(found[1], [found[1]]) };
}

// A bare URL ends before the punctuation of its sentence, and before ")" if it has no "(".
function readBareUrl(text, at) {
  const found = match(BARE_URL, text, at);
  if (!found) return null;
  let url = found[0].slice(0, MOST_TEXT).replace(/[.,:;!?\]]+$/, "");
  if (url.endsWith(")") && !url.includes("(")) url = url.replace(/\)+$/, "");
  return { length: url.length, node: link(url, [url]) };
}

// Close emphasis that is open with this mark, as often as the mark's length allows; open the rest.
function closeOrOpen(open, { mark, length, canOpen, canClose }) {
  let left = length;
  while (left > 0 && canClose) {
    const index = open.findLastIndex((entry) => entry.mark === mark);
    if (index < 0) break;
    while (open.length > index + 1) giveUp(open);
    left -= close(open, left);
  }
  if (left === 0) return;
  if (canOpen && open.length < MOST_OPEN) open.push({ mark, count: left, nodes: [] });
  else append(open.at(-1).nodes, mark.repeat(left));
}

// Make the last open entry an element, and return the number of marks that it took.
function close(open, left) {
  const entry = open.at(-1);
  const used = Math.min(2, left, entry.count);
  const tag = entry.mark === "~" ? "del" : used === 2 ? "strong" : "em";
  const element = el(tag, null, ...entry.nodes);
  entry.count -= used;
  if (entry.count > 0) {
    entry.nodes = [element];
  } else {
    open.pop();
    open.at(-1).nodes.push(element);
  }
  return used;
}

// The last open entry was no emphasis: its mark is text.
function giveUp(open) {
  const { mark, count, nodes } = open.pop();
  const below = open.at(-1).nodes;
  append(below, mark.repeat(count));
  for (const node of nodes) append(below, node);
}

// Neighbouring texts become one.
function append(nodes, node) {
  if (typeof node === "string" && typeof nodes.at(-1) === "string") nodes[nodes.length - 1] += node;
  else nodes.push(node);
}
