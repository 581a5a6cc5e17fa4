//! Steps on a context, and whether what comes out is as expected.

use super::compare::{Distance, best};
use super::golden::{Array, Batch, Case, Expect, Golden, Kind, Step};
use super::{Failure, Options, Row, Verdict, files, is_unsupported, open, quant, refused, saved};
use crate::{Context, Error, Model, Params, Pooling};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_kv::{Pos, SeqId, Token};
use core::ops::Range;
use std::fs;
use std::path::Path;

/// Replays all cases of a file.
pub(super) fn file(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let golden = Golden::parse(&fs::read_to_string(path)?)?;
    let expected = Expected::read(&path.with_extension("bin"))?;
    let Some(model_path) = files::model(path, &golden.model, options) else {
        let note = format!("{} is not there; name it with --model", golden.model);
        golden.cases.iter().for_each(|case| report(Row::new(&case.name, Verdict::NotSupported, &note)));
        return Ok(());
    };
    quant::tensors(&model_path, &golden, &expected, report)?;
    let model = open(&model_path, options);
    for case in golden.cases.iter().chain(&refused::cases(&golden)) {
        match &model {
            Ok(model) => {
                let replay = Replay { model, golden: &golden, expected: &expected, options };
                if case.files.is_empty() {
                    report(replay.run(&case.name, case, |_| Ok(())));
                } else {
                    saved::cases(path, case, &replay, report);
                }
            }
            Err(error) => report(Row::error(&case.name, error)),
        }
    }
    Ok(())
}

/// The numbers of a file's arrays.
pub(super) struct Expected(Vec<f32>);

impl Expected {
    fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        Ok(Self(bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()))
    }

    /// A row of an array.
    pub(super) fn row(&self, array: &Array, row: usize) -> Result<&[f32], Failure> {
        let start = || (array.offset / 4).checked_add(row.checked_mul(array.cols)?);
        let numbers = || self.0.get(start()?..start()?.checked_add(array.cols)?);
        let numbers = numbers().filter(|_| row < array.rows && array.offset.is_multiple_of(4));
        numbers.ok_or_else(|| Failure(format!("row {row} of {} lies outside its file", array.name)))
    }
}

/// One case on its own context.
pub(super) struct Replay<'a> {
    model: &'a Model,
    golden: &'a Golden,
    expected: &'a Expected,
    options: &'a Options,
}

/// What came out of the steps so far.
#[derive(Default)]
struct Outcome {
    distance: Distance,
    /// Rows compared so far.
    n_rows: usize,
    /// Positions compared so far.
    n_positions: usize,
    quant: quant::Distances,
}

