//! Errors of lower layers, and of other modules, inside those of the crate.

use super::Error;
use crate::vocab::VocabError;
use alloc::boxed::Box;

#[cfg(feature = "chat")]
use crate::chat::ChatError;

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        // The text has that of the error inside, so the chain goes on behind it.
        match self {
            Self::Part { source, .. } => source.source(),
            Self::Core(source) => source.source(),
            Self::KernelSet(source) => source.source(),
            Self::Memory(source) => source.source(),
            Self::State(source) => source.source(),
            Self::Llama(source) => source.source(),
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

impl From<backstitch_core::isa::SetUnavailable> for Error {
    fn from(error: backstitch_core::isa::SetUnavailable) -> Self {
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

impl From<backstitch_kv::state::llama::Error> for Error {
    fn from(error: backstitch_kv::state::llama::Error) -> Self {
        Self::Llama(Box::new(error))
    }
}

impl From<backstitch_kv::state::Error> for Error {
    fn from(error: backstitch_kv::state::Error) -> Self {
        Self::State(error)
    }
}

#[cfg(feature = "std")]
impl From<backstitch_kv::file::FileError> for Error {
    fn from(error: backstitch_kv::file::FileError) -> Self {
        Self::Io(error)
    }
}
