//! Adapters: small changes of a model that sequences choose while it runs.
//!
//! A LoRA adapter (Hu et al., 2021, arXiv 2106.09685) changes matrices by products of two thin
//! ones; a [`ControlVector`] adds a direction to the hidden states behind layers. An [`AdapterSet`]
//! is a list of both with a scale each. Every sequence has a set of its own, the empty one unless
//! it was made by [`Context::sequence_with`](crate::Context::sequence_with); sequences with
//! different sets share batches, and each gets the bits that it gets alone.
//!
//! Evaluated tokens belong to their set: saved states and prompt-cache entries bear its
//! [identity](AdapterSet::id), forks inherit it, and no state crosses from one set to another.
//!
//! `read` checks files against the graph of the model, `low_rank` keeps the matrices, `set` says
//! what makes two sets the same; `runner::adapt` computes.

mod control;
mod error;
mod low_rank;
mod read;
mod set;

pub use control::ControlVector;
pub use error::AdapterError;
pub(crate) use low_rank::LowRank;
pub use set::AdapterSet;

use crate::error::Error;
use crate::gguf::{Gguf, TensorInfo};
use crate::graph::WeightId;
use crate::model::Model;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::storage::Fingerprint;
use read::Matrices;

/// The domain of the hashes of adapters' contents.
const CONTENT: &str = "Backstitch content of an adapter, version 1";

/// The longest name of an adapter that is kept, in bytes.
const MAX_NAME: usize = 64;

/// A LoRA adapter.
///
/// Read for one model, immutable; clones share everything.
///
/// # Example
/// ```no_run
/// use backstitch_models::adapter::{Adapter, AdapterSet};
/// use backstitch_models::{Context, Model, Params, Token};
///
/// let model = Model::open("llama.gguf")?;
/// let medicine = Adapter::open("medicine.gguf", &model)?;
/// let law = Adapter::open("law.gguf", &model)?;
/// let both = AdapterSet::default().with(&medicine, 1.0)?.with(&law, 0.5)?;
///
/// let mut ctx = Context::new(&model, Params::default().n_seq_max(2))?;
/// let (base, adapted) = (ctx.sequence()?, ctx.sequence_with(&both)?);
/// ctx.append(base, &[Token(5)])?;
/// ctx.append(adapted, &[Token(5)])?;
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adapter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Box<str>,
    model: Fingerprint,
    hash: [u8; 32],
    alpha: f32,
    matrices: Vec<Option<LowRank>>,
    /// The largest rank.
    rank: usize,
    n_bytes: usize,
    left_out: Vec<String>,
}

impl Adapter {
    /// Read the file at `path` for `model`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, and those of [`Adapter::from_gguf`].
    #[cfg(feature = "std")]
    pub fn open(path: impl AsRef<std::path::Path>, model: &Model) -> Result<Self, Error> {
        opened(path.as_ref(), |gguf, name| Self::named(gguf, model, Some(name)))
    }

    /// Read `bytes`, the content of a file, for `model`.
    ///
    /// # Errors
    /// Those of [`Gguf::parse`] and [`Adapter::from_gguf`].
    pub fn from_bytes(bytes: &[u8], model: &Model) -> Result<Self, Error> {
        Self::from_gguf(&Gguf::parse(bytes)?, model)
    }

    /// Read a file whose header was read already, for `model`: pairs of tensors `NAME.lora_a`,
    /// `[rank, n_in]`, and `NAME.lora_b`, `[n_out, rank]`, for tensors `NAME` of the model. Of a
    /// stack of matrices each has a pair; for a table of embeddings the former is `[n_vocab, rank]`
    /// and the latter `[n_embd, rank]`.
    ///
    /// # Errors
    /// [`Error::Adapter`] with the key or tensor that is not as this model needs it, before memory
    /// is taken for any; [`AdapterError::NotFinite`] in it for numbers that are none;
    /// [`Error::OutOfMemory`].
    pub fn from_gguf(gguf: &Gguf<'_>, model: &Model) -> Result<Self, Error> {
        Self::named(gguf, model, None)
    }

    fn named(gguf: &Gguf<'_>, model: &Model, file: Option<&str>) -> Result<Self, Error> {
        read::check_kind(gguf, &model.hparams().architecture)?;
        let alpha = read::alpha(gguf)?;
        let name = name_of(gguf, file, "adapter")?;
        let Matrices { by_weight, n_bytes, left_out } = read::read(gguf, model.graph(), alpha)?;
        let rank = by_weight.iter().flatten().map(LowRank::rank).max().unwrap_or(0);
        let (model, hash) = (model.fingerprint(), content_hash(gguf, alpha));
        let matrices = by_weight;
        Ok(Adapter(Arc::new(Inner { name, model, hash, alpha, matrices, rank, n_bytes, left_out })))
    }

    /// Return its name: the one in the file or, without one, the name of the file.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Return alpha: changes are multiplied by the scale, alpha and one over their rank; by the
    /// scale alone where this is 0.
    pub fn alpha(&self) -> f32 {
        self.0.alpha
    }

    /// Return the largest rank of its matrices.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// Return the bytes of its matrices in memory.
    pub fn n_bytes(&self) -> usize {
        self.0.n_bytes
    }

    /// Return the names of tensors in its file that are not used: norms, and changes of tables of
    /// which all tokens get the same row or positions get rows. llama.cpp leaves them out as well.
    pub fn left_out(&self) -> &[String] {
        &self.0.left_out
    }

    /// Return the change of a weight, if there is one.
    pub(crate) fn change(&self, id: WeightId) -> Option<&LowRank> {
        self.0.matrices.get(id.0 as usize)?.as_ref()
    }
}

/// Read the file at `path`, and put its path in front of errors.
#[cfg(feature = "std")]
fn opened<T>(
    path: &std::path::Path,
    read: impl FnOnce(&Gguf<'_>, &str) -> Result<T, Error>,
) -> Result<T, Error> {
    let source = crate::gguf::Source::open(path, crate::gguf::Access::Map)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let result = source.gguf().and_then(|gguf| read(&gguf, &name));
    result.map_err(|error| match error {
        Error::Io(_) | Error::File { .. } => error,
        error => Error::File { path: path.into(), source: Box::new(error) },
    })
}

/// Return the name of an adapter, cut to [`MAX_NAME`] bytes.
fn name_of(gguf: &Gguf<'_>, file: Option<&str>, kind: &str) -> Result<Box<str>, Error> {
    let name = gguf.optional::<&str>("general.name")?.or(file).filter(|name| !name.is_empty());
    let name = name.unwrap_or(kind);
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|&end| name.is_char_boundary(end));
    Ok(name[..end.unwrap_or(0)].into())
}

/// Return the hash of all that an adapter computes with: alpha, and the names, types, shapes and
/// bytes of its tensors, in any order in the file.
fn content_hash(gguf: &Gguf<'_>, alpha: f32) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTENT);
    hasher.update(&alpha.to_bits().to_le_bytes());
    let mut tensors: Vec<&TensorInfo<'_>> = gguf.tensors().iter().collect();
    tensors.sort_unstable_by_key(|info| info.name());
    for info in tensors {
        hasher.update(&(info.name().len() as u64).to_le_bytes()).update(info.name().as_bytes());
        hasher.update(&info.type_id().to_le_bytes());
        hasher.update(&(info.shape().len() as u64).to_le_bytes());
        for &dim in info.shape() {
            hasher.update(&(dim as u64).to_le_bytes());
        }
        hasher.update(gguf.tensor_data(info));
    }
    *hasher.finalize().as_bytes()
}
