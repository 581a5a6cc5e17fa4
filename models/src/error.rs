//! What can go wrong when a model is opened and used.
//!
//! One enum for the crate. Every variant says what was being read, where it lies (byte offset in the file), what was
//! found and what was wanted; the text ends with the way out where there is one. The variants stand in groups: the
//! file as a whole, its metadata, its tensors, what it describes, its use, files on disk, lower layers. Names that came from a file
//! are printed escaped and shortened, because whoever wrote the file chose them.

mod from;
mod text;

use alloc::boxed::Box;

use crate::gguf::ValueType;
use crate::vocab::VocabError;

#[cfg(feature = "chat")]
use crate::chat::ChatError;

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
        /// The largest count the rest of the file can hold, or that is read of any file.
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
    /// A tensor was packed by an older or a later version of this program, in another order.
    PackedVersion {
        /// The tensor.
        tensor: Box<str>,
        /// Where the type is stored.
        offset: u64,
        /// The version of its layout.
        found: u32,
        /// The version that this reader knows.
        wanted: u32,
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

    /// A tensor is packed for products of whole matrices, but used in another way.
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

    // What the file describes.
    /// The architecture is not one of those offered.
    Architecture {
        /// The name in the file.
        found: Box<str>,
        /// The names of those offered.
        known: Box<[&'static str]>,
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
    /// A token stands where the model has no embedding of positions any more.
    BeyondPositions {
        /// Its position.
        pos: i32,
        /// Positions that the model knows.
        n_pos: usize,
    },
    /// A token is not in the vocabulary.
    Token {
        /// Where in the batch.
        index: usize,
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// A model that only encodes was asked for the next token.
    EncoderOnly,
    /// A model without an encoder was asked to encode.
    NoEncoder,
    /// A text was to be encoded for a sequence that holds tokens which saw another.
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
    /// A request to stop was made; see [`Cancel`](crate::Cancel).
    Cancelled,
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
    /// A model that is read from a stream goes on behind the bytes that were allowed.
    ModelTooLarge {
        /// The bytes allowed.
        limit: u64,
    },
    /// The bytes of a model could not be read from a stream.
    Stream(backstitch_kv::io::Error),
    /// A sequence cannot be continued: its last token was not evaluated with its output.
    NoLogits {
        /// The sequence.
        seq: u32,
    },
    /// More tokens than a sequence of this context can hold.
    TooLong {
        /// How many it would have to hold.
        n_tokens: usize,
        /// How many it can hold.
        n_ctx: usize,
    },
    /// The last branch of a session cannot be removed.
    LastBranch {
        /// Its sequence.
        seq: u32,
    },
    /// There is no answer to generate again.
    NothingGenerated {
        /// The sequence.
        seq: u32,
    },
    /// An encoder-decoder names no token for its decoder to start from.
    NoDecoderStart,
    /// The samplers left no token to go on with: each is banned, or its logit is not a number.
    NoToken {
        /// The sequence.
        seq: u32,
    },
    /// A logit bias is for a token that is not in the vocabulary.
    LogitBias {
        /// The token.
        token: u32,
        /// Tokens of the vocabulary.
        n_vocab: usize,
    },
    /// A sampler of a chain has a state, and none was saved for it.
    NoSamplerState {
        /// Its place in the chain, from 0.
        index: usize,
    },
    /// A state was saved for a sampler that the chain lacks, or that keeps none.
    OtherSamplers {
        /// Its place in the chain, from 0.
        index: usize,
    },
    /// Saved bytes are fewer or more than what they say.
    SavedLength {
        /// What they are of, as in "the sampler's state".
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there should be.
        wanted: u64,
    },
    /// A number among saved bytes makes no sense.
    SavedValue {
        /// What the bytes are of, as in "the sampler's state".
        what: &'static str,
        /// Where in them it stands.
        offset: u64,
        /// The number.
        found: u64,
        /// What would make sense.
        wanted: &'static str,
    },
    /// A draft model has another vocabulary than the model it guesses for.
    DraftVocab {
        /// What differs first, as in "token 17".
        what: Box<str>,
        /// What the draft model has.
        found: Box<str>,
        /// What the other model has.
        wanted: Box<str>,
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
    /// The memory refused.
    Memory(backstitch_kv::Error),
    /// A state cannot be written or read.
    State(backstitch_kv::state::Error),
    /// A file of llama.cpp cannot be read, or something cannot become one.
    Llama(Box<backstitch_kv::state::llama::Error>),
    /// Where llama.cpp keeps what this model's layers keep is not known.
    LlamaState {
        /// `general.architecture`.
        architecture: Box<str>,
    },

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
    /// A chat template gave no text.
    #[cfg(feature = "chat")]
    Chat(ChatError),

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
#[non_exhaustive]
pub struct Shapes {
    /// The shape in the file.
    pub found: Box<[usize]>,
    /// The shape the model needs.
    pub wanted: Box<[usize]>,
}
