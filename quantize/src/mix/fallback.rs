//! Types for tensors whose rows do not divide into blocks of the wanted type.

use crate::Error;
use backstitch_core::DType;
use backstitch_models::gguf::TensorInfo;

/// Return `wanted`, or where the rows of `tensor` do not divide into its blocks, a similar type of
/// smaller blocks, or at last F16.
pub(super) fn fitting(tensor: &TensorInfo<'_>, wanted: DType) -> Result<DType, Error> {
    let n_cols = tensor.shape().last().copied().unwrap_or(0);
    if n_cols.is_multiple_of(wanted.block_len()) {
        return Ok(wanted);
    }
    let similar = match wanted {
        DType::IQ1_S
        | DType::IQ1_M
        | DType::IQ2_XXS
        | DType::IQ2_XS
        | DType::IQ2_S
        | DType::IQ3_XXS
        | DType::IQ3_S
        | DType::IQ4_XS => DType::IQ4_NL,
        DType::Q2_0 | DType::Q2_K | DType::Q3_K | DType::TQ1_0 | DType::TQ2_0 => DType::Q4_0,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        dtype => return Err(Error::NoFallback { tensor: tensor.name().into(), dtype, n_cols }),
    };
    Ok(if n_cols.is_multiple_of(similar.block_len()) { similar } else { DType::F16 })
}
