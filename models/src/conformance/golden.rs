//! The text form of a golden file: the steps to run on a model, and the location of the expected
//! numbers.
//!
//! The file consists of lines of words. The head (`golden-1`, `model PATH`, `array NAME OFFSET ROWS
//! COLS`, …) is followed by cases. Each extends from `case NAME` to `end`, with one context and its
//! steps in between. Arrays are little-endian f32, row-major, in a file beside this one; offsets
//! are in bytes.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::str::{FromStr, SplitWhitespace};

/// A golden file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Golden {
    /// The model's file, relative to the folder of the whole set.
    pub model: String,
    /// The quantisation format of the model's matrices, if the file is about one.
    pub quant_type: Option<String>,
    /// The tables of expected numbers.
    pub arrays: Vec<Array>,
    /// The cases, each run on a fresh context.
    pub cases: Vec<Case>,
}

/// A table of expected numbers, `[rows, cols]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The name.
    pub name: String,
    /// The byte offset of the first number.
    pub offset: usize,
    /// The number of rows.
    pub rows: usize,
    /// The length of a row.
    pub cols: usize,
}

/// Steps on one context.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Case {
    /// The name.
    pub name: String,
    /// `k=v` words: sizes, types and switches of the context.
    pub context: Vec<(String, String)>,
    /// Flags: `informational` (not a requirement), `llama_inconsistent`.
    pub flags: Vec<String>,
    /// State files of llama.cpp that belong to the case, as (kind, path).
    pub files: Vec<(String, String)>,
    /// LoRA adapters of all sequences: their files and scales.
    pub loras: Vec<(String, f32)>,
    /// Control vectors of all sequences.
    pub controls: Vec<Control>,
    /// The number of steps before those files were written.
    pub n_saved: usize,
    /// The sequence in a file of one sequence.
    pub saved_sequence: u32,
    /// The best token after each of the last outputs.
    pub greedy_ids: Vec<u32>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A control vector, and where it acts.
#[derive(Debug, Clone, PartialEq)]
pub struct Control {
    /// The path.
    pub file: String,
    /// The scale.
    pub scale: f32,
    /// The layers behind which it is added.
    pub layers: RangeInclusive<usize>,
}

/// One operation on a context; -1 is an open end of a range of positions.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Evaluate a batch.
    Decode(Batch),
    /// Run the encoder on a batch.
    Encode(Batch),
    /// Remove positions `p0..p1` of `seq`.
    SeqRm {
        /// The sequence.
        seq: u32,
        /// The first position.
        p0: i32,
        /// The position behind the last.
        p1: i32,
        /// True if the reference could do it; otherwise its state has not changed.
        ok: bool,
    },
    /// Copy positions `p0..p1` of `src` to `dst`.
    SeqCp {
        /// The source sequence.
        src: u32,
        /// The destination sequence.
        dst: u32,
        /// The first position.
        p0: i32,
        /// The position behind the last.
        p1: i32,
    },
    /// Move positions `p0..p1` of `seq` by `delta`.
    SeqAdd {
        /// The sequence.
        seq: u32,
        /// The first position.
        p0: i32,
        /// The position behind the last.
        p1: i32,
        /// The distance.
        delta: i32,
    },
    /// Expect these first and last positions; -1 if the sequence is empty.
    SeqPos {
        /// The sequence.
        seq: u32,
        /// The first position.
        min: i32,
        /// The last position.
        max: i32,
    },
}

/// Tokens to evaluate, with one entry per token in `tokens`, `pos` and `seq`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The number of tokens that the file announces.
    pub n: usize,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Their positions.
    pub pos: Vec<i32>,
    /// Their sequences.
    pub seq: Vec<u32>,
    /// The indices of the tokens with an output, ascending.
    pub out: Vec<usize>,
    /// The expected outputs.
    pub expect: Option<Expect>,
}

