//! Errors of the libraries, with this program's options in place of their parameters.

use backstitch_kv::{Error as MemoryError, state};
use backstitch_models::Error as EngineError;

/// An error of the engine.
pub fn of_engine(error: &EngineError) -> String {
    match error {
        EngineError::File { path, source } => format!("{}: {}", path.display(), of_engine(source)),
        EngineError::Memory(source) => of_memory(source),
        EngineError::State(source) => of_state(source),
        EngineError::NoLogits { .. } => "there is nothing to go on from yet; give a prompt with -p".into(),
        EngineError::TooLong { n_tokens, n_ctx } => {
            format!("{n_tokens} tokens do not fit a context of {n_ctx}; raise -c or shorten the text")
        }
        EngineError::EncoderOnly => "this model makes embeddings and no text; take one that generates".into(),
        EngineError::NoToken { .. } => {
            "no token is left to go on with: all are banned; ban fewer with --logit-bias".into()
        }
        error => error.to_string(),
    }
}

/// An error about a state.
pub fn of_state(error: &state::Error) -> String {
    match error {
        state::Error::Memory(source) => of_memory(source),
        error => error.to_string(),
    }
}

/// An error of the caches.
fn of_memory(error: &MemoryError) -> String {
    match error {
        MemoryError::Full { need, what, free, .. } => {
            format!("the cache is full: {need} {what} needed, {free} free; raise -c or shorten the text")
        }
        MemoryError::CellType { found, wanted, .. } => {
            let (found, wanted) = (found.name(), wanted.name());
            format!(
                "the state has {found} cells, this context {wanted}; give -ctk and -ctv as when it was saved"
            )
        }
        MemoryError::Gone { whole_from, .. } => format!(
            "the state was saved without the cells below {whole_from}, which this context would keep; raise -c"
        ),
        MemoryError::Pinned { limit, checkpoint_bytes } => format!(
            "{checkpoint_bytes} bytes of checkpoints pay for {limit} pinned positions; \
             leave out a --pin or raise --checkpoint-mib"
        ),
        MemoryError::OutOfMemory { bytes } => {
            format!("no memory for {bytes} bytes; lower -c, or take smaller types with -ctk and -ctv")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_core::cell::CellType;
    use backstitch_kv::{Pos, SeqId};

    #[test]
    fn advice_names_options_of_the_program() {
        let seq = SeqId(0);
        let cells = MemoryError::CellType { layer: 0, found: CellType::F16, wanted: CellType::F32 };
        let cases = [
            (EngineError::Memory(MemoryError::Full { what: "cells", need: 64, free: 32, seq }), "raise -c "),
            (EngineError::State(state::Error::Memory(cells)), "-ctk and -ctv"),
            (EngineError::Memory(MemoryError::Gone { seq, whole_from: Pos(7) }), "raise -c"),
            (EngineError::Memory(MemoryError::OutOfMemory { bytes: 9 }), "lower -c,"),
            (EngineError::NoLogits { seq: 0 }, "with -p"),
            (EngineError::TooLong { n_tokens: 9, n_ctx: 8 }, "raise -c "),
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
