//! Pooling: one embedding for a whole text.

use super::reader::Reader;
use crate::error::Error;

/// The way in which the embeddings of a sequence's tokens become one.
///
/// # Example
/// ```
/// use backstitch_models::{Params, Pooling};
///
/// let params = Params::default().pooling(Some(Pooling::Mean)); // whatever the model says
/// assert_eq!(params.pooling, Some(Pooling::Mean));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// No pooling: each token keeps its own embedding.
    None,
    /// The mean: the sum in the order of positions, divided by the number of tokens.
    Mean,
    /// The embedding of the first token, where models with a classification token put that.
    Cls,
    /// The embedding of the last token.
    Last,
}

impl Pooling {
    /// Read the method of the file; [`Pooling::None`] if it states none.
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
