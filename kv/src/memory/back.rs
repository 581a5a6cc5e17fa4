//! How a memory goes back, and what operations do to the ways back.

use super::{Hybrid, Kind, Memory, Op, Restore};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::rewind::{Rewind, Stretch};
use crate::timeline::Route;
use alloc::vec::Vec;

impl Hybrid {
    /// Holds the end of `seq` as [`Memory::pin`] does, whatever the budget, until it is unpinned; so a caller who computes a long
    /// batch in pieces can take back the first ones. False if it is pinned already, or needs no pin.
    ///
    /// # Errors
    /// [`Error::Pinned`] if all checkpoints are pinned.
    pub fn hold(&mut self, seq: SeqId) -> Result<bool, Error> {
        self.check_seq(seq)?;
        self.undo();
        let end = self.end(seq);
        self.timeline.hold(seq, end, &mut self.parts)
    }

    /// The position that the next token of `seq` gets, for the timeline.
    pub(super) fn end(&self, seq: SeqId) -> Pos {
        self.seq_pos_max(seq).map_or(Pos::ZERO, |last| Pos(last.0 + 1))
    }

    /// How to get back to `pos`.
    pub(super) fn way_back(&self, seq: SeqId, pos: Pos, n_ubatch: u32) -> Result<(Route, Restore), Error> {
        self.check_seq(seq)?;
        let end = self.end(seq);
        if pos < Pos::ZERO {
            return Err(Error::Range { start: pos, end });
        }
        if pos > end {
            return Err(Error::Future { seq, pos, end });
        }
        let held = (
            Route { restored_from: pos, replayed: 0, reevaluated: 0 },
            Restore { checkpoint: None, to: pos, rows: 0..0, n_ubatch },
        );
        if pos == Pos::ZERO || self.parts.iter().all(|part| part.can_cut(seq, pos)) {
            return Ok(held);
        }
        let Some(entry) = self.timeline.line(seq).before(pos) else {
            let route = Route { restored_from: Pos::ZERO, replayed: 0, reevaluated: pos.0 as u32 };
            return Ok((route, Restore { to: Pos::ZERO, ..held.1 }));
        };
        let (distance, restored_from) = ((pos.0 - entry.pos.0) as u32, entry.pos);
        let checkpoint = Some(entry.id);
        let first_row = self.timeline.first_row(entry.id).filter(|_| distance <= entry.n_rows);
        let cells_are_there = || {
            self.parts.iter().filter(|part| part.kind() != Kind::Recurrent).all(|part| part.can_cut(seq, pos))
        };
        match first_row {
            _ if distance == 0 => Ok((held.0, Restore { checkpoint, ..held.1 })),
            Some(row) if cells_are_there() => Ok((
                Route { restored_from, replayed: distance, reevaluated: 0 },
                Restore { checkpoint, rows: row..row + distance, ..held.1 },
            )),
            _ => Ok((
                Route { restored_from, replayed: 0, reevaluated: distance },
                Restore { checkpoint, to: entry.pos, ..held.1 },
            )),
        }
    }

