//! Prompts: texts, tokens, and lists of both.

use super::fields::Fields;
use crate::http::{ApiError, App};
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use serde_json::Value;

/// The most prompts of one request.
const MAX_PROMPTS: usize = 256;

/// Return the tokens of a text, in which control tokens count as such.
pub fn tokenize(app: &App, text: &str, add: AddSpecial) -> Vec<Token> {
    let mut tokens = Vec::new();
    app.vocab().tokenize(text, add, ParseSpecial::Yes, &mut tokens);
    tokens
}

/// Read the prompts in a field: a text, a list of tokens, a list of texts and tokens that make one
/// prompt, an object with a `prompt_string`, or a list of any of these that makes several prompts.
///
/// # Errors
/// - [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) if the field is missing or anything
///   else, and for tokens that do not exist.
/// - [`ErrorKind::NotSupported`](crate::http::ErrorKind::NotSupported) for images and sounds.
pub fn read_prompts(app: &App, fields: Fields<'_>, name: &str) -> Result<Vec<Vec<Token>>, ApiError> {
    let value = fields.get(name).ok_or_else(|| ApiError::missing(name))?;
    let reader = Reader { app, name };
    let Value::Array(items) = value else { return Ok(vec![reader.prompt(value)?]) };
    // Numbers at the top level make one prompt, also between texts.
    if items.iter().any(Value::is_number) {
        return Ok(vec![reader.prompt(value)?]);
    }
    match items.len() {
        0 => Err(ApiError::field(name, "a string or a list of tokens that is not empty")),
        n if n > MAX_PROMPTS => Err(ApiError::field(name, &format!("at most {MAX_PROMPTS} prompts"))),
        _ => items.iter().map(|item| reader.prompt(item)).collect(),
    }
}

/// Reads the prompts of one field.
struct Reader<'a> {
    app: &'a App,
    name: &'a str,
}

impl Reader<'_> {
    fn wrong(&self) -> ApiError {
        ApiError::field(self.name, "a string, a list of tokens, or a list of these")
    }

    /// Read one prompt.
    fn prompt(&self, value: &Value) -> Result<Vec<Token>, ApiError> {
        match value {
            Value::String(text) => Ok(tokenize(self.app, text, AddSpecial::Yes)),
            Value::Array(items) => self.mixed(items),
            Value::Object(object) if object.contains_key("multimodal_data") => {
                Err(ApiError::not_supported("this model reads text only: leave \"multimodal_data\" out"))
            }
            Value::Object(object) => match object.get("prompt_string") {
                Some(Value::String(text)) => Ok(tokenize(self.app, text, AddSpecial::Yes)),
                _ => Err(self.wrong()),
            },
            _ => Err(self.wrong()),
        }
    }

    /// Read a list of tokens and texts. Only a text at the beginning gets the token that begins a
    /// sequence.
    fn mixed(&self, items: &[Value]) -> Result<Vec<Token>, ApiError> {
        let mut tokens = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item {
                Value::String(text) => {
                    let add = if i == 0 { AddSpecial::Yes } else { AddSpecial::No };
                    self.app.vocab().tokenize(text, add, ParseSpecial::Yes, &mut tokens);
                }
                item => tokens.push(token(self.app, item).ok_or_else(|| self.no_token(item))?),
            }
        }
        Ok(tokens)
    }

    fn no_token(&self, item: &Value) -> ApiError {
        let n_vocab = self.app.vocab().n_vocab();
        match item.is_number() {
            true => {
                ApiError::field(self.name, &format!("made of tokens from 0 to {}, not {item}", n_vocab - 1))
            }
            false => self.wrong(),
        }
    }
}

/// Return the token that a number stands for.
pub(crate) fn token(app: &App, value: &Value) -> Option<Token> {
    let id = u32::try_from(value.as_u64()?).ok()?;
    ((id as usize) < app.vocab().n_vocab()).then_some(Token(id))
}
