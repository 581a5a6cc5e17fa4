//! What can go wrong when a model is opened and used.
//!
//! One enum for the crate. Every variant says what was being read, where it lies (byte offset in the file), what was
//! found and what was wanted; the text ends with the way out where there is one. The variants stand in groups: the
//! file as a whole, its metadata, its tensors, look-ups by name, files on disk, lower layers. Names that came from a file
//! are printed escaped and shortened, because whoever wrote the file chose them.

use alloc::boxed::Box;
use core::fmt;

use crate::gguf::ValueType;
use crate::vocab::VocabError;

/// An error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    // The file as a whole.
    /// The file does not start with `GGUF`.
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The format version is not one this reader knows (2 and 3).
    Version {
        /// The version the file states.
        found: u32,
    },
    /// The file was written for big-endian machines.
    BigEndian {
        /// The version the file states, in its own byte order.
        version: u32,
    },
    /// The file ends inside something.
    Truncated {
        /// What was being read.
        place: Place,
        /// Its name, or its number in the file as `#17` when the name is not known yet; empty for the header.
        name: Box<str>,
        /// Where the missing bytes should start.
        offset: u64,
        /// How many bytes are needed there.
        need: u64,
        /// How many bytes are left there.
        have: u64,
    },
    /// A count is larger than the length of the file can hold.
    TooMany {
        /// What is counted: keys, tensors, or the elements of the named value.
        place: Place,
        /// The name of the value; empty for keys and tensors.
        name: Box<str>,
        /// Where the count is stored.
        offset: u64,
        /// The count.
        found: u64,
        /// The largest count the rest of the file can hold.
        limit: u64,
    },
    /// Text is not valid UTF-8.
    Utf8 {
        /// What was being read.
        place: Place,
        /// Its name, or its number in the file as `#17`.
        name: Box<str>,
        /// Where the first wrong byte is.
        offset: u64,
    },
    /// A key or a tensor appears twice.
    Duplicate {
        /// `Key` or `Tensor`.
        place: Place,
        /// The name both share.
        name: Box<str>,
        /// Where the second one starts.
        offset: u64,
    },
    /// A name is empty or longer than the format allows.
    NameLength {
        /// `Key` or `Tensor`.
        place: Place,
        /// Its number in the file as `#17`.
        name: Box<str>,
        /// Where the length is stored.
        offset: u64,
        /// The length in bytes.
        found: u64,
        /// The longest allowed.
        limit: u64,
    },

    // Metadata.
    /// A value has a type number that GGUF does not define.
    ValueType {
        /// The key.
        key: Box<str>,
        /// Where the type is stored.
        offset: u64,
        /// The type number.
        found: u32,
    },
    /// A boolean is neither 0 nor 1.
    Bool {
        /// The key.
        key: Box<str>,
        /// Where the byte is.
        offset: u64,
        /// The byte.
        found: u8,
    },
    /// An array holds arrays; no model needs that, and it would allow unbounded depth.
    NestedArray {
        /// The key.
        key: Box<str>,
        /// Where the element type is stored.
        offset: u64,
    },
    /// `general.alignment` is not a power of two.
    Alignment {
        /// Where the value is stored.
        offset: u64,
        /// The value.
        found: u64,
    },
    /// A key that the model needs is missing.
    MissingKey {
        /// The key.
        key: Box<str>,
    },
    /// A key has a value of another type.
    WrongType {
        /// The key.
        key: Box<str>,
        /// Where the value is stored.
        offset: u64,
        /// The type in the file.
        found: ValueType,
        /// What was asked for, as in "an array of strings".
        wanted: &'static str,
    },
    /// A number does not fit the type asked for.
    OutOfRange {
        /// The key.
        key: Box<str>,
        /// Where the value is stored.
        offset: u64,
        /// The number, as text.
        found: Box<str>,
        /// The type asked for.
        wanted: ValueType,
    },
    /// An array has another length than the model needs.
    Length {
        /// The key.
        key: Box<str>,
        /// Its length.
        found: u64,
        /// The length the model needs.
        wanted: u64,
    },

    // Tensors.
    /// A tensor has no or too many dimensions.
    Rank {
        /// The tensor.
        tensor: Box<str>,
        /// Where the number of dimensions is stored.
        offset: u64,
        /// The number of dimensions; 1 to 4 are allowed.
        found: u32,
    },
    /// A dimension of a tensor is zero.
    ZeroDim {
        /// The tensor.
        tensor: Box<str>,
        /// Where the dimension is stored.
        offset: u64,
    },
    /// The size of a tensor overflows.
    TensorTooLarge {
        /// The tensor.
        tensor: Box<str>,
        /// Where the description of the tensor starts.
        offset: u64,
    },
    /// A tensor has an element type this reader does not know.
    TensorType {
        /// The tensor.
        tensor: Box<str>,
        /// Where the type is stored.
        offset: u64,
        /// The type number.
        found: u32,
    },
    /// The rows of a tensor do not consist of whole blocks of its format.
    PartialBlock {
        /// The tensor.
        tensor: Box<str>,
        /// Where the description of the tensor starts.
        offset: u64,
        /// Elements in a row.
        found: u64,
        /// Elements in a block.
        wanted: u64,
    },
    /// The data of a tensor does not start at a multiple of the file's alignment.
    Misaligned {
        /// The tensor.
        tensor: Box<str>,
        /// Where the position of its data is stored.
        offset: u64,
        /// The position, from the start of the data section.
        found: u64,
        /// The alignment.
        wanted: u64,
    },
    /// The data of two tensors overlaps.
    Overlap {
        /// The tensor that starts later.
        tensor: Box<str>,
        /// The tensor that starts earlier.
        other: Box<str>,
        /// Where the data of the later one starts.
        offset: u64,
    },
    /// The data given for a tensor has another length than its shape and type ask for.
    TensorBytes {
        /// The tensor.
        tensor: Box<str>,
        /// The bytes given.
        found: u64,
        /// The bytes needed.
        wanted: u64,
    },
    /// A tensor that the model needs is missing.
    MissingTensor {
        /// The tensor.
        tensor: Box<str>,
    },
    /// A tensor has another shape than the model needs.
    Shape {
        /// The tensor.
        tensor: Box<str>,
        /// Both shapes, outermost dimension first.
        shapes: Box<Shapes>,
    },

    /// A tensor that is used as a weight holds integers.
    NotWeights {
        /// The tensor.
        tensor: Box<str>,
        /// Its element type.
        found: backstitch_core::DType,
    },

    // What the file describes.
    /// The architecture is not one of those offered.
    Architecture {
        /// The name in the file.
        found: Box<str>,
    },
    /// A number that describes the model makes no sense.
    Hparam {
        /// The key.
        key: Box<str>,
        /// Its value.
        found: Box<str>,
        /// What would make sense.
        wanted: &'static str,
    },

    // Use of a model.
    /// A token is not in the vocabulary.
    Token {
        /// Where in the batch.
        index: usize,
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// A sequence was named that does not exist.
    Sequence {
        /// The sequence.
        seq: u32,
    },
    /// All sequences of a context are in use.
    TooManySequences {
        /// How many there are.
        limit: u32,
    },
    /// A position lies beyond the end of a sequence.
    FuturePosition {
        /// The position.
        pos: i32,
        /// The end of the sequence.
        end: i32,
    },
    /// A sequence was edited in its middle, so its tokens cannot be evaluated again from the start.
    Edited {
        /// The sequence.
        seq: u32,
    },
    /// Parameters of a context that cannot be.
    Params {
        /// Which parameter.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What is possible.
        wanted: &'static str,
    },
    /// An allocation was refused.
    OutOfMemory {
        /// What it was for.
        what: &'static str,
        /// Its size.
        n_bytes: u64,
    },
    /// A weight was used as what it is not.
    NoExpert {
        /// The matrix asked for.
        expert: usize,
    },
    /// A graph uses a layer for what its memory does not keep: an error of the architecture's description.
    NoLayer {
        /// The layer.
        layer: usize,
    },
    /// Values of a graph overlap in the arena: an error of the planner.
    Arena,
    /// The environment asks for a kernel set that cannot be had.
    KernelSet(backstitch_core::isa::SetUnavailable),
    /// A job of the thread pool panicked.
    Panicked(backstitch_core::pool::Panicked),
    /// The memory refused.
    Memory(backstitch_kv::Error),

    // Models in several files.
    /// The parts of a split model do not belong together.
    Split {
        /// The key that disagrees.
        key: &'static str,
        /// What the file says; `None` when the key is missing.
        found: Option<u64>,
        /// What the other parts or the file names ask for.
        wanted: u64,
    },
    /// An error inside one part of a split model.
    Part {
        /// The part, from 0.
        part: usize,
        /// What is wrong there; its offset counts from the start of that part.
        source: Box<Error>,
    },
    /// A split model was opened without all of its parts.
    Parts {
        /// The number of parts at hand.
        found: u64,
        /// The number of parts the model has.
        wanted: u64,
    },

    // Lower layers.
    /// A computation was refused.
    Core(backstitch_core::Error),
    /// The vocabulary cannot be used.
    Vocab(VocabError),

    // Files on disk.
    /// A file could not be opened or read.
    #[cfg(feature = "std")]
    Io(backstitch_kv::file::FileError),
    /// An error inside a file.
    #[cfg(feature = "std")]
    File {
        /// The path of the file.
        path: Box<std::path::Path>,
        /// What is wrong there.
        source: Box<Error>,
    },
}

