//! The content of the new file: names, shapes and element types of its tensors, all checked before
//! any data are read.

mod quantized;

use std::collections::BTreeMap;

use backstitch_core::DType;

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::Error;
use crate::family::Family;
use crate::names::Name;
use crate::safetensors::StoredType;
use crate::tensor::Tensor;

/// The element type of the matrices of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// Blocks of 32 integers of 8 bits.
    Q8_0,
    /// The type of the checkpoint's first matrix, if that has 16 bits; else half precision.
    Auto,
}

impl OutType {
    /// Return the element type, that of the checkpoint's first matrix if it is to be guessed.
    pub(crate) fn dtype(self, checkpoint: &Checkpoint) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::Q8_0 => DType::Q8_0,
            Self::Auto => {
                let mut types = checkpoint.tensors.iter().filter(|tensor| tensor.1.len() > 1).map(|t| t.2.ty);
                match types.find(|ty| matches!(ty, StoredType::BF16 | StoredType::F16)) {
                    Some(StoredType::BF16) => DType::BF16,
                    _ => DType::F16,
                }
            }
        }
    }
}

/// The tensors of a checkpoint by the parts of their names.
#[derive(Debug, Default)]
pub(crate) struct Tensors(pub BTreeMap<Name, Tensor>);

impl Tensors {
    /// Take a tensor out.
    pub fn take(&mut self, layer: Option<usize>, path: &str, ending: &'static str) -> Option<Tensor> {
        self.0.remove(&Name { layer, path: path.into(), ending })
    }

    /// Put a tensor in.
    pub fn put(&mut self, layer: Option<usize>, path: &str, ending: &'static str, tensor: Tensor) {
        self.0.insert(Name { layer, path: path.into(), ending }, tensor);
    }

    /// Return the layers that have a tensor of this path.
    pub fn layers_with(&self, path: &str) -> Vec<Option<usize>> {
        self.0.keys().filter(|name| name.path == path).map(|name| name.layer).collect()
    }

    /// In each layer that has them, stack the tensors of some paths under another path.
    ///
    /// # Errors
    /// [`Error::MissingTensor`] if a layer has only some of them, [`Error::Tensor`] if their shapes
    /// differ.
    pub fn stack(&mut self, paths: &[String], ending: &'static str, stacked: &str) -> Result<(), Error> {
        let Some(first) = paths.first() else { return Ok(()) };
        for layer in self.layers_with(first) {
            let parts: Result<Vec<_>, _> = paths
                .iter()
                .map(|path| self.take(layer, path, ending).ok_or_else(|| missing(layer, path, first)))
                .collect();
            self.put(layer, stacked, ".weight", Tensor::stack(&parts?)?);
        }
        Ok(())
    }

    /// Stack the experts of each layer.
    fn stack_experts(&mut self) -> Result<(), Error> {
        let mut experts: BTreeMap<Name, BTreeMap<usize, Tensor>> = BTreeMap::new();
        for (name, tensor) in std::mem::take(&mut self.0) {
            match name.expert() {
                Some((number, whole)) => {
                    experts.entry(whole).or_default().insert(number, tensor);
                }
                None => {
                    self.0.insert(name, tensor);
                }
            }
        }
        for (name, parts) in experts {
            let n = parts.len();
            if let Some(hole) = (0..n).find(|number| !parts.contains_key(number)) {
                let reason = format!("{n} experts have one each, but not expert {hole}");
                return Err(Error::MissingTensor { tensor: shown(name.layer, &name.path), reason });
            }
            let parts: Vec<Tensor> = parts.into_values().collect();
            self.0.insert(name, Tensor::stack(&parts)?);
        }
        Ok(())
    }
}

fn missing(layer: Option<usize>, path: &str, first: &str) -> Error {
    Error::MissingTensor { tensor: shown(layer, path), reason: format!("it belongs to {first:?}") }
}

/// Return a name for errors.
fn shown(layer: Option<usize>, path: &str) -> String {
    layer.map_or(path.into(), |layer| format!("{path} of layer {layer}"))
}

