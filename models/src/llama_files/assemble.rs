//! From lists of cells to a snapshot: each sequence's cells in order, in blocks that sequences
//! share where all cells are the same.

use super::cells::Cache;
use super::states::States;
use super::{Error, Form, Layout, Section};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, SPAN_CELLS};
use backstitch_kv::snapshot::{Block, Cells, Sees, Sequence, Snapshot, State};
use backstitch_kv::{Pos, reserve};

/// The cells of a block, by their number in the cache; [`NO_CELL`] where there is none.
pub(super) type Members = [u32; BLOCK_CELLS];
pub(super) const NO_CELL: u32 = u32::MAX;

/// Position and number of a sequence's cells, in order.
type Line = Vec<(Pos, u32)>;

/// Positions that a sequence reaches from and to; `None` if it holds nothing.
type Range = Option<(Pos, Pos)>;

/// Return the snapshot of a file, and for each group which cells its blocks hold.
pub(super) fn assemble(
    layout: &Layout,
    form: Form,
    caches: &[Cache<'_>],
    states: &States<'_>,
) -> Result<(Snapshot, Vec<Vec<Members>>), Error> {
    let n_groups = layout.shape.groups.len();
    let n_sequences = n_sequences(form, caches, states);
    let lines = caches.iter().map(|cache| lines(cache, n_sequences));
    let lines: Vec<Vec<Line>> = lines.collect::<Result<_, _>>()?;
    let ranges = ranges(layout, states, &lines, n_sequences)?;
    let empty = Sequence { cells: vec![Cells::default(); n_groups], ..Sequence::default() };
    let mut snapshot = Snapshot {
        shape: layout.shape.clone(),
        blocks: vec![Vec::new(); n_groups],
        n_states: states.states.len() as u32,
        sequences: reserve::filled(n_sequences, empty)?,
        ..Snapshot::default()
    };
    let mut members = vec![Vec::new(); n_groups];
    for ((index, (cache, lines)), &group) in (0..).zip(caches.iter().zip(&lines)).zip(&layout.caches) {
        let shape = group.and_then(|group| snapshot.shape.groups.get_mut(group));
        let sees = shape.as_ref().map_or(Sees::All, |shape| shape.sees);
        let mut packer = Packer::new(index, cache.cells.len(), n_sequences);
        for (number, (line, &range)) in (0..).zip(lines.iter().zip(&ranges)) {
            let Some(range) = range else { continue };
            let seen = seen(index, number, sees, line, range)?;
            if let Some(group) = group {
                snapshot.sequences[number as usize].cells[group] = packer.pack(seen)?;
            }
        }
        if let (Some(shape), Some(group)) = (shape, group) {
            shape.k_type = cache.types[0].unwrap_or(shape.k_type);
            shape.v_type = cache.types[1].unwrap_or(shape.v_type);
            (snapshot.blocks[group], members[group]) = (packer.blocks, packer.members);
        }
    }
    for (number, (sequence, &range)) in snapshot.sequences.iter_mut().zip(&ranges).enumerate() {
        let state = state_of(states, number);
        if let (Some(state), Some((first, last))) = (state, range) {
            sequence.last = last;
            sequence.state = Some(State { state: Some(state as u32), first });
        }
    }
    Ok((snapshot, members))
}

fn n_sequences(form: Form, caches: &[Cache<'_>], states: &States<'_>) -> usize {
    if form != Form::Session {
        return 1;
    }
    let of_cells = caches.iter().flat_map(|cache| cache.cells.iter().flat_map(|cell| cache.ids(cell)));
    let of_states = states.states.iter().flat_map(|state| &state.ids);
    of_cells.chain(of_states).max().map_or(0, |&last| last as usize + 1)
}

/// Return the cells of each sequence.
fn lines(cache: &Cache<'_>, n_sequences: usize) -> Result<Vec<Line>, Error> {
    let mut lines = reserve::filled(n_sequences, Line::new())?;
    for (index, cell) in (0..).zip(&cache.cells) {
        for &id in cache.ids(cell) {
            reserve::for_more(&mut lines[id as usize], 1)?;
            lines[id as usize].push((cell.pos, index));
        }
    }
    lines.iter_mut().for_each(|line| line.sort_unstable());
    Ok(lines)
}

/// Return the state of a sequence.
fn state_of(states: &States<'_>, sequence: usize) -> Option<usize> {
    states.states.iter().position(|state| state.ids.contains(&(sequence as u32)))
}

/// Return where each sequence begins and ends, as the first cache has it; all others and the states
/// must agree about the end.
fn ranges(
    layout: &Layout,
    states: &States<'_>,
    lines: &[Vec<Line>],
    n_sequences: usize,
) -> Result<Vec<Range>, Error> {
    let end = |line: &Line| line.last().map(|cell| cell.0);
    let last_of = |state: usize| states.states.get(state).map(|state| state.pos);
    let state_end = |sequence| state_of(states, sequence).and_then(last_of);
    let ranges: Vec<Range> = match lines.first() {
        Some(lines) => lines.iter().map(|line| line.first().map(|cell| cell.0).zip(end(line))).collect(),
        // What a state began with is not known.
        None => (0..n_sequences).map(|sequence| Some(Pos::ZERO).zip(state_end(sequence))).collect(),
    };
    for (sequence, range) in ranges.iter().enumerate() {
        let wanted = range.map(|range| range.1);
        let agree = |section, found| match found == wanted {
            true => Ok(()),
            false => Err(Error::Ends { section, sequence: sequence as u32, found, wanted }),
        };
        for (index, lines) in (0..).zip(lines).skip(1) {
            agree(Section::Cells(index), lines.get(sequence).and_then(end))?;
        }
        if layout.recurrent.is_some() {
            agree(Section::States, state_end(sequence))?;
        }
    }
    Ok(ranges)
}

/// Cells that belong into a snapshot, and what is to be said about those before them.
struct Part<'l> {
    line: &'l [(Pos, u32)],
    /// The slot of the first cell: attention's sums depend on slots, up to whole spans of them, and
    /// a sequence that was never written or read has its first position in slot 0.
    first_slot: usize,
    whole_from: Pos,
    start: Pos,
}

/// Check that no cell is missing that the next token sees, and return those from which on none is.
fn seen(
    cache: u8,
    sequence: u32,
    sees: Sees,
    line: &[(Pos, u32)],
    (first, last): (Pos, Pos),
) -> Result<Part<'_>, Error> {
    let follows = |pair: &[(Pos, u32)]| pair[0].0 + 1 == pair[1].0;
    let broken = line.windows(2).rposition(|pair| !follows(pair));
    let Sees::Window(window) = sees else {
        let Some(at) = broken else {
            return Ok(Part { line, first_slot: 0, whole_from: Pos::ZERO, start: Pos::ZERO });
        };
        let (wanted, found) = (line[at].0 + 1, line[at + 1].0);
        return Err(Error::Hole { cache, sequence, found, wanted });
    };
    let line = &line[broken.map_or(0, |at| at + 1)..];
    let found = line.first().map_or(first, |cell| cell.0);
    let wanted = window.first(last + 1).max(first);
    if found > wanted {
        return Err(Error::Window { cache, sequence, found, wanted });
    }
    let is_whole = found <= first;
    let (whole_from, start) = if is_whole { (Pos::ZERO, Pos::ZERO) } else { (found, first) };
    let first_slot = (found.0 - first.0).max(0) as usize % SPAN_CELLS;
    Ok(Part { line, first_slot, whole_from, start })
}

