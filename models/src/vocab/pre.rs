//! Pre-tokenisers: cutting text into words before byte pairs are merged inside each.
//!
//! Every byte-pair vocabulary was trained on words cut by one regular expression, or by a few that
//! are applied one after the other. Each cuts the pieces that the one before it left, and text that
//! no expression matches stays together as a piece. GGUF names the combination
//! (`tokenizer.ggml.pre`). There are few distinct expressions, so each is a small scanner here,
//! without a regex engine and without backtracking, in time linear in any text.
//!
//! `class.rs` has the character classes, `rules.rs` the expressions, and `scripts.rs` the ranges
//! that some of them list.

mod class;
mod rules;
mod scripts;

use self::rules::{Modern, Rule, Step};

/// The pre-tokeniser of a family of vocabularies, with the defaults that come with its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pre {
    /// The expressions, each applied to the pieces that the one before it left.
    rules: &'static [Rule],
    /// True if a word that is a token as a whole is taken without merging.
    pub(super) ignore_merges: bool,
    /// True if text starts with the beginning-of-sequence token when the file does not say.
    pub(super) add_bos: bool,
    /// True if spaces before punctuation are removed when tokens become text.
    pub(super) clean_spaces: bool,
}

impl Pre {
    /// Return the pre-tokeniser that GGUF calls `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
        TABLE.iter().find(|(names, _)| names.contains(&name)).map(|(_, pre)| *pre)
    }

    /// Call `word` with the words of `text`, in order. Together they are `text`.
    pub(super) fn split<'t>(&self, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        split(self.rules, text, word);
    }
}

/// Cut `text` by the first rule, and the results by the others.
fn split<'t>(rules: &[Rule], text: &'t str, word: &mut dyn FnMut(&'t str)) {
    let Some((rule, others)) = rules.split_first() else {
        return word(text);
    };
    let mut piece = |range: core::ops::Range<usize>| match text.get(range) {
        None | Some("") => {}
        Some(piece) if others.is_empty() => word(piece),
        Some(piece) => split(others, piece, word),
    };
    let (mut unmatched, mut at) = (0, 0);
    while at < text.len() {
        match rule.step(text, at) {
            Step::Word(end) if end > at => {
                piece(unmatched..at);
                piece(at..end);
                at = end;
                unmatched = end;
            }
            Step::Word(_) => break,
            Step::Between(end) => at = end.max(at + 1),
        }
    }
    piece(unmatched..text.len());
}

