//! State files: what a context or a sequence holds, as bytes that outlive the process.
//!
//! A *container* is a sequence of *sections*: bytes with a tag, an index and a checksum. [`Writer`] makes one in a single pass
//! to any [`Write`](crate::io::Write), or continues an old one with what is new. [`Container`] reads one from a slice or a device: opening
//! it checks the header and the directory of sections, reading a section checks its bytes. Both know bytes only; what the
//! sections mean is the business of those who write them.
//!
//! With `std`, [`save`] writes a container to a path so that a crash leaves the old file or the new one, and [`StateFile`] opens one.
//!
//! `docs/state-format.md` describes every byte and argues why a save may be interrupted anywhere.

mod checksum;
#[cfg(feature = "zstd")]
mod codec;
#[cfg(not(feature = "zstd"))]
#[path = "state/no_codec.rs"]
mod codec;
mod container;
#[cfg(feature = "std")]
pub mod disk;
mod error;
mod fields;
#[cfg(feature = "std")]
mod file;
mod layout;
mod limits;
pub mod llama;
mod open;
#[cfg(feature = "std")]
mod save;
mod section;
mod source;
mod stored;
#[cfg(test)]
mod tests;
mod together;
mod writer;

use core::fmt;

pub use container::Container;
pub use error::Error;
#[cfg(feature = "std")]
pub use error::Operation;
pub use fields::Fields;
#[cfg(feature = "std")]
pub use file::StateFile;
pub use limits::{MAX_DIRECTORY, MAX_READ};
#[cfg(feature = "std")]
pub use save::{Saved, Sync, Watch, save, save_watched};
pub use section::{Codec, Section};
#[cfg(any(test, feature = "oracle"))]
pub use stored::forge_image;
pub use stored::{
    CELLS, IMAGE, IMAGE_TAGS, IMAGE_VERSION, ROWS, SHAPE, STATE, StoredImage, encode_shape, write_image,
    write_image_with,
};
pub use writer::{Writer, Written};

/// The newest format version, and the one that is written.
pub const VERSION: u32 = 1;

/// The kind of a section: four bytes, upper-case letters and digits by custom.
///
/// `HEAD`, `SLOT`, `DIRY` and `FOOT` name the container's own parts in errors and are never sections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 4]);

impl Tag {
    /// The header, in errors.
    pub const HEADER: Self = Self(*b"HEAD");
    /// The commit slots, in errors.
    pub const SLOT: Self = Self(*b"SLOT");
    /// The directory, in errors.
    pub const DIRECTORY: Self = Self(*b"DIRY");
    /// The footer, in errors.
    pub const FOOTER: Self = Self(*b"FOOT");
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", error::Text(&self.0))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}

/// Says which model a state belongs to: states of different fingerprints never mix.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The first half, which is enough to tell fingerprints apart in a message.
    pub fn front(&self) -> [u8; 16] {
        let [front, _] = bytemuck::must_cast::<[u8; 32], [[u8; 16]; 2]>(self.0);
        front
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", error::Hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// What a container holds the state of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A whole context: all sequences under their ids.
    Context,
    /// One sequence, which may be restored under any id.
    Sequence,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Context => "a whole context",
            Self::Sequence => "one sequence",
        })
    }
}

/// What a container says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The model that the state belongs to.
    pub fingerprint: Fingerprint,
    /// What is in it.
    pub scope: Scope,
}
