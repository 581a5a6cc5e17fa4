//! In place of `codec.rs` where no codec is built in.

use super::section::{Codec, Section};
use crate::storage::error::Error;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Compress nothing: no writer without a codec is asked to.
pub(super) fn compress(_pieces: &[Cow<'_, [u8]>], _raw_len: u64) -> Result<Option<(Codec, Vec<u8>)>, Error> {
    Ok(None)
}

/// # Errors
/// [`Error::Codec`], always.
pub(super) fn decompress(section: &Section, _stored: &[u8]) -> Result<Vec<u8>, Error> {
    Err(Error::Codec { section: section.tag, offset: section.offset, codec: section.codec.0 })
}
