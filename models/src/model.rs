//! A model: weights, vocabulary and graph, immutable and shared.

use crate::{
    arch::{self, Arch},
    cancel::Stoppable,
    error::Error,
    fingerprint::fingerprint,
    gguf::{Gguf, TensorInfo, read_stream},
    graph::{Builder, Graph},
    hparams::Hparams,
    vocab::Vocab,
    weights::Weights,
};
use alloc::{string::String, sync::Arc};
use backstitch_core::pool::Pool;
use backstitch_kv::io::Read;
use backstitch_kv::state::Fingerprint;
use core::ops::Range;

/// A model in memory. Clones share everything; any number of contexts can use it at once.
///
/// # Example
/// ```
/// use backstitch_models::{Context, Model, Params};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default())?;
/// assert_eq!(ctx.model().hparams().architecture, "falcon-h1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hparams: Hparams,
    graph: Graph,
    weights: Weights,
    vocab: Vocab,
    fingerprint: Fingerprint,
    name: Option<String>,
    chat_template: Option<String>,
}

impl Inner {
    /// Loads all of a model; [`Weights::load`] says what `keep` promises.
    fn load(
        gguf: &Gguf<'_>,
        archs: &[&Arch],
        work: &Stoppable<'_>,
        keep: bool,
        done: impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Self, Error> {
        let (hparams, graph) = Model::describe(gguf, archs)?;
        let vocab = Vocab::from_gguf(gguf)?;
        // Before the weights: pages of the file are given back as these are read.
        let fingerprint = fingerprint(gguf);
        let weights = Weights::load(gguf, &graph, work, keep, done)?;
        let text = |key| gguf.optional::<&str>(key).map(|text| text.map(String::from));
        let (name, chat_template) = (text("general.name")?, text("tokenizer.chat_template")?);
        Ok(Inner { hparams, graph, weights, vocab, fingerprint, name, chat_template })
    }
}

/// How to load a model.
#[cfg(feature = "std")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadParams {
    /// How to get at the bytes of the file.
    pub access: crate::gguf::Access,
    /// Threads that pack weights, 1 to 512.
    pub n_threads: usize,
    /// A request to stop, looked at between pieces of weights.
    pub cancel: Option<crate::Cancel>,
}

#[cfg(feature = "std")]
crate::setters::setters!(LoadParams {
    access: crate::gguf::Access,
    n_threads: usize,
    cancel: Option<crate::Cancel>,
});

#[cfg(feature = "std")]
impl Default for LoadParams {
    /// Maps the file; as many threads as the process may use.
    fn default() -> Self {
        LoadParams {
            access: crate::gguf::Access::Map,
            n_threads: crate::context::all_threads() as usize,
            cancel: None,
        }
    }
}

impl Model {
    /// Loads the model in the file at `path`, which may be one part of a split model.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or describes a model this crate does not know.
    #[cfg(feature = "std")]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        Self::open_with(path, LoadParams::default(), |_, _| {})
    }

    /// As [`Model::open`], with parameters; `progress` hears how many bytes of how many are done.
    ///
    /// # Errors
    /// As [`Model::open`], and [`Error::Cancelled`] if `params` ask to stop.
    #[cfg(feature = "std")]
    pub fn open_with(
        path: impl AsRef<std::path::Path>,
        params: LoadParams,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, Error> {
        let pool = backstitch_core::pool::ThreadPool::new(params.n_threads)?;
        let source = crate::gguf::Source::open(path, params.access)?;
        let gguf = source.gguf()?;
        let total = gguf.tensors().iter().map(|t| t.n_bytes() as u64).sum();
        let is_packed = gguf.tensors().iter().any(TensorInfo::is_packed);
        let mut read = 0;
        let work = Stoppable::new(&pool, params.cancel.as_ref());
        let mut inner = Inner::load(&gguf, arch::ALL, &work, true, |tensor, range| {
            read += range.len() as u64;
            let start = tensor.range().start;
            source.release(tensor.part(), start + range.start..start + range.end);
            progress(read.min(total), total);
        })?;
        if is_packed {
            inner.weights.keep(source);
        }
        Ok(Model(Arc::new(inner)))
    }

    /// Loads the model in `bytes`, the content of a GGUF file.
    ///
    /// # Errors
    /// As `Model::open`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let gguf = Gguf::parse(bytes)?;
        Self::from_gguf(&gguf, arch::ALL, &backstitch_core::pool::Inline, |_, _| {})
    }

    /// Loads the model that comes from `input`, a GGUF file in one part of at most `limit` bytes: from a socket, an archive,
    /// standard input. Its bytes are held until it is loaded. Of a stream that goes on behind the file, as many bytes
    /// again are read at most.
    ///
    /// # Errors
    /// As `Model::open`; [`Error::Stream`] if reading fails, [`Error::ModelTooLarge`] if the file is longer than `limit`.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    ///
    /// let mut stream = std::fs::File::open("../goldens/models/llama.gguf")?; // anything that implements Read
    /// let model = Model::from_reader(&mut stream, 1 << 30)?;
    /// assert_eq!(model.hparams().architecture, "llama");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_reader(input: &mut dyn Read, limit: u64) -> Result<Self, Error> {
        Self::from_bytes(&read_stream(input, limit)?)
    }

    /// Loads a model whose header was read already, knowing the architectures `archs` only. After each piece of weights `done` hears which bytes of
    /// which tensor are no longer needed.
    ///
    /// # Errors
    /// As `Model::open`.
    pub fn from_gguf(
        gguf: &Gguf<'_>,
        archs: &[&Arch],
        pool: &dyn Pool,
        done: impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Self, Error> {
        Ok(Model(Arc::new(Inner::load(gguf, archs, &Stoppable::new(pool, None), false, done)?)))
    }

    /// The numbers and the graph of the model that `gguf` describes, without its weights.
    ///
    /// # Errors
    /// As `Model::open`.
    pub fn describe(gguf: &Gguf<'_>, archs: &[&Arch]) -> Result<(Hparams, Graph), Error> {
        let name = gguf.architecture()?;
        let arch = archs.iter().find(|arch| arch.name == name).ok_or_else(|| Error::Architecture {
            found: name.into(),
            known: archs.iter().map(|arch| arch.name).collect(),
        })?;
        let hparams = Hparams::read(gguf)?;
        let mut builder = Builder::new(gguf);
        (arch.build)(&mut builder, &hparams)?;
        Ok((hparams, builder.finish()))
    }

    /// Sizes and constants.
    pub fn hparams(&self) -> &Hparams {
        &self.0.hparams
    }

    /// The computation.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// The vocabulary.
    pub fn vocab(&self) -> &Vocab {
        &self.0.vocab
    }

    /// Says which model it is; what one model's sequences hold means nothing to another.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// The model's own name, if the file states one.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The source of the chat template, if the file has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.0.chat_template.as_deref()
    }

    /// Bytes of the weights in memory.
    pub fn n_bytes(&self) -> usize {
        self.0.weights.n_bytes()
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.0.weights
    }
}
