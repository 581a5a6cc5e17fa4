//! State files to look at: everything that can be said of one without the model it belongs to.

mod compare;
mod one;
#[cfg(test)]
mod tests;
mod ways_back;

use backstitch_kv::image::Image;
use backstitch_kv::state::{Container, Error, IMAGE_TAGS, MAX_READ, Section, StoredImage, Tag};
use backstitch_kv::{Pos, Token};
use backstitch_models::sampler;
use backstitch_models::sections::{LOGITS, MAX_TOKENS, METADATA, SAMPLER, SEQUENCES, TOKENS, VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use compare::{Difference, compare};
pub use one::restore_one;
pub use ways_back::ways_back;

/// Sequences that are looked at in one file, at most.
const MAX_SEQUENCES: u64 = 1 << 20;

/// What a container holds, all of its descriptions checked. Cells, states and journals are read when they
/// are asked for.
#[derive(Debug)]
pub struct Saved<'a> {
    /// The container.
    pub container: &'a Container<'a>,
    /// The memory's part.
    pub memory: StoredImage<'a>,
    /// What else there is of each sequence of the image, in its order.
    pub sequences: Vec<SavedSequence>,
    /// Where the samplers stood.
    pub sampler: Option<sampler::State>,
    /// Bytes of whoever saved.
    pub metadata: Vec<u8>,
}

/// What a state keeps of a sequence beside the memory's part.
#[derive(Debug, PartialEq, Eq)]
pub struct SavedSequence {
    /// Its id.
    pub id: u32,
    /// Whether it was changed in its middle, so that not all of its tokens are known.
    pub edited: bool,
    /// Whether something of it came from another engine, or was rounded.
    pub foreign: bool,
    /// The position of the first of its tokens.
    pub start: i32,
    /// Those of its tokens that are known; shared with other sequences for which the file has the same bytes.
    pub tokens: Rc<[Token]>,
    /// The bytes of the logits after the last, shared likewise.
    pub logits: Option<Rc<[u8]>>,
    /// The position that its next token gets.
    pub end: Pos,
}

impl<'a> Saved<'a> {
    /// Reads the descriptions and checks them, each by itself and against the others.
    ///
    /// # Errors
    /// Says which section is damaged or contradicts another.
    pub fn read(container: &'a Container<'a>) -> Result<Self, Error> {
        let own = [SEQUENCES, TOKENS, LOGITS, SAMPLER, METADATA].map(|tag| (tag, VERSION));
        container.expect(&own.into_iter().chain(IMAGE_TAGS).collect::<Vec<_>>())?;
        let memory = StoredImage::open(container)?;
        let image = memory.image();
        let section = container.require(SEQUENCES, 0)?;
        let ids = container.read_at_most(section, 4 * MAX_SEQUENCES)?;
        let ids: Vec<u32> = words(section, &ids)?.iter().map(|id| u32::from_le_bytes(*id)).collect();
        let (found, wanted) = (ids.len() as u64, image.sequences.len() as u64);
        if found != wanted {
            return Err(malformed(section, 0, "number of sequences", found, wanted));
        }
        let mut seen = BTreeSet::new();
        if let Some((at, id)) = ids.iter().enumerate().find(|(_, id)| !seen.insert(**id)) {
            return Err(malformed(section, at, "id of a sequence, seen before,", (*id).into(), wanted));
        }
        let sequences = (0..).zip(ids.iter().zip(&image.sequences));
        let mut known = Known { container, tokens: BTreeMap::new(), logits: BTreeMap::new() };
        let sequences = sequences
            .map(|(index, (&id, held))| SavedSequence::read(&mut known, index, id, image.end_of(held)));
        let sequences = sequences.collect::<Result<_, _>>()?;
        let sampler = bytes(container, SAMPLER, 0, MAX_TOKENS)?;
        let sampler = sampler.map(|bytes| read_sampler(container, &bytes)).transpose()?;
        let metadata = bytes(container, METADATA, 0, MAX_READ)?.unwrap_or_default();
        Ok(Self { container, sequences, sampler, metadata, memory })
    }

    /// What the memory's part describes.
    pub fn image(&self) -> &Image {
        self.memory.image()
    }
}

