//! What lies where a command is to write.

use backstitch_models::gguf::{Access, Source};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a file that are looked at.
const FRONT: u64 = 4096;

/// First bytes of sessions, sequences and buffers of llama.cpp.
const LLAMA: [[u8; 4]; 3] = [*b"nsgg", *b"qsgg", [0xd8, 0x3c, 0x14, 0xaf]];

/// Returns true if a file that begins so is a session or a sequence of llama.cpp.
pub fn is_llama(front: &[u8]) -> bool {
    LLAMA.iter().any(|magic| front.starts_with(magic))
}

/// The key by which a packed model names the file that it was packed from.
const PACKED: &str = "backstitch.fingerprint";

/// Kinds of files, by what they begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Empty,
    State,
    LlamaState,
    PackedModel,
    Model,
    Drawing,
    Svg,
    Text,
    Other,
}

impl Found {
    /// Looks at the file at `path`.
    ///
    /// # Errors
    /// What the system says.
    pub fn at(path: &Path) -> io::Result<Self> {
        let mut front = Vec::new();
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            file => file?.take(FRONT).read_to_end(&mut front)?,
        };
        Ok(match front.as_slice() {
            [] => Self::Empty,
            front if front.starts_with(b"BSTSTATE") => Self::State,
            front if is_llama(front) => Self::LlamaState,
            front if front.starts_with(b"GGUF") && is_packed(path) => Self::PackedModel,
            front if front.starts_with(b"GGUF") => Self::Model,
            front => Self::of_text(front),
        })
    }

    fn of_text(front: &[u8]) -> Self {
        // The front of a longer file may end within a character.
        let text = match std::str::from_utf8(front) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(front.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
            }
            Err(_) => return Self::Other,
        };
        match text {
            text if text.contains(crate::picture::svg::MARK) => Self::Drawing,
            text if text.contains("<svg") => Self::Svg,
            text if text.contains('\0') => Self::Other,
            _ => Self::Text,
        }
    }
}

/// Returns true if the GGUF file was written by `pack`.
fn is_packed(path: &Path) -> bool {
    let Ok(source) = Source::open(path, Access::Map) else { return false };
    source.gguf().is_ok_and(|gguf| gguf.metadata().iter().any(|entry| entry.key == PACKED))
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Empty => "an empty file",
            Self::State => "a saved state",
            Self::LlamaState => "a state of llama.cpp",
            Self::PackedModel => "a packed model",
            Self::Model => "a model (GGUF)",
            Self::Drawing => "a drawing of `timeline`",
            Self::Svg => "an SVG file that `timeline` did not draw",
            Self::Text => "a text file",
            Self::Other => "a file of another kind",
        })
    }
}
