#!/usr/bin/env python3
"""An agent's afternoon: 35 requests to a server with all defaults, with edits, branches and answers
generated again.

Prints the tokens of the prompts and those that were evaluated, and looks up in `/backstitch/cache`
whether the end of every message can be gone back to at once. Exits with 1 if more than `--most`
percent were evaluated, or if an end is not held.

    python3 server/tests/afternoon.py --program target/release/backstitch model.gguf
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

WORDS = (
    "the agent reads a file and finds that the function which opens the socket does not close it when an "
    "error comes so the test that counts open files fails after some time and the log shows a line with "
    "the number of the process and its parent"
).split()


class Server:
    """A server on a port of this machine, with all defaults."""

    def __init__(self, command, port):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            print(line.strip())
            if "listening on" in line:
                # Nobody reads on, and the server must not wait for that.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise RuntimeError(f"{command} ended with {self.process.wait()}")

    def post(self, path, body):
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as response:
            return json.load(response)

    def end(self):
        self.process.terminate()
        self.process.wait()


class Agent:
    """A client that keeps a conversation, as agents do, and sends all of it with every request."""

    def __init__(self, server, counts, rng, system):
        self.server, self.counts, self.rng = server, counts, rng
        self.messages = [{"role": "system", "content": system}]
        self.seq = None

    def fork(self, n_messages):
        other = Agent(self.server, self.counts, self.rng, "")
        other.messages = [dict(message) for message in self.messages[:n_messages]]
        return other

    def ask(self, label, keep=True):
        """Send the conversation; keep the answer as its next message."""
        seed = self.rng.randrange(1 << 30)
        body = {"messages": self.messages, "max_tokens": 24, "temperature": 0.8, "seed": seed}
        answer = self.server.post("/v1/chat/completions", body)
        usage = answer["usage"]
        n_prompt = usage["prompt_tokens"]
        n_evaluated = n_prompt - usage["prompt_tokens_details"]["cached_tokens"]
        self.seq = answer["backstitch"]["seq"]
        self.counts.append((n_prompt, n_evaluated))
        told = answer["backstitch"]
        why = ", ".join(f"{key} {told[key]}" for key in ("reevaluated", "first_differing_token", "why"))
        print(f"{label:24} {n_prompt:6} tokens, {n_evaluated:5} evaluated; {why}", flush=True)
        if keep:
            content = answer["choices"][0]["message"]["content"] or "."
            self.messages.append({"role": "assistant", "content": content})

    def say(self, n_words):
        self.messages.append({"role": "user", "content": text(self.rng, n_words)})

    def result(self, n_words):
        """Give the result of a tool, in the way of agents whose models know no tools."""
        content = "Result of read_file:\n```\n" + text(self.rng, n_words) + "\n```"
        self.messages.append({"role": "user", "content": content})

    def turns(self, n, label):
        for _ in range(n):
            self.say(self.rng.randrange(10, 40))
            self.ask(label)
            self.result(self.rng.randrange(40, 160))
            self.ask(label + ", result")


def text(rng, n_words):
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


def afternoon(server, rng):
    """Send the 35 requests. Return the agents, and what each request evaluated."""
    counts = []
    system = "You are an agent that mends programs.\n" + text(rng, 500)
    main = Agent(server, counts, rng, system)
    main.turns(8, "turn")
    edited = main.fork(1 + 4 * 4)
    # The result of the fourth turn is another one, and the agent goes on from there.
    edited.messages[-2]["content"] += "\n(edited)"
    edited.messages.pop()
    edited.ask("edited result")
    edited.turns(2, "after the edit")
    for _ in range(3):
        again = main.fork(len(main.messages) - 1)
        again.ask("generated again", keep=False)
    branch = main.fork(1 + 4 * 2)
    branch.turns(2, "branch")
    main.turns(2, "back")
    other = Agent(server, counts, rng, system)
    other.turns(1, "second agent")
    cut = main.fork(1 + 4 * 6)
    cut.messages[-2]["content"] = cut.messages[-2]["content"][:60]
    cut.messages.pop()
    cut.ask("result cut")
    return {"main": main, "edited": edited, "branch": branch, "second": other, "cut": cut}, counts


def tokens(server, messages):
    return server.post("/tokenize", {"messages": messages})["tokens"]


def ends(server, agent):
    """Return, for each message, the tokens that stay if the next one is another: for the last one
    those before the last token, from which an answer is generated again."""
    sent = agent.messages[:-1]
    for n in range(1, len(sent)):
        other = [*sent[:n], {**sent[n], "content": "#"}]
        pairs = zip(tokens(server, sent[: n + 1]), tokens(server, other))
        yield n, next(i for i, (a, b) in enumerate(pairs) if a != b)
    yield len(sent), len(tokens(server, sent)) - 1


def is_held(sequence, pos):
    """Return true if a sequence can go on from this position without evaluating anything."""
    inside = [at for at in sequence["positions"] if at["from"] <= pos < at["to"]]
    return bool(inside) and inside[0]["cost"] != "reevaluated"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/backstitch")
    parser.add_argument("--port", type=int, default=8917)
    parser.add_argument("--most", type=float, default=12.0, help="most percent of prompt tokens to evaluate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("model")
    parser.add_argument("options", nargs="*", help="further options of the server, after --")
    args = parser.parse_args()
    server = Server([args.program, "serve", "-m", args.model, *args.options], args.port)
    try:
        began = time.monotonic()
        agents, counts = afternoon(server, random.Random(args.seed))
        n_prompt, n_evaluated = (sum(count[i] for count in counts) for i in (0, 1))
        percent = 100 * n_evaluated / n_prompt
        seconds = time.monotonic() - began
        print(f"{len(counts)} requests in {seconds:.0f} s: {n_evaluated} of {n_prompt} tokens, {percent:.1f} %")
        held = server.get("/backstitch/cache")["sequences"]
        lost = []
        for name, agent in agents.items():
            own = [sequence for sequence in held if sequence["seq"] == agent.seq]
            for n, pos in ends(server, agent):
                # Where an answer began, the place before the last token of its prompt is held.
                if not any(is_held(sequence, at) for sequence in own for at in (pos, pos - 1)):
                    lost.append(f"{name}: the end of message {n} of {len(agent.messages)}, at {pos}")
        print(f"{len(held)} sequences held; " + ("every end is held" if not lost else "NOT HELD: " + "; ".join(lost)))
        status = next(line for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmHWM"))
        print("peak memory", " ".join(status.split()[1:]))
        return 1 if lost or percent > args.most or len(counts) != 35 else 0
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(main())
