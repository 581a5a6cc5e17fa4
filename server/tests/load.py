#!/usr/bin/env python3
"""Many clients against a running server: chats that are continued, edited, regenerated and
cancelled, beside prompts that are too long, broken JSON and clients that vanish.

Every answer that was completed must be the one that the same request gets alone, no request may
fail for a reason that is not its own, and the server's memory must stay within a limit.

    backstitch serve --port 8080 -np 8 &
    python3 server/tests/load.py --url 127.0.0.1:8080 --clients 64 --seconds 600
"""

import argparse
import asyncio
import json
import random
import sys
import time

WORDS = "the dog ran to a big red house and saw her friend Tom who had one very old cake".split()
# A body of more bytes than servers accept is refused; one of this many words is only too long.
TOO_LONG = 40_000


class Failure(Exception):
    """An answer that no correct server gives."""


async def post(address, path, body, read_chunks=None):
    """Send a body; return the status and the answer, or None if the client left after reading
    `read_chunks` pieces of it."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        answer = b""
        while True:
            if read_chunks == 0:
                return None
            piece = await reader.read(4096)
            if not piece:
                break
            answer += piece
            read_chunks = read_chunks - 1 if read_chunks is not None else None
    finally:
        writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1]) if head else 0
    return status, unchunked(head, rest)


def unchunked(head, rest):
    """Join the chunks of a body."""
    if b"chunked" not in head.lower():
        return rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        size = int(size, 16)
        body, rest = body + rest[:size], rest[size + 2 :]
    return body


def completion(prompt, seed, n_predict, **more):
    request = {"prompt": prompt, "n_predict": n_predict, "seed": seed, "temperature": 0.9}
    return request | {"return_tokens": True, "ignore_eos": True} | more


def tokens_of(body, is_stream):
    """Return the tokens of an answer, and whether the answer is whole."""
    if not is_stream:
        answer = json.loads(body)
        return answer["tokens"], True
    tokens, whole = [], False
    for line in body.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            part = json.loads(line[6:])
            if "error" in part:
                raise Failure(part["error"])
            tokens += part.get("tokens", [])
            whole = whole or part.get("stop", False)
    return tokens, whole


class Client:
    """One conversation at a time, changed in one of several ways before each request."""

    def __init__(self, number, address, counts, answers):
        self.random = random.Random(number)
        self.address, self.counts, self.answers = address, counts, answers
        self.text = self.words(10)

    def words(self, n):
        return " ".join(self.random.choice(WORDS) for _ in range(n)) + " "

    def change(self):
        """Continue, edit or begin a conversation."""
        choice = self.random.random()
        if choice < 0.1 or len(self.text) > 1500:
            # A few beginnings are common to all clients.
            self.text = f"Story {self.random.randrange(4)}: " + self.words(self.random.randrange(5, 60))
        elif choice < 0.4:
            cut = self.random.randrange(len(self.text))
            self.text = self.text[:cut] + self.words(3)
        elif choice < 0.9:
            self.text += self.words(self.random.randrange(1, 12))

    async def run(self, until):
        while time.monotonic() < until:
            choice = self.random.random()
            if choice < 0.03:
                await self.expect(b'{"prompt": "a', 400)
            elif choice < 0.05:
                await self.expect(json.dumps({"prompt": 1.5}).encode(), 400)
            elif choice < 0.08:
                body = json.dumps(completion("cake " * TOO_LONG, 1, 4)).encode()
                await self.expect(body, 400)
            else:
                await self.ask()

    async def expect(self, body, wanted):
        status, answer = await post(self.address, "/completion", body)
        if status != wanted or "error" not in json.loads(answer):
            raise Failure(f"{status} instead of {wanted}: {answer[:200]}")
        self.counts["refused"] += 1

    async def ask(self):
        self.change()
        seed, n = self.random.randrange(1000), self.random.randrange(1, 24)
        is_stream = self.random.random() < 0.7
        request = completion(self.text, seed, n, stream=is_stream)
        leaves = self.random.randrange(4) if self.random.random() < 0.2 else None
        answer = await post(self.address, "/completion", json.dumps(request).encode(), leaves)
        if answer is None:
            self.counts["left"] += 1
            return
        status, body = answer
        if status == 503:
            self.counts["busy"] += 1
            await asyncio.sleep(0.2)
            return
        if status != 200:
            raise Failure(f"{status}: {body[:300]}")
        tokens, whole = tokens_of(body, is_stream)
        if not whole or len(tokens) != n:
            raise Failure(f"{len(tokens)} of {n} tokens, whole: {whole}")
        self.counts["answers"] += 1
        self.counts["tokens"] += n
        if self.random.random() < 0.1:
            self.answers.append((self.text, seed, n, tokens))


def resident(pid):
    """Return the resident memory of a process in MiB; 0 if that is not known here."""
    try:
        with open(f"/proc/{pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        return 0


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="127.0.0.1:8080", help="host and port")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--checks", type=int, default=40, help="answers to compare with those alone")
    parser.add_argument("--pid", type=int, default=0, help="process whose memory is watched")
    args = parser.parse_args()
    host, port = args.url.rsplit(":", 1)
    address = (host, int(port))
    counts = {"answers": 0, "tokens": 0, "refused": 0, "left": 0, "busy": 0}
    answers = []
    clients = [Client(number, address, counts, answers) for number in range(args.clients)]
    before, began = resident(args.pid), time.monotonic()
    await asyncio.gather(*(client.run(began + args.seconds) for client in clients))
    seconds = time.monotonic() - began
    random.Random(1).shuffle(answers)
    for text, seed, n, tokens in answers[: args.checks]:
        request = completion(text, seed, n, cache_prompt=False)
        status, body = await post(address, "/completion", json.dumps(request).encode())
        alone = tokens_of(body, False)[0]
        if status != 200 or alone != tokens:
            raise Failure(f"{tokens} among others, {alone} alone, behind {text!r}")
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{seconds:.1f} s: {listed}; {counts['tokens'] / seconds:.0f} tokens/s")
    print(f"{min(len(answers), args.checks)} answers are the same alone")
    if args.pid:
        print(f"memory: {before:.0f} MiB before, {resident(args.pid):.0f} MiB after")
    if not answers:
        raise Failure("no answer was compared")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
