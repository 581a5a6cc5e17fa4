//! Cross-attention KV: keys and values of the encoder output, which a decoder attends to.
//!
//! A sequence has encoder output apart from its tokens. An encoding stores the keys and values of
//! all tokens at once, and committing its plan replaces the former output of the sequence. Decoding
//! only reads it, and forks share it.

use super::operation::{Op, Pass};
use super::paged::PagedCells;
use super::table::{BlockTable, tables};
use super::view::{Attention, Cell, Visible};
use crate::batch::Batch;
use crate::batch::split::SplitBatch;
use crate::error::Error;
use crate::external::Home;
use crate::ids::SeqId;
use crate::layer::{AttentionLayer, Retained};
use crate::params::{Params, Sizes};
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// Encoder output of each sequence, as paged cells.
///
/// The output of a sequence is complete or absent: until a plan of an encoding is committed, its
/// cells are in `fresh` and decoding sees the former output.
pub(crate) struct CrossCache {
    /// Encoder output of each sequence.
    pub cells: PagedCells,
    /// By sequence: encoder output that the open plan stores.
    fresh: Vec<BlockTable>,
    /// Sequences with a table in `fresh`.
    encoding: Vec<SeqId>,
    /// Slots that each token of a decoding sees.
    visible: Vec<Visible>,
}

impl CrossCache {
    /// Make an empty cache for these layers.
    pub fn new(layers: &[AttentionLayer], params: &Params, home: Home) -> Result<CrossCache, Error> {
        let cells = PagedCells::new(Retained::EncoderOutput, layers, params, &Sizes::default(), home)?;
        Ok(CrossCache {
            fresh: tables(params.n_seq_max, cells.table_room)?,
            cells,
            encoding: Vec::with_capacity(params.n_seq_max as usize),
            visible: reserve::with_room(params.n_batch as usize)?,
        })
    }

    /// Check that enough blocks are free for the encoder output of a batch.
    fn check_room(&self, split_batch: &SplitBatch) -> Result<(), Error> {
        let blocks = |tokens: &Range<usize>| tokens.len().div_ceil(BLOCK_CELLS) as u64;
        let need: u64 = split_batch.segments().iter().map(|segment| blocks(&segment.tokens)).sum();
        let (free, cells) = (u64::from(self.cells.pool.n_free()), BLOCK_CELLS as u64);
        let mut left = free;
        for segment in split_batch.segments() {
            let Some(rest) = left.checked_sub(blocks(&segment.tokens)) else {
                let seq =
                    split_batch.tokens().get(segment.tokens.start).map(|token| token.seq).unwrap_or_default();
                return Err(Error::Full { what: "cells", need: need * cells, free: free * cells, seq });
            };
            left = rest;
        }
        Ok(())
    }

    /// Reserve cells for the encoder output of a batch, one output for each segment.
    fn encode(&mut self, batch: &Batch, split_batch: &SplitBatch) -> Result<(), Error> {
        self.check_room(split_batch)?;
        for segment in split_batch.segments() {
            let tokens = &split_batch.tokens()[segment.tokens.clone()];
            let Some(first) = tokens.first() else { continue };
            let seqs = batch.seqs(first.index as usize);
            let [owner, others @ ..] = seqs else { continue };
            if let Some(&other) = seqs.iter().find(|seq| !self.fresh[seq.index()].is_empty()) {
                return Err(Error::Diverged { index: first.index, seq: *owner, other });
            }
            self.encoding.extend_from_slice(seqs);
            let (table, pool) = (&mut self.fresh[owner.index()], &mut self.cells.pool);
            for token in tokens {
                let block = match table.open_tail() {
                    Some((_, block)) => block,
                    None => {
                        // `check_room` counted the blocks, so this does not fail.
                        let (need, seq) = (BLOCK_CELLS as u64, *owner);
                        let block = pool.take(1).ok_or(Error::Full { what: "cells", need, free: 0, seq })?;
                        table.open(block);
                        block
                    }
                };
                let cell = table.push_cell() % BLOCK_CELLS as u32;
                pool.set_pos(block, cell, token.pos);
                self.cells.placed.push(Cell { block, cell });
            }
            let table = core::mem::take(&mut self.fresh[owner.index()]);
            for other in others {
                self.fresh[other.index()].share(&mut self.cells.pool, &table, 0..u32::MAX);
            }
            self.fresh[owner.index()] = table;
        }
        Ok(())
    }

    /// Note the encoder output that each token of a batch sees.
    ///
    /// # Errors
    /// - [`Error::NotEncoded`] if a sequence has none.
    /// - [`Error::Diverged`] if the sequences of a token have different ones.
    fn decode(&mut self, batch: &Batch, split_batch: &SplitBatch) -> Result<(), Error> {
        for segment in split_batch.segments() {
            let tokens = &split_batch.tokens()[segment.tokens.clone()];
            let Some(first) = tokens.first() else { continue };
            let (index, seqs) = (first.index, batch.seqs(first.index as usize));
            if let Some(&seq) = seqs.iter().find(|seq| self.cells.table(**seq).is_empty()) {
                return Err(Error::NotEncoded { index, seq });
            }
            let output = self.cells.table(first.seq);
            if let Some(&other) =
                seqs.iter().find(|seq| self.cells.table(**seq).extents() != output.extents())
            {
                return Err(Error::Diverged { index, seq: first.seq, other });
            }
            let seen = Visible { seq: first.seq, lo: 0, hi: output.n_slots() };
            self.visible.extend(tokens.iter().map(|_| seen));
        }
        Ok(())
    }

