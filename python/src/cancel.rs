//! Requests to cancel.

use pyo3::prelude::*;

/// A request to cancel, which any thread may make.
///
/// Computations that were given it end within milliseconds. A generation then ends with the finish
/// "cancelled"; other calls raise `CancelledError`. The request stays until `reset` withdraws it.
#[pyclass(frozen, module = "backstitch")]
#[derive(Default)]
pub struct Cancel {
    pub inner: backstitch_models::Cancel,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Cancel the computations that were given this object, now and until `reset`.
    fn cancel(&self) {
        self.inner.cancel();
    }

    /// Withdraw the request.
    fn reset(&self) {
        self.inner.reset();
    }

    /// True if the request was made.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }

    fn __repr__(&self) -> &'static str {
        match self.inner.is_cancelled() {
            true => "<backstitch.Cancel, cancelled>",
            false => "<backstitch.Cancel>",
        }
    }
}
