//! Models.

use crate::arguments::{FilePath, number};
use crate::cancel::Cancel;
use crate::chat::ChatTemplate;
use crate::errors::OrRaise;
use crate::vocab::Vocab;
use crate::watch::{Progress, Watch};
use backstitch_models::grammar::{Compiler, GrammarError};
use backstitch_models::graph::Head;
use backstitch_models::{LoadParams, Model as Loaded};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A model: its weights, its vocabulary and its chat template. It never changes, and any number of
/// sessions share it.
#[pyclass(frozen, module = "backstitch")]
pub struct Model {
    pub inner: Loaded,
    pub grammars: Grammars,
}

/// The compiler of grammars for a model, made when it is needed first.
#[derive(Clone)]
pub struct Grammars {
    model: Loaded,
    compiler: Arc<Mutex<Option<Compiler>>>,
}

impl Grammars {
    /// Return the compiler.
    ///
    /// # Errors
    /// Those of [`Compiler::new`].
    pub fn compiler(&self) -> Result<Compiler, GrammarError> {
        let mut known = self.compiler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = &*known {
            return Ok(compiler.clone());
        }
        let compiler = Compiler::new(self.model.vocab())?;
        Ok(known.insert(compiler).clone())
    }
}

impl Model {
    fn of(inner: Loaded) -> Self {
        let grammars = Grammars { model: inner.clone(), compiler: Arc::default() };
        Model { inner, grammars }
    }
}

#[pymethods]
impl Model {
    /// Load the model in the GGUF file at `path`; without a path, the small story model that is
    /// part of the package.
    ///
    /// `n_threads` prepare the weights; by default as many as the process may use. `progress` is
    /// called with the bytes that are done, and with all bytes.
    #[new]
    #[pyo3(signature = (path=None, *, n_threads=None, progress=None, cancel=None))]
    fn new(
        py: Python<'_>,
        path: Option<FilePath>,
        n_threads: Option<i128>,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Cancel>,
    ) -> PyResult<Self> {
        let watch = Watch::new([cancel.map(|cancel| cancel.inner.clone())]);
        let progress = Progress::new(progress, &watch);
        let mut params = LoadParams::default().cancel(Some(watch.cancel()));
        if let Some(n_threads) = n_threads {
            params = params.n_threads(number(py, "n_threads", n_threads)?);
        }
        let loaded = py.detach(|| match path {
            Some(path) => Loaded::open_with(path, params, |done, all| progress.report(done, all)),
            None => Loaded::from_bytes(backstitch_demo::GGUF),
        });
        watch.finish(loaded)?.or_raise(py).map(Self::of)
    }

    /// Load the model in `data`, the content of a GGUF file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        py.detach(|| Loaded::from_bytes(data)).or_raise(py).map(Self::of)
    }

    /// The vocabulary.
    #[getter]
    fn vocab(&self) -> Vocab {
        Vocab { model: self.inner.clone() }
    }

    /// The chat template; `None` if the model has none.
    #[getter]
    fn chat_template(&self, py: Python<'_>) -> PyResult<Option<ChatTemplate>> {
        let source = self.inner.chat_template().map(String::from);
        source.map(|source| ChatTemplate::parse(py, source)).transpose()
    }

    /// The model's own name, if the file states one.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.inner.name()
    }

    /// The name of the architecture.
    #[getter]
    fn architecture(&self) -> &str {
        &self.inner.hparams().architecture
    }

    /// The number of tokens that the model was trained to read at once.
    #[getter]
    fn n_ctx_train(&self) -> u32 {
        self.inner.hparams().n_ctx_train
    }

    /// The number of tokens in the vocabulary.
    #[getter]
    fn n_vocab(&self) -> usize {
        self.inner.hparams().n_vocab
    }

    /// The length of an embedding.
    #[getter]
    fn n_embd(&self) -> usize {
        self.inner.hparams().n_embd
    }

    /// The bytes of the weights in memory.
    #[getter]
    fn n_bytes(&self) -> usize {
        self.inner.n_bytes()
    }

    /// True if the model makes embeddings only, and no text.
    #[getter]
    fn is_encoder(&self) -> bool {
        self.inner.graph().head() == Head::Embeddings
    }

    /// The fingerprint by which saved states know their model, in hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.inner.fingerprint().to_string()
    }

    fn __repr__(&self) -> String {
        let name = self.inner.name().unwrap_or("without a name");
        format!("<backstitch.Model {name:?}, {}>", self.inner.hparams().architecture)
    }
}
