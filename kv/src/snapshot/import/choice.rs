//! Choice of the cells and checkpoints of a snapshot that a memory has space for.
//!
//! Cells that attention needs are always imported, or the import fails. Cells behind windows and
//! checkpoints are left out where space is short, the least useful first.

use super::{Fit, Request};
use crate::cache::{PagedCells, WindowCells};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::memory::Memory;
use crate::snapshot::check::last_pos;
use crate::snapshot::{Block, Cells, Checkpoint, CheckpointRef, Sequence};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// Maximum bytes of a journal of which only some rows fit: it is read whole before it is cut, and a
/// longer one is left out.
const MAX_CUT: u64 = 256 << 20;

/// The cells and checkpoints of a snapshot to import.
pub(super) struct Choice<'r, 's> {
    pub request: &'r Request<'s>,
    /// Block tables, per group and sequence.
    pub cells: Vec<Vec<Cells>>,
    /// Checkpoints to import, the most useful first.
    pub checkpoints: Vec<Kept<'s>>,
}

/// An entry in the list of checkpoints of a sequence.
type Mark<'s> = (&'s Sequence, &'s CheckpointRef);

/// A group, and the table that has a checkpoint's cells of it: its own, or a sequence's with the
/// positions to take.
type CellSource<'s> = (usize, &'s Cells, Option<Range<Pos>>);

/// A checkpoint to import.
pub(super) struct Kept<'s> {
    /// Index in the snapshot.
    pub number: usize,
    pub checkpoint: &'s Checkpoint,
    /// Entries of lists that name it.
    pub marks: Vec<Mark<'s>>,
    /// Cells that it keeps apart, per group.
    pub cells: Vec<Option<Cells>>,
    /// Position of the token that follows it.
    pos: Pos,
    /// True if it stays pinned; a pin beyond the budget is dropped.
    pub pinned: bool,
    /// Number of journal rows to import.
    pub n_rows: u32,
}

impl Choice<'_, '_> {
    /// Return the counts of what is left out.
    pub fn fit(&self) -> Fit {
        let snapshot = self.request.snapshot;
        let n_rows: u32 = self.checkpoints.iter().map(|kept| kept.n_rows).sum();
        let saved: u32 = snapshot.journals.iter().fold(0, |sum, n| sum.saturating_add(*n));
        let unpinned = self.checkpoints.iter().filter(|kept| kept.checkpoint.pinned && !kept.pinned);
        Fit {
            n_unpinned: unpinned.count() as u32,
            n_checkpoints_dropped: (snapshot.checkpoints.len() - self.checkpoints.len()) as u32,
            n_rows_dropped: saved.saturating_sub(n_rows),
            conversion: None,
        }
    }

    /// Return, per block of a group, the number of block tables that use it.
    pub fn users(&self, group: usize) -> Vec<u32> {
        let mut users = vec![0; self.request.snapshot.blocks[group].len()];
        let held = self.checkpoints.iter().filter_map(|kept| kept.cells[group].as_ref());
        let extents = self.cells[group].iter().chain(held).flat_map(|cells| &cells.extents);
        extents.filter(|extent| extent.live != 0).for_each(|extent| users[extent.block as usize] += 1);
        users
    }

    /// Return, per state, the number of sequences and checkpoints that use it.
    pub fn state_users(&self) -> Vec<u32> {
        let snapshot = self.request.snapshot;
        let mut users = vec![0; snapshot.n_states as usize];
        let held = self.checkpoints.iter().map(|kept| kept.checkpoint.state);
        let states = snapshot.sequences.iter().map(|sequence| sequence.state).chain(held);
        states.filter_map(|state| state?.state).for_each(|state| users[state as usize] += 1);
        users
    }
}

impl Memory {
    /// Choose the cells and checkpoints to import, as many as fit.
    pub(super) fn choose<'r, 's>(&self, request: &'r Request<'s>) -> Result<Choice<'r, 's>, Error> {
        let Request { snapshot, seqs, .. } = *request;
        let mut cells = vec![Vec::new(); request.places.len()];
        for (group, cache) in self.groups(request) {
            for (sequence, &seq) in snapshot.sequences.iter().zip(seqs) {
                check_cells(cache, &sequence.cells[group], seq)?;
                cells[group].push(sequence.cells[group].clone());
            }
        }
        check_merged(request)?;
        let mut choice = Choice { request, cells, checkpoints: Vec::new() };
        if self.checkpoints.sizes.needed {
            choice.checkpoints = self.candidates(request);
        }
        self.make_fit(&mut choice)?;
        self.choose_rows(&mut choice);
        Ok(choice)
    }

