//! `backstitch bench`: tokens a second, and how that compares with what the machine can do.
//!
//! For each number of threads there is a context, in which every prompt and every generation is timed behind each
//! depth; after each the sequences are taken back. All sequences generate in one batch. Tokens are drawn from a
//! fixed seed, so the hash of the last logits tells whether two runs computed the same.

mod limits;
mod measure;
mod processor;
mod report;
mod traffic;

use crate::args::{BenchArgs, ContextArgs, EvaluationArgs};
use crate::error::Error;
use crate::output::{Output, note};
use crate::{machine, memory, model};
use backstitch_models::{Context, Model, Params};
use limits::Limits;
use measure::{Bench, Repetitions};
use processor::Ticks;
use report::{Report, Run};
use std::time::Instant;

/// Cells are handed out in blocks; a sequence can leave up to this many of its last block unused.
const BLOCK: u64 = 32;

/// A larger share of the machine than this, used by others, is worth a warning.
const FOREIGN: f64 = 0.05;

/// Runs the command.
///
/// # Errors
/// If there is no sound model, or the context is too small or cannot be made.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    let n_most = args.n_threads.iter().map(|&n| model::n_threads(Some(n))).max();
    let start = Instant::now();
    let model = model::open(&args.model, model::n_threads(n_most))?;
    let model_s = start.elapsed().as_secs_f64();

    let before = Ticks::now();
    let mut repetitions = Repetitions::new(n_repetitions(args));
    let mut found = Vec::new();
    for (i, &n_threads) in args.n_threads.iter().enumerate() {
        let params = params(args, n_threads, &model);
        memory::check(&model, &params)?;
        let start = Instant::now();
        let mut ctx = Context::new(&model, params)?;
        let load_s = model_s + start.elapsed().as_secs_f64();
        if args.verbose {
            explain(n_threads, &ctx, i == 0);
        }
        check(n_tokens(args), ctx.params().n_ctx)?;
        let mut bench = Bench::new(args, &mut ctx, n_tokens(args))?;
        let depths = args.depth.iter().map(|&depth| bench.at_depth(depth, &mut repetitions));
        let depths = depths.collect::<Result<Vec<_>, _>>()?;
        found.push((ctx.kernels(), ctx.params().n_threads, load_s, depths, peak_rss_mib()));
    }
    drop(repetitions);
    let kernels = found.first().map(|(kernels, ..)| kernels.name()).unwrap_or_default();
    // After all measurements: the memory that is read here would count as theirs.
    let runs = found.into_iter().map(|(kernels, n_threads, load_s, depths, peak_rss_mib)| Run {
        n_threads,
        load_s,
        limits: Limits::measure(kernels, n_threads as usize),
        depths,
        peak_rss_mib,
    });
    let runs = runs.collect();
    let foreign = Ticks::now().zip(before).and_then(|(now, before)| now.foreign_since(before));
    show(args, &Report { model: name(args), cpu: processor::name(), kernel_set: kernels, foreign, runs })
}

/// The number of timings in the whole command.
fn n_repetitions(args: &BenchArgs) -> u64 {
    let n_places = args.n_threads.len() * args.depth.len();
    n_places as u64 * (args.n_prompt.len() + args.n_gen.len()) as u64 * u64::from(args.repetitions)
}

/// Tells about a context; of the model only with the first.
fn explain(n_threads: u32, ctx: &Context, is_first: bool) {
    if is_first {
        note("note", memory::line(ctx.model(), ctx.params()));
    }
    let lines = machine::lines(ctx.kernels().name(), Some(n_threads), ctx.params().n_threads);
    lines.iter().for_each(|line| note("note", line));
}

/// The most tokens that a sequence comes to hold.
fn n_tokens(args: &BenchArgs) -> u64 {
    let most = |numbers: &[u32]| u64::from(numbers.iter().copied().max().unwrap_or(0));
    most(&args.depth) + most(&args.n_prompt).max(most(&args.n_gen))
}

/// Refuses what the context cannot hold, before any token is made.
fn check(n_tokens: u64, n_ctx: u32) -> Result<(), Error> {
    if n_tokens <= u64::from(n_ctx) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "a sequence of {n_tokens} tokens does not fit a context of {n_ctx}; lower --depth, or raise -c"
    )))
}

fn params(args: &BenchArgs, n_threads: u32, model: &Model) -> Params {
    let n_all = (n_tokens(args).next_multiple_of(BLOCK) + BLOCK) * u64::from(args.seqs);
    let n_ctx = args.evaluation.n_ctx.unwrap_or(u32::try_from(n_all).unwrap_or(u32::MAX));
    let evaluation = EvaluationArgs { n_ctx: Some(n_ctx), ..args.evaluation.clone() };
    model::params(&ContextArgs { n_threads: Some(n_threads), evaluation }, model).n_seq_max(args.seqs)
}

/// The most memory this process ever held.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn name(args: &BenchArgs) -> String {
    let file = args.model.model.as_deref().and_then(|path| path.file_name());
    file.map_or("embedded".into(), |name| name.to_string_lossy().into_owned())
}

fn show(args: &BenchArgs, report: &Report) -> Result<(), Error> {
    if let Some(share) = report.foreign.filter(|&share| share > FOREIGN) {
        note("warning", busy(share));
    }
    let mut out = Output::new(args.json);
    if args.json {
        report.json(args).iter().try_for_each(|line| out.value(line))?;
    } else {
        for (name, value) in report.head() {
            out.text(format_args!("{name:<11}  {value}"), 13)?;
        }
        out.line("")?;
        out.table(&report.rows())?;
    }
    Ok(out.flush()?)
}

fn busy(share: f64) -> String {
    format!(
        "other programs used {:.0} % of this machine's processors meanwhile: these speeds are too low, \
         and so may the limits be; end those programs and measure again",
        100.0 * share
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_longer_than_the_context_is_refused() {
        assert!(check(100, 100).is_ok());
        let most = u64::from(u32::MAX);
        assert!(check(2 * most, u32::MAX).unwrap_err().to_string().contains("8589934590 tokens"));
    }

    #[test]
    fn linux_tells_the_peak_memory() {
        assert_eq!(peak_rss_mib().is_some_and(|mib| mib > 0.1), cfg!(target_os = "linux"));
    }

    #[test]
    fn a_busy_machine_is_told_with_its_share() {
        assert!(busy(0.234).starts_with("other programs used 23 % of"));
    }
}
