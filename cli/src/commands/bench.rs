//! `backstitch bench`: tokens a second, and how that compares with what the machine can do.
//!
//! The prompt is timed behind `--depth` tokens, then the sequence is taken back; generation is timed from the same depth,
//! all sequences in one batch. Tokens are drawn from a fixed seed, so the hash of the last logits tells whether two runs
//! computed the same.

mod bandwidth;
mod traffic;

use crate::args::BenchArgs;
use crate::error::Error;
use crate::interrupt::{self, Stoppable};
use crate::output::{Output, note, table};
use crate::{allocations, machine, model};
use backstitch_kv::{Batch, Pos, SeqId};
use backstitch_models::sampler::Rng;
use backstitch_models::{Context, Model, Params, Token};
use serde_json::json;
use std::time::Instant;

/// Cells are handed out in blocks; a sequence can leave up to this many of its last block unused.
const BLOCK: u64 = 32;

/// Runs the command.
///
/// # Errors
/// If there is no sound model, or the context is too small or cannot be made.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    let start = Instant::now();
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let mut ctx = Context::new(&model, params(args, &model))?;
    let load_s = start.elapsed().as_secs_f64();
    if args.verbose {
        let lines = machine::lines(ctx.kernels().name(), args.context.n_threads, ctx.params().n_threads);
        lines.iter().for_each(|line| note("note", line));
    }

    let _stoppable = Stoppable::begin();
    let mut bench = Bench::new(args, &mut ctx)?;
    let prompt_s = bench.prompt()?;
    let (gen_s, allocs) = bench.generation()?;
    let figures = Figures {
        load_s,
        prompt_tps: f64::from(args.n_prompt) / prompt_s,
        gen_tps: f64::from(args.n_gen) * f64::from(args.seqs) / gen_s,
        steps_per_s: f64::from(args.n_gen) / gen_s,
        allocs_per_token: allocs,
        peak_rss_mib: peak_rss_mib(),
        logits_hash: bench.logits_hash(),
        bytes_per_step: traffic::weights(&model)
            + traffic::cache(&ctx, args.depth + args.n_gen / 2, args.seqs),
        read_limit: bandwidth::read(ctx.params().n_threads as usize),
    };
    show(args, &ctx, &figures)
}

/// What was measured.
struct Figures {
    load_s: f64,
    prompt_tps: f64,
    gen_tps: f64,
    /// Batches of generation a second.
    steps_per_s: f64,
    allocs_per_token: f64,
    /// None where the system does not tell.
    peak_rss_mib: Option<f64>,
    logits_hash: u64,
    /// Bytes of weights and caches that a batch of generation reads.
    bytes_per_step: u64,
    /// GB/s that a loop reaches which only reads; none where there was too little memory for it.
    read_limit: Option<f64>,
}

impl Figures {
    /// GB/s of weights and caches that generation read.
    fn read(&self) -> f64 {
        self.steps_per_s * self.bytes_per_step as f64 / 1e9
    }
}

/// The most tokens that a sequence comes to hold.
fn n_tokens(args: &BenchArgs) -> u64 {
    u64::from(args.depth) + u64::from(args.n_prompt.max(args.n_gen))
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

fn params(args: &BenchArgs, model: &Model) -> Params {
    let n_all = (n_tokens(args).next_multiple_of(BLOCK) + BLOCK) * u64::from(args.seqs);
    let n_ctx = args.context.n_ctx.unwrap_or(u32::try_from(n_all).unwrap_or(u32::MAX));
    let context = crate::args::ContextArgs { n_ctx: Some(n_ctx), ..args.context.clone() };
    Params { n_seq_max: args.seqs, ..model::params(&context, model) }
}

struct Bench<'a> {
    args: &'a BenchArgs,
    ctx: &'a mut Context,
    seqs: Vec<SeqId>,
    /// What every sequence holds or will hold.
    tokens: Vec<Token>,
}

impl<'a> Bench<'a> {
    /// Fills the sequences to the depth wanted.
    fn new(args: &'a BenchArgs, ctx: &'a mut Context) -> Result<Self, Error> {
        let n = n_tokens(args);
        check(n, ctx.params().n_ctx)?;
        let n_vocab = ctx.model().hparams().n_vocab.max(1) as u64;
        let mut rng = Rng::new(1);
        let tokens = (0..n).map(|_| Token((rng.bits() % n_vocab) as u32)).collect();
        let seqs = (0..args.seqs).map(|_| ctx.sequence()).collect::<Result<_, _>>()?;
        let mut bench = Self { args, ctx, seqs, tokens };
        for seq in bench.seqs.clone() {
            bench.feed(seq, 0, args.depth)?;
        }
        Ok(bench)
    }

    /// Evaluates tokens `start..end` of one sequence.
    fn feed(&mut self, seq: SeqId, start: u32, end: u32) -> Result<(), Error> {
        let tokens = self.tokens.get(start as usize..end as usize).unwrap_or_default();
        for batch in tokens.chunks(self.args.context.n_batch as usize) {
            stop_if_asked()?;
            self.ctx.append(seq, batch)?;
        }
        Ok(())
    }

    /// Takes all sequences back to the depth wanted.
    fn rewind(&mut self) -> Result<(), Error> {
        for &seq in &self.seqs {
            self.ctx.rollback(seq, Pos(self.args.depth as i32))?;
        }
        Ok(())
    }

    /// The median time of a prompt, in seconds.
    fn prompt(&mut self) -> Result<f64, Error> {
        let Some(&seq) = self.seqs.first() else { return Ok(0.0) };
        let mut times = Vec::new();
        for _ in 0..self.args.repetitions {
            let start = Instant::now();
            self.feed(seq, self.args.depth, self.args.depth + self.args.n_prompt)?;
            times.push(start.elapsed().as_secs_f64());
            self.rewind()?;
        }
        Ok(median(times))
    }

