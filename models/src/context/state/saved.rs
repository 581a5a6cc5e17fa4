//! A saved state as plain data: the one parser of its sections, for restoring it and for showing
//! it.

use super::sections::{
    ADAPTERS, LOGITS, MAX_ADAPTERS, MAX_TOKENS, METADATA, SAMPLER, SEQUENCES, TOKENS, TRAIL, VERSION,
    expect_at_most,
};
use crate::context::history::SavedTokens;
use crate::error::Error;
use crate::sampler;
use crate::saved_reader::SavedReader;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::snapshot::{self, Sees, Snapshot};
use backstitch_kv::storage::{Container, Fingerprint, IMAGE_TAGS, MAX_READ, Section, StoredSnapshot, Tag};
use backstitch_kv::{Pos, Token};

/// The most sequences of a state; far above those of any context.
const MAX_SEQUENCES: u64 = 1 << 20;

/// Bytes that the contents of all lists may have beyond those of the file. They have more only
/// where sections are compressed.
const LISTS_ROOM: u64 = 16 << 20;
/// Bytes that they may have at most: a file can be long without being full.
pub(super) const MAX_LISTS: u64 = 1 << 30;

/// A saved state: all of its descriptions, each checked by itself and against the others.
///
/// Restoring and showing a state both begin with this. What only a model or a context can tell is
/// not checked here: if tokens are in the vocabulary, if there is room. Cells, states and journals
/// stay in the container and are read when they are asked for. Sections that several sequences
/// share are in memory once, so a state takes no more than a few times its bytes.
///
/// ```
/// use backstitch_kv::storage::Container;
/// use backstitch_models::{Context, Model, Params, SaveOptions, SavedContext, Token};
/// # use backstitch_models::backstitch_kv;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(128))?;
/// let seq = ctx.sequence()?;
/// ctx.append(seq, &[Token(5), Token(6), Token(7)])?;
/// let mut state = Vec::new();
/// ctx.state_write(&mut state, &SaveOptions::default())?;
///
/// let container = Container::parse(&state)?;
/// let saved = SavedContext::parse(&container)?;
/// assert_eq!(*saved.sequences[0].tokens, [Token(5), Token(6), Token(7)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct SavedContext<'a> {
    /// The container.
    pub container: &'a Container<'a>,
    /// The memory's part, whose bytes are read from the container.
    pub memory: StoredSnapshot<'a>,
    /// The rest of each sequence of the snapshot, in its order; ids ascend.
    pub sequences: Vec<SavedSequence>,
    /// Bytes of the program that saved.
    pub metadata: Vec<u8>,
}

/// A sequence of a saved state, beside the memory's part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SavedSequence {
    /// Its id.
    pub id: u32,
    /// True if it was changed in its middle, so that not all of its tokens are known.
    pub edited: bool,
    /// True if something of it came from another engine, or was rounded.
    pub foreign: bool,
    /// The position of the first of its tokens.
    pub start: Pos,
    /// Its tokens, as far as they are known.
    pub tokens: Arc<Vec<Token>>,
    /// The logits after its last token.
    pub logits: Option<Arc<Vec<f32>>>,
    /// The state of its samplers, without their earlier ones.
    pub sampler: Option<Arc<sampler::State>>,
    /// The earlier states of its samplers.
    pub trail: Option<Arc<sampler::Trail>>,
    /// The adapters that it was evaluated with; none: none.
    pub adapters: Option<Arc<SavedAdapters>>,
    /// The position that its next token gets.
    pub end: Pos,
}

/// The adapters that a saved sequence was evaluated with, by name: their contents are in files of
/// their own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedAdapters {
    /// Their identity, as [`AdapterSet::id`](crate::adapter::AdapterSet::id) returns it.
    pub id: Fingerprint,
    /// Their names and scales, for people.
    pub description: Box<str>,
}

impl SavedAdapters {
    /// Parse the bytes of a section.
    ///
    /// # Errors
    /// [`Error::SavedLength`] if they are too few, [`Error::SavedValue`] if the text is no UTF-8.
    fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut from = SavedReader::new("the adapters of a sequence", bytes);
        let id = from.array()?;
        let text = from.take(from.left())?;
        let text = core::str::from_utf8(text).map_err(|error| {
            let at = error.valid_up_to();
            from.wrong(32 + at as u64, text.get(at).copied().unwrap_or_default(), "valid UTF-8")
        })?;
        Ok(SavedAdapters { id: Fingerprint(id), description: text.into() })
    }
}

