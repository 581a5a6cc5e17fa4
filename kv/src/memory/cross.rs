//! What the decoder of an encoder-decoder attends to: keys and values of the text that the encoder saw.
//!
//! They belong to a sequence beside its tokens. An encoding writes them for all tokens of a text at once and takes the place of the
//! sequence's last text when its plan is committed; decoding only reads them. Forks share them.

use super::cells::CellPart;
use super::unified::Layer;
use super::{Cell, Kind, Op, Part, Pass, Restore, Visible};
use crate::batch::Batch;
use crate::block::BlockPool;
use crate::error::Error;
use crate::extent::{SPAN, Table};
use crate::ids::{Pos, SeqId};
use crate::layer::{AttentionLayer, Params};
use crate::plan::{Attention, Store};
use crate::room;
use crate::split::{Schedule, Split};
use crate::storage::Home;
use crate::survey::{Held, Layers};
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// The part of a memory that holds encoded texts.
pub(super) struct Cross {
    pub(super) pool: BlockPool,
    pub(super) layers: Vec<Layer>,
    /// The text of each sequence.
    pub(super) tables: Vec<Table>,
    /// Entries that each table has room for.
    pub(super) table_room: usize,
    /// The most cells of a text.
    pub(super) n_ctx: u32,
    /// The texts that a plan encodes.
    fresh: Vec<Table>,
    /// The sequences of which `fresh` has one.
    staged: Vec<SeqId>,
    /// What the plan is for.
    pass: Pass,
    /// For each token of an encoding.
    cells: Vec<Cell>,
    /// For each token of a decoding.
    visible: Vec<Visible>,
}

impl Cross {
    pub fn new(layers: &[AttentionLayer], params: &Params, home: Home) -> Result<Cross, Error> {
        let (n_blocks, n_seq_max) = (params.n_blocks_cross(), params.n_seq_max as usize);
        let made = layers.iter().map(|spec| Layer::new(spec, params, 0, n_blocks, home));
        let table_room = (params.n_batch as usize).div_ceil(BLOCK_CELLS) + SPAN;
        let tables = || -> Result<Vec<Table>, Error> {
            let mut tables: Vec<Table> = (0..n_seq_max).map(|_| Table::default()).collect();
            tables.iter_mut().try_for_each(|table| table.make_room(table_room))?;
            Ok(tables)
        };
        let (mut cells, mut visible) = (Vec::new(), Vec::new());
        room::for_len(&mut cells, params.n_batch as usize)?;
        room::for_len(&mut visible, params.n_batch as usize)?;
        Ok(Cross {
            pool: BlockPool::new(n_blocks)?,
            layers: made.collect::<Result<_, _>>()?,
            tables: tables()?,
            table_room,
            n_ctx: params.n_ctx,
            fresh: tables()?,
            staged: Vec::with_capacity(n_seq_max),
            pass: Pass::Decode,
            cells,
            visible,
        })
    }

    pub(super) fn table(&self, seq: SeqId) -> &Table {
        &self.tables[seq.index()]
    }

    fn check_room(&self, schedule: &Schedule) -> Result<(), Error> {
        let blocks = |tokens: &Range<usize>| tokens.len().div_ceil(BLOCK_CELLS) as u64;
        let need: u64 = schedule.runs().iter().map(|run| blocks(&run.tokens)).sum();
        let (free, cells) = (u64::from(self.pool.n_free()), BLOCK_CELLS as u64);
        let mut left = free;
        for run in schedule.runs() {
            let Some(rest) = left.checked_sub(blocks(&run.tokens)) else {
                let seq = schedule.tokens().get(run.tokens.start).map(|token| token.seq).unwrap_or_default();
                return Err(Error::Full { what: "cells", need: need * cells, free: free * cells, seq });
            };
            left = rest;
        }
        Ok(())
    }

