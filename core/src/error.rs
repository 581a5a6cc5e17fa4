//! Errors of this crate: shapes, lengths and types that do not fit.

use core::fmt;

/// The reason why a call was refused. Nothing was written when one of these comes back, unless the
/// function says otherwise.
///
/// `what` names the argument as a person would, `found` is what it has and `wanted` what it needs,
/// so a message can be shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Two things that must agree in shape do not; shapes are outermost first, `[rows, columns]`.
    Shape {
        /// Which argument.
        what: &'static str,
        /// The shape it has.
        found: [usize; 2],
        /// The shape it needs.
        wanted: [usize; 2],
    },
    /// A slice is too short or too long.
    Length {
        /// Which argument.
        what: &'static str,
        /// The length it has.
        found: usize,
        /// The length it needs.
        wanted: usize,
    },
    /// A length is not a whole number of blocks.
    Ragged {
        /// Which argument.
        what: &'static str,
        /// The length it has.
        found: usize,
        /// The length of one block.
        block: usize,
    },
    /// The element type cannot do this.
    Unsupported {
        /// The operation asked for.
        op: &'static str,
        /// The name of the type.
        dtype: &'static str,
    },
    /// The element type is encoded only where an importance matrix says which errors matter.
    NeedsImportance {
        /// The name of the type.
        dtype: &'static str,
    },
    /// Bytes do not begin at an address that vectors are loaded from.
    Alignment {
        /// Which argument.
        what: &'static str,
        /// The address must be a multiple of this.
        wanted: usize,
    },
    /// An entry of a block table names a block that the cache does not have.
    Block {
        /// The block.
        found: u32,
        /// Blocks of the cache.
        n_blocks: usize,
    },
    /// A pool of that many threads cannot be had.
    Threads {
        /// The number asked for.
        found: usize,
        /// The number that can be had.
        most: usize,
    },
    /// A job on the thread pool panicked; what it was to write is half written.
    Panicked,
}

/// A job panicked; what it was to write is half written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a job panicked; its output is incomplete")
    }
}

impl core::error::Error for Panicked {}

impl From<Panicked> for Error {
    fn from(_: Panicked) -> Self {
        Error::Panicked
    }
}

/// Return how many rows of `width` elements `len` elements are; none unless that is a whole number.
///
/// No elements are no rows, of any width.
pub(crate) const fn whole_rows(len: usize, width: usize) -> Option<usize> {
    match (len, width) {
        (0, _) => Some(0),
        (_, 0) => None,
        _ if len.is_multiple_of(width) => Some(len / width),
        _ => None,
    }
}

/// Check a length: [`Error::Length`] unless `found` is `wanted`.
pub(crate) fn length(what: &'static str, found: usize, wanted: usize) -> Result<(), Error> {
    if found == wanted { Ok(()) } else { Err(Error::Length { what, found, wanted }) }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Shape { what, found: [r, c], wanted: [wr, wc] } => {
                write!(f, "{what} has shape [{r}, {c}], but [{wr}, {wc}] is needed")
            }
            Error::Length { what, found, wanted } => {
                write!(f, "{what} has length {found}, but {wanted} is needed")
            }
            Error::Ragged { what, found, block } => {
                write!(f, "{what} has length {found}, which is no multiple of the block length {block}")
            }
            Error::Unsupported { op, dtype } => {
                write!(f, "{op} is not supported for {dtype}; convert the data to another type")
            }
            Error::NeedsImportance { dtype } => {
                write!(f, "{dtype} has too few bits to be encoded without an importance matrix; give one")
            }
            Error::Alignment { what, wanted } => {
                write!(f, "{what} does not start at a multiple of {wanted} bytes; copy it to aligned memory")
            }
            Error::Block { found, n_blocks } => {
                write!(
                    f,
                    "block {found} is named, but the cache has {n_blocks}; give the cache that the table is of"
                )
            }
            Error::Threads { found, most } => {
                write!(f, "no pool of {found} threads can be had, but one of 1 to {most}")
            }
            Error::Panicked => Panicked.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn errors_name_what_was_found_and_what_was_wanted() {
        let cases = [
            (
                Error::Shape { what: "weight", found: [2, 3], wanted: [2, 4] },
                "weight has shape [2, 3], but [2, 4] is needed",
            ),
            (Error::Length { what: "bytes", found: 7, wanted: 18 }, "bytes has length 7, but 18 is needed"),
            (
                Error::Ragged { what: "row", found: 33, block: 32 },
                "row has length 33, which is no multiple of the block length 32",
            ),
            (
                Error::Unsupported { op: "decode", dtype: "I8" },
                "decode is not supported for I8; convert the data to another type",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<Error>() <= 56);
    }
}