/// The expected outputs of a batch: output `i` is row `row + i` of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Expect {
    /// The kind of output.
    pub kind: Kind,
    /// The name of the array.
    pub array: String,
    /// The first row.
    pub row: usize,
}

/// The kind of a model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The scores of the next token.
    Logits,
    /// The last hidden state of each token.
    Embeddings,
    /// One vector per sequence.
    Pooled,
}

/// A line that does not follow the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: wanted {wanted}")]
pub struct Malformed {
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// The words that the format asks for.
    pub wanted: &'static str,
}

impl Golden {
    /// Parse a whole file.
    ///
    /// # Errors
    /// [`Malformed`] for the first line that does not follow the format.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut golden = Self::default();
        let mut open = None;
        let mut lines = text.lines().zip(1..);
        if lines.next().map(|(first, _)| first.trim_end()) != Some("golden-1") {
            return Err(Malformed { line: 1, wanted: "\"golden-1\"" });
        }
        for (text, line) in lines {
            let mut words = text.split_whitespace();
            if let Some(first) = words.next() {
                golden.line(first, &mut Words { words, line }, &mut open)?;
            }
        }
        match open {
            None => Ok(golden),
            Some(_) => Err(Malformed { line: 0, wanted: "\"end\" after the last case" }),
        }
    }

    /// Return the array of this name.
    pub fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.iter().find(|array| array.name == name)
    }

    /// Parse a line of the head, or of the open case.
    fn line(&mut self, first: &str, words: &mut Words, open: &mut Option<Case>) -> Result<(), Malformed> {
        match (first, open.as_mut()) {
            ("end", Some(_)) => self.cases.extend(open.take()),
            (_, Some(case)) => case.line(first, words)?,
            ("case", None) => {
                *open = Some(Case { name: words.word("a name")?.to_owned(), ..Case::default() })
            }
            ("model", None) => self.model = words.word("a path")?.to_owned(),
            ("quant_type", None) => self.quant_type = Some(words.word("a format")?.to_owned()),
            ("array", None) => self.arrays.push(words.array()?),
            ("arch" | "kind" | "family", None) => {}
            _ => return Err(words.error("a known word")),
        }
        Ok(())
    }
}

impl Case {
    /// Return the value of a word of the context line.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.context.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Return true if the case has this flag.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// Parse a line of a case.
    fn line(&mut self, first: &str, words: &mut Words) -> Result<(), Malformed> {
        match first {
            "context" => self.context = words.settings()?,
            "flag" => self.flags.push(words.word("a flag")?.to_owned()),
            "file" => self.files.push((words.word("a kind")?.to_owned(), words.word("a path")?.to_owned())),
            "lora" => self.loras.push((words.word("a path")?.to_owned(), words.number("a scale")?)),
            "control" => self.controls.push(words.control()?),
            "greedy_ids" => self.greedy_ids = words.rest("a token")?,
            "saved_after_step" => self.n_saved = words.number("a number of steps")?,
            "seq_file_is_sequence" => self.saved_sequence = words.number("a sequence")?,
            "decode" | "encode" => {
                let batch = Batch { n: words.number("a number of tokens")?, ..Batch::default() };
                self.steps.push(if first == "decode" { Step::Decode(batch) } else { Step::Encode(batch) });
            }
            "tokens" | "pos" | "seq" | "out" | "expect" => self.batch_line(first, words)?,
            _ => self.steps.push(words.operation(first)?),
        }
        Ok(())
    }

    /// Parse a line of the last batch.
    fn batch_line(&mut self, first: &str, words: &mut Words) -> Result<(), Malformed> {
        let Some(Step::Decode(batch) | Step::Encode(batch)) = self.steps.last_mut() else {
            return Err(words.error("\"decode\" or \"encode\" before this line"));
        };
        match first {
            "tokens" => batch.tokens = words.exactly(batch.n)?,
            "pos" => batch.pos = words.exactly(batch.n)?,
            "seq" => batch.seq = words.exactly(batch.n)?,
            "out" => {
                batch.out = words.rest("an index")?;
                if batch.out.iter().any(|&i| i >= batch.n) {
                    return Err(words.error("indices below the number of tokens"));
                }
            }
            _ => batch.expect = Some(words.expect()?),
        }
        Ok(())
    }
}

