"""Make tiny folders and what llama.cpp's converter makes of them.

    reference.py LLAMA_CPP FOLDER [NAME...]

For each name of `folders.py`: FOLDER/NAME is the folder, FOLDER/NAME.gguf the reference's file. It
needs torch, transformers, sentencepiece and safetensors.
"""

import json
import os
import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from folders import FOLDERS, V


def fill(name, shape, kind):
    """Values that every type of 16 bits holds exactly; bytes of blocks in all combinations."""
    n = int(np.prod(shape))
    seed = zlib.crc32(name.encode())
    bits = (np.arange(n, dtype=np.uint64) * 2654435761 + seed) >> 7
    if name.endswith(("_blocks", "_scales")):
        # 255 is no scale.
        return (bits % 255).astype(np.uint8).reshape(shape)
    values = ((bits & 0xFF).astype(np.float32) - 128) / 64
    return values.astype(kind).reshape(shape)


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def special(i, text):
    return dict(id=i, content=text, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False)


def bpe(glm=False):
    alphabet = byte_alphabet()
    texts = ["<unk>", "<s>", "</s>"] + list(alphabet.values())
    merges = [f"{a} {b}" for a, b in zip("hello worl", "ello world")][:9]
    merges = [m for m in merges if "  " not in m and " " in m and len(m) == 3]
    texts += [m.replace(" ", "") for m in merges]
    names = ["<|endoftext|>", "<|user|>"] if glm else ["<|im_end|>", "<x>"]
    added = [special(i, texts[i]) for i in range(3)] + [special(len(texts) + i, n) for i, n in enumerate(names)]
    added[-1]["special"] = glm
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                pre_tokenizer=dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)]),
                post_processor=dict(type="TemplateProcessing", single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                    pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], special_tokens={"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}),
                decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, vocab={t: i for i, t in enumerate(dict.fromkeys(texts))}, merges=merges))


def fallback():
    texts = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581", "a", "b", "ab"]
    added = [special(i, texts[i]) for i in range(3)] + [special(len(texts), "<|x|>")]
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=dict(type="Replace", pattern=dict(String=" "), content="\u2581"), pre_tokenizer=None, post_processor=None,
                decoder=dict(type="Sequence", decoders=[dict(type="ByteFallback")]),
                model=dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=True, byte_fallback=True, vocab={t: i for i, t in enumerate(texts)}, merges=["a b"]))


