//! The messages of errors.
//!
//! A message names the thing and its byte offset, what was found, what was wanted, and, after a
//! semicolon, what to do. Counts agree with their nouns ([`Count`]), and names from files are
//! escaped ([`Quoted`]).

use core::fmt;

use super::{Error, Region};

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic { found } => {
                write!(
                    f,
                    "not a GGUF file: it starts with \"{}\", not \"GGUF\"; give the path of a GGUF file",
                    found.escape_ascii()
                )
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
            Self::Truncated { region, name, offset, need, have } => {
                let table = if *region == Region::Tensor { "the description of " } else { "" };
                let subject = Subject(*region, name);
                write!(
                    f,
                    "file is truncated in {table}{subject}: {} needed at offset {offset}, ",
                    Count(*need, "byte")
                )?;
                write!(f, "{have} left; get the file again")
            }
            Self::TooMany { region, name, offset, found, limit } => write!(
                f,
                "{found} {} at offset {offset} do not fit the file, the rest of it holds at most {limit}; get the file again",
                Counted(*region, name)
            ),
            Self::Utf8 { region, name, offset } => {
                write!(
                    f,
                    "{} is not valid UTF-8 at offset {offset}; convert the model again",
                    Subject(*region, name)
                )
            }
            Self::Duplicate { region, name, offset } => {
                write!(
                    f,
                    "{} appears a second time at offset {offset}; names must be unique",
                    Subject(*region, name)
                )
            }
            Self::NameLength { region, name, offset, found, limit } => write!(
                f,
                "the name of {} at offset {offset} is {} long; 1 to {limit} are allowed",
                Subject(*region, name),
                Count(*found, "byte")
            ),
            Self::ValueType { key, offset, found } => {
                write!(
                    f,
                    "key {} has unknown type {found} at offset {offset}; convert the model again",
                    Quoted(key)
                )
            }
            Self::Bool { key, offset, found } => {
                write!(
                    f,
                    "key {} holds the boolean {found} at offset {offset}, not 0 or 1; convert the model again",
                    Quoted(key)
                )
            }
            Self::NestedArray { key, offset } => {
                write!(
                    f,
                    "key {} holds an array of arrays at offset {offset}, which no model needs; convert the model again",
                    Quoted(key)
                )
            }
            Self::Alignment { offset, found } => {
                write!(f, "\"general.alignment\" is {found} at offset {offset}, not a power of two")
            }
            Self::MissingKey { key } => write!(f, "key {} is missing; convert the model again", Quoted(key)),
            Self::WrongType { key, offset, found, wanted } => {
                write!(f, "key {} at offset {offset} is of type {found}, not {wanted}", Quoted(key))
            }
            Self::OutOfRange { key, offset, found, wanted } => {
                write!(f, "key {} at offset {offset} is {found}, which does not fit {wanted}", Quoted(key))
            }
            Self::Length { key, found, wanted } => {
                write!(f, "key {} has {}, not {wanted}", Quoted(key), Count(*found, "element"))
            }
            Self::Rank { tensor, offset, found } => {
                write!(
                    f,
                    "tensor {} has {} at offset {offset}, not 1 to 4",
                    Quoted(tensor),
                    Count(u64::from(*found), "dimension")
                )
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
                "tensor {} at offset {offset} has rows of {}, not a multiple of its block of {wanted}",
                Quoted(tensor),
                Count(*found, "element")
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
                write!(f, "tensor {} needs {} of data, not {found}", Quoted(tensor), Count(*wanted, "byte"))
            }
            Self::MissingTensor { tensor } => {
                write!(f, "tensor {} is missing; convert the model again", Quoted(tensor))
            }
            Self::Shape { tensor, shapes } => write!(
                f,
                "tensor {} has shape {:?}, not {:?} (outermost dimension first)",
                Quoted(tensor),
                shapes.found,
                shapes.wanted
            ),
            Self::Split { key, found: Some(found), wanted } => {
                write!(f, "{key} is {found}, not {wanted}; use the shards of one model")
            }
            Self::Split { key, found: None, wanted } => {
                write!(f, "{key} is missing, it should be {wanted}; use the shards of one model")
            }
            Self::Shard { shard, source } => {
                write!(f, "shard {} of the model: {source}", shard.saturating_add(1))
            }
            Self::MissingShards { found, wanted } => write!(
                f,
                "the model has {}, {found} at hand; keep them together, named like \
                 model-00001-of-{wanted:05}.gguf",
                Count(*wanted, "shard")
            ),
            Self::PackedRows { tensor } => write!(
                f,
                "tensor {} is packed for matrix products, but this model looks up its rows; pack the original file again",
                Quoted(tensor)
            ),
            Self::NotWeights { tensor, found } => {
                write!(
                    f,
                    "tensor {} holds {found}, which cannot be weights; convert the model again",
                    Quoted(tensor)
                )
            }
            Self::NotANumber { tensor, index } => write!(
                f,
                "element {index} of tensor {} is NaN, not a number; get or convert the model again",
                Quoted(tensor)
            ),
            Self::Architecture { found, known, nearest } => {
                write!(f, "architecture {} is not supported", Quoted(found))?;
                if let Some(nearest) = nearest {
                    write!(f, "; {nearest}")?;
                }
                write!(f, "; known are {}", known.join(", "))
            }
            Self::Hparam { key, found, wanted } => {
                write!(f, "key {} is {}, not {wanted}", Quoted(key), Quoted(found))
            }
            Self::OfAll { key, found, other, limit } => {
                write!(f, "key {} is {found}, not 1 to {limit}, which {} says", Quoted(key), Quoted(other))
            }
            Self::BeyondPositions { pos, n_pos } => {
                write!(
                    f,
                    "position {pos} is beyond the {} that the model has embeddings for; shorten the text",
                    Count(*n_pos as u64, "position")
                )
            }
            Self::Token { index, token, n_vocab } => {
                write!(
                    f,
                    "token {token} at index {index} is not in the vocabulary of {}",
                    Count(*n_vocab as u64, "token")
                )
            }
            Self::EncoderOnly => f.write_str(
                "this model computes embeddings and generates no text; call encode instead of decode",
            ),
            Self::NoEncoder => f.write_str("this model has no encoder; call decode instead of encode"),
            Self::HoldsTokens { seq } => {
                write!(
                    f,
                    "sequence {seq} holds tokens that saw another encoder output; roll it back to 0 first"
                )
            }
            Self::Sequence { seq } => {
                write!(f, "sequence {seq} does not exist; `Context::sequence` creates one")
            }
            Self::TooManySequences { limit } => {
                write!(f, "all {limit} sequences are in use; release one or raise n_seq_max")
            }
            Self::FuturePosition { pos, end } => {
                write!(f, "position {pos} lies beyond the end of the sequence at {end}")
            }
            Self::Edited { seq } => write!(
                f,
                "sequence {seq} was edited in its middle and has no earlier state; roll it back to 0 and start again"
            ),
            Self::Cancelled => f.write_str("cancelled on request"),
            Self::Params { what, found, wanted } => write!(f, "{what} is {found}, not {wanted}"),
            Self::OutOfMemory { what, n_bytes } => {
                write!(f, "out of memory: {} for {what}", Count(*n_bytes, "byte"))
            }
            Self::ModelTooLarge { limit } => {
                write!(f, "the model is longer than the {} allowed; raise the limit", Count(*limit, "byte"))
            }
            Self::Stream(error) => write!(f, "the model cannot be read from the stream: {error}"),
            Self::NoLogits { seq } => {
                write!(f, "sequence {seq} has no logits to continue from; append a token first")
            }
            Self::TooLong { n_tokens, n_ctx } => {
                write!(
                    f,
                    "a sequence of {} does not fit a context of {n_ctx}; raise n_ctx or shorten the text",
                    Count(*n_tokens as u64, "token")
                )
            }
            Self::LastBranch { seq } => {
                write!(f, "sequence {seq} is the last branch of the session; roll it back to 0 to empty it")
            }
            Self::NothingGenerated { seq } => {
                write!(f, "sequence {seq} has no generation to repeat; generate first")
            }
            Self::BranchChanged { seq } => {
                write!(
                    f,
                    "sequence {seq} was changed while its generation was interrupted; start another one"
                )
            }
            Self::NoDecoderStart => {
                f.write_str("this model names no token for its decoder to start from; convert it again")
            }
            Self::NoToken { seq } => {
                write!(f, "the samplers ban every token that could continue sequence {seq}; ban fewer")
            }
            Self::LogitBias { token, n_vocab } => {
                let last = n_vocab.saturating_sub(1);
                write!(
                    f,
                    "the logit bias of token {token} names no token; this vocabulary has tokens 0 to {last}"
                )
            }
            Self::Setting { name, value, wanted } => {
                write!(f, "the {name} is {value}; it has to be {wanted}")
            }
            Self::TooManySamplers { n, max } => {
                write!(f, "the order of the samplers names {n} of them; name at most {max}")
            }
            Self::NoSamplerState { index } => write!(
                f,
                "sampler {index} of the chain has a state, and no state was saved for it; \
                 give all tokens of the sequence, or the samplers that it was saved with"
            ),
            Self::OtherSamplers { index } => write!(
                f,
                "a state was saved for sampler {index}, and this chain has no sampler with a state there; \
                 give the samplers that it was saved with"
            ),
            Self::SavedLength { what, found, wanted } => {
                let found = Count(*found, "byte");
                write!(f, "{what} has {found}, not {wanted}; it is damaged, save it again")
            }
            Self::SavedValue { what, offset, found, wanted } => {
                write!(
                    f,
                    "{what} has {found} at offset {offset}, not {wanted}; it is damaged or of another release"
                )
            }
            Self::DraftVocab { what, found, wanted } => write!(
                f,
                "the draft model has another vocabulary: {what} is {}, not {}; use a draft model of the same family",
                Quoted(found),
                Quoted(wanted)
            ),
            Self::NoExpert { expert } => {
                write!(f, "the weight has no expert {expert}; convert the model again")
            }
            Self::OutsideLayer { operation } => {
                write!(
                    f,
                    "the architecture's description puts the operation {operation} outside of its layers"
                )
            }
            Self::Unwritten { operation } => {
                write!(f, "the operation {operation} reads a value that no operation before it writes")
            }
            Self::Operands { operation } => {
                write!(f, "the operation {operation} has other operands than its kind takes")
            }
            Self::WeightUse { weight, wanted } => write!(f, "weight {weight} of the graph is not {wanted}"),
            Self::NoLayer { layer } => {
                write!(f, "the memory of layer {layer} lacks what its graph reads; please report this")
            }
            Self::Arena => f.write_str("two values of a graph overlap in the arena; please report this"),
            Self::KernelSet(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Llama(error) => error.fmt(f),
            Self::Adapter(error) => error.fmt(f),
            Self::LlamaState { architecture } => {
                write!(
                    f,
                    "llama.cpp's state files are not supported for architecture {}; use Backstitch's own",
                    Quoted(architecture)
                )
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

/// A number and its noun, in the singular for 1: `1 byte`, `2 bytes`.
struct Count(u64, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// A name from a file in quotes: control characters escaped, cut after 96 characters.
///
/// The author of the file chose the name, so it must neither drive the terminal nor flood it.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(96).map_or(self.0.len(), |(at, _)| at);
        let (shown, rest) = self.0.split_at(end);
        write!(f, "\"{}{}\"", shown.escape_debug(), if rest.is_empty() { "" } else { "…" })
    }
}

/// A region of the file and the name of the thing there, as in `the value of key "a.b"`.
struct Subject<'a>(Region, &'a str);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            Region::Header => return f.write_str("the header"),
            Region::Key => "key",
            Region::Value => "the value of key",
            Region::Tensor => "tensor",
            Region::Data => "the data of tensor",
        };
        if self.1.starts_with('#') {
            write!(f, "{what} {}", self.1.escape_debug())
        } else {
            write!(f, "{what} {}", Quoted(self.1))
        }
    }
}

