//! Pre-tokenisers: cutting text into words before byte pairs are merged inside each.
//!
//! Every byte-pair vocabulary was trained on words cut by one regular expression, or by a few that
//! are applied one after the other. Each cuts the pieces that the one before it left, and text that
//! no expression matches stays together as a piece. GGUF names the combination
//! (`tokenizer.ggml.pre`). There are few distinct expressions, so each is a small scanner here,
//! without a regex engine and without backtracking, in time linear in any text.
//!
//! `table.rs` has the names, `rules.rs` the expressions, `digits.rs` and `cased.rs` the longer ones
//! of them, `class.rs` the character classes, and `scripts.rs` the ranges that some expressions
//! list.

mod cased;
mod class;
mod digits;
mod rules;
mod scripts;
mod table;

use self::rules::{Rule, Step};
use self::table::TABLE;

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
    /// True if a word of line feeds that is a token as a whole is taken without merging: no merges
    /// make these tokens.
    pub(super) whole_line_feeds: bool,
    /// The form in which the tokens of the vocabulary are written.
    pub(super) writing: Writing,
    /// True if every `▁` starts a word, and every line that does not start with one gets one.
    pub(super) bars_start_words: bool,
}

/// The form in which a byte-pair vocabulary writes its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// Every byte is a character of `alphabet.rs`, and merging starts with bytes.
    Alphabet,
    /// Characters stand for themselves, and merging starts with them. Bytes of characters that are
    /// no tokens are written `<0x0A>`.
    Plain,
    /// As `Plain`, with `▁` for spaces.
    Bars,
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
            Step::Cut(end) => {
                piece(unmatched..at);
                unmatched = at;
                at = end.max(at + 1);
            }
            Step::Words { end, next } => {
                piece(unmatched..at);
                while at < end {
                    let word_end = next(text, at, end).clamp(at + 1, end);
                    piece(at..word_end);
                    at = word_end;
                }
                unmatched = end;
            }
            Step::Word(_) => break,
            Step::Between(end) => at = end.max(at + 1),
        }
    }
    piece(unmatched..text.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
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
            ("ufakzeka", "Ankara'nın 12's", &["Ankara", "'nın", " ", "1", "2", "'s"]),
            ("ufakzeka", "it'sen", &["it", "'sen"]),
            ("tekken", "McDonald's 12", &["Mc", "Donald", "'s", " ", "1", "2"]),
        ];
        for (pre, text, wanted) in cases {
            assert_eq!(words(pre, text), *wanted, "{pre}: {text:?}");
        }
    }

    /// The goldens are the answers of Python's `regex` module (`goldens/tokenizers/words.py`).
    #[test]
    fn words_are_those_of_a_regex_engine() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/tokenizers/words.txt");
        let goldens = std::fs::read_to_string(path).unwrap();
        let mut checked = std::collections::BTreeSet::new();
        for line in goldens.lines() {
            let [name, hex, lengths] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line:?}");
            };
            let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            let text = String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap();
            let found: Vec<_> = words(name, &text).iter().map(|word| word.len().to_string()).collect();
            assert_eq!(found.join(" "), lengths, "{name}: {text:?}: {:?}", words(name, &text));
            checked.insert(String::from(name));
        }
        // Three names are not llama.cpp's.
        let names = TABLE.iter().flat_map(|(names, _)| *names);
        let unchecked: Vec<_> = names.filter(|name| !checked.contains(**name)).collect();
        assert_eq!(unchecked, [&"glm5", &"deepseek-r1", &"hy_v4"]);
    }

    #[test]
    fn words_together_are_the_text() {
        let text = "The cat's 12345 km—naïve ‘quote’ e\u{301}\u{200d}中文かな가\t\r\n  ½²٣ “x”…!? \u{3000} ABCdef GHI's\n\n";
        for name in TABLE.iter().flat_map(|(names, _)| *names) {
            assert_eq!(words(name, text).concat(), text, "{name}");
            assert!(words(name, "").iter().all(|word| word.is_empty()), "{name}");
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
