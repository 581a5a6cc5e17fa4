//! Models: loading them, and what they say about themselves.

mod metadata;
mod texts;

use crate::border::{self, In, Out, Text, exports, write_text};
use crate::error::Error;
use crate::handles::{Handle, Kind, Registry, sibling};
use crate::layouts::{ModelParams, ProgressCallback};
use crate::log::{self, Level};
use backstitch_core::rope::Pairs;
use backstitch_kv::{AttentionSpec, LayerSpec, Window};
use backstitch_models::arch::ALL;
use backstitch_models::gguf::{Access, Gguf, Source};
use backstitch_models::grammar::Compiler;
use backstitch_models::graph::Head;
use backstitch_models::vocab::Vocab;
use backstitch_models::{Cancel, Error as ModelError, Hparams, LoadParams, Model};
pub(crate) use metadata::Metadata;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use texts::Texts;
pub use texts::{attr, line_end};

/// Wishes for loading a model, whatever the layout that they came in.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Load the vocabulary and the metadata alone.
    pub vocab_only: bool,
    /// Map the file into memory; otherwise read it.
    pub map: bool,
    /// A callback that gets the progress.
    pub progress: ProgressCallback,
    /// Its data.
    pub progress_data: usize,
    /// True if metadata should be overridden, which is not done.
    pub has_overrides: bool,
}

/// A model that a handle stands for.
pub struct ModelEntry {
    /// The model; `None` if only its vocabulary was loaded.
    pub model: Option<Model>,
    /// The sizes, where the file states them.
    pub hparams: Option<Hparams>,
    /// The vocabulary.
    pub vocab: Vocab,
    /// Texts, scores and types of tokens as C reads them.
    pub texts: Texts,
    /// Metadata of the file, and sums over its tensors.
    pub metadata: Metadata,
    /// The files that the model came from.
    pub paths: Vec<PathBuf>,
    /// Milliseconds that loading took.
    pub load_ms: f64,
    /// The compiler of grammars, made when it is first needed.
    compiler: OnceLock<Option<Compiler>>,
    chat_template: OnceLock<Option<CString>>,
}

/// The models that are alive.
pub static MODELS: Registry<ModelEntry> = Registry::new(Kind::Model);

/// Return the model of a handle.
///
/// # Errors
/// [`Error::Null`], [`Error::Foreign`] or [`Error::Stale`].
pub fn model(handle: Handle) -> Result<Arc<ModelEntry>, Error> {
    MODELS.get(handle)
}

/// Return the model of the handle of its vocabulary. Bindings that pass the model's own handle are
/// understood too.
///
/// # Errors
/// Those of [`model`].
pub fn of_vocab(handle: Handle) -> Result<Arc<ModelEntry>, Error> {
    MODELS.get_as(handle, &[Kind::Vocab, Kind::Model])
}

impl ModelEntry {
    /// Return the model.
    ///
    /// # Errors
    /// [`Error::VocabOnly`].
    pub fn whole(&self) -> Result<&Model, Error> {
        self.model.as_ref().ok_or(Error::VocabOnly)
    }

    /// Return the compiler of grammars.
    ///
    /// # Errors
    /// [`Error::Absent`] if no grammar can be used with the vocabulary.
    pub fn compiler(&self) -> Result<&Compiler, Error> {
        let made = self.compiler.get_or_init(|| Compiler::new(&self.vocab).ok());
        made.as_ref().ok_or(Error::Absent { what: "grammars for this vocabulary" })
    }

    fn layer_count(&self) -> i32 {
        self.hparams.as_ref().map_or(0, |h| h.n_layer as i32)
    }

    /// Return the largest number of a kind that a layer has; 0 if nothing tells.
    fn largest(&self, number: impl Fn(&backstitch_models::LayerHparams) -> usize) -> i32 {
        let hparams = self.hparams.iter();
        hparams.flat_map(Hparams::layers).map(|layer| number(&layer) as i32).max().unwrap_or(0)
    }