impl<'a> SavedContext<'a> {
    /// Parse the descriptions in a container and check them.
    ///
    /// # Errors
    /// [`Error::State`] with the section that is missing, damaged, unknown or too large, and for a
    /// memory's part that contradicts itself; [`Error::SavedLength`] and [`Error::SavedValue`] for
    /// other sections that are not what they should be, or do not fit the memory's part;
    /// [`Error::OutOfMemory`].
    pub fn parse(container: &'a Container<'a>) -> Result<Self, Error> {
        Self::parse_if(container, |_| Ok(()))
    }

    /// As [`SavedContext::parse`], with a check of the ids before the lists of their sequences are
    /// read.
    pub(super) fn parse_if(
        container: &'a Container<'a>,
        check: impl FnOnce(&[u32]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let own = [SEQUENCES, TOKENS, ADAPTERS, LOGITS, SAMPLER, TRAIL, METADATA].map(|tag| (tag, VERSION));
        container.expect(&own.into_iter().chain(IMAGE_TAGS).collect::<Vec<_>>())?;
        let memory = StoredSnapshot::open(container)?;
        let ids = parse_ids(container, memory.snapshot())?;
        check(&ids)?;
        let (mut lists, mut known) = (Lists { container, n_bytes: 0 }, Known::default());
        let sequences = (0..).zip(ids.iter().zip(&memory.snapshot().sequences));
        let sequences = sequences
            .map(|(index, (id, held))| known.sequence(&mut lists, index, *id, memory.snapshot(), held));
        let sequences = sequences.collect::<Result<_, _>>()?;
        let metadata = match find(container, METADATA, 0) {
            Some(section) => container.read_at_most(section, MAX_READ)?.into_owned(),
            None => Vec::new(),
        };
        Ok(Self { container, memory, sequences, metadata })
    }

    /// Return the description of the memory's part.
    pub fn snapshot(&self) -> &Snapshot {
        self.memory.snapshot()
    }

    /// Return the state of the samplers of the first sequence, without their earlier ones.
    pub fn sampler(&self) -> Option<&sampler::State> {
        self.sequences.first().and_then(|first| first.sampler.as_deref())
    }
}

/// Return the section of that name, if there is one; not if it may be skipped and is of a version
/// that is not known.
fn find<'a>(container: &'a Container<'_>, tag: Tag, index: u64) -> Option<&'a Section> {
    container.find(tag, index).filter(|section| section.version <= VERSION)
}

/// Read which sequences there are.
fn parse_ids(container: &Container<'_>, snapshot: &Snapshot) -> Result<Vec<u32>, Error> {
    let bytes = container.read_at_most(container.require(SEQUENCES, 0)?, 4 * MAX_SEQUENCES)?;
    let mut from = SavedReader::new("the list of sequences", &bytes);
    let ids: Vec<u32> = from.list(snapshot.sequences.len() as u64)?;
    from.end()?;
    if let Some(i) = (1..ids.len()).find(|&i| ids[i] <= ids[i - 1]) {
        return Err(from.wrong(4 * i as u64, ids[i], "a larger id than the one before"));
    }
    Ok(ids)
}

/// Contents of sections of which several may be the same bytes of the file, by offset and length:
/// each is in memory once.
type Shared<T> = BTreeMap<(u64, u64), T>;

/// The contents that are known so far.
#[derive(Default)]
struct Known {
    tokens: Shared<SavedTokens>,
    logits: Shared<Arc<Vec<f32>>>,
    samplers: Shared<Arc<sampler::State>>,
    trails: Shared<Arc<sampler::Trail>>,
    adapters: Shared<Arc<SavedAdapters>>,
}

/// The container of lists, and the bytes of those that were read.
struct Lists<'a> {
    container: &'a Container<'a>,
    n_bytes: u64,
}

