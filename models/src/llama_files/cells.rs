//! A cache: its cells, and their keys and values.
//!
//! | number | type | meaning |
//! |---|---|---|
//! | streams | u32 | then for each of them |
//! | cells | u32 | if there are none, nothing more of this stream |
//! | each cell | i32, u32 | position, number of sequences |
//! | | 3 × i32 | only with axes: two coordinates and a token |
//! | | n × i32 | sequences |
//! | values transposed | u32 | 0 or 1 |
//! | layers | u32 | |
//! | rotations | 2 × u32 | not in version 10 and 3: of keys and values, against the errors of |
//! | | | quantised caches |
//! | keys of each layer | i32, u64, bytes | type, bytes of a cell, cells |
//! | values of each layer | i32, u64, bytes | the same; or, transposed, |
//! | | i32, 2 × u32, bytes | type, bytes of an element, elements of a cell; element by element |

use super::layout::{Layout, type_number, type_of};
use super::read::Reader;
use super::{Error, Form, MAX_SEQUENCES, Section, Wanted};
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::Group;
use backstitch_kv::{Pos, reserve};
use core::ops::Range;

/// A cell of a file.
pub(super) struct Cell {
    pub pos: Pos,
    first_id: u32,
    n_ids: u32,
}

/// Cells that lie together.
pub(super) struct Stream<'a> {
    /// Which of the cache's cells.
    pub cells: Range<u32>,
    pub v_trans: bool,
    /// Keys, for each layer `[n_cells, row]`.
    pub k: Vec<&'a [u8]>,
    /// Values, for each layer `[n_cells, row]`, or `[row, n_cells]` if transposed.
    pub v: Vec<&'a [u8]>,
}

/// A cache of a file.
#[derive(Default)]
pub(super) struct Cache<'a> {
    pub n_stream: u32,
    pub streams: Vec<Stream<'a>>,
    pub cells: Vec<Cell>,
    /// Types of keys and of values, if there are any.
    pub types: [Option<CellType>; 2],
    /// The sequence that a file of one names; cells belong to sequence 0 then.
    pub sequence: Option<u32>,
    ids: Vec<u32>,
}

impl<'a> Cache<'a> {
    /// The sequences that a cell belongs to.
    pub fn ids(&self, cell: &Cell) -> &[u32] {
        let first = cell.first_id as usize;
        &self.ids[first..first + cell.n_ids as usize]
    }

    /// The stream that a cell is in, and the cell's number there.
    pub fn place(&self, cell: u32) -> Option<(&Stream<'a>, usize)> {
        let stream = self.streams.partition_point(|stream| stream.cells.end <= cell);
        let stream = self.streams.get(stream)?;
        Some((stream, cell.checked_sub(stream.cells.start)? as usize))
    }

    /// Read cache `index` of the layout.
    /// `n_stream` is the number of streams of the caches before it.
    pub fn read(
        r: &mut Reader<'a>,
        layout: &Layout,
        index: u8,
        form: Form,
        n_stream: Option<u32>,
    ) -> Result<Self, Error> {
        r.section = Section::Cells(index);
        let (least, most) = n_stream.map_or((1, MAX_SEQUENCES), |n_stream| (n_stream, n_stream));
        let mut cache = Cache { n_stream: r.between("streams", least, most + 1)?, ..Cache::default() };
        let group = layout.caches.get(usize::from(index)).copied().flatten();
        let group = group.and_then(|group| layout.shape.groups.get(group));
        for stream in 0..cache.n_stream {
            r.section = Section::Cells(index);
            let n = r.u32("number of cells")?;
            if n == 0 {
                continue;
            }
            if form != Form::Session && !cache.cells.is_empty() {
                let wanted = Wanted::Text("0, as one sequence is in one stream");
                return Err(r.wrong("number of cells", n, wanted));
            }
            let first = count(cache.cells.len())?;
            cache.read_cells(r, n, stream, layout.axes, form)?;
            let cells = first..count(cache.cells.len())?;
            let stream = cache.read_data(r, cells, group, index)?;
            cache.streams.push(stream);
        }
        Ok(cache)
    }

