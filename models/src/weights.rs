//! The weights of a model in memory: matrices in panels, vectors as `f32`.
//!
//! Matrices that a file has in panels already stay in the mapped file.

mod distances;

pub(crate) use distances::REACH;

use crate::{
    cancel::Stoppable,
    error::Error,
    gguf::{Gguf, TensorInfo},
    graph::{Graph, WeightId, WeightInfo, WeightShape, packed_type},
};
use alloc::{boxed::Box, vec, vec::Vec};
use backstitch_core::{
    packed::{PANEL, Packed, PackedType, Source, pack, packed_bytes},
    pool::Parts,
};
use backstitch_kv::arena::Arena;
use core::ops::Range;

fn not_weights(info: &TensorInfo<'_>) -> Error {
    Error::NotWeights { tensor: info.name().into(), found: info.dtype() }
}

/// The place of a matrix's panels.
#[derive(Clone, Debug)]
enum Place {
    /// Packed when the model was loaded.
    Arena(Range<usize>),
    /// In the file, packed before.
    File { part: usize, range: Range<usize> },
}

/// A matrix in panels.
#[derive(Debug)]
struct Matrix {
    kind: PackedType,
    n_rows: usize,
    n_cols: usize,
    place: Place,
}

/// A weight in memory.
#[derive(Debug)]
enum Weight {
    Matrices(Vec<Matrix>),
    Vector(Box<[f32]>),
}

/// The files in which packed matrices lie that are used there.
#[derive(Debug)]
pub(crate) enum Files {
    /// There are none: all matrices were copied.
    None,
    /// One file, in memory for good.
    Static(&'static [u8]),
    /// Open files, mapped or read.
    #[cfg(feature = "std")]
    Open(crate::gguf::Source),
}

impl Files {
    /// Return the bytes of one file.
    fn bytes(&self, part: usize) -> Option<&[u8]> {
        match self {
            Files::Static(bytes) if part == 0 => Some(bytes),
            Files::None | Files::Static(_) => None,
            #[cfg(feature = "std")]
            Files::Open(source) => source.bytes(part),
        }
    }
}

/// The weights of a graph, in its order.
#[derive(Debug)]
pub(crate) struct Weights {
    all: Vec<Weight>,
    arena: Arena,
    files: Files,
}

impl Weights {
    /// Decode and pack all weights of `graph`; after each, `done` gets the tensor and the range of
    /// its bytes that was read. Matrices that the file has packed are copied, unless `keep`
    /// promises that the files will be [kept](Weights::keep).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Cancelled`]; [`Error::MissingTensor`],
    /// [`Error::NotWeights`] or [`Error::PackedRows`] if a tensor is not the one that the graph was
    /// built from; [`Error::NotANumber`] for a vector that holds none. Matrices are not searched,
    /// because that would take as long as reading them.
    pub(crate) fn load(
        gguf: &Gguf<'_>,
        graph: &Graph,
        work: &Stoppable<'_>,
        keep: bool,
        mut done: impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Self, Error> {
        let find = |wanted: &WeightInfo| {
            let missing = || Error::MissingTensor { tensor: wanted.tensor.as_str().into() };
            gguf.tensor(&wanted.tensor).ok_or_else(missing)
        };
        let mut n_bytes = 0usize;
        for wanted in graph.weights() {
            let info = find(wanted)?;
            if !(keep && info.is_packed()) {
                n_bytes = n_bytes.saturating_add(arena_bytes(&info, &wanted.shape)?);
            }
        }
        let mut arena = arena(n_bytes)?;
        let mut loader = Loader { work, keep, room: arena.bytes_mut(), at: 0 };
        let mut all = Vec::with_capacity(graph.weights().len());
        for wanted in graph.weights() {
            let info = find(wanted)?;
            all.push(loader.load(&info, gguf.tensor_data(&info), &wanted.shape, &mut done)?);
        }
        Ok(Weights { all, arena, files: Files::None })
    }

    /// Keep the files in which packed matrices lie.
    pub(crate) fn keep(&mut self, files: Files) {
        self.files = files;
    }

    /// Return the elements of a vector.
    ///
    /// # Errors
    /// [`Error::WeightUse`] if the weight is none.
    pub(crate) fn vector(&self, id: WeightId) -> Result<&[f32], Error> {
        match self.all.get(id.0 as usize) {
            Some(Weight::Vector(x)) => Ok(x),
            _ => Err(Error::WeightUse { weight: id.0, wanted: "a vector" }),
        }
    }

    /// Return the panels of a matrix, or of expert number `expert`.
    ///
    /// # Errors
    /// [`Error::WeightUse`] if the weight is no matrix or its bytes are not at hand,
    /// [`Error::NoExpert`] if there is no such expert.
    pub(crate) fn matrix(&self, id: WeightId, expert: usize) -> Result<Packed<'_>, Error> {
        let Some(Weight::Matrices(all)) = self.all.get(id.0 as usize) else {
            return Err(Error::WeightUse { weight: id.0, wanted: "a matrix" });
        };
        let matrix = all.get(expert).ok_or(Error::NoExpert { expert })?;
        let bytes = match &matrix.place {
            Place::Arena(range) => self.arena.bytes().get(range.clone()),
            Place::File { part, range } => self.files.bytes(*part).and_then(|bytes| bytes.get(range.clone())),
        };
        let bytes = bytes.ok_or(Error::WeightUse { weight: id.0, wanted: "a matrix in memory" })?;
        Ok(Packed::new(matrix.kind, matrix.n_rows, matrix.n_cols, bytes)?)
    }

