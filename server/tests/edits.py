#!/usr/bin/env python3
"""Edit conversations of 2,000 tokens on two servers, and count the tokens that each evaluates.

For every model the last message of a long conversation is changed, the answer is generated again,
the former branch is gone back to, and the server is killed and started anew. The counts are those
that the servers tell (`timings.prompt_n`); the result is a table in Markdown.

    python3 server/tests/edits.py --program target/release/backstitch --reference llama-server \\
        goldens/models/falcon_h1.gguf goldens/models/gemma3.gguf
"""

import argparse
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

STEPS = ["new", "last message edited", "generated again", "back to the former branch", "after a kill"]
WORDS = "the dog ran to a big red house and saw her friend Tom who had one very old cake".split()


class Server:
    """A server on a port of this machine."""

    def __init__(self, command, port):
        self.url = f"http://127.0.0.1:{port}"
        command = [*command, "--port", str(port), "-c", "4096", "-np", "2", "--kv-unified", "-t", "2"]
        command += ["--chat-template", "chatml", "--jinja"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"{command} ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(self.url + "/health").read()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{command} does not answer")

    def ask(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()}") from error

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def architecture(program, model):
    """Return the name of a model's architecture. llama-server caps contexts at the length that the
    model was trained with, unless the metadata says otherwise."""
    shown = subprocess.run([program, "inspect", "-m", model, "--json"], capture_output=True, check=True)
    return json.loads(shown.stdout)["architecture"]


def message(n_words, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


def conversation(server):
    """Return a conversation of about 2,000 tokens, whose last message has about 30."""
    words = " ".join(WORDS)
    per_word = len(server.ask("/tokenize", {"content": words})["tokens"]) / len(WORDS)
    n_words = int(1970 / per_word) // 10
    roles = ["user", "assistant"] * 5
    messages = [{"role": role, "content": message(n_words, i)} for i, role in enumerate(roles)]
    return messages, max(1, int(20 / per_word))


def evaluated(server, messages):
    """Return the number of tokens that an answer evaluated."""
    # llama-server refuses to tell what tiny models with random weights answer, unless it is text.
    more = {"max_tokens": 8, "temperature": 0, "cache_prompt": True, "grammar": "root ::= [a-z ]+"}
    return server.ask("/v1/chat/completions", {"messages": messages, **more})["timings"]["prompt_n"]


def steps(start):
    """Go through the steps on a server; return the counts."""
    server = start()
    try:
        messages, n_last = conversation(server)
        asked = [messages + [{"role": "user", "content": message(n_last, seed)}] for seed in (100, 200)]
        results = [evaluated(server, asked[i]) for i in (0, 1, 1, 0)]
        # What is stored in the background may take a moment.
        time.sleep(2)
    finally:
        server.kill()
    server = start()
    try:
        results.append(evaluated(server, asked[0]))
    finally:
        server.kill()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", required=True, help="backstitch")
    parser.add_argument("--reference", help="llama-server")
    parser.add_argument("--port", type=int, default=8190)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    print(f"| model | server | {' | '.join(STEPS)} |")
    print("|---" * (2 + len(STEPS)) + "|")
    for model in args.models:
        with tempfile.TemporaryDirectory() as state:
            commands = {"backstitch": [args.program, "serve", "-m", model, "--state", state]}
            if args.reference:
                length = f"{architecture(args.program, model)}.context_length=int:4096"
                commands["llama-server"] = [args.reference, "-m", model, "-fit", "off", "--override-kv", length]
            for name, command in commands.items():
                counts = steps(lambda: Server(command, args.port))
                print(f"| {model.stem} | {name} | {' | '.join(map(str, counts))} |", flush=True)


if __name__ == "__main__":
    main()
