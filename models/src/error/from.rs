//! Conversions of other errors into [`Error`](super::Error), and the chain of sources.

use super::Error;
use crate::adapter::AdapterError;
use crate::vocab::error::VocabError;
use alloc::boxed::Box;

#[cfg(feature = "chat")]
use crate::chat::error::ChatError;

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        // The message of `self` already contains that of the error inside, so the chain continues
        // behind it.
        match self {
            Self::Shard { source, .. } => source.source(),
            Self::Core(source) => source.source(),
            Self::KernelSet(source) => source.source(),
            Self::Memory(source) => source.source(),
            Self::State(source) => source.source(),
            Self::Llama(source) => source.source(),
            Self::Adapter(source) => source.source(),
            Self::Stream(source) => source.source(),
            Self::Vocab(source) => source.source(),
            #[cfg(feature = "chat")]
            Self::Chat(source) => source.source(),
            #[cfg(feature = "std")]
            Self::Io(source) => source.source(),
            #[cfg(feature = "std")]
            Self::File { source, .. } => source.source(),
            _ => None,
        }
    }
}

#[cfg(feature = "chat")]
impl From<ChatError> for Error {
    fn from(error: ChatError) -> Self {
        Self::Chat(error)
    }
}

impl From<AdapterError> for Error {
    fn from(error: AdapterError) -> Self {
        Self::Adapter(Box::new(error))
    }
}

impl From<VocabError> for Error {
    fn from(error: VocabError) -> Self {
        Self::Vocab(error)
    }
}

impl From<backstitch_core::Error> for Error {
    fn from(error: backstitch_core::Error) -> Self {
        Self::Core(error)
    }
}

impl From<backstitch_core::SetUnavailable> for Error {
    fn from(error: backstitch_core::SetUnavailable) -> Self {
        Self::KernelSet(error)
    }
}

impl From<backstitch_core::pool::Panicked> for Error {
    fn from(error: backstitch_core::pool::Panicked) -> Self {
        Self::Core(error.into())
    }
}

impl From<backstitch_kv::Error> for Error {
    fn from(error: backstitch_kv::Error) -> Self {
        Self::Memory(error)
    }
}

impl From<crate::llama_files::Error> for Error {
    fn from(error: crate::llama_files::Error) -> Self {
        Self::Llama(Box::new(error))
    }
}

impl From<backstitch_kv::storage::Error> for Error {
    fn from(error: backstitch_kv::storage::Error) -> Self {
        Self::State(error)
    }
}

#[cfg(feature = "std")]
impl From<backstitch_kv::file::FileError> for Error {
    fn from(error: backstitch_kv::file::FileError) -> Self {
        Self::Io(error)
    }
}
