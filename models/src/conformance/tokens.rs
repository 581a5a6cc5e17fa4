//! The table form of tokenizer cases.
//!
//! Five columns divided by tabs: the text, its tokens, its tokens with special ones recognised, the same between the
//! tokens that the model wants around a text, the bytes of the second column turned back into text, and those of the
//! third with special tokens written out. Texts are hexadecimal, tokens decimal and divided by spaces.

use super::golden::Malformed;
use alloc::vec::Vec;

/// One text and what a tokenizer should make of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCase {
    /// The line in the file, counted from 1.
    pub line: usize,
    /// UTF-8.
    pub text: Vec<u8>,
    /// Special tokens in the text are ordinary text.
    pub plain: Vec<u32>,
    /// Special tokens in the text are recognised.
    pub special: Vec<u32>,
    /// As `special`, with the tokens before and after a text.
    pub whole: Vec<u32>,
    /// `plain` as bytes.
    pub plain_bytes: Vec<u8>,
    /// `special` as bytes, special tokens written out.
    pub special_bytes: Vec<u8>,
}

/// Reads a whole table.
///
/// # Errors
/// [`Malformed`] for the first line that does not follow the format.
pub fn parse(table: &str) -> Result<Vec<TokenCase>, Malformed> {
    table
        .lines()
        .zip(1..)
        .map(|(text, line)| row(text, line).ok_or(Malformed { line, wanted: COLUMNS }))
        .collect()
}

const COLUMNS: &str =
    "six columns divided by tabs: hexadecimal text, three lists of tokens, twice hexadecimal text";

fn row(text: &str, line: usize) -> Option<TokenCase> {
    let mut columns = text.split('\t');
    let mut next = || columns.next();
    let case = TokenCase {
        line,
        text: bytes(next()?)?,
        plain: tokens(next()?)?,
        special: tokens(next()?)?,
        whole: tokens(next()?)?,
        plain_bytes: bytes(next()?)?,
        special_bytes: bytes(next()?)?,
    };
    next().is_none().then_some(case)
}

fn tokens(words: &str) -> Option<Vec<u32>> {
    words.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// Bytes written as pairs of hexadecimal digits.
pub(super) fn bytes(hex: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let digit = |c: u8| char::from(c).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? * 16 + digit(low)?).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_row_is_read_column_by_column() {
        let case = TokenCase {
            line: 1,
            text: vec![0x20, 0xff],
            plain: vec![1, 2],
            special: vec![3],
            whole: vec![],
            plain_bytes: vec![],
            special_bytes: vec![0],
        };
        assert_eq!(parse("20fF\t1 2\t3\t\t\t00\n"), Ok(vec![case]));
    }

    #[test]
    fn wrong_rows_are_named() {
        let good = "\t\t\t\t\t";
        for wrong in [
            "",
            "\t\t\t\t",
            "\t\t\t\t\t\t",
            "2\t\t\t\t\t",
            "zz\t\t\t\t\t",
            "é\t\t\t\t\t",
            "\t-1\t\t\t\t",
            "\tx\t\t\t\t",
        ] {
            let table = alloc::format!("{good}\n{wrong}\n");
            assert_eq!(parse(&table).map_err(|e| e.line), Err(2), "{wrong:?}");
        }
    }
}
