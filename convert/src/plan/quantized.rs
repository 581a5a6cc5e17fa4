//! Checkpoints that are quantised already: floats of 8 bits with a scale for each block.

use std::collections::HashMap;

use serde_json::Value;

use crate::config::Config;
use crate::error::Error;
use crate::tensor::Tensor;

/// Rows and columns of a block, if the file says nothing else.
const BLOCK: [usize; 2] = [128, 128];

/// Multiply floats of 8 bits with their scales.
///
/// # Errors
/// [`Error::Key`] for a method that is not known, [`Error::MissingTensor`] for scales without
/// floats, [`Error::Tensor`] for scales that do not fit.
pub(super) fn scaled(
    config: &Config,
    sources: Vec<(String, Tensor)>,
) -> Result<Vec<(String, Tensor)>, Error> {
    let Some(quantization) = config.within("quantization_config") else { return Ok(sources) };
    const METHOD: &[&str] = &["quant_method"];
    match quantization.text(METHOD) {
        // The blocks of MXFP4 stay as they are.
        None | Some("mxfp4") => return Ok(sources),
        Some("fp8") => {}
        Some(_) => return Err(quantization.wrong(METHOD, "fp8 or mxfp4")),
    }
    let sizes = quantization.get(&["weight_block_size"]).and_then(Value::as_array);
    let size =
        |i: usize| sizes.and_then(|sizes| sizes.get(i)?.as_u64()).and_then(|n| usize::try_from(n).ok());
    let block = [size(0).unwrap_or(BLOCK[0]), size(1).unwrap_or(BLOCK[1])];
    let is_scale = |name: &str| name.ends_with("_scale_inv") || name.ends_with("activation_scale");
    let (scales, mut sources): (Vec<_>, Vec<_>) = sources.into_iter().partition(|source| is_scale(&source.0));
    let places: HashMap<String, usize> =
        sources.iter().enumerate().map(|(i, source)| (source.0.clone(), i)).collect();
    for (name, scale) in scales {
        let Some(base) = name.strip_suffix("_scale_inv") else { continue };
        let tensor = places.get(base).and_then(|&i| sources.get_mut(i)).map(|source| &mut source.1);
        let tensor = tensor.ok_or_else(|| Error::MissingTensor {
            tensor: base.into(),
            reason: format!("{name:?} scales it"),
        })?;
        *tensor = tensor.block_scaled(&scale, block)?;
    }
    Ok(sources)
}
