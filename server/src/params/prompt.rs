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
/// prompt, an object with one of these as its `prompt_string`, an object whose `content` is a list
/// of texts as messages have them, or a list of any of these that makes several prompts. A text
/// that begins a prompt gets the special tokens of `add`.
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
    add: AddSpecial,
) -> Result<Vec<Vec<Token>>, ApiError> {
    let value = fields.get(name).ok_or_else(|| ApiError::missing(name))?;
    let reader = Reader { app, client, name, add };
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
    add: AddSpecial,
}

impl Reader<'_> {
    fn wrong(&self) -> ApiError {
        ApiError::field(self.name, "a string, a list of tokens, or a list of these")
    }

    /// Read one prompt.
    fn prompt(&self, value: &Value) -> Result<Vec<Token>, ApiError> {
        let Value::Object(object) = value else { return self.mixed(value) };
        if object.contains_key("multimodal_data") {
            let text = "this model reads text only: leave \"multimodal_data\" out";
            return Err(ApiError::not_supported(text));
        }
        match (object.get("prompt_string"), object.get("content")) {
            (Some(prompt), _) => self.mixed(prompt),
            (None, Some(Value::Array(parts))) if !parts.is_empty() => {
                let texts: Result<String, ApiError> = parts.iter().map(|part| self.text_of(part)).collect();
                tokenize(self.app, self.client, &texts?, self.add)
            }
            _ => Err(self.wrong()),
        }
    }

    /// Return the text of a part of a message's content.
    fn text_of<'v>(&self, part: &'v Value) -> Result<&'v str, ApiError> {
        match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => Ok(text),
            (Some("text"), None) => {
                Err(ApiError::field(&format!("{}.content[].text", self.name), "a string"))
            }
            (Some(kind), _) => {
                let text = format!("this model reads text only, no \"content\" of the type {kind:?}");
                Err(ApiError::not_supported(text))
            }
            (None, _) => Err(ApiError::field(&format!("{}.content[].type", self.name), "\"text\"")),
        }
    }

    /// Read a text, or a list of tokens and texts, which are one text together: special tokens
    /// stand before a text at the beginning and behind one at the end.
    fn mixed(&self, value: &Value) -> Result<Vec<Token>, ApiError> {
        let items = match value {
            Value::String(text) => return tokenize(self.app, self.client, text, self.add),
            Value::Array(items) => items,
            _ => return Err(self.wrong()),
        };
        let n_ctx = self.app.summary().n_ctx as usize;
        let mut tokens = Vec::with_capacity(items.len().min(n_ctx));
        for (i, item) in items.iter().enumerate() {
            match item {
                Value::String(_) if tokens.len() > n_ctx => {
                    return Err(ApiError::far_too_long(tokens.len(), n_ctx));
                }
                Value::String(text) => {
                    let add =
                        if i == 0 && self.add != AddSpecial::No { AddSpecial::Start } else { AddSpecial::No };
                    append(self.app, self.client, text, add, &mut tokens)?;
                }
                item => tokens.push(token(self.app, item).ok_or_else(|| self.no_token(item))?),
            }
        }
        let vocab = self.app.vocab();
        let is_whole = self.add == AddSpecial::Yes && items.last().is_some_and(Value::is_string);
        tokens.extend(vocab.eos().filter(|_| is_whole && vocab.adds_eos()));
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