    /// Return true if all elements of a weight are finite numbers. Reads all of it.
    pub(crate) fn are_finite(&self, id: WeightId) -> bool {
        let row_is_finite = |matrix: &Packed<'_>, row, x: &mut [f32]| {
            matrix.decode_row(row, x).is_ok() && x.iter().all(|x| x.is_finite())
        };
        match self.all.get(id.0 as usize) {
            Some(Weight::Vector(x)) => x.iter().all(|x| x.is_finite()),
            Some(Weight::Matrices(all)) => (0..all.len()).all(|number| {
                let Ok(matrix) = self.matrix(id, number) else { return true };
                let mut x = vec![0.0; matrix.n_cols()];
                (0..matrix.n_rows()).all(|row| row_is_finite(&matrix, row, &mut x))
            }),
            None => true,
        }
    }

    /// Return the bytes of all weights.
    pub(crate) fn n_bytes(&self) -> usize {
        let bytes = |weight: &Weight| match weight {
            Weight::Matrices(all) => all
                .iter()
                .map(|matrix| match &matrix.place {
                    Place::Arena(range) | Place::File { range, .. } => range.len(),
                })
                .sum(),
            Weight::Vector(x) => size_of_val::<[f32]>(x),
        };
        self.all.iter().map(bytes).sum()
    }
}

/// Return the rows of each matrix that a weight is, and their columns.
fn matrices(shape: &WeightShape) -> (Vec<Range<usize>>, usize) {
    match shape {
        WeightShape::Matrix { rows, n_cols, .. } => (vec![rows.clone()], *n_cols),
        WeightShape::Stack { n_matrices, n_rows, rows, n_cols, .. } => {
            let matrix = |i: usize| i * n_rows + rows.start..i * n_rows + rows.end;
            ((0..*n_matrices).map(matrix).collect(), *n_cols)
        }
        WeightShape::Vector { .. } | WeightShape::Columns { .. } | WeightShape::Distances { .. } => {
            (Vec::new(), 0)
        }
    }
}

/// Return zeroed memory for packed matrices.
///
/// # Errors
/// [`Error::OutOfMemory`] if the system has no room.
pub(crate) fn arena(n_bytes: usize) -> Result<Arena, Error> {
    Arena::new(n_bytes).map_err(|_| Error::OutOfMemory { what: "weights", n_bytes: n_bytes as u64 })
}

/// Return the bytes that a weight takes when it is packed.
fn arena_bytes(info: &TensorInfo<'_>, shape: &WeightShape) -> Result<usize, Error> {
    let (all, n_cols) = matrices(shape);
    let kind = packed_type(info)?;
    all.iter().try_fold(0usize, |n, rows| Ok(n.saturating_add(packed_bytes(kind, rows.len(), n_cols)?)))
}

/// Return true if a tensor can be packed for this use: if the panels of its rows are the tensor's.
pub(crate) fn is_packable(info: &TensorInfo<'_>, shape: &WeightShape) -> bool {
    let (all, n_cols) = matrices(shape);
    !all.is_empty() && all.into_iter().all(|rows| panels_of(info, rows, n_cols).is_ok())
}

/// Return the place of some rows' panels in the data of a packed tensor.
///
/// # Errors
/// [`Error::PackedRows`] if they are no whole panels of one of its matrices.
fn panels_of(info: &TensorInfo<'_>, rows: Range<usize>, n_cols: usize) -> Result<Range<usize>, Error> {
    let refused = || Error::PackedRows { tensor: info.name().into() };
    let kind = packed_type(info)?;
    let (n_rows, wanted_cols) = info.rows_and_cols();
    let (number, first) = (rows.start / n_rows, rows.start % n_rows);
    let end = first + rows.len();
    let whole = first.is_multiple_of(PANEL) && (end == n_rows || end < n_rows && end.is_multiple_of(PANEL));
    if !whole || n_cols != wanted_cols {
        return Err(refused());
    }
    let (size, panel) = (packed_bytes(kind, n_rows, n_cols)?, kind.panel_bytes(n_cols)?);
    let start = number * size + first / PANEL * panel;
    Ok(start..start + rows.len().div_ceil(PANEL) * panel)
}

