//! `/metrics`: counters for Prometheus, by llama-server's names.

use crate::engine::Counters;
use crate::http::{ApiError, Host};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The first words of the names.
const PREFIX: &str = "llamacpp";

/// Return the counters as text.
pub(super) async fn metrics(State(host): State<Arc<Host>>) -> Result<Response, ApiError> {
    if !host.params().metrics {
        return Err(ApiError::not_supported(
            "This server does not support metrics endpoint. Start it with `--metrics`",
        ));
    }
    // Counters go on through sleep, and a look at them does not wake the model.
    let (counters, started) = (host.counters().await?, host.started());
    let before = host.look(counters);
    let headers = [
        (CONTENT_TYPE.as_str(), "text/plain; version=0.0.4".to_owned()),
        ("Process-Start-Time-Unix", started.to_string()),
    ];
    Ok((headers, text(&counters, &before)).into_response())
}

/// Return a number per second of the time between two looks at it; 0 without any.
fn rate(n: [u64; 2], time: [Duration; 2]) -> f64 {
    let ([n, n_before], [time, time_before]) = (n, time);
    let time = time.saturating_sub(time_before).as_secs_f64();
    if time > 0.0 { n.saturating_sub(n_before) as f64 / time } else { 0.0 }
}

/// Write the counters, with the rates since they were `before`.
fn text(counters: &Counters, before: &Counters) -> String {
    let busy = match counters.n_batches {
        0 => 0.0,
        n => counters.n_slots_in_batches as f64 / n as f64,
    };
    let c = counters;
    let metrics: [(&str, &str, &str, f64); 19] = [
        ("prompt_tokens_total", "counter", "Number of prompt tokens processed.", c.n_prompt as f64),
        ("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused.", c.n_cached as f64),
        ("prompt_seconds_total", "counter", "Prompt process time", c.prompt.as_secs_f64()),
        ("tokens_predicted_total", "counter", "Number of generation tokens processed.", c.n_generated as f64),
        ("tokens_predicted_seconds_total", "counter", "Predict process time", c.generation.as_secs_f64()),
        ("n_decode_total", "counter", "Total number of batches evaluated", c.n_batches as f64),
        ("n_tokens_max", "counter", "Largest observed n_tokens.", c.n_tokens_max as f64),
        ("spec_decode_num_draft_tokens_total", "counter", "Number of tokens drafted.", c.n_drafted as f64),
        (
            "spec_decode_num_accepted_tokens_total",
            "counter",
            "Number of drafted tokens accepted.",
            c.n_accepted as f64,
        ),
        ("spec_decode_num_drafts_total", "counter", "Number of drafts.", c.n_drafts as f64),
        (
            "prompt_tokens_seconds",
            "gauge",
            "Average prompt throughput in tokens/s since the last scrape.",
            rate([c.n_prompt, before.n_prompt], [c.prompt, before.prompt]),
        ),
        (
            "predicted_tokens_seconds",
            "gauge",
            "Average generation throughput in tokens/s since the last scrape.",
            rate([c.n_generated, before.n_generated], [c.generation, before.generation]),
        ),
        ("requests_processing", "gauge", "Number of requests processing.", c.n_processing as f64),
        ("requests_deferred", "gauge", "Number of requests deferred.", c.n_waiting as f64),
        ("n_busy_slots_per_decode", "gauge", "Average number of busy slots per batch", busy),
        (
            "sequences_held",
            "gauge",
            "Number of sequences held beside those processing: --cache-sequences and one for each free slot at most.",
            c.n_held as f64,
        ),
        (
            "sequences_evicted_total",
            "counter",
            "Number of sequences dropped to make room.",
            c.n_evicted as f64,
        ),
        (
            "sequences_unstored_total",
            "counter",
            "Number of parts of sequences that could not be stored.",
            c.n_unstored as f64,
        ),
        (
            "sequences_damaged_total",
            "counter",
            "Number of stored parts of sequences that were found damaged.",
            c.n_damaged as f64,
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in metrics {
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "# HELP {PREFIX}:{name} {help}\n# TYPE {PREFIX}:{name} {kind}\n{PREFIX}:{name} {value}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_help_and_type() {
        let text = text(&Counters::default(), &Counters::default());
        let values = text.lines().filter(|line| !line.starts_with('#'));
        for name in values.map(|line| line.split(' ').next().unwrap()) {
            assert!(text.contains(&format!("# HELP {name} ")) && text.contains(&format!("# TYPE {name} ")));
        }
        assert!(text.contains("llamacpp:n_busy_slots_per_decode 0\n"));
    }

    #[test]
    fn drafts_are_counted() {
        let counters = Counters { n_drafts: 2, n_drafted: 9, n_accepted: 5, ..Counters::default() };
        let text = text(&counters, &counters);
        for line in ["drafts_total 2", "draft_tokens_total 9", "accepted_tokens_total 5"] {
            assert!(text.contains(&format!("llamacpp:spec_decode_num_{line}\n")), "{line}");
        }
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let at = |n_generated, seconds| {
            let generation = Duration::from_secs(seconds);
            Counters { n_generated, generation, ..Counters::default() }
        };
        for (now, before, rate) in
            [(at(8, 2), at(0, 0), 4), (at(8, 2), at(8, 2), 0), (at(14, 4), at(8, 2), 3)]
        {
            assert!(text(&now, &before).contains(&format!("llamacpp:predicted_tokens_seconds {rate}\n")));
        }
    }
}
