//! Conformance: comparison of this engine with numbers that another engine computed.
//!
//! A conformance set is a folder with four kinds of files:
//!
//! - `models/*.gguf`: tiny models.
//! - `goldens/*.txt` beside `*.bin`: steps to run on a model, and the numbers that came out of
//!   llama.cpp. Cases may name adapters (`lora/*.txt`).
//! - `tokenizers/*.tsv`: tables of texts and their tokens.
//! - `real/*.json`: chats and continuations of real models.
//!
//! [`find`] finds such files. [`verify`] replays one and reports a [`Row`] per case. A case that
//! this engine cannot run yet is reported as [`Verdict::NotSupported`], never as passed.
//!
//! The parts of the module: `golden` and `tokens` parse the formats, and `replay` runs steps.
//! `adapters` reads those of a case. `llama_files` runs the steps that follow state files of
//! llama.cpp, and `refused` the rollbacks that llama.cpp refuses. `quant` checks quantised tensors,
//! `tokenizers` tokenisers and templates, and `real` the continuations of real models. `compare`
//! measures differences.

mod adapters;
mod compare;
mod expected;
mod files;
mod golden;
mod goldens;
mod llama_files;
mod quant;
mod real;
mod refused;
mod replay;
mod report;
mod tokenizers;
mod tokens;

pub use files::find;
pub use report::{Options, Row, Verdict};

use alloc::string::ToString;
use report::Failure;
use std::path::Path;

/// Replay the conformance file at `path`, and call `report` with each case when it is done.
///
/// A file that cannot be read, or is not a conformance file, makes one failed row.
pub fn verify(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) {
    let mut rows = |row| report(row);
    let failed = match files::kind(path) {
        Ok(Some(files::Kind::Golden)) => goldens::file(path, options, &mut rows),
        Ok(Some(files::Kind::Tokens)) => tokenizers::file(path, options, &mut rows),
        Ok(Some(files::Kind::Chat)) => tokenizers::chat(path, options, &mut rows),
        Ok(Some(files::Kind::Generation)) => real::file(path, options, &mut rows),
        Ok(None) => Err(Failure("this is not a conformance file; name a file of a conformance set".into())),
        Err(error) => Err(Failure(error.to_string())),
    };
    if let Err(Failure(note)) = failed {
        report(Row::new("", Verdict::Failed, note));
    }
}
