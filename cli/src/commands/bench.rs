//! `backstitch bench`: measure tokens per second, and compare them with the limits of the machine.
//!
//! For each number of threads there is a context, in which every prompt and every generation is
//! timed after each depth. After each measurement the sequences are rolled back to the depth. All
//! sequences generate in one batch. Tokens come from random numbers with a fixed seed, so the hash
//! of the last logits shows if two runs computed the same bits.
//!
//! `measure` times, `traffic` counts the bytes and operations of the timed work, `limits` measures
//! the machine, `processor` asks for its name and for the load of other programs, and `report`
//! formats.

pub(super) mod limits;
mod measure;
pub(super) mod processor;
mod report;
pub(super) mod traffic;

use crate::args::{BenchArgs, ContextArgs, EvaluationArgs};
use crate::error::Error;
use crate::output::{Output, note};
use crate::{adapters, machine, memory, model};
use backstitch_models::{Context, Model, Params};
use limits::Limits;
use measure::{Bench, Repetitions};
use processor::Ticks;
use report::{Report, Run};
use std::time::Instant;

/// Cells in a block of the KV cache. A sequence can leave almost as many of its last block unused.
const BLOCK: u64 = 32;

/// Share of the machine that other programs may use before a warning says so.
const FOREIGN: f64 = 0.05;

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the model cannot be loaded, or the context not be made.
/// - [`Error::Refused`] if the context is too small for the tokens, or too large for the memory.
/// - [`Error::Terminal`] if the output fails.
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
        adapters::apply(&args.adapters, &mut ctx)?;
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
    let kernels = found.first().map_or("none", |(kernels, ..)| kernels.name());
    // The limits are measured last, because reading memory for them raises the peak of this
    // process.
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

/// Return the number of timings in the whole command.
fn n_repetitions(args: &BenchArgs) -> u64 {
    let n_places = args.n_threads.len() * args.depth.len();
    n_places as u64 * (args.n_prompt.len() + args.n_gen.len()) as u64 * u64::from(args.repetitions)
}

/// Print the lines of `-v` about a context. The memory is the same for all, so it is printed once.
fn explain(n_threads: u32, ctx: &Context, is_first: bool) {
    if is_first {
        note("note", memory::line(ctx));
    }
    let lines = machine::lines(ctx.kernels().name(), Some(n_threads), ctx.params().n_threads);
    lines.iter().for_each(|line| note("note", line));
}

/// Return the most tokens that a sequence will hold.
fn n_tokens(args: &BenchArgs) -> u64 {
    let most = |numbers: &[u32]| u64::from(numbers.iter().copied().max().unwrap_or(0));
    most(&args.depth) + most(&args.n_prompt).max(most(&args.n_gen))
}

/// Check that a sequence fits the context, before any token is evaluated.
fn check(n_tokens: u64, n_ctx: u32) -> Result<(), Error> {
    if n_tokens <= u64::from(n_ctx) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "a sequence of {n_tokens} tokens does not fit a context of {n_ctx}; raise -c, or lower -p, -n or --depth"
    )))
}

/// Return the parameters of a context. Without `-c` it is as large as the sequences need.
fn params(args: &BenchArgs, n_threads: u32, model: &Model) -> Params {
    let n_all = (n_tokens(args).next_multiple_of(BLOCK) + BLOCK) * u64::from(args.seqs);
    let n_ctx = args.evaluation.n_ctx.unwrap_or(u32::try_from(n_all).unwrap_or(u32::MAX));
    let evaluation = EvaluationArgs { n_ctx: Some(n_ctx), ..args.evaluation.clone() };
    let adapters = args.adapters.clone();
    model::params(&ContextArgs { n_threads: Some(n_threads), evaluation, adapters }, model)
        .n_seq_max(args.seqs)
}

/// Return the peak resident memory of this process, or none on systems that do not report it.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Return the name of the model's file.
fn name(args: &BenchArgs) -> String {
    let file = args.model.model.as_deref().and_then(|path| path.file_name());
    file.map_or("embedded".into(), |name| name.to_string_lossy().into_owned())
}

/// Print the report, after a warning if other programs disturbed it.
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

/// Return the warning about other programs that used `share` of the machine.
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
