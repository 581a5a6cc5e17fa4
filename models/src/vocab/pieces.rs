//! The bytes that tokens stand for.

use alloc::vec::Vec;
use backstitch_kv::Token;

use super::error::VocabError;
use super::reserve::{try_reserve, try_with_capacity};

/// The bytes that each token of a vocabulary stands for, in one allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    /// The bytes of all tokens, one token after the other.
    bytes: Vec<u8>,
    /// The end in `bytes` of each token.
    ends: Vec<u32>,
}

impl Pieces {
    /// Make an empty list with capacity for `n` tokens.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn with_capacity(n: usize) -> Result<Self, VocabError> {
        Ok(Self { bytes: Vec::new(), ends: try_with_capacity(n)? })
    }

    /// Add the next token. `write` appends its bytes, at most `n_bytes`.
    ///
    /// # Errors
    /// `TooLarge` beyond 4 GiB of bytes, `OutOfMemory`.
    pub(super) fn push(
        &mut self,
        n_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), VocabError> {
        try_reserve(&mut self.bytes, n_bytes)?;
        write(&mut self.bytes);
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.map_err(|_| VocabError::TooLarge { what: "the pieces of tokens" })?);
        Ok(())
    }

    /// Return the number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Return the bytes of `token`; empty past the end of the vocabulary.
    pub(super) fn of(&self, token: Token) -> &[u8] {
        let i = token.0 as usize;
        let start = i.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |&end| end as usize);
        let end = self.ends.get(i).map_or(0, |&end| end as usize);
        self.bytes.get(start..end).unwrap_or(&[])
    }
}
