//! Edits: commands of eight bytes that change a snapshot, sections, or the bytes of a file.
//!
//! A fuzzer produces bytes; every eight of them are one edit. Most edits change a number by a
//! little, because checks miss a value that is off by one more easily than a random one.

use crate::Pos;
use crate::snapshot::{Cells, Owned, Sequence, State};
use alloc::vec::Vec;
use backstitch_core::cell::BlockEntry;

/// A command: the operation, its target, the place in the target, and an operand.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// Operation, modulo the number of operations.
    pub op: u8,
    /// Target, modulo the number of targets.
    pub which: usize,
    /// Place in the target.
    pub at: usize,
    /// Operand.
    pub value: u32,
}

impl Edit {
    /// Decode a command from eight bytes; all bytes are valid.
    pub fn read(bytes: &[u8; 8]) -> Edit {
        let [op, which, a, b, value @ ..] = *bytes;
        Edit {
            op,
            which: which.into(),
            at: u16::from_le_bytes([a, b]).into(),
            value: u32::from_le_bytes(value),
        }
    }

    /// Return a small step up or down.
    fn delta(&self) -> i32 {
        i32::from(self.value as i8)
    }

    /// Return the target in a list.
    fn one<'a, T>(&self, list: &'a mut [T]) -> Option<&'a mut T> {
        let len = list.len();
        list.get_mut(self.which.checked_rem(len)?)
    }

    /// Remove an item of a list, repeat it, or swap it with another.
    fn shuffle<T: Clone>(&self, list: &mut Vec<T>) {
        let Some(i) = self.which.checked_rem(list.len()) else { return };
        match self.at % 3 {
            0 => drop(list.remove(i)),
            1 => list.push(list[i].clone()),
            _ => {
                let j = self.value as usize % list.len();
                list.swap(i, j);
            }
        }
    }

    /// Change a snapshot, whose bytes follow.
    pub fn snapshot(&self, owned: &mut Owned) {
        let snapshot = &mut owned.snapshot;
        let group = self.at >> 8;
        match self.op % 24 {
            0 => self.shuffle(&mut snapshot.sequences),
            1 => self.shuffle(&mut snapshot.checkpoints),
            2 => {
                if let Some(group) = group.checked_rem(snapshot.blocks.len()) {
                    self.shuffle(&mut snapshot.blocks[group]);
                    self.shuffle(&mut owned.blocks[group]);
                }
            }
            3 => {
                self.shuffle(&mut owned.states);
                snapshot.n_states = owned.states.len() as u32;
            }
            4 => {
                self.shuffle(&mut owned.journals);
                self.shuffle(&mut snapshot.journals);
            }
            5 => snapshot.n_states = self.value % 64,
            6 => self.one(&mut snapshot.journals).into_iter().for_each(|rows| *rows = self.value),
            7..=14 => self.one(&mut snapshot.sequences).into_iter().for_each(|s| self.sequence(s)),
            15..=19 => {
                let cells = snapshot.sequences.first().map(|sequence| sequence.cells.clone());
                let Some(checkpoint) = self.one(&mut snapshot.checkpoints) else { return };
                match self.op % 24 {
                    15 => checkpoint.pinned ^= true,
                    16 => checkpoint.floor ^= true,
                    17 => checkpoint.journal = self.number(),
                    18 => checkpoint.state = self.state(checkpoint.state),
                    _ => {
                        if let Some(own) = group.checked_rem(checkpoint.cells.len()) {
                            let live = cells.and_then(|cells| cells.get(own).cloned());
                            let cells = &mut checkpoint.cells[own];
                            match (self.at & 1, cells) {
                                (0, Some(cells)) => self.cells(cells),
                                (_, cells) => *cells = if cells.is_some() { None } else { live },
                            }
                        }
                    }
                }
            }
            20 | 21 => {
                let Some(group) = group.checked_rem(snapshot.blocks.len()) else { return };
                let Some(block) = self.one(&mut snapshot.blocks[group]) else { return };
                let cell = self.at % 32;
                match self.op % 24 {
                    20 => block.live ^= 1 << cell,
                    _ => block.pos[cell] = self.pos(block.pos[cell]),
                }
            }
            22 => {
                let Some(group) = group.checked_rem(snapshot.shape.groups.len()) else { return };
                self.shuffle(&mut snapshot.shape.groups[group].layers);
            }
            _ => self.shuffle(&mut snapshot.shape.recurrent),
        }
    }

    fn sequence(&self, sequence: &mut Sequence) {
        match self.op % 24 {
            7 => sequence.state = self.state(sequence.state),
            8 => sequence.last = self.pos(sequence.last),
            9 => {
                if let Some(mark) = (self.at % 256).checked_rem(sequence.checkpoints.len()) {
                    let mark = &mut sequence.checkpoints[mark];
                    match self.at >> 8 & 3 {
                        0 => mark.checkpoint = self.value,
                        1 => mark.n_rows = self.value,
                        _ => mark.pos = self.pos(mark.pos),
                    }
                }
            }
            10 => {
                let list = Edit { which: self.at % 256, at: self.at >> 8, ..*self };
                list.shuffle(&mut sequence.checkpoints);
            }
            _ => {
                let group = (self.at >> 8).checked_rem(sequence.cells.len());
                group.into_iter().for_each(|group| self.cells(&mut sequence.cells[group]));
            }
        }
    }

    fn cells(&self, cells: &mut Cells) {
        let entry = (self.value >> 8) as usize % 64;
        let n = cells.extents.len();
        match self.at % 8 {
            0 => cells.whole_from = self.pos(cells.whole_from),
            1 => cells.start = self.pos(cells.start),
            2 => cells.extents.get_mut(entry).into_iter().for_each(|e| e.live ^= 1 << (self.value % 32)),
            3 => cells.extents.get_mut(entry).into_iter().for_each(|e| e.block = self.value % 64),
            4 => cells.extents.insert(entry.min(n), BlockEntry::EMPTY),
            5 => cells.extents.truncate(entry),
            6 => drop(cells.extents.drain(..entry.min(n))),
            _ => cells.extents.push(BlockEntry { block: self.value % 64, live: self.value }),
        }
    }

    /// Return a position nearby, or any other.
    fn pos(&self, pos: Pos) -> Pos {
        if self.value >> 8 == 0 { Pos(pos.0.wrapping_add(self.delta())) } else { Pos(self.value as i32) }
    }

    fn number(&self) -> Option<u32> {
        (self.value != u32::MAX).then_some(self.value)
    }

    fn state(&self, state: Option<State>) -> Option<State> {
        match (self.at % 4, state) {
            (0, Some(state)) => Some(State { first: self.pos(state.first), ..state }),
            (1, Some(_)) => None,
            (_, state) => {
                Some(State { state: self.number(), first: state.map_or(Pos::ZERO, |state| state.first) })
            }
        }
    }

    /// Change bytes.
    pub fn bytes(&self, bytes: &mut Vec<u8>) {
        let Some(at) = self.at.checked_rem(bytes.len()) else { return };
        let n = self.value as usize >> 16 & 0x3f;
        match self.op % 8 {
            0 => write(bytes, at, &self.value.to_le_bytes()),
            1 => {
                let mut old = [0; 4];
                bytes[at..].iter().zip(&mut old).for_each(|(from, to)| *to = *from);
                write(bytes, at, &u32::from_le_bytes(old).wrapping_add_signed(self.delta()).to_le_bytes());
            }
            2 => bytes[at] ^= 1 << (self.value % 8),
            3 => drop(bytes.splice(at..at, (0..n).map(|_| self.value as u8))),
            4 => drop(bytes.drain(at..(at + n).min(bytes.len()))),
            5 => {
                let from = self.value as usize % bytes.len();
                let copy = bytes[from..(from + n).min(bytes.len())].to_vec();
                write(bytes, at, &copy);
            }
            6 => bytes.truncate(at),
            _ => write(bytes, at, &u64::from(self.value).rotate_left(self.value >> 27).to_le_bytes()),
        }
    }
}

fn write(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..].iter_mut().zip(new).for_each(|(to, from)| *to = *from);
}
