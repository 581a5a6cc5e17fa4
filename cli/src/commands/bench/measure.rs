//! Timing of prompts and generations in one context.
//!
//! One run to warm up comes before the repetitions: it loads weights into caches and grows buffers.
//! Speeds are medians, because a repetition during which the system was busy would move a mean.

use super::traffic::{self, Work};
use crate::allocations;
use crate::args::BenchArgs;
use crate::error::Error;
use crate::progress::Progress;
use backstitch_kv::{Batch, Pos, SeqId};
use backstitch_models::sampler::Rng;
use backstitch_models::{Context, Token};
use std::time::Instant;

/// A prompt or a generation that was timed several times.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Tokens of the prompt, or tokens generated in each sequence.
    pub n_tokens: u32,
    /// Tokens that one repetition evaluates in all sequences together.
    n_evaluated: u64,
    /// Seconds of each repetition, the shortest first.
    seconds: Vec<f64>,
    /// Bytes and operations of one repetition.
    pub work: Work,
    /// Hash of the last logits of the first sequence.
    pub logits_hash: u64,
    /// Allocations per generated token; 0 for a prompt, where they are not counted.
    pub allocs_per_token: f64,
}

impl Measurement {
    /// Return the median of tokens per second.
    pub fn tps(&self) -> f64 {
        self.n_evaluated as f64 / median(&self.seconds)
    }

    /// Return the lowest and the highest number of tokens per second.
    pub fn spread(&self) -> [f64; 2] {
        let tps = |seconds: Option<&f64>| seconds.map_or(0.0, |seconds| self.n_evaluated as f64 / seconds);
        [tps(self.seconds.last()), tps(self.seconds.first())]
    }

    /// Return the rate at which weights and caches were read, in GB/s.
    pub fn read(&self) -> f64 {
        self.work.bytes as f64 / median(&self.seconds) / 1e9
    }

    /// Return the rate of multiplications and additions, in 10^9 per second.
    pub fn ops(&self) -> f64 {
        (self.work.byte_ops + self.work.float_ops) as f64 / median(&self.seconds) / 1e9
    }
}

/// The measurements at one depth.
#[derive(Debug, Clone)]
pub struct AtDepth {
    /// Tokens in each sequence before a measurement.
    pub depth: u32,
    pub prompts: Vec<Measurement>,
    pub generations: Vec<Measurement>,
}

/// The progress line, which counts repetitions.
pub struct Repetitions {
    progress: Progress,
    n_done: u64,
    n_all: u64,
}

impl Repetitions {
    /// Start the line for `n_all` repetitions.
    pub fn new(n_all: u64) -> Self {
        Self { progress: Progress::between("measuring", "runs"), n_done: 0, n_all }
    }

    /// Count a repetition.
    fn next(&mut self) {
        self.n_done += 1;
        self.progress.set(self.n_done, self.n_all);
    }
}

/// A context in which prompts and generations are timed.
///
/// Between two measurements every sequence holds the same `depth` tokens: each measurement ends
/// with a rollback, so the next begins as if it were the first.
pub struct Bench<'a> {
    args: &'a BenchArgs,
    ctx: &'a mut Context,
    seqs: Vec<SeqId>,
    /// The tokens of every sequence, by position; as many as the longest measurement needs.
    tokens: Vec<Token>,
    /// Tokens in every sequence between two measurements.
    depth: u32,
}

impl<'a> Bench<'a> {
    /// Make empty sequences that will hold at most `n_tokens` each, and run once to warm up.
    ///
    /// # Errors
    /// [`Error::Engine`] if a sequence cannot be made or evaluated.
    pub fn new(args: &'a BenchArgs, ctx: &'a mut Context, n_tokens: u64) -> Result<Self, Error> {
        let n_vocab = ctx.model().hparams().n_vocab.max(1) as u64;
        let mut rng = Rng::new(1);
        let tokens = (0..n_tokens).map(|_| Token((rng.bits() % n_vocab) as u32)).collect();
        let seqs = (0..args.seqs).map(|_| ctx.sequence()).collect::<Result<_, _>>()?;
        let mut bench = Self { args, ctx, seqs, tokens, depth: 0 };
        bench.warm_up()?;
        Ok(bench)
    }

