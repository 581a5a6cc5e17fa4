//! The frame before the state of a whole context: its length.
//!
//! `llama_set_state_data` is not told how many bytes it may read. Little-endian, from the front:
//! eight bytes that say what this is, the number of bytes behind the frame (u64) and the XXH3
//! checksum of both (u64). So a length that was damaged is noticed before it is trusted.

use crate::error::Error;
use twox_hash::XxHash3_64;

/// The first bytes of a frame.
const MAGIC: [u8; 8] = *b"bstFRAM1";
/// The bytes of a frame.
pub const LEN: usize = 8 + 8 + 8;

/// Put a frame before bytes.
pub fn add(bytes: &mut Vec<u8>) {
    let mut frame = [MAGIC, (bytes.len() as u64).to_le_bytes()].concat();
    frame.extend(XxHash3_64::oneshot(&frame).to_le_bytes());
    bytes.splice(..0, frame);
}

/// Return the number of bytes behind a frame; none if `frame` is no frame, or a damaged one.
pub fn length(frame: &[u8]) -> Option<usize> {
    let (front, sum) = frame.get(..LEN)?.split_at(LEN - 8);
    let length = u64::from_le_bytes(front.strip_prefix(&MAGIC)?.try_into().ok()?);
    let is_whole = XxHash3_64::oneshot(front).to_le_bytes() == sum;
    is_whole.then(|| usize::try_from(length).ok()).flatten()
}

/// Return the bytes behind a frame, or all if there is none.
///
/// # Errors
/// [`Error::Seal`] if there are fewer than the frame says.
pub fn strip(bytes: &[u8]) -> Result<&[u8], Error> {
    let Some(length) = length(bytes) else { return Ok(bytes) };
    let rest = bytes.get(LEN..).unwrap_or_default();
    rest.get(..length).ok_or(Error::Seal { what: "its end is missing" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed() -> Vec<u8> {
        let mut bytes = b"state".to_vec();
        add(&mut bytes);
        bytes
    }

    #[test]
    fn a_frame_tells_the_length_of_what_it_is_before() {
        let framed = framed();
        assert_eq!(length(&framed), Some(5));
        assert_eq!(strip(&framed).unwrap(), b"state");
        assert_eq!(strip(&[&framed[..], b"rest of a buffer"].concat()).unwrap(), b"state");
        assert_eq!(strip(b"no frame").unwrap(), b"no frame");
        for end in LEN..framed.len() {
            assert!(matches!(strip(&framed[..end]), Err(Error::Seal { .. })), "{end}");
        }
    }

    #[test]
    fn a_frame_with_a_changed_bit_tells_nothing() {
        for bit in 0..8 * LEN {
            let mut framed = framed();
            framed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(length(&framed), None, "bit {bit}");
        }
    }
}
