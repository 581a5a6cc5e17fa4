//! `/tokenize`, `/detokenize` and `/tokenizer_info`: the vocabulary, for clients of llama-server
//! and of vLLM.

use crate::conversation::{Request, render};
use crate::http::{ApiError, App, Body, Client, Host, Ready, blocking, json_list, json_text};
use crate::params::{Fields, token};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, TokenizeError, WriteSpecial};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most tokens of a text, and the most to turn into one.
const MAX_TOKENS: usize = 1 << 20;

/// Return the tokens of a text, of a list of texts and tokens, or of a conversation.
pub(super) async fn tokenize(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    let text = blocking(&client, body.class(), move |client| {
        let fields = Fields::new(&body);
        let tokens = match fields.first(&["content", "prompt", "messages"]) {
            Some("messages") => render(&app, client, Request::from_chat(&body)?)?.tokens,
            name => tokens_of(&app, client, fields, name.unwrap_or("content"))?,
        };
        if tokens.len() > MAX_TOKENS {
            return Err(too_many(tokens.len()));
        }
        let with_pieces = fields.bool("with_pieces")?.unwrap_or(false);
        let of_token = |token: &Token| if with_pieces { piece(&app, *token) } else { token.0.to_string() };
        // As values, tokens would take many times the memory.
        let (count, listed) = (tokens.len(), json_list(tokens.iter().map(of_token)));
        let n_ctx = app.summary().n_ctx;
        Ok(format!("{{\"tokens\":{listed},\"count\":{count},\"max_model_len\":{n_ctx}}}"))
    });
    Ok(json_text(text.await?))
}

/// Return a token with its text; with its bytes if that is a part of a character.
fn piece(app: &App, token: Token) -> String {
    let piece = app.vocab().piece(token);
    let text = core::str::from_utf8(piece).map_or_else(|_| json!(piece), |text| json!(text));
    format!("{{\"id\":{},\"piece\":{text}}}", token.0)
}

/// Return the tokens of `content`, or of vLLM's `prompt`, which is a text that begins a sequence
/// unless the request says otherwise.
fn tokens_of(app: &App, client: &Client, fields: Fields<'_>, name: &str) -> Result<Vec<Token>, ApiError> {
    let adds = match fields.first(&["add_special", "add_special_tokens"]) {
        Some(name) => fields.bool(name)?.unwrap_or(false),
        None => name == "prompt",
    };
    let parses = fields.bool("parse_special")?.unwrap_or(true);
    let add = if adds { AddSpecial::Yes } else { AddSpecial::No };
    let mut tokens = Vec::new();
    let append = |text: &str, add, tokens: &mut Vec<Token>| {
        let whole = 0..text.len();
        let trusted = if parses { core::slice::from_ref(&whole) } else { &[] };
        // The limit is one of all items together.
        let n_before = tokens.len();
        let most = MAX_TOKENS.saturating_sub(n_before);
        let appended = app.vocab().tokenize_at_most(text, trusted, add, most, client.cancel(), tokens);
        appended.map_err(|error| match error {
            TokenizeError::TooMany { at_least, .. } => too_many(n_before.saturating_add(at_least)),
            error => error.into(),
        })
    };
    match fields.get(name) {
        None => {}
        Some(Value::String(text)) => append(text, add, &mut tokens)?,
        Some(Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                let add = if i == 0 { add } else { AddSpecial::No };
                match item {
                    Value::String(text) => append(text, add, &mut tokens)?,
                    item => tokens.push(token(app, item).ok_or_else(|| wrong_text(name))?),
                }
            }
        }
        Some(_) => return Err(wrong_text(name)),
    }
    Ok(tokens)
}

/// Make the error about a text of `n` tokens, or more than these.
fn too_many(n: usize) -> ApiError {
    ApiError::invalid(format!("a text of {n} tokens is longer than {MAX_TOKENS}"))
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
pub(super) async fn detokenize(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    let text = blocking(&client, body.class(), move |_| text_of(&app, Fields::new(&body)));
    Ok(json_text(text.await?))
}

/// Return the answer with the text of the tokens in a body.
fn text_of(app: &App, fields: Fields<'_>) -> Result<String, ApiError> {
    let items = fields.array("tokens")?.unwrap_or_default();
    if items.len() > MAX_TOKENS {
        return Err(ApiError::field("tokens", "a list of at most 1048576 tokens"));
    }
    let wrong = |i| {
        let wanted = format!("a token from 0 to {}", app.vocab().n_vocab().saturating_sub(1));
        ApiError::field(&format!("tokens[{i}]"), &wanted)
    };
    let tokens = items.iter().enumerate().map(|(i, item)| token(app, item).ok_or_else(|| wrong(i)));
    let tokens: Vec<Token> = tokens.collect::<Result<_, _>>()?;
    let bytes = app.vocab().detokenize(&tokens, WriteSpecial::Yes);
    let text = String::from_utf8_lossy(&bytes);
    // vLLM has another name for it.
    Ok(json!({"content": text, "prompt": text}).to_string())
}
