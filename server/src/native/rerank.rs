//! `/rerank`: documents in the order of their relevance to a query.

use super::embedding::embed;
use crate::http::{ApiError, App, Body, Client, Ready, blocking};
use crate::params::{Fields, tokenize};
use axum::Json;
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Norm, Token};
use serde_json::{Value, json};

/// The most documents of a request.
const MAX_DOCUMENTS: usize = 4096;

/// Score documents by the cosine between their embedding and that of the query, the best first.
///
/// Jina's shape has `documents` and answers with `results`; that of text-embeddings-inference has
/// `texts` and answers with a list.
pub(super) async fn rerank(Ready(app): Ready, client: Client, body: Body) -> Result<Json<Value>, ApiError> {
    let (shared, class) = (app.clone(), body.class());
    let Ranking { inputs, top_n, is_tei, texts } =
        blocking(&client, class, move |client| Ranking::read(&shared, client, Fields::new(&body))).await?;
    let embeddings = embed(&app, inputs, Some(Norm::Euclidean)).await?;
    let n_tokens: usize = embeddings.iter().map(|embedding| embedding.n_tokens).sum();
    let rows: Option<Vec<_>> = embeddings.iter().map(|embedding| embedding.rows.first()).collect();
    let is_pooled = embeddings.iter().all(|embedding| embedding.is_pooled);
    let Some((query, rows)) = rows.as_deref().and_then(|rows| rows.split_first()).filter(|_| is_pooled)
    else {
        return Err(ApiError::invalid(
            "texts have no embedding without pooling; start with `--pooling mean`",
        ));
    };
    let mut scores: Vec<(usize, f64)> = rows.iter().map(|row| dot(query, row)).enumerate().collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores.truncate(top_n);
    let entry = |&(index, score): &(usize, f64)| {
        let mut entry = json!({"index": index, if is_tei { "score" } else { "relevance_score" }: score});
        match texts.get(index) {
            Some(text) if is_tei => entry["text"] = text.as_str().into(),
            Some(text) => entry["document"] = json!({"text": text}),
            None => {}
        }
        entry
    };
    let results: Value = scores.iter().map(entry).collect();
    if is_tei {
        return Ok(Json(results));
    }
    Ok(Json(json!({
        "model": app.alias(),
        "object": "list",
        "usage": { "prompt_tokens": n_tokens, "total_tokens": n_tokens },
        "results": results,
    })))
}

/// A query and documents to rank for it.
struct Ranking {
    /// The tokens of the query, then those of the documents.
    inputs: Vec<Vec<Token>>,
    /// The most documents to name.
    top_n: usize,
    /// The answer has the shape of text-embeddings-inference instead of Jina's.
    is_tei: bool,
    /// The texts of the documents, if the answer repeats them.
    texts: Vec<String>,
}

impl Ranking {
    fn read(app: &App, client: &Client, fields: Fields<'_>) -> Result<Self, ApiError> {
        if !app.params().reranking {
            return Err(ApiError::not_supported(
                "This server does not support reranking. Start it with `--reranking`",
            ));
        }
        let is_tei = fields.has("texts");
        let name = if is_tei { "texts" } else { "documents" };
        let query = fields.str("query")?.ok_or_else(|| ApiError::missing("query"))?;
        let documents = fields.array(name)?.ok_or_else(|| ApiError::missing(name))?;
        let documents: Option<Vec<&str>> = documents.iter().map(text_of).collect();
        let documents = documents.unwrap_or_default();
        if !(1..=MAX_DOCUMENTS).contains(&documents.len()) {
            let wanted = "a list of 1 to 4096 strings, or of objects with a \"text\"";
            return Err(ApiError::field(name, wanted));
        }
        let top_n = fields.u64("top_n")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let texts = std::iter::once(query).chain(documents.iter().copied());
        let inputs = texts.map(|text| tokenize(app, client, text, AddSpecial::Yes));
        let inputs = inputs.collect::<Result<_, _>>()?;
        let returns = fields.bool(if is_tei { "return_text" } else { "return_documents" })?.unwrap_or(false);
        let texts = documents.into_iter().filter(|_| returns).map(str::to_owned).collect();
        Ok(Ranking { inputs, top_n, is_tei, texts })
    }
}

/// Return the text of a document: a string, or Jina's object.
fn text_of(document: &Value) -> Option<&str> {
    document.as_str().or_else(|| document.get("text")?.as_str())
}

/// Return the inner product, summed in double precision in order.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
