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
        let Some(end) = bytes.windows(MAGIC.len()).rposition(|window| window == MAGIC) else {
            return Ok((bytes, None));
        };
        let what = "it was damaged or changed since it was saved";
        let (body, seal) = bytes.get(..end).and_then(Seal::open).ok_or(Error::Seal { what })?;
        Ok((body, Some(seal)))
    }

    /// Return the bytes before a seal, and the seal; none if it was damaged. `sealed` ends where
    /// its last eight bytes begin.
    fn open(sealed: &[u8]) -> Option<(&[u8], Seal)> {
        let (front, sum) = sealed.split_last_chunk()?;
        if XxHash3_64::oneshot(front).to_le_bytes() != *sum {
            return None;
        }
        let (front, fingerprint) = front.split_last_chunk()?;
        let (front, content) = front.split_last_chunk()?;
        let (front, n_tokens) = front.split_last_chunk()?;
        let n_bytes = (u32::from_le_bytes(*n_tokens) as usize).checked_mul(4)?;
        let (body, tokens) = front.split_at(front.len().checked_sub(n_bytes)?);
        let tokens = tokens.as_chunks().0.iter().map(|token| u32::from_le_bytes(*token)).collect();
        let content = if u32::from_le_bytes(*content) == 0 { Content::Llama } else { Content::Own };
        Some((body, Seal { content, fingerprint: *fingerprint, tokens }))
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
