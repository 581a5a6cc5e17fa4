//! Resume: what a model needs to continue from a position, besides the cells of layers that see all
//! tokens.
//!
//! A prompt cache stores blocks of the latter once for all prompts, because equal tokens have equal
//! blocks. States and windows differ with every position, so it stores one [`Resume`] for each
//! position at which a prompt may continue.

use super::{Block, Cells, Content, Sees, Sequence, Shape, Snapshot, State};
use crate::cache::table::{SPAN, bits};
use crate::ids::Pos;
use alloc::vec::Vec;
use backstitch_core::cell::BlockEntry;
use core::ops::Range;

impl Cells {
    /// Return the cells in a range of positions, as if a window had dropped the others.
    pub(crate) fn within(&self, blocks: &[Block], range: Range<Pos>) -> Cells {
        let cut = |extent: &BlockEntry| {
            let Some(block) = blocks.get(extent.block as usize) else { return BlockEntry::EMPTY };
            let inside = bits(extent.live).filter(|&cell| range.contains(&block.pos[cell as usize]));
            match inside.fold(0, |live, cell| live | 1 << cell) {
                0 => BlockEntry::EMPTY,
                live => BlockEntry { live, ..*extent },
            }
        };
        let is_kept = |extent: &BlockEntry| cut(extent).live != 0;
        let end = self.extents.iter().rposition(is_kept).map_or(0, |last| last + 1);
        // Spans without a cell at the front go.
        let first = self.extents.iter().position(is_kept).unwrap_or(0) / SPAN * SPAN;
        let extents = self.extents[first..end].iter().map(cut).collect();
        Cells { extents, whole_from: range.start, start: Pos::ZERO }
    }
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
    /// Number of the state in the content.
    state: Option<u32>,
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
        let Snapshot { shape, blocks, checkpoints, sequences, .. } = content.snapshot();
        let sequence = sequences.get(number)?;
        let mark = sequence.checkpoints.iter().find(|mark| mark.pos == end);
        let checkpoint = mark.and_then(|mark| checkpoints.get(mark.checkpoint as usize));
        let mut own = Snapshot { shape: shape.resumed(), ..Snapshot::default() };
        let mut resumed = Sequence { last: Pos(end.0 - 1), ..Sequence::default() };
        let mut groups = Vec::new();
        for (group, layers) in shape.groups.iter().enumerate() {
            let window = match layers.sees {
                Sees::All => continue,
                Sees::Window(window) => window,
                Sees::EncoderOutput => return None,
            };
            let (blocks, all) = (blocks.get(group)?, sequence.cells.get(group)?);
            let kept = checkpoint.and_then(|checkpoint| checkpoint.cells.get(group)?.clone());
            let whole = || {
                let is_there = all.whole_from <= window.first(end) && all.last_pos(blocks)?.next() >= end;
                is_there.then(|| all.within(blocks, all.whole_from..end))
            };
            let mut cells = kept.or_else(whole)?;
            let (numbers, list) = renumber(&mut cells, blocks);
            groups.push((group, numbers));
            own.blocks.push(list);
            resumed.cells.push(cells);
        }
        let mut number = None;
        if !shape.recurrent.is_empty() {
            let current = sequence.state.filter(|_| sequence.last.next() == end);
            let state = current.or_else(|| checkpoint?.state)?;
            number = state.state;
            own.n_states = u32::from(number.is_some());
            resumed.state = Some(State { state: number.map(|_| 0), ..state });
        }
        own.sequences.push(resumed);
        // An invalid snapshot could not be imported.
        own.check().ok()?;
        Some(Resume { content, snapshot: own, groups, state: number })
    }
}

/// Number the blocks of `cells` anew, and return their old numbers and those of their cells that
/// `cells` has.
fn renumber(cells: &mut Cells, blocks: &[Block]) -> (Vec<u32>, Vec<Block>) {
    let (mut numbers, mut list) = (Vec::new(), Vec::new());
    for extent in cells.extents.iter_mut().filter(|extent| extent.live != 0) {
        let Some(block) = blocks.get(extent.block as usize) else { continue };
        numbers.push(extent.block);
        extent.block = list.len() as u32;
        let mut own = Block::default();
        own.add(extent.live, &block.pos);
        list.push(own);
    }
    (numbers, list)
}

impl<C: Content> Content for Resume<'_, C> {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn block(&self, group: usize, block: usize) -> Vec<&[u8]> {
        let own = self.groups.get(group).and_then(|(group, blocks)| Some((*group, *blocks.get(block)?)));
        own.map_or_else(Vec::new, |(group, block)| self.content.block(group, block as usize))
    }

    fn state(&self, state: usize) -> Vec<&[f32]> {
        let own = self.state.filter(|_| state == 0);
        own.map_or_else(Vec::new, |state| self.content.state(state as usize))
    }

    fn journal(&self, _journal: usize) -> Vec<&[f32]> {
        Vec::new()
    }
}