/// A tensor of the new file.
#[derive(Debug)]
pub(crate) struct Output {
    /// Name in the new file.
    pub name: String,
    /// Shape and computation of the data.
    pub tensor: Tensor,
    /// Element type.
    pub dtype: DType,
}

/// Collect the tensors of the checkpoint that belong to the text model, with experts stacked and
/// what the family merges.
///
/// # Errors
/// [`Error::UnknownTensor`] for a name that no text model has, [`Error::Tensor`] for two tensors of
/// one meaning, and the errors of merging.
pub(crate) fn collect(
    family: &Family,
    config: &Config,
    sources: Vec<(String, Tensor)>,
) -> Result<Tensors, Error> {
    let mut tensors = Tensors::default();
    for (name, tensor) in sources {
        let Some(new) = text_model(&name).and_then(|name| (family.rename)(config, name)) else { continue };
        let unknown = || Error::UnknownTensor { tensor: name.clone(), architecture: family.architecture };
        let parts = Name::parse(&new).ok_or_else(unknown)?;
        if let Some(other) = tensors.0.insert(parts, tensor) {
            let (found, wanted) = (format!("the same meaning as {:?}", other.name()), "one of them".into());
            return Err(Error::Tensor { tensor: name, found, wanted });
        }
    }
    tensors.stack_experts()?;
    (family.merge)(config, &mut tensors)?;
    Ok(tensors)
}

/// Plan the tensors of the new file.
///
/// # Errors
/// The errors of [`collect`] and of the family's edits, and [`Error::Tensor`] for a tensor without
/// elements or with more than 4 dimensions.
pub(crate) fn plan(
    family: &Family,
    config: &Config,
    checkpoint: &mut Checkpoint,
    out_type: OutType,
) -> Result<(Vec<Output>, DType), Error> {
    let dtype = out_type.dtype(checkpoint);
    let stored = checkpoint.tensors.clone();
    let sources = stored.into_iter().map(|(name, shape, stored)| {
        let tensor = Tensor::stored(&name, shape, stored);
        (name, tensor)
    });
    let sources = quantized::scaled(config, sources.collect())?;
    let mut outputs = Vec::new();
    for (name, tensor) in (family.extra)(config)? {
        outputs.push(output(Name::whole(None, name, ".weight"), tensor, dtype)?);
    }
    for (name, tensor) in convert_all(family, config, sources)? {
        outputs.push(output(name, tensor, dtype)?);
    }
    if family.drops_tied_output {
        drop_tied_output(&mut outputs, checkpoint)?;
    }
    Ok((outputs, dtype))
}

/// Give tensors the names, shapes and order of elements that they have in the new file.
///
/// # Errors
/// The errors of [`collect`] and of the family's edits, and [`Error::Tensor`] for a tensor of a
/// layer that the model does not have.
pub(crate) fn convert_all(
    family: &Family,
    config: &Config,
    sources: Vec<(String, Tensor)>,
) -> Result<Vec<(String, Tensor)>, Error> {
    let n_layers = config.n_layers()?;
    let mut converted = Vec::new();
    for (name, tensor) in collect(family, config, sources)?.0 {
        if name.layer.is_some_and(|layer| layer >= n_layers) {
            let wanted = format!("a layer below {n_layers}, as config.json says");
            let found = shown(name.layer, "a part");
            return Err(Error::Tensor { tensor: tensor.name().into(), found, wanted });
        }
        converted.extend(family.convert(config, &name, tensor)?);
    }
    Ok(converted)
}

/// Check a tensor of the new file and choose its element type.
pub(crate) fn output(name: String, tensor: Tensor, dtype: DType) -> Result<Output, Error> {
    // A number alone is a vector of one element.
    let tensor = if tensor.shape().is_empty() { tensor.squeeze() } else { tensor };
    if tensor.shape().len() > 4 || tensor.n_elements() == 0 {
        return Err(tensor.misfit("1 to 4 dimensions, none of them 0"));
    }
    let dtype = if tensor.is_mxfp4() { DType::MXFP4 } else { element_type(&name, tensor.shape(), dtype) };
    Ok(Output { name, tensor, dtype })
}

