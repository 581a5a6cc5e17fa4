//! The elements of a tensor as floats.

use half::{bf16, f16};

use super::{Change, Node, Tensor};
use crate::checkpoint::{Checkpoint, Stored};
use crate::error::Error;
use crate::safetensors::StoredType;

impl Tensor {
    /// Compute all elements.
    ///
    /// # Errors
    /// [`Error::Read`] if the checkpoint cannot be read.
    pub(crate) fn values(&self, checkpoint: &mut Checkpoint) -> Result<Vec<f32>, Error> {
        Ok(match &*self.node {
            Node::Stored(stored) => read(checkpoint, stored, 0, self.n_elements())?,
            Node::Values(values) => values.clone(),
            Node::Reshaped(of) => of.values(checkpoint)?,
            Node::Permuted { of, order } => permuted(&of.values(checkpoint)?, of.shape(), order),
            Node::Sliced { of, axis, start, step } => {
                let (_, inner) = around(of.shape(), *axis);
                let len = self.dim(*axis);
                let values = of.values(checkpoint)?;
                let mut out = Vec::with_capacity(self.n_elements());
                for block in values.chunks_exact((of.dim(*axis) * inner).max(1)) {
                    let rows = block.chunks_exact(inner.max(1)).skip(*start).step_by(*step);
                    rows.take(len).for_each(|row| out.extend_from_slice(row));
                }
                out
            }
            Node::Joined { of, axis } => {
                let parts: Result<Vec<_>, _> = of.iter().map(|part| part.values(checkpoint)).collect();
                joined(&parts?, of, *axis)
            }
            Node::Changed { of, change } => {
                let mut values = of.values(checkpoint)?;
                change.apply(&mut values, of.dim(0));
                if self.half {
                    values.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32());
                }
                values
            }
            // Their bytes are written, never computed with.
            Node::Mxfp4 { .. } => vec![0.0; self.n_elements()],
            Node::BlockScaled { of, scales, block } => {
                let (mut values, scales) = (of.values(checkpoint)?, scales.values(checkpoint)?);
                scale_blocks(&mut values, of.dim(1), &scales, *block);
                values
            }
            Node::LowRank(factors) => factors.product(checkpoint)?,
        })
    }
}

impl Change {
    /// Change the elements of `n_rows` rows.
    fn apply(&self, values: &mut [f32], n_rows: usize) {
        match self {
            Self::Add(y) => values.iter_mut().for_each(|x| *x += y),
            Self::Multiply(y) => values.iter_mut().for_each(|x| *x *= y),
            // Rounded once: the exponential of doubles is exact enough.
            Self::NegExp => values.iter_mut().for_each(|x| *x = -(f64::from(*x).exp() as f32)),
            Self::MultiplyRows(runs) => {
                let row = values.len() / n_rows.max(1);
                let factors = runs.iter().flat_map(|&(len, factor)| std::iter::repeat_n(factor, len));
                for (row, factor) in values.chunks_exact_mut(row.max(1)).zip(factors) {
                    row.iter_mut().for_each(|x| *x *= factor);
                }
            }
        }
    }
}

/// Read `len` elements of a stored tensor, from element `start` on, as floats.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read.
pub(super) fn read(
    checkpoint: &mut Checkpoint,
    stored: &Stored,
    start: usize,
    len: usize,
) -> Result<Vec<f32>, Error> {
    read_bytes(checkpoint, stored, start, len).map(|bytes| decode(stored.ty, &bytes))
}

/// Read the bytes of `len` elements of a stored tensor, from element `start` on.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read.
pub(super) fn read_bytes(
    checkpoint: &mut Checkpoint,
    stored: &Stored,
    start: usize,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let size = stored.ty.n_bytes();
    let mut bytes = vec![0; len * size];
    checkpoint.read(stored.file, stored.start + (start * size) as u64, &mut bytes)?;
    Ok(bytes)
}

/// Convert elements to floats.
pub(super) fn decode(ty: StoredType, bytes: &[u8]) -> Vec<f32> {
    match ty {
        StoredType::F32 => each(bytes, f32::from_le_bytes),
        StoredType::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        StoredType::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        StoredType::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        StoredType::F8E4M3 => each(bytes, |[b]| e4m3(b)),
        StoredType::U8 | StoredType::Bool => each(bytes, |[b]| b.into()),
        StoredType::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
        StoredType::I32 => each(bytes, |b| i32::from_le_bytes(b) as f32),
        StoredType::I64 => each(bytes, |b| i64::from_le_bytes(b) as f32),
    }
}

