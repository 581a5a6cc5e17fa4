//! Files with the probabilities that a base model gives to a text, in the layout of llama.cpp's
//! `llama-perplexity --kl-divergence-base`.
//!
//! All numbers are little-endian: `_logits_`, then 32-bit the tokens of a window, the tokens of the
//! vocabulary, and the number of windows; the tokens of all windows, 32-bit; then for each scored
//! token two 32-bit floats, a scale and the least logarithm of a probability, and for each token of
//! the vocabulary its logarithm above the least one, in 16 bits and units of the scale. An odd
//! vocabulary is filled up with one more number. The scored tokens are those of
//! [`Windows`](super::Windows) without a stride.

use alloc::vec::Vec;

use backstitch_kv::Token;
use backstitch_kv::io::{self, Read, Write};

use super::score::Row;

const MAGIC: [u8; 8] = *b"_logits_";
/// The most tokens of all windows together: far more than any evaluation takes.
const MAX_TOKENS: u64 = 1 << 26;
/// The range of logarithms that is stored; tokens below it count as its lower end.
const RANGE: f32 = 16.0;

/// The reason why a file of probabilities cannot be used.
///
/// # Example
/// ```
/// use backstitch_models::judge::{BaseError, BaseReader};
///
/// let found = BaseReader::new(&b"no such file"[..], 100);
/// assert!(matches!(found.err(), Some(BaseError::Magic)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaseError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file ends early.
    #[error("the file of probabilities ends early; write it again")]
    End,
    /// The file does not begin as such files do.
    #[error("this is not a file of probabilities; write one with --kl-divergence-base")]
    Magic,
    /// The vocabulary has another size than the model's.
    #[error(
        "the probabilities are of a vocabulary of {found} tokens, and the model has {wanted}; compare models \
         with the same vocabulary"
    )]
    Vocab {
        /// The size in the file.
        found: u32,
        /// The size of the model's vocabulary.
        wanted: usize,
    },
    /// The windows have a size or a number that no evaluation has.
    #[error("the file has {n} windows of {n_ctx} tokens, which no evaluation has")]
    Windows {
        /// The tokens of a window.
        n_ctx: u32,
        /// The number of windows.
        n: u32,
    },
    /// A token is not in the vocabulary.
    #[error("token {index} of the file is {found}, which is not in the vocabulary")]
    Token {
        /// The index of the token in the file.
        index: usize,
        /// The token.
        found: u32,
    },
    /// A scale or a least logarithm is not a number that can be.
    #[error("row {index} of the file has a scale that is not a number")]
    Row {
        /// The index of the row in the file.
        index: u64,
    },
    /// The allocator refused memory.
    #[error("out of memory: {n_bytes} bytes for the probabilities")]
    OutOfMemory {
        /// The number of bytes asked for.
        n_bytes: u64,
    },
}

/// Return the bytes of a row.
fn row_bytes(n_vocab: usize) -> usize {
    2 * (2 * n_vocab.div_ceil(2) + 4)
}

/// A writer of the probabilities of a base model.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::judge::{BaseReader, BaseWriter, Row};
///
/// let (mut file, tokens) = (Vec::new(), [Token(0), Token(1), Token(0), Token(1)]);
/// let mut writer = BaseWriter::new(&mut file, &tokens, 4, 2)?;
/// writer.row(&Row::new(&[0.0, 1.0], Token(1)))?;
/// let mut reader = BaseReader::new(file.as_slice(), 2)?;
/// assert_eq!((reader.n_ctx(), reader.tokens()), (4, &tokens[..]));
/// let p: f32 = reader.row()?.iter().map(|log| log.exp()).sum();
/// assert!((p - 1.0).abs() < 1e-4);
/// # Ok::<(), backstitch_models::judge::BaseError>(())
/// ```
#[derive(Debug)]
pub struct BaseWriter<W> {
    out: W,
    n_vocab: usize,
    /// The bytes of a row, kept from row to row.
    bytes: Vec<u8>,
}

