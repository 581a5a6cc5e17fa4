//! An entry: a file of consecutive blocks of a prompt, and of resume points after some of them.
//!
//! An entry is a container that was written as a stream. `PRFX` says which prefix of which prompt
//! it continues; `BLCK` 0, 1, … are the payloads of its blocks, and `RESM` *n* is the payload of
//! the resume point after *n* of them. It is named for the last prefix that it says anything about,
//! and for all that is in it: the checksum of its header and directory.

use super::key::{BLOCK_TOKENS, BlockTokens, KEY_BYTES, Key};
use crate::ids::Token;
use crate::io::{ByteReader, Write};
use crate::storage::container::{Container, Fields, Section, Writer};
use crate::storage::disk::DiskFile;
use crate::storage::error::Error;
use crate::storage::header::{Fingerprint, Header, Scope, Tag};
use core::fmt;
use std::borrow::Cow;
use std::format;
use std::vec::Vec;

/// The prefix that an entry continues.
pub(super) const PREFIX: Tag = Tag(*b"PRFX");
/// The payload of a block.
pub(super) const BLOCK: Tag = Tag(*b"BLCK");
/// The payload of a resume point.
pub(super) const RESUME: Tag = Tag(*b"RESM");
/// The version of all of them.
pub(super) const ENTRY_VERSION: u16 = 1;

/// The most blocks, and the most resume points, of an entry. Bounds what reading one can allocate.
pub(super) const MAX_PAYLOADS: usize = 4096;

/// The most sections of an entry: one for each payload, and `PRFX`.
const MAX_SECTIONS: u64 = 2 * MAX_PAYLOADS as u64 + 1;
/// Bytes of a block's tokens.
const TOKEN_BYTES: usize = 4 * BLOCK_TOKENS;
/// Bytes of `PRFX` beside tokens: a key and two numbers.
const FIXED_BYTES: usize = KEY_BYTES + 8;

/// End of the names of entries.
const SUFFIX: &str = ".entry";
/// End of the names that entries had before they were containers.
const OLD_SUFFIX: &str = ".pack";

/// A payload: pieces that are stored one behind the other.
pub type Pieces<'a> = Vec<Cow<'a, [u8]>>;

/// The name of an entry: the key of the last prefix that it says anything about, and the checksum
/// that stands for its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryName {
    pub key: Key,
    pub check: u64,
}

impl EntryName {
    /// Parse the name of a file; only a name that [`EntryName`] would write is one.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (key, check) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let found = Self { key: Key(Fingerprint::parse(key)?), check: u64::from_str_radix(check, 16).ok()? };
        (format!("{found}") == name).then_some(found)
    }

    /// Return true if a file was called `name` as an entry of format version 1, which nothing reads
    /// any more.
    pub(super) fn is_outdated(name: &str) -> bool {
        let stem = name.strip_suffix(OLD_SUFFIX);
        stem.is_some_and(|stem| Self::parse(&format!("{stem}{SUFFIX}")).is_some())
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}{SUFFIX}", self.key, self.check)
    }
}

/// A block of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The key of the prefix that ends with this block.
    pub key: Key,
    pub tokens: BlockTokens,
    pub payload: Section,
}

/// Everything of an entry but its payloads, as it stands in memory as long as the folder is open.
///
/// [`Entry::read`] makes it of a file whose container is sound and whose tokens lead from one key
/// to the other, so whatever an entry says holds, short of somebody who wrote right checksums on
/// purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The name that it must have.
    pub name: EntryName,
    /// The key of the empty prefix.
    pub root: Key,
    /// The key of the prefix that the first block follows.
    pub parent: Key,
    /// The number of blocks of that prefix.
    pub n_before: u32,
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// The payloads of the resume points; the index of each says after how many blocks of the entry
    /// it stands.
    pub resumes: Vec<Section>,
    /// Bytes of the file.
    pub total: u64,
}

