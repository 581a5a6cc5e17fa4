// Conversations to and from JSON files.

import { byId, el } from "./dom.js";
import * as store from "./store.js";
import { toast } from "./toast.js";
import { fromData, newId, size, toData } from "./tree.js";
import { count } from "./numbers.js";

const KIND = "backstitch conversations";
const MOST_BYTES = 64 * 1024 * 1024;

/** Let people save conversations as a file. */
export function exportConversations(conversations, name) {
  const filled = conversations.filter((conversation) => conversation && size(conversation) > 0);
  if (filled.length === 0) return toast("There is no conversation to export.");
  const text = JSON.stringify({ kind: KIND, version: 1, conversations: filled.map(toData) }, null, 1);
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: `${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Return the conversations of a file's text. Throws if one is malformed. */
export function readConversations(text) {
  const data = JSON.parse(text);
  if (data?.kind !== KIND || !Array.isArray(data.conversations)) throw new Error("it holds no conversations");
  return data.conversations.map(fromData);
}

/** Set up importing. `onImport` gets the id of the first conversation. */
export function setUpImport(onImport) {
  const field = byId("import-file");
  byId("import-chats").addEventListener("click", () => field.click());
  field.addEventListener("change", async () => {
    const [file] = field.files;
    if (!file) return;
    try {
      if (file.size > MOST_BYTES) throw new Error("it is too large");
      onImport(keepAll(readConversations(await file.text())));
    } catch (error) {
      const why = error instanceof SyntaxError ? "it is no JSON" : error.message;
      toast(`Nothing was imported from ${file.name}: ${why}.`);
    }
    field.value = "";
  });
}

// All or nothing. Nothing is overwritten: a conversation whose id is taken, also by an earlier one of
// the file, gets another.
function keepAll(conversations) {
  const kept = [];
  const there = new Set(store.list().map((head) => head.id));
  try {
    for (const conversation of conversations) {
      if (there.has(conversation.id)) conversation.id = newId();
      there.add(conversation.id);
      kept.push(conversation.id);
      store.save(conversation);
    }
  } catch {
    kept.forEach(store.remove);
    throw new Error("this browser’s storage is full");
  }
  toast(`Imported ${count(kept.length, "conversation")}.`);
  return kept[0];
}
