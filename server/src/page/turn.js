// A turn: what is sent for an answer, and what the answer told of its work.

import { above } from "./tree.js";
import { natural } from "./numbers.js";

/** Return the body of the request for an answer under the chosen messages. */
export function requestBody(conversation, node, settings) {
  const messages = above(conversation, node).map(({ role, ...message }) => ({ role, content: contentOf(message) }));
  if (conversation.system.trim()) messages.unshift({ role: "system", content: conversation.system });
  const body = { messages, timings_per_token: false };
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (settings[name] !== undefined && settings[name] !== null) body[name] = settings[name];
  }
  return body;
}

/** Return a message's text with the files that are attached to it. */
export function contentOf({ text, files }) {
  const parts = files.map(({ name, text: inside }) => {
    const fence = fenceFor(inside);
    return `File: ${name}\n${fence}\n${inside.replace(/\n$/, "")}\n${fence}`;
  });
  return [...parts, text].filter((part) => part !== "").join("\n\n");
}

// A fence is longer than any that the file has.
function fenceFor(text) {
  let longest = 2;
  for (const [run] of text.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  return "`".repeat(longest + 1);
}

/** Add what a chunk of the stream tells to the answer's node. Returns true if its text grew. */
export function takeChunk(node, chunk) {
  const choice = chunk.choices?.[0];
  const content = text(choice?.delta?.content);
  const reasoning = text(choice?.delta?.reasoning_content);
  node.text += content;
  node.reasoning += reasoning;
  if (typeof choice?.finish_reason === "string") node.finish = choice.finish_reason;
  if (chunk.timings || chunk.backstitch) node.stats = { ...node.stats, ...readStats(chunk) };
  return content !== "" || reasoning !== "";
}

function text(value) {
  return typeof value === "string" ? value : "";
}

// The last chunk has `timings`, as llama-server's, and `backstitch`.
function readStats({ timings = {}, backstitch = null }) {
  const stats = {
    cached: natural(timings.cache_n) ?? 0,
    evaluated: natural(timings.prompt_n) ?? 0,
    promptMs: natural(timings.prompt_ms),
    generated: natural(timings.predicted_n) ?? 0,
    generatedMs: natural(timings.predicted_ms),
    perSecond: natural(timings.predicted_per_second),
  };
  stats.prompt = stats.cached + stats.evaluated;
  if (backstitch) {
    stats.reused = natural(backstitch.reused) ?? stats.cached;
    stats.replayed = natural(backstitch.replayed) ?? 0;
    stats.reevaluated = natural(backstitch.reevaluated) ?? 0;
    stats.difference = natural(backstitch.first_differing_token);
    stats.fromDisk = natural(Number(backstitch.from_disk)) ?? 0;
    stats.why = text(backstitch.why);
    stats.seq = natural(backstitch.seq);
  }
  return stats;
}

/** Return the number of tokens of the conversation after this answer; null if it is not known. */
export function endOf(node) {
  return node.stats ? node.stats.prompt + node.stats.generated : null;
}

const REASONS = {
  __proto__: null,
  complete: "everything but the last token was reused",
  differs: "what is held ends or differs there",
  nothing_held: "nothing held begins like this prompt",
  not_asked: "the request asked for no reuse",
  checkpoint: "the model’s memory can return only to an earlier checkpoint",
};

/** Return the reason that no more was reused, in words. */
export function reasonOf(stats) {
  return REASONS[stats.why] ?? stats.why ?? "";
}
