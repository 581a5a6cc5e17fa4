#!/usr/bin/env python3
"""Run `backstitch bench` and llama.cpp in turn on the same models, and print a table of medians and
ratios in Markdown.

    python compare.py --models FOLDER [--only NAME ...] [--threads 1 2] [--rounds 3] [--json FILE]
                      [--ik PROGRAM]

The speed of a machine changes from minute to minute, so the programs alternate (A B C A B C ...),
and only ratios of one run count. Backstitch runs with the kernel sets of --sets: prompt and
generation with the first, the prompt with the others. llama.cpp runs with and without flash
attention (a quantised cache needs it), and the faster one of each round counts. With --ik,
ik_llama.cpp is compared as well, with weights as they are and repacked.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ["smollm2-135M-Q8_0", "smollm2-135M-Q4_0"]


@dataclass(frozen=True)
class Job:
    """One row of the table: a model, the number of threads, the tokens in the cache before, the
    number of sequences, and the type of the cache."""

    model: str
    threads: int
    depth: int
    seqs: int
    cache: str

    def flags(self, folder, n_prompt, n_gen):
        return ["bench", "-m", str(folder / f"{self.model}.gguf"), "-t", str(self.threads), "-p", str(n_prompt),
                "-n", str(n_gen), "--depth", str(self.depth), "--seqs", str(self.seqs)]


def measure(command, **variables):
    """Run a program and return the JSON line that it prints."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=os.environ | variables)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(lines[-1])


def run_round(job, args, sink):
    """Measure each program once: Backstitch with each kernel set, the others with each setting."""
    ours = []
    for kernels in args.sets:
        n_gen = args.gen if not ours else 1
        command = [args.backstitch, *job.flags(args.models, args.prompt, n_gen), "-ctk", job.cache, "-ctv", job.cache,
                   "-r", str(args.reps), "--json"]
        ours.append(measure(command, **({} if kernels == "best" else {"BACKSTITCH_ISA": kernels})))
    theirs = {name: [measure(command) for command in commands] for name, commands in peers(job, args).items()}
    for engine, rows in [("backstitch", ours), *theirs.items()]:
        for row in rows:
            sink.write(json.dumps({"engine": engine, "cache": job.cache} | row) + "\n")
    sink.flush()
    foreign = max(row["foreign"] or 0 for row in ours)
    if foreign > 0.05:
        print(f"{job.model}: other programs used {100 * foreign:.0f} % of the machine meanwhile", file=sys.stderr)
    return ours, {name: best(rows) for name, rows in theirs.items()}


def peers(job, args):
    """Return the command lines of each other engine, one for each setting; the best counts."""
    flags = job.flags(args.models, args.prompt, args.gen) + ["--cache", job.cache, "--reps", str(args.reps)]
    kinds = args.attention if job.cache == "f16" else ["on"]
    found = {"llama.cpp": [[args.peer, *flags, "--fa", attention] for attention in kinds]}
    if args.ik:
        # It has no "auto", and its flash attention aborts if a query attends to no cell of some
        # other sequence.
        kinds = ["off"] if job.seqs > 1 else [kind for kind in kinds if kind != "auto"] or ["on", "off"]
        found["ik_llama.cpp"] = [[args.ik, *flags, "--fa", attention, "--repack", repack]
                                 for attention in kinds for repack in ("off", "on")]
    return found


def best(rows):
    return {key: max(row[key] for row in rows) for key in ("prompt_tps", "gen_tps")} | {
        "peak_rss_mib": min(row["peak_rss_mib"] for row in rows)}


def figure(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}"


def heading(engines, sets):
    ratios = ["ratio"] if len(engines) == 1 else [f"to {engine}" for engine in engines]
    return ["model", "threads", "depth", "seqs", "cache", *(f"prompt: {engine}" for engine in engines), *sets, *ratios,
            "of multiplying alone", *(f"generation: {engine}" for engine in engines), "Backstitch", *ratios,
            "of reading alone", *(f"MiB: {engine}" for engine in engines), "Backstitch"]


def table_row(job, rounds, engines, n_sets):
    """Return the cells of a row: medians over the rounds. A ratio is the median of the rounds'
    ratios; that of prompts is with the faster kernel set."""
    def median(pick):
        return statistics.median(pick(ours, theirs) for ours, theirs in rounds)

    def theirs(key):
        return [figure(median(lambda _, theirs, name=name: theirs[name][key])) for name in engines]

    def ratio(key, i, name):
        return median(lambda ours, theirs: ours[i][key] / theirs[name][key])

    def share(key, limit):
        known = all(ours[0][limit] for ours, _ in rounds)
        return f"{median(lambda ours, _: 100 * ours[0][key] / ours[0][limit]):.0f} %" if known else "-"

    cells = [job.model, str(job.threads), str(job.depth), str(job.seqs), job.cache]
    cells += theirs("prompt_tps")
    cells += [figure(median(lambda ours, _, i=i: ours[i]["prompt_tps"])) for i in range(n_sets)]
    cells += [f"**{max(ratio('prompt_tps', i, name) for i in range(n_sets)):.2f}**" for name in engines]
    cells.append(share("gop_s", "gop_limit_s"))
    cells += theirs("gen_tps")
    cells.append(figure(median(lambda ours, _: ours[0]["gen_tps"])))
    cells += [f"**{ratio('gen_tps', 0, name):.2f}**" for name in engines]
    cells.append(share("read_gb_s", "read_limit_gb_s"))
    cells += [f"{median(lambda _, theirs, name=name: theirs[name]['peak_rss_mib']):.0f}" for name in engines]
    cells.append(f"{median(lambda ours, _: ours[0]['peak_rss_mib']):.0f}")
    return cells


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=Path, required=True, help="folder with the files of models.py")
    p.add_argument("--backstitch", default=str(HERE / "../../target/release/backstitch"))
    p.add_argument("--peer", default=str(HERE / "target/release/peer"))
    p.add_argument("--ik", help="ik_bench of ik/build.sh; without it ik_llama.cpp is left out")
    p.add_argument("--only", nargs="+", default=MODELS, help="names of models, without .gguf")
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--depths", nargs="+", type=int, default=[0])
    p.add_argument("--seqs", nargs="+", type=int, default=[1])
    p.add_argument("--caches", nargs="+", default=["f16"], choices=["f16", "q8_0"])
    p.add_argument("--sets", nargs="+", default=["best"], help="values of BACKSTITCH_ISA, or best")
    p.add_argument("--attention", nargs="+", default=["on", "off"], help="llama.cpp's flash attention: on, off, auto")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--gen", type=int, default=48)
    p.add_argument("--reps", type=int, default=3, help="measurements a round, of which each program takes the median")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", default="/dev/null", help="also append every measurement to this file")
    args = p.parse_args()

    jobs = [Job(model, threads, depth, seqs, cache) for model in args.only for threads in args.threads
            for depth in args.depths for seqs in args.seqs for cache in args.caches]
    engines = ["llama.cpp", "ik_llama.cpp"] if args.ik else ["llama.cpp"]
    columns = heading(engines, args.sets)
    print_row(columns)
    print_row(["---"] + ["--:"] * (len(columns) - 1))
    with open(args.json, "a") as sink:
        for job in jobs:
            rounds = [run_round(job, args, sink) for _ in range(args.rounds)]
            print_row(table_row(job, rounds, engines, len(args.sets)))


if __name__ == "__main__":
    main()
