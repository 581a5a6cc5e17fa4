"""Write `words.txt`: how regular expressions cut texts into words, for each pre-tokeniser.

    words.py LLAMA_CPP_TREE [TEXTS [SEED]] > words.txt

The expressions are those of `llama-vocab.cpp`, run by Python's `regex` module. Where llama.cpp
approximates an expression and names the model's own in a comment, the own one is run. A line is
the name of the pre-tokeniser, the text in hexadecimal UTF-8, and the lengths of its words in
bytes, divided by tabs.
"""

import random
import re
import sys

import regex

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]"
REST = r"|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[%s]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(contraction, digits, closing, without=""):
    """Return the expression that divides words by case."""
    upper, lower, lead = UPPER % without, LOWER % without, r"[^\r\n\p{L}\p{N}]?"
    first = f"{lead}{upper}*{lower}+{contraction}|{lead}{upper}+{lower}*{contraction}"
    return first + REST % (digits, closing)


GPT4O = cased(CONTRACTION + "?", 3, r"\r\n/")
OWN = {
    "GPT4O": [GPT4O],
    "MINIMAX_M2": [GPT4O],
    "GRANITE_EMB_MULTI": [GPT4O],
    "TEKKEN": [cased("", 1, r"\r\n/")],
    "KIMI_K2": [r"[\p{Han}]+|" + cased(CONTRACTION + "?", 3, r"\r\n", r"&&[^\p{Han}]")],
    "BAILINGMOE": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
}
# Groups of three from the right, for which llama.cpp has code instead of an expression.
AFMOE_DIGITS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"


def unescape(literal):
    """Return the text of a C++ string literal."""
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r", "t": "\t"}.get(m[1], m[1]), literal)


def expressions(source):
    """Return the expressions of each constant of the enumeration."""
    body = source[source.index("llm_tokenizer_bpe(const llama_vocab & vocab)") :]
    body = body[: body.index("std::vector<std::string> regex_exprs;")]
    found, constants, literals = {}, [], []
    for line in map(str.strip, body.split("\n")):
        if case := re.match(r"case LLAMA_VOCAB_PRE_TYPE_(\w+):|(default):", line):
            constants.append(case[1] or "DEFAULT")
        elif literal := re.match(r'"((?:[^"\\]|\\.)*)"', line):
            literals.append(unescape(literal[1]))
        elif line == "break;":
            found.update((constant, literals) for constant in constants)
            constants, literals = [], []
    return found


def names(source):
    """Return the constant of each name."""
    load = source[source.index("// for now, only BPE models have pre-tokenizers") :]
    load = load[: load.index('"unknown pre-tokenizer type')]
    found, waiting = {}, []
    for line in load.split("\n"):
        waiting += re.findall(r'tokenizer_pre == "([^"]+)"', line)
        if constant := re.search(r"pre_type = LLAMA_VOCAB_PRE_TYPE_(\w+);", line):
            found.update((name, constant[1]) for name in waiting)
            waiting = []
    return found


def cut(expression, pieces):
    """Cut each piece at the matches of an expression and between them."""
    for piece in pieces:
        at = 0
        for match in expression.finditer(piece):
            if match.start() > at:
                yield piece[at : match.start()]
            if match.end() > match.start():
                yield match[0]
            at = match.end()
        if at < len(piece):
            yield piece[at:]


WORDS = """Hello world I'll you're DON'T it'S we'VE 'd 's x' HTTPServer McDonald École élan ÀB ß ǅ ʰ Straße
Привет мир Ελλάς שלום مرحبا नमस्ते ไทยแลนด์ ລາວ ខ្មែរ မြန်မာ 中文字符 日本語テキスト ひらがな 한국어 ㄅㄆㄇ ㄱㄴ 々〇〡 豈更 e\u0301a a\u0301\u0302b
\u0301 \u200d 👩‍👩‍👧 🇩🇪 😀 ½ ² Ⅷ ٣٤٥ १२३४ 1 12 123 1234 12345 1234567 3.14 1,000,000 0x1F a1b22c333 12ab _12 12_ ²12 12² ()[]{} ... !? -- $x
#tag @user /path/to //a\\b “quote” ‘q’ …—：；，。、！～ ¡¿ <sentinel:12> <sentinel:> IMGIMGABZ IMGIMGABCDEZ <|x|> <s> | (a|b) ␣ ▁ \ue000 \u00ad
'sS 'LL 'Ll 'M '' ' `x` ~~ ^^ ++ == <> \x00 \x07 \x7f \x85 \u2028 \u3000 \u00a0 \u2009""".split(" ")
WORDS = [part for word in WORDS for part in word.split("\n")]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n ", "\u3000", "\u00a0", "\x0b", "", "", ""]


def text(rng):
    """Return a random text."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        if rng.random() < 0.15:
            parts.append("".join(chr(rng.choice(RANDOM)) for _ in range(rng.randint(1, 4))))
        elif rng.random() < 0.05:
            parts.append(rng.choice([" ", "1", "a", "A", "\n", "中"]) * rng.randint(3, 40))
        else:
            parts.append(rng.choice(WORDS))
        parts.append(rng.choice(SPACES))
    return "".join(parts)


RANDOM = [*range(0x20, 0x7F), *range(0xA0, 0x250), *range(0x370, 0x400), *range(0x5D0, 0x5EA)]
RANDOM += [*range(0x900, 0x939), *range(0x3041, 0x3096), *range(0x4E00, 0x4E20), *range(0xAC00, 0xAC20)]
RANDOM = [c for c in RANDOM if chr(c).isprintable()]


def main():
    with open(sys.argv[1] + "/src/llama-vocab.cpp", encoding="utf-8") as file:
        source = file.read()
    n_texts = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    found, by_constant = expressions(source), names(source)
    by_constant.setdefault("default", "DEFAULT")
    for name, constant in sorted(by_constant.items()):
        own = OWN.get(constant, found.get(constant))
        own = [AFMOE_DIGITS if one == r"\p{AFMoE_digits}" else one for one in own]
        compiled = [regex.compile(one, regex.V1) for one in own]
        for _ in range(n_texts):
            whole = text(rng)
            pieces = [whole]
            for expression in compiled:
                pieces = cut(expression, pieces)
            lengths = " ".join(str(len(piece.encode())) for piece in pieces)
            print(name, whole.encode().hex(), lengths, sep="\t")


main()
