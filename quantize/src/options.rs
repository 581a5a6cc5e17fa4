//! Options of a quantisation.

use crate::{Error, FileType};
use backstitch_core::DType;
use regex_automata::meta::Regex;

/// The wishes for a quantisation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The mixture of types.
    pub file_type: FileType,
    /// The type of `output.weight`, in place of the mixture's.
    pub output: Option<DType>,
    /// The type of the token embeddings, in place of the mixture's.
    pub token_embedding: Option<DType>,
    /// Types of tensors by their name; the first pattern that matches counts.
    pub tensor_types: Vec<Pattern>,
    /// Give all tensors the type of the mixture, and mix nothing.
    pub pure: bool,
    /// Leave `output.weight` as it is.
    pub keep_output: bool,
    /// Quantise tensors that are quantised already, which makes them worse.
    pub allow_requantize: bool,
}

impl Options {
    /// Return the options for a mixture with nothing else asked for.
    pub const fn new(file_type: FileType) -> Self {
        Self {
            file_type,
            output: None,
            token_embedding: None,
            tensor_types: Vec::new(),
            pure: false,
            keep_output: false,
            allow_requantize: false,
        }
    }
}

/// A type for all tensors whose names match a regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    dtype: DType,
}

/// Most bytes that a compiled pattern may take.
const LARGEST: usize = 1 << 20;

impl Pattern {
    /// Return the pattern: `name` is a regular expression that is searched in the names of tensors.
    ///
    /// # Errors
    /// [`Error::Pattern`] if it is no regular expression, or too large a one.
    pub fn new(name: &str, dtype: DType) -> Result<Self, Error> {
        let config = Regex::config().nfa_size_limit(Some(LARGEST)).hybrid(false);
        let regex = Regex::builder().configure(config).build(name);
        let refused = |error: regex_automata::meta::BuildError| Error::Pattern {
            pattern: name.into(),
            message: std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string),
        };
        Ok(Self { regex: regex.map_err(refused)?, dtype })
    }

    /// Return the type if the pattern is found in the name of a tensor.
    pub fn dtype_of(&self, tensor: &str) -> Option<DType> {
        self.regex.is_match(tensor).then_some(self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_searched_in_names() {
        let pattern = Pattern::new(r"blk\.(0|1)\.ffn", DType::Q8_0).unwrap();
        assert_eq!(pattern.dtype_of("blk.1.ffn_down.weight"), Some(DType::Q8_0));
        assert_eq!(pattern.dtype_of("blk.11.ffn_down.weight"), None);
        assert!(matches!(Pattern::new("(", DType::Q8_0), Err(Error::Pattern { .. })));
        assert!(matches!(Pattern::new("(x{1000}){1000}", DType::Q8_0), Err(Error::Pattern { .. })));
    }
}
