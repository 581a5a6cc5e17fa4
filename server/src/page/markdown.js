// Markdown blocks: code, headings, lists, quotes, tables, rules, paragraphs. Written for what models
// write. HTML is not interpreted; it is shown as the text that it is.
//
// `parse` makes plain objects, `render` makes elements of them. Nesting is bounded by MOST_DEPTH.

import { copyButton } from "./clipboard.js";
import { el } from "./dom.js";
import { inline } from "./inline.js";

const MOST_DEPTH = 8;
const MOST_COLUMNS = 64;
// Longer lines are text: the patterns below look at a line more than once.
const MOST_LINE = 1000;

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*(\S*)/;
const HEADING = /^ {0,3}(#{1,6})(?: |$)/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)(.*)$/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** Return the blocks of a text. Each has the text that it came from under `source`. */
export function parse(text) {
  return parseLines(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
}

/** Return the element of a block. */
export function render(block) {
  switch (block.type) {
    case "code": return renderCode(block);
    case "heading": return renderHeading(block);
    case "rule": return el("hr");
    case "quote": return el("blockquote", null, ...block.blocks.map(render));
    case "list": return renderList(block);
    case "table": return renderTable(block);
    default: return el("p", null, ...inline(block.text));
  }
}

/** A text that grows: blocks that did not change keep their elements, and what is selected in them. */
export class MarkdownView {
  #shown = [];

  constructor(element) {
    this.element = element;
  }

  /** Show this text instead of the last one. */
  update(text) {
    const blocks = parse(text);
    let same = 0;
    while (same < blocks.length && this.#shown[same]?.source === blocks[same].source) same += 1;
    for (const { element } of this.#shown.splice(same)) element.remove();
    for (const block of blocks.slice(same)) {
      const element = render(block);
      this.element.append(element);
      this.#shown.push({ source: block.source, element });
    }
  }
}

function parseLines(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [block, next] = parseBlock(lines, at, depth);
    block.source = lines.slice(at, next).join("\n");
    blocks.push(block);
    at = next;
  }
  return blocks;
}

// Each reader returns a block with the number of the line after it, or null if it is none of its kind.
function parseBlock(lines, at, depth) {
  const isNested = depth < MOST_DEPTH;
  return parseFence(lines, at) ?? parseHeading(lines, at) ?? parseRule(lines, at) ??
    (isNested ? parseQuote(lines, at, depth) ?? parseList(lines, at, depth) : null) ??
    parseTable(lines, at) ?? parseParagraph(lines, at);
}

function parseFence(lines, at) {
  const open = isShort(lines[at]) && FENCE.exec(lines[at]);
  if (!open) return null;
  const indent = lines[at].search(/\S/);
  const close = new RegExp(`^ {0,3}\\${open[1][0]}{${Math.min(open[1].length, 100)},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const strip = new RegExp(`^ {0,${indent}}`);
  const code = lines.slice(at + 1, end).map((line) => line.replace(strip, "")).join("\n");
  return [{ type: "code", language: open[2], code }, Math.min(end + 1, lines.length)];
}

function parseHeading(lines, at) {
  const found = isShort(lines[at]) && HEADING.exec(lines[at]);
  if (!found) return null;
  const text = lines[at].slice(found[0].length).trim().replace(/(^| )#+$/, "");
  return [{ type: "heading", level: found[1].length, text }, at + 1];
}

function isShort(line) {
  return line.length <= MOST_LINE;
}

function parseRule(lines, at) {
  return isShort(lines[at]) && RULE.test(lines[at]) ? [{ type: "rule" }, at + 1] : null;
}

function parseQuote(lines, at, depth) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at + 1;
  while (end < lines.length && (QUOTE.test(lines[end]) || continuesParagraph(lines, end))) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ type: "quote", blocks: parseLines(inner, depth + 1) }, end];
}

function parseList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first || RULE.test(lines[at])) return null;
  const isOrdered = /\d/.test(first[2]);
  const items = [];
  let isLoose = false;
  let end = at;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end]);
    if (!found || RULE.test(lines[end]) || kindOf(found[2]) !== kindOf(first[2])) break;
    const next = endOfItem(lines, end, contentIndent(found));
    const inner = lines.slice(end, next);
    inner[0] = found[3];
    const blocks = parseLines(unindented(inner, contentIndent(found)), depth + 1);
    items.push(blocks);
    const after = skipBlank(lines, next);
    isLoose ||= blocks.length > 1 && inner.some((line) => line.trim() === "");
    const goesOn = after < lines.length && ITEM.test(lines[after]);
    isLoose ||= goesOn && after > next && kindOf(ITEM.exec(lines[after])[2]) === kindOf(first[2]);
    end = goesOn ? after : next;
  }
  // Blank lines after the last item are not the list's.
  while (end > at + 1 && lines[end - 1].trim() === "") end -= 1;
  const start = isOrdered ? Number.parseInt(first[2], 10) : null;
  return [{ type: "list", start, items, isLoose }, end];
}

// Items of one list have the same mark.
function kindOf(mark) {
  return mark.at(-1);
}

// The column at which the item's text begins. An item may be indented by more than its text needs.
function contentIndent(found) {
  return found[1].length + found[2].length + 1;
}

// An item goes on with lines that are indented, and with plain lines of its paragraph.
function endOfItem(lines, at, indent) {
  const least = Math.min(indent, ITEM.exec(lines[at])[1].length + 2);
  let end = at + 1;
  while (end < lines.length) {
    const blank = lines[end].trim() === "";
    const next = blank ? skipBlank(lines, end) : end;
    if (next >= lines.length) break;
    const isIndented = lines[next].search(/\S/) >= least;
    if (!isIndented && (blank || !continuesParagraph(lines, next))) break;
    end = next + 1;
  }
  return end;
}

function unindented(lines, indent) {
  const rest = lines.slice(1);
  const least = rest.reduce((least, line) => (line.trim() === "" ? least : Math.min(least, line.search(/\S/))), indent);
  return [lines[0], ...rest.map((line) => line.slice(least))];
}

function skipBlank(lines, at) {
  while (at < lines.length && lines[at].trim() === "") at += 1;
  return at;
}

function parseTable(lines, at) {
  const rule = lines[at + 1];
  if (!lines[at].includes("|") || rule === undefined || !isShort(rule) || !TABLE_RULE.test(rule)) return null;
  const head = cells(lines[at]);
  const sides = cells(rule).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  if (head.length !== sides.length || head.length > MOST_COLUMNS) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].trim() !== "" && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells).map((row) => head.map((_, n) => row[n] ?? ""));
  return [{ type: "table", head, sides, rows }, end];
}

// Cells are split at | but not at \|.
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function parseParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && continuesParagraph(lines, end)) end += 1;
  return [{ type: "paragraph", text: lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd() }, end];
}

// A line goes on with the paragraph above unless it is blank or begins another block.
function continuesParagraph(lines, at) {
  const line = lines[at];
  const isBlock = isShort(line) && (FENCE.test(line) || HEADING.test(line) || RULE.test(line));
  return !(line.trim() === "" || isBlock || QUOTE.test(line) || ITEM.test(line) || parseTable(lines, at));
}

function renderCode({ language, code }) {
  const name = language.slice(0, 40) || "text";
  // The block scrolls sideways, for which keyboards need its focus.
  return el("figure", { class: "code" },
    el("figcaption", null, el("span", null, name), copyButton("Copy code", () => code)),
    el("pre", { tabindex: "0", "aria-label": `Code: ${name}` }, el("code", null, code)));
}

// The page's own headings are above those of an answer.
function renderHeading({ level, text }) {
  return el(`h${Math.min(6, level + 2)}`, null, ...inline(text));
}

function renderList({ start, items, isLoose }) {
  const rendered = items.map((blocks) => el("li", null, ...blocks.flatMap((block) => renderInItem(block, isLoose))));
  if (start === null) return el("ul", null, ...rendered);
  return el("ol", start === 1 ? null : { start }, ...rendered);
}

function renderInItem(block, isLoose) {
  return block.type === "paragraph" && !isLoose ? inline(block.text) : [render(block)];
}

function renderTable({ head, sides, rows }) {
  const cell = (tag) => (text, n) => el(tag, { class: `to-${sides[n]}` }, ...inline(text));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", null,
      el("thead", null, el("tr", null, ...head.map(cell("th")))),
      el("tbody", null, ...rows.map((row) => el("tr", null, ...row.map(cell("td")))))));
}
