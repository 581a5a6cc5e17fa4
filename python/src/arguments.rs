//! Arguments as Python programs give them.

use crate::errors::argument;
use backstitch_models::chat::Value;
use backstitch_models::vocab::{ParseSpecial, WriteSpecial};
use backstitch_models::{Error, Session, Token};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;

/// A text, or its tokens.
pub enum Prompt {
    Text(String),
    Tokens(Tokens),
}

impl<'py> FromPyObject<'_, 'py> for Prompt {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyString>() {
            Ok(text) => text.extract().map(Prompt::Text),
            Err(_) => object.extract().map(Prompt::Tokens),
        }
    }
}

/// Tokens, each an integer of 32 bits.
pub struct Tokens(pub Vec<Token>);

impl<'py> FromPyObject<'_, 'py> for Tokens {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let numbers: Vec<i64> = object.extract()?;
        let tokens = numbers.into_iter().map(|number| token(object.py(), number));
        tokens.collect::<PyResult<_>>().map(Tokens)
    }
}

impl Prompt {
    /// Return the tokens that continue the current branch of `session`.
    pub fn tokens_behind(self, session: &Session, parse: ParseSpecial) -> Vec<Token> {
        match self {
            Prompt::Text(text) => session.tokenize_behind(&text, parse),
            Prompt::Tokens(Tokens(tokens)) => tokens,
        }
    }

    /// Return the tokens of a whole sequence.
    pub fn tokens(self, session: &Session, parse: ParseSpecial) -> Vec<Token> {
        match self {
            Prompt::Text(text) => session.tokenize(&text, parse),
            Prompt::Tokens(Tokens(tokens)) => tokens,
        }
    }
}

/// Return the token of a number.
///
/// # Errors
/// `ArgumentError` if no vocabulary can have it.
pub fn token(py: Python<'_>, number: i64) -> PyResult<Token> {
    u32::try_from(number)
        .map(Token)
        .map_err(|_| argument(py, format_args!("{number} is no token; tokens are numbers from 0 on")))
}

/// Return the number that a caller gives as `name`. Python's integers have no bounds, so it comes
/// here in a type that has room for almost any: those of the machine would raise `OverflowError`.
///
/// # Errors
/// `ArgumentError` if it is out of range.
pub fn number<T: TryFrom<i128>>(py: Python<'_>, name: &str, number: i128) -> PyResult<T> {
    number.try_into().map_err(|_| argument(py, format_args!("{name} is {number}, which is out of range")))
}

/// Return the number that a caller gives as `name`; none for -1, as llama.cpp writes it.
///
/// # Errors
/// `ArgumentError` if it is out of range.
pub fn number_or_none<T: TryFrom<i128>>(py: Python<'_>, name: &str, number: i128) -> PyResult<Option<T>> {
    if number == -1 { Ok(None) } else { self::number(py, name, number).map(Some) }
}

/// Return tokens as Python's integers.
pub fn numbers(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

/// Return the choice to parse control tokens in a text.
pub fn parse_special(yes: bool) -> ParseSpecial {
    if yes { ParseSpecial::Yes } else { ParseSpecial::No }
}

/// Return the choice to write control tokens out.
pub fn write_special(yes: bool) -> WriteSpecial {
    if yes { WriteSpecial::Yes } else { WriteSpecial::No }
}

/// Return a value of Python as one of chat templates, by way of JSON.
///
/// # Errors
/// Those of `json.dumps`.
pub fn value(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    use crate::errors::OrRaise;
    Value::from_json(&json(object)?).or_raise(object.py())
}

/// Return a value of Python as JSON; a string counts as JSON already.
///
/// # Errors
/// Those of `json.dumps`.
pub fn json_text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    object.extract().or_else(|_| json(object))
}

fn json(object: &Bound<'_, PyAny>) -> PyResult<String> {
    object.py().import("json")?.call_method1("dumps", (object,))?.extract()
}

/// Return the items of a list of values.
///
/// # Errors
/// `ArgumentError` if it is none; those of [`value`].
pub fn values(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<Value>> {
    match value(object)? {
        Value::List(items) => Ok(items),
        _ => Err(argument(object.py(), format_args!("{what} must be a list"))),
    }
}

/// A path of a file: a string, bytes or an `os.PathLike`.
pub type FilePath = PathBuf;

/// Return the position of a number.
///
/// # Errors
/// [`Error::FuturePosition`] if no sequence of this length can be.
pub fn position(pos: i64, end: i32) -> Result<backstitch_models::Pos, Error> {
    let pos = i32::try_from(pos).map_err(|_| Error::FuturePosition { pos: i32::MAX, end })?;
    Ok(backstitch_models::Pos(pos))
}
