//! Layers that keep nothing: tokens see the batch they came in.
//!
//! Their keys and values still have to lie somewhere while a batch is computed. That is a cache of the size of one
//! batch, which forgets when the plan ends; so attention reads them the same way as a cache that stays.

use super::unified::{Swap, Unified};
use super::{Kind, Op, Part, Restore};
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::layer::{AttentionLayer, Params};
use crate::plan::{Attention, Store};
use crate::split::{Schedule, Split};
use crate::storage::Home;
use crate::survey::{Held, Layers};
use alloc::vec::Vec;
use core::ops::Range;

/// The part of a memory that keeps nothing.
pub(super) struct Uncached {
    cells: Unified,
    causal: bool,
}

impl Uncached {
    pub fn new(
        layers: &[AttentionLayer],
        params: &Params,
        causal: bool,
        home: Home,
    ) -> Result<Uncached, Error> {
        let cells = Unified::new(layers, params, params.n_batch, params.n_blocks_uncached(), home)?;
        Ok(Uncached { cells, causal })
    }

    /// A token that sees all of its sequence needs all of it in its ubatch.
    fn check_whole(&self, schedule: &Schedule) -> Result<(), Error> {
        for run in schedule.runs() {
            let seq = schedule.tokens()[run.tokens.start].seq;
            let (value, limit) = (u64::from(self.cells.table(seq).n_cells()), run.tokens.len() as u64);
            if value != limit {
                return Err(Error::TooMany { what: "tokens of one sequence in a ubatch", value, limit });
            }
        }
        Ok(())
    }
}

impl Part for Uncached {
    fn kind(&self) -> Kind {
        Kind::None
    }

    fn split(&self) -> Split {
        if self.causal { Split::Simple } else { Split::Sequence }
    }

    fn admit(&mut self, _op: &Op) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _op: &Op) {}

    fn pos_min(&self, _seq: SeqId) -> Option<Pos> {
        None
    }

    fn pos_max(&self, _seq: SeqId) -> Option<Pos> {
        None
    }

    fn survey(&self, _seq: SeqId, _checkpoints: &[u32]) -> (Layers, Vec<Held>) {
        (Layers::new(Kind::None, self.cells.n_layer()), Vec::new())
    }

    fn reserve(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        self.cells.reserve(batch, schedule)?;
        if self.causal {
            return Ok(());
        }
        self.cells.see_all();
        self.check_whole(schedule).inspect_err(|_| self.cells.undo())
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

    fn begin(&mut self, ubatch: u32) {
        self.cells.begin(ubatch);
    }

    fn commit(&mut self) {
        self.cells.undo();
    }

    fn undo(&mut self) {
        self.cells.undo();
    }

    fn swaps(&self) -> &[Swap] {
        self.cells.swaps()
    }

    fn n_blocks(&self) -> u32 {
        self.cells.n_blocks()
    }

    fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        self.cells.attention(layer, tokens)
    }

    fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        self.cells.store(layer, tokens)
    }

    #[cfg(any(test, feature = "oracle"))]
    fn audit(&self) -> Result<(), alloc::string::String> {
        self.cells.audit()
    }
}
