//! The seal behind the bytes of a state.
//!
//! Little-endian, from the front: the tokens (u32 each), their number (u32), the kind of content
//! (u32; 0 for llama.cpp's, 1 for Backstitch's), the fingerprint of the model (32 bytes), the XXH3
//! checksum of all bytes before it (u64), and eight bytes that say what this is. llama.cpp stops
//! reading a sequence before it; a whole session it only reads without a seal.

use crate::error::Error;
use twox_hash::XxHash3_64;

/// The last bytes of a seal.
const MAGIC: [u8; 8] = *b"bstSEAL1";
/// The bytes of a seal without tokens.
const LEN: usize = 4 + 4 + 32 + 8 + 8;
/// The first bytes of Backstitch's containers.
const CONTAINER: &[u8] = b"BSTSTATE";

/// Kinds of bytes of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// llama.cpp's bytes.
    Llama,
    /// Backstitch's container.
    Own,
}

/// Content of a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The kind of bytes before it.
    pub content: Content,
    /// The fingerprint of the model.
    pub fingerprint: [u8; 32],
    /// The tokens of the only sequence, if they are known.
    pub tokens: Vec<u32>,
}

/// Return true if bytes begin like a container.
pub fn is_container(bytes: &[u8]) -> bool {
    bytes.starts_with(CONTAINER)
}

impl Seal {
    /// Append the seal to the bytes of a state.
    pub fn append(&self, bytes: &mut Vec<u8>) {
        self.tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes.extend((self.tokens.len() as u32).to_le_bytes());
        bytes.extend(u32::from(self.content == Content::Own).to_le_bytes());
        bytes.extend(self.fingerprint);
        bytes.extend(XxHash3_64::oneshot(bytes).to_le_bytes());
        bytes.extend(MAGIC);
    }

    /// Return the bytes before a seal, and the seal; none if there is none.
    ///
    /// # Errors
    /// [`Error::Seal`] if the bytes are not those that were sealed.
    pub fn split(bytes: &[u8]) -> Result<(&[u8], Option<Seal>), Error> {
        // A program may hand over more bytes than it got.
        let end = match bytes.ends_with(&MAGIC) {
            true => Some(bytes.len()),
            false => {
                bytes.windows(MAGIC.len()).rposition(|window| window == MAGIC).map(|at| at + MAGIC.len())
            }
        };
        let Some(end) = end else { return Ok((bytes, None)) };
        const DAMAGED: Error = Error::Seal { what: "it was damaged or changed since it was saved" };
        let sealed = bytes.get(..end).unwrap_or_default();
        let fixed = sealed.len().checked_sub(LEN).ok_or(DAMAGED)?;
        let (front, back) = sealed.split_at(fixed);
        let word =
            |at: usize| back.get(at..at + 4).and_then(|b| Some(u32::from_le_bytes(b.try_into().ok()?)));
        let sum =
            back.get(40..48).and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?))).ok_or(DAMAGED)?;
        if XxHash3_64::oneshot(sealed.get(..end - 16).unwrap_or_default()) != sum {
            return Err(DAMAGED);
        }
        let n_tokens = word(0).ok_or(DAMAGED)? as usize;
        let start = n_tokens.checked_mul(4).and_then(|n| front.len().checked_sub(n)).ok_or(DAMAGED)?;
        let (body, tokens) = front.split_at(start);
        let tokens = tokens.chunks_exact(4).filter_map(|b| Some(u32::from_le_bytes(b.try_into().ok()?)));
        let content = if word(4) == Some(0) { Content::Llama } else { Content::Own };
        let fingerprint = back.get(8..40).and_then(|b| b.try_into().ok()).ok_or(DAMAGED)?;
        Ok((body, Some(Seal { content, fingerprint, tokens: tokens.collect() })))
    }

    /// Check that the state belongs to the model with this fingerprint.
    ///
    /// # Errors
    /// [`Error::Seal`].
    pub fn check(&self, fingerprint: &[u8; 32]) -> Result<(), Error> {
        match self.fingerprint == *fingerprint {
            true => Ok(()),
            false => Err(Error::Seal { what: "it belongs to another model" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> (Vec<u8>, Seal) {
        let seal = Seal { content: Content::Llama, fingerprint: [7; 32], tokens: vec![1, 2, 3] };
        let mut bytes = b"a state".to_vec();
        seal.append(&mut bytes);
        (bytes, seal)
    }

    #[test]
    fn every_flipped_bit_is_noticed_or_leaves_no_seal() {
        let (bytes, seal) = sealed();
        assert_eq!(Seal::split(&bytes).unwrap(), (&b"a state"[..], Some(seal)));
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match Seal::split(&damaged) {
                Err(Error::Seal { .. }) => {}
                // Without the last bytes nothing is a seal; the state's own reader then finds bytes
                // behind its end.
                Ok((body, None)) => assert_eq!(body.len(), bytes.len(), "{bit}"),
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_buffer_may_be_longer_than_the_state() {
        let (mut bytes, seal) = sealed();
        bytes.extend([0; 100]);
        assert_eq!(Seal::split(&bytes).unwrap().1, Some(seal));
    }
}
