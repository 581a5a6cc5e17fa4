// Numbers in words for people: "1 token", "812 KiB", "2.4 s".

/** Return a whole number with separators of thousands. */
export function whole(n) {
  return Math.round(n).toLocaleString("en");
}

/** Return a count with its noun: "1 token", "2 tokens". */
export function count(n, noun) {
  return `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** Return a size in the largest unit that it fills. */
export function bytes(n) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  if (unit === 0) return n === 1 ? "1 byte" : `${whole(n)} bytes`;
  return `${n < 10 ? n.toFixed(1) : whole(n)} ${units[unit]}`;
}

/** Return a time in milliseconds as a short text. */
export function duration(ms) {
  if (ms < 1000) return `${whole(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  return `${Math.floor(ms / 3_600_000)} h`;
}

/** Return a number that is finite and not negative, or null. Answers of a server may hold anything. */
export function natural(value) {
  return Number.isFinite(value) && value >= 0 ? value : null;
}
