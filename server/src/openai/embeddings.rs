//! `/v1/embeddings`: vectors of texts.

use crate::http::{ApiError, Body, Client, Ready, blocking, write_json};
use crate::native;
use crate::params::{Fields, read_prompts};
use axum::response::Response;
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Norm, normalize};
use serde_json::{Value, json};

/// The alphabet of Base64.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Return the embeddings of texts, one vector each.
pub(super) async fn embed(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    let fields = Fields::new(&body);
    let name = fields.first(&["input", "content"]).ok_or_else(|| ApiError::missing("input"))?;
    let is_base64 = match fields.str("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::field("encoding_format", "\"float\" or \"base64\"")),
    };
    let n_embd = app.summary().n_embd;
    let n_dims = match fields.u64("dimensions")? {
        None => n_embd,
        Some(n) if (1..=n_embd as u64).contains(&n) => n as usize,
        Some(_) => return Err(ApiError::field("dimensions", &format!("a whole number from 1 to {n_embd}"))),
    };
    let (shared, class) = (app.clone(), body.class());
    let read =
        move |client: &Client| read_prompts(&shared, client, Fields::new(&body), name, AddSpecial::Yes);
    let inputs = blocking(&client, class, read).await?;
    let n_tokens: usize = inputs.iter().map(Vec::len).sum();
    let embeddings = native::embed(&app, inputs, Some(Norm::Euclidean)).await?;
    if embeddings.iter().any(|embedding| !embedding.is_pooled || embedding.rows.is_empty()) {
        let text = "Pooling type 'none' is not OAI compatible. Please use a different pooling type";
        return Err(ApiError::invalid(text));
    }
    let n_values = native::n_numbers(&embeddings);
    let rows = embeddings.into_iter().flat_map(|embedding| embedding.rows.into_iter().take(1));
    let write = move || {
        let data: Value =
            rows.enumerate().map(|(index, row)| entry(index, shortened(row, n_dims), is_base64)).collect();
        json!({
            "model": app.alias(),
            "object": "list",
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
            "data": data,
        })
        .to_string()
    };
    write_json(&client, n_values, write).await
}

/// Return the entry of a vector.
fn entry(index: usize, row: Vec<f32>, is_base64: bool) -> Value {
    let vector = if is_base64 { base64(&row).into() } else { json!(row) };
    let mut entry = json!({"embedding": vector, "index": index, "object": "embedding"});
    if is_base64 {
        entry["encoding_format"] = "base64".into();
    }
    entry
}

/// Return the first `n` numbers of a vector, normalised again. Models that were trained for it put
/// what matters most there.
fn shortened(mut row: Vec<f32>, n: usize) -> Vec<f32> {
    if n < row.len() {
        row.truncate(n);
        normalize(&mut row, Norm::Euclidean);
    }
    row
}

/// Return the little-endian bytes of `row` in Base64.
fn base64(row: &[f32]) -> String {
    let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = (bits >> (18 - 6 * i)) as usize & 63;
            text.push(if i <= group.len() { char::from(BASE64[digit]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_vectors_have_the_length_one() {
        assert_eq!(shortened(vec![3.0, 4.0, 12.0], 2), [0.6, 0.8]);
        assert_eq!(shortened(vec![3.0, 4.0], 2), [3.0, 4.0]);
    }

    #[test]
    fn vectors_are_written_in_base64() {
        assert_eq!(base64(&[]), "");
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64(&[0.1, 0.2, 0.3]), "zczMPc3MTD6amZk+");
    }
}
