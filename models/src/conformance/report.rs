//! Options of a replay, the report on a case, and errors of whole files.

use crate::{Error, Model, vocab::VocabError};
use alloc::string::{String, ToString};
use backstitch_core::KernelSet;
use core::fmt;
use std::path::{Path, PathBuf};

/// The tolerance of a replay, and the resources for it.
///
/// # Example
/// ```
/// use backstitch_models::conformance::Options;
///
/// let options = Options { n_threads: 2, ..Options::default() };
/// assert_eq!(options.tolerance, 1e-3);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The largest difference of a logit that passes.
    pub tolerance: f32,
    /// The model for files that name one which is not beside them.
    pub model: Option<PathBuf>,
    /// The number of threads to compute with.
    pub n_threads: u32,
    /// The kernels to compute with; `None` is the fastest set available.
    pub kernels: Option<&'static KernelSet>,
}

impl Default for Options {
    fn default() -> Self {
        Self { tolerance: 1e-3, model: None, n_threads: 1, kernels: None }
    }
}

/// The outcome of a case.
///
/// # Example
/// ```
/// use backstitch_models::conformance::Verdict;
///
/// assert_eq!(Verdict::Failed.to_string(), "FAILED");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The results are as expected.
    Passed,
    /// The results differ.
    Failed,
    /// This engine cannot run the case.
    NotSupported,
    /// The case ran, but is not a requirement.
    Informational,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::NotSupported => "not supported",
            Self::Informational => "informational",
        })
    }
}

/// The report on one case of a conformance file.
///
/// # Example
/// ```
/// use backstitch_models::conformance::{Options, Verdict, verify};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.txt");
/// std::fs::write(&path, "not a golden")?;
/// let mut rows = Vec::new();
/// verify(&path, &Options::default(), &mut |row| rows.push(row));
/// assert_eq!(rows[0].verdict, Verdict::Failed);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The name of the case in the file.
    pub case: String,
    /// The outcome.
    pub verdict: Verdict,
    /// The largest difference of a number, if numbers were compared.
    pub max_diff: Option<f32>,
    /// The reason of the outcome, or other facts worth knowing.
    pub note: String,
}

impl Row {
    /// Make a row without a difference.
    pub(super) fn new(case: impl Into<String>, verdict: Verdict, note: impl Into<String>) -> Self {
        Self { case: case.into(), verdict, max_diff: None, note: note.into() }
    }

    /// Make a row for an error: not supported if this engine lacks the feature, failed otherwise.
    pub(super) fn error(case: &str, error: &Error) -> Self {
        Self::new(
            case,
            if is_unsupported(error) { Verdict::NotSupported } else { Verdict::Failed },
            error.to_string(),
        )
    }
}

/// Return true if an error means that this engine lacks a feature.
pub(super) fn is_unsupported(error: &Error) -> bool {
    match error {
        Error::Architecture { .. }
        | Error::LlamaState { .. }
        | Error::Memory(backstitch_kv::Error::Unsupported { .. }) => true,
        Error::Vocab(VocabError::Model { .. } | VocabError::Pre { .. }) => true,
        Error::File { source, .. } | Error::Shard { source, .. } => is_unsupported(source),
        _ => false,
    }
}

/// The reason that a file as a whole cannot be replayed.
pub(super) struct Failure(pub(super) String);

impl<E: core::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Load a model for replay.
pub(super) fn open(path: &Path, options: &Options) -> Result<Model, Error> {
    let params = crate::LoadParams { n_threads: options.n_threads as usize, ..crate::LoadParams::default() };
    Model::open_with(path, params, |_, _| {})
}
