//! Vocabularies.

use crate::arguments::{Tokens, numbers, parse_special, token, write_special};
use backstitch_models::Model;
use backstitch_models::vocab::AddSpecial;
use pyo3::prelude::*;
use std::borrow::Cow;

/// The tokens of a model, and its tokeniser.
#[pyclass(frozen, module = "backstitch")]
pub struct Vocab {
    /// The model, which shares it.
    pub model: Model,
}

impl Vocab {
    fn inner(&self) -> &backstitch_models::vocab::Vocab {
        self.model.vocab()
    }

    fn bytes(&self, tokens: &Tokens, write_special: bool) -> Vec<u8> {
        self.inner().detokenize(&tokens.0, self::write_special(write_special))
    }
}

#[pymethods]
impl Vocab {
    /// Return the tokens of a text.
    ///
    /// `add_special` adds the tokens that the model wants at the beginning and the end of a whole
    /// text. `parse_special` turns control tokens that are written out in the text into those
    /// tokens, which steer the model: use it only for text whose every byte is trusted.
    #[pyo3(signature = (text, *, add_special=true, parse_special=false))]
    fn tokenize(&self, py: Python<'_>, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
        let add = if add_special { AddSpecial::Yes } else { AddSpecial::No };
        let parse = self::parse_special(parse_special);
        py.detach(|| {
            let mut tokens = Vec::new();
            self.inner().tokenize(text, add, parse, &mut tokens);
            numbers(&tokens)
        })
    }

    /// Return the text of tokens. Bytes that are no whole character become U+FFFD.
    #[pyo3(signature = (tokens, *, write_special=false))]
    fn detokenize(&self, py: Python<'_>, tokens: Tokens, write_special: bool) -> String {
        py.detach(|| String::from_utf8_lossy(&self.bytes(&tokens, write_special)).into_owned())
    }

    /// Return the text of tokens as the bytes that they stand for.
    #[pyo3(signature = (tokens, *, write_special=false))]
    fn detokenize_bytes(&self, py: Python<'_>, tokens: Tokens, write_special: bool) -> Cow<'static, [u8]> {
        py.detach(|| self.bytes(&tokens, write_special)).into()
    }

    /// Return the bytes that a token stands for; none past the end of the vocabulary.
    fn piece(&self, py: Python<'_>, token: i64) -> PyResult<&[u8]> {
        Ok(self.inner().piece(self::token(py, token)?))
    }

    /// Return the first token that the model file writes as `text`.
    fn find(&self, text: &str) -> Option<u32> {
        self.inner().find(text.as_bytes()).map(|token| token.0)
    }

    /// Return true if a token ends a generation.
    fn is_eog(&self, py: Python<'_>, token: i64) -> PyResult<bool> {
        Ok(self.inner().is_eog(self::token(py, token)?))
    }

    /// All tokens that end a generation.
    #[getter]
    fn eog(&self) -> Vec<u32> {
        numbers(self.inner().eog())
    }

    /// The beginning-of-sequence token.
    #[getter]
    fn bos(&self) -> Option<u32> {
        self.inner().bos().map(|token| token.0)
    }

    /// The end-of-sequence token.
    #[getter]
    fn eos(&self) -> Option<u32> {
        self.inner().eos().map(|token| token.0)
    }

    fn __len__(&self) -> usize {
        self.inner().n_vocab()
    }

    fn __repr__(&self) -> String {
        format!("<backstitch.Vocab of {} tokens>", self.inner().n_vocab())
    }
}