/// Why a case ended early.
pub(super) enum Ended {
    NotSupported(String),
    Failed(String),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        if is_unsupported(&error) {
            Self::NotSupported(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

impl From<Failure> for Ended {
    fn from(Failure(note): Failure) -> Self {
        Self::Failed(note)
    }
}

impl Replay<'_> {
    /// Runs the steps of a case on a fresh context, or on one that `prepare` has put something into.
    pub(super) fn run(
        &self,
        name: &str,
        case: &Case,
        prepare: impl FnOnce(&mut Context) -> Result<(), Ended>,
    ) -> Row {
        let mut outcome = Outcome::default();
        let (verdict, note) = match self.steps(case, prepare, &mut outcome) {
            Err(Ended::NotSupported(note)) => (Verdict::NotSupported, note),
            Err(Ended::Failed(note)) => (Verdict::Failed, note),
            Ok(()) => self.judge(case, &outcome),
        };
        let (verdict, note) = match verdict {
            Verdict::Passed | Verdict::Failed if case.is("informational") => (Verdict::Informational, note),
            verdict => (verdict, note),
        };
        let max_diff = (outcome.n_rows > 0).then_some(outcome.distance.max);
        Row { max_diff, ..Row::new(name, verdict, note) }
    }

    fn judge(&self, case: &Case, outcome: &Outcome) -> (Verdict, String) {
        if outcome.n_rows == 0 {
            return match outcome.n_positions {
                0 => (Verdict::NotSupported, "the file expects nothing".into()),
                n => (Verdict::Passed, format!("{n} times the right positions")),
            };
        }
        let tolerance = self.options.tolerance * if is_half(case) { HALF } else { 1.0 };
        let by_format = quant::judge(self.golden, &outcome.quant, tolerance);
        let near = outcome.distance.max <= tolerance;
        by_format.unwrap_or((if near { Verdict::Passed } else { Verdict::Failed }, String::new()))
    }

    fn steps(
        &self,
        case: &Case,
        prepare: impl FnOnce(&mut Context) -> Result<(), Ended>,
        outcome: &mut Outcome,
    ) -> Result<(), Ended> {
        let mut ctx = Context::new(self.model, params(case, self.options)?)?;
        prepare(&mut ctx)?;
        case.steps.iter().try_for_each(|step| self.step(&mut ctx, case, step, outcome))
    }

    fn step(&self, ctx: &mut Context, case: &Case, step: &Step, outcome: &mut Outcome) -> Result<(), Ended> {
        match *step {
            Step::Decode(ref batch) => {
                ctx.decode(&as_batch(batch))?;
                self.outputs(ctx, case, batch, outcome)
            }
            Step::Encode(ref batch) => {
                ctx.encode_batch(&as_batch(batch))?;
                self.outputs(ctx, case, batch, outcome)
            }
            // The reference refused and went on with what it had.
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

    /// Compares what a batch put out.
    fn outputs(&self, ctx: &Context, case: &Case, batch: &Batch, outcome: &mut Outcome) -> Result<(), Ended> {
        let Some(expect) = &batch.expect else { return Ok(()) };
        let compare = |(i, ours): (usize, Option<&[f32]>)| {
            let ours = ours.ok_or_else(|| Ended::Failed(format!("output {i} is not there")))?;
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

    /// Compares output `i` of a batch.
    fn compare(
        &self,
        case: &Case,
        expect: &Expect,
        i: usize,
        ours: &[f32],
        outcome: &mut Outcome,
    ) -> Result<(), Ended> {
        let array = self.golden.array(&expect.array);
        let array = array.ok_or_else(|| Ended::Failed(format!("no array {}", expect.array)))?;
        let row = expect.row.saturating_add(i);
        let expected = self.expected.row(array, row)?;
        outcome.distance.add(ours, expected);
        outcome.quant.add(self.golden, self.expected, row, ours)?;
        if let Some(&id) = case.greedy_ids.get(outcome.n_rows) {
            let clear = best(expected).is_some_and(|(_, lead)| lead > 2.0 * self.options.tolerance);
            let found = best(ours).map(|(id, _)| id);
            if clear && found != Some(id) {
                return Err(Ended::Failed(format!("the best token is {found:?}, not {id}")));
            }
        }
        outcome.n_rows += 1;
        Ok(())
    }
}

fn positions(ctx: &Context, seq: SeqId, min: i32, max: i32) -> Result<(), Ended> {
    let found = ctx.seq_range(seq).map_or((-1, -1), |(min, max)| (min.0, max.0));
    if found == (min, max) {
        return Ok(());
    }
    Err(Ended::Failed(format!("sequence {} has positions {found:?}, not {:?}", seq.0, (min, max))))
}

fn as_batch(batch: &Batch) -> backstitch_kv::Batch {
    let mut wanted = batch.out.iter().peekable();
    let mut tokens = backstitch_kv::Batch::new();
    for (i, ((&token, &pos), &seq)) in batch.tokens.iter().zip(&batch.pos).zip(&batch.seq).enumerate() {
        let output = wanted.next_if(|&&index| index == i).is_some();
        tokens.push(Token(token), Pos(pos), &[SeqId(seq)], output);
    }
    tokens
}

/// How many times as far apart results may be where caches hold half precision: the reference rounds queries and weights of
/// attention to it as well, this engine does not.
const HALF: f32 = 10.0;

fn is_half(case: &Case) -> bool {
    ["type_k", "type_v"].iter().any(|name| matches!(case.setting(name), Some("F16" | "BF16")))
}

/// -1 is an open end.
fn range(p0: i32, p1: i32) -> Range<Pos> {
    Pos(p0.max(0))..if p1 < 0 { Pos::MAX } else { Pos(p1) }
}

fn params(case: &Case, options: &Options) -> Result<Params, Ended> {
    let number = |name: &str| {
        let value = case.setting(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| Ended::Failed(format!("the context states no {name}")))
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

/// What the case says about pooling; nothing: as the model says.
fn pooling(case: &Case) -> Result<Option<Pooling>, Ended> {
    match case.setting("pooling_type") {
        None => Ok(None),
        Some("0") => Ok(Some(Pooling::None)),
        Some("1") => Ok(Some(Pooling::Mean)),
        Some("2") => Ok(Some(Pooling::Cls)),
        Some("3") => Ok(Some(Pooling::Last)),
        Some(other) => Err(Ended::NotSupported(format!("pooling_type {other}"))),
    }
}

fn cell_type(case: &Case, name: &str) -> Result<CellType, Ended> {
    match case.setting(name) {
        Some("F32") => Ok(CellType::F32),
        Some("F16") => Ok(CellType::F16),
        Some("BF16") => Ok(CellType::BF16),
        other => Err(Ended::NotSupported(format!("{name} {}", other.unwrap_or("absent")))),
    }
}
