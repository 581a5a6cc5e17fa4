//! Resume: what a model needs to continue from a position, besides the cells of layers that see all
//! tokens.
//!
//! A prompt cache stores blocks of the latter once for all prompts, because equal tokens have equal
//! blocks. States and windows differ with every position, so it stores one [`Resume`] for each
//! position at which a prompt may continue.

use super::{Cells, Content, Sees, Sequence, Shape, Snapshot, State};
use crate::cache::table::{SPAN, bits};
use crate::ids::Pos;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::BlockEntry;
use core::ops::Range;

impl Cells {
    /// Return the cells in a range of positions, as if a window had dropped the others.
    pub(crate) fn within(&self, blocks: &[super::Block], range: Range<Pos>) -> Cells {
        let cut = |extent: &BlockEntry| {
            let Some(block) = blocks.get(extent.block as usize) else { return BlockEntry::EMPTY };
            let inside = bits(extent.live).filter(|&cell| range.contains(&block.pos[cell as usize]));
            match inside.fold(0, |live, cell| live | 1 << cell) {
                0 => BlockEntry::EMPTY,
                live => BlockEntry { live, ..*extent },
            }
        };
        let mut extents: Vec<BlockEntry> = self.extents.iter().map(cut).collect();
        while extents.last().is_some_and(|last| last.live == 0) {
            extents.pop();
        }
        drop_dead_spans(&mut extents);
        Cells { extents, whole_from: range.start, start: Pos::ZERO }
    }
}

/// Remove spans without a cell at the front.
pub(crate) fn drop_dead_spans(extents: &mut Vec<BlockEntry>) {
    let is_dead = |extents: &&[BlockEntry]| extents.iter().all(|extent| extent.live == 0);
    let n_dead = extents.chunks(SPAN).take_while(is_dead).count();
    extents.drain(..(n_dead * SPAN).min(extents.len()));
}

/// States and window cells of one sequence at one position: a [`Content`] with a single sequence.
///
/// [`Resume::at`] makes it from another content, whose bytes it shows without a copy. Its groups
/// are those that do not see all tokens.
#[derive(Debug)]
pub struct Resume<'a, C> {
    content: &'a C,
    snapshot: Snapshot,
    /// Group in the content and block numbers there, per group of this snapshot.
    groups: Vec<(usize, Vec<u32>)>,
    /// Number in the content, per state.
    states: Vec<u32>,
}

impl Shape {
    /// Return the shape of a [`Resume`]: all layers except those that see all tokens. Empty if
    /// there are no others.
    pub fn resumed(&self) -> Shape {
        let groups = self.groups.iter().filter(|group| group.sees != Sees::All).cloned().collect();
        Shape { groups, recurrent: self.recurrent.clone() }
    }

    /// Return the group of layers that see all tokens.
    pub fn group_of_all(&self) -> Option<usize> {
        self.groups.iter().position(|group| group.sees == Sees::All)
    }
}

impl<'a, C: Content> Resume<'a, C> {
    /// Return what continuing sequence `number` of the content at `end` needs; `None` if a state or
    /// a cell of a window is no longer there.
    pub fn at(content: &'a C, number: usize, end: Pos) -> Option<Self> {
        let snapshot = content.snapshot();
        let sequence = snapshot.sequences.get(number)?;
        let mark = sequence.checkpoints.iter().find(|mark| mark.pos == end);
        let checkpoint = mark.and_then(|mark| snapshot.checkpoints.get(mark.checkpoint as usize));
        let mut taken = Selection::default();
        for (group, own) in snapshot.shape.groups.iter().enumerate().filter(|(_, own)| own.sees != Sees::All)
        {
            let Sees::Window(window) = own.sees else { return None };
            let blocks = snapshot.blocks.get(group)?;
            let all = sequence.cells.get(group)?;
            let kept = checkpoint.and_then(|checkpoint| checkpoint.cells.get(group)?.clone());
            let whole = || {
                let is_there = all.whole_from <= window.first(end) && all.last_pos(blocks)?.next() >= end;
                is_there.then(|| Cells { start: Pos::ZERO, ..all.within(blocks, all.whole_from..end) })
            };
            let cells = kept.or_else(whole)?;
            taken.group(group, cells, blocks);
        }
        let state = match snapshot.shape.recurrent.is_empty() {
            true => None,
            false => Some(taken.state(current_state(sequence, end).or_else(|| checkpoint?.state)?)),
        };
        let Selection { groups, cells, blocks, states } = taken;
        let sequence = Sequence { cells, state, last: Pos(end.0 - 1), checkpoints: Vec::new() };
        let n_states = states.len() as u32;
        let shape = snapshot.shape.resumed();
        let snapshot = Snapshot { shape, blocks, n_states, sequences: vec![sequence], ..Snapshot::default() };
        // An invalid snapshot could not be imported.
        snapshot.check().ok()?;
        Some(Resume { content, snapshot, groups, states })
    }
}

/// Return the current state if `end` is the end of the sequence.
fn current_state(sequence: &Sequence, end: Pos) -> Option<State> {
    sequence.state.filter(|_| sequence.last.next() == end)
}

/// Selected cells and states of a snapshot, renumbered.
#[derive(Default)]
struct Selection {
    groups: Vec<(usize, Vec<u32>)>,
    cells: Vec<Cells>,
    blocks: Vec<Vec<super::Block>>,
    states: Vec<u32>,
}

impl Selection {
    /// Add cells and number their blocks anew.
    fn group(&mut self, group: usize, mut cells: Cells, blocks: &[super::Block]) {
        let (mut numbers, mut list) = (Vec::new(), Vec::new());
        for extent in cells.extents.iter_mut().filter(|extent| extent.live != 0) {
            let Some(block) = blocks.get(extent.block as usize) else { continue };
            let mut own = super::Block { live: extent.live, pos: [Pos::ZERO; 32] };
            bits(extent.live).for_each(|cell| own.pos[cell as usize] = block.pos[cell as usize]);
            numbers.push(extent.block);
            list.push(own);
            extent.block = numbers.len() as u32 - 1;
        }
        self.groups.push((group, numbers));
        self.blocks.push(list);
        self.cells.push(cells);
    }

    fn state(&mut self, state: State) -> State {
        let number = state.state.map(|number| {
            self.states.push(number);
            self.states.len() as u32 - 1
        });
        State { state: number, ..state }
    }
}

impl<C: Content> Content for Resume<'_, C> {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn block(&self, group: usize, block: usize) -> Vec<&[u8]> {
        let there = self.groups.get(group).and_then(|(group, blocks)| Some((*group, *blocks.get(block)?)));
        there.map(|(group, block)| self.content.block(group, block as usize)).unwrap_or_default()
    }

    fn state(&self, state: usize) -> Vec<&[f32]> {
        self.states.get(state).map(|state| self.content.state(*state as usize)).unwrap_or_default()
    }

    fn journal(&self, _journal: usize) -> Vec<&[f32]> {
        Vec::new()
    }
}