    pub(super) fn prepare_rewind(
        &mut self,
        seq: SeqId,
        pos: Pos,
        n_ubatch: usize,
    ) -> Result<Rewind<'_>, Error> {
        self.undo();
        if n_ubatch == 0 {
            return Err(Error::Shape { what: "tokens of a ubatch", found: 0, wanted: 1 });
        }
        let n_ubatch = n_ubatch.min(1 << 20) as u32;
        let (route, restore) = self.way_back(seq, pos, n_ubatch)?;
        for i in 0..self.parts.len() {
            if let Err(error) = self.parts[i].reserve_rewind(seq, &restore) {
                self.parts[..i].iter_mut().for_each(|part| part.undo());
                return Err(error);
            }
        }
        self.open = true;
        Ok(Rewind::new(self, seq, route, restore))
    }

    pub(crate) fn finish_rewind(&mut self, seq: SeqId, restore: &Restore) {
        self.open = false;
        self.parts.iter_mut().for_each(|part| part.rewind(seq, restore));
        self.cut_timeline(seq, restore.to);
    }

    /// The sequence ends at `end` now.
    fn cut_timeline(&mut self, seq: SeqId, end: Pos) {
        if self.seq_pos_max(seq).is_none() {
            self.timeline.forget(seq, &mut self.parts);
        } else {
            self.timeline.truncate(seq, end, &mut self.parts);
        }
    }

    pub(super) fn stretches(&self, seq: SeqId) -> Result<Vec<Stretch>, Error> {
        self.check_seq(seq)?;
        let end = self.end(seq);
        // Where a way back can begin to be another one.
        let mut starts: Vec<Pos> = alloc::vec![Pos::ZERO, Pos(1), end];
        for entry in self.timeline.line(seq).iter() {
            let after_rows = Pos(entry.pos.0 + entry.n_rows as i32).next();
            starts.extend([entry.pos, entry.pos.next(), after_rows]);
        }
        starts.extend(self.parts.iter().map(|part| part.cut_from(seq)));
        starts.retain(|&start| start <= end);
        starts.sort_unstable();
        starts.dedup();
        let mut stretches: Vec<Stretch> = Vec::new();
        for (i, &start) in starts.iter().enumerate() {
            let route = self.route(seq, start)?;
            let after = starts.get(i + 1).copied().unwrap_or(end.next());
            let means = route.means();
            match stretches.last_mut() {
                Some(last) if last.means == means && last.goes_on(&route) => last.positions.end = after,
                _ => stretches.push(Stretch {
                    positions: start..after,
                    restored_from: route.restored_from,
                    means,
                }),
            }
        }
        Ok(stretches)
    }

    /// Whether an operation changes anything.
    pub(super) fn touches(&self, op: &Op) -> bool {
        match op {
            Op::Remove { seq, range } | Op::Add { seq, range, .. } | Op::Divide { seq, range, .. } => {
                self.has_seen(*seq, range)
            }
            // A sequence without tokens can have a text.
            Op::Copy { range, .. } if *range == (Pos::ZERO..Pos::MAX) => true,
            Op::Copy { src, range, .. } => self.has_seen(*src, range),
            Op::Keep { .. } | Op::Clear => true,
        }
    }

    /// Makes room for what `apply_on_timeline` adds.
    pub(super) fn admit_on_timeline(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Copy { src, dst, .. } => self.timeline.make_room(*src, *dst),
            _ => Ok(()),
        }
    }

    /// The end of the sequence that an operation changes, before it does.
    pub(super) fn end_of(&self, op: &Op) -> Pos {
        match op {
            Op::Remove { seq, .. } | Op::Copy { src: seq, .. } => self.end(*seq),
            _ => Pos::ZERO,
        }
    }

    /// Ways back follow an operation where they still lead to what the sequence was; `end` is where it ended before.
    pub(super) fn apply_on_timeline(&mut self, op: &Op, end: Pos) {
        let all = (0..self.params.n_seq_max).map(SeqId);
        let (timeline, parts) = (&mut self.timeline, &mut self.parts);
        match op {
            Op::Remove { range, .. } if range.is_empty() || range.start >= end => {}
            Op::Remove { seq, range } if range.end >= end && range.start > Pos::ZERO => {
                self.cut_timeline(*seq, range.start);
            }
            // What was seen before is not what is there now.
            Op::Remove { seq, .. } | Op::Add { seq, .. } | Op::Divide { seq, .. } => {
                let end = self.end(*seq);
                // Without room in the list there is less to go back to, no harm.
                let _ = self.timeline.anchor(*seq, end, &mut self.parts);
            }
            Op::Copy { src, dst, range } if range.start == Pos::ZERO && !range.is_empty() => {
                // Room was made before, so that this cannot fail.
                let shared = timeline.share(*src, *dst);
                debug_assert!(shared.is_ok());
                self.cut_timeline(*dst, range.end.min(end));
            }
            Op::Copy { .. } => {}
            Op::Keep { seq } => {
                all.filter(|other| other != seq).for_each(|other| timeline.forget(other, parts))
            }
            Op::Clear => all.for_each(|seq| timeline.forget(seq, parts)),
        }
    }
}

impl Stretch {
    /// Whether a route leads to the next position in the same way.
    fn goes_on(&self, route: &Route) -> bool {
        self.means == crate::Means::Held || self.restored_from == route.restored_from
    }
}
