// Words for screen readers: notices, and an answer sentence by sentence while it is written.

import { byId, el } from "./dom.js";

/** Say a notice. */
export function announce(text) {
  byId("status").textContent = text;
}

// What was said is taken away, so that nobody who reads the page finds the answer twice.
const KEPT_MS = 10_000;

/** Says an answer as it grows, whole sentences at a time. */
export class Speaker {
  #said = 0;

  /** Say the sentences of `text` that are complete and were not said. */
  grow(text) {
    const rest = text.slice(this.#said);
    const end = Math.max(rest.lastIndexOf("\n"), ...[". ", "! ", "? "].map((mark) => rest.lastIndexOf(mark)));
    if (end > 0) this.#say(rest.slice(0, end + 1));
  }

  /** Say the rest. */
  end(text) {
    this.#say(text.slice(this.#said));
  }

  #say(text) {
    this.#said += text.length;
    const words = text.replace(/[`*_#|>~-]+/g, " ").trim();
    if (words === "") return;
    const sentence = el("p", null, words);
    byId("spoken").append(sentence);
    setTimeout(() => sentence.remove(), KEPT_MS);
  }
}
