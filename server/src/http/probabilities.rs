//! Log-probabilities as llama-server tells them.

use backstitch_models::Token;
use backstitch_models::sampler::Logprob;
use backstitch_models::session::TokenLogprobs;
use backstitch_models::vocab::Vocab;
use serde_json::{Value, json};

/// Return tokens with their probabilities and the likeliest ones beside them. `is_sampled`: these
/// are probabilities after the samplers, not logarithms of the model's own.
pub fn probabilities_json(vocab: &Vocab, logprobs: &[TokenLogprobs], is_sampled: bool) -> Value {
    let of_token = |entry: &TokenLogprobs| {
        let mut json = one(vocab, entry.token, entry.logprob, is_sampled);
        let listed = |top: &&Logprob| !is_sampled || top.logprob > f64::NEG_INFINITY;
        let top = entry.top.iter().filter(listed);
        let top: Vec<_> = top.map(|top| one(vocab, top.token, Some(top.logprob), is_sampled)).collect();
        json[if is_sampled { "top_probs" } else { "top_logprobs" }] = top.into();
        json
    };
    logprobs.iter().map(of_token).collect()
}

/// Return the bytes that a generated token adds to the text: none if it ends it.
pub(crate) fn generated_piece(vocab: &Vocab, token: Token) -> &[u8] {
    if vocab.is_eog(token) { &[] } else { vocab.piece(token) }
}

/// Return a token with its probability.
fn one(vocab: &Vocab, token: Token, logprob: Option<f64>, is_sampled: bool) -> Value {
    let piece = generated_piece(vocab, token);
    // JSON has no infinities.
    let logprob = logprob.unwrap_or(0.0).max(f64::from(f32::MIN));
    let (name, value) = if is_sampled { ("prob", logprob.exp()) } else { ("logprob", logprob) };
    json!({
        "id": token.0,
        "token": whole_characters(piece),
        "bytes": piece,
        name: value,
    })
}

/// Return the text of `piece` up to its first incomplete character.
fn whole_characters(piece: &[u8]) -> &str {
    match core::str::from_utf8(piece) {
        Ok(text) => text,
        Err(error) => {
            core::str::from_utf8(piece.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
    }
}
