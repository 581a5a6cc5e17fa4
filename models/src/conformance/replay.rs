//! Replay of steps on a context, and comparison of the outputs.

use super::compare::{Distance, best};
use super::expected::Expected;
use super::golden::{Batch, Case, Expect, Golden, Kind, Step};
use super::quant;
use super::report::{Failure, Options, Row, Verdict, is_unsupported};
use crate::{Context, Error, Model, Params, Pooling, graph::RotationChoice};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use backstitch_core::cell::CellType;
use backstitch_kv::{AttentionSpec, Pos, SeqId, Token};
use core::ops::Range;

/// A file with its model, for replaying cases on fresh contexts.
pub(super) struct Replay<'a> {
    model: &'a Model,
    golden: &'a Golden,
    expected: &'a Expected,
    options: &'a Options,
}

/// The results of the steps so far.
#[derive(Default)]
struct Outcome {
    distance: Distance,
    /// The number of rows compared.
    n_rows: usize,
    /// The number of positions compared.
    n_positions: usize,
    quant: quant::Distances,
}

/// The reason that a case ended early.
pub(super) enum Abort {
    NotSupported(String),
    Failed(String),
}

impl From<Error> for Abort {
    fn from(error: Error) -> Self {
        if is_unsupported(&error) {
            Self::NotSupported(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

impl From<Failure> for Abort {
    fn from(Failure(note): Failure) -> Self {
        Self::Failed(note)
    }
}

impl<'a> Replay<'a> {
    /// Make a replay of a file with its model.
    pub(super) fn new(
        model: &'a Model,
        golden: &'a Golden,
        expected: &'a Expected,
        options: &'a Options,
    ) -> Self {
        Self { model, golden, expected, options }
    }

    /// Run the steps of a case on a fresh context, or on one that `prepare` has restored something
    /// into.
    pub(super) fn run(
        &self,
        name: &str,
        case: &Case,
        prepare: impl FnOnce(&mut Context) -> Result<(), Abort>,
    ) -> Row {
        let mut outcome = Outcome::default();
        let (verdict, note) = match self.steps(case, prepare, &mut outcome) {
            Err(Abort::NotSupported(note)) => (Verdict::NotSupported, note),
            Err(Abort::Failed(note)) => (Verdict::Failed, note),
            Ok(()) => self.judge(case, &outcome),
        };
        let (verdict, note) = match verdict {
            Verdict::Passed | Verdict::Failed if case.is("informational") => (Verdict::Informational, note),
            Verdict::Failed if note.is_empty() => match self.fault_of_reference(case) {
                Some(fault) => (Verdict::Informational, fault.into()),
                None => (verdict, note),
            },
            verdict => (verdict, note),
        };
        let max_diff = (outcome.n_rows > 0).then_some(outcome.distance.max);
        Row { max_diff, ..Row::new(name, verdict, note) }
    }

    /// Return the verdict on the results of a case.
    fn judge(&self, case: &Case, outcome: &Outcome) -> (Verdict, String) {
        if outcome.n_rows == 0 {
            return match outcome.n_positions {
                0 => (Verdict::Informational, "the case expects nothing".into()),
                n => (Verdict::Passed, format!("{n} times the right positions")),
            };
        }
        let tolerance = self.options.tolerance * if is_half(case) { HALF } else { 1.0 };
        let by_format = quant::judge(self.golden, &outcome.quant, tolerance);
        let near = outcome.distance.max <= tolerance;
        by_format.unwrap_or((if near { Verdict::Passed } else { Verdict::Failed }, String::new()))
    }

    /// Return the known fault of the reference that explains other results of a case, if there is
    /// one. Both faults concern context shifts, and reproducing them gives its results.
    fn fault_of_reference(&self, case: &Case) -> Option<&'static str> {
        if !case.steps.iter().any(|step| matches!(step, Step::SeqAdd { .. })) {
            return None;
        }
        let graph = self.model.graph();
        let cached = graph.layers().iter().filter_map(|layer| match &layer.attention {
            AttentionSpec::Cached(own) => Some(own.rope.is_some()),
            _ => None,
        });
        let (n_cached, n_rotated) =
            cached.fold((0, 0), |(n, rotated), is_rotated| (n + 1, rotated + usize::from(is_rotated)));
        let lengthens = |choice: &RotationChoice| !choice.usual.rope.keeps_length();
        if graph.rotations().iter().any(lengthens) {
            return Some("the reference lengthens keys again when it shifts them");
        }
        let is_mixed = 0 < n_rotated && n_rotated < n_cached;
        is_mixed.then_some("the reference shifts keys of layers that do not rotate them")
    }

    /// Run all steps of a case.
    fn steps(
        &self,
        case: &Case,
        prepare: impl FnOnce(&mut Context) -> Result<(), Abort>,
        outcome: &mut Outcome,
    ) -> Result<(), Abort> {
        let mut ctx = Context::new(self.model, params(case, self.options)?)?;
        prepare(&mut ctx)?;
        create_sequences(&mut ctx)?;
        case.steps.iter().try_for_each(|step| self.step(&mut ctx, case, step, outcome))
    }

    /// Run one step.
    fn step(&self, ctx: &mut Context, case: &Case, step: &Step, outcome: &mut Outcome) -> Result<(), Abort> {
        match *step {
            Step::Decode(ref batch) => {
                ctx.decode(&as_batch(batch))?;
                self.outputs(ctx, case, batch, outcome)
            }
            Step::Encode(ref batch) => {
                ctx.encode_batch(&as_batch(batch))?;
                self.outputs(ctx, case, batch, outcome)
            }
            // The reference refused and continued with the tokens that it had.
            Step::SeqRm { ok: false, .. } => Ok(()),
            Step::SeqRm { seq, p0, p1, .. } if p0 > 0 && p1 < 0 => {
                ctx.rollback(SeqId(seq), Pos(p0))?;
                Ok(())
            }
            Step::SeqRm { seq, p0, p1, .. } => Ok(ctx.seq_rm(SeqId(seq), range(p0, p1))?),
            Step::SeqCp { src, dst, p0, p1 } => Ok(ctx.seq_cp(SeqId(src), SeqId(dst), range(p0, p1))?),
            Step::SeqAdd { seq, p0, p1, delta } => Ok(ctx.seq_add(SeqId(seq), range(p0, p1), delta)?),
            Step::SeqPos { seq, min, max } => {
                outcome.n_positions += 1;
                positions(ctx, SeqId(seq), min, max)
            }
        }
    }

    /// Compare the outputs of a batch.
    fn outputs(&self, ctx: &Context, case: &Case, batch: &Batch, outcome: &mut Outcome) -> Result<(), Abort> {
        let Some(expect) = &batch.expect else { return Ok(()) };
        let compare = |(i, ours): (usize, Option<&[f32]>)| {
            let ours = ours.ok_or_else(|| Abort::Failed(format!("output {i} is not there")))?;
            self.compare(case, expect, i, ours, outcome)
        };
        let out = batch.out.iter();
        match expect.kind {
            Kind::Logits => out.map(|&index| ctx.output(index)).enumerate().try_for_each(compare),
            Kind::Embeddings => out.map(|&index| ctx.embedding(index)).enumerate().try_for_each(compare),
            Kind::Pooled => {
                let seqs: BTreeSet<u32> = batch.seq.iter().copied().collect();
                seqs.into_iter().map(|seq| ctx.pooled(SeqId(seq))).enumerate().try_for_each(compare)
            }
        }
    }

    /// Compare output `i` of a batch.
    fn compare(
        &self,
        case: &Case,
        expect: &Expect,
        i: usize,
        ours: &[f32],
        outcome: &mut Outcome,
    ) -> Result<(), Abort> {
        let array = self.golden.array(&expect.array);
        let array = array.ok_or_else(|| Abort::Failed(format!("no array {}", expect.array)))?;
        let row = expect.row.saturating_add(i);
        let expected = self.expected.row(array, row)?;
        outcome.distance.add(ours, expected);
        outcome.quant.add(self.golden, self.expected, row, ours)?;
        if let Some(&id) = case.greedy_ids.get(outcome.n_rows) {
            let clear = best(expected).is_some_and(|(_, lead)| lead > 2.0 * self.options.tolerance);
            let found = best(ours).map(|(id, _)| id);
            if clear && found != Some(id) {
                return Err(Abort::Failed(format!("the best token is {found:?}, not {id}")));
            }
        }
        outcome.n_rows += 1;
        Ok(())
    }
}

/// Create all sequences of a context; llama.cpp's need no creation.
fn create_sequences(ctx: &mut Context) -> Result<(), Error> {
    loop {
        match ctx.sequence() {
            Ok(_) => {}
            Err(Error::TooManySequences { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Compare the first and the last position of a sequence.
fn positions(ctx: &Context, seq: SeqId, min: i32, max: i32) -> Result<(), Abort> {
    let found = ctx.seq_range(seq).map_or((-1, -1), |(min, max)| (min.0, max.0));
    if found == (min, max) {
        return Ok(());
    }
    Err(Abort::Failed(format!("sequence {} has positions {found:?}, not {:?}", seq.0, (min, max))))
}

/// Return the batch of a step.
fn as_batch(batch: &Batch) -> backstitch_kv::Batch {
    let mut wanted = batch.out.iter().peekable();
    let mut tokens = backstitch_kv::Batch::new();
    for (i, ((&token, &pos), &seq)) in batch.tokens.iter().zip(&batch.pos).zip(&batch.seq).enumerate() {
        let output = wanted.next_if(|&&index| index == i).is_some();
        tokens.push(Token(token), Pos(pos), &[SeqId(seq)], output);
    }
    tokens
}

/// The factor of the tolerance for caches in half precision. The reference rounds queries and
/// attention weights to it too; this engine does not.
const HALF: f32 = 10.0;

/// Return true if the case has a cache in half precision.
fn is_half(case: &Case) -> bool {
    ["type_k", "type_v"].iter().any(|name| matches!(case.setting(name), Some("F16" | "BF16")))
}

/// Return the range of positions of a step, in which -1 is an open end.
fn range(p0: i32, p1: i32) -> Range<Pos> {
    Pos(p0.max(0))..if p1 < 0 { Pos::MAX } else { Pos(p1) }
}

/// Return the parameters of the case's context.
fn params(case: &Case, options: &Options) -> Result<Params, Abort> {
    let number = |name: &str| {
        let value = case.setting(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| Abort::Failed(format!("the context states no {name}")))
    };
    Ok(Params {
        n_ctx: number("n_ctx")?,
        n_ubatch: number("n_ubatch")?,
        n_seq_max: number("n_seq_max")?,
        type_k: cell_type(case, "type_k")?,
        type_v: cell_type(case, "type_v")?,
        pooling: pooling(case)?,
        n_threads: options.n_threads,
        kernels: options.kernels,
        ..Params::default()
    })
}

/// Return the pooling that the case asks for; `None` leaves it to the model.
fn pooling(case: &Case) -> Result<Option<Pooling>, Abort> {
    match case.setting("pooling_type") {
        None => Ok(None),
        Some("0") => Ok(Some(Pooling::None)),
        Some("1") => Ok(Some(Pooling::Mean)),
        Some("2") => Ok(Some(Pooling::Cls)),
        Some("3") => Ok(Some(Pooling::Last)),
        Some(other) => Err(Abort::NotSupported(format!("pooling_type {other}"))),
    }
}

/// Return the element type of the cache that the case asks for.
fn cell_type(case: &Case, name: &str) -> Result<CellType, Abort> {
    match case.setting(name) {
        Some("F32") => Ok(CellType::F32),
        Some("F16") => Ok(CellType::F16),
        Some("BF16") => Ok(CellType::BF16),
        other => Err(Abort::NotSupported(format!("{name} {}", other.unwrap_or("absent")))),
    }
}
