#!/usr/bin/env python3
"""Runs `backstitch bench` and llama.cpp in turn on the same models and prints a Markdown table of medians and ratios.

    python compare.py --models FOLDER [--backstitch BIN] [--peer BIN] [--threads 1 2] [--rounds 3] [--json FILE]

The machine's mood changes from minute to minute, so the two alternate (A B A B ...) and only ratios of one run count. At depth
llama.cpp is given both of its attention kernels each round, and the faster one is what Backstitch is held to.
"""
import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ["smollm2-135M-Q8_0", "smollm2-135M-Q4_0"]


@dataclass(frozen=True)
class Job:
    """One row of the table: a model, a thread count, and how full the cache is when it begins."""

    model: str
    threads: int
    depth: int
    seqs: int

    def flags(self, folder, n_prompt, n_gen):
        return ["bench", "-m", str(folder / f"{self.model}.gguf"), "-t", str(self.threads), "-p", str(n_prompt),
                "-n", str(n_gen), "--depth", str(self.depth), "--seqs", str(self.seqs)]


def measure(command):
    """The JSON line a bench prints."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(lines[-1])


def run_round(job, args, sink):
    """One measurement of each side; llama.cpp's is the best of its settings, figure by figure."""
    flags = job.flags(args.models, args.prompt, args.gen)
    ours = measure([args.backstitch, *flags, "--json"])
    settings = ["on", "off"] if job.depth else ["auto"]
    theirs = [measure([args.peer, *flags, "--fa", setting, "--reps", "2"]) for setting in settings]
    for engine, row in [("backstitch", ours)] + [("llama.cpp", row) for row in theirs]:
        sink.write(json.dumps({"engine": engine} | row) + "\n")
    sink.flush()
    best = {key: max(row[key] for row in theirs) for key in ("prompt_tps", "gen_tps")}
    return ours, best | {"peak_rss_mib": min(row["peak_rss_mib"] for row in theirs)}


def table_row(job, rounds):
    """Medians over the rounds; a ratio is the median of the rounds' ratios."""
    cells = [job.model, str(job.threads), str(job.depth), str(job.seqs)]
    for key in ("prompt_tps", "gen_tps"):
        ours = statistics.median(ours[key] for ours, _ in rounds)
        theirs = statistics.median(theirs[key] for _, theirs in rounds)
        ratio = statistics.median(ours[key] / theirs[key] for ours, theirs in rounds)
        cells += [f"{ours:.1f}", f"{theirs:.1f}", f"**{ratio:.2f}**"]
    for side in (0, 1):
        cells.append(f"{statistics.median(pair[side]['peak_rss_mib'] for pair in rounds):.0f}")
    return cells


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=Path, required=True, help="folder with the files of models.py")
    p.add_argument("--backstitch", default=str(HERE / "../../target/release/backstitch"))
    p.add_argument("--peer", default=str(HERE / "target/release/peer"))
    p.add_argument("--only", nargs="+", default=MODELS, help="names of models, without .gguf")
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--depths", nargs="+", type=int, default=[0, 2048])
    p.add_argument("--seqs", nargs="+", type=int, default=[1])
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--gen", type=int, default=128)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", default="/dev/null", help="also append every measurement to this file")
    args = p.parse_args()

    jobs = [Job(model, threads, depth, seqs) for model in args.only for threads in args.threads
            for depth in args.depths for seqs in args.seqs]
    print_row(["model", "threads", "depth", "seqs", "prompt t/s", "llama.cpp", "ratio", "gen t/s", "llama.cpp", "ratio",
               "MiB", "llama.cpp"])
    print_row(["---"] + ["--:"] * 11)
    with open(args.json, "a") as sink:
        for job in jobs:
            rounds = [run_round(job, args, sink) for _ in range(args.rounds)]
            print_row(table_row(job, rounds))


if __name__ == "__main__":
    main()
