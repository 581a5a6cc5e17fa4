//! Prompts and generations, timed in one context.

use super::traffic::{self, Work};
use crate::allocations;
use crate::args::BenchArgs;
use crate::error::Error;
use crate::progress::Progress;
use backstitch_kv::{Batch, Pos, SeqId};
use backstitch_models::sampler::Rng;
use backstitch_models::{Context, Token};
use std::time::Instant;

/// A prompt or a generation, timed several times.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Tokens of the prompt, or tokens generated of each sequence.
    pub n_tokens: u32,
    /// Tokens that one repetition evaluates, of all sequences.
    n_evaluated: u64,
    /// Seconds of each repetition, shortest first.
    seconds: Vec<f64>,
    /// Bytes and operations of one repetition.
    pub work: Work,
    /// Of the last logits of the first sequence.
    pub logits_hash: u64,
    /// Requests for memory a token; none that were counted in a prompt.
    pub allocs_per_token: f64,
}

impl Measurement {
    /// The median of tokens a second.
    pub fn tps(&self) -> f64 {
        self.n_evaluated as f64 / median(&self.seconds)
    }

    /// The lowest and the highest number of tokens a second.
    pub fn spread(&self) -> [f64; 2] {
        let tps = |seconds: Option<&f64>| seconds.map_or(0.0, |seconds| self.n_evaluated as f64 / seconds);
        [tps(self.seconds.last()), tps(self.seconds.first())]
    }

    /// GB/s of weights and caches that were read.
    pub fn read(&self) -> f64 {
        self.work.bytes as f64 / median(&self.seconds) / 1e9
    }

    /// 10^9 multiplications and additions a second.
    pub fn ops(&self) -> f64 {
        (self.work.byte_ops + self.work.float_ops) as f64 / median(&self.seconds) / 1e9
    }
}

/// What was measured behind as many tokens.
#[derive(Debug, Clone)]
pub struct AtDepth {
    pub depth: u32,
    pub prompts: Vec<Measurement>,
    pub generations: Vec<Measurement>,
}

/// Repetitions, as people see them pass.
pub struct Repetitions {
    progress: Progress,
    n_done: u64,
    n_all: u64,
}

impl Repetitions {
    /// So many repetitions are to come.
    pub fn new(n_all: u64) -> Self {
        Self { progress: Progress::between("measuring", "runs"), n_done: 0, n_all }
    }

    fn next(&mut self) {
        self.n_done += 1;
        self.progress.set(self.n_done, self.n_all);
    }
}

/// A context in which things are measured.
pub struct Bench<'a> {
    args: &'a BenchArgs,
    ctx: &'a mut Context,
    seqs: Vec<SeqId>,
    /// What every sequence holds or will hold.
    tokens: Vec<Token>,
    /// Tokens in every sequence between two measurements.
    depth: u32,
}

impl<'a> Bench<'a> {
    /// Empty sequences, which come to hold `n_tokens` at most, and a run to warm up.
    pub fn new(args: &'a BenchArgs, ctx: &'a mut Context, n_tokens: u64) -> Result<Self, Error> {
        let n_vocab = ctx.model().hparams().n_vocab.max(1) as u64;
        let mut rng = Rng::new(1);
        let tokens = (0..n_tokens).map(|_| Token((rng.bits() % n_vocab) as u32)).collect();
        let seqs = (0..args.seqs).map(|_| ctx.sequence()).collect::<Result<_, _>>()?;
        let mut bench = Self { args, ctx, seqs, tokens, depth: 0 };
        bench.warm_up()?;
        Ok(bench)
    }

    /// The first run finds cold caches, pages that were never read, and threads that sleep.
    fn warm_up(&mut self) -> Result<(), Error> {
        let n_prompt = self.args.n_prompt.iter().copied().max().unwrap_or(0);
        let n_prompt = n_prompt.min(self.args.evaluation.n_ubatch);
        self.feed_first(n_prompt)?;
        self.rewind()?;
        self.generate(1)?;
        self.rewind()
    }

    /// Measures every prompt and every generation behind `depth` tokens.
    pub fn at_depth(&mut self, depth: u32, repetitions: &mut Repetitions) -> Result<AtDepth, Error> {
        self.go_to(depth)?;
        let mut prompts = Vec::new();
        for &n in self.args.n_prompt.iter() {
            let work = traffic::prompt(self.ctx, depth, n);
            prompts.push(self.measure(n, n.into(), work, repetitions, |bench| {
                bench.feed_first(n)?;
                Ok(0)
            })?);
        }
        let mut generations = Vec::new();
        for &n in self.args.n_gen.iter() {
            let work = traffic::generation(self.ctx, depth, n, self.args.seqs);
            let n_evaluated = u64::from(n) * u64::from(self.args.seqs);
            generations.push(self.measure(n, n_evaluated, work, repetitions, |bench| bench.generate(n))?);
        }
        Ok(AtDepth { depth, prompts, generations })
    }

