//! Writing the data of a tensor in an element type, in pieces, all of which are finite numbers.

use std::cmp::Ordering;
use std::io::Write;

use backstitch_core::DType;

use super::compute::{decode, read, read_bytes};
use super::{Node, Tensor};
use crate::checkpoint::{Checkpoint, Stored};
use crate::error::Error;
use crate::safetensors::StoredType;

/// Elements that are converted at a time, a whole number of blocks of any type.
const PIECE: usize = 1 << 20;
/// Exponent of MXFP4's scales that stands for none.
const NO_SCALE: f32 = 255.0;

impl Tensor {
    /// Write all elements as `dtype`.
    ///
    /// # Errors
    /// [`Error::Tensor`] for an element that is infinite, no number, or too large for `dtype`,
    /// [`Error::Read`] if the checkpoint cannot be read, the errors of `out`, and [`Error::Gguf`]
    /// for a type that floats cannot be encoded to.
    pub(crate) fn write(
        &self,
        dtype: DType,
        checkpoint: &mut Checkpoint,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        match &*self.node {
            Node::Stored(stored) => self.write_stored(stored, dtype, checkpoint, out),
            Node::Reshaped(of) => of.write(dtype, checkpoint, out),
            Node::Joined { of, axis: 0 } => of.iter().try_for_each(|part| part.write(dtype, checkpoint, out)),
            Node::Mxfp4 { blocks, scales } => {
                let blocks = blocks.values(checkpoint)?;
                let exponents = scales.values(checkpoint)?;
                if let Some(at) = exponents.iter().position(|&x| x == NO_SCALE) {
                    let found = format!("{NO_SCALE} as scale {at}, which is no number");
                    return Err(scales.holding(found, "exponents up to 254"));
                }
                let bytes: Vec<u8> = blocks.iter().map(|&x| x as u8).collect();
                for (block, exponent) in bytes.as_chunks().0.iter().zip(exponents) {
                    out.write_all(&mxfp4_block(block, exponent as u8))?;
                }
                Ok(())
            }
            _ => {
                let values = self.values(checkpoint)?;
                let mut pieces = values.chunks(PIECE).enumerate();
                pieces.try_for_each(|(i, piece)| self.write_values(i * PIECE, piece, dtype, out))
            }
        }
    }

    /// Write a stored tensor without holding more than a piece of it.
    fn write_stored(
        &self,
        stored: &Stored,
        dtype: DType,
        checkpoint: &mut Checkpoint,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let same = matches!(
            (stored.ty, dtype),
            (StoredType::F32, DType::F32) | (StoredType::F16, DType::F16) | (StoredType::BF16, DType::BF16)
        );
        for start in (0..self.n_elements()).step_by(PIECE) {
            let n = PIECE.min(self.n_elements() - start);
            let bytes = read_bytes(checkpoint, stored, start, n)?;
            let values = decode(stored.ty, &bytes);
            if same {
                self.expect_finite(start, &values, dtype)?;
                out.write_all(&bytes)?;
            } else {
                self.write_values(start, &values, dtype, out)?;
            }
        }
        Ok(())
    }

    /// Encode floats from element `start` on, a whole number of blocks, and write them.
    fn write_values(
        &self,
        start: usize,
        values: &[f32],
        dtype: DType,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.expect_finite(start, values, dtype)?;
        let of_core = |error| Error::Gguf(backstitch_models::Error::from(error));
        let n_bytes = dtype.row_bytes(values.len()).unwrap_or(0);
        let mut bytes = vec![0; n_bytes];
        dtype.encode(values, &mut bytes).map_err(of_core)?;
        Ok(out.write_all(&bytes)?)
    }

    /// Check that elements from `start` on are numbers that stay finite as `dtype`.
    ///
    /// # Errors
    /// [`Error::Tensor`] with the first that does not.
    fn expect_finite(&self, start: usize, values: &[f32], dtype: DType) -> Result<(), Error> {
        let limit = limit(dtype);
        // No number is below anything.
        let is_less = |x: &f32| x.abs().partial_cmp(&limit) == Some(Ordering::Less);
        let wrong = values.iter().enumerate().find(|(_, x)| !is_less(x));
        let Some((i, x)) = wrong else { return Ok(()) };
        let wanted = match x.is_finite() {
            true => format!("less than {limit}, to become {dtype}; f32 and bf16 hold more"),
            false => "finite numbers".into(),
        };
        Err(self.holding(format!("{x} as element {}", start + i), wanted))
    }

    /// Make the error of elements that cannot be written.
    fn holding(&self, found: String, wanted: impl Into<String>) -> Error {
        Error::Tensor { tensor: self.name().into(), found, wanted: wanted.into() }
    }

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

/// Return the least number that is infinite as `dtype`, be it the element or the scale of its
/// block.
const fn limit(dtype: DType) -> f32 {
    const F16: f32 = 65520.0;
    match dtype {
        DType::F16 => F16,
        DType::BF16 => f32::from_bits(0x7f7f_8000),
        DType::Q8_0 => 127.0 * F16,
        _ => f32::INFINITY,
    }
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
    fn scales_of_blocks_are_numbers() {
        let bytes = |n: usize, last: f32| {
            let mut values = vec![1.0; n];
            values[n - 1] = last;
            Tensor::of_values("experts_scales", values)
        };
        for (last, is_right) in [(254.0, true), (255.0, false)] {
            let blocks = bytes(32, 1.0).reshape(&[1, 2, 16]).unwrap();
            let tensor = Tensor::mxfp4(&blocks, &bytes(2, last).reshape(&[1, 2]).unwrap());
            let written = tensor.unwrap().write(DType::MXFP4, &mut Checkpoint::empty(), &mut Vec::new());
            assert_eq!(written.is_ok(), is_right, "{last}");
            if let Err(error) = written {
                let wanted = "\"experts_scales\" has 255 as scale 1, which is no number, wanted exponents";
                assert!(error.to_string().contains(wanted), "{error}");
            }
        }
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
