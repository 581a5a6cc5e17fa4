// Copying to the clipboard.

import { announce } from "./announce.js";
import { ICONS, iconButton } from "./dom.js";

/** Return a button that copies the text that `text` returns. */
export function copyButton(label, text) {
  const button = iconButton(label, ICONS.copy, async () => {
    const done = await copy(text());
    announce(done ? "Copied" : "Copying was refused");
    button.classList.toggle("done", done);
    setTimeout(() => button.classList.remove("done"), 1200);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text);
  }
}

// Over plain HTTP from another machine there is no `navigator.clipboard`.
function copySelection(text) {
  const field = document.createElement("textarea");
  const focused = document.activeElement;
  field.value = text;
  field.className = "hidden-label";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}
