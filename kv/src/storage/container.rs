//! The container of everything that is stored: a file of sections that are checksummed one by one.
//!
//! A container is a header, two commit slots, *sections* (bytes with a tag, an index and a
//! checksum), a directory of them and a footer. [`Writer`] makes one in a single pass to any
//! [`Write`](crate::io::Write), or continues an old one with what is new. [`Container`] reads one
//! from a slice or a device: opening it checks everything but the sections, reading a section
//! checks its bytes. Both know bytes only; the meaning of sections is the business of those who
//! write them: saved states and entries of a prompt cache.
//!
//! | file | content |
//! |---|---|
//! | `layout` | header, commit slots and footer, byte for byte |
//! | `section` | records of the directory, and how they are checked against each other |
//! | `reader`, `source` | from the first byte to checked sections |
//! | `writer` | sections in one pass, several at once on the threads of a pool |
//! | `checksum`, `codec` | XXH3-64; zstd, where the feature is on |
//! | `limits`, `fields` | bounds of what is read as a whole; numbers of a section |

mod checksum;
#[cfg(feature = "zstd")]
mod codec;
#[cfg(not(feature = "zstd"))]
#[path = "container/no_codec.rs"]
mod codec;
mod fields;
mod layout;
mod limits;
mod reader;
mod section;
mod source;
#[cfg(test)]
pub(in crate::storage) mod tests;
mod writer;

pub use fields::Fields;
pub use limits::{MAX_DIRECTORY, MAX_READ};
pub(super) use limits::{MAX_IMAGE, MAX_SHAPE, Room, expect_at_most};
pub use reader::Container;
#[cfg(feature = "std")]
pub(super) use section::len_of;
pub use section::{Codec, RECORD_BYTES, Section};
#[cfg(feature = "std")]
pub(super) use source::Source;
pub(super) use writer::Pending;
#[cfg(feature = "std")]
pub(super) use writer::container_bytes;
pub use writer::{Writer, Written};