impl Lists<'_> {
    /// Return the content of a section of at most `limit` bytes, which is known or learned.
    fn read<T: Clone>(
        &mut self,
        section: &Section,
        limit: u64,
        known: &mut Shared<T>,
        parse: impl FnOnce(&[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let place = (section.offset, section.raw_len);
        if let Some(content) = known.get(&place) {
            return Ok(content.clone());
        }
        self.n_bytes = self.n_bytes.saturating_add(section.raw_len);
        let most = self.container.committed_len().saturating_add(LISTS_ROOM).min(MAX_LISTS);
        expect_at_most("bytes of all lists of tokens, logits and samplers", self.n_bytes, most)?;
        let content = parse(&self.container.read_at_most(section, limit)?)?;
        known.insert(place, content.clone());
        Ok(content)
    }
}

impl Known {
    fn sequence(
        &mut self,
        lists: &mut Lists<'_>,
        index: u64,
        id: u32,
        snapshot: &Snapshot,
        held: &snapshot::Sequence,
    ) -> Result<SavedSequence, Error> {
        let Known { tokens, logits, samplers, trails, adapters } = self;
        let container = lists.container;
        let section = container.require(TOKENS, index)?;
        let SavedTokens { edited, foreign, start, tokens } =
            lists.read(section, MAX_TOKENS, tokens, SavedTokens::parse)?;
        let section = find(container, LOGITS, index);
        let logits = section.map(|section| lists.read(section, MAX_TOKENS, logits, logits_of)).transpose()?;
        let section = find(container, SAMPLER, index);
        let trail = section.and_then(|_| find(container, TRAIL, index));
        let decode = |bytes: &[u8]| sampler::State::decode(bytes).map(Arc::new);
        let sampler = section.map(|section| lists.read(section, MAX_TOKENS, samplers, decode)).transpose()?;
        let decode = |bytes: &[u8]| sampler::Trail::decode(bytes).map(Arc::new);
        let trail = trail.map(|section| lists.read(section, MAX_TOKENS, trails, decode)).transpose()?;
        let section = container.find(ADAPTERS, index);
        let parse = |bytes: &[u8]| SavedAdapters::parse(bytes).map(Arc::new);
        let adapters =
            section.map(|section| lists.read(section, MAX_ADAPTERS, adapters, parse)).transpose()?;
        let end = snapshot.end_of(held);
        let sequence =
            SavedSequence { id, edited, foreign, start, tokens, logits, sampler, trail, adapters, end };
        if !sequence.edited || !sequence.tokens.is_empty() {
            check_tokens(&sequence, snapshot, held)?;
        }
        Ok(sequence)
    }
}

/// Read a list of logits.
fn logits_of(bytes: &[u8]) -> Result<Arc<Vec<f32>>, Error> {
    SavedReader::new("the list of logits", bytes).rest().map(Arc::new)
}

/// Return the error for tokens that do not fit the memory's part.
fn unlike(found: Pos, wanted: &'static str) -> Error {
    Error::SavedValue { what: "the list of a sequence's tokens", offset: 4, found: found.0 as u64, wanted }
}

/// Check that a list of tokens ends where the memory's sequence does, and that every token of which
/// some group of layers keeps a cell has one there: a list that goes on across a hole would be cut
/// in the hole by a rollback, and then end elsewhere than the cells.
fn check_tokens(
    sequence: &SavedSequence,
    snapshot: &Snapshot,
    held: &snapshot::Sequence,
) -> Result<(), Error> {
    let end = Pos(sequence.start.0.saturating_add(sequence.tokens.len() as i32));
    if end != sequence.end {
        return Err(unlike(end, "the end of the sequence"));
    }
    let groups = snapshot.shape.groups.iter().zip(&snapshot.blocks).zip(&held.cells);
    for ((_, blocks), cells) in groups.filter(|((group, _), _)| group.sees != Sees::EncoderOutput) {
        // Several cells may stand at one position.
        let mut wanted = sequence.start.max(cells.whole_from);
        for pos in cells.positions(blocks) {
            if pos == wanted {
                wanted = Pos(pos.0.saturating_add(1));
            }
        }
        if wanted < end {
            return Err(unlike(wanted, "tokens that cells are there for"));
        }
    }
    Ok(())
}
