#!/usr/bin/env python3
"""What a client that streams gets of the speed that `backstitch bench` measures, in turn.

    python3 server/tests/overhead.py --program target/release/backstitch -m model.gguf -t 1

The ratio is that of the client's clock, from the first token to the last.
"""

import argparse
import json
import socket
import statistics
import subprocess
import time


def bench(args):
    """Return the tokens per second of the program alone."""
    command = [args.program, "bench", "-m", args.model, "-t", str(args.threads)]
    command += ["-p", "8", "-n", str(args.tokens), "-r", "1", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["gen_tps"]


def stream(address, prompt, n):
    """Return the tokens per second at which a client reads an answer of `n` tokens."""
    request = {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True, "stream": True}
    body = json.dumps(request).encode()
    head = "POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    answer, first = b"", None
    with socket.create_connection(address) as connection:
        connection.sendall(head.encode() + body)
        while piece := connection.recv(1 << 16):
            answer, last = answer + piece, time.monotonic()
            if first is None and b'"content"' in answer:
                first = last
    end = [line for line in answer.split(b"\n") if b'"tokens_predicted"' in line][-1]
    n_predicted = json.loads(end[end.index(b"{") :])["tokens_predicted"]
    return (n_predicted - 1) / (last - first)


def started(args):
    """Start a server, and return it with its address."""
    command = [args.program, "serve", "-m", args.model, "-t", str(args.threads)]
    command += ["--port", "0", "-np", "1", "-c", "2048"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if "http://127.0.0.1:" in line:
            port = line.split("http://127.0.0.1:")[1].split("/")[0].split()[0]
            return server, ("127.0.0.1", int(port))
    raise SystemExit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-n", "--tokens", type=int, default=256)
    parser.add_argument("-r", "--rounds", type=int, default=8)
    args = parser.parse_args()
    server, address = started(args)
    try:
        stream(address, "Once upon a time", 16)
        ratios = []
        for i in range(args.rounds):
            alone = bench(args)
            streamed = stream(address, f"Once upon a time, there were {i + 2}", args.tokens)
            ratios.append(streamed / alone)
            print(f"bench {alone:.1f} tokens/s, streamed {streamed:.1f}: {ratios[-1]:.3f}", flush=True)
        print(f"median {statistics.median(ratios):.3f}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