    /// Evaluate a prompt and a token, untimed: the first run has cold caches, pages that were never
    /// read, and sleeping threads.
    fn warm_up(&mut self) -> Result<(), Error> {
        let n_prompt = self.args.n_prompt.iter().copied().max().unwrap_or(0);
        let n_prompt = n_prompt.min(self.args.evaluation.n_ubatch);
        self.feed_first(n_prompt)?;
        self.rewind()?;
        self.generate(1)?;
        self.rewind()
    }

    /// Measure every prompt and every generation after `depth` tokens.
    ///
    /// # Errors
    /// [`Error::Engine`] if the model cannot be evaluated.
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

    /// Time `run`, which evaluates tokens after the depth and returns the allocations that it
    /// counted.
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
            logits_hash = self.logits_hash()?;
            repetitions.next();
            self.rewind()?;
        }
        seconds.sort_unstable_by(f64::total_cmp);
        let n_counted = u64::from(n_tokens - 1) * u64::from(self.args.seqs);
        let n_counted = n_counted.saturating_mul(self.args.repetitions.into()).max(1);
        let allocs_per_token = n_allocs as f64 / n_counted as f64;
        Ok(Measurement { n_tokens, n_evaluated, seconds, work, logits_hash, allocs_per_token })
    }

    /// Make every sequence hold `depth` tokens.
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

    /// Evaluate `n` tokens of the first sequence.
    fn feed_first(&mut self, n: u32) -> Result<(), Error> {
        let Some(&seq) = self.seqs.first() else { return Ok(()) };
        self.feed(seq, self.depth, self.depth + n)
    }

    /// Evaluate tokens `start..end` of one sequence, in logical batches.
    fn feed(&mut self, seq: SeqId, start: u32, end: u32) -> Result<(), Error> {
        let tokens = self.tokens.get(start as usize..end as usize).ok_or_else(unplanned)?;
        for batch in tokens.chunks(self.args.evaluation.n_batch as usize) {
            self.ctx.append(seq, batch)?;
        }
        Ok(())
    }

    /// Roll all sequences back to the depth.
    fn rewind(&mut self) -> Result<(), Error> {
        for &seq in &self.seqs {
            self.ctx.rollback(seq, Pos(self.depth as i32))?;
        }
        Ok(())
    }

    /// Evaluate `n` tokens of every sequence, one after the other. Returns the number of
    /// allocations after the first token, which may still make buffers.
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

    /// Evaluate the token at `pos` of every sequence, in one batch.
    fn step(&mut self, batch: &mut Batch, pos: u32) -> Result<(), Error> {
        let token = self.tokens.get(pos as usize).copied().ok_or_else(unplanned)?;
        batch.clear();
        for seq in &self.seqs {
            batch.push(token, Pos(pos as i32), std::slice::from_ref(seq), true);
        }
        Ok(self.ctx.decode(batch)?)
    }

    /// Return the hash of the last logits of the first sequence.
    fn logits_hash(&self) -> Result<u64, Error> {
        let logits = self.seqs.first().and_then(|&seq| self.ctx.logits_at_hand(seq)).ok_or_else(unplanned)?;
        Ok(fnv(logits.iter().flat_map(|logit| logit.to_bits().to_le_bytes())))
    }
}

/// Make the error about a measurement without its tokens or logits, which would be a bug.
fn unplanned() -> Error {
    Error::Refused("the measurement lacks tokens or logits; please report this".into())
}

/// Hash several hashes, in their order.
pub fn joined(hashes: impl Iterator<Item = u64>) -> u64 {
    fnv(hashes.flat_map(u64::to_le_bytes))
}

/// Hash bytes with FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Return the median of sorted numbers, 0 if there is none.
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

    /// Make a measurement of 12 tokens with these times.
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
