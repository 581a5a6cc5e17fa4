//! Errors of the engine in the words of the command line; `memory` has those of its caches, `files`
//! those about files.
//!
//! The libraries name their parameters (`n_ctx`) and count bytes. A person who typed a command
//! needs the option (`-c`) and a size that can be read (GiB). Errors that name neither keep the
//! text of the library, so a new error of a library is shown even before it has a line here.

use super::files::{of_file, of_llama, of_state};
use super::memory::of_memory;
use crate::output::{bytes, counted};
use backstitch_models::Error as EngineError;
use backstitch_models::vocab::VocabError;

/// Return the text of an error of the engine, with the texts of errors inside it.
///
/// The advice after the semicolon is about this program: the library's own would send a person to
/// parameters that only a programmer can set.
pub fn of_engine(error: &EngineError) -> String {
    match error {
        EngineError::File { path, source } => format!("{}: {}", path.display(), of_engine(source)),
        EngineError::Memory(source) => of_memory(source),
        EngineError::State(source) => of_state(source),
        EngineError::Llama(source) => of_llama(source),
        EngineError::Io(source) => of_file(source),
        EngineError::Shard { shard, source } => {
            format!("shard {} of the model: {}", shard.saturating_add(1), of_engine(source))
        }
        EngineError::Params { what, found, wanted } => match option(what) {
            Some(option) => format!("{option} is {found}, not {wanted}"),
            None => error.to_string(),
        },
        EngineError::TooManySequences { limit } => {
            format!("the context has {}, and all are in use", counted(*limit as usize, "sequence"))
        }
        EngineError::NoLogits { .. } => "there is no text to continue yet; give a prompt with -p".into(),
        EngineError::TooLong { n_tokens, n_ctx } => {
            let tokens = counted(*n_tokens, "token");
            format!("{tokens} do not fit a context of {n_ctx}; raise -c or shorten the text")
        }
        EngineError::EncoderOnly => {
            "this model makes embeddings and no text; name one that generates text with -m".into()
        }
        EngineError::NoToken { .. } => {
            "every token is banned, so the text cannot continue; ban fewer with --logit-bias".into()
        }
        EngineError::OutOfMemory { what, n_bytes } => {
            let size = bytes(*n_bytes);
            format!("no memory for {what}, {size}; lower -c or -ub, or close other programs")
        }
        EngineError::ModelTooLarge { limit } => {
            format!("the model is longer than the {} allowed", bytes(*limit))
        }
        EngineError::Vocab(VocabError::OutOfMemory { n_bytes }) => {
            format!("no memory for the vocabulary, {}; close other programs", bytes(*n_bytes))
        }
        // The text of the library names no parameter that an option sets.
        error => error.to_string(),
    }
}

/// Return the option that sets a parameter of a context; none if the program chooses it.
fn option(parameter: &str) -> Option<&'static str> {
    match parameter {
        "n_ctx" => Some("-c"),
        "n_batch" => Some("-b"),
        "n_ubatch" => Some("-ub"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_core::cell::CellType;
    use backstitch_kv::{Error as MemoryError, Pos, SeqId, storage};

    #[test]
    fn advice_names_options_of_the_program() {
        let seq = SeqId(0);
        let cells = MemoryError::CellType { layer: 0, found: CellType::F16, wanted: CellType::F32 };
        let cases = [
            (EngineError::Memory(MemoryError::Full { what: "cells", need: 64, free: 32, seq }), "raise -c "),
            (EngineError::State(storage::Error::Memory(cells)), "-ctk and -ctv"),
            (EngineError::Memory(MemoryError::Gone { seq, whole_from: Pos(7) }), "raise -c"),
            (EngineError::Memory(MemoryError::OutOfMemory { bytes: 9 }), "lower -c,"),
            (EngineError::NoLogits { seq: 0 }, "with -p"),
            (EngineError::TooLong { n_tokens: 9, n_ctx: 8 }, "raise -c "),
            (EngineError::Params { what: "n_ubatch", found: 1 << 17, wanted: "less" }, "-ub is 131072"),
            (EngineError::TooManySequences { limit: 1 }, "has 1 sequence,"),
            (EngineError::Memory(MemoryError::UnknownSequence { seq, n_seq_max: 2 }), "has 2 sequences"),
        ];
        for (error, advice) in cases {
            let error =
                EngineError::File { path: std::path::Path::new("a.bst").into(), source: Box::new(error) };
            let text = of_engine(&error);
            assert!(text.starts_with("a.bst: ") && text.contains(advice), "{text}");
            assert!(!text.contains("n_ctx") && !text.contains("n_seq_max"), "{text}");
        }
    }
}
