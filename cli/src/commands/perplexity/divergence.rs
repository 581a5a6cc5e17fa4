//! Comparing a model with the probabilities of a base model.
//!
//! The base model wrote its probabilities of every scored token to a file; this model reads the
//! same windows of the same tokens, so that each prediction has one of the base beside it.

use super::{context, of_base};
use crate::args::PerplexityArgs;
use crate::error::Error;
use crate::model;
use crate::output::Output;
use crate::progress::Progress;
use backstitch_models::judge::{self, BaseReader, Divergence, Windows};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The parts of all predictions whose divergences are reported.
const PARTS: [(&str, f64); 9] = [
    ("maximum", 1.0),
    ("99.9%", 0.999),
    ("99%", 0.99),
    ("95%", 0.95),
    ("90%", 0.9),
    ("median", 0.5),
    ("10%", 0.1),
    ("1%", 0.01),
    ("minimum", 0.0),
];

/// Compare the model with the probabilities in the file at `path`.
pub(super) fn run(args: &PerplexityArgs, path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(|source| Error::Read { path: path.into(), source })?;
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let mut base = BaseReader::new(BufReader::new(file), model.hparams().n_vocab).map_err(of_base)?;
    let n_ctx = u32::try_from(base.n_ctx()).unwrap_or(u32::MAX);
    if args.context.evaluation.n_ctx.is_some_and(|wanted| wanted != n_ctx) {
        return Err(Error::Refused(format!(
            "the windows in {} have {n_ctx} tokens; leave out -c",
            path.display()
        )));
    }
    let mut ctx = context(args, &model, n_ctx)?;
    let tokens = base.tokens().to_vec();
    // Base files have windows of at least 4 tokens.
    let windows = Windows::new(&tokens, base.n_ctx(), None).into_iter().flatten();
    let n_most = args.chunks.map_or(usize::MAX, |n| n as usize);
    let total = (tokens.len() / base.n_ctx()).min(n_most) as u64;
    let mut divergence = Divergence::default();
    let progress = Progress::counted("comparing", "windows");
    for (window, n) in windows.take(n_most).zip(1..) {
        let mut result = Ok(());
        judge::score(&mut ctx, &window, &mut |row| {
            if result.is_ok() {
                result = base.row().map(|base| divergence.add(row, base));
            }
        })?;
        result.map_err(of_base)?;
        progress.set(n, total);
    }
    drop(progress);
    show(&mut Output::new(args.json), &divergence)
}

/// Print the comparison.
fn show(out: &mut Output, divergence: &Divergence) -> Result<(), Error> {
    let (own, base, kld) = (divergence.surprise(), divergence.base_surprise(), divergence.kld());
    let (ratio, ratio_error) = divergence.ratio();
    let quantiles = divergence.quantiles();
    let parts = PARTS.map(|(name, part)| (name, quantiles.at(part)));
    if out.is_json() {
        let quantiles: serde_json::Map<_, _> =
            parts.into_iter().map(|(name, value)| (name.into(), json!(value))).collect();
        out.value(&json!({
            "perplexity": own.perplexity(), "perplexity_error": own.perplexity_error(),
            "base_perplexity": base.perplexity(), "base_perplexity_error": base.perplexity_error(),
            "ratio": ratio, "ratio_error": ratio_error,
            "kl_divergence": kld.mean(), "kl_divergence_error": kld.error(),
            "kl_divergence_quantiles": quantiles,
            "same_top": divergence.same_top(), "same_top_error": divergence.same_top_error(),
            "rms_probability_difference": divergence.rms_p_difference(), "tokens": kld.n(),
        }))?;
        return Ok(out.flush()?);
    }
    let row = |name: &str, value: String| vec![name.into(), value];
    let estimate = |value: f64, error: f64| format!("{value:.6} ± {error:.6}");
    let percent = |value: f64| format!("{:.3} %", 100.0 * value);
    let mut rows = vec![
        row("perplexity", estimate(own.perplexity(), own.perplexity_error())),
        row("perplexity of the base", estimate(base.perplexity(), base.perplexity_error())),
        row("ratio of the two", estimate(ratio, ratio_error)),
        row("KL divergence, mean", estimate(kld.mean(), kld.error())),
    ];
    rows.extend(parts.map(|(name, value)| row(&format!("KL divergence, {name}"), format!("{value:.6}"))));
    let same_top = format!("{} ± {}", percent(divergence.same_top()), percent(divergence.same_top_error()));
    rows.push(row("same most probable token", same_top));
    rows.push(row("difference of probabilities, RMS", percent(divergence.rms_p_difference())));
    out.table(&rows)?;
    Ok(out.flush()?)
}
