//! The weights of a model in memory: matrices in panels, vectors as `f32`.

mod distances;

pub(crate) use distances::REACH;

use crate::{
    error::Error,
    gguf::{Gguf, TensorInfo},
    graph::{Graph, WeightId, WeightInfo, WeightShape},
};
use alloc::{boxed::Box, vec, vec::Vec};
use backstitch_core::{
    packed::{Line, Packed, PackedType, Source, pack, packed_bytes},
    pool::{Parts, Pool},
};
use core::ops::Range;

/// How a matrix of this tensor's type is kept in panels.
///
/// # Errors
/// [`Error::NotWeights`] if the type holds no weights.
pub(crate) fn packed_type(info: &TensorInfo<'_>) -> Result<PackedType, Error> {
    PackedType::of(info.dtype()).ok_or_else(|| not_weights(info))
}

/// Checks that the tensor's elements can be decoded to `f32`.
///
/// # Errors
/// [`Error::NotWeights`] if they cannot.
pub(crate) fn decodable(info: &TensorInfo<'_>) -> Result<(), Error> {
    packed_type(info).map(|_| ())
}

fn not_weights(info: &TensorInfo<'_>) -> Error {
    Error::NotWeights { tensor: info.name().into(), found: info.dtype() }
}

/// A matrix in panels, owned.
#[derive(Debug)]
pub(crate) struct Matrix {
    kind: PackedType,
    n_rows: usize,
    n_cols: usize,
    lines: Vec<Line>,
}

impl Matrix {
    /// The panels, for kernels.
    pub(crate) fn packed(&self) -> Result<Packed<'_>, Error> {
        Ok(Packed::new(self.kind, self.n_rows, self.n_cols, bytemuck::cast_slice(&self.lines))?)
    }
}

/// A weight in memory.
#[derive(Debug)]
enum Weight {
    Matrices(Vec<Matrix>),
    Vector(Box<[f32]>),
}

/// The weights of a graph, in its order.
#[derive(Debug)]
pub(crate) struct Weights(Vec<Weight>);

impl Weights {
    /// Decodes and packs all weights of `graph`; after each, `done` gets the tensor and the range of rows that was read.
    ///
    /// # Errors
    /// If memory runs out, or a tensor is not what the graph was built from.
    pub(crate) fn load(
        gguf: &Gguf<'_>,
        graph: &Graph,
        pool: &dyn Pool,
        mut done: impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Self, Error> {
        let mut weights = Vec::with_capacity(graph.weights().len());
        for wanted in graph.weights() {
            let info = gguf
                .tensor(&wanted.tensor)
                .ok_or_else(|| Error::MissingTensor { tensor: wanted.tensor.as_str().into() })?;
            weights.push(load_one(gguf, &info, wanted, pool, &mut done)?);
        }
        Ok(Weights(weights))
    }

    /// The elements of a vector; empty if the weight is none.
    pub(crate) fn vector(&self, id: WeightId) -> &[f32] {
        match self.0.get(id.0 as usize) {
            Some(Weight::Vector(x)) => x,
            _ => &[],
        }
    }

    /// The panels of a matrix, or of expert number `expert`.
    ///
    /// # Errors
    /// [`Error::NoExpert`] if there is no such matrix.
    pub(crate) fn matrix(&self, id: WeightId, expert: usize) -> Result<Packed<'_>, Error> {
        match self.0.get(id.0 as usize) {
            Some(Weight::Matrices(all)) => all.get(expert).ok_or(Error::NoExpert { expert })?.packed(),
            _ => Err(Error::NoExpert { expert }),
        }
    }

    /// Bytes of all weights.
    pub(crate) fn n_bytes(&self) -> usize {
        let bytes = |weight: &Weight| match weight {
            Weight::Matrices(all) => all.iter().map(|m| m.lines.len() * size_of::<Line>()).sum(),
            Weight::Vector(x) => size_of_val::<[f32]>(x),
        };
        self.0.iter().map(bytes).sum()
    }
}

