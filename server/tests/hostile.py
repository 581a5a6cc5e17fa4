#!/usr/bin/env python3
"""Hostile requests against a running server, beside one client that means well.

Several clients send bodies, schemas and grammars that are meant to cost much: nests, repetitions,
products of limits, long texts. Every one of them must be answered, with a status that is not the
server's own failure. Meanwhile short requests of another client must be answered within a second,
and when all is over the server's memory must be what it was before.

    backstitch serve --port 8080 &
    python3 server/tests/hostile.py --url 127.0.0.1:8080 --requests 1000 --pid $!

Short requests are sent by a process of their own, so that making hostile ones does not delay them.
It also measures how late its own sleeps end: a machine that is busy with other work delays both.
Where it does, `--most-wait` has to be larger, or the machine quiet.

The memory of conversations is filled before it is measured, because servers keep them by design.

Only servers of this machine are asked.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import random
import sys
import time

# A common multiple far beyond any table.
PRIMES = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


class Failure(Exception):
    """Something that no correct server does."""


async def post(address, path, body, timeout=60):
    """Send a body; return the status and the beginning of the answer."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        writer.write(body)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), timeout)
    except ConnectionError:
        # The server may refuse a body before all of it is sent.
        return 0, b""
    finally:
        writer.close()
    return (int(answer.split()[1]) if answer else 0), answer[-300:]


def nested(depth, inner, opening="[", closing="]"):
    return opening * depth + inner + closing * depth


def nested_schema(depth, key, wrap):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {key: wrap(schema)}
    return schema


