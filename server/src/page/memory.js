// Ask the server what it holds, gently: only while the picture is in view, more often while an answer
// is written, and seldom after errors.

import { getJson, ServerError } from "./api.js";
import { readCache } from "./cost.js";
import { current } from "./settings.js";

const BUSY_MS = 1000;
const IDLE_MS = 4000;
const MOST_MS = 60_000;

/** Asks again and again, and tells `onAnswer` (cache or null, error or null). */
export class MemoryPoll {
  #onAnswer;
  #isWanted;
  #isBusy;
  #timer = null;
  #request = null;
  #failures = 0;

  /** `isWanted` returns true while the picture is in view, `isBusy` while an answer is written. */
  constructor(onAnswer, isWanted, isBusy) {
    this.#onAnswer = onAnswer;
    this.#isWanted = isWanted;
    this.#isBusy = isBusy;
    document.addEventListener("visibilitychange", () => this.refresh());
  }

  /** Ask now, or stop asking if the picture is not in view. */
  refresh() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.#request = null;
    if (document.visibilityState === "visible" && this.#isWanted()) this.#ask();
  }

  async #ask() {
    const request = new AbortController();
    this.#request = request;
    try {
      const cache = readCache(await getJson("backstitch/cache", current().key, request.signal));
      this.#failures = 0;
      this.#onAnswer(cache, null);
    } catch (error) {
      if (request.signal.aborted) return;
      this.#failures += 1;
      this.#onAnswer(null, error instanceof ServerError ? error.message : "The server cannot be reached.");
    }
    const pause = this.#isBusy() ? BUSY_MS : IDLE_MS;
    this.#timer = setTimeout(() => this.refresh(), Math.min(MOST_MS, pause * 2 ** this.#failures));
  }
}
