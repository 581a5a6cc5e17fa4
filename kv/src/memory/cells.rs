//! What parts that keep cells in blocks have in common, for taking images of them and filling them from images.

use super::cross::Cross;
use super::unified::{Layer, Unified};
use crate::block::BlockPool;
use crate::extent::Table;
use crate::ids::{Pos, SeqId};
use crate::image::Sees;

/// The cells of a sequence or of a checkpoint.
pub(crate) struct Holding<'a> {
    pub table: &'a Table,
    /// Positions below this may lack cells that were there.
    pub whole_from: Pos,
    /// Where the cells began, if some are gone.
    pub start: Pos,
}

/// The cells that a sequence or a checkpoint gets.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub table: Table,
    pub whole_from: Pos,
    pub start: Pos,
}

/// A part that keeps cells in blocks.
pub(crate) trait CellPart {
    /// What layers of a view see; `None` where there is no such view.
    fn sees(&self, view: usize) -> Option<Sees>;

    fn layers(&self) -> &[Layer];

    fn layers_mut(&mut self) -> &mut [Layer];

    fn pool(&self) -> &BlockPool;

    fn pool_mut(&mut self) -> &mut BlockPool;

    /// The cells of a sequence.
    fn held_by(&self, seq: SeqId) -> Holding<'_>;

    /// The cells of a checkpoint, where the part keeps them apart.
    fn held_for(&self, checkpoint: u32) -> Option<Holding<'_>>;

    /// Whether checkpoints keep cells apart.
    fn recycles(&self) -> bool;

    /// The first position that a checkpoint at `pos` keeps.
    fn needed_from(&self, pos: Pos) -> Pos;

    /// The first position that a sequence which ends at `end` keeps.
    fn kept_from(&self, end: Pos) -> Pos;

    /// The most cells of a sequence.
    fn n_ctx(&self) -> u32;

    /// Entries that a table has room for from the start.
    fn table_room(&self) -> usize;

    /// Entries that a checkpoint's table has room for from the start.
    fn checkpoint_room(&self) -> usize;

    /// Gives a sequence other cells; the old ones go back to the pool.
    fn give(&mut self, seq: SeqId, given: Given);

    /// Gives a new checkpoint its cells.
    fn give_checkpoint(&mut self, checkpoint: u32, given: Given);
}

impl CellPart for Unified {
    fn sees(&self, view: usize) -> Option<Sees> {
        let view = self.views.get(view)?;
        Some(view.window.map_or(Sees::All, Sees::Window))
    }

    fn layers(&self) -> &[Layer] {
        &self.layers
    }

    fn layers_mut(&mut self) -> &mut [Layer] {
        &mut self.layers
    }

    fn pool(&self) -> &BlockPool {
        &self.pool
    }

    fn pool_mut(&mut self) -> &mut BlockPool {
        &mut self.pool
    }

    fn held_by(&self, seq: SeqId) -> Holding<'_> {
        let (whole_from, start) = self.recycle.as_ref().map_or_else(Default::default, |r| r.gone(seq));
        Holding { table: self.table(seq), whole_from, start }
    }

    fn held_for(&self, checkpoint: u32) -> Option<Holding<'_>> {
        let (table, whole_from) = self.recycle.as_ref()?.held_for(checkpoint)?;
        Some(Holding { table, whole_from, start: Pos::ZERO })
    }

    fn recycles(&self) -> bool {
        self.recycle.is_some()
    }

    fn needed_from(&self, pos: Pos) -> Pos {
        self.recycle.as_ref().map_or(Pos::ZERO, |recycle| recycle.needed_from(pos))
    }

    fn kept_from(&self, end: Pos) -> Pos {
        self.recycle.as_ref().map_or(Pos::ZERO, |recycle| recycle.kept_from(end))
    }

    fn n_ctx(&self) -> u32 {
        self.n_ctx
    }

    fn table_room(&self) -> usize {
        self.table_room
    }

    fn checkpoint_room(&self) -> usize {
        self.recycle.as_ref().map_or(0, |recycle| recycle.held_room)
    }

    fn give(&mut self, seq: SeqId, given: Given) {
        let mut old = core::mem::replace(&mut self.tables[seq.index()], given.table);
        old.clear(&mut self.pool);
        if let Some(recycle) = &mut self.recycle {
            recycle.set_gone(seq, given.whole_from, given.start);
        }
    }

    fn give_checkpoint(&mut self, checkpoint: u32, given: Given) {
        if let Some(recycle) = &mut self.recycle {
            let mut old = recycle.hold(checkpoint, given.table, given.whole_from);
            old.clear(&mut self.pool);
        }
    }
}

impl CellPart for Cross {
    fn sees(&self, view: usize) -> Option<Sees> {
        (view == 0).then_some(Sees::Text)
    }

    fn layers(&self) -> &[Layer] {
        &self.layers
    }

    fn layers_mut(&mut self) -> &mut [Layer] {
        &mut self.layers
    }

    fn pool(&self) -> &BlockPool {
        &self.pool
    }

    fn pool_mut(&mut self) -> &mut BlockPool {
        &mut self.pool
    }

    fn held_by(&self, seq: SeqId) -> Holding<'_> {
        Holding { table: self.table(seq), whole_from: Pos::ZERO, start: Pos::ZERO }
    }

    fn held_for(&self, _checkpoint: u32) -> Option<Holding<'_>> {
        None
    }

    fn recycles(&self) -> bool {
        false
    }

    fn needed_from(&self, _pos: Pos) -> Pos {
        Pos::ZERO
    }

    fn kept_from(&self, _end: Pos) -> Pos {
        Pos::ZERO
    }

    fn n_ctx(&self) -> u32 {
        self.n_ctx
    }

    fn table_room(&self) -> usize {
        self.table_room
    }

    fn checkpoint_room(&self) -> usize {
        0
    }

    fn give(&mut self, seq: SeqId, given: Given) {
        let mut old = core::mem::replace(&mut self.tables[seq.index()], given.table);
        old.clear(&mut self.pool);
    }

    fn give_checkpoint(&mut self, _checkpoint: u32, _given: Given) {}
}
