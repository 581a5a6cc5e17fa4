//! `/tokenize` and `/detokenize`: the vocabulary.

use crate::http::{ApiError, App, Body, Ready, blocking};
use crate::params::{Fields, token};
use axum::Json;
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, WriteSpecial};
use serde_json::{Value, json};

/// The most tokens to turn into text.
const MAX_TOKENS: usize = 1 << 20;

/// Return the tokens of a text, or of a list of texts and tokens.
pub(super) async fn tokenize(Ready(app): Ready, Body(body): Body) -> Result<Json<Value>, ApiError> {
    blocking(move || tokens_of(&app, Fields::new(&body)).map(Json)).await
}

fn tokens_of(app: &App, fields: Fields<'_>) -> Result<Value, ApiError> {
    let vocab = app.vocab();
    let add = if fields.bool("add_special")?.unwrap_or(false) { AddSpecial::Yes } else { AddSpecial::No };
    let parse =
        if fields.bool("parse_special")?.unwrap_or(true) { ParseSpecial::Yes } else { ParseSpecial::No };
    let mut tokens = Vec::new();
    match fields.get("content") {
        None => {}
        Some(Value::String(text)) => vocab.tokenize(text, add, parse, &mut tokens),
        Some(Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                let add = if i == 0 { add } else { AddSpecial::No };
                match item {
                    Value::String(text) => vocab.tokenize(text, add, parse, &mut tokens),
                    item => tokens.push(token(app, item).ok_or_else(wrong_content)?),
                }
            }
        }
        Some(_) => return Err(wrong_content()),
    }
    let with_pieces = fields.bool("with_pieces")?.unwrap_or(false);
    let of_token = |token: &Token| match with_pieces {
        false => json!(token.0),
        true => {
            let piece = vocab.piece(*token);
            // A piece may be a part of a character.
            let text = core::str::from_utf8(piece).map_or_else(|_| json!(piece), |text| json!(text));
            json!({"id": token.0, "piece": text})
        }
    };
    Ok(json!({"tokens": tokens.iter().map(of_token).collect::<Vec<_>>()}))
}

fn wrong_content() -> ApiError {
    ApiError::field("content", "a string, or a list of strings and tokens")
}

/// Return the text of tokens.
pub(super) async fn detokenize(Ready(app): Ready, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let items = Fields::new(&body).array("tokens")?.unwrap_or_default();
    if items.len() > MAX_TOKENS {
        return Err(ApiError::field("tokens", "a list of at most 1048576 tokens"));
    }
    let tokens: Option<Vec<Token>> = items.iter().map(|item| token(&app, item)).collect();
    let tokens = tokens.ok_or_else(|| {
        ApiError::field("tokens", &format!("a list of tokens from 0 to {}", app.vocab().n_vocab() - 1))
    })?;
    let bytes = app.vocab().detokenize(&tokens, WriteSpecial::Yes);
    Ok(Json(json!({"content": String::from_utf8_lossy(&bytes)})))
}