/// Matrices that stay in single precision, because they are small and decide much.
const SINGLE_PRECISION: &[&str] = &[
    "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "position_embd.weight",
    "token_types.weight",
    "ssm_conv1d.weight",
    "shortconv.conv.weight",
    "time_mix_first.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "ssm_conv1d_q.weight",
    "ssm_conv1d_k.weight",
    "ssm_conv1d_v.weight",
];

/// Choose the element type of a tensor, as llama.cpp's converter does.
fn element_type(name: &str, shape: &[usize], dtype: DType) -> DType {
    let own = match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        Some((_, own)) => own,
        None => name,
    };
    let stays = name.ends_with("_norm.weight") || SINGLE_PRECISION.contains(&own);
    if shape.len() < 2 || stays || !name.ends_with(".weight") {
        return DType::F32;
    }
    row_type(shape, dtype)
}

/// Return the element type of a matrix, half precision if its rows are no whole number of blocks.
pub(crate) fn row_type(shape: &[usize], dtype: DType) -> DType {
    let row = shape.last().copied().unwrap_or(1);
    if row.is_multiple_of(dtype.block_len()) { dtype } else { DType::F16 }
}

/// Leave the output matrix out if it equals the embedding.
fn drop_tied_output(outputs: &mut Vec<Output>, checkpoint: &mut Checkpoint) -> Result<(), Error> {
    let find = |name: &str| outputs.iter().find(|output| output.name == name);
    let (Some(output), Some(embedding)) = (find("output.weight"), find("token_embd.weight")) else {
        return Ok(());
    };
    if output.tensor.equals(&embedding.tensor, checkpoint)? {
        outputs.retain(|output| output.name != "output.weight");
    }
    Ok(())
}

/// Return the name of a tensor inside of the text model; `None` if it belongs to something else.
fn text_model(name: &str) -> Option<String> {
    const OTHER_BEGINNINGS: &[&str] = &[
        "mlp",
        "vit.",
        "vpm.",
        "siglip2.",
        "conformer.",
        "merger.",
        "resampler.",
        "sound_encoder.",
        "sound_projection.",
        "speech_embeddings.",
    ];
    const OTHER_PARTS: &[&str] = &[
        "visual.",
        "vision.",
        "audio.",
        "talker.",
        "vision_",
        "audio_",
        "token2wav.",
        "code2wav.",
        "projector.",
        "pre_mm_projector_norm",
        "image_newline",
        "view_seperator",
        "patch_embed",
        "patch_merger.",
        "patch_merge_mlp.",
        "model.connector.",
    ];
    // Buffers that can be computed.
    const COMPUTED: &[&str] = &[".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"];
    let other = OTHER_BEGINNINGS.iter().any(|start| name.starts_with(start))
        || OTHER_PARTS.iter().any(|part| name.contains(part))
        || COMPUTED.iter().any(|end| name.ends_with(end));
    if other {
        return None;
    }
    Some(name.replace("e_score_correction_bias", "e_score_correction.bias").replace("language_model.", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_follow_the_names() {
        let of = |name: &str, shape: &[usize]| element_type(name, shape, DType::Q8_0);
        assert_eq!(of("blk.3.attn_q.weight", &[8, 64]), DType::Q8_0);
        assert_eq!(of("blk.3.attn_q.weight", &[8, 48]), DType::F16);
        assert_eq!(of("blk.3.attn_q.bias", &[8, 64]), DType::F32);
        assert_eq!(of("blk.3.ffn_gate_inp.weight", &[8, 64]), DType::F32);
        assert_eq!(of("blk.3.attn_q_norm.weight", &[8, 64]), DType::F32);
    }

    #[test]
    fn experts_with_holes_are_refused() {
        let mut tensors = Tensors::default();
        for expert in [0, 2] {
            let t = Tensor::of_values("t", vec![0.0]);
            tensors.put(Some(1), &format!("mlp.experts.{expert}.up_proj"), ".weight", t);
        }
        let error = tensors.stack_experts().unwrap_err().to_string();
        assert!(error.contains("mlp.experts.up_proj of layer 1\" is missing"), "{error}");
        assert!(error.contains("not expert 1"), "{error}");
    }
}
