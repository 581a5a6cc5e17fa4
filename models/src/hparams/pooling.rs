//! Pooling: one embedding for a whole text.

use super::reader::Reader;
use crate::error::Error;

/// The way in which the embeddings of a sequence's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Not at all: each token has its own.
    None,
    /// Their mean: the sum in the order of positions, divided by their number.
    Mean,
    /// The first token's, where models with a classification token put that.
    Cls,
    /// The last token's.
    Last,
}

impl Pooling {
    pub(super) fn read(r: &Reader<'_, '_>) -> Result<Self, Error> {
        match r.gguf.keys()?.optional::<u32>("pooling_type")? {
            None | Some(0) => Ok(Pooling::None),
            Some(1) => Ok(Pooling::Mean),
            Some(2) => Ok(Pooling::Cls),
            Some(3) => Ok(Pooling::Last),
            Some(other) => Err(r.invalid(
                "pooling_type",
                other,
                "0 for none, 1 for the mean, 2 for the first or 3 for the last token",
            )),
        }
    }
}
