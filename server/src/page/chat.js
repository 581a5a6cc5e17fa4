// The shown conversation: sending, stopping, editing, regenerating, and moving between branches.

import { announce, Speaker } from "./announce.js";
import { streamChat } from "./api.js";
import { beginOf, costAt } from "./cost.js";
import { byId, el } from "./dom.js";
import { MessageView } from "./message.js";
import * as settings from "./settings.js";
import * as store from "./store.js";
import { toast } from "./toast.js";
import { addMessage, chooseSibling, isUnfinished, newConversation, parentOf, path } from "./tree.js";
import { requestBody, takeChunk } from "./turn.js";

const DRAW_EVERY = 60;
const SAVE_EVERY = 2000;

let shown = newConversation();
let views = [];
// Answers that are being written, by the id of their conversation. They go on while others are shown.
const runs = new Map();
// Answers that other tabs are writing, by the id of their node.
const elsewhere = new Set();
let listeners = { change() {}, turn() {} };

const actions = { edit, regenerate, step, retry };

/** Set the functions to call when a conversation changed, and when a turn began, grew or ended. */
export function listen(change, turn) {
  listeners = { change, turn };
}

/** Return the shown conversation. */
export function conversation() {
  return shown;
}

/** Return a conversation as it is shown or being written, else as it is stored; null if there is none. */
export function find(id) {
  return id === shown.id ? shown : (runs.get(id)?.conversation ?? store.load(id));
}

/** Return the messages that are shown. */
export function shownPath() {
  return path(shown);
}

/** Return true if an answer of the shown conversation is being written. */
export function isRunning() {
  return runs.has(shown.id);
}

/** Show a conversation by its id; a new one if there is none. */
export function open(id) {
  const found = runs.get(id)?.conversation ?? (id && store.load(id));
  shown = found || newConversation(settings.current().system ?? "");
  store.saveValue("open", shown.id);
  views = [];
  byId("messages").replaceChildren();
  draw();
  scrollToEnd();
  listeners.change();
}

/** Send a message at the end of the shown path. */
export async function send(text, files) {
  await stop();
  const nodes = path(shown);
  const node = addMessage(shown, nodes.at(-1) ?? null, "user", { text, files });
  if (!shown.title) shown.title = titleOf(text, files);
  await answer(shown, node);
}

/** Stop writing the answer of a conversation: of the shown one, if no other is named. */
export async function stop(id = shown.id) {
  const run = runs.get(id);
  if (!run) return;
  run.controller.abort();
  await run.done;
}

/** Take what another tab stored of a conversation. One that it removed is dropped here too. */
export async function takeStored(id) {
  const conversation = id === shown.id ? shown : runs.get(id)?.conversation;
  if (!conversation) return;
  if (store.isRemoved(conversation)) {
    await stop(id);
    if (id === shown.id) open(null);
    return;
  }
  touch(conversation);
  store.pull(conversation);
  if (conversation !== shown) return;
  draw();
  follow();
}

/** Change the system message of the shown conversation. */
export function setSystem(system) {
  if (system === shown.system) return;
  shown.system = system;
  keep(shown);
}

/** Show the cost of going back to each message; null if the sequence is not held. */
export function showCosts(sequence) {
  for (const view of views) {
    const begin = sequence && beginOf(shown, view.node);
    const isKnown = sequence !== null && begin !== null && begin <= sequence.tokens;
    view.showCost(isKnown ? costAt(sequence, begin) : null);
  }
}

/** Move the focus to a message: by its id, or by a number of messages from the focused one. */
export function focusMessage(id) {
  const view = views.find((view) => view.node.id === id);
  view?.element.focus();
  view?.element.scrollIntoView({ block: "nearest" });
}

/** Move the focus by a number of messages, from the last one if none has it. */
export function moveFocus(by) {
  const at = views.findIndex((view) => view.element.contains(document.activeElement));
  const next = at < 0 ? views.length - 1 : Math.min(views.length - 1, Math.max(0, at + by));
  if (views[next]) focusMessage(views[next].node.id);
}

/** Return the message that has the focus, or null. */
export function focusedView() {
  return views.find((view) => view.element.contains(document.activeElement)) ?? null;
}

/** Move to another branch of a message. */
export function step(node, by) {
  const sibling = chooseSibling(shown, node, by);
  if (!sibling) return;
  draw();
  keep(shown);
  focusMessage(sibling.id);
  announce(byId("messages").querySelector(`[data-id="${sibling.id}"]`).getAttribute("aria-label"));
}

/** Write another answer: beside this one, or to this message of the user's. */
export async function regenerate(node) {
  await stop();
  await answer(shown, node.role === "user" ? node : parentOf(shown, node));
}

async function edit(node, text) {
  await stop();
  const copy = addMessage(shown, parentOf(shown, node), node.role, { text, files: node.files, finish: "edited" });
  if (node.role === "user") return answer(shown, copy);
  copy.reasoning = node.reasoning;
  keep(shown);
  draw();
  focusMessage(copy.id);
}

// An answer without text is written anew in its place; another one stays as a branch.
async function retry(node) {
  if (node.text !== "" || node.reasoning !== "") return regenerate(node);
  await stop();
  await write(shown, Object.assign(node, { error: null, finish: null, stats: null }));
}