class Bodies:
    """Makes hostile requests of every kind in turn, with sizes drawn at random."""

    def __init__(self, seed, mib):
        self.random = random.Random(seed)
        self.bytes = mib << 20

    def size(self):
        """Mostly small, sometimes as large as allowed."""
        return self.random.choice([1 << 10, 1 << 14, 1 << 18, self.bytes // 8, self.bytes])

    def fill(self, piece):
        return ",".join([piece] * max(1, self.size() // (len(piece) + 1)))

    def raw(self):
        piece = self.random.choice(["[]", "[[[[[]]]]]", '{"a":{"b":0}}', "0", '""', "null", '{"":[]}'])
        field = self.random.choice(["x", "prompt", "messages", "tools", "stop", "input", "logit_bias"])
        path = self.random.choice(["/completion", "/v1/chat/completions", "/tokenize", "/v1/messages"])
        return path, f'{{"prompt":"x","n_predict":2,"{field}":[{self.fill(piece)}]}}'

    def deep(self):
        depth = self.random.choice([100, 200, 10_000, 1_000_000])
        opening, closing = self.random.choice([("[", "]"), ('{"a":', "}")])
        field = self.random.choice(["x", "prompt", "json_schema"])
        return "/completion", f'{{"prompt":"x","{field}":{nested(depth, "1", opening, closing)}}}'

    def long_text(self):
        text = self.random.choice(["a", " ", "a ", "\\n", "<|im_start|>", "\\u0301", "1"])
        text *= max(1, self.size() // len(text))
        path, field = self.random.choice(
            [("/completion", "prompt"), ("/tokenize", "content"), ("/v1/completions", "prompt"), ("/infill", "input_prefix")]
        )
        return path, f'{{"n_predict":2,"input_suffix":"x","input_prefix":"x","{field}":"{text}"}}'

    def messages(self):
        message = '{"role":"user","content":"a"}'
        path = self.random.choice(["/v1/chat/completions", "/v1/messages", "/apply-template"])
        return path, f'{{"max_tokens":2,"messages":[{self.fill(message)}]}}'

    def tools(self):
        depth = self.random.choice([3, 11, 40])
        schema = json.dumps(nested_schema(depth, "oneOf", lambda schema: [schema]))
        tool = f'{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}'
        return "/v1/chat/completions", (
            f'{{"max_tokens":2,"messages":[{{"role":"user","content":"a"}}],"tools":[{self.fill(tool)}]}}'
        )

    def schema(self):
        r, big = self.random, self.random.choice([99_991, 1_000_003, 22_309_287, 4_294_967_291])
        schema = r.choice(
            [
                {"type": "integer", "multipleOf": big},
                {"type": "integer", "allOf": [{"multipleOf": n} for n in PRIMES[: r.randrange(2, 11)]]},
                {"type": "string", "minLength": r.randrange(100_000), "maxLength": 10**6},
                {"type": "string", "pattern": "^(a{1,%d}){1,%d}$" % (r.randrange(1, 999), r.randrange(1, 999))},
                {"type": "array", "items": {"type": "integer"}, "minItems": r.randrange(10**5)},
                {"type": "array", "items": {"type": "array", "maxItems": 999, "minItems": 99}, "maxItems": 9999},
                {"properties": {f"p{i}": {"type": "string"} for i in range(r.randrange(10, 3000))}},
                {"enum": [f"v{i}" for i in range(r.randrange(10, 20_000))]},
                {"patternProperties": {f"^a{i}.*x$": {} for i in range(r.randrange(10, 300))}},
                nested_schema(r.randrange(2, 60), "anyOf", lambda schema: [schema, {"type": "null"}, schema][:2]),
                {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"items": {"$ref": "#/$defs/a"}}]}}, "$ref": "#/$defs/a"},
                {"not": {"const": [1] * r.randrange(90_000)}},
                {"not": {"prefixItems": [{"type": "null"}] * r.randrange(30_000)}},
                {
                    "n": {"not": {"$ref": "#/big"}},
                    "big": {"allOf": [{"minLength": 3}] * 390},
                    "allOf": [{"$ref": "#/n"}] * r.randrange(20_000),
                },
                {"type": "integer", "minimum": -(10 ** r.randrange(1, 18)), "maximum": 10 ** r.randrange(1, 18), "multipleOf": 7},
            ]
        )
        if r.random() < 0.5:
            return "/completion", json.dumps({"prompt": "x", "n_predict": 2, "json_schema": schema})
        form = {"type": "json_schema", "json_schema": {"schema": schema}}
        messages = [{"role": "user", "content": "a"}]
        return "/v1/chat/completions", json.dumps({"messages": messages, "max_tokens": 2, "response_format": form})

    def grammar(self):
        r = self.random
        n, m = r.randrange(1, 3000), r.randrange(1, 3000)
        field, text = r.choice(
            [
                ("grammar", 'root ::= ("a"{0,%d} "b"){0,%d}' % (n, m)),
                ("grammar", "root ::= " + " | ".join(f'"w{i}"' for i in range(n))),
                ("grammar", "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40)) + '\nr40 ::= "a"'),
                ("grammar", "root ::= " + "(" * n + '"a"' + ")?" * n),
                ("grammar", 'root ::= root root | "a" | ""'),
                ("regex", "(a|b|ab)*" * (n % 50) + "c{%d}" % m),
                ("regex", "((a{0,%d}){0,%d}){0,9}" % (n % 999, m % 999)),
                ("regex", "[^a]*a.{%d}" % (n % 60)),
                ("lark", 'start: ("a"{0,%d} "b"){0,%d}' % (n, m)),
                ("lark", "start: /(a|aa)*b{%d}/" % n),
            ]
        )
        return "/completion", json.dumps({"prompt": "x", "n_predict": 2, field: text})

    def samplers(self):
        r = self.random
        more = r.choice(
            [
                {"stop": ["a" * 4096] * 256},
                {"logit_bias": [[i % 300, 1.0] for i in range(r.randrange(200_000))]},
                {"dry_multiplier": 1, "dry_sequence_breakers": ["ab" * 2000] * 256},
                {"samplers": ["top_k"] * 100_000},
                {"n_probs": 1000, "n_predict": 1000},
                {"n_probs": 1000, "n_predict": 200, "ignore_eos": True},
                {"prompt": [1] * r.randrange(300_000)},
                {"prompt": [[1]] * r.randrange(300_000)},
            ]
        )
        return "/completion", json.dumps({"prompt": "x", "n_predict": 2} | more)

    def next(self, i):
        kinds = [self.raw, self.schema, self.grammar, self.deep, self.schema, self.long_text, self.grammar]
        kinds += [self.messages, self.schema, self.tools, self.samplers]
        path, text = kinds[i % len(kinds)]()
        return path, text.encode()


def resident(pid):
    """Return the resident memory of a process in MiB, and the most that it was."""
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return [int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]


async def attack(address, bodies, numbers, statuses):
    for i in numbers:
        path, body = bodies.next(i)
        began = time.monotonic()
        try:
            status, answer = await post(address, path, body)
        except asyncio.TimeoutError:
            raise Failure(f"{path} was not answered in a minute: {body[:300]!r}") from None
        if status == 500 or (status not in (0, 200, 400, 404, 413, 503) and status != 501):
            raise Failure(f"{status} for {path} {body[:300]!r}: {answer!r}")
        statuses[status] = statuses.get(status, 0) + 1
        statuses["slowest"] = max(statuses["slowest"], (time.monotonic() - began, path, body[:120]))


def ask(address, path, body):
    """Ask a short question; return the seconds until its answer, and those of its evaluation."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("POST" if body else "GET", path, body)
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    took = time.monotonic() - began
    if response.status != 200:
        raise Failure(f"a short request got {response.status}: {answer[-300:]!r}")
    timings = json.loads(answer).get("timings", {})
    return took, (timings.get("prompt_ms", 0) + timings.get("predicted_ms", 0)) / 1e3


def watch(address, until, results):
    """Ask short questions until told otherwise, and report how long the answers took."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    messages = [{"role": "user", "content": "Hello"}]
    questions = {
        "health": ("/health", None),
        "plain": ("/completion", {"prompt": "Once upon a time", "n_predict": 2, "seed": 1}),
        "with a schema": ("/completion", {"prompt": "x", "n_predict": 2, "json_schema": schema}),
        "with a tool": ("/v1/chat/completions", {"messages": messages, "max_tokens": 2, "tools": [tool]}),
    }
    times, pause = [], 0.05
    try:
        while not until.is_set():
            for name, (path, body) in questions.items():
                times.append((*ask(address, path, body and json.dumps(body)), name))
            began = time.monotonic()
            time.sleep(pause)
            times[-1] += (time.monotonic() - began - pause,)
    except Exception as failure:
        results.put(f"{type(failure).__name__}: {failure}")
    else:
        results.put(times)


class Watcher:
    """A process that asks short questions."""

    def __init__(self, address):
        context = multiprocessing.get_context("spawn")
        self.until, self.results = context.Event(), context.Queue()
        arguments = (address, self.until, self.results)
        self.process = context.Process(target=watch, args=arguments, daemon=True)
        self.process.start()

    def end(self):
        """Return the times of all questions, the slowest first."""
        self.until.set()
        times = self.results.get(timeout=120)
        if isinstance(times, str):
            raise Failure(times)
        return sorted(times, reverse=True)


def report(times):
    """Print the times of short questions by their kind. Return the longest."""
    late = max(time[3] for time in times if len(time) > 3)
    print(f"short requests; a sleep of their client ended {late:.3f} s late at most")
    for kind in sorted({time[2] for time in times}):
        own = [time for time in times if time[2] == kind]
        n, (took, evaluated) = len(own), own[0][:2]
        print(f"  {n} {kind}: half within {own[n // 2][0]:.3f} s, ", end="")
        print(f"99 of 100 within {own[n // 100][0]:.3f} s, all within {took:.3f} s", end="")
        print(f", the slowest evaluated for {evaluated:.3f} s" if evaluated else "")
    return times[0][0]


async def fill(address, n_most=200_000):
    """Fill the memory of conversations, as far as that takes `n_most` tokens."""
    cache = await asyncio.to_thread(get, address, "/backstitch/cache")
    n_evicted = cache["counters"]["n_evicted"]
    n_ctx, n = cache["n_ctx"], cache["budget"]["sequences"] + 2 * cache["n_slots"]
    length = min(n_ctx - 8, n_most // n)
    for first in range(0, n, 8):
        numbers = range(first, min(first + 8, n))
        prompts = ([1 + (i + k * (i + 1)) % 250 for k in range(length)] for i in numbers)
        bodies = (json.dumps({"prompt": prompt, "n_predict": 1}).encode() for prompt in prompts)
        await asyncio.gather(*(post(address, "/completion", body) for body in bodies))
        cache = await asyncio.to_thread(get, address, "/backstitch/cache")
        if cache["counters"]["n_evicted"] > n_evicted + 8:
            return


def get(address, path):
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


async def memory_comes_back(pid, before, seconds=20):
    """Wait until the memory is that of before or so, at most for `seconds`."""
    end = time.monotonic() + seconds
    while resident(pid)[0] > 1.1 * before and time.monotonic() < end:
        await asyncio.sleep(0.5)
    after, peak = resident(pid)
    waited = seconds - max(0, end - time.monotonic())
    print(f"memory: {before:.0f} MiB before, {peak:.0f} at the peak, {after:.0f} after {waited:.0f} s")
    if after > 1.1 * before:
        raise Failure(f"{after - before:.0f} MiB of memory did not come back")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="127.0.0.1:8080", help="host and port, of this machine")
    parser.add_argument("--requests", type=int, default=1000, help="hostile ones, 10000 at most")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1, help="of the sizes of requests")
    parser.add_argument("--mib", type=int, default=20, help="the size of the largest bodies")
    parser.add_argument("--seconds", type=float, default=1800, help="the most time for all of them")
    parser.add_argument("--most-wait", type=float, default=1, help="seconds that a short request may take")
    parser.add_argument("--pid", type=int, default=0, help="process whose memory is watched")
    args = parser.parse_args()
    host, port = args.url.rsplit(":", 1)
    if host not in ("127.0.0.1", "localhost"):
        parser.error("only servers of this machine are asked")
    args.address, args.requests = (host, int(port)), min(args.requests, 10_000)
    return args


async def main():
    args = arguments()
    address, count = args.address, args.requests
    statuses = {"slowest": (0, "", b"")}
    # What the first requests leave for good, such as the index of the vocabulary, is no leak.
    await attack(address, Bodies(0, 1), range(22), dict(statuses))
    before = 0
    if args.pid:
        await fill(address)
        await asyncio.sleep(1)
        before = resident(args.pid)[0]
    watcher = Watcher(address)
    numbers = [range(client, count, args.clients) for client in range(args.clients)]
    bodies = (Bodies(args.seed + i, args.mib) for i in range(args.clients))
    attackers = (attack(address, own, numbers, statuses) for own, numbers in zip(bodies, numbers))
    began = time.monotonic()
    try:
        await asyncio.wait_for(asyncio.gather(*attackers), args.seconds)
    except asyncio.TimeoutError:
        raise Failure(f"{count} requests took more than {args.seconds} s") from None
    elapsed, times = time.monotonic() - began, watcher.end()
    slowest = statuses.pop("slowest")
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{count} hostile requests in {elapsed:.1f} s, by status: {statuses}; load of the machine: {load}")
    print(f"the slowest took {slowest[0]:.1f} s: {slowest[1]} {slowest[2]!r}")
    longest = report(times)
    if args.pid:
        await memory_comes_back(args.pid, before)
    if longest > args.most_wait:
        raise Failure(f"a short request waited {longest:.2f} s")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