fn each<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&element| convert(element)).collect()
}

/// Decode a float of 8 bits: a sign, 4 bits of exponent, 3 of mantissa, and no infinities.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match exponent {
        0 => mantissa * 2f32.powi(-9),
        15 if mantissa == 7.0 => f32::NAN,
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// Return the number of elements outside and inside of an axis.
fn around(shape: &[usize], axis: usize) -> (usize, usize) {
    let outer = shape.iter().take(axis).product();
    (outer, shape.iter().skip(axis + 1).product())
}

/// Reorder axes: axis `i` of the result is axis `order[i]` of `values`.
fn permuted(values: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    let dims: Vec<usize> = order.iter().filter_map(|&axis| shape.get(axis).copied()).collect();
    let strides: Vec<usize> = order.iter().map(|&axis| around(shape, axis).1).collect();
    let mut out = Vec::with_capacity(values.len());
    let (Some((&n_last, outer)), Some(&stride)) = (dims.split_last(), strides.last()) else {
        return values.to_vec();
    };
    let mut index = vec![0; outer.len()];
    for _ in 0..outer.iter().product::<usize>() {
        let start: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        let row = values.get(start..).unwrap_or_default();
        out.extend(row.iter().step_by(stride.max(1)).take(n_last));
        advance(&mut index, outer);
    }
    out
}

/// Move a multi-dimensional index on by one element.
fn advance(index: &mut [usize], dims: &[usize]) {
    for (i, dim) in index.iter_mut().zip(dims).rev() {
        *i += 1;
        if *i < *dim {
            return;
        }
        *i = 0;
    }
}

/// Join parts along an axis.
fn joined(parts: &[Vec<f32>], of: &[Tensor], axis: usize) -> Vec<f32> {
    let n_outer = of.first().map_or(1, |first| around(first.shape(), axis).0);
    let mut out = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    for i in 0..n_outer {
        for part in parts {
            let size = part.len() / n_outer.max(1);
            out.extend_from_slice(part.get(i * size..(i + 1) * size).unwrap_or_default());
        }
    }
    out
}

/// Multiply blocks of rows and columns, each by its factor.
fn scale_blocks(values: &mut [f32], n_columns: usize, scales: &[f32], [height, width]: [usize; 2]) {
    let per_row = n_columns.div_ceil(width).max(1);
    for (i, row) in values.chunks_exact_mut(n_columns.max(1)).enumerate() {
        let scales = scales.get(i / height * per_row..).unwrap_or_default();
        for (block, scale) in row.chunks_mut(width).zip(scales) {
            block.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::of_values("t", (0..n).map(|i| i as f32).collect()).reshape(shape).unwrap()
    }

    #[test]
    fn axes_are_reordered_cut_and_joined() {
        let t = counting(&[2, 3]);
        let values = |t: &Tensor| t.values(&mut Checkpoint::empty()).unwrap();
        assert_eq!(values(&t.transpose().unwrap()), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let cube = counting(&[2, 2, 3]).permute(&[1, 0, 2]).unwrap();
        assert_eq!(values(&cube), [0.0, 1.0, 2.0, 6.0, 7.0, 8.0, 3.0, 4.0, 5.0, 9.0, 10.0, 11.0]);
        assert_eq!(values(&t.slice(1, 1, 2).unwrap()), [1.0, 2.0, 4.0, 5.0]);
        assert_eq!(values(&t.every(1, 0, 2, 2).unwrap()), [0.0, 2.0, 3.0, 5.0]);
        let pieces = t.cut(1, &[1, 2]).unwrap();
        assert_eq!(values(&Tensor::join(1, pieces.clone()).unwrap()), values(&t));
        assert!(Tensor::join(0, pieces).is_err());
        assert!(t.slice(1, 2, 2).is_err() && t.reshape(&[7]).is_err() && t.permute(&[0, 0]).is_err());
        assert_eq!(values(&t.multiply_rows(vec![(1, 2.0), (1, 3.0)])), [0.0, 2.0, 4.0, 9.0, 12.0, 15.0]);
    }

    #[test]
    fn small_floats_are_decoded() {
        let known = [(0x38, 1.0), (0xb8, -1.0), (0x7e, 448.0), (0x01, 0.001_953_125), (0x08, 0.015_625)];
        for (byte, value) in known {
            assert_eq!(e4m3(byte), value);
        }
        assert!(e4m3(0x7f).is_nan());
    }
}
