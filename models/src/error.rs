//! Errors of opening and using a model.
//!
//! The crate has one enum, [`Error`]. A variant about a file carries the name of the key or tensor
//! that was being read, its byte offset, the value that was found and the value that was wanted. A
//! variant about use carries the sequence, position or parameter concerned. The message ends with
//! what to do where something can be done.
//!
//! The variants are declared in groups: the file as a whole, its metadata, its tensors, the model
//! that it describes, the description of its graph, the use of the model, sharded models, lower
//! layers, and files on disk. Names that come from a file are untrusted, so messages escape control
//! characters in them and shorten them.

mod finite;
mod from;
mod gguf;
pub(crate) mod text;

pub use finite::NotFinite;
pub use from::StreamError;
pub use gguf::{Region, Shapes};

use alloc::boxed::Box;

use crate::adapter::AdapterError;
use crate::gguf::ValueType;
use crate::nearest::Nearest;
use crate::vocab::error::VocabError;
use text::{Quoted, count, found_or_missing, nearest_to, place, subject, things};

#[cfg(feature = "chat")]
use crate::chat::error::ChatError;

/// Anything that can go wrong in this crate.
///
/// Errors are values, never panics, whatever bytes a file holds. An operation on a context or
/// session that returns one has left all sequences as they were, unless the documentation of the
/// operation says otherwise. [`source`](core::error::Error::source) continues behind the message:
/// the message of an error already contains that of the error inside it.
///
/// # Example
/// ```
/// use backstitch_models::{Error, Model};
///
/// let error = Model::from_bytes(b"PK\x03\x04").unwrap_err();
/// assert!(matches!(error, Error::Magic { found } if found == *b"PK\x03\x04"));
/// assert!(error.to_string().starts_with("not a GGUF file: it starts with \"PK"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // The file as a whole.
    /// The file does not start with `GGUF`.
    #[error(
        "not a GGUF file: it starts with \"{}\", not \"GGUF\"; give the path of a GGUF file",
        .found.escape_ascii()
    )]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The format version is not one this reader knows (2 and 3).
    #[error("GGUF version {found} is not supported; versions 2 and 3 are, convert the model again")]
    Version {
        /// The version the file states.
        found: u32,
    },
    /// The file was written for big-endian machines.
    #[error("the file is GGUF version {version} in big-endian order; convert it to little-endian")]
    BigEndian {
        /// The version the file states, in its own byte order.
        version: u32,
    },
    /// The file ends before something that its header announces.
    #[error(
        "file is truncated in {}: {} needed at offset {offset}, {have} left; get the file again",
        place(*.region, .name),
        count(*.need, "byte")
    )]
    Truncated {
        /// The part of the file that was being read.
        region: Region,
        /// The name of the key or tensor, or its number in the file, such as `#17`, while its name
        /// is not known yet; empty for the header.
        name: Box<str>,
        /// The byte offset at which the missing bytes should start.
        offset: u64,
        /// The number of bytes needed from `offset` on.
        need: u64,
        /// The number of bytes that the file has from `offset` on.
        have: u64,
    },
    /// A count is larger than the rest of the file can hold, or than the reader accepts of any
    /// file.
    #[error(
        "{found} {} at offset {offset} do not fit the file, the rest of it holds at most {limit}; get the \
         file again",
        things(*.region, .name)
    )]
    TooMany {
        /// The kind of thing counted: keys, tensors, or the elements of the named value.
        region: Region,
        /// The key of the value; empty for keys and tensors.
        name: Box<str>,
        /// The byte offset of the count.
        offset: u64,
        /// The count.
        found: u64,
        /// The largest count that is accepted here.
        limit: u64,
    },
    /// A string is not valid UTF-8.
    #[error("{} is not valid UTF-8 at offset {offset}; convert the model again", subject(*.region, .name))]
    Utf8 {
        /// The part of the file that was being read.
        region: Region,
        /// Its name, or its number in the file, such as `#17`.
        name: Box<str>,
        /// The byte offset of the first invalid byte.
        offset: u64,
    },
    /// A key or a tensor occurs twice.
    #[error("{} appears a second time at offset {offset}; names must be unique", subject(*.region, .name))]
    Duplicate {
        /// [`Region::Key`] or [`Region::Tensor`].
        region: Region,
        /// The name that both have.
        name: Box<str>,
        /// The byte offset of the second one.
        offset: u64,
    },
    /// A name is empty or longer than the format allows.
    #[error(
        "the name of {} at offset {offset} is {} long; 1 to {limit} are allowed",
        subject(*.region, .name),
        count(*.found, "byte")
    )]
    NameLength {
        /// [`Region::Key`] or [`Region::Tensor`].
        region: Region,
        /// Its number in the file, such as `#17`.
        name: Box<str>,
        /// The byte offset of the length.
        offset: u64,
        /// The length in bytes.
        found: u64,
        /// The longest length allowed, in bytes.
        limit: u64,
    },

    // Metadata.
    /// A value has a type number that GGUF does not define.
    #[error("key {} has unknown type {found} at offset {offset}; convert the model again", Quoted(.key))]
    ValueType {
        /// The key.
        key: Box<str>,
        /// The byte offset of the type number.
        offset: u64,
        /// The type number.
        found: u32,
    },
    /// A boolean is neither 0 nor 1.
    #[error(
        "key {} holds the boolean {found} at offset {offset}, not 0 or 1; convert the model again",
        Quoted(.key)
    )]
    Bool {
        /// The key.
        key: Box<str>,
        /// The byte offset of the boolean.
        offset: u64,
        /// The byte.
        found: u8,
    },
    /// An array holds arrays. No model needs that, and it would allow unbounded depth.
    #[error(
        "key {} holds an array of arrays at offset {offset}, which no model needs; convert the model again",
        Quoted(.key)
    )]
    NestedArray {
        /// The key.
        key: Box<str>,
        /// The byte offset of the element type.
        offset: u64,
    },
    /// `general.alignment` is not a power of two, or too large.
    #[error("\"general.alignment\" is {found} at offset {offset}, not a power of two up to 65536")]
    Alignment {
        /// The byte offset of the value.
        offset: u64,
        /// The value.
        found: u64,
    },
    /// A key that the model needs is missing.
    #[error("key {} is missing; convert the model again", Quoted(.key))]
    MissingKey {
        /// The key.
        key: Box<str>,
    },
    /// A key has a value of another type than the one asked for.
    #[error("key {} at offset {offset} is of type {found}, not {wanted}", Quoted(.key))]
    WrongType {
        /// The key.
        key: Box<str>,
        /// The byte offset of the entry.
        offset: u64,
        /// The type in the file.
        found: ValueType,
        /// The type asked for, such as "an array of strings".
        wanted: &'static str,
    },
    /// A number does not fit the integer type asked for.
    #[error("key {} at offset {offset} is {found}, which does not fit {wanted}", Quoted(.key))]
    OutOfRange {
        /// The key.
        key: Box<str>,
        /// The byte offset of the entry.
        offset: u64,
        /// The number in decimal digits.
        found: Box<str>,
        /// The type asked for.
        wanted: ValueType,
    },
    /// An array has another length than the model needs.
    #[error("key {} has {}, not {wanted}", Quoted(.key), count(*.found, "element"))]
    Length {
        /// The key.
        key: Box<str>,
        /// The length in the file.
        found: u64,
        /// The length that the model needs.
        wanted: u64,
    },

    // Tensors.
    /// A tensor has no or too many dimensions.
    #[error(
        "tensor {} has {} at offset {offset}, not 1 to 4",
        Quoted(.tensor),
        count((*.found).into(), "dimension")
    )]
    Rank {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the number of dimensions.
        offset: u64,
        /// The number of dimensions; 1 to 4 are allowed.
        found: u32,
    },
    /// A dimension of a tensor is zero.
    #[error("tensor {} has a dimension of zero at offset {offset}", Quoted(.tensor))]
    ZeroDim {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the dimension.
        offset: u64,
    },
    /// The size of a tensor in bytes overflows the address space.
    #[error("tensor {} at offset {offset} is larger than memory can address", Quoted(.tensor))]
    TensorTooLarge {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the tensor's description.
        offset: u64,
    },
    /// A tensor has an element type that this reader does not know.
    #[error(
        "tensor {} has element type {found} at offset {offset}, which is not supported; quantise the model \
         again",
        Quoted(.tensor)
    )]
    TensorType {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the type number.
        offset: u64,
        /// The type number.
        found: u32,
    },
    /// A tensor was packed by another release, in a layout that this one cannot read.
    #[error(
        "tensor {} is packed in layout {found}, at offset {offset}, and this program reads layout {wanted}; \
         pack the original model again: backstitch pack ORIGINAL.gguf OUT.gguf",
        Quoted(.tensor)
    )]
    PackedVersion {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the type number.
        offset: u64,
        /// The version of the tensor's layout.
        found: u32,
        /// The version that this reader knows.
        wanted: u32,
    },
    /// A row of a tensor is not a whole number of blocks of its quantisation format.
    #[error(
        "tensor {} at offset {offset} has rows of {}, not a multiple of its block of {wanted}",
        Quoted(.tensor),
        count(*.found, "element")
    )]
    PartialBlock {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the tensor's description.
        offset: u64,
        /// The number of elements in a row.
        found: u64,
        /// The number of elements in a block.
        wanted: u64,
    },
    /// The data of a tensor does not start at a multiple of the file's alignment.
    #[error(
        "tensor {} has its data at {found} (stored at offset {offset}), not a multiple of {wanted}",
        Quoted(.tensor)
    )]
    Misaligned {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the field that says where the data starts.
        offset: u64,
        /// The start of the data, in bytes from the start of the data section; for packed tensors
        /// from the start of the file.
        found: u64,
        /// The alignment in bytes.
        wanted: u64,
    },
    /// The data of two tensors share bytes.
    #[error("the data of tensor {} at offset {offset} overlaps that of {}", Quoted(.tensor), Quoted(.other))]
    Overlap {
        /// The tensor that starts later.
        tensor: Box<str>,
        /// The tensor that starts earlier.
        other: Box<str>,
        /// The byte offset at which the data of the later one starts.
        offset: u64,
    },
    /// The data given for a tensor has another length than its shape and type ask for.
    #[error("tensor {} needs {} of data, not {found}", Quoted(.tensor), count(*.wanted, "byte"))]
    TensorBytes {
        /// The tensor.
        tensor: Box<str>,
        /// The number of bytes given.
        found: u64,
        /// The number of bytes needed.
        wanted: u64,
    },
    /// The file lists more or fewer tokens than the model has embeddings for.
    #[error(
        "the vocabulary has {tokens} tokens, but the matrix of embeddings {rows} rows; convert the model again"
    )]
    VocabSize {
        /// The tokens of the vocabulary.
        tokens: usize,
        /// The rows of the matrix.
        rows: usize,
    },
    /// A tensor that the model needs is missing.
    #[error("tensor {} is missing; convert the model again", Quoted(.tensor))]
    MissingTensor {
        /// The tensor.
        tensor: Box<str>,
    },
    /// A tensor has another shape than the model needs.
    #[error(
        "tensor {} has shape {:?}, not {:?} (outermost dimension first)",
        Quoted(.tensor),
        .shapes.found,
        .shapes.wanted
    )]
    Shape {
        /// The tensor.
        tensor: Box<str>,
        /// Both shapes, outermost dimension first.
        shapes: Box<Shapes>,
    },
    /// A tensor was packed for matrix products, but this model looks up single rows of it.
    #[error(
        "tensor {} is packed for matrix products, but this model looks up its rows; pack the original file \
         again",
        Quoted(.tensor)
    )]
    PackedRows {
        /// The tensor.
        tensor: Box<str>,
    },
    /// A tensor that is used as a weight holds integers.
    #[error("tensor {} holds {found}, which cannot be weights; convert the model again", Quoted(.tensor))]
    NotWeights {
        /// The tensor.
        tensor: Box<str>,
        /// Its element type.
        found: backstitch_core::DType,
    },

    /// The file has a tensor without which the model computes something else, and the architecture
    /// does not use it.
    #[error("tensor {} has a part in what the model computes, and is not supported here", Quoted(.tensor))]
    UnusedTensor {
        /// The tensor.
        tensor: Box<str>,
    },

    /// A vector of weights, such as the scales of a norm, holds something that is no number.
    #[error(
        "element {index} of tensor {} is NaN, not a number; get or convert the model again",
        Quoted(.tensor)
    )]
    NotANumber {
        /// The tensor.
        tensor: Box<str>,
        /// The index of the element, from 0.
        index: usize,
    },

    // The model that the file describes.
    /// The architecture is not one of those that this build supports.
    #[error(
        "architecture {} is not supported{}; known are {}",
        Quoted(.found),
        nearest_to(.nearest),
        .known.join(", ")
    )]
    Architecture {
        /// The name in the file.
        found: Box<str>,
        /// The names of the supported architectures.
        known: Box<[&'static str]>,
        /// The supported architecture that is most like it.
        nearest: Option<Box<Nearest>>,
    },
    /// A hyper-parameter has a value that no model can have.
    #[error("key {} is {}, not {wanted}", Quoted(.key), Quoted(.found))]
    Hparam {
        /// The key.
        key: Box<str>,
        /// Its value.
        found: Box<str>,
        /// The values that are possible, in words.
        wanted: &'static str,
    },
    /// A hyper-parameter says that none, or more, are used of what there is.
    #[error("key {} is {found}, not 1 to {limit}, which {} says", Quoted(.key), Quoted(.other))]
    OfAll {
        /// The key.
        key: Box<str>,
        /// Its value.
        found: u32,
        /// The key that says how many there are.
        other: Box<str>,
        /// Its value, the largest that is possible.
        limit: u32,
    },

    // The description of a model's graph.
    /// A graph asks for an expert that a weight does not have.
    #[error("the weight has no expert {expert}; convert the model again")]
    NoExpert {
        /// The index of the expert's matrix, from 0.
        expert: usize,
    },
    /// A graph reads from a layer memory that its cache does not hold. This is a bug in the
    /// architecture's description.
    #[error("the memory of layer {layer} lacks what its graph reads; please report this")]
    NoLayer {
        /// The index of the layer.
        layer: usize,
    },
    /// A graph's operation needs a layer and belongs to none. This is a bug in the architecture's
    /// description.
    #[error("the architecture's description puts the operation {operation} outside of its layers")]
    OutsideLayer {
        /// Name of the operation.
        operation: &'static str,
    },
    /// A graph reads a value before any operation wrote it. This is a bug in the architecture's
    /// description.
    #[error("the operation {operation} reads a value that no operation before it writes")]
    Unwritten {
        /// Name of the operation that reads.
        operation: &'static str,
    },
    /// An operation has other operands than its kind takes. This is a bug in the graph's builder.
    #[error("the operation {operation} has other operands than its kind takes")]
    Operands {
        /// Name of the operation.
        operation: &'static str,
    },
    /// A weight is not kept as an operation uses it. This is a bug in the graph's builder.
    #[error("weight {weight} of the graph is not {wanted}")]
    WeightUse {
        /// Its number in the graph.
        weight: u32,
        /// The use, as in "a vector".
        wanted: &'static str,
    },
    /// The planner gave two live values of a graph the same bytes of the arena. This is a bug.
    #[error("two values of a graph overlap in the arena; please report this")]
    Arena,

    // The use of a model.
    /// A token has a position for which the model has no position embedding.
    #[error(
        "position {pos} is beyond the {} that the model has embeddings for; shorten the text",
        count(*.n_pos as u64, "position")
    )]
    BeyondPositions {
        /// The position of the token.
        pos: i32,
        /// The number of positions that the model has embeddings for.
        n_pos: usize,
    },
    /// A token is not in the vocabulary.
    #[error(
        "token {token} at index {index} is not in the vocabulary of {}",
        count(*.n_vocab as u64, "token")
    )]
    Token {
        /// The index of the token in the batch or the list of tokens.
        index: usize,
        /// The token.
        token: u32,
        /// The number of tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A model that only encodes was asked for the next token.
    #[error("this model computes embeddings and generates no text; call encode instead of decode")]
    EncoderOnly,
    /// A model without an encoder was asked to encode.
    #[error("this model has no encoder; call decode instead of encode")]
    NoEncoder,
    /// A sequence that already holds tokens of its decoder was given an input to encode. Those
    /// tokens have seen another encoder output.
    #[error("sequence {seq} holds tokens that saw another encoder output; roll it back to 0 first")]
    HoldsTokens {
        /// The sequence.
        seq: u32,
    },
    /// A sequence was named that does not exist.
    #[error("sequence {seq} does not exist; `Context::sequence` creates one")]
    Sequence {
        /// The sequence.
        seq: u32,
    },
    /// All sequences of a context are in use.
    #[error("all {limit} sequences are in use; release one or raise n_seq_max")]
    TooManySequences {
        /// The number of sequences that the context was made for.
        limit: u32,
    },
    /// A position lies beyond the end of a sequence.
    #[error("position {pos} lies beyond the end of the sequence at {end}")]
    FuturePosition {
        /// The position.
        pos: i32,
        /// The end of the sequence: the position of its next token.
        end: i32,
    },
    /// A sequence was edited in its middle. Its tokens are no longer known from the start, so they
    /// cannot be re-evaluated.
    #[error(
        "sequence {seq} was edited in its middle and has no earlier state; roll it back to 0 and start again"
    )]
    Edited {
        /// The sequence.
        seq: u32,
    },
    /// The computation was cancelled; see [`Cancel`](crate::Cancel).
    #[error("cancelled on request")]
    Cancelled,
    /// A parameter of a context has a value that is not possible.
    #[error("{what} is {found}, not {wanted}")]
    Params {
        /// The name of the parameter.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The values that are possible, in words.
        wanted: &'static str,
    },
    /// The allocator refused memory.
    #[error("out of memory: {} for {what}", count(*.n_bytes, "byte"))]
    OutOfMemory {
        /// The thing that the memory was for.
        what: &'static str,
        /// The number of bytes asked for.
        n_bytes: u64,
    },
    /// A model read from a stream is longer than the caller allowed.
    #[error("the model is longer than the {} allowed; raise the limit", count(*.limit, "byte"))]
    ModelTooLarge {
        /// The largest number of bytes allowed.
        limit: u64,
    },
    /// Reading a model from a stream failed.
    #[error(transparent)]
    Stream(StreamError),
    /// A sequence has no logits: it is empty, or its last token was evaluated without output.
    #[error("sequence {seq} has no logits to continue from; append a token first")]
    NoLogits {
        /// The sequence.
        seq: u32,
    },
    /// A sequence would hold more tokens than the context has cells for.
    #[error(
        "a sequence of {} does not fit a context of {n_ctx}; raise n_ctx or shorten the text",
        count(*.n_tokens as u64, "token")
    )]
    TooLong {
        /// The number of tokens that the sequence would hold.
        n_tokens: usize,
        /// The number of tokens that a sequence of this context can hold.
        n_ctx: usize,
    },
    /// The last branch of a session cannot be removed.
    #[error("sequence {seq} is the last branch of the session; roll it back to 0 to empty it")]
    LastBranch {
        /// The sequence of that branch.
        seq: u32,
    },
    /// The current branch has no generation that could be repeated.
    #[error("sequence {seq} has no generation to repeat; generate first")]
    NothingGenerated {
        /// The sequence.
        seq: u32,
    },
    /// A branch was changed while its generation was interrupted, so that cannot go on.
    #[error("sequence {seq} was changed while its generation was interrupted; start another one")]
    BranchChanged {
        /// The sequence of that branch.
        seq: u32,
    },
    /// The file of an encoder-decoder names no token for its decoder to start from.
    #[error("this model names no token for its decoder to start from; convert it again")]
    NoDecoderStart,
    /// The model computed outputs that are not finite numbers, from weights or an input at which it
    /// fails.
    #[error(transparent)]
    NotFinite(Box<NotFinite>),
    /// The samplers left no token: each is banned.
    #[error("the samplers ban every token that could continue sequence {seq}; ban fewer")]
    NoToken {
        /// The sequence.
        seq: u32,
    },
    /// A logit bias names a token that is not in the vocabulary.
    #[error(
        "the logit bias of token {token} names no token; this vocabulary has tokens 0 to {}",
        .n_vocab.saturating_sub(1)
    )]
    LogitBias {
        /// The token.
        token: u32,
        /// The number of tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A setting of a sampler is out of its range.
    #[error("the {name} is {value}; it has to be {wanted}")]
    Setting {
        /// The setting, in words.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The range, in words.
        wanted: &'static str,
    },
    /// The order of the samplers is too long.
    #[error("the order of the samplers names {n} of them; name at most {max}")]
    TooManySamplers {
        /// The number of samplers that it names.
        n: usize,
        /// The most that it may name.
        max: usize,
    },
    /// A sampler of the chain has a state, and no state was saved for it.
    #[error(
        "sampler {index} of the chain has a state, and no state was saved for it; give all tokens of the \
         sequence, or the samplers that it was saved with"
    )]
    NoSamplerState {
        /// The index of the sampler in the chain, from 0.
        index: usize,
    },
    /// A state was saved for a sampler that this chain does not have, or that keeps no state.
    #[error(
        "a state was saved for sampler {index}, and this chain has no sampler with a state there; give the \
         samplers that it was saved with"
    )]
    OtherSamplers {
        /// The index of the sampler in the chain, from 0.
        index: usize,
    },
    /// Saved bytes are fewer or more than their header says.
    #[error("{what} has {}, not {wanted}; it is damaged, save it again", count(*.found, "byte"))]
    SavedLength {
        /// The kind of bytes, such as "the sampler's state".
        what: &'static str,
        /// The number of bytes found.
        found: u64,
        /// The number of bytes wanted.
        wanted: u64,
    },
    /// A number among saved bytes has a value that it cannot have.
    #[error("{what} has {found} at offset {offset}, not {wanted}; it is damaged or of another release")]
    SavedValue {
        /// The kind of bytes, such as "the sampler's state".
        what: &'static str,
        /// The byte offset of the number, from the start of the saved bytes.
        offset: u64,
        /// The number.
        found: u64,
        /// The values that are possible, in words.
        wanted: &'static str,
    },
    /// A draft model has another vocabulary than the model that it drafts for.
    #[error(
        "the draft model has another vocabulary: {what} is {}, not {}; use a draft model of the same family",
        Quoted(.found),
        Quoted(.wanted)
    )]
    DraftVocab {
        /// The first difference, such as "token 17".
        what: Box<str>,
        /// The value in the draft model.
        found: Box<str>,
        /// The value in the target model.
        wanted: Box<str>,
    },

    // Sharded models.
    /// The shards given do not belong to one model.
    #[error("{key} is {}; use the shards of one model", found_or_missing(*.found, *.wanted))]
    Split {
        /// The key that disagrees.
        key: &'static str,
        /// The value in the file; `None` if the key is missing.
        found: Option<u64>,
        /// The value that the other shards or the file names ask for.
        wanted: u64,
    },
    /// An error inside one shard of a model.
    #[error("shard {} of the model: {source}", .shard.saturating_add(1))]
    Shard {
        /// The index of the shard, from 0.
        shard: usize,
        /// The error; its offset counts from the start of that shard.
        // A raw name is no link of the chain of sources: the message contains that of this error.
        r#source: Box<Error>,
    },
    /// A sharded model was opened without all of its shards.
    #[error(
        "the model has {}, {found} at hand; keep them together, named like model-00001-of-{wanted:05}.gguf",
        count(*.wanted, "shard")
    )]
    MissingShards {
        /// The number of shards at hand.
        found: u64,
        /// The number of shards that the model has.
        wanted: u64,
    },

    // Lower layers.
    /// The environment variable `BACKSTITCH_ISA` names a kernel set that is not available.
    #[error(transparent)]
    KernelSet(#[from] backstitch_core::SetUnavailable),
    /// A memory operation failed: no free block, or an argument that the memory refuses.
    #[error(transparent)]
    Memory(#[from] backstitch_kv::Error),
    /// A state file cannot be written or read.
    #[error(transparent)]
    State(#[from] backstitch_kv::storage::Error),
    /// A state file of llama.cpp cannot be read, or a state cannot be expressed as one.
    #[error(transparent)]
    Llama(Box<crate::llama_files::Error>),
    /// This crate does not know how llama.cpp lays out the state of this architecture.
    #[error(
        "llama.cpp's state files are not supported for architecture {}; use Backstitch's own",
        Quoted(.architecture)
    )]
    LlamaState {
        /// The value of `general.architecture`.
        architecture: Box<str>,
    },
    /// An adapter or a set of adapters cannot be used.
    #[error(transparent)]
    Adapter(Box<AdapterError>),
    /// A computation was refused.
    #[error(transparent)]
    Core(#[from] backstitch_core::Error),
    /// The vocabulary in the file cannot be used.
    #[error(transparent)]
    Vocab(#[from] VocabError),
    /// A chat template could not be parsed or rendered.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Chat(#[from] ChatError),

    // Files on disk.
    /// A file could not be opened or read.
    #[cfg(feature = "std")]
    #[error(transparent)]
    Io(#[from] backstitch_kv::file::FileError),
    /// An error inside a file, with its path.
    #[cfg(feature = "std")]
    #[error("{}: {source}", .path.display())]
    File {
        /// The path of the file.
        path: Box<std::path::Path>,
        /// The error.
        // Raw, as that of a shard.
        r#source: Box<Error>,
    },
}