/// What a reader was reading when it met an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Magic, version and counts.
    Header,
    /// The key of a metadata entry.
    Key,
    /// The value of a metadata entry.
    Value,
    /// The description of a tensor.
    Tensor,
    /// The data of a tensor.
    Data,
}

/// The two shapes of [`Error::Shape`], outermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// The shape in the file.
    pub found: Box<[usize]>,
    /// The shape the model needs.
    pub wanted: Box<[usize]>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic { found } => {
                write!(f, "not a GGUF file: it starts with \"{}\", not \"GGUF\"", found.escape_ascii())
            }
            Self::Version { found } => {
                write!(
                    f,
                    "GGUF version {found} is not supported; versions 2 and 3 are, convert the model again"
                )
            }
            Self::BigEndian { version } => {
                write!(
                    f,
                    "the file is GGUF version {version} in big-endian order; convert it to little-endian"
                )
            }
            Self::Truncated { place, name, offset, need, have } => {
                let part = if *place == Place::Tensor { "the description of " } else { "" };
                let subject = Subject(*place, name);
                write!(f, "file is truncated in {part}{subject}: {need} bytes needed at offset {offset}, ")?;
                write!(f, "{have} left; get the file again")
            }
            Self::TooMany { place, name, offset, found, limit } => write!(
                f,
                "{found} {} at offset {offset} do not fit the file, the rest of it holds at most {limit}; get the file again",
                Counted(*place, name)
            ),
            Self::Utf8 { place, name, offset } => {
                write!(f, "{} is not valid UTF-8 at offset {offset}", Subject(*place, name))
            }
            Self::Duplicate { place, name, offset } => {
                write!(f, "{} appears a second time at offset {offset}", Subject(*place, name))
            }
            Self::NameLength { place, name, offset, found, limit } => write!(
                f,
                "the name of {} at offset {offset} is {found} bytes long; 1 to {limit} are allowed",
                Subject(*place, name)
            ),
            Self::ValueType { key, offset, found } => {
                write!(f, "key {} has unknown type {found} at offset {offset}", Quoted(key))
            }
            Self::Bool { key, offset, found } => {
                write!(f, "key {} holds the boolean {found} at offset {offset}, not 0 or 1", Quoted(key))
            }
            Self::NestedArray { key, offset } => {
                write!(
                    f,
                    "key {} holds an array of arrays at offset {offset}, which no model needs",
                    Quoted(key)
                )
            }
            Self::Alignment { offset, found } => {
                write!(f, "\"general.alignment\" is {found} at offset {offset}, not a power of two")
            }
            Self::MissingKey { key } => write!(f, "key {} is missing", Quoted(key)),
            Self::WrongType { key, offset, found, wanted } => {
                write!(f, "key {} at offset {offset} is of type {found}, not {wanted}", Quoted(key))
            }
            Self::OutOfRange { key, offset, found, wanted } => {
                write!(f, "key {} at offset {offset} is {found}, which does not fit {wanted}", Quoted(key))
            }
            Self::Length { key, found, wanted } => {
                write!(f, "key {} has {found} elements, not {wanted}", Quoted(key))
            }
            Self::Rank { tensor, offset, found } => {
                write!(f, "tensor {} has {found} dimensions at offset {offset}, not 1 to 4", Quoted(tensor))
            }
            Self::ZeroDim { tensor, offset } => {
                write!(f, "tensor {} has a dimension of zero at offset {offset}", Quoted(tensor))
            }
            Self::TensorTooLarge { tensor, offset } => {
                write!(f, "tensor {} at offset {offset} is larger than memory can address", Quoted(tensor))
            }
            Self::TensorType { tensor, offset, found } => write!(
                f,
                "tensor {} has element type {found} at offset {offset}, which is not supported; quantise the model again",
                Quoted(tensor)
            ),
            Self::PartialBlock { tensor, offset, found, wanted } => write!(
                f,
                "tensor {} at offset {offset} has rows of {found} elements, not a multiple of its block of {wanted}",
                Quoted(tensor)
            ),
            Self::Misaligned { tensor, offset, found, wanted } => write!(
                f,
                "tensor {} has its data at {found} (stored at offset {offset}), not a multiple of {wanted}",
                Quoted(tensor)
            ),
            Self::Overlap { tensor, other, offset } => write!(
                f,
                "the data of tensor {} at offset {offset} overlaps that of {}",
                Quoted(tensor),
                Quoted(other)
            ),
            Self::TensorBytes { tensor, found, wanted } => {
                write!(f, "tensor {} needs {wanted} bytes of data, {found} were given", Quoted(tensor))
            }
            Self::MissingTensor { tensor } => write!(f, "tensor {} is missing", Quoted(tensor)),
            Self::Shape { tensor, shapes } => write!(
                f,
                "tensor {} has shape {:?}, not {:?} (outermost dimension first)",
                Quoted(tensor),
                shapes.found,
                shapes.wanted
            ),
            Self::Split { key, found: Some(found), wanted } => {
                write!(f, "{key} is {found}, not {wanted}; use the parts of one and the same model")
            }
            Self::Split { key, found: None, wanted } => {
                write!(f, "{key} is missing, it should be {wanted}; use the parts of one and the same model")
            }
            Self::Part { part, source } => {
                write!(f, "part {} of the model: {source}", part.saturating_add(1))
            }
            Self::Parts { found, wanted } => write!(
                f,
                "the model has {wanted} parts, {found} at hand; keep them together, named like \
                 model-00001-of-{wanted:05}.gguf"
            ),
            Self::NotWeights { tensor, found } => {
                write!(f, "tensor {} holds {found}, which are no weights", Quoted(tensor))
            }
            Self::Architecture { found } => write!(
                f,
                "architecture {} is not supported; `falcon-h1`, `llama`, `qwen2` and `qwen3` are",
                Quoted(found)
            ),
            Self::Hparam { key, found, wanted } => {
                write!(f, "key {} is {}, not {wanted}", Quoted(key), Quoted(found))
            }
            Self::Token { index, token, n_vocab } => {
                write!(f, "token {token} at index {index} is not in the vocabulary of {n_vocab}")
            }
            Self::Sequence { seq } => write!(f, "sequence {seq} does not exist"),
            Self::TooManySequences { limit } => {
                write!(f, "all {limit} sequences are in use; release one or raise n_seq_max")
            }
            Self::FuturePosition { pos, end } => {
                write!(f, "position {pos} lies beyond the end of the sequence at {end}")
            }
            Self::Edited { seq } => write!(
                f,
                "sequence {seq} was edited in its middle and keeps no earlier state; clear it and start again"
            ),
            Self::Params { what, found, wanted } => write!(f, "{what} is {found}, not {wanted}"),
            Self::OutOfMemory { what, n_bytes } => {
                write!(f, "out of memory: {n_bytes} bytes for {what}")
            }
            Self::NoExpert { expert } => write!(f, "the weight has no matrix number {expert}"),
            Self::NoLayer { layer } => {
                write!(f, "layer {layer} does not keep what it needs; please report this")
            }
            Self::Arena => f.write_str("the arena's plan is wrong; please report this"),
            Self::KernelSet(error) => error.fmt(f),
            Self::Panicked(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Core(error) => error.fmt(f),
            Self::Vocab(error) => error.fmt(f),
            #[cfg(feature = "std")]
            Self::Io(error) => error.fmt(f),
            #[cfg(feature = "std")]
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Part { source, .. } => Some(source.as_ref()),
            Self::Core(source) => Some(source),
            Self::KernelSet(source) => Some(source),
            Self::Panicked(source) => Some(source),
            Self::Memory(source) => Some(source),
            Self::Vocab(source) => Some(source),
            #[cfg(feature = "std")]
            Self::Io(source) => Some(source),
            #[cfg(feature = "std")]
            Self::File { source, .. } => Some(source.as_ref()),
            _ => None,
        }
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
        Self::Panicked(error)
    }
}

