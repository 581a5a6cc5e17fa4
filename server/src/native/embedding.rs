//! `/embedding`: vectors of texts.

use crate::engine::Embedding;
use crate::http::{ApiError, App, Body, Client, Ready, blocking, json_list, write_json};
use crate::params::{Fields, read_prompts};
use axum::response::Response;
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Norm, Pooling, Token, normalize};

/// The most numbers of an answer with the embeddings of single tokens.
const MAX_NUMBERS: usize = 1 << 25;

/// Return the embeddings of texts, each with all of its rows.
pub(super) async fn embeddings(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    let fields = Fields::new(&body);
    let name = fields.first(&["input", "content"]).ok_or_else(|| ApiError::missing("content"))?;
    let norm = read_norm(fields)?;
    let (shared, class) = (app.clone(), body.class());
    let read =
        move |client: &Client| read_prompts(&shared, client, Fields::new(&body), name, AddSpecial::Yes);
    let inputs = blocking(&client, class, read).await?;
    let embeddings = embed(&app, inputs, norm).await?;
    let entry = |(index, embedding): (usize, Embedding)| {
        let rows = serde_json::to_string(&embedding.rows).unwrap_or_default();
        format!("{{\"index\":{index},\"embedding\":{rows}}}")
    };
    let n_values = n_numbers(&embeddings);
    // As values, numbers would take many times the memory.
    let write = move || json_list(embeddings.into_iter().enumerate().map(entry));
    write_json(&client, n_values, write).await
}

/// Return the number of all numbers of embeddings.
pub fn n_numbers(embeddings: &[Embedding]) -> usize {
    embeddings.iter().flat_map(|embedding| &embedding.rows).map(Vec::len).sum()
}

/// Read llama.cpp's number of a norm: -1 for none, 0 for the largest magnitude, p for the p-norm.
fn read_norm(fields: Fields<'_>) -> Result<Option<Norm>, ApiError> {
    match fields.i64("embd_normalize")? {
        None | Some(2) => Ok(Some(Norm::Euclidean)),
        Some(-1) => Ok(None),
        Some(0) => Ok(Some(Norm::MaxAbs)),
        Some(1) => Ok(Some(Norm::Taxicab)),
        Some(p) if (3..=64).contains(&p) => Ok(Some(Norm::P(p as f64))),
        Some(_) => Err(ApiError::field("embd_normalize", "a whole number from -1 to 64")),
    }
}

/// Return the embeddings of inputs. Pooled ones are divided by their norm, if there is one.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::http::ErrorKind::NotSupported) if the server was started
/// without `--embedding`; [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for inputs whose
/// tokens have too many numbers without pooling; those of
/// [`Engine::embed`](crate::engine::Engine::embed).
pub async fn embed(
    app: &App,
    mut inputs: Vec<Vec<Token>>,
    norm: Option<Norm>,
) -> Result<Vec<Embedding>, ApiError> {
    if !app.params().embedding && !app.params().reranking {
        return Err(ApiError::not_supported(
            "This server does not support embeddings. Start it with `--embeddings`",
        ));
    }
    // An empty text is that of a token which stands for nothing.
    let filler = app.vocab().bos().or(app.vocab().eos()).unwrap_or(Token(0));
    inputs.iter_mut().filter(|input| input.is_empty()).for_each(|input| input.push(filler));
    let n_tokens: usize = inputs.iter().map(Vec::len).sum();
    let is_pooled = app.engine().params().context.pooling != Some(Pooling::None);
    if !is_pooled && n_tokens.saturating_mul(app.summary().n_embd) > MAX_NUMBERS {
        let text = "the embeddings of all tokens would have more than";
        return Err(ApiError::invalid(format!("{text} {MAX_NUMBERS} numbers: send fewer texts at a time")));
    }
    let adapters = app.adapters().set(&Vec::new())?;
    let mut embeddings = app.engine().embed(inputs, &adapters).await?;
    if let Some(norm) = norm {
        let pooled = embeddings.iter_mut().filter(|embedding| embedding.is_pooled);
        pooled.flat_map(|embedding| &mut embedding.rows).for_each(|row| normalize(row, norm));
    }
    Ok(embeddings)
}
