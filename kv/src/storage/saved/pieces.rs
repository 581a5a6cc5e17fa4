//! Which cells of a block are in which section.

use super::{ALL, IMAGE};
use crate::snapshot::{Block, Snapshot};
use crate::storage::error::{Error, expect_equal};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A block that became full in more pieces than this is written again as one, which is read faster.
const MAX_PIECES: usize = 4;

/// The pieces of a group's blocks, numbered through: the cells of each piece of each block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupPieces {
    /// The cells of each piece.
    pub masks: Vec<u32>,
    /// For each block the number of the piece behind its last.
    pub ends: Vec<u32>,
}

impl GroupPieces {
    /// Return the numbers of a block's pieces.
    pub fn range(&self, block: usize) -> Range<usize> {
        let end = |block: usize| self.ends.get(block).map_or(0, |end| *end as usize);
        block.checked_sub(1).map_or(0, end)..end(block)
    }

    /// Return the pieces of a block; none where the ends of a file make no sense, which
    /// [`check`] refuses.
    pub fn of(&self, block: usize) -> &[u32] {
        self.masks.get(self.range(block)).unwrap_or_default()
    }
}

/// Return one piece for what is new of each block, and those that were stored before, per group.
pub(super) fn plan(snapshot: &Snapshot, old: Option<(&Snapshot, &[GroupPieces])>) -> Vec<GroupPieces> {
    let group = |(group, blocks): (usize, &Vec<Block>)| {
        let known = old.map(|(old, pieces)| known(old, pieces, group)).unwrap_or_default();
        let mut pieces = GroupPieces::default();
        for block in blocks {
            pieces.masks.extend(cut(block.live, known.get(&first(block)).copied().unwrap_or_default()));
            pieces.ends.push(pieces.masks.len() as u32);
        }
        pieces
    };
    snapshot.blocks.iter().enumerate().map(group).collect()
}

/// Check that there are pieces for each block of the snapshot: each some of its cells, and together
/// all of them. Errors name `offset`, that of the description.
pub(super) fn check(pieces: &[GroupPieces], snapshot: &Snapshot, offset: u64) -> Result<(), Error> {
    let expect =
        |what, found: usize, wanted: usize| expect_equal(IMAGE, offset, what, found as u64, wanted as u64);
    expect("groups of pieces", pieces.len(), snapshot.blocks.len())?;
    for (pieces, blocks) in pieces.iter().zip(&snapshot.blocks) {
        expect("blocks with pieces", pieces.ends.len(), blocks.len())?;
        let n_pieces = pieces.ends.last().map_or(0, |end| *end as usize);
        expect("pieces of blocks", pieces.masks.len(), n_pieces)?;
        for (number, block) in blocks.iter().enumerate() {
            let mut left = block.live;
            for &mask in pieces.of(number) {
                if mask == 0 || mask & !left != 0 {
                    let (section, what, found, wanted) =
                        (IMAGE, "cells of a piece", mask.into(), left.into());
                    return Err(Error::Malformed { section, offset, what, found, wanted });
                }
                left &= !mask;
            }
            expect("cells of no piece", left as usize, 0)?;
        }
    }
    Ok(())
}

/// Position of a block's first cell, by which it is found again.
fn first(block: &Block) -> (u32, i32) {
    let cell = block.live.trailing_zeros();
    (cell, block.pos.get(cell as usize).map_or(-1, |pos| pos.0))
}

/// Return the stored pieces of a group by the first cell of their block.
fn known<'a>(old: &Snapshot, pieces: &'a [GroupPieces], group: usize) -> BTreeMap<(u32, i32), &'a [u32]> {
    let Some((blocks, pieces)) = old.blocks.get(group).zip(pieces.get(group)) else { return BTreeMap::new() };
    blocks.iter().enumerate().map(|(number, block)| (first(block), pieces.of(number))).collect()
}

/// Cut the cells of a block where they were cut before.
fn cut(live: u32, known: &[u32]) -> Vec<u32> {
    let mut left = live;
    let mut masks = Vec::new();
    for &mask in known {
        if mask & !left == 0 {
            masks.push(mask);
            left &= !mask;
        }
    }
    if left != 0 {
        masks.push(left);
    }
    if live == ALL && masks.len() > MAX_PIECES { vec![ALL] } else { masks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_stays_in_pieces_and_the_rest_is_a_new_one() {
        assert_eq!(cut(0xff, &[]), [0xff]);
        assert_eq!(cut(0xff, &[0x0f]), [0x0f, 0xf0]);
        // Cells that went take their piece with them.
        assert_eq!(cut(0xf7, &[0x0f, 0xf0]), [0xf0, 0x07]);
        assert_eq!(cut(ALL, &[ALL]), [ALL]);
        assert_eq!(cut(ALL, &[0xff, 0xff00, 0xff_0000]), [0xff, 0xff00, 0xff_0000, 0xff00_0000]);
        assert_eq!(cut(ALL, &[0xf, 0xf0, 0xff00, 0xff_0000]), [ALL]);
        assert_eq!(cut(0, &[1]), [0; 0]);
    }
}
