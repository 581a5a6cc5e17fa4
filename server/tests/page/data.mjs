// Tests of what the page keeps and sends, without a browser: node --test server/tests/page/data.mjs
// It needs Node.js 20.19 or later.

import assert from "node:assert/strict";
import { test } from "node:test";

// The storage that all tabs share. One that is full refuses everything.
const values = new Map();
let isFull = false;
globalThis.window = {
  localStorage: {
    get length() { return values.size; },
    key: (n) => [...values.keys()][n] ?? null,
    getItem: (key) => values.get(key) ?? null,
    setItem(key, value) {
      if (isFull) throw new Error("full");
      values.set(key, value);
    },
    removeItem: (key) => values.delete(key),
  },
};
globalThis.location = { origin: "https://page.example" };

const load = (name) => import(`../../src/page/${name}.js`);
const [tree, turn, api, store] = await Promise.all(["tree", "turn", "api", "store"].map(load));
// Another address makes another module, as in another tab.
const otherTab = await import("../../src/page/store.js?other");

// A conversation with a question and an answer, as two tabs have it.
function inTwoTabs() {
  const own = tree.newConversation("You sew.");
  const question = tree.addMessage(own, null, "user", { text: "1" });
  tree.addMessage(own, question, "assistant", { text: "2", finish: "stop" });
  store.save(own);
  return [own, otherTab.load(own.id)];
}
const texts = (conversation) => tree.path(conversation).map((node) => node.text);

test("branches of two tabs stay, and so does what each of them shows", () => {
  const [own, other] = inTwoTabs();
  tree.addMessage(own, null, "user", { text: "of the one" });
  const question = tree.path(other)[0];
  tree.addMessage(other, question, "assistant", { text: "of the other", finish: "stop" });
  store.save(own);
  otherTab.save(other);
  store.pull(own);
  const stored = store.load(own.id);
  assert.equal(tree.size(stored), 4);
  assert.deepEqual(texts(stored), ["1", "of the other"]);
  assert.deepEqual(texts(own), ["of the one"]);
  assert.deepEqual(texts(other), ["1", "of the other"]);
  for (const conversation of [own, other]) {
    assert.deepEqual(conversation.nodes.get("root").children, stored.nodes.get("root").children);
  }
});

test("what follows the shown path is shown", () => {
  const [own, other] = inTwoTabs();
  tree.addMessage(other, tree.path(other)[1], "user", { text: "3" });
  otherTab.save(other);
  store.pull(own);
  assert.deepEqual(texts(own), ["1", "2", "3"]);
});

test("an older copy of an answer does not replace a later one", () => {
  const [own, other] = inTwoTabs();
  const answer = tree.path(own)[1];
  Object.assign(answer, { text: "2, and more", updated: answer.updated + 1 });
  store.save(own);
  otherTab.save(other);
  assert.deepEqual(texts(store.load(own.id)), ["1", "2, and more"]);
  assert.deepEqual(texts(other), ["1", "2, and more"]);
});

test("what could not be stored is not replaced by what is", () => {
  const [own] = inTwoTabs();
  const answer = tree.path(own)[1];
  Object.assign(answer, { text: "2, and more", updated: answer.updated + 1 });
  own.title = "Sewing";
  isFull = true;
  assert.throws(() => store.save(own));
  isFull = false;
  store.save(own);
  assert.deepEqual([own.title, ...texts(store.load(own.id))], ["Sewing", "1", "2, and more"]);
});

test("what cannot be read is not replaced, and nothing is stored that cannot be read", () => {
  const [own] = inTwoTabs();
  const key = `backstitch:chat:${own.id}`;
  const later = JSON.stringify({ version: 99 });
  const before = values.get(key);
  values.set(key, later);
  assert.throws(() => store.save(own), /cannot read/);
  assert.equal(values.get(key), later);
  values.set(key, before);
  const [question] = tree.path(own);
  while (own.nodes.size <= tree.MAX_NODES) tree.addMessage(own, question, "assistant", { text: "3" });
  assert.throws(() => store.save(own), /10,000/);
  assert.equal(values.get(key), before);
});

test("a title and a system message are those that were changed", () => {
  const [own, other] = inTwoTabs();
  other.title = "Sewing";
  otherTab.save(other);
  own.system = "You knit.";
  store.save(own);
  otherTab.save(other);
  const stored = store.load(own.id);
  assert.deepEqual([stored.title, stored.system], ["Sewing", "You knit."]);
  assert.deepEqual([other.title, other.system], ["Sewing", "You knit."]);
});

test("a conversation that another tab removed is known to be removed", () => {
  const [own] = inTwoTabs();
  assert.equal(store.isRemoved(own), false);
  assert.equal(store.isRemoved(tree.newConversation()), false);
  otherTab.remove(own.id);
  assert.equal(store.isRemoved(own), true);
});

test("of hostile stats only known names of the right kind are read", () => {
  const [own] = inTwoTabs();
  const readBack = (stats) => {
    const data = JSON.parse(JSON.stringify(tree.toData(own)));
    data.nodes[2].stats = stats;
    return tree.path(tree.fromData(data))[1].stats;
  };
  const counts = { cached: 1, evaluated: 2, generated: 3, prompt: 3 };
  assert.deepEqual(readBack({ ...counts, why: "differs", difference: 1, seq: 0 }), { ...counts, why: "differs", difference: 1, seq: 0 });
  assert.deepEqual(readBack({ ...counts, perSecond: "x", why: 5, replayed: true, reused: -1, other: 1 }), counts);
  assert.equal(readBack({ ...counts, prompt: "3" }), null);
  assert.equal(readBack({ perSecond: "x" }), null);
  assert.equal(readBack([]), null);
  for (const why of ["constructor", "__proto__"]) assert.equal(turn.reasonOf({ why }), why);
});

test("a key that cannot be sent is told apart from a server that cannot be reached", async () => {
  assert.equal(api.wrongInKey("sk-Az09_~ !"), null);
  assert.match(api.wrongInKey("sk…"), /“…” \(U\+2026\)/);
  assert.match(api.wrongInKey("é\u200b"), /U\+00E9/);
  await assert.rejects(api.getJson("v1/models", "sk…"), { status: 401, message: /U\+2026/ });
});

test("a status tells whether a key is wanted or the origin refused", async () => {
  const answer = (status) => {
    globalThis.fetch = async () => new Response(JSON.stringify({ error: { message: "no" } }), { status });
    return api.getJson("v1/models", null);
  };
  await assert.rejects(answer(401), { message: /API key/ });
  await assert.rejects(answer(403), ({ message }) => /https:\/\/page\.example/.test(message) && !/key/.test(message));
});
