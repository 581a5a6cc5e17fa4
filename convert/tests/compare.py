"""Compare GGUF files key by key and tensor by tensor.

    compare.py BACKSTITCH FOLDER [NAME...]

Each NAME.gguf in FOLDER, which `reference.py` or `lora_reference.py` made, is compared with what
`BACKSTITCH convert` makes of FOLDER/NAME (of FOLDER/NAME-lora with --lora and --base FOLDER/NAME).
OUTTYPE is the type of the matrices. It needs gguf.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

from folders import FOLDERS

# Counts of the file, and guesses that llama.cpp's converter makes from the name of the folder.
SKIPPED = ("GGUF.", "general.name", "general.basename", "general.finetune", "general.version")

# The reference forgets these keys for some architectures (GPT-NeoX, MPT).
OURS = ("general.file_type",)


def is_next(ours, theirs):
    """True if floats differ by one unit in the last place: torch's exponential of vectors may round
    the other way, depending on its version and the processor."""
    a, b = (np.frombuffer(x, np.int32).astype(np.int64) for x in (ours, theirs))
    return np.abs(a - b).max() <= 1


def contents(path):
    reader = gguf.GGUFReader(path)
    keys = {k: (v.types, v.contents()) for k, v in reader.fields.items() if not k.startswith(SKIPPED)}
    tensors = {t.name: (t.tensor_type.name, [int(n) for n in t.shape], t.data.tobytes()) for t in reader.tensors}
    return keys, tensors


def differences(ours, theirs):
    found = []
    for kind, mine, other in zip(("key", "tensor"), contents(ours), contents(theirs)):
        for name in sorted(mine.keys() | other.keys()):
            a, b = mine.get(name), other.get(name)
            if a == b or b is None and name in OURS:
                continue
            if name.endswith("ssm_a") and a and b and a[:2] == b[:2] and is_next(a[2], b[2]):
                continue
            if a is None or b is None:
                found.append(f"{kind} {name} is only in {'theirs' if a is None else 'ours'}")
            else:
                found.append(f"{kind} {name}: {str(a[:2])[:90]} is not {str(b[:2])[:90]}")
    return found


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    outtype = os.environ.get("OUTTYPE", "f16")
    same = other = 0
    names = sys.argv[3:] or sorted(path.stem for path in folder.glob("*.gguf"))
    for name in names:
        with tempfile.TemporaryDirectory() as temp:
            out = f"{temp}/out.gguf"
            command = [program, "convert", f"{folder}/{name}", out, "--outtype", outtype]
            if name.endswith("-lora"):
                command += ["--lora", "--base", str(folder / name.removesuffix("-lora"))]
            else:
                # The names that reference.py gives to vocabularies that are no real ones.
                bert = FOLDERS[name][2] == "wordpiece"
                command += ["--pre-tokenizer", "jina-v2-en" if bert else "smollm"]
            done = subprocess.run(command, capture_output=True, text=True)
            found = [done.stderr.strip()] if done.returncode else differences(out, folder / f"{name}.gguf")
        same, other = same + (not found), other + bool(found)
        for line in found:
            print(f"{name}: {line}")
    print(f"{same} equal, {other} not")
    sys.exit(other > 0)


if __name__ == "__main__":
    main()
