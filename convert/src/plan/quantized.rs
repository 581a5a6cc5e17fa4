//! Checkpoints that are quantised already: floats of 8 bits with a scale for each block, or with
//! one for the whole tensor.

use std::collections::HashMap;

use serde_json::Value;

use crate::config::Config;
use crate::error::Error;
use crate::tensor::Tensor;

/// Rows and columns of a block, if the file says nothing else and the scales are of blocks.
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
    let block = sizes.map(|sizes| {
        let size = |i: usize| sizes.get(i).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        [size(0).unwrap_or(BLOCK[0]), size(1).unwrap_or(BLOCK[1])]
    });
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
        *tensor = match block {
            Some(block) => tensor.block_scaled(&scale, block)?,
            None => tensor
                .outer_scaled(&scale)
                .or_else(|error| tensor.block_scaled(&scale, BLOCK).map_err(|_| error))?,
        };
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use std::path::Path;

    /// Scale a matrix of 1 to 6 with scales of a shape.
    fn scaled_by(scales: Vec<f32>, shape: &[usize], block: &str) -> Result<Vec<f32>, Error> {
        let text =
            format!(r#"{{"quantization_config": {{"quant_method": "fp8", "weight_block_size": {block}}}}}"#);
        let config = Config::parse(Path::new("config.json"), text.as_bytes())?;
        let scales = Tensor::of_values("s", scales).reshape(shape)?;
        let weights = Tensor::of_values("w", vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).reshape(&[2, 3])?;
        let scale_of_inputs = Tensor::of_values("a", vec![1.0]);
        let sources = vec![
            ("a.weight".to_owned(), weights),
            ("a.weight_scale_inv".into(), scales),
            ("a.activation_scale".into(), scale_of_inputs),
        ];
        let sources = scaled(&config, sources)?;
        assert_eq!(sources.len(), 1);
        sources[0].1.values(&mut Checkpoint::empty())
    }

    #[test]
    fn scales_belong_to_tensors_rows_or_blocks() {
        let halved = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
        for shape in [&[][..], &[1], &[1, 1]] {
            assert_eq!(scaled_by(vec![0.5], shape, "null").unwrap(), halved, "{shape:?}");
        }
        for shape in [&[2][..], &[2, 1]] {
            let by_rows = scaled_by(vec![0.5, 2.0], shape, "null").unwrap();
            assert_eq!(by_rows, [0.5, 1.0, 1.5, 8.0, 10.0, 12.0], "{shape:?}");
        }
        let by_blocks = scaled_by(vec![0.5, 2.0], &[1, 2], "[2, 2]").unwrap();
        assert_eq!(by_blocks, [0.5, 1.0, 6.0, 2.0, 2.5, 12.0]);
        assert_eq!(scaled_by(vec![0.5], &[1, 1], "[128, 128]").unwrap(), halved);
        for (n, shape) in [(3, &[3][..]), (2, &[1, 2]), (0, &[0]), (12, &[2, 3, 2])] {
            let error = scaled_by(vec![1.0; n], shape, "null").unwrap_err().to_string();
            assert!(error.contains("wanted one scale, or one for each row of [2, 3]"), "{error}");
        }
    }
}