/// The plural noun of the things counted in a region.
struct Counted<'a>(Region, &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Region::Key | Region::Header => f.write_str("keys"),
            Region::Tensor | Region::Data => f.write_str("tensors"),
            Region::Value => write!(f, "elements of key {}", Quoted(self.1)),
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
                Error::Truncated { region: Region::Value, name: "a.b".into(), offset: 30, need: 8, have: 3 },
                "file is truncated in the value of key \"a.b\": 8 bytes needed at offset 30, 3 left; get the file again",
            ),
            (
                Error::TooMany {
                    region: Region::Tensor,
                    name: "".into(),
                    offset: 8,
                    found: 1 << 60,
                    limit: 7,
                },
                "1152921504606846976 tensors at offset 8 do not fit the file, the rest of it holds at most 7; get the file again",
            ),
            (
                Error::Utf8 { region: Region::Key, name: "#17".into(), offset: 99 },
                "key #17 is not valid UTF-8 at offset 99; convert the model again",
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
                Error::Shard { shard: 1, source: Box::new(Error::Magic { found: *b"\0ggu" }) },
                "shard 2 of the model: not a GGUF file: it starts with \"\\x00ggu\", not \"GGUF\"; give the path of a GGUF file",
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
        assert!(
            text.starts_with("key \"\\u{1b}[2Jxxx")
                && text.ends_with("x…\" is missing; convert the model again"),
            "{text}"
        );
        assert!(text.len() < 170, "{}", text.len());
    }
}
