//! A model: weights, vocabulary and graph, immutable and shared.

use crate::{
    arch::{self, Arch},
    cancel::Stoppable,
    error::Error,
    fingerprint::{fingerprint, of_long_context},
    gguf::{Gguf, TensorInfo, read_stream},
    graph::{Builder, Graph, Head},
    hparams::Hparams,
    nearest::Nearest,
    vocab::{AddSpecial, Vocab},
    weights::{Files, Weights},
};
use alloc::{boxed::Box, string::String, sync::Arc};
use backstitch_core::packed::ALIGN;
use backstitch_core::pool::{Inline, Pool};
use backstitch_kv::io::Read;
use backstitch_kv::storage::Fingerprint;
use core::ops::Range;

/// A model in memory: its numbers, its graph, its weights, its vocabulary, and its name.
///
/// Nothing of it changes once it is loaded. Clones share everything; any number of contexts can use
/// it at once, from any number of threads.
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
    n_params: u64,
    name: Option<String>,
    /// The name of the file, if the model was read from one.
    file_name: Option<String>,
    chat_template: Option<String>,
    chat_template_for_tools: Option<String>,
}

impl Inner {
    /// Load all of a model; [`Weights::load`] says what `keep` promises.
    fn load(
        gguf: &Gguf<'_>,
        archs: &[&Arch],
        work: &Stoppable<'_>,
        keep: bool,
        done: impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Self, Error> {
        let (hparams, graph) = Model::describe(gguf, archs)?;
        let vocab = Vocab::from_gguf(gguf)?;
        let (tokens, rows) = (vocab.n_vocab(), hparams.n_vocab);
        if tokens != rows {
            return Err(Error::VocabSize { tokens, rows });
        }
        // Before the weights: pages of the file are given back as these are read.
        let fingerprint = fingerprint(gguf);
        let weights = Weights::load(gguf, &graph, work, keep, done)?;
        let text = |key| gguf.optional::<&str>(key).map(|text| text.map(String::from));
        Ok(Inner {
            hparams,
            graph,
            weights,
            vocab,
            fingerprint,
            n_params: gguf.tensors().iter().map(|tensor| tensor.n_elements() as u64).sum(),
            name: text("general.name")?,
            file_name: None,
            chat_template: text("tokenizer.chat_template")?,
            chat_template_for_tools: text("tokenizer.chat_template.tool_use")?,
        })
    }
}

/// Parameters of loading a model.
///
/// # Example
/// ```no_run
/// use backstitch_models::{LoadParams, Model};
///
/// let params = LoadParams::default().n_threads(2);
/// let model = Model::open_with("llama.gguf", params, |done, all| println!("{done} of {all}"))?;
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[cfg(feature = "std")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadParams {
    /// The access to the bytes of the file.
    pub access: crate::gguf::Access,
    /// Threads that pack weights, 1 to 512.
    pub n_threads: usize,
    /// A request to stop, checked between pieces of weights.
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
    /// Map the file, and use as many threads as the process may.
    fn default() -> Self {
        LoadParams {
            access: crate::gguf::Access::Map,
            n_threads: crate::params::all_threads() as usize,
            cancel: None,
        }
    }
}

impl Model {
    /// Load the model in the file at `path`, which may be one part of a split model.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::File`] if it is damaged or misses a part,
    /// those of [`Model::describe`], [`Error::Vocab`] and [`Error::VocabSize`] if this crate cannot
    /// use it, [`Error::OutOfMemory`].
    #[cfg(feature = "std")]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        Self::open_with(path, LoadParams::default(), |_, _| {})
    }

    /// Load a model with parameters; `progress` is called with the bytes that are done, and with
    /// all, which are those of the tensors that are not packed yet. The last call has both equal.
    ///
    /// # Errors
    /// Those of [`Model::open`], and [`Error::Cancelled`] if `params` ask to stop.
    #[cfg(feature = "std")]
    pub fn open_with(
        path: impl AsRef<std::path::Path>,
        params: LoadParams,
        progress: impl FnMut(u64, u64),
    ) -> Result<Self, Error> {
        Self::from_source(crate::gguf::Source::open(path, params.access)?, params, progress)
    }

    /// Load the model in open files, as [`Model::open_with`].
    ///
    /// # Errors
    /// Those of [`Model::open_with`].
    #[cfg(feature = "std")]
    pub fn from_source(
        source: crate::gguf::Source,
        params: LoadParams,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, Error> {
        let pool = backstitch_core::pool::ThreadPool::new(params.n_threads)?;
        let gguf = source.gguf()?;
        // Packed tensors stay in the file, and the next use reads them.
        let read_now = gguf.tensors().iter().filter(|tensor| !tensor.is_packed());
        let total = read_now.map(|tensor| tensor.n_bytes() as u64).sum();
        let is_packed = gguf.tensors().iter().any(TensorInfo::is_packed);
        let mut read = 0;
        let work = Stoppable::new(&pool, params.cancel.as_ref());
        let mut inner = Inner::load(&gguf, arch::ALL, &work, true, |tensor, range| {
            read += range.len() as u64;
            let start = tensor.range().start;
            source.release(tensor.shard(), start + range.start..start + range.end);
            progress(read.min(total), total);
        })?;
        // The model may not use all tensors of the file.
        if read < total {
            progress(total, total);
        }
        let path = source.paths().next().and_then(std::path::Path::file_name);
        inner.file_name = path.map(|name| name.to_string_lossy().into_owned());
        if is_packed {
            inner.weights.keep(Files::Open(source));
        }
        Ok(Model(Arc::new(inner)))
    }

    /// Load the model in `bytes`, the content of a GGUF file. All weights are copied.
    ///
    /// # Errors
    /// Those of [`Gguf::parse`] and of [`Model::from_gguf`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let gguf = Gguf::parse(bytes)?;
        Self::from_gguf(&gguf, arch::ALL, &Inline, |_, _| {})
    }

    /// Load the model in `bytes`, the content of a GGUF file that stays in memory: one that is part
    /// of the program, or lies in flash.
    ///
    /// Matrices that the file has [packed](crate::PackedModel) are used from there, without a copy.
    /// For that `bytes` have to begin at a multiple of 64; all weights are copied otherwise.
    ///
    /// # Errors
    /// Those of [`Model::from_bytes`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    ///
    /// #[repr(C, align(64))]
    /// struct Aligned<T: ?Sized>(T);
    ///
    /// // A program names its own packed file.
    /// static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../../demo/demo.gguf"));
    ///
    /// let model = Model::from_static(&FILE.0)?;
    /// assert_eq!(model.hparams().architecture, "falcon-h1");
    /// # Ok::<(), backstitch_models::Error>(())
    /// ```
    pub fn from_static(bytes: &'static [u8]) -> Result<Self, Error> {
        let gguf = Gguf::parse(bytes)?;
        let keep = bytes.as_ptr().addr().is_multiple_of(ALIGN);
        let mut inner = Inner::load(&gguf, arch::ALL, &Stoppable::new(&Inline, None), keep, |_, _| {})?;
        inner.weights.keep(Files::Static(bytes));
        Ok(Model(Arc::new(inner)))
    }

    /// Load the model that comes from `input`, a GGUF file in one part of at most `limit` bytes:
    /// from a socket, an archive, standard input. Its bytes stay in memory until it is loaded. Of a
    /// stream that continues behind the file, as many bytes again are read at most.
    ///
    /// # Errors
    /// Those of [`Model::from_bytes`]; [`Error::Stream`] if reading fails, [`Error::ModelTooLarge`]
    /// if the file is longer than `limit`.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    ///
    /// // Anything that implements `Read`.
    /// let mut stream = std::fs::File::open("../goldens/models/llama.gguf")?;
    /// let model = Model::from_reader(&mut stream, 1 << 30)?;
    /// assert_eq!(model.hparams().architecture, "llama");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_reader(input: &mut dyn Read, limit: u64) -> Result<Self, Error> {
        Self::from_bytes(&read_stream(input, limit)?)
    }

