//! Compressed sections.
//!
//! Caches of 16-bit numbers compress by about a seventh once the high halves of all numbers stand
//! together, and hardly at all otherwise; whether a section is of that kind shows when its
//! beginning is compressed both ways.

use super::limits::zeroed;
use super::section::{Codec, MAX_COMPRESSED, MAX_RATIO, Section};
use crate::storage::error::Error;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Shorter sections stay as they are.
const MIN_BYTES: u64 = 1 << 10;
/// Bytes of a section that decide how it is compressed.
const SAMPLE: usize = 64 << 10;
/// zstd's fastest ordinary level: those above it gain little on numbers that look random.
const LEVEL: i32 = 1;

/// Return the content of `pieces` compressed, if that saves at least 5 %.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(super) fn compress(pieces: &[Cow<'_, [u8]>], raw_len: u64) -> Result<Option<(Codec, Vec<u8>)>, Error> {
    if !(MIN_BYTES..=MAX_COMPRESSED).contains(&raw_len) {
        return Ok(None);
    }
    let mut raw = Vec::new();
    raw.try_reserve_exact(raw_len as usize).map_err(|_| Error::OutOfMemory { bytes: raw_len })?;
    pieces.iter().for_each(|piece| raw.extend_from_slice(piece));
    let sample = raw.get(..SAMPLE).unwrap_or(&raw);
    let plain = encode(Codec::ZSTD, sample)?.len();
    let shuffled = encode(Codec::SHUFFLED_ZSTD, sample)?.len();
    if !pays(plain.min(shuffled), sample.len()) {
        return Ok(None);
    }
    let codec = if shuffled < plain { Codec::SHUFFLED_ZSTD } else { Codec::ZSTD };
    let stored = encode(codec, &raw)?;
    let dense = raw_len > (stored.len() as u64).saturating_mul(MAX_RATIO);
    Ok((pays(stored.len(), raw.len()) && !dense).then_some((codec, stored)))
}

/// Return true if `len` bytes are worth the trouble in place of `raw`.
fn pays(len: usize, raw: usize) -> bool {
    len <= raw - raw / 20
}

/// Return the content of a section whose stored bytes are these. Stops at the length that the
/// section should have; its checksum is the caller's business.
///
/// # Errors
/// [`Error::Codec`] if the codec is none of these, [`Error::Malformed`], [`Error::OutOfMemory`].
pub(super) fn decompress(section: &Section, stored: &[u8]) -> Result<Vec<u8>, Error> {
    let Section { tag, offset, raw_len, codec, .. } = *section;
    let finish = match codec {
        Codec::ZSTD => Ok,
        Codec::SHUFFLED_ZSTD => unshuffled,
        Codec(codec) => return Err(Error::Codec { section: tag, offset, codec }),
    };
    let what = "length of what could be decompressed";
    let malformed = |found| Error::Malformed { section: tag, offset, what, found, wanted: raw_len };
    let mut raw = zeroed(raw_len)?;
    let len = zstd::bulk::decompress_to_buffer(stored, &mut raw).map_err(|_| malformed(0))?;
    if len as u64 == raw_len { finish(raw) } else { Err(malformed(len as u64)) }
}

fn encode(codec: Codec, raw: &[u8]) -> Result<Vec<u8>, Error> {
    let shuffled = if codec == Codec::SHUFFLED_ZSTD { Some(shuffled(raw)?) } else { None };
    let compressed = zstd::bulk::compress(shuffled.as_deref().unwrap_or(raw), LEVEL);
    compressed.map_err(|_| Error::OutOfMemory { bytes: raw.len() as u64 })
}

/// Even bytes, then odd bytes.
fn shuffled(raw: &[u8]) -> Result<Vec<u8>, Error> {
    let mut shuffled = zeroed(raw.len() as u64)?;
    let (even, odd) = shuffled.split_at_mut(raw.len().div_ceil(2));
    even.iter_mut().zip(raw.iter().step_by(2)).for_each(|(to, from)| *to = *from);
    odd.iter_mut().zip(raw.iter().skip(1).step_by(2)).for_each(|(to, from)| *to = *from);
    Ok(shuffled)
}

/// Undo [`shuffled`].
fn unshuffled(shuffled: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut raw = zeroed(shuffled.len() as u64)?;
    let (even, odd) = shuffled.split_at(shuffled.len().div_ceil(2));
    raw.iter_mut().step_by(2).zip(even).for_each(|(to, from)| *to = *from);
    raw.iter_mut().skip(1).step_by(2).zip(odd).for_each(|(to, from)| *to = *from);
    Ok(raw)
}

#[cfg(test)]
mod tests;
