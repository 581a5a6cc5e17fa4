"""Make tiny LoRA adapters and what llama.cpp's converter makes of them.

    lora_reference.py LLAMA_CPP FOLDER [NAME...]

For each name of `folders.py`: FOLDER/NAME is the folder of the base model without its weights,
FOLDER/NAME-lora is the adapter, FOLDER/NAME-lora.gguf the reference's file. It needs torch,
transformers, sentencepiece and safetensors. `compare.py` compares files.
"""

import json
import os
import runpy
import sys
from pathlib import Path

from safetensors.numpy import save_file

from folders import FOLDERS
from reference import fill, write_vocabulary

RANK, ALPHA = 4, 6

# Matrices that PEFT trains: projections, not norms, routers, convolutions or vectors.
LEFT_OUT = ("norm", "conv", "ln_", "emb", "wte", "wpe", "time_maa", "shared.weight", "relative",
            "gate.weight", "router", "shared_expert_gate", "patch_embed", "position", "token_type")


def is_trained(name, shape):
    return len(shape) == 2 and name.endswith(".weight") and not any(part in name for part in LEFT_OUT)


def make_adapter(folder, tensors, kind):
    """Write an adapter for all matrices of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, (rows, columns) in [(n, s) for n, s in tensors.items() if is_trained(n, s)]:
        module = "base_model.model." + name.removesuffix(".weight")
        a, b = f"{module}.lora_A.weight", f"{module}.lora_B.weight"
        found |= {a: fill(a, (RANK, columns), kind), b: fill(b, (rows, RANK), kind)}
    embeddings = [name for name in tensors if name.endswith("embed_tokens.weight")]
    for name in embeddings:
        module = "base_model.model." + name.removesuffix(".weight")
        a, b = f"{module}.lora_embedding_A", f"{module}.lora_embedding_B"
        rows, columns = tensors[name]
        found |= {a: fill(a, (RANK, rows), kind), b: fill(b, (columns, RANK), kind)}
    save_file(found, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", r=RANK, lora_alpha=ALPHA, bias="none", fan_in_fan_out=False,
                  modules_to_save=None, use_dora=False, use_rslora=False, base_model_name_or_path="base")
    (folder / "adapter_config.json").write_text(json.dumps(config))


def reference(llama_cpp, base, adapter, out, outtype):
    """Run llama.cpp's converter of adapters, with config.json as it is."""
    import conversion.base as b

    def raw(*_args, **_kwargs):
        raise RuntimeError("config.json as it is")

    b.AutoConfig.from_pretrained = raw
    sys.argv = ["convert_lora_to_gguf.py", "--base", str(base), "--outfile", str(out), "--outtype", outtype, str(adapter)]
    runpy.run_path(str(Path(llama_cpp) / "convert_lora_to_gguf.py"), run_name="__main__")


def main():
    llama_cpp, target = sys.argv[1], Path(sys.argv[2])
    sys.path.insert(0, llama_cpp)
    outtype, kind = os.environ.get("OUTTYPE", "f32"), os.environ.get("KIND", "float32")
    import transformers  # noqa: F401 (once, for all that are forked)
    import conversion.base  # noqa: F401
    for name in sys.argv[3:] or FOLDERS:
        config, tensors, vocabulary = FOLDERS[name]
        base, adapter = target / name, target / f"{name}-lora"
        base.mkdir(parents=True, exist_ok=True)
        (base / "config.json").write_text(json.dumps(config))
        write_vocabulary(base, vocabulary)
        make_adapter(adapter, tensors, kind)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                reference(llama_cpp, base, adapter, target / f"{name}-lora.gguf", outtype)
                code = 0
            except BaseException as error:
                print("REFERENCE FAILED", name, type(error).__name__, str(error)[:200], flush=True)
            os._exit(code)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