/// Puts matrices into the arena, one after the other.
struct Loader<'a> {
    work: &'a Stoppable<'a>,
    keep: bool,
    room: &'a mut [u8],
    at: usize,
}

impl Loader<'_> {
    fn load(
        &mut self,
        info: &TensorInfo<'_>,
        data: &[u8],
        shape: &WeightShape,
        done: &mut impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Weight, Error> {
        let mut decoded = |n: usize| {
            let mut x = vec![0.0; n];
            info.dtype().decode(data, &mut x)?;
            done(info, 0..data.len());
            match x.iter().position(|x| x.is_nan()) {
                Some(index) => Err(Error::NotANumber { tensor: info.name().into(), index }),
                None => Ok(x),
            }
        };
        Ok(match shape {
            WeightShape::Vector { len } => Weight::Vector(decoded(*len)?.into()),
            WeightShape::Columns { n_rows, n_cols } => {
                let x = decoded(n_rows * n_cols)?;
                Weight::Vector((0..x.len()).map(|i| x[i % n_rows * n_cols + i / n_rows]).collect())
            }
            WeightShape::Distances { n_bucket, n_head, both_ways } => {
                let x = decoded(n_bucket * n_head)?;
                Weight::Vector(distances::terms(&x, *n_bucket, *n_head, *both_ways).into())
            }
            WeightShape::Matrix { .. } | WeightShape::Stack { .. } => {
                let (all, n_cols) = matrices(shape);
                let all = all.into_iter().map(|rows| self.load_rows(info, data, rows, n_cols, done));
                Weight::Matrices(all.collect::<Result<_, Error>>()?)
            }
        })
    }

    fn load_rows(
        &mut self,
        info: &TensorInfo<'_>,
        data: &[u8],
        rows: Range<usize>,
        n_cols: usize,
        done: &mut impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Matrix, Error> {
        let (kind, n_rows, work) = (packed_type(info)?, rows.len(), self.work);
        work.check()?;
        if !info.is_packed() {
            let row_bytes = info.dtype().row_bytes(n_cols).ok_or_else(|| not_weights(info))?;
            let bytes = rows.start * row_bytes..rows.end * row_bytes;
            let piece = data.get(bytes.clone()).ok_or_else(|| not_weights(info))?;
            let source = Source::new(info.dtype(), n_rows, n_cols, piece)?;
            let (place, room) = self.take(packed_bytes(kind, n_rows, n_cols)?)?;
            pack_in_parallel(&source, room, work)?;
            done(info, bytes);
            return Ok(Matrix { kind, n_rows, n_cols, place });
        }
        let range = panels_of(info, rows, n_cols)?;
        if self.keep {
            let start = info.range().start;
            let place = Place::File { part: info.shard(), range: start + range.start..start + range.end };
            return Ok(Matrix { kind, n_rows, n_cols, place });
        }
        let piece = data.get(range.clone()).ok_or_else(|| not_weights(info))?;
        let (place, room) = self.take(piece.len())?;
        room.copy_from_slice(piece);
        done(info, range);
        Ok(Matrix { kind, n_rows, n_cols, place })
    }

    /// Take the next `n_bytes`.
    fn take(&mut self, n_bytes: usize) -> Result<(Place, &mut [u8]), Error> {
        let refused = Error::OutOfMemory { what: "weights", n_bytes: n_bytes as u64 };
        let (now, rest) = core::mem::take(&mut self.room).split_at_mut_checked(n_bytes).ok_or(refused)?;
        let place = Place::Arena(self.at..self.at + n_bytes);
        (self.room, self.at) = (rest, self.at + n_bytes);
        Ok((place, now))
    }
}

/// Cost of packing a byte, in multiply-adds: it may have to come from a disk.
const PACKING: u64 = 32;

/// Pack a matrix on all threads of `work`'s pool, each of which also is the first to write to its
/// piece of `out`.
///
/// # Errors
/// [`Error::Core`] if `out` is not as long as the packed matrix; [`Error::Cancelled`].
pub(crate) fn pack_in_parallel(
    source: &Source<'_>,
    out: &mut [u8],
    work: &Stoppable<'_>,
) -> Result<(), Error> {
    let (panel_bytes, pool) = (source.panel_bytes().max(1), work.pool());
    let cost = PACKING * panel_bytes as u64;
    let n_jobs = backstitch_core::pool::n_limited_jobs(pool, source.n_panels(), 8, cost);
    let mut results = vec![Ok(()); n_jobs];
    let (parts, verdicts) = (Parts::new(out, panel_bytes, n_jobs), Parts::new(&mut results, 1, n_jobs));
    pool.run(n_jobs, &|job| {
        if let (Some((start, part)), Some((_, [verdict, ..]))) = (parts.take(job), verdicts.take(job)) {
            *verdict = pack(source, start / panel_bytes, part);
        }
    })?;
    work.check()?;
    Ok(results.into_iter().collect::<Result<(), _>>()?)
}
