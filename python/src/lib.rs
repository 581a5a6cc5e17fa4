//! The Python package of Backstitch: its compiled part, the module `backstitch._native`.
//!
//! It is a layer over the crate `models` that adds what Python asks for. Computations run without
//! the interpreter's lock (`engine.rs`) and stop for signals and for requests of other threads
//! (`watch.rs`). Errors become exceptions (`errors.rs`). Arrays are shared with numpy, which reads
//! them where they are (`arrays.rs`). What is easier said in Python, the exceptions themselves and
//! asyncio, is in the folder `backstitch` beside this one.

mod arguments;
mod arrays;
mod cancel;
mod chat;
mod embedder;
mod engine;
mod errors;
mod generation;
mod model;
mod results;
mod sampling;
mod session;
mod vocab;
mod watch;

/// The compiled part of the package `backstitch`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        arrays::{Embeddings, Logits},
        cancel::Cancel,
        chat::{ChatTemplate, Rendered},
        embedder::Embedder,
        generation::{Chunk, Generation},
        model::Model,
        results::{CostRange, PrefixReuse, Rollback, TokenLogprobs},
        sampling::Settings,
        session::Session,
        vocab::Vocab,
    };

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python gives it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
