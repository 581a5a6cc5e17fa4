//! Prompts: texts, tokens, and lists of both.

use super::fields::Fields;
use crate::http::{ApiError, App, Client, ErrorKind};
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, TokenizeError};
use serde_json::Value;

/// The most prompts of one request.
const MAX_PROMPTS: usize = 256;

/// Return the tokens of a text, in which control tokens count as such.
///
/// # Errors
/// [`ErrorKind::TooLong`] for a text that is far longer than the context.
pub fn tokenize(app: &App, client: &Client, text: &str, add: AddSpecial) -> Result<Vec<Token>, ApiError> {
    let mut tokens = Vec::new();
    append(app, client, text, add, &mut tokens)?;
    Ok(tokens)
}

/// Append the tokens of a text to those before it.
fn append(
    app: &App,
    client: &Client,
    text: &str,
    add: AddSpecial,
    tokens: &mut Vec<Token>,
) -> Result<(), ApiError> {
    let (whole, most) = (0..text.len(), app.summary().n_ctx as usize);
    let trusted = core::slice::from_ref(&whole);
    Ok(app.vocab().tokenize_at_most(text, trusted, add, most, client.cancel(), tokens)?)
}

impl From<TokenizeError> for ApiError {
    fn from(error: TokenizeError) -> Self {
        match error {
            TokenizeError::TooMany { at_least, most } => ApiError::far_too_long(at_least, most),
            _ => ApiError::new(ErrorKind::Unavailable, error.to_string()),
        }
    }
}

/// Read the prompts in a field: a text, a list of tokens, a list of texts and tokens that make one
/// prompt, an object with a `prompt_string`, or a list of any of these that makes several prompts.
///
/// # Errors
/// - [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) if the field is missing or anything
///   else, and for tokens that do not exist.
/// - [`ErrorKind::TooLong`] for a prompt that is far longer than the context.
/// - [`ErrorKind::NotSupported`](crate::http::ErrorKind::NotSupported) for images and sounds.
pub fn read_prompts(
    app: &App,
    client: &Client,
    fields: Fields<'_>,
    name: &str,
) -> Result<Vec<Vec<Token>>, ApiError> {
    let value = fields.get(name).ok_or_else(|| ApiError::missing(name))?;
    let reader = Reader { app, client, name };
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
    client: &'a Client,
    name: &'a str,
}

impl Reader<'_> {
    fn wrong(&self) -> ApiError {
        ApiError::field(self.name, "a string, a list of tokens, or a list of these")
    }

    /// Read one prompt.
    fn prompt(&self, value: &Value) -> Result<Vec<Token>, ApiError> {
        match value {
            Value::String(text) => tokenize(self.app, self.client, text, AddSpecial::Yes),
            Value::Array(items) => self.mixed(items),
            Value::Object(object) if object.contains_key("multimodal_data") => {
                Err(ApiError::not_supported("this model reads text only: leave \"multimodal_data\" out"))
            }
            Value::Object(object) => match object.get("prompt_string") {
                Some(Value::String(text)) => tokenize(self.app, self.client, text, AddSpecial::Yes),
                _ => Err(self.wrong()),
            },
            _ => Err(self.wrong()),
        }
    }

    /// Read a list of tokens and texts. Only a text at the beginning gets the token that begins a
    /// sequence.
    fn mixed(&self, items: &[Value]) -> Result<Vec<Token>, ApiError> {
        let n_ctx = self.app.summary().n_ctx as usize;
        let mut tokens = Vec::with_capacity(items.len().min(n_ctx));
        for (i, item) in items.iter().enumerate() {
            if tokens.len() > n_ctx {
                return Err(ApiError::far_too_long(tokens.len(), n_ctx));
            }
            match item {
                Value::String(text) => {
                    let add = if i == 0 { AddSpecial::Yes } else { AddSpecial::No };
                    append(self.app, self.client, text, add, &mut tokens)?;
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
