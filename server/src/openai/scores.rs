//! Log-probabilities of completions, as OpenAI's first interface told them.

use backstitch_models::session::TokenLogprobs;
use backstitch_models::vocab::{Vocab, WriteSpecial};
use serde_json::{Map, Value, json};

/// Return the tokens of a prompt and those generated behind it with their log-probabilities: lists
/// of texts, of log-probabilities (null for a token that nothing predicts), of the likeliest tokens
/// by their text, and of the offsets of the texts in characters, which begin at `offset`. A token
/// that ends the text has none.
pub(super) fn scores_json(
    vocab: &Vocab,
    prompt: &[TokenLogprobs],
    generated: &[TokenLogprobs],
    mut offset: usize,
) -> Value {
    let text = |token| String::from_utf8_lossy(&vocab.detokenize(&[token], WriteSpecial::Yes)).into_owned();
    let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
    let (mut top, mut offsets) = (Vec::new(), Vec::new());
    let ends = |score: &TokenLogprobs| vocab.is_eog(score.token);
    let prompt = prompt.iter().map(|score| (score, text(score.token)));
    let generated = generated.iter();
    let generated =
        generated.map(|score| (score, if ends(score) { String::new() } else { text(score.token) }));
    for (score, token) in prompt.chain(generated) {
        offsets.push(offset);
        offset += token.chars().count();
        logprobs.push(score.logprob.map(finite));
        let mut likeliest = Map::new();
        for entry in &score.top {
            // Of tokens with the same text the likeliest counts, which comes first.
            likeliest.entry(text(entry.token)).or_insert_with(|| finite(entry.logprob).into());
        }
        if let Some(logprob) = score.logprob {
            // The token itself is always in the list.
            likeliest.entry(token.clone()).or_insert_with(|| finite(logprob).into());
        }
        // An empty object for the first token: clients' types allow no null there.
        top.push(Value::Object(likeliest));
        tokens.push(token);
    }
    json!({"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
}

/// Return a number that JSON can write.
fn finite(logprob: f64) -> f64 {
    logprob.max(f64::from(f32::MIN))
}