/// The words of a line after the first.
struct Words<'a> {
    words: SplitWhitespace<'a>,
    line: usize,
}

impl<'a> Words<'a> {
    /// Return the error of this line.
    fn error(&self, wanted: &'static str) -> Malformed {
        Malformed { line: self.line, wanted }
    }

    /// Return the next word.
    fn word(&mut self, wanted: &'static str) -> Result<&'a str, Malformed> {
        self.words.next().ok_or_else(|| self.error(wanted))
    }

    /// Parse the next word.
    fn number<T: FromStr>(&mut self, wanted: &'static str) -> Result<T, Malformed> {
        self.word(wanted)?.parse().map_err(|_| self.error(wanted))
    }

    /// Parse all words left.
    fn rest<T: FromStr>(&mut self, wanted: &'static str) -> Result<Vec<T>, Malformed> {
        self.words
            .by_ref()
            .map(|word| word.parse().map_err(|_| Malformed { line: self.line, wanted }))
            .collect()
    }

    /// Parse all words left, of which there must be `n`.
    fn exactly<T: FromStr>(&mut self, n: usize) -> Result<Vec<T>, Malformed> {
        let all = self.rest("a number")?;
        if all.len() == n { Ok(all) } else { Err(self.error("one number for each token")) }
    }

    /// Parse words of the form `key=value`.
    fn settings(&mut self) -> Result<Vec<(String, String)>, Malformed> {
        let pair = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.words.by_ref().map(pair).collect::<Option<_>>().ok_or_else(|| self.error("key=value"))
    }

    /// Parse the description of an array.
    fn array(&mut self) -> Result<Array, Malformed> {
        let name = self.word("a name")?.to_owned();
        let offset = self.number("an offset")?;
        Ok(Array { name, offset, rows: self.number("rows")?, cols: self.number("columns")? })
    }

    /// Parse the description of a control vector.
    fn control(&mut self) -> Result<Control, Malformed> {
        let (file, scale) = (self.word("a path")?.to_owned(), self.number("a scale")?);
        let layers = self.number("a layer")?..=self.number("a layer")?;
        Ok(Control { file, scale, layers })
    }

    /// Parse the description of expected outputs.
    fn expect(&mut self) -> Result<Expect, Malformed> {
        let kind = match self.word("a kind of output")? {
            "logits" => Kind::Logits,
            "embeddings" => Kind::Embeddings,
            "pooled" => Kind::Pooled,
            _ => return Err(self.error("logits, embeddings or pooled")),
        };
        Ok(Expect { kind, array: self.word("an array")?.to_owned(), row: self.number("a row")? })
    }

    /// Parse an operation on sequences.
    fn operation(&mut self, first: &str) -> Result<Step, Malformed> {
        let seq = self.number("a sequence")?;
        match first {
            "seq_rm" => {
                let (p0, p1) = (self.number("a position")?, self.number("a position")?);
                Ok(Step::SeqRm { seq, p0, p1, ok: self.number("true or false")? })
            }
            "seq_cp" => {
                let dst = self.number("a sequence")?;
                Ok(Step::SeqCp {
                    src: seq,
                    dst,
                    p0: self.number("a position")?,
                    p1: self.number("a position")?,
                })
            }
            "seq_add" => {
                let (p0, p1) = (self.number("a position")?, self.number("a position")?);
                Ok(Step::SeqAdd { seq, p0, p1, delta: self.number("a distance")? })
            }
            "seq_pos" => {
                Ok(Step::SeqPos { seq, min: self.number("a position")?, max: self.number("a position")? })
            }
            _ => Err(self.error("a known step")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SMALL: &str = "golden-1\nmodel models/a.gguf\narch llama\nquant_type Q4_0\narray whole 8 2 3\n\
        case one\ncontext n_ctx=256 type_k=F32\nflag informational\nfile seq a.seq\nlora b.gguf -0.5\ncontrol c.gguf 2 1 3\nsaved_after_step 1\nseq_file_is_sequence 2\ngreedy_ids 5 6\ndecode 2\n\
        tokens 7 8\npos 0 1\nseq 0 0\nout 1\nexpect logits whole 1\nseq_rm 0 -1 3 false\nseq_cp 0 1 2 -1\n\
        seq_add 0 1 2 -3\nseq_pos 0 0 1\nencode 0\ntokens\npos\nseq\nexpect pooled whole 0\nend\n";

    #[test]
    fn every_kind_of_line_is_read() {
        let golden = Golden::parse(SMALL).unwrap();
        assert_eq!((golden.model.as_str(), golden.quant_type.as_deref()), ("models/a.gguf", Some("Q4_0")));
        assert_eq!(golden.array("whole"), Some(&Array { name: "whole".into(), offset: 8, rows: 2, cols: 3 }));
        let case = &golden.cases[0];
        assert_eq!((case.setting("type_k"), case.setting("none")), (Some("F32"), None));
        assert!(case.is("informational"));
        assert_eq!(case.files, [("seq".into(), "a.seq".into())]);
        assert_eq!(case.loras, [("b.gguf".into(), -0.5)]);
        assert_eq!(case.controls, [Control { file: "c.gguf".into(), scale: 2.0, layers: 1..=3 }]);
        assert_eq!((case.n_saved, case.saved_sequence), (1, 2));
        assert_eq!(case.greedy_ids, [5, 6]);
        let logits = Expect { kind: Kind::Logits, array: "whole".into(), row: 1 };
        let pooled = Expect { kind: Kind::Pooled, array: "whole".into(), row: 0 };
        assert_eq!(
            case.steps,
            [
                Step::Decode(Batch {
                    n: 2,
                    tokens: vec![7, 8],
                    pos: vec![0, 1],
                    seq: vec![0, 0],
                    out: vec![1],
                    expect: Some(logits)
                }),
                Step::SeqRm { seq: 0, p0: -1, p1: 3, ok: false },
                Step::SeqCp { src: 0, dst: 1, p0: 2, p1: -1 },
                Step::SeqAdd { seq: 0, p0: 1, p1: 2, delta: -3 },
                Step::SeqPos { seq: 0, min: 0, max: 1 },
                Step::Encode(Batch { expect: Some(pooled), ..Batch::default() }),
            ]
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        let cases = [
            ("", 1),
            ("golden-2\n", 1),
            ("golden-1\nmodel\n", 2),
            ("golden-1\nfrobnicate 3\n", 2),
            ("golden-1\narray a 1 2\n", 2),
            ("golden-1\narray a 1 2 -3\n", 2),
            ("golden-1\ncase a\n", 0),
            ("golden-1\ncase a\ntokens 1\n", 3),
            ("golden-1\ncase a\nlora b.gguf\n", 3),
            ("golden-1\ncase a\ncontrol b.gguf 1 2\n", 3),
            ("golden-1\ncase a\ndecode 2\ntokens 1\n", 4),
            ("golden-1\ncase a\ndecode 1\nout 1\n", 4),
            ("golden-1\ncase a\ncontext x\n", 3),
            ("golden-1\ncase a\nseq_rm 0 1 2 maybe\n", 3),
            ("golden-1\ncase a\nseq_mv 0 1 2\n", 3),
            ("golden-1\ncase a\ndecode 99999999999999999999\n", 3),
        ];
        for (text, line) in cases {
            assert_eq!(Golden::parse(text).map_err(|e| e.line), Err(line), "{text:?}");
        }
    }

    #[test]
    fn every_cut_is_an_error_or_a_shorter_file() {
        for end in 0..SMALL.len() {
            let _ = Golden::parse(&SMALL[..end]);
        }
    }
}
