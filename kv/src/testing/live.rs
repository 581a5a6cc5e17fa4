//! Small memories of every kind with some content, to save and restore in tests.

use crate::snapshot::Owned;
use crate::{
    AttentionLayer, AttentionSpec, Batch, Error, LayerSpec, Memory, Params, Plan, Pos, RollbackParams,
    Rotation, SeqId, StateTensor, Token, Ubatch, Window,
};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_core::rope::{Pairs, Rope};

/// Number of kinds of memory.
pub const N_KINDS: usize = 7;
/// Number of sizes per kind.
pub const N_SIZES: usize = 4;
/// Number of histories that a memory can have.
pub const N_STORIES: usize = 5;
/// Sequences of every memory.
pub const N_SEQS: u32 = 5;

/// A memory with the layers that it was made for, and the next unused token.
///
/// Every token is new, and keys, values and states are functions of the tokens, so equal bytes mean
/// equal content.
pub struct Live {
    /// Memory under test.
    pub memory: Memory,
    layers: Vec<LayerSpec>,
    next_token: u32,
}

fn attention(n_head_kv: usize, d_k: usize, d_v: usize, window: Option<Window>) -> AttentionLayer {
    AttentionLayer { n_head_kv, d_k, d_v, window, rope: None }
}

fn cached(layer: AttentionLayer) -> LayerSpec {
    LayerSpec { attention: AttentionSpec::Cached(layer), recurrent: Vec::new() }
}

/// Add a rotation by position, so that a K-shift changes keys.
fn turning(layer: AttentionLayer) -> AttentionLayer {
    let rope =
        Rope { n_rot: 4, pairs: Pairs::Split, freq_base: 1e4, freq_scale: 1.0, attn_factor: 1.0, yarn: None };
    AttentionLayer { rope: Some(Rotation { rope, frequencies: vec![1.0, 0.01] }), ..layer }
}

fn recurrent(parts: &[(usize, usize)]) -> Vec<StateTensor> {
    parts.iter().map(|&(len, input)| StateTensor { len, input }).collect()
}

/// Return the layers of a kind of memory.
pub fn layers(kind: usize) -> Vec<LayerSpec> {
    let all = cached(turning(attention(2, 5, 3, None)));
    let sliding = cached(attention(1, 4, 2, Some(Window::Sliding(20))));
    let chunked = cached(attention(1, 2, 1, Some(Window::Chunked(16))));
    // As wide as a small context, which then keeps it in the cache of all cells.
    let wide = cached(attention(1, 3, 2, Some(Window::Sliding(160))));
    let stepped = LayerSpec { recurrent: recurrent(&[(3, 1)]), ..LayerSpec::default() };
    let in_pieces = LayerSpec { recurrent: recurrent(&[(2, 1), (0, 2), (4, 0)]), ..LayerSpec::default() };
    match kind % N_KINDS {
        0 => vec![all, LayerSpec { attention: AttentionSpec::SharedWith(0), ..LayerSpec::default() }],
        1 => vec![sliding, chunked],
        2 => vec![stepped, LayerSpec::default(), in_pieces],
        3 => vec![all.clone(), LayerSpec { recurrent: in_pieces.recurrent, ..sliding }, stepped, all],
        4 => vec![
            LayerSpec {
                attention: AttentionSpec::BatchOnly { layer: attention(1, 2, 2, None), causal: false },
                ..LayerSpec::default()
            },
            all,
            LayerSpec { attention: AttentionSpec::Cross(attention(1, 2, 2, None)), ..LayerSpec::default() },
        ],
        5 => vec![wide, all, chunked],
        _ => vec![sliding, stepped],
    }
}

/// Return the parameters of a size: the number of cells, and how many checkpoints the budget
/// allows.
pub fn params(size: usize) -> Params {
    let rollback = RollbackParams { checkpoint_bytes: 1 << 20, spacing: 8, journal: 4, margin: 8 };
    let few = RollbackParams { checkpoint_bytes: 3_000, ..rollback };
    let (n_ctx, rollback, k_type, v_type) = match size % N_SIZES {
        0 => (160, rollback, CellType::F16, CellType::F16),
        1 => (96, few, CellType::F16, CellType::F16),
        2 => (700, rollback, CellType::F32, CellType::BF16),
        _ => (160, RollbackParams::OFF, CellType::F16, CellType::F16),
    };
    Params { n_ctx, n_seq_max: N_SEQS, n_batch: 64, k_type, v_type, rollback }
}

impl Live {
    /// Return an empty memory.
    pub fn new(kind: usize, size: usize) -> Live {
        let layers = layers(kind);
        let memory = Memory::new(&layers, &params(size)).expect("small layers fit");
        Live { memory, layers, next_token: 1 }
    }

    /// Return a memory after a history of operations, and the sequences that hold tokens.
    pub fn with_story(kind: usize, size: usize, story: usize) -> (Live, Vec<SeqId>) {
        let mut live = Live::new(kind, size);
        let seqs = live.tell(story);
        (live, seqs)
    }

