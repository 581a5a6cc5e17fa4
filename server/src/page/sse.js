// Server-sent events: read the data of each event from the body of an answer.

// An event larger than this is none that the server sends.
const LONGEST = 16 * 1024 * 1024;

/** Yield the data of each event. Comments (pings) and other fields are skipped. */
export async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? decoder.decode() + "\n\n" : decoder.decode(value, { stream: true });
      if (rest.length > LONGEST) throw new Error("the server sent an event that is too long");
      // A "\r" at the end may be half of "\r\n": it waits for what follows.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
      if (done) return;
    }
  } finally {
    // Leaving the loop early ends the request, which the server notices.
    reader.cancel().catch(() => {});
  }
}