    /// The median time of a generation, in seconds, and allocations a token after the first of each.
    fn generation(&mut self) -> Result<(f64, f64), Error> {
        let mut batch = Batch::new();
        let (mut times, mut n_allocs, mut n_tokens) = (Vec::new(), 0, 0);
        for repetition in 0..self.args.repetitions {
            if repetition > 0 {
                self.rewind()?;
            }
            let start = Instant::now();
            let mut before = 0;
            for i in 0..self.args.n_gen {
                self.step(&mut batch, self.args.depth + i)?;
                if i == 0 {
                    before = allocations::count();
                }
            }
            n_allocs += allocations::count() - before;
            times.push(start.elapsed().as_secs_f64());
            n_tokens += u64::from(self.args.n_gen - 1) * u64::from(self.args.seqs);
        }
        Ok((median(times), n_allocs as f64 / n_tokens.max(1) as f64))
    }

    /// One token of every sequence at `pos`.
    fn step(&mut self, batch: &mut Batch, pos: u32) -> Result<(), Error> {
        stop_if_asked()?;
        let token = self.tokens.get(pos as usize).copied().unwrap_or_default();
        batch.clear();
        for seq in &self.seqs {
            batch.push(token, Pos(pos as i32), std::slice::from_ref(seq), true);
        }
        Ok(self.ctx.decode(batch)?)
    }

    /// FNV-1a over the bits of the last logits of the first sequence.
    fn logits_hash(&self) -> u64 {
        let logits = self.seqs.first().and_then(|&seq| self.ctx.logits(seq)).unwrap_or_default();
        let bytes = logits.iter().flat_map(|logit| logit.to_bits().to_le_bytes());
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

fn stop_if_asked() -> Result<(), Error> {
    if interrupt::requested() { Err(Error::Interrupted) } else { Ok(()) }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    let middle = times.len() / 2;
    match (times.get(middle), times.len() % 2) {
        (Some(&upper), 0) => (times.get(middle - 1).copied().unwrap_or(upper) + upper) / 2.0,
        (Some(&middle), _) => middle,
        (None, _) => 0.0,
    }
}

/// The most memory this process ever held.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn show(args: &BenchArgs, ctx: &Context, figures: &Figures) -> Result<(), Error> {
    let mut out = Output::new(args.json);
    if args.json {
        out.value(&as_json(args, ctx, figures))?;
    } else {
        for line in table(&rows(args, ctx, figures)) {
            out.line(line)?;
        }
    }
    Ok(out.flush()?)
}

fn name(args: &BenchArgs) -> String {
    let file = args.model.model.as_deref().and_then(|path| path.file_name());
    file.map_or("embedded".into(), |name| name.to_string_lossy().into_owned())
}

fn as_json(args: &BenchArgs, ctx: &Context, figures: &Figures) -> serde_json::Value {
    json!({
        "model": name(args),
        "threads": ctx.params().n_threads,
        "n_prompt": args.n_prompt,
        "n_gen": args.n_gen,
        "depth": args.depth,
        "seqs": args.seqs,
        "prompt_tps": rounded(figures.prompt_tps, 100.0),
        "gen_tps": rounded(figures.gen_tps, 100.0),
        "read_gb_s": rounded(figures.read(), 100.0),
        "read_limit_gb_s": figures.read_limit.map(|gb| rounded(gb, 100.0)),
        "load_s": rounded(figures.load_s, 10_000.0),
        "peak_rss_mib": figures.peak_rss_mib.map(|mib| rounded(mib, 10.0)),
        "allocs_per_token": figures.allocs_per_token,
        "kernel_set": ctx.kernels().name(),
        "logits_hash": format!("{:016x}", figures.logits_hash),
    })
}

fn rounded(x: f64, parts: f64) -> f64 {
    (x * parts).round() / parts
}

fn rows(args: &BenchArgs, ctx: &Context, figures: &Figures) -> Vec<Vec<String>> {
    let threads = ctx.params().n_threads;
    let read = figures.read();
    let share =
        figures.read_limit.map_or(String::new(), |gb| format!("{:.0} % of {gb:.1} GB/s", 100.0 * read / gb));
    let row = |name: &str, value: String, note: String| vec![name.to_owned(), value, note];
    vec![
        row("model", name(args), String::new()),
        row("kernels", ctx.kernels().name().into(), format!("{threads} threads")),
        row("load", format!("{:.3} s", figures.load_s), String::new()),
        row(
            "prompt",
            format!("{:.1} tokens/s", figures.prompt_tps),
            format!("{} at depth {}", args.n_prompt, args.depth),
        ),
        row(
            "generation",
            format!("{:.1} tokens/s", figures.gen_tps),
            format!("{} x {} at depth {}", args.seqs, args.n_gen, args.depth),
        ),
        row("memory read", format!("{read:.1} GB/s"), share),
        row("allocations", format!("{} a token", figures.allocs_per_token), "after the first".into()),
        row(
            "peak memory",
            figures.peak_rss_mib.map_or("unknown".into(), |mib| format!("{mib:.1} MiB")),
            String::new(),
        ),
        row("last logits", format!("{:016x}", figures.logits_hash), String::new()),
    ]
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
    fn median_is_the_middle_of_the_sorted() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn linux_tells_the_peak_memory() {
        assert_eq!(peak_rss_mib().is_some_and(|mib| mib > 0.1), cfg!(target_os = "linux"));
    }
}