    /// Run a history of operations, ignoring those that do not fit.
    fn tell(&mut self, story: usize) -> Vec<SeqId> {
        let [a, b, c] = [0, 1, 2].map(SeqId);
        let _ = self.encode(a, 9);
        match story % N_STORIES {
            0 => return vec![a],
            1 => {
                let _ = self.append(a, 41);
                return vec![a];
            }
            2 => {
                let _ = self.append(a, 40);
                let _ = self.memory.seq_cp(a, b, Pos::ZERO..Pos::MAX);
                let _ = self.append(a, 9);
                let _ = self.append(b, 13);
            }
            3 => {
                for _ in 0..4 {
                    let _ = self.append(a, 17);
                }
                let _ = self.back(a, 7);
                let _ = self.append(a, 3);
                let _ = self.memory.seq_rm(a, Pos(3)..Pos(9));
                let _ = self.memory.seq_add(a, Pos(11)..Pos::MAX, 5);
                let _ = self.append(a, 2);
                return vec![a];
            }
            _ => {
                let _ = self.append(a, 33);
                let _ = self.memory.pin(a);
                let _ = self.append(a, 6);
                let _ = self.memory.seq_cp(a, c, Pos::ZERO..Pos::MAX);
                let _ = self.back(c, 10);
                let _ = self.append(c, 25);
                let _ = self.encode(b, 4);
                return vec![a, b, c];
            }
        }
        vec![a, b]
    }

    /// Append new tokens.
    ///
    /// # Errors
    /// Those of [`Memory::prepare`].
    pub fn append(&mut self, seq: SeqId, n: u32) -> Result<(), Error> {
        let start = self.memory.seq_pos_max(seq).map_or(0, |last| last.0.saturating_add(1));
        let batch = self.batch(seq, start, n);
        compute(self.memory.prepare(&batch, 16)?, &self.layers)
    }

    /// Store encoder output for a sequence, if a layer reads any.
    ///
    /// # Errors
    /// Those of [`Memory::prepare_encoding`].
    pub fn encode(&mut self, seq: SeqId, n: u32) -> Result<(), Error> {
        if !self.layers.iter().any(|spec| matches!(spec.attention, AttentionSpec::Cross(_))) {
            return Ok(());
        }
        let batch = self.batch(seq, 0, n);
        compute(self.memory.prepare_encoding(&batch, 64)?, &self.layers)
    }

    fn batch(&mut self, seq: SeqId, start: i32, n: u32) -> Batch {
        let mut batch = Batch::new();
        for i in 0..n {
            batch.push(Token(self.next_token), Pos(start.saturating_add_unsigned(i)), &[seq], false);
            self.next_token += 1;
        }
        batch
    }

    /// Roll back by `n` tokens, or to the checkpoint before that.
    ///
    /// # Errors
    /// Those of [`Memory::rewind`].
    pub fn back(&mut self, seq: SeqId, n: u32) -> Result<(), Error> {
        let end = self.memory.seq_pos_max(seq).map_or(0, |last| last.0.saturating_add(1));
        let mut rewind = self.memory.rewind(seq, Pos(end.saturating_sub_unsigned(n).max(0)), 3)?;
        while let Some(mut ubatch) = rewind.next_ubatch() {
            for (layer, spec) in self.layers.iter().enumerate() {
                (0..spec.recurrent.len()).for_each(|part| replay(&mut ubatch, layer, part));
            }
        }
        rewind.commit()
    }

    /// Return the sequences and their bytes, apart from the memory.
    pub fn owned(&self, seqs: &[SeqId]) -> Owned {
        Owned::copy(&self.memory.export(seqs).expect("the sequences are there"))
    }
}

/// Return all sequences of a memory.
pub fn all_seqs() -> Vec<SeqId> {
    (0..N_SEQS).map(SeqId).collect()
}

fn compute(mut plan: Plan<'_>, layers: &[LayerSpec]) -> Result<(), Error> {
    while let Some(mut ubatch) = plan.next_ubatch() {
        let tokens: Vec<Token> = ubatch.tokens().iter().map(|token| token.token).collect();
        for (number, spec) in layers.iter().enumerate() {
            store(&mut ubatch, number, &tokens)?;
            (0..spec.recurrent.len()).for_each(|part| step(&mut ubatch, number, part, &tokens));
        }
    }
    plan.commit()
}

fn store(ubatch: &mut Ubatch<'_>, layer: usize, tokens: &[Token]) -> Result<(), Error> {
    let Some(mut store) = ubatch.store(layer) else { return Ok(()) };
    let layout = store.layout;
    let row = |width: usize| {
        tokens.iter().flat_map(move |token| (0..width).map(move |i| (token.0 * 31 + i as u32) as f32 / 8.0))
    };
    let (k, v): (Vec<f32>, Vec<f32>) =
        (row(layout.n_head_kv * layout.d_k).collect(), row(layout.n_head_kv * layout.d_v).collect());
    store.put(&k, &v)
}

fn advance(state: &mut [f32], input: f32) {
    state.iter_mut().enumerate().for_each(|(i, x)| *x = (*x * 31.0 + input + i as f32) % 4093.0);
}

fn step(ubatch: &mut Ubatch<'_>, layer: usize, part: usize, tokens: &[Token]) {
    let Some(mut states) = ubatch.states(layer, part) else { return };
    for run in states.segments() {
        let tokens = &tokens[run.start as usize..run.end as usize];
        let state = states.carry(&run);
        tokens.iter().for_each(|token| advance(state, token.0 as f32));
        if let Some(inputs) = states.inputs(&run) {
            let width = inputs.len() / tokens.len().max(1);
            for (inputs, token) in inputs.chunks_mut(width.max(1)).zip(tokens) {
                inputs.fill(token.0 as f32);
            }
        }
    }
}

fn replay(ubatch: &mut Ubatch<'_>, layer: usize, part: usize) {
    let Some(mut states) = ubatch.states(layer, part) else { return };
    for run in states.segments() {
        let n_tokens = (run.end - run.start) as usize;
        let inputs = states.inputs(&run).expect("what is replayed has been journaled").to_vec();
        let (width, state) = (inputs.len() / n_tokens.max(1), states.carry(&run));
        for token in 0..n_tokens {
            advance(state, inputs.get(token * width).copied().unwrap_or_default());
        }
    }
}
