//! The table form of tokeniser cases.
//!
//! A row has six columns divided by tabs. Texts are hexadecimal, tokens are decimal and divided by
//! spaces:
//!
//! 1. The text.
//! 2. Its tokens.
//! 3. Its tokens with special tokens recognised.
//! 4. Those between the tokens that the model wants around a text.
//! 5. The text of the second column's tokens.
//! 6. The text of the third column's tokens, with special tokens written out.

use super::golden::Malformed;
use alloc::vec::Vec;

/// One text, and the expected results of a tokeniser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCase {
    /// The line in the file, counted from 1.
    pub line: usize,
    /// The text, in UTF-8.
    pub text: Vec<u8>,
    /// The tokens, with special tokens in the text as ordinary text.
    pub plain: Vec<u32>,
    /// The tokens, with special tokens in the text recognised.
    pub special: Vec<u32>,
    /// The tokens of `special`, with those before and after a text.
    pub whole: Vec<u32>,
    /// The text of `plain`.
    pub plain_bytes: Vec<u8>,
    /// The text of `special`, with special tokens written out.
    pub special_bytes: Vec<u8>,
}

/// Parse a whole table.
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

/// The columns of a row, for errors.
const COLUMNS: &str =
    "six columns divided by tabs: hexadecimal text, three lists of tokens, twice hexadecimal text";

/// Parse a row.
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

/// Parse tokens.
fn tokens(words: &str) -> Option<Vec<u32>> {
    words.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// Parse bytes from pairs of hexadecimal digits.
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
