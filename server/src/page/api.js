// Requests to the server, and its errors.

import { events } from "./sse.js";

/** An answer of the server that is an error. */
export class ServerError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Return the answer to a GET request as JSON. */
export async function getJson(path, key, signal) {
  const response = await fetch(path, { headers: headers(key), signal, cache: "no-store" });
  if (!response.ok) throw await readError(response);
  return response.json();
}

/** Ask for a chat completion, and yield its chunks as they come. */
export async function* streamChat(body, key, signal) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: { ...headers(key), "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await readError(response);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.code ?? 500, String(chunk.error.message ?? "the server failed"));
    yield chunk;
  }
  // The stream of an answer that is whole ends with [DONE].
  throw new Error("the connection was cut");
}

/** Return what keeps an API key from being sent, in words; null if it can be sent. */
export function wrongInKey(key) {
  const wrong = /[^\x20-\x7e]/u.exec(key)?.[0];
  if (wrong === undefined) return null;
  const code = wrong.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return `“${wrong}” (U+${code}) is no ASCII character, and cannot be sent`;
}

function headers(key) {
  if (!key) return {};
  const wrong = wrongInKey(key);
  if (wrong !== null) throw new ServerError(401, `Enter the API key again in the settings: ${wrong}.`);
  return { authorization: `Bearer ${key}` };
}

async function readError(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // A proxy may answer with a page of its own.
  }
  const after = Number(response.headers.get("retry-after"));
  const retryAfter = Number.isFinite(after) && after > 0 ? after : null;
  return new ServerError(response.status, explain(response.status, error), retryAfter);
}

/** Return an error in words that say what to do. */
function explain(status, error) {
  const message = typeof error.message === "string" && error.message ? error.message : `status ${status}`;
  if (status === 401) return `The server wants an API key: enter it in the settings. (${message})`;
  if (status === 403) {
    return `The server refuses pages of ${location.origin}. A proxy before it must pass on the Host header as it is, ` +
      `or the option --cors-origins must name this origin. (${message})`;
  }
  if (error.n_prompt_tokens && error.n_ctx) {
    return `The conversation has ${error.n_prompt_tokens} tokens, more than the context of ${error.n_ctx}. ` +
      "Go back to an earlier message, or begin a new conversation.";
  }
  if (status === 503 || status === 429) return `The server is busy: try again soon. (${message})`;
  return `The server refused: ${message}`;
}
