//! The report of a benchmark, as a table or as lines of JSON.
//!
//! Figures are only formatted here; `measure` takes them and `limits` says what the machine could
//! do at most. Rows have the names that llama-bench gives them ("pp512"), so that the two can be
//! read side by side.

use super::limits::Limits;
use super::measure::{AtDepth, Measurement, joined};
use crate::args::BenchArgs;
use crate::output::counted;
use serde_json::{Value, json};

/// All measurements of a model, and the machine on which they were taken.
pub struct Report {
    /// Name of the model's file.
    pub model: String,
    /// Name of the processor.
    pub cpu: String,
    /// Name of the kernel set that computed.
    pub kernel_set: &'static str,
    /// Share of the machine that other programs used meanwhile; none if it is unknown.
    pub foreign: Option<f64>,
    /// Measurements for each number of threads, in the order of `-t`.
    pub runs: Vec<Run>,
}

/// The measurements with one number of threads.
pub struct Run {
    /// Number of threads of the pool, the caller among them.
    pub n_threads: u32,
    /// Seconds to load the model and to make the context.
    pub load_s: f64,
    /// Limits of the machine with as many threads.
    pub limits: Limits,
    /// Measurements at each depth, in the order of `--depth`.
    pub depths: Vec<AtDepth>,
    /// Peak resident memory of the process after the measurements, in MiB; none if it is unknown.
    pub peak_rss_mib: Option<f64>,
}

impl Report {
    /// Return the lines of JSON, one for each combination of threads, depth, prompt and generation.
    pub fn json(&self, args: &BenchArgs) -> Vec<Value> {
        let mut lines = Vec::new();
        for run in &self.runs {
            for at in &run.depths {
                for prompt in &at.prompts {
                    lines.extend(at.generations.iter().map(|generation| {
                        let mut line = self.common(args, run, at.depth);
                        line.extend(pair(run, prompt, generation));
                        Value::from(line)
                    }));
                }
            }
        }
        lines
    }

    /// Return the fields that do not depend on prompt and generation.
    fn common(&self, args: &BenchArgs, run: &Run, depth: u32) -> serde_json::Map<String, Value> {
        object(json!({
            "model": self.model,
            "cpu": self.cpu,
            "kernel_set": self.kernel_set,
            "threads": run.n_threads,
            "depth": depth,
            "seqs": args.seqs,
            "repetitions": args.repetitions,
            "load_s": rounded(run.load_s, 10_000.0),
            "peak_rss_mib": run.peak_rss_mib.map(|mib| rounded(mib, 10.0)),
            "foreign": self.foreign.map(|share| rounded(share, 1000.0)),
        }))
    }

    /// Return the names and values above the table.
    pub fn head(&self) -> Vec<(&'static str, String)> {
        let row = |name: &'static str, value: String| (name, value);
        let mut rows = vec![
            row("model", self.model.clone()),
            row("processor", self.cpu.clone()),
            row("kernels", self.kernel_set.into()),
        ];
        rows.extend(self.runs.first().map(|run| row("load", format!("{:.3} s", run.load_s))));
        for run in &self.runs {
            let read = run.limits.read.map_or("unknown".into(), |gb| format!("{gb:.1} GB/s read"));
            let ops = run.all().next().map_or(0.0, |found| run.limits.ops(&found.work));
            let threads = counted(run.n_threads as usize, "thread");
            rows.push(row("limits", format!("{threads}: {read}, {ops:.0} GOP/s multiplied")));
        }
        let peak = self.runs.last().and_then(|run| run.peak_rss_mib);
        rows.push(row("peak memory", peak.map_or("unknown".into(), |mib| format!("{mib:.1} MiB"))));
        let allocs = self.runs.iter().flat_map(Run::all).map(|found| found.allocs_per_token);
        rows.push(row("allocations", format!("{} a token", allocs.fold(0.0, f64::max))));
        let hashes = self.runs.iter().flat_map(Run::all).map(|found| found.logits_hash);
        rows.push(row("logits", format!("{:016x}", joined(hashes))));
        rows
    }

    /// Return the table: a heading, and a row for each measurement.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let heading = ["test", "threads", "tokens/s", "min - max", "GB/s", "of limit", "GOP/s", "of limit"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for run in &self.runs {
            for at in &run.depths {
                let prompts = at.prompts.iter().map(|found| row("pp", run, at.depth, found));
                let generations = at.generations.iter().map(|found| row("tg", run, at.depth, found));
                rows.extend(prompts.chain(generations));
            }
        }
        rows
    }
}

impl Run {
    /// Iterate over all measurements, in the order in which they were taken.
    fn all(&self) -> impl Iterator<Item = &Measurement> {
        self.depths.iter().flat_map(|at| at.prompts.iter().chain(&at.generations))
    }
}

/// Return the row of a measurement, under the name that llama-bench gives it: "pp512", "tg64 @
/// d2048".
fn row(kind: &str, run: &Run, depth: u32, found: &Measurement) -> Vec<String> {
    let depth = if depth == 0 { String::new() } else { format!(" @ d{depth}") };
    let [low, high] = found.spread().map(figure);
    let percent = |x: f64, limit: f64| format!("{:.0} %", 100.0 * x / limit);
    vec![
        format!("{kind}{}{depth}", found.n_tokens),
        run.n_threads.to_string(),
        figure(found.tps()),
        format!("{low} - {high}"),
        figure(found.read()),
        run.limits.read.map_or("-".into(), |limit| percent(found.read(), limit)),
        figure(found.ops()),
        percent(found.ops(), run.limits.ops(&found.work)),
    ]
}

/// Return the fields of a prompt and a generation. The bytes are those of the generation, which is
/// bound by reading, and the operations those of the prompt, which is bound by arithmetic.
fn pair(run: &Run, prompt: &Measurement, generation: &Measurement) -> serde_json::Map<String, Value> {
    let two = |x: f64| rounded(x, 100.0);
    object(json!({
        "n_prompt": prompt.n_tokens,
        "n_gen": generation.n_tokens,
        "prompt_tps": two(prompt.tps()),
        "gen_tps": two(generation.tps()),
        "spread": { "prompt_tps": prompt.spread().map(two), "gen_tps": generation.spread().map(two) },
        "read_gb_s": two(generation.read()),
        "read_limit_gb_s": run.limits.read.map(two),
        "gop_s": two(prompt.ops()),
        "gop_limit_s": two(run.limits.ops(&prompt.work)),
        "allocs_per_token": generation.allocs_per_token,
        "logits_hash": format!("{:016x}", joined([prompt.logits_hash, generation.logits_hash].into_iter())),
    }))
}

/// Return the fields of a JSON object.
fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

/// Round to a fraction: 100.0 parts are two digits after the point.
fn rounded(x: f64, parts: f64) -> f64 {
    (x * parts).round() / parts
}

/// Format a figure for the table: one digit after the point below 1000, none above.
fn figure(x: f64) -> String {
    if x >= 1000.0 { format!("{x:.0}") } else { format!("{x:.1}") }
}
