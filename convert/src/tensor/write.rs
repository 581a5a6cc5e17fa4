//! Writing the data of a tensor in an element type, in pieces.

use std::io::Write;

use backstitch_core::DType;

use super::compute::read;
use super::{Node, Tensor};
use crate::checkpoint::{Checkpoint, Stored};
use crate::error::Error;
use crate::safetensors::StoredType;

/// Elements that are converted at a time, a whole number of blocks of any type.
const PIECE: usize = 1 << 20;

impl Tensor {
    /// Write all elements as `dtype`.
    ///
    /// # Errors
    /// [`Error::Read`] if the checkpoint cannot be read, the errors of `out`, and [`Error::Gguf`]
    /// for a type that floats cannot be encoded to.
    pub(crate) fn write(
        &self,
        dtype: DType,
        checkpoint: &mut Checkpoint,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        match &*self.node {
            Node::Stored(stored) => write_stored(stored, self.n_elements(), dtype, checkpoint, out),
            Node::Reshaped(of) => of.write(dtype, checkpoint, out),
            Node::Joined { of, axis: 0 } => of.iter().try_for_each(|part| part.write(dtype, checkpoint, out)),
            Node::Mxfp4 { blocks, scales } => {
                let blocks = blocks.values(checkpoint)?;
                let scales = scales.values(checkpoint)?;
                let bytes: Vec<u8> = blocks.iter().map(|&x| x as u8).collect();
                for (block, scale) in bytes.as_chunks().0.iter().zip(scales) {
                    out.write_all(&mxfp4_block(block, scale as u8))?;
                }
                Ok(())
            }
            _ => {
                let values = self.values(checkpoint)?;
                values.chunks(PIECE).try_for_each(|piece| write_values(piece, dtype, out))
            }
        }
    }
}

impl Tensor {
    /// Return true if two stored tensors have the same elements.
    ///
    /// # Errors
    /// [`Error::Read`] if the checkpoint cannot be read.
    pub(crate) fn equals(&self, other: &Self, checkpoint: &mut Checkpoint) -> Result<bool, Error> {
        let (Node::Stored(a), Node::Stored(b)) = (&*self.node, &*other.node) else { return Ok(false) };
        if self.shape != other.shape {
            return Ok(false);
        }
        for start in (0..self.n_elements()).step_by(PIECE) {
            let n = PIECE.min(self.n_elements() - start);
            if read(checkpoint, a, start, n)? != read(checkpoint, b, start, n)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Write a stored tensor of `len` elements without holding more than a piece of it.
fn write_stored(
    stored: &Stored,
    len: usize,
    dtype: DType,
    checkpoint: &mut Checkpoint,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let same = matches!(
        (stored.ty, dtype),
        (StoredType::F32, DType::F32) | (StoredType::F16, DType::F16) | (StoredType::BF16, DType::BF16)
    );
    let size = stored.ty.n_bytes();
    for start in (0..len).step_by(PIECE) {
        let n = PIECE.min(len - start);
        if same {
            let mut bytes = vec![0; n * size];
            checkpoint.read(stored.file, stored.start + (start * size) as u64, &mut bytes)?;
            out.write_all(&bytes)?;
        } else {
            write_values(&read(checkpoint, stored, start, n)?, dtype, out)?;
        }
    }
    Ok(())
}

/// Encode floats, a whole number of blocks, and write them.
fn write_values(values: &[f32], dtype: DType, out: &mut dyn Write) -> Result<(), Error> {
    let of_core = |error| Error::Gguf(backstitch_models::Error::from(error));
    let n_bytes = dtype.row_bytes(values.len()).unwrap_or(0);
    let mut bytes = vec![0; n_bytes];
    dtype.encode(values, &mut bytes).map_err(of_core)?;
    Ok(out.write_all(&bytes)?)
}

/// Reorder a block of 32 elements from pairs of neighbours (low half first) to the order of GGUF:
/// byte `i` holds elements `i` and `i + 16`.
fn mxfp4_block(block: &[u8; 16], scale: u8) -> [u8; 17] {
    let element = |i: usize| {
        let byte = block.get(i / 2).copied().unwrap_or(0);
        if i.is_multiple_of(2) { byte & 15 } else { byte >> 4 }
    };
    std::array::from_fn(|i| match i.checked_sub(1) {
        None => scale,
        Some(i) => element(i) | element(i + 16) << 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_a_block_are_reordered() {
        // Element i has the value i % 16.
        let block = std::array::from_fn(|i| (2 * i % 16) as u8 | (((2 * i + 1) % 16) << 4) as u8);
        let reordered = mxfp4_block(&block, 7);
        assert_eq!(reordered[0], 7);
        assert_eq!(reordered[1..], std::array::from_fn::<u8, 16, _>(|i| (i | i << 4) as u8));
    }

    #[test]
    fn tensors_are_written_part_by_part() {
        let mut checkpoint = Checkpoint::empty();
        let part = |x: f32| Tensor::of_values("t", vec![x; 4]);
        let stack = Tensor::stack(&[part(1.0), part(2.0)]).unwrap();
        assert_eq!(stack.shape(), [2, 4]);
        let mut out = Vec::new();
        stack.write(DType::F16, &mut checkpoint, &mut out).unwrap();
        assert_eq!(out, [[0, 0x3c]; 4].into_iter().chain([[0, 0x40]; 4]).flatten().collect::<Vec<_>>());
    }
}
