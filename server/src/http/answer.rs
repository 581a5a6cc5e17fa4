//! Parts of answers that all interfaces have: counts, times, and the account of what was reused.

use crate::engine::{Ended, Reuse, Timings};
use serde_json::{Value, json};
use std::time::Duration;

/// Return a time in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Divide, and return 0 instead of what JSON cannot write.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Return counts and times as llama-server tells them. The first token costs no step of its own, so
/// the speed of generation is that of the others.
pub fn timings_json(timings: &Timings) -> Value {
    let (prompt_ms, predicted_ms) = (millis(timings.prompt), millis(timings.generation));
    let n_prompt = timings.n_prompt as f64;
    let n_steps = timings.n_generated.saturating_sub(1) as f64;
    let step_ms = if n_steps > 0.0 { predicted_ms } else { 0.0 };
    let mut json = json!({
        "cache_n": timings.n_cached,
        "prompt_n": timings.n_prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": ratio(prompt_ms, n_prompt),
        "prompt_per_second": ratio(n_prompt * 1e3, prompt_ms),
        "predicted_n": timings.n_generated,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": ratio(step_ms, n_steps),
        "predicted_per_second": ratio(n_steps * 1e3, step_ms),
    });
    if timings.n_drafted > 0 {
        json["draft_n"] = timings.n_drafted.into();
        json["draft_n_accepted"] = timings.n_accepted.into();
    }
    json
}

/// Return the account of what was reused of a prompt, and why no more, with the parts of the
/// request that do nothing.
pub fn account_json(reuse: &Reuse, ignored: &[String]) -> Value {
    let mut account = json!({
        "reused": reuse.n_reused,
        "replayed": reuse.n_replayed,
        "reevaluated": reuse.n_reevaluated,
        "first_differing_token": reuse.first_difference,
        "from_disk": reuse.n_from_disk,
        "why": reuse.limit.as_str(),
        "seq": reuse.seq,
    });
    if !ignored.is_empty() {
        account["ignored"] = ignored.into();
    }
    account
}

/// Return the numbers of tokens as OpenAI tells them.
pub fn usage_json(ended: &Ended) -> Value {
    let (n_prompt, n_generated) = (ended.n_prompt, ended.timings.n_generated);
    json!({
        "completion_tokens": n_generated,
        "prompt_tokens": n_prompt,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": { "cached_tokens": ended.timings.n_cached },
    })
}
