//! Control vectors: directions that are added to the stream of hidden states behind layers (Zou et
//! al., 2023, arXiv 2310.01405).

use super::error::AdapterError;
use super::low_rank::decoded;
use super::{content_hash, name_of};
use crate::error::Error;
use crate::gguf::Gguf;
use crate::model::Model;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use backstitch_kv::storage::Fingerprint;

/// A control vector: a direction for each of some layers.
///
/// Read for one model, immutable; clones share everything.
///
/// # Example
/// ```
/// use backstitch_models::adapter::{AdapterSet, ControlVector};
/// use backstitch_models::backstitch_core::DType;
/// use backstitch_models::gguf::Writer;
/// use backstitch_models::{Context, Model, Params, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ones: Vec<u8> = (0..model.hparams().n_embd).flat_map(|_| 1f32.to_le_bytes()).collect();
/// let mut file = Writer::new();
/// file.set("general.architecture", "controlvector")?;
/// file.tensor("direction.1", &[model.hparams().n_embd], DType::F32, &ones)?;
/// let vector = ControlVector::from_bytes(&file.to_bytes(), &model)?;
///
/// let set = AdapterSet::default().with_control(&vector, 0.5, None)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(2))?;
/// let (base, steered) = (ctx.sequence()?, ctx.sequence_with(&set)?);
/// ctx.append(base, &[Token(5)])?;
/// ctx.append(steered, &[Token(5)])?;
/// assert_ne!(ctx.logits(steered)?.to_vec(), ctx.logits(base)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ControlVector(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Box<str>,
    model: Fingerprint,
    hash: [u8; 32],
    /// The direction of each layer, if it has one.
    directions: Box<[Option<Box<[f32]>>]>,
}

impl ControlVector {
    /// Read the file at `path` for `model`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, and those of [`ControlVector::from_gguf`].
    #[cfg(feature = "std")]
    pub fn open(path: impl AsRef<std::path::Path>, model: &Model) -> Result<Self, Error> {
        super::opened(path.as_ref(), |gguf, name| Self::named(gguf, model, Some(name)))
    }

    /// Read `bytes`, the content of a file, for `model`.
    ///
    /// # Errors
    /// Those of [`Gguf::parse`] and [`ControlVector::from_gguf`].
    pub fn from_bytes(bytes: &[u8], model: &Model) -> Result<Self, Error> {
        Self::from_gguf(&Gguf::parse(bytes)?, model)
    }

    /// Read a file whose header was read already, for `model`: tensors `direction.N` for the layers
    /// from 1 on.
    ///
    /// # Errors
    /// [`Error::Adapter`] with [`AdapterError::Kind`], [`AdapterError::Name`],
    /// [`AdapterError::Layer`], [`AdapterError::Shape`], [`AdapterError::NotFinite`] or
    /// [`AdapterError::Empty`]; [`Error::OutOfMemory`].
    pub fn from_gguf(gguf: &Gguf<'_>, model: &Model) -> Result<Self, Error> {
        Self::named(gguf, model, None)
    }

    fn named(gguf: &Gguf<'_>, model: &Model, file: Option<&str>) -> Result<Self, Error> {
        let (key, wanted) = ("general.architecture", "controlvector");
        let found = gguf.optional::<&str>(key)?.unwrap_or_default();
        if found != wanted {
            return Err(AdapterError::Kind { key, found: found.into(), wanted }.into());
        }
        let n_layer = model.graph().layer_ends().iter().map(|end| end.layer + 1).max().unwrap_or(0);
        let mut directions = vec![None; n_layer];
        for info in gguf.tensors() {
            let name = info.name();
            let number = name.strip_prefix("direction.").and_then(|number| number.parse::<usize>().ok());
            let number = number.ok_or_else(|| {
                let wanted = "`direction.N` with the number of a layer";
                AdapterError::Name { tensor: name.into(), wanted }
            })?;
            let slot = directions.get_mut(number).filter(|_| number > 0);
            let slot = slot.ok_or_else(|| AdapterError::Layer { tensor: name.into(), n_layer })?;
            let wanted = [model.hparams().n_embd];
            if info.shape() != wanted {
                let (tensor, found) = (name.into(), info.shape().into());
                return Err(AdapterError::Shape { tensor, found, wanted: wanted.into() }.into());
            }
            *slot = Some(decoded(info, gguf.tensor_data(info))?.into_boxed_slice());
        }
        if directions.iter().all(Option::is_none) {
            return Err(AdapterError::Empty.into());
        }
        let (model, name) = (model.fingerprint(), name_of(gguf, file, "control vector")?);
        let directions = directions.into_boxed_slice();
        Ok(ControlVector(Arc::new(Inner { name, model, hash: content_hash(gguf, 0.0), directions })))
    }

    /// Return its name: the one in the file or, without one, the name of the file.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Return the direction of a layer, `[n_embd]`, if it has one.
    pub fn direction(&self, layer: usize) -> Option<&[f32]> {
        self.0.directions.get(layer)?.as_deref()
    }

    /// Return the bytes of its directions in memory.
    pub fn n_bytes(&self) -> usize {
        self.0.directions.iter().flatten().map(|direction| size_of_val::<[f32]>(direction)).sum()
    }

    /// Return where it lies, which tells it from others, and its bytes.
    pub(super) fn place_and_bytes(&self) -> (*const (), usize) {
        (Arc::as_ptr(&self.0).cast(), self.n_bytes())
    }

    /// Return the number of layers of the model.
    pub(super) fn n_layer(&self) -> usize {
        self.0.directions.len()
    }

    pub(super) fn hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    pub(super) fn model(&self) -> Fingerprint {
        self.0.model
    }
}