impl<W: Write> BaseWriter<W> {
    /// Begin a file of the windows of `n_ctx` tokens that `tokens` consist of.
    ///
    /// # Errors
    /// [`BaseError::Windows`] if the numbers exceed what such a file may have; [`BaseError::Io`].
    pub fn new(mut out: W, tokens: &[Token], n_ctx: usize, n_vocab: usize) -> Result<Self, BaseError> {
        let n = tokens.len() / n_ctx.max(1);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        if tokens.len() as u64 > MAX_TOKENS || n_ctx < 4 {
            return Err(BaseError::Windows { n_ctx: number(n_ctx), n: number(n) });
        }
        out.write_all(&MAGIC)?;
        for n in [n_ctx, n_vocab, n] {
            out.write_all(&number(n).to_le_bytes())?;
        }
        for token in tokens.iter().take(n * n_ctx) {
            out.write_all(&token.0.to_le_bytes())?;
        }
        Ok(Self { out, n_vocab, bytes: Vec::new() })
    }

    /// Write the probabilities of the next scored token.
    ///
    /// # Errors
    /// [`BaseError::Io`].
    pub fn row(&mut self, row: &Row<'_>) -> Result<(), BaseError> {
        let least = row.logits.iter().copied().fold(row.max, f32::min).max(row.max - RANGE);
        let scale = (row.max - least) / f32::from(u16::MAX);
        let least_log = least - row.max - row.log_sum as f32;
        self.bytes.clear();
        self.bytes.extend(scale.to_le_bytes());
        self.bytes.extend(least_log.to_le_bytes());
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        for &logit in row.logits.iter().take(self.n_vocab) {
            // The cast saturates, also for logits that are not numbers.
            let steps = libm::rintf(inverse * (logit - least)) as u16;
            self.bytes.extend(steps.to_le_bytes());
        }
        self.bytes.resize(row_bytes(self.n_vocab), 0);
        Ok(self.out.write_all(&self.bytes)?)
    }
}

/// A reader of the probabilities that a [`BaseWriter`] or llama.cpp wrote. The file is not trusted.
///
/// # Example
/// See [`BaseWriter`].
#[derive(Debug)]
pub struct BaseReader<R> {
    input: R,
    n_ctx: usize,
    n_vocab: usize,
    tokens: Vec<Token>,
    n_rows: u64,
    bytes: Vec<u8>,
    logs: Vec<f32>,
}

impl<R: Read> BaseReader<R> {
    /// Read the beginning of a file about a vocabulary of `n_vocab` tokens.
    ///
    /// # Errors
    /// [`BaseError::Magic`] for another kind of file; [`BaseError::Vocab`],
    /// [`BaseError::Windows`] or [`BaseError::Token`] if its numbers do not fit;
    /// [`BaseError::End`], [`BaseError::Io`], [`BaseError::OutOfMemory`].
    pub fn new(mut input: R, n_vocab: usize) -> Result<Self, BaseError> {
        let mut magic = [0; 8];
        read_exact(&mut input, &mut magic).map_err(|_| BaseError::Magic)?;
        if magic != MAGIC {
            return Err(BaseError::Magic);
        }
        let (n_ctx, found, n) = (number(&mut input)?, number(&mut input)?, number(&mut input)?);
        if found as usize != n_vocab {
            return Err(BaseError::Vocab { found, wanted: n_vocab });
        }
        let n_tokens = u64::from(n_ctx) * u64::from(n);
        if n_ctx < 4 || n == 0 || n_tokens > MAX_TOKENS {
            return Err(BaseError::Windows { n_ctx, n });
        }
        let mut tokens: Vec<Token> = Vec::new();
        for index in 0..n_tokens as usize {
            let found = number(&mut input)?;
            if found as usize >= n_vocab {
                return Err(BaseError::Token { index, found });
            }
            tokens.try_reserve(1).map_err(|_| BaseError::OutOfMemory { n_bytes: 4 * n_tokens })?;
            tokens.push(Token(found));
        }
        let (mut bytes, mut logs) = (Vec::new(), Vec::new());
        let n_bytes = row_bytes(n_vocab);
        let refused = BaseError::OutOfMemory { n_bytes: 3 * n_bytes as u64 };
        if bytes.try_reserve_exact(n_bytes).is_err() || logs.try_reserve_exact(n_vocab).is_err() {
            return Err(refused);
        }
        bytes.resize(n_bytes, 0);
        Ok(Self { input, n_ctx: n_ctx as usize, n_vocab, tokens, n_rows: 0, bytes, logs })
    }

