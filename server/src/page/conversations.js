// The list of conversations.

import * as chat from "./chat.js";
import { byId, el, iconButton, ICONS } from "./dom.js";
import * as store from "./store.js";
import { toast } from "./toast.js";

let drawn = "";

/** Draw the list, if it changed. `onOpen` runs after somebody opened a conversation. */
export function drawList(onOpen) {
  const heads = store.list();
  const now = JSON.stringify([heads, chat.conversation().id]);
  if (now === drawn || byId("conversations").querySelector("input")) return;
  drawn = now;
  const focused = document.activeElement?.closest?.("#conversations li")?.dataset.id;
  byId("conversations").replaceChildren(...heads.map((head) => item(head, onOpen)));
  if (heads.length === 0) byId("conversations").append(el("li", { class: "hint none" }, "No conversations yet."));
  if (focused) byId("conversations").querySelector(`[data-id="${CSS.escape(focused)}"] button`)?.focus();
}

function item({ id, title }, onOpen) {
  const isShown = id === chat.conversation().id;
  const name = title || "Conversation";
  const row = el("li", { "data-id": id, class: isShown ? "shown" : null },
    el("button", { type: "button", class: "open", "aria-current": isShown ? "true" : null, title: name, onclick: () => onOpen(id) }, name),
    iconButton(`Rename ${name}`, ICONS.edit, () => rename(row, id, name, onOpen)),
    iconButton(`Delete ${name}`, ICONS.bin, () => remove(id, name, onOpen)));
  return row;
}

function rename(row, id, name, onOpen) {
  const field = el("input", { type: "text", maxlength: "200", "aria-label": "Title" });
  field.value = name;
  let isOpen = true;
  const close = (title) => {
    if (!isOpen) return;
    isOpen = false;
    row.replaceChildren();
    if (title) setTitle(id, title);
    drawn = "";
    drawList(onOpen);
    byId("conversations").querySelector(`[data-id="${CSS.escape(id)}"] button`)?.focus();
  };
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    // These keys end the choice of characters of an input method.
    if (event.isComposing) return;
    if (event.key === "Escape") close(null);
    if (event.key !== "Enter") return;
    // The key would press the button that gets the focus.
    event.preventDefault();
    close(field.value.trim());
  });
  field.addEventListener("blur", () => close(field.value.trim()));
  row.replaceChildren(field);
  field.select();
}

function setTitle(id, title) {
  const conversation = chat.find(id);
  if (!conversation) return;
  conversation.title = title;
  try {
    store.save(conversation);
  } catch (error) {
    toast(`${error.message}: the title is not kept.`);
  }
}

// Deleted at once, with a way to undo it. An answer that was still being written would bring the
// conversation back.
async function remove(id, name, onOpen) {
  await chat.stop(id);
  const conversation = store.load(id);
  store.remove(id);
  if (id === chat.conversation().id) chat.open(null);
  drawList(onOpen);
  byId("new-chat").focus();
  toast(`Deleted “${name}”.`, conversation && {
    label: "Undo",
    run() {
      store.save(conversation);
      onOpen(id);
    },
  });
}