async function answer(conversation, parent) {
  await write(conversation, addMessage(conversation, parent, "assistant"));
}

// Stream an answer into its node.
async function write(conversation, node) {
  const run = { conversation, node, controller: new AbortController(), speaker: new Speaker() };
  let finished;
  run.done = new Promise((resolve) => { finished = resolve; });
  runs.set(conversation.id, run);
  store.holdNode(node.id, run.done);
  keep(conversation);
  draw();
  scrollToEnd();
  announce("Writing an answer");
  listeners.turn();
  try {
    await stream(run);
  } catch (error) {
    if (run.controller.signal.aborted) node.finish = "stopped";
    else node.error = wordsOf(error);
    if (error.status === 401) settings.openSettings(shown.system, "key");
  } finally {
    touch(conversation);
    runs.delete(conversation.id);
    conversation.updated = Date.now();
    keepWritten(conversation);
    if (shown === conversation) endTurn(run);
    finished();
    listeners.turn();
  }
}

async function stream({ conversation, node, controller, speaker }) {
  const body = requestBody(conversation, node, settings.current());
  let drawn = 0;
  let saved = Date.now();
  for await (const chunk of streamChat(body, settings.current().key, controller.signal)) {
    if (!takeChunk(node, chunk)) continue;
    const now = Date.now();
    if (shown === conversation && now - drawn >= DRAW_EVERY) {
      drawn = now;
      viewOf(node)?.update(true);
      speaker.grow(node.text);
      follow();
    }
    if (now - saved >= SAVE_EVERY) {
      saved = now;
      keepWritten(conversation);
    }
  }
  node.finish ??= "stop";
}

function endTurn({ node, speaker }) {
  draw();
  speaker.end(node.text);
  announce(node.error ?? (node.finish === "stopped" ? "Stopped" : "The answer is complete"));
  follow();
}

function wordsOf(error) {
  if (error instanceof TypeError) return "The server cannot be reached.";
  const after = error.retryAfter ? ` It asks to wait ${error.retryAfter} s.` : "";
  return `${error.message}${after}`;
}

function titleOf(text, files) {
  const line = text.trim().split("\n")[0] || files[0]?.name || "Conversation";
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

function keep(conversation) {
  touch(conversation);
  try {
    store.save(conversation);
  } catch (error) {
    toast(`${error.message}: the conversation is not kept. Export it, or delete others.`);
  }
  listeners.change();
}

// Another tab may have removed the conversation while its answer was being written.
function keepWritten(conversation) {
  if (!store.isRemoved(conversation)) keep(conversation);
}

/** Keep answers that are being written, when the page is about to be closed. */
export function keepRunning() {
  for (const { conversation } of runs.values()) keepWritten(conversation);
}

// Only the tab that writes an answer has its latest words. The clock may have been set back.
function touch(conversation) {
  const node = runs.get(conversation.id)?.node;
  if (node) node.updated = Math.max(Date.now(), node.updated + 1);
}

// An answer without an end was cut off, unless another tab is writing it.
async function watch({ id }) {
  if (elsewhere.has(id)) return;
  await store.whenNodeIsFree(id, () => {
    elsewhere.add(id);
    draw();
  });
  if (elsewhere.delete(id)) draw();
}

function viewOf(node) {
  return views.find((view) => view.node === node);
}

// Draw the path: views at the beginning that did not change stay.
function draw() {
  const nodes = path(shown);
  let same = 0;
  while (same < nodes.length && views[same]?.node === nodes[same]) same += 1;
  for (const view of views.splice(same)) view.element.remove();
  for (const node of nodes.slice(same)) {
    const view = new MessageView(shown, node, actions);
    views.push(view);
    byId("messages").append(view.element);
  }
  const running = runs.get(shown.id)?.node;
  for (const view of views) {
    const { node } = view;
    if (node !== running && isUnfinished(node)) watch(node);
    if (!view.element.classList.contains("editing")) view.update(node === running || elsewhere.has(node.id));
  }
  byId("messages").classList.toggle("empty", views.length === 0);
  if (views.length === 0) byId("messages").replaceChildren(welcome());
  else byId("messages").querySelector(".welcome")?.remove();
  byId("stop").hidden = !isRunning();
  byId("send").hidden = isRunning();
}

function welcome() {
  return el("div", { class: "welcome" },
    el("h2", null, "What shall we begin with?"),
    el("p", null, "Edit or regenerate any message: what was there before stays as a branch, and the model ",
      "re-evaluates only what differs. The picture of its memory shows what that costs."));
}

// Follow the answer while the end is in view.
let isFollowing = true;

/** Follow the answer's end until somebody scrolls up. */
export function setUpScrolling() {
  const scroller = byId("scroller");
  scroller.addEventListener("scroll", () => {
    isFollowing = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48;
    byId("to-end").hidden = isFollowing;
  }, { passive: true });
  byId("to-end").addEventListener("click", () => scrollToEnd());
}

function follow() {
  if (isFollowing) scrollToEnd();
}

function scrollToEnd() {
  const scroller = byId("scroller");
  scroller.scrollTop = scroller.scrollHeight;
  isFollowing = true;
  byId("to-end").hidden = true;
}
