//! Sequences with a history, and the state of them that a context shows.

use crate::converted::tokens;
use backstitch_core::cell::CellType;
use backstitch_models::{
    Context, CostRange, Model, Params, Pos, RestoreOptions, Restored, Rollback, RollbackCost, RollbackParams,
    SaveOptions, SeqId, Token,
};

/// One model for each kind of memory: full KV cache, encoder output beside it, windows, recurrent
/// states, recurrent states beside a KV cache.
pub const KINDS: [&str; 8] = ["llama", "t5", "gemma3", "mamba2", "rwkv7", "falcon_h1", "lfm2_swa", "qwen35"];

pub const CELLS: [CellType; 3] = [CellType::F16, CellType::F32, CellType::BF16];

pub fn golden(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

/// Parameters for four sequences of some hundred tokens, with checkpoints close enough that each
/// sequence has several.
pub fn params(cells: CellType) -> Params {
    let rollback = RollbackParams::default().checkpoint_bytes(4 << 20).spacing(32).journal(8).margin(16);
    Params::default().n_ctx(640).n_seq_max(4).rollback(rollback).type_k(cells).type_v(cells)
}

pub fn context(model: &Model, cells: CellType) -> Context {
    Context::new(model, params(cells)).unwrap()
}

/// Make a sequence with a history: a prompt, single tokens, a rollback, a pinned checkpoint, a few
/// tokens more.
pub fn tell(ctx: &mut Context, seed: u64) -> SeqId {
    let seq = ctx.sequence().unwrap();
    let story = tokens(ctx.model(), seed, 136);
    if ctx.model().graph().encoder().is_some() {
        ctx.encode(seq, &story[..9]).unwrap();
    }
    ctx.append(seq, &story[9..99]).unwrap();
    story[99..110].iter().for_each(|token| ctx.append(seq, &[*token]).unwrap());
    ctx.rollback(seq, Pos(97)).unwrap();
    ctx.pin(seq).unwrap();
    ctx.append(seq, &story[110..131]).unwrap();
    story[131..].iter().for_each(|token| ctx.append(seq, &[*token]).unwrap());
    seq
}

pub fn bits(logits: Option<&[f32]>) -> Option<Vec<u32>> {
    logits.map(|logits| logits.iter().map(|x| x.to_bits()).collect())
}

/// The state of a sequence that a context shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub tokens: Vec<Token>,
    pub range: Option<(Pos, Pos)>,
    pub positions: Vec<CostRange>,
    pub logits: Option<Vec<u32>>,
}

pub fn seen(ctx: &Context, seq: SeqId) -> Seen {
    Seen {
        tokens: ctx.tokens(seq).unwrap().to_vec(),
        range: ctx.seq_range(seq),
        positions: ctx.positions(seq).unwrap(),
        logits: bits(ctx.logits_at_hand(seq)),
    }
}

/// Return the positions that a rollback reaches without re-evaluation.
pub fn instant(ranges: &[CostRange]) -> Vec<Pos> {
    let of = |range: &CostRange| (range.positions.start.0..range.positions.end.0).map(Pos);
    ranges.iter().filter(|range| range.cost != RollbackCost::Reevaluated).flat_map(of).collect()
}

/// Return the logits after each of `n` more tokens, which depend on `seed`.
pub fn go_on(ctx: &mut Context, seq: SeqId, seed: u64, n: usize) -> Vec<Option<Vec<u32>>> {
    let tokens = tokens(ctx.model(), seed, n);
    let after = |token| {
        ctx.append(seq, &[token]).unwrap();
        bits(ctx.logits_at_hand(seq))
    };
    tokens.into_iter().map(after).collect()
}

/// Return the logits of a fork of `seq` that rolls back to `pos` and continues from there.
pub fn go_back(ctx: &mut Context, seq: SeqId, pos: Pos) -> (Rollback, Vec<Option<Vec<u32>>>) {
    let fork = ctx.fork(seq).unwrap();
    let done = ctx.rollback(fork, pos).unwrap();
    let after = go_on(ctx, fork, 77, 3);
    ctx.release(fork).unwrap();
    (done, after)
}

/// Return the first, a middle and the last position of each range, from the end back.
pub fn landmarks(ranges: &[CostRange]) -> Vec<Pos> {
    let of = |range: &CostRange| {
        let (start, last) = (range.positions.start.0, range.positions.end.0 - 1);
        [last, (start + last) / 2, start].map(Pos)
    };
    let mut all: Vec<Pos> = ranges.iter().rev().flat_map(of).collect();
    all.dedup();
    all
}

pub fn saved(ctx: &Context, seq: SeqId) -> Vec<u8> {
    let mut bytes = Vec::new();
    ctx.seq_state_write(seq, &mut bytes, &SaveOptions::default()).unwrap();
    bytes
}

pub fn saved_all(ctx: &Context) -> Vec<u8> {
    let mut bytes = Vec::new();
    ctx.state_write(&mut bytes, &SaveOptions::default()).unwrap();
    bytes
}

pub fn restore(ctx: &mut Context, seq: SeqId, mut bytes: &[u8]) -> Restored {
    ctx.seq_state_read(seq, &mut bytes, &RestoreOptions::default()).unwrap()
}