    /// Load a model whose header was read already, of one of the architectures `archs`. After each
    /// piece of weights `done` is called with a tensor and the range of its bytes that is no longer
    /// needed.
    ///
    /// # Errors
    /// Those of [`Model::describe`]; [`Error::Vocab`] or [`Error::VocabSize`] if the vocabulary
    /// cannot be used, [`Error::OutOfMemory`].
    pub fn from_gguf(
        gguf: &Gguf<'_>,
        archs: &[&Arch],
        pool: &dyn Pool,
        done: impl FnMut(&TensorInfo<'_>, Range<usize>),
    ) -> Result<Self, Error> {
        Ok(Model(Arc::new(Inner::load(gguf, archs, &Stoppable::new(pool, None), false, done)?)))
    }

    /// Return the numbers and the graph of the model that `gguf` describes, without its weights.
    ///
    /// # Errors
    /// [`Error::Architecture`] if it is none of `archs`, those of [`Hparams::read`],
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`]
    /// if a tensor is not as the architecture needs it, and those of [`Builder::finish`].
    pub fn describe(gguf: &Gguf<'_>, archs: &[&Arch]) -> Result<(Hparams, Graph), Error> {
        let name = gguf.architecture()?;
        let arch = archs.iter().find(|arch| arch.name == name).ok_or_else(|| Error::Architecture {
            found: name.into(),
            known: archs.iter().map(|arch| arch.name).collect(),
            nearest: Nearest::of(gguf, archs).map(Box::new),
        })?;
        let hparams = Hparams::read(gguf)?;
        let mut builder = Builder::new(gguf);
        (arch.build)(&mut builder, &hparams)?;
        let graph = builder.finish()?;
        if !hparams.is_causal && graph.head() == Head::Logits {
            return Err(hparams.not_causal());
        }
        Ok((hparams, graph))
    }

    /// Return the sizes and constants.
    pub fn hparams(&self) -> &Hparams {
        &self.0.hparams
    }

    /// Return the computation.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// Return the vocabulary.
    pub fn vocab(&self) -> &Vocab {
        &self.0.vocab
    }

    /// Return the special tokens to add to a prompt: those of a text that the model continues, or,
    /// if it is an encoder-decoder, those of the whole text that its encoder reads.
    pub fn prompt_special(&self) -> AddSpecial {
        match self.graph().encoder() {
            Some(_) => AddSpecial::Yes,
            None => AddSpecial::Start,
        }
    }

    /// Return the fingerprint that tells the model from others. Sequences of one model mean nothing
    /// to another.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// Return the fingerprint of the model in a context of `n_ctx` tokens.
    ///
    /// Some models rotate keys otherwise in contexts longer than a length that the file states
    /// ([`Graph::is_long`]). Sequences of such contexts mean nothing to shorter ones, so the model
    /// has another fingerprint there.
    pub fn fingerprint_in(&self, n_ctx: u32) -> Fingerprint {
        match self.graph().is_long(n_ctx) {
            true => of_long_context(self.fingerprint()),
            false => self.fingerprint(),
        }
    }

    /// Return the model's own name, if the file states one.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Return a name for messages: that of the file, or else the model's own or its architecture's.
    pub(crate) fn label(&self) -> &str {
        self.0.file_name.as_deref().or(self.name()).unwrap_or(&self.hparams().architecture)
    }

    /// Return the source of the chat template, if the file has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.0.chat_template.as_deref()
    }

    /// Return the source of the chat template for conversations with tools, if the file has one of
    /// its own for them.
    pub fn chat_template_for_tools(&self) -> Option<&str> {
        self.0.chat_template_for_tools.as_deref()
    }

    /// Return the number of parameters: the elements of all tensors of the file.
    pub fn n_params(&self) -> u64 {
        self.0.n_params
    }

    /// Return the bytes of the weights in memory.
    pub fn n_bytes(&self) -> usize {
        self.0.weights.n_bytes()
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.0.weights
    }
}