impl Entry {
    /// Read an entry, without its payloads.
    ///
    /// # Errors
    /// Those of a container; [`Error::Malformed`] for what no program writes.
    pub(super) fn read(file: &dyn DiskFile) -> Result<Self, Error> {
        let container = Container::open_at_most(file, MAX_SECTIONS)?;
        container.expect_scope(Scope::Entry)?;
        container.expect(&[PREFIX, BLOCK, RESUME].map(|tag| (tag, ENTRY_VERSION)))?;
        let root = Key(*container.fingerprint());
        let limit = FIXED_BYTES + MAX_PAYLOADS * TOKEN_BYTES;
        let prefix = container.read_at_most(container.require(PREFIX, 0)?, limit as u64)?;
        let mut fields = Fields::new(PREFIX, &prefix);
        let (parent, n_before) =
            (Key(Fingerprint(fields.read(ByteReader::array)?)), fields.read(ByteReader::u32)?);
        if (parent == root) != (n_before == 0) {
            return Err(fields.malformed("number of blocks before", n_before.into(), 0));
        }
        let (payloads, resumes) = (container.of(BLOCK), container.of(RESUME).to_vec());
        let n_blocks = fields.count(TOKEN_BYTES)?;
        if payloads.len() != n_blocks {
            return Err(fields.malformed("number of blocks", payloads.len() as u64, n_blocks as u64));
        }
        let (mut key, mut blocks) = (parent, Vec::with_capacity(n_blocks));
        for (number, &payload) in (0..).zip(payloads) {
            if payload.index != number {
                return Err(fields.malformed("index of a block", payload.index, number));
            }
            let mut tokens = [Token(0); BLOCK_TOKENS];
            for token in &mut tokens {
                *token = Token(fields.read(ByteReader::u32)?);
            }
            key = key.then(&tokens);
            blocks.push(Block { key, tokens, payload });
        }
        let places = u64::from(n_before == 0)..=n_blocks as u64;
        if let Some(resume) = resumes.iter().find(|resume| !places.contains(&resume.index)) {
            return Err(fields.malformed("place of a resume point", resume.index, n_blocks as u64));
        }
        fields.end()?;
        let name = EntryName { key, check: container.whole_checksum() };
        Ok(Self { name, root, parent, n_before, blocks, resumes, total: container.file_len() })
    }

    /// Return the key of the prefix that ends where a resume point stands.
    pub(super) fn key_at(&self, resume: &Section) -> Key {
        let block = resume.index.checked_sub(1).and_then(|last| self.blocks.get(last as usize));
        block.map_or(self.parent, |block| block.key)
    }
}

/// Return the header of entries under a root.
pub(super) fn header(root: &Key) -> Header {
    Header { fingerprint: root.0, scope: Scope::Entry }
}

/// Return the content of `PRFX` for an entry of these blocks behind `n_before` others.
pub(super) fn prefix(parent: &Key, n_before: u32, blocks: &[BlockTokens]) -> Vec<u8> {
    let mut bytes = parent.as_bytes().to_vec();
    bytes.extend(n_before.to_le_bytes());
    bytes.extend((blocks.len() as u32).to_le_bytes());
    blocks.as_flattened().iter().for_each(|token| bytes.extend(token.0.to_le_bytes()));
    bytes
}

/// Write an entry under `root`: the payloads of blocks and of resume points, each with its tag and
/// index, and its prefix. Returns the checksum that stands for its content.
///
/// # Errors
/// Those of the writer.
pub(super) fn write<'p>(
    out: &mut dyn Write,
    root: &Key,
    prefix: &[u8],
    payloads: impl Iterator<Item = (Tag, u64, &'p Pieces<'p>)>,
) -> Result<u64, Error> {
    let mut writer = Writer::new(out, header(root))?;
    for (tag, index, pieces) in payloads {
        let pieces: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
        writer.section(tag, ENTRY_VERSION, true, index, &pieces)?;
    }
    writer.section(PREFIX, ENTRY_VERSION, true, 0, &[prefix])?;
    Ok(writer.finish()?.whole_checksum)
}
