//! Errors of the caches in the words of the command line.
//!
//! A memory counts cells and names parameters of a context. Most of its errors are about a caller's
//! mistake and never reach a person; those that options cause, or files, say which option helps.

use crate::output::{bytes, counted};
use backstitch_kv::Error as MemoryError;

/// Return the text of an error of the caches, wherever it comes from: a context that is full, a
/// state that does not fit the context, pinned checkpoints beyond their budget.
pub fn of_memory(error: &MemoryError) -> String {
    match error {
        MemoryError::Full { need, what, free, .. } => {
            let need = counted(*need as usize, what.strip_suffix('s').unwrap_or(what));
            format!("the cache is full: {need} needed, {free} free; raise -c or shorten the text")
        }
        MemoryError::UnknownSequence { seq, n_seq_max } => {
            let n = counted(*n_seq_max as usize, "sequence");
            format!("there is no sequence {seq}: the context has {n}")
        }
        MemoryError::Layer { layer, what } => {
            format!("layer {layer}: {}", what.replace("choose f16", "give -ctk f16 -ctv f16"))
        }
        MemoryError::CellType { found, wanted, .. } => {
            let (found, wanted) = (found.name(), wanted.name());
            format!(
                "the state has {found} cells, this context {wanted}; give -ctk and -ctv as when it was saved"
            )
        }
        MemoryError::Gone { whole_from, .. } => format!(
            "the state was saved without the cells below position {whole_from}, which this context would keep; \
             raise -c"
        ),
        MemoryError::Pinned { limit, checkpoint_bytes } => format!(
            "{} of checkpoints allow {}; leave out a --pin or raise --checkpoint-mib",
            bytes(*checkpoint_bytes),
            counted(*limit as usize, "pinned position")
        ),
        MemoryError::OutOfMemory { bytes: n } => {
            format!("no memory for {}; lower -c, or take smaller types with -ctk and -ctv", bytes(*n))
        }
        error => error.to_string(),
    }
}