    /// Return -1 if no layer rotates keys, 0 if adjacent pairs rotate, 2 if split ones do; 8 or 40
    /// if they do so by positions of several axes.
    fn rope_type(&self) -> i32 {
        match self.hparams.as_ref().map_or("", |h| h.architecture.as_str()) {
            "qwen2vl" => return 8,
            "qwen3vl" | "qwen3vlmoe" | "qwen35" | "qwen35moe" => return 40,
            _ => {}
        }
        let layers = self.model.iter().flat_map(|m| m.graph().layers());
        let mut turned = layers.filter_map(|layer| match &layer.attention {
            AttentionSpec::Cached(cached) => cached.rope.as_ref().map(|rotation| rotation.rope.pairs),
            _ => None,
        });
        match turned.next() {
            None => -1,
            Some(Pairs::Adjacent) => 0,
            Some(Pairs::Split) => 2,
        }
    }

    fn has_encoder_graph(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.graph().encoder().is_some())
    }

    /// Return true if the model is the encoder of one with two parts, without its decoder.
    fn is_encoder_of_two(&self) -> bool {
        self.hparams.as_ref().is_some_and(|h| h.architecture == "t5encoder")
    }

    /// Return true if the model only yields embeddings.
    pub fn only_encodes(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.graph().head() == Head::Embeddings)
    }

    /// Return for each kind of memory if a layer has it: attention over cells, recurrent states.
    fn memories(&self) -> (bool, bool) {
        let Some(model) = &self.model else { return (false, false) };
        let layers = model.graph().layers();
        let attends = |layer: &LayerSpec| matches!(layer.attention, AttentionSpec::Cached(_));
        (layers.iter().any(attends), layers.iter().any(|layer| !layer.recurrent.is_empty()))
    }
}

/// Return the positions that a window spans.
fn length(window: Window) -> u32 {
    let (Window::Sliding(n) | Window::Chunked(n) | Window::Symmetric(n)) = window;
    n
}

/// Load a model, and return its handle.
fn load(
    open_source: impl Fn(Access) -> Result<Source, ModelError>,
    options: LoadOptions,
) -> Result<Handle, Error> {
    if options.has_overrides {
        log::write(Level::Warning, "metadata overrides of a model are ignored");
    }
    let start = std::time::Instant::now();
    let access = if options.map { Access::Map } else { Access::Read };
    let source = open_source(Access::Map)?;
    let gguf = source.gguf()?;
    let (vocab, texts, metadata) = (Vocab::from_gguf(&gguf)?, Texts::read(&gguf)?, Metadata::read(&gguf));
    let paths = source.paths().map(PathBuf::from).collect();
    let (model, hparams) = match options.vocab_only {
        true => (None, Hparams::read(&gguf).ok()),
        false => {
            check_architecture(&gguf)?;
            let model = open(open_source(access)?, options)?;
            let hparams = model.hparams().clone();
            (Some(model), Some(hparams))
        }
    };
    let load_ms = start.elapsed().as_secs_f64() * 1e3;
    let (compiler, chat_template) = (OnceLock::new(), OnceLock::new());
    MODELS.insert(ModelEntry {
        model,
        hparams,
        vocab,
        texts,
        metadata,
        paths,
        load_ms,
        compiler,
        chat_template,
    })
}

/// Refuse a model of an unknown architecture before anything large is read.
fn check_architecture(gguf: &Gguf<'_>) -> Result<(), Error> {
    Ok(Model::describe(gguf, ALL).map(drop)?)
}

/// Open the model; the program's callback may stop that.
fn open(source: Source, options: LoadOptions) -> Result<Model, Error> {
    let cancel = Cancel::new();
    let params = LoadParams::default().cancel(Some(cancel.clone()));
    let model = Model::from_source(source, params, |done, all| {
        let share = if all == 0 { 1.0 } else { (done as f64 / all as f64) as f32 };
        let Some(progress) = options.progress else { return };
        let data = options.progress_data as *mut c_void;
        if !border::in_callback(|| progress(share, data)) {
            cancel.cancel();
        }
    })?;
    Ok(model)
}