/// Makes blocks of cells, each combination of them once.
struct Packer {
    cache: u8,
    /// Most blocks that forks of forks would need.
    limit: usize,
    known: BTreeMap<Members, u32>,
    blocks: Vec<Block>,
    members: Vec<Members>,
}

impl Packer {
    fn new(cache: u8, n_cells: usize, n_sequences: usize) -> Packer {
        // A sequence that parts from all others needs blocks for its own cells, and one where it
        // does.
        let limit = n_cells / BLOCK_CELLS + 2 * n_sequences;
        Packer { cache, limit, known: BTreeMap::new(), blocks: Vec::new(), members: Vec::new() }
    }

    fn pack(&mut self, part: Part<'_>) -> Result<Cells, Error> {
        let mut extents = reserve::filled(part.first_slot / BLOCK_CELLS, BlockEntry::EMPTY)?;
        reserve::for_more(&mut extents, part.line.len() / BLOCK_CELLS + 2)?;
        let mut slot = part.first_slot % BLOCK_CELLS;
        let mut rest = part.line;
        while !rest.is_empty() {
            let (cells, after) = rest.split_at(rest.len().min(BLOCK_CELLS - slot));
            extents.push(self.block(cells, slot)?);
            (slot, rest) = (0, after);
        }
        Ok(Cells { extents, whole_from: part.whole_from, start: part.start })
    }

    /// Return the block of these cells, one at least, from a slot on.
    fn block(&mut self, cells: &[(Pos, u32)], slot: usize) -> Result<BlockEntry, Error> {
        let (mut members, mut pos) = ([NO_CELL; BLOCK_CELLS], [Pos::ZERO; BLOCK_CELLS]);
        for ((member, place), cell) in members.iter_mut().zip(&mut pos).skip(slot).zip(cells) {
            (*place, *member) = *cell;
        }
        let live = (u32::MAX >> (BLOCK_CELLS - cells.len())) << slot;
        if let Some(&block) = self.known.get(&members) {
            return Ok(BlockEntry { block, live });
        }
        if self.blocks.len() >= self.limit {
            let n_blocks = self.blocks.len() as u64 + 1;
            return Err(Error::Scattered { cache: self.cache, n_blocks, limit: self.limit as u64 });
        }
        let block = self.blocks.len() as u32;
        reserve::for_more(&mut self.blocks, 1)?;
        reserve::for_more(&mut self.members, 1)?;
        self.known.insert(members, block);
        self.blocks.push(Block { live, pos });
        self.members.push(members);
        Ok(BlockEntry { block, live })
    }
}
