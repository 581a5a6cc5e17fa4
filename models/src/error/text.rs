//! The texts of errors.

use core::fmt;

use super::{Error, Place};

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
            Self::PackedVersion { tensor, offset, found, wanted } => write!(
                f,
                "tensor {} is packed in layout {found}, at offset {offset}, and this program reads layout {wanted}; pack the original model again: backstitch pack ORIGINAL.gguf OUT.gguf",
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
            Self::PackedRows { tensor } => write!(
                f,
                "tensor {} is packed for another use than this model's; pack the original file again",
                Quoted(tensor)
            ),
            Self::NotWeights { tensor, found } => {
                write!(f, "tensor {} holds {found}, which are no weights", Quoted(tensor))
            }
            Self::Architecture { found, known } => {
                write!(f, "architecture {} is not supported; known are {}", Quoted(found), known.join(", "))
            }
            Self::Hparam { key, found, wanted } => {
                write!(f, "key {} is {}, not {wanted}", Quoted(key), Quoted(found))
            }
            Self::BeyondPositions { pos, n_pos } => {
                write!(f, "position {pos} is beyond the {n_pos} that the model knows; shorten the text")
            }
            Self::Token { index, token, n_vocab } => {
                write!(f, "token {token} at index {index} is not in the vocabulary of {n_vocab}")
            }
            Self::EncoderOnly => {
                f.write_str("this model makes embeddings and no text; use encode, and its embeddings")
            }
            Self::NoEncoder => f.write_str("this model has no encoder; use decode"),
            Self::HoldsTokens { seq } => {
                write!(f, "sequence {seq} holds tokens that saw another text; roll it back to 0 first")
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
            Self::Cancelled => f.write_str("cancelled; everything is as it was before"),
            Self::Params { what, found, wanted } => write!(f, "{what} is {found}, not {wanted}"),
            Self::OutOfMemory { what, n_bytes } => {
                write!(f, "out of memory: {n_bytes} bytes for {what}")
            }
            Self::ModelTooLarge { limit } => {
                write!(f, "the model is longer than the {limit} bytes that it was allowed; allow it more")
            }
            Self::Stream(error) => write!(f, "the model cannot be read: {error}"),
            Self::NoLogits { seq } => {
                write!(f, "sequence {seq} has no logits to go on from; append a token first")
            }
            Self::TooLong { n_tokens, n_ctx } => {
                write!(
                    f,
                    "{n_tokens} tokens do not fit a context of {n_ctx}; raise n_ctx or shorten the text"
                )
            }
            Self::LastBranch { seq } => {
                write!(f, "sequence {seq} is the last branch of the session; roll it back to 0 to empty it")
            }
            Self::NothingGenerated { seq } => {
                write!(f, "nothing was generated in sequence {seq} that could come again; generate first")
            }
            Self::NoDecoderStart => {
                f.write_str("this model names no token for its decoder to start from; convert it again")
            }
            Self::NoToken { seq } => {
                write!(f, "no token is left to continue sequence {seq} with: all are banned; ban fewer")
            }
            Self::LogitBias { token, n_vocab } => {
                let last = n_vocab.saturating_sub(1);
                write!(
                    f,
                    "token {token} has a bias and does not exist; this vocabulary has tokens 0 to {last}"
                )
            }
            Self::NoSamplerState { index } => write!(
                f,
                "sampler {index} of the chain has a state, and none was saved for it; \
                 give all tokens of the sequence, or the samplers that it was saved with"
            ),
            Self::OtherSamplers { index } => write!(
                f,
                "a state was saved for sampler {index}, and this chain has no sampler with a state there; \
                 give the samplers that it was saved with"
            ),
            Self::SavedLength { what, found, wanted } => {
                write!(f, "{what} has {found} bytes, not {wanted}; it is damaged, save it again")
            }
            Self::SavedValue { what, offset, found, wanted } => {
                write!(
                    f,
                    "{what} has {found} at offset {offset}, not {wanted}; it is damaged or of another release"
                )
            }
            Self::DraftVocab { what, found, wanted } => write!(
                f,
                "the draft model has another vocabulary: {what} is {}, not {}; use one of the same family",
                Quoted(found),
                Quoted(wanted)
            ),
            Self::NoExpert { expert } => write!(f, "the weight has no matrix number {expert}"),
            Self::NoLayer { layer } => {
                write!(f, "layer {layer} does not keep what it needs; please report this")
            }
            Self::Arena => f.write_str("the arena's plan is wrong; please report this"),
            Self::KernelSet(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Llama(error) => error.fmt(f),
            Self::LlamaState { architecture } => {
                write!(f, "llama.cpp's state files are not supported for architecture {architecture:?}")
            }
            Self::Core(error) => error.fmt(f),
            Self::Vocab(error) => error.fmt(f),
            #[cfg(feature = "chat")]
            Self::Chat(error) => error.fmt(f),
            #[cfg(feature = "std")]
            Self::Io(error) => error.fmt(f),
            #[cfg(feature = "std")]
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
        }
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
    use alloc::boxed::Box;
    use alloc::string::{String, ToString};

    use super::*;
    use crate::error::Shapes;
    use crate::gguf::ValueType;

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