/// The pre-tokenisers by their names in GGUF. These are llama.cpp's (`llama-vocab.cpp`, November
/// 2026).
const TABLE: &[(&[&str], Pre)] = &[
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
            "jina-v2-es",
            "jina-v2-de",
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
        Pre { rules: &[Rule::Modern(LLAMA3)], ignore_merges: true, add_bos: true, clean_spaces: true },
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe"], Pre { rules: &[Rule::Modern(LLAMA3)], ..PLAIN }),
    (&["glm4", "glm5"], Pre { rules: &[Rule::Modern(LLAMA3)], ignore_merges: true, ..PLAIN }),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"],
        Pre { rules: &[Rule::Modern(QWEN2)], clean_spaces: false, ..PLAIN },
    ),
    (&["stablelm2", "megrez"], Pre { rules: &[Rule::Modern(QWEN2)], ..PLAIN }),
    (&["qwen35"], Pre { rules: &[Rule::Modern(QWEN35)], clean_spaces: false, ..PLAIN }),
    (
        &["smollm", "command-r"],
        Pre { rules: &[Rule::Numbers { most: 1 }, Rule::Gpt2], clean_spaces: false, ..PLAIN },
    ),
    (
        &["starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        Pre { rules: &[Rule::Numbers { most: 1 }, Rule::Gpt2], ..PLAIN },
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
    (&["falcon"], Pre { rules: &[Rule::AsciiSigns { grave: true }, Rule::Gpt2, Rule::Triples], ..PLAIN }),
    (&["bloom", "gpt3-finnish"], Pre { rules: &[Rule::Bloom], ..PLAIN }),
    (&["poro-chat"], Pre { rules: &[Rule::Bloom], clean_spaces: false, ..PLAIN }),
    (&["viking"], Pre { rules: &[Rule::Bloom, Rule::Numbers { most: 1 }], clean_spaces: false, ..PLAIN }),
    (
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        Pre { rules: &[Rule::Cased { contractions: true, digits: 3 }], clean_spaces: false, ..PLAIN },
    ),
    (
        &["tekken"],
        Pre {
            rules: &[Rule::Cased { contractions: false, digits: 1 }],
            ignore_merges: true,
            add_bos: true,
            clean_spaces: false,
        },
    ),
];

const PLAIN: Pre = Pre { rules: &[], ignore_merges: false, add_bos: false, clean_spaces: true };
const LLAMA3: Modern = Modern { marks_in_words: false, digits: 3 };
const QWEN2: Modern = Modern { marks_in_words: false, digits: 1 };
const QWEN35: Modern = Modern { marks_in_words: true, digits: 1 };

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn words<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        Pre::named(pre).into_iter().for_each(|pre| pre.split(text, &mut |word| words.push(word)));
        words
    }

    /// The rules of each family for contractions, numbers, spaces, signs, marks and scripts.
    #[test]
    fn words_are_those_of_the_published_expressions() {
        let cases: &[(&str, &str, &[&str])] = &[
            (
                "gpt-2",
                "I'll don't 'S  1234\n\n x",
                &["I", "'ll", " don", "'t", " '", "S", " ", " 1234", "\n\n", " x"],
            ),
            ("gpt-2", "a  ", &["a", "  "]),
            ("gpt-2", " ?!é ½x", &[" ?!", "é", " ½", "x"]),
            ("gpt-2", "e\u{301}a", &["e", "\u{301}", "a"]),
            ("smollm", "a 12b", &["a", " ", "1", "2", "b"]),
            (
                "llama-bpe",
                "I'LL go\r\n  12345 (x) \n  y",
                &["I", "'LL", " go", "\r\n", " ", " ", "123", "45", " (", "x", ")", " \n", " ", " y"],
            ),
            ("llama-bpe", "$x ==\n\nz", &["$x", " ==\n\n", "z"]),
            ("qwen2", "a123 b", &["a", "1", "2", "3", " b"]),
            ("qwen2", "ke\u{301}a", &["ke", "\u{301}a"]),
            ("qwen35", "ke\u{301}a \u{301}", &["ke\u{301}a", " \u{301}"]),
            (
                "deepseek-v3",
                "a1234中文か!x ok?!\n\n .b",
                &["a", "123", "4", "中文か", "!x", " ok", "?!\n\n", " .", "b"],
            ),
            ("deepseek-v3", "\u{200d}\u{200d}1", &["\u{200d}\u{200d}", "1"]),
            (
                "deepseek-llm",
                "Hi there!! 中文 12  \n x  ",
                &["Hi", " there", "!!", " ", "中文", " ", "12", "  ", "\n", " x", "  "],
            ),
            ("deepseek-llm", "   中", &["   ", "中"]),
            ("deepseek-coder", "ab, c中12", &["ab", ",", " c", "中", "1", "2"]),
            ("falcon", "a,b 1234`", &["a", ",", "b", " ", "123", "4", "`"]),
            ("default", "a+b 12345", &["a", "+", "b", " ", "123", "45"]),
            ("bloom", "Hi (you), ok. 1|2", &["Hi", " (", "you", "),", " ok", ".", " 1", "|", "2"]),
            (
                "gpt-4o",
                "HTTPServer'S école ÉCOLE a/\n1234",
                &["HTTPServer'S", " école", " ÉCOLE", " a", "/\n", "123", "4"],
            ),
            ("gpt-4o", "中ABC", &["中", "ABC"]),
            ("tekken", "McDonald's 12", &["Mc", "Donald", "'s", " ", "1", "2"]),
        ];
        for (pre, text, wanted) in cases {
            assert_eq!(words(pre, text), *wanted, "{pre}: {text:?}");
        }
    }

    #[test]
    fn words_together_are_the_text() {
        let text = "The cat's 12345 km—naïve ‘quote’ e\u{301}\u{200d}中文かな가\t\r\n  ½²٣ “x”…!? \u{3000} ABCdef GHI's\n\n";
        for (names, _) in TABLE {
            for name in *names {
                assert_eq!(words(name, text).concat(), text, "{name}");
                assert!(words(name, "").iter().all(|word| word.is_empty()), "{name}");
            }
        }
    }

    #[test]
    fn unknown_names_are_unknown() {
        assert!(Pre::named("gpt-3").is_none());
        assert!(Pre::named("").is_none());
    }

    /// Quadratic behaviour would take minutes here.
    #[test]
    fn long_runs_of_anything_take_linear_time() {
        for unit in
            ["a", " ", "\n", "\u{301}", "A", "中A", "'", "1", "\u{200d}", "\u{3000}", " (", "é ", "a\u{301}"]
        {
            let text = unit.repeat(300_000) + "x";
            for (names, pre) in TABLE {
                let mut total = 0;
                pre.split(&text, &mut |word| total += word.len());
                assert_eq!(total, text.len(), "{unit:?} {names:?}");
            }
        }
    }

    /// A word may depend on the text behind it only by the characters that its expression looks at.
    #[test]
    fn pieces_are_never_empty() {
        let text: String = ('\0'..='\u{2fff}').step_by(7).flat_map(|c| [c, ' ', 'a', '\'']).collect();
        for (names, _) in TABLE {
            assert!(
                words(names.first().unwrap_or(&""), &text).iter().all(|word| !word.is_empty()),
                "{names:?}"
            );
        }
    }
}
