//! Errors of the library as exceptions of Python.
//!
//! The classes are defined in `backstitch/errors.py`, because some have two bases: what they mean
//! here, and the built-in exception that Python programs expect. Errors of files are the built-in
//! `OSError` and its subclasses.

use backstitch_models::backstitch_kv::file::{FileError, Problem};
use backstitch_models::backstitch_kv::{self, storage};
use backstitch_models::chat::ChatError;
use backstitch_models::grammar::GrammarError;
use backstitch_models::{Error, backstitch_core};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::fmt::Display;
use std::io::ErrorKind;

/// Numbers of errors of files, which are the same on every system.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;

/// A class of exceptions in `backstitch/errors.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Argument,
    Cancelled,
    Chat,
    ContextFull,
    Damaged,
    Foreign,
    Grammar,
    Internal,
    Model,
    NoToken,
    OutOfMemory,
    Sequence,
    State,
    TooManySequences,
    Unsupported,
}

impl Class {
    /// Return the name of the class, and the place where it is kept once it was looked up.
    fn entry(self) -> (&'static str, &'static PyOnceLock<Py<PyType>>) {
        macro_rules! entry {
            ($name:literal) => {{
                static FOUND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                ($name, &FOUND)
            }};
        }
        match self {
            Class::Argument => entry!("ArgumentError"),
            Class::Cancelled => entry!("CancelledError"),
            Class::Chat => entry!("ChatError"),
            Class::ContextFull => entry!("ContextFullError"),
            Class::Damaged => entry!("DamagedStateError"),
            Class::Foreign => entry!("ForeignStateError"),
            Class::Grammar => entry!("GrammarError"),
            Class::Internal => entry!("InternalError"),
            Class::Model => entry!("ModelError"),
            Class::NoToken => entry!("NoTokenError"),
            Class::OutOfMemory => entry!("OutOfMemoryError"),
            Class::Sequence => entry!("SequenceError"),
            Class::State => entry!("StateError"),
            Class::TooManySequences => entry!("TooManySequencesError"),
            Class::Unsupported => entry!("UnsupportedError"),
        }
    }

    /// Return an exception of this class.
    pub fn error(self, py: Python<'_>, text: impl Display) -> PyErr {
        let (name, found) = self.entry();
        match found.import(py, "backstitch.errors", name) {
            Ok(class) => PyErr::from_type(class.clone(), (text.to_string(),)),
            Err(error) => error,
        }
    }
}

/// Return an exception for an argument that is not possible.
pub fn argument(py: Python<'_>, text: impl Display) -> PyErr {
    Class::Argument.error(py, text)
}

/// The outcomes of calls of the library, which become values or exceptions.
pub trait OrRaise<T> {
    /// Return the value, or the exception that says the same as the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

impl<T> OrRaise<T> for Result<T, ChatError> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| class_of_chat(&error).error(py, &error))
    }
}

impl<T> OrRaise<T> for Result<T, GrammarError> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| Class::Grammar.error(py, &error))
    }
}

/// Return the exception for an error.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    match number_of(error) {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => class_of(error).error(py, error),
    }
}

/// Return the system's number of an error of files; none for other errors.
fn number_of(error: &Error) -> Option<i32> {
    match error {
        Error::Io(error) => Some(number_of_file(error)),
        Error::State(error) => number_of_state(error),
        Error::File { source, .. } => number_of(source),
        _ => None,
    }
}

fn number_of_file(error: &FileError) -> i32 {
    match &error.problem {
        Problem::Missing | Problem::Dangling => ENOENT,
        Problem::Directory => EISDIR,
        Problem::Io(error) => error.raw_os_error().unwrap_or(match error.kind() {
            ErrorKind::NotFound => ENOENT,
            ErrorKind::PermissionDenied => EACCES,
            _ => EIO,
        }),
        Problem::Shrunk { .. } => EIO,
        _ => EINVAL,
    }
}

fn number_of_state(error: &storage::Error) -> Option<i32> {
    use storage::Error as State;
    match error {
        State::File { error, .. } => Some(number_of_file(error)),
        State::SavedBeside { cause, .. } | State::NotSaved { cause, .. } => {
            Some(number_of_state(cause).unwrap_or(EIO))
        }
        State::Io(_) | State::Locked { .. } | State::NotReplaced { .. } => Some(EIO),
        _ => None,
    }
}

/// Return the class of the exception for an error that is not one of files.
fn class_of(error: &Error) -> Class {
    match error {
        Error::Cancelled => Class::Cancelled,
        Error::OutOfMemory { .. } => Class::OutOfMemory,
        Error::TooLong { .. } | Error::BeyondPositions { .. } => Class::ContextFull,
        Error::TooManySequences { .. } => Class::TooManySequences,
        Error::NoToken { .. } => Class::NoToken,
        Error::Token { .. }
        | Error::FuturePosition { .. }
        | Error::Params { .. }
        | Error::LogitBias { .. }
        | Error::Setting { .. }
        | Error::TooManySamplers { .. }
        | Error::DraftVocab { .. }
        | Error::Core(backstitch_core::Error::Threads { .. }) => Class::Argument,
        Error::Sequence { .. }
        | Error::HoldsTokens { .. }
        | Error::NoLogits { .. }
        | Error::Edited { .. }
        | Error::LastBranch { .. }
        | Error::NothingGenerated { .. }
        | Error::BranchChanged { .. } => Class::Sequence,
        Error::EncoderOnly
        | Error::NoEncoder
        | Error::NoDecoderStart
        | Error::LlamaState { .. }
        | Error::KernelSet(_) => Class::Unsupported,
        Error::NoSamplerState { .. } | Error::OtherSamplers { .. } | Error::Llama(_) => Class::State,
        Error::SavedLength { .. } | Error::SavedValue { .. } => Class::Damaged,
        Error::State(error) => class_of_state(error),
        Error::Memory(error) => class_of_memory(error),
        Error::Chat(error) => class_of_chat(error),
        Error::File { source, .. } | Error::Shard { source, .. } => class_of(source),
        Error::Core(_) | Error::Arena => Class::Internal,
        _ => Class::Model,
    }
}

fn class_of_chat(error: &ChatError) -> Class {
    match error {
        ChatError::Cancelled => Class::Cancelled,
        ChatError::Json { .. } => Class::Argument,
        _ => Class::Chat,
    }
}

fn class_of_state(error: &storage::Error) -> Class {
    use storage::Error as State;
    match error {
        State::Magic { .. }
        | State::Version { .. }
        | State::Fingerprint { .. }
        | State::Scope { .. }
        | State::UnknownRequired { .. }
        | State::Codec { .. } => Class::Foreign,
        State::OutOfMemory { .. } => Class::OutOfMemory,
        State::Memory(error) => class_of_memory(error),
        _ => Class::Damaged,
    }
}

fn class_of_memory(error: &backstitch_kv::Error) -> Class {
    use backstitch_kv::Error as Memory;
    match error {
        Memory::Full { .. } | Memory::Pinned { .. } => Class::ContextFull,
        Memory::UnknownSequence { .. } => Class::TooManySequences,
        Memory::OutOfMemory { .. } => Class::OutOfMemory,
        Memory::Mismatch { .. } | Memory::CellType { .. } | Memory::Gone { .. } => Class::Foreign,
        Memory::Snapshot { .. } => Class::Damaged,
        Memory::Unsupported { .. } => Class::Unsupported,
        Memory::Future { .. }
        | Memory::Position { .. }
        | Memory::Range { .. }
        | Memory::TooMany { .. }
        | Memory::Shape { .. } => Class::Argument,
        _ => Class::Internal,
    }
}