    /// Room for the texts of a batch, one a run of tokens.
    fn encode(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        self.check_room(schedule)?;
        for run in schedule.runs() {
            let tokens = &schedule.tokens()[run.tokens.clone()];
            let Some(first) = tokens.first() else { continue };
            let [owner, others @ ..] = batch.seqs(first.index as usize) else { continue };
            let seqs = || core::iter::once(owner).chain(others);
            if let Some(&other) = seqs().find(|seq| !self.fresh[seq.index()].is_empty()) {
                return Err(Error::Diverged { index: first.index, seq: *owner, other });
            }
            self.staged.extend(seqs());
            let mut table = core::mem::take(&mut self.fresh[owner.index()]);
            for token in tokens {
                let block = match table.open_tail() {
                    Some((_, block)) => block,
                    // There are enough.
                    None => self.pool.take(1).inspect(|&block| table.open(block)).unwrap_or_default(),
                };
                let cell = table.push_cell() % BLOCK_CELLS as u32;
                self.pool.set_pos(block, cell, token.pos);
                self.cells.push(Cell { block, cell });
            }
            for other in others {
                self.fresh[other.index()].share(&mut self.pool, &table, 0..u32::MAX);
            }
            self.fresh[owner.index()] = table;
        }
        Ok(())
    }

    /// What the tokens of a batch see.
    fn decode(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        for run in schedule.runs() {
            let tokens = &schedule.tokens()[run.tokens.clone()];
            let Some(first) = tokens.first() else { continue };
            let (index, seqs) = (first.index, batch.seqs(first.index as usize));
            if let Some(&seq) = seqs.iter().find(|seq| self.table(**seq).is_empty()) {
                return Err(Error::NotEncoded { index, seq });
            }
            let text = self.table(first.seq);
            if let Some(&other) = seqs.iter().find(|seq| self.table(**seq).extents() != text.extents()) {
                return Err(Error::Diverged { index, seq: first.seq, other });
            }
            let seen = Visible { seq: first.seq, lo: 0, hi: text.n_slots() };
            self.visible.extend(tokens.iter().map(|_| seen));
        }
        Ok(())
    }

    /// Forgets the plan; what it staged goes back to the pool.
    fn forget_plan(&mut self) {
        for seq in self.staged.drain(..) {
            self.fresh[seq.index()].clear(&mut self.pool);
        }
        self.cells.clear();
        self.visible.clear();
    }
}

impl Part for Cross {
    fn kind(&self) -> Kind {
        Kind::Cross
    }

    fn split(&self) -> Split {
        Split::Simple
    }

