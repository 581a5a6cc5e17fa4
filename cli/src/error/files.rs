//! Errors about files of the libraries in the words of the command line: saved states, prompt
//! caches and files of llama.cpp.
//!
//! Offsets stay exact, because they are for finding a place in a file. Sizes are for people: a file
//! that ends early is described by the size of what is missing, which says more than two sizes that
//! round to the same figure.

use super::memory::of_memory;
use crate::output::bytes;
use backstitch_kv::file::{FileError, Problem};
use backstitch_kv::io;
use backstitch_kv::storage::{self, prompt_cache};
use backstitch_models::llama_files;

/// Return the text of an error about a saved state. [`Error::of_state`](super::Error::of_state)
/// comes before this for files that are no saved states.
pub fn of_state(error: &storage::Error) -> String {
    use storage::Error as E;
    match error {
        E::Memory(source) => of_memory(source),
        E::Io(source) => of_io(source),
        E::File { operation, error } => format!("cannot {operation}: {}", of_file(error)),
        E::SavedBeside { path, cause } => {
            let (cause, path) = (of_state(cause), path.display());
            format!("{cause}; saved as {path} instead, rename it once that is mended")
        }
        E::NotSaved { cause, beside } => {
            let (cause, beside) = (of_state(cause), of_state(beside));
            format!("{cause}; nor could a file be written beside it: {beside}; save to another folder")
        }
        E::Truncated { section, offset, need, have } => {
            let missing = bytes(need.saturating_sub(*have));
            format!("{section} at {offset} is cut off: {missing} are missing; use another copy of the file")
        }
        E::Misplaced { section, offset, len, .. } => {
            let len = bytes(*len);
            format!("{section} of {len} is said to be at {offset}, where none can be; use another copy of it")
        }
        E::TooLarge { what, value, limit } => match what.strip_prefix("bytes of ") {
            Some(what) => format!("{what} of {}, {} at most", bytes(*value), bytes(*limit)),
            None => error.to_string(),
        },
        E::OutOfMemory { bytes: n } => no_memory(*n),
        error => error.to_string(),
    }
}

/// Return the text of an error of a prompt cache. Its folder is not repeated: the command line
/// names one, and the note begins with "prompt cache".
pub fn of_prompt_cache(error: &prompt_cache::Error) -> String {
    use prompt_cache::Error as E;
    match error {
        E::Entry { path, error } => format!("{}: {}", path.display(), of_state(error)),
        E::OverBudget { need, budget, .. } => {
            format!("{} do not fit the limit of {}; raise --prompt-cache-size", bytes(*need), bytes(*budget))
        }
        E::NoRoom { need, kept, budget, .. } => format!(
            "{} do not fit: {} of the limit of {} are in use; raise --prompt-cache-size or try later",
            bytes(*need),
            bytes(*kept),
            bytes(*budget)
        ),
        error => of_state(error),
    }
}

/// Return the text of an error about a file of llama.cpp.
pub fn of_llama(error: &llama_files::Error) -> String {
    use llama_files::Error as E;
    match error {
        E::Truncated { section, field, offset, need, have } => {
            let missing = bytes(need.saturating_sub(*have));
            format!("{section}: the file ends in {field} at byte {offset}; {missing} are missing")
        }
        E::Trailing { offset, n_bytes } => {
            let n = bytes(*n_bytes);
            format!("{n} from byte {offset} on belong to nothing; the file is of another model or version")
        }
        E::OutOfMemory { bytes: n } => no_memory(*n),
        error => error.to_string(),
    }
}

/// Return the text of an error about a file as bytes.
pub fn of_file(error: &FileError) -> String {
    let path = error.path.display();
    match &error.problem {
        Problem::TooLarge { bytes: n } => {
            format!("{path} has {}, more than this machine can address", bytes(*n))
        }
        Problem::Shrunk { found, wanted } => {
            let (found, wanted) = (bytes(*found), bytes(*wanted));
            format!("{path} ended after {found} of {wanted}; it was changed while being read, try again")
        }
        _ => error.to_string(),
    }
}

/// Return the text of an error of reading or writing bytes.
fn of_io(error: &io::Error) -> String {
    match error {
        io::Error::Full { need, free } => format!("no room for {}, {} free", bytes(*need), bytes(*free)),
        io::Error::OutOfMemory { bytes: n } => no_memory(*n),
        error => error.to_string(),
    }
}

/// Return the text about memory for the content of a file, which no option makes smaller.
fn no_memory(n_bytes: u64) -> String {
    format!("no memory for {}; close other programs", bytes(n_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_kv::storage::Tag;

    #[test]
    fn sizes_have_units_and_offsets_are_exact() {
        let section = Tag(*b"CELL");
        let (need, have) = (5 << 30, (5 << 30) - 2048);
        let text = of_state(&storage::Error::Truncated { section, offset: 123_456, need, have });
        assert!(text.contains("CELL at 123456 is cut off: 2.0 KiB are missing"), "{text}");
        let nested = storage::Error::SavedBeside {
            path: std::path::Path::new("b.bst").into(),
            cause: Box::new(storage::Error::OutOfMemory { bytes: 3 << 30 }),
        };
        assert!(of_state(&nested).starts_with("no memory for 3.0 GiB; "), "{}", of_state(&nested));
        let what = "bytes of a compressed section";
        let text = of_state(&storage::Error::TooLarge { what, value: 1 << 30, limit: 32 << 20 });
        assert_eq!(text, "a compressed section of 1.0 GiB, 32.0 MiB at most");
        let large = prompt_cache::Error::OverBudget {
            folder: std::path::Path::new("cache").into(),
            need: 3 << 20,
            budget: 1 << 20,
        };
        assert_eq!(
            of_prompt_cache(&large),
            "3.0 MiB do not fit the limit of 1.0 MiB; raise --prompt-cache-size"
        );
    }
}