fn load_one(
    gguf: &Gguf<'_>,
    info: &TensorInfo<'_>,
    wanted: &WeightInfo,
    pool: &dyn Pool,
    done: &mut impl FnMut(&TensorInfo<'_>, Range<usize>),
) -> Result<Weight, Error> {
    let data = gguf.tensor_data(info);
    match &wanted.shape {
        WeightShape::Vector { len } => {
            let mut x = vec![0.0; *len];
            info.dtype().decode(data, &mut x)?;
            done(info, 0..data.len());
            Ok(Weight::Vector(x.into()))
        }
        WeightShape::Columns { n_rows, n_cols } => {
            let mut x = vec![0.0; n_rows * n_cols];
            info.dtype().decode(data, &mut x)?;
            done(info, 0..data.len());
            Ok(Weight::Vector((0..x.len()).map(|i| x[i % n_rows * n_cols + i / n_rows]).collect()))
        }
        WeightShape::Distances { n_bucket, n_head, both_ways } => {
            let mut x = vec![0.0; n_bucket * n_head];
            info.dtype().decode(data, &mut x)?;
            done(info, 0..data.len());
            Ok(Weight::Vector(distances::terms(&x, *n_bucket, *n_head, *both_ways).into()))
        }
        WeightShape::Matrix { rows, n_cols, .. } => {
            let matrix = load_rows(info, data, rows.clone(), *n_cols, pool, done)?;
            Ok(Weight::Matrices(vec![matrix]))
        }
        WeightShape::Experts { n_expert, n_rows, n_cols, .. } => {
            let rows = (0..*n_expert).map(|i| i * n_rows..(i + 1) * n_rows);
            let all = rows.map(|rows| load_rows(info, data, rows, *n_cols, pool, done));
            Ok(Weight::Matrices(all.collect::<Result<_, Error>>()?))
        }
    }
}

fn load_rows(
    info: &TensorInfo<'_>,
    data: &[u8],
    rows: Range<usize>,
    n_cols: usize,
    pool: &dyn Pool,
    done: &mut impl FnMut(&TensorInfo<'_>, Range<usize>),
) -> Result<Matrix, Error> {
    let row_bytes = info.dtype().row_bytes(n_cols).ok_or_else(|| not_weights(info))?;
    let bytes = rows.start * row_bytes..rows.end * row_bytes;
    let piece = data.get(bytes.clone()).ok_or_else(|| not_weights(info))?;
    let source = Source::new(info.dtype(), rows.len(), n_cols, piece)?;
    let n_bytes = packed_bytes(source.kind(), rows.len(), n_cols)?;
    let mut lines: Vec<Line> = bytemuck::allocation::try_zeroed_vec(n_bytes.div_ceil(size_of::<Line>()))
        .map_err(|()| Error::OutOfMemory { what: "weights", n_bytes: n_bytes as u64 })?;
    pack_in_parallel(&source, bytemuck::cast_slice_mut(&mut lines), pool)?;
    done(info, bytes);
    Ok(Matrix { kind: source.kind(), n_rows: rows.len(), n_cols, lines })
}

fn pack_in_parallel(source: &Source<'_>, out: &mut [u8], pool: &dyn Pool) -> Result<(), Error> {
    let panel_bytes = source.panel_bytes().max(1);
    let n_jobs = backstitch_core::pool::n_jobs(pool, source.n_panels(), 8);
    let mut results = vec![Ok(()); n_jobs];
    let (parts, verdicts) = (Parts::new(out, panel_bytes, n_jobs), Parts::new(&mut results, 1, n_jobs));
    pool.run(n_jobs, &|job| {
        if let (Some((start, part)), Some((_, [verdict, ..]))) = (parts.take(job), verdicts.take(job)) {
            *verdict = pack(source, start / panel_bytes, part);
        }
    })?;
    Ok(results.into_iter().collect::<Result<(), _>>()?)
}
