//! Memory that outlives the process: saved states and the prompt cache.
//!
//! One [container](Container) serves saved states and entries of a [prompt cache](prompt_cache),
//! and one [`disk`] all files that either makes. [`save`] writes a state to a path so that a
//! crash leaves the old file or the new one, and [`StateFile`] opens one.
//!
//! `docs/state-format.md` describes every byte and argues why a save may be interrupted anywhere;
//! `docs/prompt-cache.md` says what lies in the folder of a prompt cache.

mod container;
#[cfg(feature = "std")]
pub mod disk;
mod error;
mod header;
#[cfg(feature = "std")]
pub mod prompt_cache;
mod saved;

pub use container::{
    Codec, Container, Fields, MAX_DIRECTORY, MAX_READ, RECORD_BYTES, Section, Writer, Written,
};
pub use error::Error;
#[cfg(feature = "std")]
pub use error::Operation;
pub use header::{Fingerprint, Header, Scope, Tag, VERSION};
#[cfg(any(test, feature = "testing"))]
pub use saved::forge_snapshot;
pub use saved::{
    CELLS, IMAGE, IMAGE_TAGS, ROWS, SHAPE, SNAPSHOT_VERSION, STATE, StoredSnapshot, encode_shape,
    write_snapshot, write_snapshot_with,
};
#[cfg(feature = "std")]
pub use saved::{Saved, StateFile, Sync, Watch, save, save_watched};