exports! {
    /// Load a model, or return null.
    fn llama_model_load_from_file(path: Text, params: ModelParams) -> Handle = [Handle::NULL] {
        let path = path.path("path_model")?;
        load(|access| Source::open(&path, access), params.options())
    }

    /// Load the model in the parts of a split file, given in order.
    fn llama_model_load_from_splits(paths: In<Text>, n_paths: usize, params: ModelParams)
        -> Handle = [Handle::NULL]
    {
        let paths = paths.slice(n_paths, "paths")?.iter().map(|path| path.path("paths"));
        let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
        if paths.is_empty() {
            return Err(Error::Null { what: "paths" });
        }
        load(|access| Source::open_shards(paths.iter().cloned(), access), params.options())
    }

    /// Load a model from an open `FILE`, which is not done: returns null.
    fn llama_model_load_from_file_ptr(file: *mut c_void, params: ModelParams) -> Handle = [Handle::NULL] {
        let _ = (file, params);
        Err(Error::Absent { what: "loading from a FILE; pass its path" })
    }

    /// Free a model. Contexts of it stay usable.
    fn llama_model_free(model: Handle) {
        if model.is_null() {
            return Ok(());
        }
        MODELS.remove(model).map(drop)
    }

    /// Return the vocabulary of a model, which lives as long as it.
    fn llama_model_get_vocab(handle: Handle) -> Handle = [Handle::NULL] {
        model(handle)?;
        Ok(sibling(handle, Kind::Vocab))
    }

    /// Return the context length that the model was trained with; 0 for no model.
    fn llama_model_n_ctx_train(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.hparams.as_ref().map_or(0, |h| h.n_ctx_train as i32))
    }

    /// Return the width of embeddings.
    fn llama_model_n_embd(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.hparams.as_ref().map_or(0, |h| h.n_embd as i32))
    }

    /// Return the width of embeddings that a batch may hold.
    fn llama_model_n_embd_inp(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.hparams.as_ref().map_or(0, |h| h.n_embd as i32))
    }

    /// Return the width of embeddings that the model yields.
    fn llama_model_n_embd_out(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.hparams.as_ref().map_or(0, |h| h.n_embd as i32))
    }

    /// Return the number of layers.
    fn llama_model_n_layer(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.layer_count())
    }

    /// Return the number of layers that predict further tokens: none is ever loaded.
    fn llama_model_n_layer_nextn(handle: Handle) -> i32 = [0] {
        model(handle).map(|_| 0)
    }

    /// Return the largest number of attention heads of a layer.
    fn llama_model_n_head(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.largest(|layer| layer.n_head))
    }

    /// Return the largest number of key-value heads of a layer.
    fn llama_model_n_head_kv(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.largest(|layer| layer.n_head_kv))
    }

    /// Return the length of the sliding window; 0 if there is none.
    fn llama_model_n_swa(handle: Handle) -> i32 = [0] {
        let model = model(handle)?;
        let layers = model.model.iter().flat_map(|m| m.graph().layers());
        let windows = layers.filter_map(|layer| match &layer.attention {
            AttentionSpec::Cached(cached) => cached.window.map(length),
            _ => None,
        });
        Ok(windows.max().map_or(0, |n| n as i32))
    }

    /// Return the factor by which positions were scaled in training.
    fn llama_model_rope_freq_scale_train(handle: Handle) -> f32 = [0.0] {
        let model = model(handle)?;
        let factor = model.metadata.of_architecture("rope.scaling.factor");
        Ok(factor.and_then(|text| text.parse().ok()).map_or(1.0, |factor: f32| 1.0 / factor))
    }

    /// Return the way in which the model rotates keys: -1 for none, 0 for adjacent pairs, 2 for
    /// split pairs, 8 and 40 for positions of several axes in sections or interleaved.
    fn llama_model_rope_type(handle: Handle) -> i32 = [-1] {
        Ok(model(handle)?.rope_type())
    }

    /// Return the number of classes of a classifier.
    fn llama_model_n_cls_out(handle: Handle) -> u32 = [0] {
        model(handle).map(|_| 1)
    }

    /// Return the label of a class: null, because no classifier is ever loaded.
    fn llama_model_cls_label(handle: Handle, index: u32) -> *const c_char = [std::ptr::null()] {
        let _ = index;
        model(handle).map(|_| std::ptr::null())
    }

    /// Write the value of a key of the metadata; -1 if there is none.
    fn llama_model_meta_val_str(handle: Handle, key: Text, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        let (model, key) = (model(handle)?, key.str("key")?);
        match model.metadata.value(key) {
            Some(value) => write_text(value.as_bytes(), buf, size),
            None => write_text(b"", buf, size).map(|_| -1),
        }
    }

    /// Return the number of entries of the metadata that are no lists.
    fn llama_model_meta_count(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.metadata.len() as i32)
    }

    /// Write a key of the metadata; -1 if there are not so many.
    fn llama_model_meta_key_by_index(handle: Handle, i: i32, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        match model(handle)?.metadata.entry(i) {
            Some((key, _)) => write_text(key.as_bytes(), buf, size),
            None => write_text(b"", buf, size).map(|_| -1),
        }
    }

    /// Write a value of the metadata; -1 if there are not so many.
    fn llama_model_meta_val_str_by_index(handle: Handle, i: i32, buf: Out<c_char>, size: usize)
        -> i32 = [-1]
    {
        match model(handle)?.metadata.entry(i) {
            Some((_, value)) => write_text(value.as_bytes(), buf, size),
            None => write_text(b"", buf, size).map(|_| -1),
        }
    }

    /// Return the metadata key under which a model states a setting of its samplers; null for
    /// numbers that name none.
    fn llama_model_meta_key_str(key: i32) -> *const c_char = [std::ptr::null()] {
        const KEYS: [&CStr; 12] = [
            c"general.sampling.sequence",
            c"general.sampling.top_k",
            c"general.sampling.top_p",
            c"general.sampling.min_p",
            c"general.sampling.xtc_probability",
            c"general.sampling.xtc_threshold",
            c"general.sampling.temp",
            c"general.sampling.penalty_last_n",
            c"general.sampling.penalty_repeat",
            c"general.sampling.mirostat",
            c"general.sampling.mirostat_tau",
            c"general.sampling.mirostat_eta",
        ];
        let key = usize::try_from(key).ok().and_then(|key| KEYS.get(key));
        Ok(key.map_or(std::ptr::null(), |key| key.as_ptr()))
    }

    /// Write a description: architecture, size, file type.
    fn llama_model_desc(handle: Handle, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        write_text(model(handle)?.metadata.description().as_bytes(), buf, size)
    }

    /// Return the number of the file type.
    fn llama_model_ftype(handle: Handle) -> i32 = [0] {
        Ok(model(handle)?.metadata.file_type)
    }

    /// Return the bytes of the tensors in the file.
    fn llama_model_size(handle: Handle) -> u64 = [0] {
        Ok(model(handle)?.metadata.n_bytes)
    }

    /// Return the number of parameters.
    fn llama_model_n_params(handle: Handle) -> u64 = [0] {
        Ok(model(handle)?.metadata.n_params)
    }

    /// Return the chat template of the model, or null. `name` names another than the default one.
    fn llama_model_chat_template(handle: Handle, name: Text) -> *const c_char = [std::ptr::null()] {
        let model = model(handle)?;
        if !name.is_null() {
            let key = format!("tokenizer.chat_template.{}", name.str("name")?);
            return Ok(model.metadata.stable(&key));
        }
        let own = model.chat_template.get_or_init(|| {
            model.metadata.value("tokenizer.chat_template").map(log::c_string)
        });
        Ok(own.as_ref().map_or(std::ptr::null(), |text| text.as_ptr()))
    }

    /// Return true if the model has an encoder.
    fn llama_model_has_encoder(handle: Handle) -> bool = [false] {
        let model = model(handle)?;
        Ok(model.has_encoder_graph() || model.is_encoder_of_two())
    }

    /// Return true unless the model is the encoder of one with two parts: those that yield
    /// embeddings alone count as decoders, as in llama.cpp.
    fn llama_model_has_decoder(handle: Handle) -> bool = [false] {
        Ok(!model(handle)?.is_encoder_of_two())
    }

    /// Return the token that begins the text of a decoder behind an encoder; -1 if none does.
    fn llama_model_decoder_start_token(handle: Handle) -> i32 = [-1] {
        let model = model(handle)?;
        Ok(model.hparams.as_ref().and_then(|h| h.decoder_start).map_or(-1, |token| token as i32))
    }

    /// Return true if the model has recurrent states and no cells.
    fn llama_model_is_recurrent(handle: Handle) -> bool = [false] {
        Ok(model(handle)?.memories() == (false, true))
    }

    /// Return true if the model has both recurrent states and cells.
    fn llama_model_is_hybrid(handle: Handle) -> bool = [false] {
        Ok(model(handle)?.memories() == (true, true))
    }

    /// Return true if the model is a diffusion model: none is ever loaded.
    fn llama_model_is_diffusion(handle: Handle) -> bool = [false] {
        model(handle).map(|_| false)
    }

    /// Return parameters of loading with the defaults filled in.
    fn llama_model_default_params() -> ModelParams = [ModelParams::default()] {
        Ok(ModelParams::default())
    }
}