    /// Times `run`, which evaluates tokens behind the depth and returns allocations that it counted.
    fn measure(
        &mut self,
        n_tokens: u32,
        n_evaluated: u64,
        work: Work,
        repetitions: &mut Repetitions,
        mut run: impl FnMut(&mut Self) -> Result<u64, Error>,
    ) -> Result<Measurement, Error> {
        let (mut seconds, mut n_allocs, mut logits_hash) = (Vec::new(), 0, 0);
        for _ in 0..self.args.repetitions {
            let start = Instant::now();
            n_allocs += run(self)?;
            seconds.push(start.elapsed().as_secs_f64());
            logits_hash = self.logits_hash();
            repetitions.next();
            self.rewind()?;
        }
        seconds.sort_unstable_by(f64::total_cmp);
        let n_counted = u64::from(n_tokens - 1) * u64::from(self.args.seqs);
        let n_counted = n_counted.saturating_mul(self.args.repetitions.into()).max(1);
        let allocs_per_token = n_allocs as f64 / n_counted as f64;
        Ok(Measurement { n_tokens, n_evaluated, seconds, work, logits_hash, allocs_per_token })
    }

    /// Makes every sequence hold `depth` tokens.
    fn go_to(&mut self, depth: u32) -> Result<(), Error> {
        let held = self.depth;
        self.depth = depth;
        if depth < held {
            return self.rewind();
        }
        for seq in self.seqs.clone() {
            self.feed(seq, held, depth)?;
        }
        Ok(())
    }

    /// Evaluates `n` tokens of the first sequence.
    fn feed_first(&mut self, n: u32) -> Result<(), Error> {
        let Some(&seq) = self.seqs.first() else { return Ok(()) };
        self.feed(seq, self.depth, self.depth + n)
    }

    /// Evaluates tokens `start..end` of one sequence.
    fn feed(&mut self, seq: SeqId, start: u32, end: u32) -> Result<(), Error> {
        let tokens = self.tokens.get(start as usize..end as usize).unwrap_or_default();
        for batch in tokens.chunks(self.args.evaluation.n_batch as usize) {
            self.ctx.append(seq, batch)?;
        }
        Ok(())
    }

    /// Takes all sequences back to the depth.
    fn rewind(&mut self) -> Result<(), Error> {
        for &seq in &self.seqs {
            self.ctx.rollback(seq, Pos(self.depth as i32))?;
        }
        Ok(())
    }

    /// Evaluates `n` tokens of every sequence, one after the other; allocations after the first.
    fn generate(&mut self, n: u32) -> Result<u64, Error> {
        let (mut batch, mut before) = (Batch::new(), 0);
        for i in 0..n {
            self.step(&mut batch, self.depth + i)?;
            if i == 0 {
                before = allocations::count();
            }
        }
        Ok(allocations::count() - before)
    }

    /// One token of every sequence at `pos`.
    fn step(&mut self, batch: &mut Batch, pos: u32) -> Result<(), Error> {
        let token = self.tokens.get(pos as usize).copied().unwrap_or_default();
        batch.clear();
        for seq in &self.seqs {
            batch.push(token, Pos(pos as i32), std::slice::from_ref(seq), true);
        }
        Ok(self.ctx.decode(batch)?)
    }

    /// Of the last logits of the first sequence.
    fn logits_hash(&self) -> u64 {
        let logits = self.seqs.first().and_then(|&seq| self.ctx.logits_at_hand(seq)).unwrap_or_default();
        fnv(logits.iter().flat_map(|logit| logit.to_bits().to_le_bytes()))
    }
}

/// The hash of several hashes, in their order.
pub fn joined(hashes: impl Iterator<Item = u64>) -> u64 {
    fnv(hashes.flat_map(u64::to_le_bytes))
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The middle of sorted numbers.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(&upper), 0) => (sorted.get(middle - 1).copied().unwrap_or(upper) + upper) / 2.0,
        (Some(&middle), _) => middle,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A measurement of 12 tokens that took so many seconds.
    fn measurement(seconds: &[f64], work: Work) -> Measurement {
        let (seconds, logits_hash) = (seconds.to_vec(), 7);
        Measurement { n_tokens: 12, n_evaluated: 12, seconds, work, logits_hash, allocs_per_token: 0.0 }
    }

    #[test]
    fn median_is_the_middle_of_the_sorted() {
        assert_eq!(median(&[1.0, 2.0, 3.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn speeds_are_those_of_the_median_and_the_ends() {
        let work = Work { bytes: 4_000_000_000, byte_ops: 6_000_000_000, float_ops: 2_000_000_000 };
        let found = measurement(&[1.0, 2.0, 4.0], work);
        assert_eq!((found.tps(), found.spread()), (6.0, [3.0, 12.0]));
        assert_eq!((found.read(), found.ops()), (2.0, 4.0));
    }
}