impl From<backstitch_kv::Error> for Error {
    fn from(error: backstitch_kv::Error) -> Self {
        Self::Memory(error)
    }
}

#[cfg(feature = "std")]
impl From<backstitch_kv::file::FileError> for Error {
    fn from(error: backstitch_kv::file::FileError) -> Self {
        Self::Io(error)
    }
}

/// A name from a file in quotes: control characters escaped, cut after 96 characters.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(96).map_or(self.0.len(), |(at, _)| at);
        let (shown, rest) = self.0.split_at(end);
        write!(f, "\"{}{}\"", shown.escape_debug(), if rest.is_empty() { "" } else { "…" })
    }
}

/// A place and the name of what is there, as in "the value of key "a.b"".
struct Subject<'a>(Place, &'a str);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            Place::Header => return f.write_str("the header"),
            Place::Key => "key",
            Place::Value => "the value of key",
            Place::Tensor => "tensor",
            Place::Data => "the data of tensor",
        };
        if self.1.starts_with('#') {
            write!(f, "{what} {}", self.1.escape_debug())
        } else {
            write!(f, "{what} {}", Quoted(self.1))
        }
    }
}

/// What is counted at a place.
struct Counted<'a>(Place, &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Key | Place::Header => f.write_str("keys"),
            Place::Tensor | Place::Data => f.write_str("tensors"),
            Place::Value => write!(f, "elements of key {}", Quoted(self.1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    }

    #[test]
    fn texts_say_where_what_was_found_and_what_was_wanted() {
        let cases: [(Error, &str); 6] = [
            (
                Error::Truncated { place: Place::Value, name: "a.b".into(), offset: 30, need: 8, have: 3 },
                "file is truncated in the value of key \"a.b\": 8 bytes needed at offset 30, 3 left; get the file again",
            ),
            (
                Error::TooMany { place: Place::Tensor, name: "".into(), offset: 8, found: 1 << 60, limit: 7 },
                "1152921504606846976 tensors at offset 8 do not fit the file, the rest of it holds at most 7; get the file again",
            ),
            (
                Error::Utf8 { place: Place::Key, name: "#17".into(), offset: 99 },
                "key #17 is not valid UTF-8 at offset 99",
            ),
            (
                Error::WrongType {
                    key: "llama.block_count".into(),
                    offset: 24,
                    found: ValueType::Str,
                    wanted: "an integer",
                },
                "key \"llama.block_count\" at offset 24 is of type string, not an integer",
            ),
            (
                Error::Shape {
                    tensor: "output.weight".into(),
                    shapes: Box::new(Shapes { found: [2, 3].into(), wanted: [3, 2].into() }),
                },
                "tensor \"output.weight\" has shape [2, 3], not [3, 2] (outermost dimension first)",
            ),
            (
                Error::Part { part: 1, source: Box::new(Error::Magic { found: *b"\0ggu" }) },
                "part 2 of the model: not a GGUF file: it starts with \"\\x00ggu\", not \"GGUF\"",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn names_from_files_cannot_take_over_the_terminal() {
        let name = String::from("\u{1b}[2J") + &"x".repeat(1000);
        let text = Error::MissingKey { key: name.into() }.to_string();
        assert!(text.starts_with("key \"\\u{1b}[2Jxxx") && text.ends_with("x…\" is missing"), "{text}");
        assert!(text.len() < 140, "{}", text.len());
    }
}