    /// Return the groups of the snapshot, each with the cache that gets its cells.
    fn groups<'m>(&'m self, request: &'m Request<'_>) -> impl Iterator<Item = (usize, &'m PagedCells)> {
        let caches = request.places.iter().map(|place| self.caches.cells(place.cache));
        caches.enumerate().filter_map(|(group, cache)| Some((group, cache?)))
    }

    /// Return the windowed retention of each group whose cache has one.
    fn windows<'m>(&'m self, request: &'m Request<'_>) -> impl Iterator<Item = (usize, &'m WindowCells)> {
        self.groups(request).filter_map(|(group, cells)| Some((group, cells.window.as_ref()?)))
    }

    /// Return the checkpoints that can be imported, the most useful first, as many as fit.
    fn candidates<'s>(&self, request: &Request<'s>) -> Vec<Kept<'s>> {
        let snapshot = request.snapshot;
        let mut marks: Vec<Vec<Mark<'_>>> = vec![Vec::new(); snapshot.checkpoints.len()];
        for sequence in &snapshot.sequences {
            for mark in &sequence.checkpoints {
                marks[mark.checkpoint as usize].push((sequence, mark));
            }
        }
        let mut ranked = Vec::new();
        for (number, (checkpoint, marks)) in snapshot.checkpoints.iter().zip(marks).enumerate() {
            let Some(&(sequence, &CheckpointRef { pos, .. })) = marks.first() else { continue };
            let end = snapshot.end_of(sequence);
            let rank = match () {
                () if checkpoint.floor => 0,
                () if checkpoint.pinned => 1,
                () if marks.iter().any(|(_, mark)| mark.n_rows > 0) => 2,
                () if self.checkpoints.is_scheduled(pos, end) => 3,
                () => 4,
            };
            ranked.push((rank, end.0 - pos.0, number, marks));
        }
        ranked.sort_by_key(|(rank, distance, ..)| (*rank, *distance));
        let mut room = self.checkpoints.room();
        let with_cells = |(.., number, marks): (_, _, usize, Vec<Mark<'s>>)| {
            let (checkpoint, pos) = (&snapshot.checkpoints[number], marks.first()?.1.pos);
            // A file may list far more checkpoints than there is room for: only those get tables.
            let sources = self.sources(request, checkpoint, &marks, pos)?;
            let mut cells = room.take(checkpoint.floor).then(|| vec![None; request.places.len()])?;
            for (group, from, range) in sources {
                let within = |range| from.within(&snapshot.blocks[group], range);
                cells[group] = Some(range.map_or_else(|| from.clone(), within));
            }
            Some(Kept { number, checkpoint, marks, cells, pos, pinned: checkpoint.pinned, n_rows: 0 })
        };
        let mut kept: Vec<Kept<'_>> = ranked.into_iter().filter_map(with_cells).collect();
        let mut pins = self.checkpoints.n_free_pins();
        for kept in kept.iter_mut().filter(|kept| kept.pinned) {
            kept.pinned = pins > 0;
            pins = pins.saturating_sub(1);
        }
        kept
    }

    /// Return the block tables that have what a checkpoint keeps apart in this memory; `None` if
    /// some cells are missing.
    fn sources<'s>(
        &self,
        request: &Request<'s>,
        checkpoint: &'s Checkpoint,
        marks: &[Mark<'s>],
        pos: Pos,
    ) -> Option<Vec<CellSource<'s>>> {
        let source = |(group, window): (usize, &WindowCells)| {
            if let Some(own) = &checkpoint.cells[group] {
                return Some((group, own, None));
            }
            let needed = window.window.needed_from(pos);
            let mut with = marks.iter().map(|(sequence, _)| &sequence.cells[group]);
            Some((group, with.find(|cells| cells.whole_from <= needed)?, Some(needed..pos)))
        };
        self.windows(request).map(source).collect()
    }

    /// Leave out cells behind windows, then checkpoints, until the rest fits; fail if it never
    /// does.
    fn make_fit(&self, choice: &mut Choice<'_, '_>) -> Result<(), Error> {
        let request = choice.request;
        if self.lacking(choice).is_none() {
            return Ok(());
        }
        // Cells that a sequence appended to in this memory would have dropped.
        for (group, window) in self.windows(request) {
            let blocks = &request.snapshot.blocks[group];
            choice.cells[group].iter_mut().for_each(|cells| trim(window, cells, blocks));
        }
        let checkpoints = core::mem::take(&mut choice.checkpoints);
        if let Some((what, need, free)) = self.lacking(choice) {
            let seq = request.seqs.first().copied().unwrap_or_default();
            return Err(Error::Full { what, need, free, seq });
        }
        choice.checkpoints = checkpoints;
        while self.lacking(choice).is_some() {
            // In steps of a sixteenth, so that dropping many takes few checks.
            let n = choice.checkpoints.len();
            choice.checkpoints.truncate(n - n.div_ceil(16));
        }
        Ok(())
    }

    /// Return the resource that is short: its name, the need, and the free amount.
    fn lacking(&self, choice: &Choice<'_, '_>) -> Option<(&'static str, u64, u64)> {
        let n_used = |users: Vec<u32>| users.iter().filter(|n| **n > 0).count() as u64;
        for (group, cache) in self.groups(choice.request) {
            let need = n_used(choice.users(group));
            let (free, cells) = (u64::from(cache.pool.n_free()), BLOCK_CELLS as u64);
            if need > free {
                return Some(("cells", need * cells, free * cells));
            }
        }
        let free = u64::from(self.caches.states.as_ref()?.slots.n_free());
        let need = n_used(choice.state_users());
        (need > free).then_some(("states", need, free))
    }

    /// Choose the journals to import.
    fn choose_rows(&self, choice: &mut Choice<'_, '_>) {
        let snapshot = choice.request.snapshot;
        let mut left = self.checkpoints.free_journals.len();
        let most = self.checkpoints.journal_len();
        let row = snapshot.shape.pieces().map(|tensor| 4 * tensor.input as u64).fold(0, u64::saturating_add);
        for kept in &mut choice.checkpoints {
            let saved = kept.checkpoint.journal.map_or(0, |journal| snapshot.journals[journal as usize]);
            if saved == 0 || most == 0 || left == 0 {
                continue;
            }
            // A journal ends at the next multiple of its length: the one that continues it starts
            // there.
            let n_rows = saved.min(most - kept.pos.0 as u32 % most);
            if n_rows == saved || row.saturating_mul(saved.into()) <= MAX_CUT {
                (left, kept.n_rows) = (left - 1, n_rows);
            }
        }
    }
}