    fn admit(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Copy { src, dst, .. } => {
                let n = self.table(*src).extents().len();
                self.tables[dst.index()].make_room(n)
            }
            _ => Ok(()),
        }
    }

    /// Only whole sequences have or lose a text; what happens to their tokens does not matter to it.
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Copy { src, dst, .. } => {
                let mut copy = core::mem::take(&mut self.tables[dst.index()]);
                copy.clear(&mut self.pool);
                copy.share(&mut self.pool, &self.tables[src.index()], 0..u32::MAX);
                self.tables[dst.index()] = copy;
            }
            Op::Keep { seq } => {
                let others = self.tables.iter_mut().enumerate().filter(|(i, _)| *i != seq.index());
                others.for_each(|(_, table)| table.clear(&mut self.pool));
            }
            Op::Clear => self.tables.iter_mut().for_each(|table| table.clear(&mut self.pool)),
            Op::Remove { .. } | Op::Add { .. } | Op::Divide { .. } => {}
        }
    }

    fn pos_min(&self, _seq: SeqId) -> Option<Pos> {
        None
    }

    fn pos_max(&self, _seq: SeqId) -> Option<Pos> {
        None
    }

    fn can_cut(&self, _seq: SeqId, _pos: Pos) -> bool {
        true
    }

    fn cut_from(&self, _seq: SeqId) -> Pos {
        Pos::ZERO
    }

    fn touches(&self, _seq: SeqId, _range: &Range<Pos>) -> bool {
        false
    }

    fn hold(&mut self, _id: u32, _seq: SeqId, _pos: Pos) {}

    fn let_go(&mut self, _id: u32) {}

    fn rewind(&mut self, _seq: SeqId, _from: &Restore) {}

    fn enter(&mut self, pass: Pass) {
        self.pass = pass;
    }

    fn forget(&mut self, seq: SeqId) {
        self.tables[seq.index()].clear(&mut self.pool);
    }

    /// The text lies beside the sequence's positions, so there is nothing to show at them.
    fn survey(&self, _seq: SeqId, _checkpoints: &[u32]) -> (Layers, Vec<Held>) {
        (Layers::new(Kind::Cross, self.layers.len()), Vec::new())
    }

    fn as_cells(&self) -> Option<&dyn CellPart> {
        Some(self)
    }

    fn as_cells_mut(&mut self) -> Option<&mut dyn CellPart> {
        Some(self)
    }

    fn reserve(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        let reserved = match self.pass {
            Pass::Encode => self.encode(batch, schedule),
            Pass::Decode => self.decode(batch, schedule),
        };
        reserved.inspect_err(|_| self.forget_plan())
    }

    fn commit(&mut self) {
        for &seq in &self.staged {
            // The old text is what is given back.
            core::mem::swap(&mut self.tables[seq.index()], &mut self.fresh[seq.index()]);
        }
        self.forget_plan();
    }

    fn undo(&mut self) {
        self.forget_plan();
    }

    fn n_blocks(&self) -> u32 {
        self.pool.len() as u32
    }

    fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let layer = self.layers.get(layer)?;
        let visible = self.visible.get(tokens)?;
        let (layout, storage) = (layer.layout, layer.storage());
        Some(Attention { layout, storage, tables: &self.tables, visible, pool: &self.pool })
    }

    fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let layer = self.layers.get_mut(layer)?;
        let cells = self.cells.get(tokens)?;
        Some(Store { layout: layer.layout, storage: layer.storage_mut(), cells })
    }

    #[cfg(any(test, feature = "oracle"))]
    fn n_free_blocks(&self) -> u32 {
        self.pool.n_free()
    }

    #[cfg(any(test, feature = "oracle"))]
    fn audit(&self) -> Result<(), alloc::string::String> {
        self.tables.iter().chain(&self.fresh).try_for_each(|table| table.audit(&self.pool))?;
        self.pool.audit(self.tables.iter().flat_map(|table| table.touched(0..u32::MAX).map(|t| t.1)))?;
        let left = self.staged.len() + self.cells.len() + self.visible.len();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Hybrid, Memory};
    use super::*;
    use crate::ids::Token;
    use crate::layer::{AttentionSpec, LayerSpec};
    use crate::timeline::TimelineParams;
    use backstitch_core::cell::CellType::F32;

    const SHAPE: AttentionLayer = AttentionLayer { n_head_kv: 1, d_k: 1, d_v: 1, window: None, rope: None };

    /// An encoder's layer, what the decoder sees of it, and the decoder's own.
    fn memory(n_ctx: u32) -> Hybrid {
        let spec = |attention| LayerSpec { attention, ..LayerSpec::default() };
        let layers = [
            spec(AttentionSpec::Uncached { layer: SHAPE, causal: false }),
            spec(AttentionSpec::Cross(SHAPE)),
            spec(AttentionSpec::Cached(SHAPE)),
        ];
        let timeline = TimelineParams::default();
        let params = Params { n_ctx, n_seq_max: 3, n_batch: n_ctx, k_type: F32, v_type: F32, timeline };
        Hybrid::new(&layers, &params).unwrap()
    }

    fn batch(seqs: &[u32], start: i32, n: i32) -> Batch {
        let seqs: Vec<SeqId> = seqs.iter().map(|&seq| SeqId(seq)).collect();
        let mut batch = Batch::new();
        for pos in start..start + n {
            batch.push(Token(0), Pos(pos), &seqs, false);
        }
        batch
    }

    /// Encodes a text whose keys are `key`; commits if asked to.
    fn encode(memory: &mut Hybrid, batch: &Batch, key: f32, commit: bool) -> Result<(), Error> {
        let mut plan = memory.prepare_encoding(batch, 64)?;
        while let Some(mut ubatch) = plan.next_ubatch() {
            assert!(ubatch.store(2).is_none_or(|store| store.cells.is_empty()), "the decoder's own layer");
            let n = ubatch.n_tokens();
            ubatch.store(1).unwrap().put(&alloc::vec![key; n], &alloc::vec![key; n])?;
        }
        if commit { plan.commit() } else { Ok(()) }
    }

    /// Decodes one token and returns the keys of the text that it saw.
    fn decode(memory: &mut Hybrid, seq: u32) -> Result<Vec<f32>, Error> {
        let pos = memory.seq_pos_max(SeqId(seq)).map_or(0, |pos| pos.0 + 1);
        let batch = batch(&[seq], pos, 1);
        let mut keys = Vec::new();
        let mut plan = memory.prepare(&batch, 64)?;
        while let Some(mut ubatch) = plan.next_ubatch() {
            assert!(ubatch.store(1).is_none_or(|store| store.cells.is_empty()), "decoding only reads");
            ubatch.store(2).unwrap().put(&[0.0], &[0.0])?;
            let seen = ubatch.attention(1).unwrap();
            let visible = seen.visible()[0];
            for extent in seen.table(&visible) {
                let block = &seen.storage[seen.layout.block_range(extent.block as usize)];
                for cell in crate::extent::bits(extent.live) {
                    let mut key = [0.0];
                    seen.layout.load_k(block, cell as usize, &mut key);
                    keys.push(key[0]);
                }
            }
            assert_eq!(keys.len() as u32, visible.hi - visible.lo);
        }
        plan.commit()?;
        Ok(keys)
    }

    fn audit(memory: &Hybrid) {
        memory.inside().for_each(|part| part.audit().unwrap());
    }

    #[test]
    fn decoding_sees_the_whole_text_of_its_sequence_and_changes_nothing_of_it() {
        let mut memory = memory(128);
        encode(&mut memory, &batch(&[0], 0, 40), 1.0, true).unwrap();
        encode(&mut memory, &batch(&[1, 2], 0, 3), 2.0, true).unwrap();
        for _ in 0..2 {
            assert_eq!(decode(&mut memory, 0).unwrap(), [1.0; 40]);
            assert_eq!(decode(&mut memory, 1).unwrap(), [2.0; 3]);
            assert_eq!(decode(&mut memory, 2).unwrap(), [2.0; 3]);
        }
        assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(1)));
        memory.seq_rm(SeqId(0), Pos::ZERO..Pos::MAX).unwrap();
        assert_eq!(decode(&mut memory, 0).unwrap(), [1.0; 40], "the text stays when tokens go");
        audit(&memory);
    }

    #[test]
    fn a_text_takes_the_place_of_the_last_or_leaves_it_alone() {
        let mut memory = memory(64);
        encode(&mut memory, &batch(&[0], 0, 64), 1.0, true).unwrap();
        encode(&mut memory, &batch(&[0], 0, 50), 2.0, false).unwrap();
        assert_eq!(decode(&mut memory, 0).unwrap(), [1.0; 64]);
        memory.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos::MAX).unwrap();
        encode(&mut memory, &batch(&[0], 0, 50), 3.0, true).unwrap();
        assert_eq!(decode(&mut memory, 0).unwrap(), [3.0; 50]);
        assert_eq!(decode(&mut memory, 1).unwrap(), [1.0; 64], "the fork keeps its own");
        encode(&mut memory, &batch(&[2], 0, 40), 4.0, true).unwrap();
        let refused = encode(&mut memory, &batch(&[1], 0, 64), 5.0, true);
        assert!(matches!(refused, Err(Error::Full { need: 64, .. })), "{refused:?}");
        assert_eq!(decode(&mut memory, 1).unwrap(), [1.0; 64]);
        memory.forget(SeqId(1)).unwrap();
        memory.clear();
        audit(&memory);
        assert_eq!(memory.inside().map(|part| part.n_free_blocks()).max(), Some(7));
    }

    #[test]
    fn without_a_text_there_is_nothing_to_decode_from() {
        let mut memory = memory(64);
        let refused = decode(&mut memory, 1);
        assert_eq!(refused, Err(Error::NotEncoded { index: 0, seq: SeqId(1) }));
        encode(&mut memory, &batch(&[0], 0, 3), 1.0, true).unwrap();
        encode(&mut memory, &batch(&[1], 0, 3), 1.0, true).unwrap();
        let both = batch(&[0, 1], 0, 1);
        assert!(matches!(memory.prepare(&both, 8).map(|_| ()), Err(Error::Diverged { .. })));
        audit(&memory);
    }
}