    /// Forget the plan and free the blocks that it reserved.
    pub fn undo(&mut self) {
        for seq in self.encoding.drain(..) {
            self.fresh[seq.index()].clear(&mut self.cells.pool);
        }
        self.cells.placed.clear();
        self.visible.clear();
    }

    /// Make the room that `op` takes.
    pub fn admit(&mut self, op: &Op) -> Result<(), Error> {
        let Op::Copy { src, dst, .. } = op else { return Ok(()) };
        let n = self.cells.table(*src).extents().len();
        self.cells.tables[dst.index()].make_room(n)
    }

    /// Do an operation that `admit` allowed. Only copies change encoder output.
    pub fn apply(&mut self, op: &Op) {
        if let Op::Copy { src, dst, .. } = op {
            self.cells.share(*src, *dst, 0..u32::MAX);
        }
    }

    /// Reserve cells for an encoding, or note what a decoding sees; the caller undoes it on error.
    pub fn reserve(&mut self, batch: &Batch, split_batch: &SplitBatch, pass: Pass) -> Result<(), Error> {
        match pass {
            Pass::Encode => self.encode(batch, split_batch),
            Pass::Decode => self.decode(batch, split_batch),
        }
    }

    /// Replace the former encoder output by the new one.
    pub fn commit(&mut self) {
        for &seq in &self.encoding {
            // `undo` frees the former output, which this leaves in `fresh`.
            core::mem::swap(&mut self.cells.tables[seq.index()], &mut self.fresh[seq.index()]);
        }
        self.undo();
    }

    /// Return the keys and values of `layer` as tokens `range` of a decoding see them.
    pub fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        self.cells.attention(layer, self.visible.get(tokens)?)
    }
}

/// Access for tests that compare a memory with a simple model of it.
#[cfg(any(test, feature = "testing"))]
impl CrossCache {
    /// Check that tables, blocks and plan add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        self.cells.audit()?;
        let fresh: u32 = self.fresh.iter().map(BlockTable::n_cells).sum();
        let left = self.encoding.len() + self.visible.len() + fresh as usize;
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Pos, Token};
    use crate::layer::{AttentionSpec, LayerSpec};
    use crate::memory::Memory;
    use crate::params::Params;
    use crate::params::RollbackParams;
    use backstitch_core::cell::CellType::F32;

    const SHAPE: AttentionLayer = AttentionLayer { n_head_kv: 1, d_k: 1, d_v: 1, window: None, rope: None };

    /// Return a memory with a layer of the encoder, a cross-attention layer, and a layer of the
    /// decoder.
    fn memory(n_ctx: u32) -> Memory {
        let spec = |attention| LayerSpec { attention, ..LayerSpec::default() };
        let layers = [
            spec(AttentionSpec::BatchOnly { layer: SHAPE, causal: false }),
            spec(AttentionSpec::Cross(SHAPE)),
            spec(AttentionSpec::Cached(SHAPE)),
        ];
        let rollback = RollbackParams::default();
        let params = Params { n_ctx, n_seq_max: 3, n_batch: n_ctx, k_type: F32, v_type: F32, rollback };
        Memory::new(&layers, &params).unwrap()
    }

    fn batch(seqs: &[u32], start: i32, n: i32) -> Batch {
        let seqs: Vec<SeqId> = seqs.iter().map(|&seq| SeqId(seq)).collect();
        let mut batch = Batch::new();
        for pos in start..start + n {
            batch.push(Token(0), Pos(pos), &seqs, false);
        }
        batch
    }

    /// Encode an input whose keys are all `key`; commit if asked to.
    fn encode(memory: &mut Memory, batch: &Batch, key: f32, commit: bool) -> Result<(), Error> {
        let mut plan = memory.prepare_encoding(batch, 64)?;
        while let Some(mut ubatch) = plan.next_ubatch() {
            assert!(ubatch.store(2).is_none_or(|store| store.cells.is_empty()), "the decoder's own layer");
            let n = ubatch.n_tokens();
            ubatch.store(1).unwrap().put(&alloc::vec![key; n], &alloc::vec![key; n])?;
        }
        if commit { plan.commit() } else { Ok(()) }
    }

    /// Decode one token and return the keys of the encoder output that it saw.
    fn decode(memory: &mut Memory, seq: u32) -> Result<Vec<f32>, Error> {
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
                let block = seen.blocks.get(extent.block).unwrap();
                for cell in crate::cache::table::bits(extent.live) {
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

    fn audit(memory: &Memory) {
        memory.audit().unwrap();
    }

    #[test]
    fn decoding_sees_the_whole_encoder_output_of_its_sequence_and_changes_nothing_of_it() {
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
        assert_eq!(decode(&mut memory, 0).unwrap(), [1.0; 40], "the encoder output stays when tokens go");
        audit(&memory);
    }

    #[test]
    fn an_encoding_replaces_the_former_output_or_leaves_it_alone() {
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
        assert_eq!(memory.caches.n_free_blocks().collect::<Vec<_>>(), [8, 7]);
    }

    #[test]
    fn without_encoder_output_there_is_nothing_to_decode_from() {
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
