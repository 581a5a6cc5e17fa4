//! The pre-tokenisers by their names in GGUF.

use super::cased::Cased;
use super::rules::{Modern, Rule};
use super::{Pre, Writing};

/// The pre-tokenisers by their names in GGUF. These are llama.cpp's (`llama-vocab.cpp`, November
/// 2026). Where that approximates an expression of the model's own tokeniser, which it names in a
/// comment, the model's own counts.
pub(super) const TABLE: &[(&[&str], Pre)] = &[
    (
        &["default"],
        Pre {
            rules: &[
                Rule::AsciiSigns { grave: false },
                Rule::Gpt2,
                Rule::Numbers { most: usize::MAX },
                Rule::Triples,
            ],
            ..PLAIN
        },
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-code",
            "jina-v2-es",
            "jina-v2-de",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
        ],
        Pre { rules: &[Rule::Gpt2], ..PLAIN },
    ),
    (&["trillion", "granite-docling"], Pre { rules: &[Rule::Gpt2], clean_spaces: false, ..PLAIN }),
    (
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        Pre { rules: &[Rule::Modern(LLAMA3)], ignore_merges: true, add_bos: true, ..PLAIN },
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe"], Pre { rules: &[Rule::Modern(LLAMA3)], ..PLAIN }),
    (&["glm4", "glm5"], Pre { rules: &[Rule::Modern(LLAMA3)], ignore_merges: true, ..PLAIN }),
    (&["jais-2"], Pre { rules: &[Rule::Modern(JAIS2)], ..PLAIN }),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
        ],
        Pre { rules: &[Rule::Modern(QWEN2)], clean_spaces: false, ..PLAIN },
    ),
    (&["stablelm2", "megrez"], Pre { rules: &[Rule::Modern(QWEN2)], ..PLAIN }),
    (&["laguna"], Pre { rules: &[Rule::Lines, Rule::Modern(QWEN2)], clean_spaces: false, ..PLAIN }),
    (&["qwen35"], Pre { rules: &[Rule::Modern(QWEN35)], clean_spaces: false, ..PLAIN }),
    (&["ufakzeka"], Pre { rules: &[Rule::Modern(UFAKZEKA)], clean_spaces: false, ..PLAIN }),
    (&["seed-coder"], Pre { rules: &[Rule::Modern(SEED_CODER)], clean_spaces: false, ..PLAIN }),
    (
        &["minicpm5"],
        Pre { rules: &[Rule::Numbers { most: 3 }, Rule::Modern(MINICPM5)], ignore_merges: true, ..PLAIN },
    ),
    (&["exaone-moe"], Pre { rules: &[Rule::ExaoneMoe], ..PLAIN }),
    (
        &["smollm", "command-r"],
        Pre { rules: &[Rule::Numbers { most: 1 }, Rule::Gpt2], clean_spaces: false, ..PLAIN },
    ),
    (
        &["starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        Pre { rules: &[Rule::Numbers { most: 1 }, Rule::Gpt2], ..PLAIN },
    ),
    (
        &["chameleon"],
        Pre {
            rules: &[
                Rule::Sentinel,
                Rule::ImageToken,
                Rule::TabsAndPairs,
                Rule::Numbers { most: 1 },
                Rule::LoneSign,
                Rule::Gpt2,
            ],
            add_bos: true,
            clean_spaces: false,
            ..PLAIN
        },
    ),
    (
        &["deepseek-llm"],
        Pre {
            rules: &[
                Rule::LineEnds,
                Rule::SpacedCased,
                Rule::SpacedFullWidth,
                Rule::TrailingSpace,
                Rule::EastAsian,
                Rule::Numbers { most: usize::MAX },
            ],
            clean_spaces: false,
            ..PLAIN
        },
    ),
    (
        &["deepseek-coder"],
        Pre {
            rules: &[
                Rule::LineEnds,
                Rule::SpacedLetters,
                Rule::SpacedPunct,
                Rule::EastAsian,
                Rule::Numbers { most: 1 },
            ],
            clean_spaces: false,
            ..PLAIN
        },
    ),
    (
        &["deepseek-v3", "deepseek-r1", "hunyuan-dense", "joyai-llm", "hy_v4"],
        Pre {
            rules: &[Rule::Numbers { most: 3 }, Rule::HanKana, Rule::DeepSeek3],
            clean_spaces: false,
            ..PLAIN
        },
    ),
    (
        &["afmoe"],
        Pre { rules: &[Rule::NumbersFromRight, Rule::Asian, Rule::DeepSeek3], clean_spaces: false, ..PLAIN },
    ),
    (&["falcon"], Pre { rules: &[Rule::AsciiSigns { grave: true }, Rule::Gpt2, Rule::Triples], ..PLAIN }),
    (&["bloom", "gpt3-finnish"], Pre { rules: &[Rule::Bloom], ..PLAIN }),
    (&["poro-chat"], Pre { rules: &[Rule::Bloom], clean_spaces: false, ..PLAIN }),
    (&["viking"], Pre { rules: &[Rule::Bloom, Rule::Numbers { most: 1 }], clean_spaces: false, ..PLAIN }),
    (
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        Pre { rules: &[Rule::Cased(GPT4O)], clean_spaces: false, ..PLAIN },
    ),
    (
        &["granite-embed-multi-97m"],
        Pre { rules: &[Rule::Cased(GPT4O)], ignore_merges: true, clean_spaces: false, ..PLAIN },
    ),
    (
        &["tiny_aya", "cohere2moe"],
        Pre { rules: &[Rule::DigitsBeforeEnd, Rule::Cased(GPT4O)], clean_spaces: false, ..PLAIN },
    ),
    (
        &["youtu"],
        Pre {
            rules: &[Rule::AsianRuns, Rule::Cased(YOUTU)],
            ignore_merges: true,
            clean_spaces: false,
            ..PLAIN
        },
    ),
    (&["kimi-k2"], Pre { rules: &[Rule::Cased(KIMI_K2)], clean_spaces: false, ..PLAIN }),
    (
        &["tekken"],
        Pre {
            rules: &[Rule::Cased(TEKKEN)],
            ignore_merges: true,
            add_bos: true,
            clean_spaces: false,
            ..PLAIN
        },
    ),
    (
        &["superbpe"],
        Pre { rules: &[Rule::Numbers { most: usize::MAX }, Rule::DigitGroups], clean_spaces: false, ..PLAIN },
    ),
    (
        &["gemma4", "granite-embed-multi-311m"],
        Pre { rules: &[Rule::Lines], add_bos: true, whole_line_feeds: true, writing: Writing::Bars, ..PLAIN },
    ),
    (
        &["mmbert"],
        Pre {
            rules: &[Rule::Lines],
            whole_line_feeds: true,
            writing: Writing::Bars,
            bars_start_words: true,
            ..PLAIN
        },
    ),
    (&["sarvam-moe"], Pre { rules: &[Rule::Lines], clean_spaces: false, writing: Writing::Bars, ..PLAIN }),
    (&["whitespace"], Pre { rules: &[Rule::NotSpace], writing: Writing::Plain, ..PLAIN }),
];