impl SavedSequence {
    fn read(known: &mut Known<'_>, index: u64, id: u32, end: Pos) -> Result<Self, Error> {
        let section = known.container.require(TOKENS, index)?;
        let List { flags, start, tokens } = known.tokens(section)?;
        if flags > 3 {
            return Err(malformed(section, 0, "word of flags", flags.into(), 3));
        }
        let (edited, foreign) = (flags & 1 != 0, flags & 2 != 0);
        let own_end = u64::from(start) + tokens.len() as u64;
        let is_known = !edited || !tokens.is_empty();
        let wanted = u64::from(end.0.unsigned_abs());
        if is_known && own_end != wanted {
            return Err(malformed(section, 1, "end of the tokens", own_end, wanted));
        }
        let logits = find(known.container, LOGITS, index).map(|section| known.logits(section)).transpose()?;
        let start = i32::try_from(start).map_err(|_| malformed(section, 1, "start", start.into(), 0))?;
        Ok(Self { id, edited, foreign, start, tokens, logits, end })
    }
}

/// A list of tokens and what stands before it.
#[derive(Clone)]
struct List {
    flags: u32,
    start: u32,
    tokens: Rc<[Token]>,
}

/// What was read of sections of which several may be the same bytes of the file, by their places: each is in memory once.
struct Known<'a> {
    container: &'a Container<'a>,
    tokens: BTreeMap<(u64, u64), List>,
    logits: BTreeMap<(u64, u64), Rc<[u8]>>,
}

impl Known<'_> {
    fn tokens(&mut self, section: &Section) -> Result<List, Error> {
        if let Some(list) = self.tokens.get(&place(section)) {
            return Ok(list.clone());
        }
        let bytes = self.container.read_at_most(section, MAX_TOKENS)?;
        let [flags, start, tokens @ ..] = words(section, &bytes)? else {
            return Err(malformed(section, 0, "length", section.raw_len, 8));
        };
        let [flags, start] = [flags, start].map(|word| u32::from_le_bytes(*word));
        let tokens = tokens.iter().map(|token| Token(u32::from_le_bytes(*token))).collect();
        let list = List { flags, start, tokens };
        self.tokens.insert(place(section), list.clone());
        Ok(list)
    }

    fn logits(&mut self, section: &Section) -> Result<Rc<[u8]>, Error> {
        if let Some(logits) = self.logits.get(&place(section)) {
            return Ok(logits.clone());
        }
        let logits: Rc<[u8]> = self.container.read_at_most(section, MAX_TOKENS)?.into();
        words(section, &logits)?;
        self.logits.insert(place(section), logits.clone());
        Ok(logits)
    }
}

/// Where a section lies.
fn place(section: &Section) -> (u64, u64) {
    (section.offset, section.raw_len)
}

fn malformed(section: &Section, word: usize, what: &'static str, found: u64, wanted: u64) -> Error {
    let offset = section.offset.saturating_add(4 * word as u64);
    Error::Malformed { section: section.tag, offset, what, found, wanted }
}

/// The section of that name, if there is one; not if it may be skipped and is of a version that is not known.
fn find<'a>(container: &'a Container<'_>, tag: Tag, index: u64) -> Option<&'a Section> {
    container.find(tag, index).filter(|section| section.version <= VERSION)
}

/// The content of a section that there may be, of at most `limit` bytes.
fn bytes(container: &Container<'_>, tag: Tag, index: u64, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let bytes =
        find(container, tag, index).map(|section| container.read_at_most(section, limit)).transpose()?;
    Ok(bytes.map(|bytes| bytes.into_owned()))
}

/// The content of a section of numbers, 32 bits each.
fn words<'b>(section: &Section, bytes: &'b [u8]) -> Result<&'b [[u8; 4]], Error> {
    match bytes.as_chunks::<4>() {
        (words, []) => Ok(words),
        (words, _) => Err(malformed(section, 0, "length", bytes.len() as u64, 4 * words.len() as u64)),
    }
}

fn read_sampler(container: &Container<'_>, bytes: &[u8]) -> Result<sampler::State, Error> {
    let section = container.require(SAMPLER, 0)?;
    let wrong = |_| malformed(section, 0, "length of the sampler's state", bytes.len() as u64, 24);
    sampler::State::decode(bytes).map_err(wrong)
}