    /// Return the tokens of a window.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Return the tokens of all windows.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Read the natural logarithms of the probabilities of the next scored token.
    ///
    /// # Errors
    /// [`BaseError::Row`] if they are not numbers; [`BaseError::End`] or [`BaseError::Io`].
    pub fn row(&mut self) -> Result<&[f32], BaseError> {
        read_exact(&mut self.input, &mut self.bytes)?;
        let index = self.n_rows;
        self.n_rows += 1;
        let (head, steps) = self.bytes.split_at_checked(8).ok_or(BaseError::Row { index })?;
        let &[a, b, c, d, e, f, g, h] = head else { return Err(BaseError::Row { index }) };
        let (scale, least) = (f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]));
        if !(scale.is_finite() && scale >= 0.0 && least.is_finite()) {
            return Err(BaseError::Row { index });
        }
        self.logs.clear();
        let steps = steps.as_chunks::<2>().0.iter().take(self.n_vocab);
        self.logs.extend(steps.map(|&step| scale * f32::from(u16::from_le_bytes(step)) + least));
        Ok(&self.logs)
    }
}

/// Fill `bytes`; the end of the file before that is an error.
fn read_exact(input: &mut dyn Read, mut bytes: &mut [u8]) -> Result<(), BaseError> {
    while !bytes.is_empty() {
        let n = input.read(bytes)?;
        if n == 0 {
            return Err(BaseError::End);
        }
        bytes = bytes.get_mut(n..).unwrap_or_default();
    }
    Ok(())
}

fn number(input: &mut dyn Read) -> Result<u32, BaseError> {
    let mut bytes = [0; 4];
    read_exact(input, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(logits: &[f32]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = BaseWriter::new(&mut file, &[Token(0); 5], 4, logits.len()).unwrap();
        writer.row(&Row::new(logits, Token(0))).unwrap();
        file
    }

    #[test]
    fn the_layout_is_that_of_llama_cpp() {
        let file = file(&[0.0, 0.0, 0.0]);
        assert_eq!(file.len(), 8 + 12 + 4 * 4 + 2 * (4 + 4));
        assert_eq!(&file[..20], b"_logits_\x04\0\0\0\x03\0\0\0\x01\0\0\0");
        let log = f32::from_le_bytes(file[40..44].try_into().unwrap());
        assert!((log + 3f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = file(&[0.0, 1.0]);
        for n in 0..whole.len() {
            let result = BaseReader::new(&whole[..n], 2).and_then(|mut reader| reader.row().map(drop));
            assert!(result.is_err(), "{n}");
        }
        let with = |at: usize, byte: u8| {
            let mut file = whole.clone();
            file[at] = byte;
            BaseReader::new(file.as_slice(), 2).and_then(|mut reader| reader.row().map(drop)).unwrap_err()
        };
        assert!(matches!(with(0, 0), BaseError::Magic));
        assert!(matches!(with(8, 3), BaseError::Windows { n_ctx: 3, n: 1 }));
        assert!(matches!(with(19, 0xff), BaseError::Windows { .. }));
        assert!(matches!(with(12, 3), BaseError::Vocab { found: 3, wanted: 2 }));
        assert!(matches!(with(20, 2), BaseError::Token { index: 0, found: 2 }));
        assert!(matches!(with(39, 0xff), BaseError::Row { index: 0 }));
    }

    proptest! {
        #[test]
        fn probabilities_come_back(logits in proptest::collection::vec(-9f32..9.0, 1..20)) {
            let file = file(&logits);
            let row = Row::new(&logits, Token(0));
            let mut reader = BaseReader::new(file.as_slice(), logits.len()).unwrap();
            for (log, logit) in reader.row().unwrap().iter().zip(&logits) {
                let wanted = (logit - row.max).max(-RANGE) - row.log_sum as f32;
                prop_assert!((log - wanted).abs() < 2e-4);
            }
        }
    }
}
