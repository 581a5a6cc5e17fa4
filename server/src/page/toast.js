// Notices that go away by themselves, with an action at most.

import { announce } from "./announce.js";
import { byId, el } from "./dom.js";

const SECONDS = 8;

/** Show a notice. `action` is {label, run}. It stays while the pointer or focus is on it. */
export function toast(text, action = null) {
  const button = action && el("button", { type: "button", class: "link", onclick: run }, action.label);
  const notice = el("div", { class: "toast" }, el("span", null, text), button);
  let timer = setTimeout(close, SECONDS * 1000);
  for (const name of ["mouseenter", "focusin"]) notice.addEventListener(name, () => clearTimeout(timer));
  for (const name of ["mouseleave", "focusout"]) {
    notice.addEventListener(name, () => { timer = setTimeout(close, SECONDS * 1000); });
  }
  byId("toasts").append(notice);
  announce(action ? `${text} Button: ${action.label}` : text);

  function close() {
    clearTimeout(timer);
    notice.remove();
  }

  function run() {
    close();
    action.run();
  }
}
