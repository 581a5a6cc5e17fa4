// Keyboard shortcuts. Those of one letter work only while a message has the focus.

import * as chat from "./chat.js";
import { byId, el } from "./dom.js";

const SHOWN = [
  ["Enter", "Send the message"],
  ["Shift+Enter", "Begin a line"],
  ["Esc", "Stop the answer; close what is open"],
  ["/", "Go to the message box"],
  ["Alt+N", "New conversation"],
  ["Alt+↑, Alt+↓", "Go from message to message"],
  ["Alt+←, Alt+→", "Other branches of the focused message"],
  ["E", "Edit the focused message (Ctrl+Enter saves)"],
  ["R", "Regenerate the focused message"],
  ["Alt+L", "Show or hide the conversations"],
  ["Alt+M", "Show or hide the memory"],
  ["Alt+S", "Settings"],
  ["Alt+K", "This list"],
];

/** Set up the shortcuts. `commands` has newChat, toggleList, toggleMemory, openSettings, closeDrawer. */
export function setUpKeys(commands) {
  byId("keys-rows").replaceChildren(...SHOWN.map(([keys, what]) =>
    el("tr", null, el("th", { scope: "row" }, ...keyNames(keys)), el("td", null, what))));
  byId("open-keys").addEventListener("click", () => byId("keys").showModal());
  const withAlt = {
    KeyN: commands.newChat,
    KeyL: commands.toggleList,
    KeyM: commands.toggleMemory,
    KeyS: commands.openSettings,
    KeyK: () => byId("keys").showModal(),
    ArrowUp: () => chat.moveFocus(-1),
    ArrowDown: () => chat.moveFocus(1),
    ArrowLeft: () => stepFocused(-1),
    ArrowRight: () => stepFocused(1),
  };
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.isComposing) return;
    const hasAlt = event.altKey && !event.ctrlKey && !event.metaKey;
    const run = hasAlt ? isShortcut(event) && withAlt[event.code] : plainKey(event, commands);
    if (!run) return;
    event.preventDefault();
    run();
  });
}

function keyNames(keys) {
  return keys.split(", ").flatMap((name, n) => (n === 0 ? [el("kbd", null, name)] : [" ", el("kbd", null, name)]));
}

// In a field Alt with an arrow moves by words, and Apple's Option with a letter writes another
// character. An empty message box has no words.
function isShortcut({ target, code, key }) {
  if (!isWriting(target)) return true;
  if (code.startsWith("Arrow")) return target === byId("input") && target.value === "";
  const isOption = /Mac|iPhone|iPad/.test(navigator.platform);
  return !isOption || key.toLowerCase() === code.slice("Key".length).toLowerCase();
}

function plainKey(event, commands) {
  if (event.key === "Escape") {
    if (commands.closeDrawer()) return () => {};
    return chat.isRunning() ? () => chat.stop() : null;
  }
  if (event.altKey || event.ctrlKey || event.metaKey || isWriting(event.target)) return null;
  if (event.key === "/") return () => byId("input").focus();
  const view = chat.focusedView();
  if (view?.element !== document.activeElement) return null;
  if (event.key === "e") return () => view.edit();
  if (event.key === "r") return () => chat.regenerate(view.node);
  return null;
}

function isWriting(element) {
  return element.matches?.("input, textarea, select") ?? false;
}

function stepFocused(by) {
  const view = chat.focusedView();
  if (view) chat.step(view.node, by);
}