/// Check that a cache that retains all cells gets all of them and can hold so many.
fn check_cells(cache: &PagedCells, cells: &Cells, seq: SeqId) -> Result<(), Error> {
    let (need, free) = (cells.len(), cache.n_ctx);
    match () {
        () if cache.window.is_some() => Ok(()),
        () if need > free => Err(Error::Full { what: "cells", need: need.into(), free: free.into(), seq }),
        () if cells.whole_from > Pos::ZERO => Err(Error::Gone { seq, whole_from: cells.whole_from }),
        () => Ok(()),
    }
}

/// Leave out block table entries behind the window and its margin.
fn trim(window: &WindowCells, cells: &mut Cells, blocks: &[Block]) {
    let ends = cells.positions(blocks).next().zip(cells.last_pos(blocks));
    let Some((first, last)) = ends else { return };
    let from = window.kept_from(last.next());
    let ends = cells.extents.iter().map(|extent| last_pos(extent, blocks));
    if let Some(gone) = ends.take_while(|end| *end < Some(from)).flatten().last() {
        let start = if cells.whole_from == Pos::ZERO { first } else { cells.start };
        *cells = Cells { start, ..cells.within(blocks, gone.next()..Pos::MAX) };
    }
}

/// Check that groups which share a cache in this memory have the same cells.
fn check_merged(request: &Request<'_>) -> Result<(), Error> {
    let Request { snapshot, seqs, places } = request;
    for (group, place) in places.iter().enumerate() {
        for twin in (0..group).filter(|&twin| places[twin].cache == place.cache) {
            for (sequence, &seq) in snapshot.sequences.iter().zip(*seqs) {
                let (a, b) = (&sequence.cells[group], &sequence.cells[twin]);
                let same = a.extents == b.extents
                    && a.positions(&snapshot.blocks[group]).eq(b.positions(&snapshot.blocks[twin]));
                let whole_from = a.whole_from.max(b.whole_from);
                match same {
                    true => {}
                    false if whole_from > Pos::ZERO => return Err(Error::Gone { seq, whole_from }),
                    false => return Err(Error::Snapshot { what: "cells of group", index: group as u64 }),
                }
            }
        }
    }
    Ok(())
}
