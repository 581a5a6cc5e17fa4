// The box to write in.

import { hasFiles, takeFiles } from "./attach.js";
import * as chat from "./chat.js";
import { byId, isTouchOnly } from "./dom.js";
import { fit } from "./message.js";
import { loadValue, saveValue } from "./store.js";

/** Set up sending and stopping. What is being written survives a reload. */
export function setUpComposer() {
  const input = byId("input");
  input.value = loadValue("draft") ?? "";
  fit(input);
  input.addEventListener("input", () => {
    fit(input);
    saveValue("draft", input.value);
  });
  input.addEventListener("keydown", (event) => {
    // Enter ends the choice of characters of an input method, and begins a line on a telephone,
    // where there is a button to send.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouchOnly()) return;
    event.preventDefault();
    send();
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => {
    chat.stop();
    input.focus();
  });
}

function send() {
  const input = byId("input");
  if (chat.isRunning() || (input.value.trim() === "" && !hasFiles())) return;
  const text = input.value;
  input.value = "";
  saveValue("draft", "");
  fit(input);
  chat.send(text, takeFiles());
  input.focus();
}
