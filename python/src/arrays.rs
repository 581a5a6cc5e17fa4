//! Arrays of floats that numpy reads where they are.
//!
//! The classes have `__array_interface__`, the protocol of numpy for memory that somebody else
//! owns. An array made of such an object holds a reference to it, the object owns its floats, and
//! nothing ever changes them. So an array stays valid and the same as long as it exists, and it is
//! read-only. All of this needs no unsafe code.

use crate::arguments::number;
use crate::errors::argument;
use backstitch_models::sampler::Logprobs;
use backstitch_models::{SharedLogits, Token};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

/// Describe `floats`, an array of this shape, in the terms of numpy.
fn interface<'py>(
    py: Python<'py>,
    floats: &[f32],
    shape: impl IntoPyObject<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let description = PyDict::new(py);
    description.set_item("version", 3)?;
    description.set_item("shape", shape)?;
    description.set_item("typestr", if cfg!(target_endian = "big") { ">f4" } else { "<f4" })?;
    // The address, and that the floats are read-only.
    description.set_item("data", (floats.as_ptr().addr(), true))?;
    Ok(description)
}

/// Return `object` as an array of numpy, which refers to it.
///
/// # Errors
/// `ImportError` if numpy is not installed.
fn as_array<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    object.py().import("numpy")?.call_method1("asarray", (object,))
}

/// Return the place of an item, which counts from the end if it is negative.
fn place(index: isize, len: usize) -> PyResult<usize> {
    let found = if index < 0 { len.checked_add_signed(index) } else { Some(index.unsigned_abs()) };
    found.filter(|&place| place < len).ok_or_else(|| PyIndexError::new_err("index out of range"))
}

/// The logits after one position: a read-only sequence of floats, one for each token.
///
/// `numpy.asarray(logits)` and `logits.numpy()` are arrays over the same memory, without a copy.
/// Later evaluations go to other memory.
#[pyclass(frozen, module = "backstitch")]
pub struct Logits {
    pub values: SharedLogits,
}

#[pymethods]
impl Logits {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, &self.values, (self.values.len(),))
    }

    /// Return the logits as an array of numpy, which shares their memory and is read-only.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        as_array(slf.as_any())
    }

    /// Return the logits as a list.
    fn tolist(&self) -> Vec<f32> {
        self.values.to_vec()
    }

    /// Return the likeliest token; the first of them, if several are.
    fn argmax(&self, py: Python<'_>) -> PyResult<u32> {
        let best = self.best(py, 1).into_iter().next();
        best.map(|(token, _)| token).ok_or_else(|| argument(py, "there are no logits"))
    }

    /// Return the `n` likeliest tokens, each with its log-probability, likeliest first.
    #[pyo3(signature = (n=10))]
    fn top(&self, py: Python<'_>, n: i128) -> PyResult<Vec<(u32, f64)>> {
        Ok(self.best(py, number(py, "n", n)?))
    }

    /// Return the log-probability of a token.
    fn logprob(&self, py: Python<'_>, token: i64) -> PyResult<f64> {
        let logprob = |id| py.detach(|| Logprobs::of(&self.values).get(Token(id)));
        let found = u32::try_from(token).ok().and_then(logprob);
        let n_vocab = self.values.len();
        found.ok_or_else(|| argument(py, format_args!("no token {token}: there are {n_vocab} tokens")))
    }

    fn __len__(&self) -> usize {
        self.values.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<f32> {
        let place = place(index, self.values.len())?;
        self.values.get(place).copied().ok_or_else(|| PyIndexError::new_err("index out of range"))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.values.iter())?.try_iter()
    }

    fn __repr__(&self) -> String {
        format!("<backstitch.Logits of {} tokens>", self.values.len())
    }
}

impl Logits {
    fn best(&self, py: Python<'_>, n: usize) -> Vec<(u32, f64)> {
        let mut best = Vec::new();
        // More than all are all.
        py.detach(|| Logprobs::of(&self.values).top(n.min(self.values.len()), &mut best));
        best.iter().map(|entry| (entry.token.0, entry.logprob)).collect()
    }
}

/// Embeddings of texts: a read-only table of floats, a row for each text.
///
/// `numpy.asarray(embeddings)` and `embeddings.numpy()` are arrays over the same memory, without a
/// copy.
#[pyclass(frozen, module = "backstitch")]
pub struct Embeddings {
    /// The rows, one after the other: `[n_rows, width]`.
    values: Vec<f32>,
    width: usize,
}

impl Embeddings {
    /// Make a table of rows of `width` floats each.
    pub fn new(values: Vec<f32>, width: usize) -> Self {
        Embeddings { values, width: width.max(1) }
    }

    fn n_rows(&self) -> usize {
        self.values.len() / self.width
    }
}

#[pymethods]
impl Embeddings {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, &self.values, self.shape())
    }

    /// The number of rows, and the number of floats in each.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.n_rows(), self.width)
    }

    /// Return the embeddings as an array of numpy, which shares their memory and is read-only.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        as_array(slf.as_any())
    }

    /// Return the embeddings as a list of lists.
    fn tolist(&self) -> Vec<Vec<f32>> {
        self.values.chunks(self.width).map(<[f32]>::to_vec).collect()
    }

    fn __len__(&self) -> usize {
        self.n_rows()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Vec<f32>> {
        let row = self.values.chunks(self.width).nth(place(index, self.n_rows())?);
        Ok(row.unwrap_or_default().to_vec())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.tolist())?.try_iter()
    }

    fn __repr__(&self) -> String {
        format!("<backstitch.Embeddings, {} of {} floats>", self.n_rows(), self.width)
    }
}
