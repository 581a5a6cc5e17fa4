//! Cases about one quantisation format.
//!
//! Such a file has three kinds of numbers:
//!
//! - `dequantised`: the logits of the model with its weights converted to floats.
//! - `native`: the logits of llama.cpp's own arithmetic, which rounds the activations to 8 bits
//!   first.
//! - `dequant:TENSOR:rows0-N`: the first rows of some tensors as floats, which have to agree bit
//!   for bit.
//!
//! Both sets of logits are compared with `dequantised`. Where this engine multiplies floats, its
//! logits have to be within the tolerance. Where it rounds activations too, they must not be
//! farther (root mean square) than llama.cpp's. `native` is one of many ways to round, so being
//! near it is not a goal.

use super::compare::Distance;
use super::expected::Expected;
use super::golden::{Array, Golden};
use super::report::{Failure, Row, Verdict};
use crate::gguf::{Access, Gguf, Source};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use backstitch_core::{DType, PackedType};
use std::path::Path;

/// Return true if this engine computes products with weights of this format from activations of 8
/// bits.
fn rounds_activations(format: &str) -> bool {
    DType::from_name(format).and_then(PackedType::of).is_some_and(PackedType::takes_quantized)
}

/// The allowed ratio of two distances. Rounding errors of the same size still differ from case to
/// case by a few per cent.
const CHANCE: f64 = 1.05;

/// The distances of this engine and of llama.cpp from the dequantised logits.
#[derive(Debug, Default)]
pub(super) struct Distances {
    ours: Distance,
    native: Distance,
}

impl Distances {
    /// Add row `row` of our logits.
    pub(super) fn add(
        &mut self,
        golden: &Golden,
        expected: &Expected,
        row: usize,
        ours: &[f32],
    ) -> Result<(), Failure> {
        if let (Some(native), Some(exact)) = (golden.array("native"), golden.array("dequantised")) {
            let exact = expected.row(exact, row)?;
            self.ours.add(ours, exact);
            self.native.add(expected.row(native, row)?, exact);
        }
        Ok(())
    }
}

/// Return the verdict on the logits of a file about one format; `None` for other files.
pub(super) fn judge(golden: &Golden, distances: &Distances, tolerance: f32) -> Option<(Verdict, String)> {
    let format = golden.quant_type.as_deref()?;
    let (ours, native) = (distances.ours.rms(), distances.native.rms());
    let rounded = rounds_activations(format) && ours <= CHANCE * native;
    let passed = rounded || distances.ours.max <= tolerance;
    let verdict = if passed { Verdict::Passed } else { Verdict::Failed };
    Some((verdict, format!("rms to dequantised {ours:.1e}, llama.cpp's {native:.1e}")))
}

/// Decode the tensors of which the file has floats, and report a row for each.
pub(super) fn tensors(
    model: &Path,
    golden: &Golden,
    expected: &Expected,
    report: &mut dyn FnMut(Row),
) -> Result<(), Failure> {
    let arrays = || golden.arrays.iter().filter_map(|array| Some((array, tensor_name(&array.name)?)));
    if arrays().next().is_none() {
        return Ok(());
    }
    let source = Source::open(model, Access::Map)?;
    let gguf = source.gguf()?;
    for (array, tensor) in arrays() {
        report(match differing(&gguf, tensor, array, expected)? {
            0 => Row::new(&array.name, Verdict::Passed, "every bit"),
            n => Row::new(&array.name, Verdict::Failed, format!("{n} numbers differ")),
        });
    }
    Ok(())
}

/// Return the tensor that an array has the floats of.
fn tensor_name(array: &str) -> Option<&str> {
    let (tensor, rows) = array.strip_prefix("dequant:")?.rsplit_once(':')?;
    rows.starts_with("rows0-").then_some(tensor)
}

/// Return the number of floats of the first rows of a tensor that differ from the expected bits.
fn differing(gguf: &Gguf<'_>, name: &str, array: &Array, expected: &Expected) -> Result<usize, Failure> {
    let missing = || Failure(format!("tensor {name} or some of its rows are missing"));
    let tensor = gguf.tensor(name).ok_or_else(missing)?;
    let row_bytes = tensor.dtype().row_bytes(array.cols).ok_or_else(missing)?;
    let data = gguf.tensor_data(&tensor);
    let mut n = 0;
    for row in 0..array.rows {
        let bytes = || data.get(row.checked_mul(row_bytes)?..)?.get(..row_bytes);
        let mut ours = vec![0.0; array.cols];
        tensor.dtype().decode(bytes().ok_or_else(missing)?, &mut ours)?;
        n += ours.iter().zip(expected.row(array, row)?).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_weights_name_their_tensor() {
        assert_eq!(tensor_name("dequant:blk.0.ffn_down.weight:rows0-3"), Some("blk.0.ffn_down.weight"));
        assert_eq!(tensor_name("dequantised"), None);
        assert_eq!(tensor_name("dequant:a:b"), None);
    }

    #[test]
    fn only_formats_with_rounded_activations_may_be_off() {
        let mut distances = Distances::default();
        distances.ours.add(&[0.5], &[1.0]);
        distances.native.add(&[0.25], &[1.0]);
        let golden = |name: &str| Golden { quant_type: Some(name.into()), ..Golden::default() };
        let verdict = |name: &str, distances: &Distances| {
            judge(&golden(name), distances, 0.1).map(|(verdict, _)| verdict)
        };
        assert_eq!(verdict("F16", &distances), Some(Verdict::Failed));
        assert_eq!(verdict("Q4_0", &distances), Some(Verdict::Passed));
        assert_eq!(judge(&Golden::default(), &distances, 0.1), None);
        distances.ours.add(&[0.0], &[9.0]);
        assert_eq!(verdict("Q4_0", &distances), Some(Verdict::Failed));
    }
}
