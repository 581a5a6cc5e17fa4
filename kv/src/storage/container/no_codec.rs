//! In place of `codec.rs` where no codec is built in.

use super::section::Section;
use crate::storage::error::Error;
use alloc::vec::Vec;

/// # Errors
/// [`Error::Codec`], always.
pub(super) fn decompress(section: &Section, _stored: &[u8]) -> Result<Vec<u8>, Error> {
    Err(Error::Codec { section: section.tag, offset: section.offset, codec: section.codec.0 })
}
