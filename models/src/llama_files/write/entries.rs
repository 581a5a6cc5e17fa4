//! The cells that go into a file, in its order.

use super::Writer;
use crate::llama_files::{Error, range};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use backstitch_kv::Pos;
use backstitch_kv::snapshot::{Sees, Sequence};

/// Block and cell.
pub(super) type Place = (u32, u32);

/// Positions of a sequence of which only some have cells; a bound on what is listed for them.
const MOST: i64 = 1 << 24;

/// A cell of a file.
pub(super) struct Entry {
    pub pos: Pos,
    /// The sequences it belongs to.
    pub ids: Vec<u32>,
    /// Place of its bytes; `None` in a cache of no layers.
    pub place: Option<Place>,
}

impl Writer<'_> {
    /// Return the cells of a group, or of a cache without layers, in one stream if not in all: by
    /// position, and those of one position by sequence.
    pub(super) fn entries(
        &self,
        cache: u8,
        group: Option<usize>,
        stream: Option<u32>,
    ) -> Result<Vec<Entry>, Error> {
        let sequences = self.sequences().filter(|(id, _)| stream.is_none_or(|stream| stream == *id));
        let mut entries = match group {
            Some(group) => self.held(cache, group, sequences)?,
            None => self.positions(sequences)?,
        };
        entries.sort_by(|a, b| (a.pos, &a.ids).cmp(&(b.pos, &b.ids)));
        Ok(entries)
    }

    fn held<'s>(
        &self,
        cache: u8,
        group: usize,
        sequences: impl Iterator<Item = (u32, &'s Sequence)>,
    ) -> Result<Vec<Entry>, Error> {
        let (sees, blocks) = (self.snapshot.shape.groups[group].sees, &self.snapshot.blocks[group]);
        let mut places: BTreeMap<Place, Entry> = BTreeMap::new();
        for (id, sequence) in sequences {
            let cells = sequence.cells[group].places(blocks);
            let mut line: Vec<(Pos, Place)> = cells.map(|(pos, block, cell)| (pos, (block, cell))).collect();
            if let (Sees::Window(window), Some(&(last, _))) = (sees, line.last())
                && !self.options.margin
            {
                line.retain(|cell| cell.0 >= window.first(last));
            }
            if let Some(pair) = line.windows(2).find(|pair| pair[0].0 + 1 != pair[1].0) {
                let (wanted, found) = (pair[0].0 + 1, pair[1].0);
                return Err(Error::Hole { cache, sequence: id, found, wanted });
            }
            for (pos, place) in line {
                let entry = Entry { pos, ids: Vec::new(), place: Some(place) };
                places.entry(place).or_insert(entry).ids.push(id);
            }
        }
        Ok(places.into_values().collect())
    }

    /// Return one cell for each position that a sequence has had.
    fn positions<'s>(
        &self,
        sequences: impl Iterator<Item = (u32, &'s Sequence)>,
    ) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for (id, sequence) in sequences {
            let Some((first, last)) = range(self.snapshot, sequence) else { continue };
            if i64::from(last.0) - i64::from(first.0) >= MOST {
                return Err(Error::Unsupported { what: "caches of no layers with so many positions" });
            }
            let entry = |pos| Entry { pos: Pos(pos), ids: [id].into(), place: None };
            entries.extend((first.0..=last.0).map(entry));
        }
        Ok(entries)
    }
}