def wordpiece():
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "word", "##s"]
    roles = {"[CLS]": 2, "[SEP]": 3}
    token = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    seq = lambda t, i: {"Sequence": {"id": t, "type_id": i}}
    return dict(version="1.0", truncation=None, padding=None, added_tokens=[special(i, texts[i]) for i in range(5)],
                normalizer=dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True), pre_tokenizer=dict(type="BertPreTokenizer"),
                post_processor=dict(type="TemplateProcessing", single=[token("[CLS]"), seq("A", 0), token("[SEP]")], pair=[token("[CLS]"), seq("A", 0), token("[SEP]"), seq("B", 1), token("[SEP]")],
                                    special_tokens={t: {"id": t, "ids": [i], "tokens": [t]} for t, i in roles.items()}),
                decoder=dict(type="WordPiece", prefix="##", cleanup=True), model=dict(type="WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100, vocab={t: i for i, t in enumerate(texts)}))


def sentencepiece(kind):
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    m.trainer_spec.model_type = kind
    m.trainer_spec.byte_fallback = kind == 2
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.remove_extra_whitespaces = False
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{b:02X}>", 0.0, 6) for b in range(256)] if kind == 2 else []
    pieces += [(t, -float(i), 1) for i, t in enumerate(["\u2581", "a", "b", "ab", "\u2581ab"])] + [("user", -7.0, 4)]
    for text, score, t in pieces:
        p = m.pieces.add()
        p.piece, p.score, p.type = text, score, t
    return m.SerializeToString()


def write_vocabulary(folder, kind):
    """Write the files of a tokenizer."""
    def dump(name, value):
        (folder / name).write_text(json.dumps(value, ensure_ascii=False))
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True, chat_template="{{ messages }}")
    if kind in ("bpe", "glm"):
        dump("tokenizer.json", bpe(kind == "glm"))
    elif kind == "fallback":
        dump("tokenizer.json", fallback())
    elif kind == "wordpiece":
        dump("tokenizer.json", wordpiece())
        config = dict(tokenizer_class="BertTokenizer", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]", do_lower_case=True)
    elif kind in ("spm", "unigram"):
        name = "tokenizer.model" if kind == "spm" else "spiece.model"
        (folder / name).write_bytes(sentencepiece(2 if kind == "spm" else 1))
        config |= dict(tokenizer_class="LlamaTokenizer", added_tokens_decoder={"300": dict(content="<pad>", special=False), "301": dict(content="\u2581x", special=False)})
    elif kind == "rwkv":
        (folder / "rwkv_vocab_v20230424.txt").write_text("".join(f"{i + 1} {repr(bytes([i]) if i > 127 else chr(i))} 1\n" for i in range(256)) + f"257 {'é'!r} 2\n258 \"it's\" 4\n")
    elif kind == "plamo":
        lines = [["<|plamo:unk|>", 0.0, "UNKNOWN"], ["<|plamo:bos|>", 0.0, "CONTROL"], ["<|plamo:eos|>", 0.0, "CONTROL"], ["<0x00>", 0.0, "BYTE"], ["<|plamo:op|>", 0.0, "NORMAL"], ["a", -1.5, "NORMAL"]]
        (folder / "tokenizer.jsonl").write_text("\n".join(json.dumps(x) for x in lines))
        config = dict(bos_token="<|plamo:bos|>", eos_token="<|plamo:eos|>", unk_token="<|plamo:unk|>")
    dump("tokenizer_config.json", config)


def make_folder(folder, name, kind):
    """Write a folder with weights of one type."""
    config, tensors, vocabulary = FOLDERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(dict(temperature=0.5, top_k=20, top_p=0.5)))
    save_file({n: fill(n, s, kind) for n, s in tensors.items()}, folder / "model.safetensors")
    write_vocabulary(folder, vocabulary)


def reference(folder, out, outtype):
    """Run llama.cpp's converter on a folder, with config.json as it is."""
    import torch
    import conversion.base as b
    from conversion import get_model_class
    import gguf

    def raw(*_args, **_kwargs):
        raise RuntimeError("config.json as it is")

    b.AutoConfig.from_pretrained = raw
    bert = FOLDERS[folder.name][2] == "wordpiece"
    b.TextModel.get_vocab_base_pre = lambda _self, _tokenizer: "jina-v2-en" if bert else "smollm"
    kinds = dict(f32=gguf.LlamaFileType.ALL_F32, f16=gguf.LlamaFileType.MOSTLY_F16, bf16=gguf.LlamaFileType.MOSTLY_BF16, q8_0=gguf.LlamaFileType.MOSTLY_Q8_0, auto=gguf.LlamaFileType.GUESSED)
    with torch.inference_mode():
        hparams = b.ModelBase.load_hparams(folder, False)
        cls = get_model_class(b.get_model_architecture(hparams, b.ModelType.TEXT))
        cls(folder, kinds[outtype], out).write()


def main():
    sys.path.insert(0, sys.argv[1])
    target = Path(sys.argv[2])
    outtype = os.environ.get("OUTTYPE", "f16")
    kind = os.environ.get("KIND", "float32")
    import transformers  # noqa: F401 (once, for all that are forked)
    import conversion.base  # noqa: F401
    for name in sys.argv[3:] or FOLDERS:
        make_folder(target / name, name, kind)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                reference(target / name, target / f"{name}.gguf", outtype)
                code = 0
            except BaseException as error:
                import traceback
                traceback.print_exc(limit=-3)
                print("REFERENCE FAILED", name, type(error).__name__, str(error)[:300], flush=True)
            os._exit(code)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
