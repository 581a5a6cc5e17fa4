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

mod from;
mod gguf;
pub(crate) mod text;

pub use gguf::{Region, Shapes};

use alloc::boxed::Box;

use crate::adapter::AdapterError;
use crate::gguf::ValueType;
use crate::nearest::Nearest;
use crate::vocab::error::VocabError;

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
    /// The file ends before something that its header announces.
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
    Utf8 {
        /// The part of the file that was being read.
        region: Region,
        /// Its name, or its number in the file, such as `#17`.
        name: Box<str>,
        /// The byte offset of the first invalid byte.
        offset: u64,
    },
    /// A key or a tensor occurs twice.
    Duplicate {
        /// [`Region::Key`] or [`Region::Tensor`].
        region: Region,
        /// The name that both have.
        name: Box<str>,
        /// The byte offset of the second one.
        offset: u64,
    },
    /// A name is empty or longer than the format allows.
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
    ValueType {
        /// The key.
        key: Box<str>,
        /// The byte offset of the type number.
        offset: u64,
        /// The type number.
        found: u32,
    },
    /// A boolean is neither 0 nor 1.
    Bool {
        /// The key.
        key: Box<str>,
        /// The byte offset of the boolean.
        offset: u64,
        /// The byte.
        found: u8,
    },
    /// An array holds arrays. No model needs that, and it would allow unbounded depth.
    NestedArray {
        /// The key.
        key: Box<str>,
        /// The byte offset of the element type.
        offset: u64,
    },
    /// `general.alignment` is not a power of two.
    Alignment {
        /// The byte offset of the value.
        offset: u64,
        /// The value.
        found: u64,
    },
    /// A key that the model needs is missing.
    MissingKey {
        /// The key.
        key: Box<str>,
    },
    /// A key has a value of another type than the one asked for.
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
    Rank {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the number of dimensions.
        offset: u64,
        /// The number of dimensions; 1 to 4 are allowed.
        found: u32,
    },
    /// A dimension of a tensor is zero.
    ZeroDim {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the dimension.
        offset: u64,
    },
    /// The size of a tensor in bytes overflows the address space.
    TensorTooLarge {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the tensor's description.
        offset: u64,
    },
    /// A tensor has an element type that this reader does not know.
    TensorType {
        /// The tensor.
        tensor: Box<str>,
        /// The byte offset of the type number.
        offset: u64,
        /// The type number.
        found: u32,
    },
    /// A tensor was packed by another release, in a layout that this one cannot read.
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
    Overlap {
        /// The tensor that starts later.
        tensor: Box<str>,
        /// The tensor that starts earlier.
        other: Box<str>,
        /// The byte offset at which the data of the later one starts.
        offset: u64,
    },
    /// The data given for a tensor has another length than its shape and type ask for.
    TensorBytes {
        /// The tensor.
        tensor: Box<str>,
        /// The number of bytes given.
        found: u64,
        /// The number of bytes needed.
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
    /// A tensor was packed for matrix products, but this model looks up single rows of it.
    PackedRows {
        /// The tensor.
        tensor: Box<str>,
    },
    /// A tensor that is used as a weight holds integers.
    NotWeights {
        /// The tensor.
        tensor: Box<str>,
        /// Its element type.
        found: backstitch_core::DType,
    },

    /// A vector of weights, such as the scales of a norm, holds something that is no number.
    NotANumber {
        /// The tensor.
        tensor: Box<str>,
        /// The index of the element, from 0.
        index: usize,
    },

    // The model that the file describes.
    /// The architecture is not one of those that this build supports.
    Architecture {
        /// The name in the file.
        found: Box<str>,
        /// The names of the supported architectures.
        known: Box<[&'static str]>,
        /// The supported architecture that is most like it.
        nearest: Option<Box<Nearest>>,
    },
    /// A hyper-parameter has a value that no model can have.
    Hparam {
        /// The key.
        key: Box<str>,
        /// Its value.
        found: Box<str>,
        /// The values that are possible, in words.
        wanted: &'static str,
    },
    /// A hyper-parameter says that none, or more, are used of what there is.
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
    NoExpert {
        /// The index of the expert's matrix, from 0.
        expert: usize,
    },
    /// A graph reads from a layer memory that its cache does not hold. This is a bug in the
    /// architecture's description.
    NoLayer {
        /// The index of the layer.
        layer: usize,
    },
    /// A graph's operation needs a layer and belongs to none. This is a bug in the architecture's
    /// description.
    OutsideLayer {
        /// Name of the operation.
        operation: &'static str,
    },
    /// A graph reads a value before any operation wrote it. This is a bug in the architecture's
    /// description.
    Unwritten {
        /// Name of the operation that reads.
        operation: &'static str,
    },
    /// An operation has other operands than its kind takes. This is a bug in the graph's builder.
    Operands {
        /// Name of the operation.
        operation: &'static str,
    },
    /// A weight is not kept as an operation uses it. This is a bug in the graph's builder.
    WeightUse {
        /// Its number in the graph.
        weight: u32,
        /// The use, as in "a vector".
        wanted: &'static str,
    },
    /// The planner gave two live values of a graph the same bytes of the arena. This is a bug.
    Arena,

    // The use of a model.
    /// A token has a position for which the model has no position embedding.
    BeyondPositions {
        /// The position of the token.
        pos: i32,
        /// The number of positions that the model has embeddings for.
        n_pos: usize,
    },
    /// A token is not in the vocabulary.
    Token {
        /// The index of the token in the batch or the list of tokens.
        index: usize,
        /// The token.
        token: u32,
        /// The number of tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A model that only encodes was asked for the next token.
    EncoderOnly,
    /// A model without an encoder was asked to encode.
    NoEncoder,
    /// A sequence that already holds tokens of its decoder was given an input to encode. Those
    /// tokens have seen another encoder output.
    HoldsTokens {
        /// The sequence.
        seq: u32,
    },
    /// A sequence was named that does not exist.
    Sequence {
        /// The sequence.
        seq: u32,
    },
    /// All sequences of a context are in use.
    TooManySequences {
        /// The number of sequences that the context was made for.
        limit: u32,
    },
    /// A position lies beyond the end of a sequence.
    FuturePosition {
        /// The position.
        pos: i32,
        /// The end of the sequence: the position of its next token.
        end: i32,
    },
    /// A sequence was edited in its middle. Its tokens are no longer known from the start, so they
    /// cannot be re-evaluated.
    Edited {
        /// The sequence.
        seq: u32,
    },
    /// The computation was cancelled; see [`Cancel`](crate::Cancel).
    Cancelled,
    /// A parameter of a context has a value that is not possible.
    Params {
        /// The name of the parameter.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The values that are possible, in words.
        wanted: &'static str,
    },
    /// The allocator refused memory.
    OutOfMemory {
        /// The thing that the memory was for.
        what: &'static str,
        /// The number of bytes asked for.
        n_bytes: u64,
    },
    /// A model read from a stream is longer than the caller allowed.
    ModelTooLarge {
        /// The largest number of bytes allowed.
        limit: u64,
    },
    /// Reading a model from a stream failed.
    Stream(backstitch_kv::io::Error),
    /// A sequence has no logits: it is empty, or its last token was evaluated without output.
    NoLogits {
        /// The sequence.
        seq: u32,
    },
    /// A sequence would hold more tokens than the context has cells for.
    TooLong {
        /// The number of tokens that the sequence would hold.
        n_tokens: usize,
        /// The number of tokens that a sequence of this context can hold.
        n_ctx: usize,
    },
    /// The last branch of a session cannot be removed.
    LastBranch {
        /// The sequence of that branch.
        seq: u32,
    },
    /// The current branch has no generation that could be repeated.
    NothingGenerated {
        /// The sequence.
        seq: u32,
    },
    /// A branch was changed while its generation was interrupted, so that cannot go on.
    BranchChanged {
        /// The sequence of that branch.
        seq: u32,
    },
    /// The file of an encoder-decoder names no token for its decoder to start from.
    NoDecoderStart,
    /// The samplers left no token: each is banned, or its logit is not a number.
    NoToken {
        /// The sequence.
        seq: u32,
    },
    /// A logit bias names a token that is not in the vocabulary.
    LogitBias {
        /// The token.
        token: u32,
        /// The number of tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A setting of a sampler is out of its range.
    Setting {
        /// The setting, in words.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The range, in words.
        wanted: &'static str,
    },
    /// The order of the samplers is too long.
    TooManySamplers {
        /// The number of samplers that it names.
        n: usize,
        /// The most that it may name.
        max: usize,
    },
    /// A sampler of the chain has a state, and no state was saved for it.
    NoSamplerState {
        /// The index of the sampler in the chain, from 0.
        index: usize,
    },
    /// A state was saved for a sampler that this chain does not have, or that keeps no state.
    OtherSamplers {
        /// The index of the sampler in the chain, from 0.
        index: usize,
    },
    /// Saved bytes are fewer or more than their header says.
    SavedLength {
        /// The kind of bytes, such as "the sampler's state".
        what: &'static str,
        /// The number of bytes found.
        found: u64,
        /// The number of bytes wanted.
        wanted: u64,
    },
    /// A number among saved bytes has a value that it cannot have.
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
    Split {
        /// The key that disagrees.
        key: &'static str,
        /// The value in the file; `None` if the key is missing.
        found: Option<u64>,
        /// The value that the other shards or the file names ask for.
        wanted: u64,
    },
    /// An error inside one shard of a model.
    Shard {
        /// The index of the shard, from 0.
        shard: usize,
        /// The error; its offset counts from the start of that shard.
        source: Box<Error>,
    },
    /// A sharded model was opened without all of its shards.
    MissingShards {
        /// The number of shards at hand.
        found: u64,
        /// The number of shards that the model has.
        wanted: u64,
    },

    // Lower layers.
    /// The environment variable `BACKSTITCH_ISA` names a kernel set that is not available.
    KernelSet(backstitch_core::SetUnavailable),
    /// A memory operation failed: no free block, or an argument that the memory refuses.
    Memory(backstitch_kv::Error),
    /// A state file cannot be written or read.
    State(backstitch_kv::storage::Error),
    /// A state file of llama.cpp cannot be read, or a state cannot be expressed as one.
    Llama(Box<crate::llama_files::Error>),
    /// This crate does not know how llama.cpp lays out the state of this architecture.
    LlamaState {
        /// The value of `general.architecture`.
        architecture: Box<str>,
    },
    /// An adapter or a set of adapters cannot be used.
    Adapter(Box<AdapterError>),
    /// A computation was refused.
    Core(backstitch_core::Error),
    /// The vocabulary in the file cannot be used.
    Vocab(VocabError),
    /// A chat template could not be parsed or rendered.
    #[cfg(feature = "chat")]
    Chat(ChatError),

    // Files on disk.
    /// A file could not be opened or read.
    #[cfg(feature = "std")]
    Io(backstitch_kv::file::FileError),
    /// An error inside a file, with its path.
    #[cfg(feature = "std")]
    File {
        /// The path of the file.
        path: Box<std::path::Path>,
        /// The error.
        source: Box<Error>,
    },
}
