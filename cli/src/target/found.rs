//! Kinds of files, recognised by their first bytes.
//!
//! Names and extensions say nothing reliable, so they are never looked at. Knowing what a file is
//! serves two purposes: a command replaces only files of the kind that it writes, and a file that
//! was given to the wrong command gets an error that names the right one.

use backstitch_models::gguf::{Access, Source};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Number of bytes that are read to recognise a file.
const FRONT: u64 = 4096;

/// First bytes of session, sequence and buffer files of llama.cpp.
const LLAMA: [[u8; 4]; 3] = [*b"nsgg", *b"qsgg", [0xd8, 0x3c, 0x14, 0xaf]];

/// Return true if a file with this beginning is a session or sequence file of llama.cpp.
pub fn is_llama(front: &[u8]) -> bool {
    LLAMA.iter().any(|magic| front.starts_with(magic))
}

/// Metadata key that packed models have, and no others.
const PACKED: &str = "backstitch.fingerprint";

/// A kind of file that a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A saved state of this program.
    State,
    /// A session or sequence file of llama.cpp.
    LlamaState,
    /// A GGUF file in llama.cpp's layout, or one that cannot be read.
    Model,
    /// A GGUF file that `pack` wrote.
    PackedModel,
    /// An importance matrix (GGUF) of `imatrix` or llama.cpp.
    Imatrix,
    /// An SVG drawing of `timeline`.
    Drawing,
    /// Probabilities of a base model, of `perplexity` or llama.cpp.
    Probabilities,
}

/// A finding at a path: a kind of file, or none.
///
/// Commands compare it with the kind that they write or read; its text, "a saved state", is for
/// errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no file.
    Nothing,
    /// A file without a byte.
    Empty,
    /// A file of a kind that a command writes.
    Is(Kind),
    /// An SVG file that is no drawing of `timeline`.
    Svg,
    /// Another file of UTF-8 text.
    Text,
    /// A file of another kind.
    Other,
}

impl Kind {
    /// Recognise a GGUF file by its metadata. One that cannot be read counts as a model, which
    /// nothing else replaces: of two mistakes, refusing to write is the smaller one.
    fn of_gguf(path: &Path) -> Self {
        let Ok(source) = Source::open(path, Access::Map) else { return Self::Model };
        let Ok(gguf) = source.gguf() else { return Self::Model };
        match gguf.metadata() {
            entries if entries.iter().any(|entry| entry.key == PACKED) => Self::PackedModel,
            _ if gguf.optional("general.type").is_ok_and(|kind| kind == Some("imatrix")) => Self::Imatrix,
            _ => Self::Model,
        }
    }
}

impl Found {
    /// Recognise the file at `path`.
    ///
    /// # Errors
    /// The error of the operating system if the file cannot be read.
    pub fn at(path: &Path) -> io::Result<Self> {
        let mut front = Vec::new();
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            file => file?.take(FRONT).read_to_end(&mut front)?,
        };
        Ok(match front.as_slice() {
            [] => Self::Empty,
            front if front.starts_with(b"BSTSTATE") => Self::Is(Kind::State),
            front if is_llama(front) => Self::Is(Kind::LlamaState),
            front if front.starts_with(b"_logits_") => Self::Is(Kind::Probabilities),
            front if front.starts_with(b"GGUF") => Self::Is(Kind::of_gguf(path)),
            front => Self::of_text(front),
        })
    }

    /// Recognise a file by its first bytes as text.
    fn of_text(front: &[u8]) -> Self {
        let mut chunks = front.utf8_chunks();
        let first = chunks.next();
        let text = first.as_ref().map_or("", |chunk| chunk.valid());
        // The bytes that were read may end within a character; other invalid bytes are no text.
        let is_cut = |chunk: &std::str::Utf8Chunk<'_>| matches!(std::str::from_utf8(chunk.invalid()), Err(error) if error.error_len().is_none());
        let is_text = first.is_none_or(|chunk| chunk.invalid().is_empty() || is_cut(&chunk));
        if !is_text || chunks.next().is_some() {
            return Self::Other;
        }
        match text {
            text if text.contains(crate::picture::svg::MARK) => Self::Is(Kind::Drawing),
            text if text.contains("<svg") => Self::Svg,
            text if text.contains('\0') => Self::Other,
            _ => Self::Text,
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Empty => "an empty file",
            Self::Is(Kind::State) => "a saved state",
            Self::Is(Kind::LlamaState) => "a state of llama.cpp",
            Self::Is(Kind::PackedModel) => "a packed model",
            Self::Is(Kind::Imatrix) => "an importance matrix",
            Self::Is(Kind::Model) => "a model (GGUF)",
            Self::Is(Kind::Drawing) => "a drawing of `timeline`",
            Self::Is(Kind::Probabilities) => "a file of probabilities",
            Self::Svg => "an SVG file that `timeline` did not draw",
            Self::Text => "a text file",
            Self::Other => "a file of another kind",
        })
    }
}