    fn read_cells(
        &mut self,
        r: &mut Reader<'a>,
        n: u32,
        stream: u32,
        axes: bool,
        form: Form,
    ) -> Result<(), Error> {
        r.ensure(n.into(), if axes { 24 } else { 12 }, "cells")?;
        reserve::for_more(&mut self.cells, n as usize)?;
        for _ in 0..n {
            let pos = r.between("position", 0, i32::MAX as u32)? as i32;
            let n_ids = match form {
                Form::Session => r.between("number of sequences of a cell", 1, MAX_SEQUENCES + 1)?,
                Form::Sequence | Form::Buffer => {
                    r.exactly("number of sequences of a cell", 1)?;
                    1
                }
            };
            if axes {
                read_axes(r, pos)?;
            }
            let first_id = count(self.ids.len())?;
            for _ in 0..n_ids {
                self.read_id(r, first_id, stream, form)?;
            }
            self.cells.push(Cell { pos: Pos(pos), first_id, n_ids });
        }
        Ok(())
    }

    /// Read a sequence that a cell belongs to, whose first is entry `first` of the list.
    fn read_id(&mut self, r: &mut Reader<'_>, first: u32, stream: u32, form: Form) -> Result<(), Error> {
        const FIELD: &str = "sequence of a cell";
        let id = r.between(FIELD, 0, MAX_SEQUENCES)?;
        let wrong = |wanted| Err(r.wrong(FIELD, id, wanted));
        if self.n_stream > 1 && id != stream {
            return wrong(Wanted::Exactly(stream.into()));
        }
        if form != Form::Session {
            let known = *self.sequence.get_or_insert(id);
            self.ids.push(0);
            return if id == known { Ok(()) } else { wrong(Wanted::Exactly(known.into())) };
        }
        if let Some(&last) = self.ids[first as usize..].last().filter(|last| id <= **last) {
            return wrong(Wanted::Between(u64::from(last) + 1, MAX_SEQUENCES.into()));
        }
        self.ids.push(id);
        Ok(())
    }

    fn read_data(
        &mut self,
        r: &mut Reader<'a>,
        cells: Range<u32>,
        group: Option<&Group>,
        index: u8,
    ) -> Result<Stream<'a>, Error> {
        let n_cells = cells.len() as u64;
        let layers = group.map_or(&[][..], |group| &group.layers);
        let v_trans = r.between("whether values are transposed", 0, 2)? == 1;
        let mut stream = Stream { cells, v_trans, k: Vec::new(), v: Vec::new() };
        r.exactly("layers", layers.len() as u32)?;
        if r.has_rotations {
            r.exactly("rotation of keys", 0)?;
            r.exactly("rotation of values", 0)?;
        }
        r.section = Section::Keys(index);
        for layer in layers {
            let bytes = self.read_type(r, 0)?;
            let row = u64::from(layer.n_head_kv) * u64::from(layer.d_k) * bytes;
            r.exactly_u64("bytes of a cell's keys", row)?;
            stream.k.push(r.bytes(n_cells.saturating_mul(row), "keys")?);
        }
        r.section = Section::Values(index);
        for layer in layers {
            let bytes = self.read_type(r, 1)?;
            let width = u64::from(layer.n_head_kv) * u64::from(layer.d_v);
            if stream.v_trans {
                r.exactly("bytes of an element", bytes as u32)?;
                r.exactly("elements of a cell's values", width as u32)?;
            } else {
                r.exactly_u64("bytes of a cell's values", width * bytes)?;
            }
            stream.v.push(r.bytes(n_cells.saturating_mul(width * bytes), "values")?);
        }
        Ok(stream)
    }

    /// Read the type of keys (0) or values (1), which is the same for all layers; returns the
    /// bytes of an element.
    fn read_type(&mut self, r: &mut Reader<'_>, which: usize) -> Result<u64, Error> {
        const FIELD: &str = "type";
        let number = r.u32(FIELD)?;
        let wanted = Wanted::Text("0, 1 or 30: caches of f32, f16 or bf16");
        let kind = type_of(number).ok_or_else(|| r.wrong(FIELD, number, wanted))?;
        let known = *self.types[which].get_or_insert(kind);
        if known != kind {
            return Err(r.wrong(FIELD, number, Wanted::Exactly(type_number(known).into())));
        }
        Ok(kind.unit_bytes() as u64)
    }
}

/// A number of cells, or of sequences of all cells together.
fn count(n: usize) -> Result<u32, Error> {
    u32::try_from(n).map_err(|_| Error::Unsupported { what: "caches of 2^32 cells" })
}

/// Coordinates of a cell beside its position, which are all the same for text, and its token.
fn read_axes(r: &mut Reader<'_>, pos: i32) -> Result<(), Error> {
    for _ in 0..2 {
        let found = r.i32("coordinate")?;
        if found != pos {
            let wanted = Wanted::Text("the position, as that of all text is");
            return Err(r.wrong("coordinate", found, wanted));
        }
    }
    r.i32("token of a cell").map(|_| ())
}
