#!/usr/bin/env python3
"""Compare the grammars of JSON schemas with the verdicts of two public collections.

MaskBench (https://github.com/guidance-ai/jsonschemabench, `maskbench/data`) and the
JSON-Schema-Test-Suite (https://github.com/json-schema-org/JSON-Schema-Test-Suite) are cloned
into the folder DATA, unless they are there. Every schema is compiled, every instance is checked
against its grammar, and N random texts are written under the grammars and validated with the
package `jsonschema`. What disagrees goes to DATA/report.jsonl: a wrong instance or text is
listed with the parts of its schema that were left out, if there are any.

    cargo build --release -p backstitch-models --features grammar --example schema_check
    python3 benches/schemas.py DATA [--random N] [--part I/N] [--program PATH]
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

MASKBENCH = "https://github.com/guidance-ai/jsonschemabench"
SUITE = "https://github.com/json-schema-org/JSON-Schema-Test-Suite"
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
PROGRAM = "target/release/examples/schema_check"


def cloned(data, url):
    """Return the folder of a repository in `data`, and clone it there if it is missing."""
    folder = data / url.rsplit("/", 1)[1]
    if not folder.is_dir():
        subprocess.run(["git", "clone", "--depth", "1", url, str(folder)], check=True)
    return folder


def maskbench(data):
    """Return the cases of MaskBench."""
    for path in sorted((cloned(data, MASKBENCH) / "maskbench/data").glob("*.json")):
        case = json.loads(path.read_text())
        if "schema" in case:
            yield {"id": path.stem, "schema": case["schema"], "tests": case.get("tests", [])}


def suite(data):
    """Return the cases of the test suite."""
    root = cloned(data, SUITE) / "tests"
    for draft, address in DRAFTS.items():
        for path in sorted((root / draft).glob("*.json")):
            for i, case in enumerate(json.loads(path.read_text())):
                schema = case["schema"]
                if isinstance(schema, dict):
                    schema.setdefault("$schema", address)
                yield {"id": f"{draft}/{path.stem}#{i}", "schema": schema, "tests": case["tests"]}


def answers(program, cases, n_random):
    """Return each case with the answer of the program."""
    lines = "".join(
        json.dumps({
            "schema": case["schema"],
            "tests": [json.dumps(test["data"], ensure_ascii=False) for test in case["tests"]],
            "n_random": n_random,
        }) + "\n"
        for case in cases
    )
    run = subprocess.run([program], input=lines, capture_output=True, text=True)
    # Texts may have characters that end lines for Python, but not for JSON.
    found = run.stdout.rstrip("\n").split("\n")
    if len(found) != len(cases):
        sys.exit(f"the program ended at {cases[len(found)]['id']}: {run.stderr[-500:]}")
    return zip(cases, map(json.loads, found))


def is_valid(schema, text):
    """Return True if a text is an instance of `schema` for the package `jsonschema`."""
    import jsonschema

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        value = json.loads(text)
        return kind(schema).is_valid(value)
    except json.JSONDecodeError:
        return False
    except Exception:  # A schema that the package cannot follow, such as a reference elsewhere.
        return None


def compare(name, cases, options, report):
    """Check cases, and return what was counted."""
    count = collections.Counter()
    for begin in range(0, len(cases), 500):
        for case, answer in answers(options.program, cases[begin : begin + 500], options.random):
            count["schemas"] += 1
            count["slowest, ms"] = max(count["slowest, ms"], answer["ms"])
            note = {"collection": name, "id": case["id"], "relaxed": answer.get("relaxed")}
            if "error" in answer:
                count["schemas refused"] += 1
                report({**note, "refused": answer["error"], "ms": answer["ms"]})
                continue
            for test, accepted in zip(case["tests"], answer["accepts"]):
                count["valid" if test["valid"] else "wrong"] += 1
                if accepted != test["valid"]:
                    kind = "wrong accepted" if accepted else "valid refused"
                    count[kind] += 1
                    count[f"{kind}, nothing left out"] += not answer.get("relaxed")
                    report({**note, "kind": kind, "schema": case["schema"], "data": test["data"]})
            for text in answer["texts"]:
                verdict = None if text is None else is_valid(case["schema"], text)
                count[f"random texts: {'no end' if text is None else verdict}"] += 1
                if verdict is False:
                    count["random texts wrong, nothing left out"] += not answer.get("relaxed")
                    report({**note, "kind": "random", "schema": case["schema"], "text": text})
    return count


def main():
    """Run both collections."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=pathlib.Path, help="folder of the collections")
    parser.add_argument("--random", type=int, default=1, help="random texts for each schema")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th case from the I-th on")
    parser.add_argument("--program", default=PROGRAM, help="the example schema_check")
    options = parser.parse_args()
    part, n_parts = map(int, options.part.split("/"))
    options.data.mkdir(parents=True, exist_ok=True)
    with open(options.data / "report.jsonl", "w", encoding="utf-8") as file:
        report = lambda entry: print(json.dumps(entry, ensure_ascii=False), file=file)
        for name, cases in [("MaskBench", maskbench), ("suite", suite)]:
            chosen = list(cases(options.data))[part - 1 :: n_parts]
            for what, n in sorted(compare(name, chosen, options, report).items()):
                print(f"{name}: {what}: {n}")


if __name__ == "__main__":
    main()