const PLAIN: Pre = Pre {
    rules: &[],
    ignore_merges: false,
    add_bos: false,
    clean_spaces: true,
    whole_line_feeds: false,
    writing: Writing::Alphabet,
    bars_start_words: false,
};

const LLAMA3: Modern =
    Modern { contractions: true, marks_in_words: false, digits: 3, closing: "\r\n", space_by_powers: false };
const JAIS2: Modern = Modern { space_by_powers: true, ..LLAMA3 };
const QWEN2: Modern = Modern { digits: 1, ..LLAMA3 };
const QWEN35: Modern = Modern { marks_in_words: true, ..QWEN2 };
const UFAKZEKA: Modern = Modern { contractions: false, ..QWEN2 };
const SEED_CODER: Modern = Modern { closing: "", ..QWEN2 };
const MINICPM5: Modern = Modern { digits: usize::MAX, ..LLAMA3 };

const GPT4O: Cased = Cased { contractions: true, digits: 3, closing: "\r\n/", han_apart: false };
const YOUTU: Cased = Cased { digits: 1, ..GPT4O };
const KIMI_K2: Cased = Cased { closing: "\r\n", han_apart: true, ..GPT4O };
const TEKKEN: Cased = Cased { contractions: false, digits: 1, ..GPT4O };
