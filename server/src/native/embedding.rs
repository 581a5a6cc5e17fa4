//! `/embedding`: vectors of texts.

use crate::engine::Embedding;
use crate::http::{ApiError, App, Body, Ready, blocking};
use crate::params::{Fields, read_prompts};
use axum::Json;
use backstitch_models::{Norm, Token, normalize};
use serde_json::{Value, json};

/// Return the embeddings of texts, each with all of its rows.
pub(super) async fn embeddings(Ready(app): Ready, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let fields = Fields::new(&body);
    let name = fields.first(&["input", "content"]).ok_or_else(|| ApiError::missing("content"))?;
    let norm = read_norm(fields)?;
    let shared = app.clone();
    let inputs = blocking(move || read_prompts(&shared, Fields::new(&body), name)).await?;
    let embeddings = embed(&app, inputs, norm).await?;
    let rows = embeddings
        .iter()
        .enumerate()
        .map(|(index, embedding)| json!({"index": index, "embedding": embedding.rows}));
    Ok(Json(rows.collect()))
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
/// without `--embedding`; those of [`Engine::embed`](crate::engine::Engine::embed).
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
    let adapters = app.adapters().set(&Vec::new())?;
    let mut embeddings = app.engine().embed(inputs, &adapters).await.map_err(|error| match error {
        crate::Error::InputTooLong { n_prompt_tokens, n_ubatch } => {
            let text = format!(
                "input ({n_prompt_tokens} tokens) is too large to process. increase the physical batch \
                 size (current batch size: {n_ubatch})"
            );
            ApiError::from(error).with_message(text, crate::http::ErrorKind::Server)
        }
        error => error.into(),
    })?;
    if let Some(norm) = norm {
        let pooled = embeddings.iter_mut().filter(|embedding| embedding.is_pooled);
        pooled.flat_map(|embedding| &mut embedding.rows).for_each(|row| normalize(row, norm));
    }
    Ok(embeddings)
}
