//! `/tokenize`, `/detokenize` and `/tokenizer_info`: the vocabulary, for clients of llama-server
//! and of vLLM.

use crate::http::{ApiError, App, Body, Host, Ready, blocking};
use crate::params::{Fields, token};
use axum::Json;
use axum::extract::State;
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, WriteSpecial};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most tokens to turn into text.
const MAX_TOKENS: usize = 1 << 20;

/// Return the tokens of a text, or of a list of texts and tokens.
pub(super) async fn tokenize(Ready(app): Ready, Body(body): Body) -> Result<Json<Value>, ApiError> {
    blocking(move || tokens_of(&app, Fields::new(&body)).map(Json)).await
}

/// Return the tokens of `content`, or of vLLM's `prompt`, which is a text that begins a sequence
/// unless the request says otherwise.
fn tokens_of(app: &App, fields: Fields<'_>) -> Result<Value, ApiError> {
    let name = fields.first(&["content", "prompt"]).unwrap_or("content");
    let adds = match fields.first(&["add_special", "add_special_tokens"]) {
        Some(name) => fields.bool(name)?.unwrap_or(false),
        None => name == "prompt",
    };
    let parses = fields.bool("parse_special")?.unwrap_or(true);
    let add = if adds { AddSpecial::Yes } else { AddSpecial::No };
    let parse = if parses { ParseSpecial::Yes } else { ParseSpecial::No };
    let (vocab, mut tokens) = (app.vocab(), Vec::new());
    match fields.get(name) {
        None => {}
        Some(Value::String(text)) => vocab.tokenize(text, add, parse, &mut tokens),
        Some(Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                let add = if i == 0 { add } else { AddSpecial::No };
                match item {
                    Value::String(text) => vocab.tokenize(text, add, parse, &mut tokens),
                    item => tokens.push(token(app, item).ok_or_else(|| wrong_text(name))?),
                }
            }
        }
        Some(_) => return Err(wrong_text(name)),
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
    Ok(json!({
        "tokens": tokens.iter().map(of_token).collect::<Vec<_>>(),
        "count": tokens.len(),
        "max_model_len": app.summary().n_ctx,
    }))
}

fn wrong_text(name: &str) -> ApiError {
    ApiError::field(name, "a string, or a list of strings and tokens")
}

/// Return what clients of vLLM need to know of the vocabulary.
pub(super) async fn info(State(host): State<Arc<Host>>) -> Json<Value> {
    let summary = host.summary();
    let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    Json(json!({
        "tokenizer_class": "gguf",
        "bos_token": text(&summary.bos),
        "eos_token": text(&summary.eos),
        "chat_template": summary.template,
    }))
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
    let text = String::from_utf8_lossy(&bytes);
    // vLLM has another name for it.
    Ok(Json(json!({"content": text, "prompt": text})))
}
