//! Errors inside of [`Error`] that take more than a derived variant.

use super::Error;
use crate::adapter::AdapterError;
use alloc::boxed::Box;
use core::fmt;

/// The failure of a stream that a model is read from.
///
/// The message contains that of the error inside, so [`source`](core::error::Error::source)
/// continues behind it.
#[derive(Debug)]
pub struct StreamError(pub backstitch_kv::io::Error);

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model cannot be read from the stream: {}", self.0)
    }
}

impl core::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<AdapterError> for Error {
    fn from(error: AdapterError) -> Self {
        Self::Adapter(Box::new(error))
    }
}

impl From<crate::llama_files::Error> for Error {
    fn from(error: crate::llama_files::Error) -> Self {
        Self::Llama(Box::new(error))
    }
}

impl From<backstitch_core::pool::Panicked> for Error {
    fn from(error: backstitch_core::pool::Panicked) -> Self {
        Self::Core(error.into())
    }
}
