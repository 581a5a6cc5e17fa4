//! Conformance: what another engine computed, and whether this one agrees.
//!
//! A conformance set is a folder of tiny models (`models/*.gguf`), steps to feed them with the numbers that came out
//! (`goldens/*.txt` beside `*.bin`), tables of texts and tokens (`tokenizers/*.tsv`), and chats and continuations of real
//! models (`real/*.json`). [`find`] finds such files, [`verify`] replays one and reports a [`Row`] a case. What this engine
//! cannot do yet is reported as [`Verdict::NotSupported`], never as passed.
//!
//! `golden` and `tokens` read the formats, `replay` runs steps, `saved` those that follow files of llama.cpp, `quant` looks at quantised tensors, `texts` at tokenizers
//! and templates, `real` at the continuations of real models, `compare` measures differences.

mod compare;
mod files;
mod golden;
mod quant;
mod real;
mod refused;
mod replay;
mod saved;
mod texts;
mod tokens;

pub use files::find;

use crate::{Error, Model, vocab::VocabError};
use alloc::string::{String, ToString};
use backstitch_core::KernelSet;
use core::fmt;
use std::path::{Path, PathBuf};

/// What passes, and what to run it with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The largest difference of a logit that passes.
    pub tolerance: f32,
    /// The model for files that name one which does not lie beside them.
    pub model: Option<PathBuf>,
    /// Threads to compute with.
    pub n_threads: u32,
    /// Kernels to compute with; `None` is the best there are.
    pub kernels: Option<&'static KernelSet>,
}

impl Default for Options {
    fn default() -> Self {
        Self { tolerance: 1e-3, model: None, n_threads: 1, kernels: None }
    }
}

/// How a case came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed,
    /// This engine cannot do what the case asks for.
    NotSupported,
    /// It ran, but the case is no requirement.
    Informational,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::NotSupported => "not supported",
            Self::Informational => "informational",
        })
    }
}

/// One case of a conformance file.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name in the file.
    pub case: String,
    /// How it came out.
    pub verdict: Verdict,
    /// The largest difference of a number, if numbers were compared.
    pub max_diff: Option<f32>,
    /// Why, or what else is worth knowing.
    pub note: String,
}

impl Row {
    fn new(case: impl Into<String>, verdict: Verdict, note: impl Into<String>) -> Self {
        Self { case: case.into(), verdict, max_diff: None, note: note.into() }
    }

    /// A row for an error: what this engine does not know is not supported, all else has failed.
    fn error(case: &str, error: &Error) -> Self {
        Self::new(
            case,
            if is_unsupported(error) { Verdict::NotSupported } else { Verdict::Failed },
            error.to_string(),
        )
    }
}

fn is_unsupported(error: &Error) -> bool {
    match error {
        Error::Architecture { .. }
        | Error::LlamaState { .. }
        | Error::Memory(backstitch_kv::Error::Unsupported { .. }) => true,
        Error::Vocab(VocabError::Model { .. } | VocabError::Pre { .. }) => true,
        Error::File { source, .. } | Error::Part { source, .. } => is_unsupported(source),
        _ => false,
    }
}

/// Replays the conformance file at `path`; `report` hears of each case as it is done.
///
/// A file that cannot be read or is none makes one failed row.
pub fn verify(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) {
    let mut rows = |row| report(row);
    let failed = match files::kind(path) {
        Ok(Some(files::Kind::Golden)) => replay::file(path, options, &mut rows),
        Ok(Some(files::Kind::Tokens)) => texts::file(path, options, &mut rows),
        Ok(Some(files::Kind::Chat)) => texts::chat(path, options, &mut rows),
        Ok(Some(files::Kind::Generation)) => real::file(path, options, &mut rows),
        Ok(None) => Err(Failure("this is no conformance file".into())),
        Err(error) => Err(Failure(error.to_string())),
    };
    if let Err(Failure(note)) = failed {
        report(Row::new("", Verdict::Failed, note));
    }
}

/// Why a file as a whole cannot be replayed.
struct Failure(String);

impl<E: core::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Loads a model for replay.
fn open(path: &Path, options: &Options) -> Result<Model, Error> {
    let params = crate::LoadParams { n_threads: options.n_threads as usize, ..crate::LoadParams::default() };
    Model::open_with(path, params, |_, _| {})
}
