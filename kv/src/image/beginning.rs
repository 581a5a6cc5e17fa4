//! Beginnings of sequences.

use super::{Cells, Content, Image, Sees, Sequence, Shape, State};
use crate::extent::{SPAN, bits};
use crate::ids::Pos;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::Extent;
use core::ops::Range;

impl Cells {
    /// The cells in a range of positions, as if the others were gone.
    pub(crate) fn within(&self, blocks: &[super::Block], range: Range<Pos>) -> Cells {
        let cut = |extent: &Extent| {
            let Some(block) = blocks.get(extent.block as usize) else { return Extent::EMPTY };
            let inside = bits(extent.live).filter(|&cell| range.contains(&block.pos[cell as usize]));
            match inside.fold(0, |live, cell| live | 1 << cell) {
                0 => Extent::EMPTY,
                live => Extent { live, ..*extent },
            }
        };
        let mut extents: Vec<Extent> = self.extents.iter().map(cut).collect();
        while extents.last().is_some_and(|last| last.live == 0) {
            extents.pop();
        }
        drop_dead_spans(&mut extents);
        Cells { extents, whole_from: range.start, start: Pos::ZERO }
    }
}

/// Takes away spans without a cell at the front.
pub(crate) fn drop_dead_spans(extents: &mut Vec<Extent>) {
    let is_dead = |extents: &&[Extent]| extents.iter().all(|extent| extent.live == 0);
    let n_dead = extents.chunks(SPAN).take_while(is_dead).count();
    extents.drain(..(n_dead * SPAN).min(extents.len()));
}

/// What a model needs besides the cells that it never lets go of, in order to go on from a position: states, and what windows see.
#[derive(Debug)]
pub struct Resume<'a, C> {
    content: &'a C,
    image: Image,
    /// For each group of this image the one of the content, and its blocks there.
    groups: Vec<(usize, Vec<u32>)>,
    /// For each state its number in the content.
    states: Vec<u32>,
}

impl Shape {
    /// The shape of what [`Resume`] keeps: all but the layers that see everything. Empty where these are all.
    pub fn resumed(&self) -> Shape {
        let groups = self.groups.iter().filter(|group| group.sees != Sees::All).cloned().collect();
        Shape { groups, recurrent: self.recurrent.clone() }
    }

    /// The group of layers that see everything.
    pub fn group_of_all(&self) -> Option<usize> {
        self.groups.iter().position(|group| group.sees == Sees::All)
    }
}

impl<'a, C: Content> Resume<'a, C> {
    /// What it takes to go on from `end` with the sequence `number` of the content; `None` if that is not there.
    pub fn at(content: &'a C, number: usize, end: Pos) -> Option<Self> {
        let image = content.image();
        let sequence = image.sequences.get(number)?;
        let mark = sequence.line.iter().find(|mark| mark.pos == end);
        let checkpoint = mark.and_then(|mark| image.checkpoints.get(mark.checkpoint as usize));
        let mut taken = Taken::default();
        for (group, own) in image.shape.groups.iter().enumerate().filter(|(_, own)| own.sees != Sees::All) {
            let Sees::Window(window) = own.sees else { return None };
            let blocks = image.blocks.get(group)?;
            let all = sequence.cells.get(group)?;
            let kept = checkpoint.and_then(|checkpoint| checkpoint.cells.get(group)?.clone());
            let whole = || {
                let is_there = all.whole_from <= window.first(end) && all.last_pos(blocks)?.next() >= end;
                is_there.then(|| Cells { start: Pos::ZERO, ..all.within(blocks, all.whole_from..end) })
            };
            let cells = kept.or_else(whole)?;
            taken.group(group, cells, blocks);
        }
        let state = match image.shape.recurrent.is_empty() {
            true => None,
            false => Some(taken.state(tip(sequence, end).or_else(|| checkpoint?.state)?)),
        };
        let Taken { groups, cells, blocks, states } = taken;
        let sequence = Sequence { cells, state, last: Pos(end.0 - 1), line: Vec::new() };
        let n_states = states.len() as u32;
        let shape = image.shape.resumed();
        let image = Image { shape, blocks, n_states, sequences: vec![sequence], ..Image::default() };
        // What could not be given back is no way to go on.
        image.check().ok()?;
        Some(Resume { content, image, groups, states })
    }
}

/// The state after the last token, if that is where `end` is.
fn tip(sequence: &Sequence, end: Pos) -> Option<State> {
    sequence.state.filter(|_| sequence.last.next() == end)
}

/// What is taken of an image.
#[derive(Default)]
struct Taken {
    groups: Vec<(usize, Vec<u32>)>,
    cells: Vec<Cells>,
    blocks: Vec<Vec<super::Block>>,
    states: Vec<u32>,
}

impl Taken {
    /// Takes cells, whose blocks are numbered anew.
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
    fn image(&self) -> &Image {
        &self.image
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
