//! The head of a pack: which blocks and resume points a file holds, where, and how to tell that they are whole.
//!
//! A pack is an immutable file: a head, then payloads. The head says everything but the offsets of payloads, which follow from their
//! lengths: each begins at the next multiple of 64. [`Head::encode`] and [`Head::decode`] are inverse to each other and touch no
//! files; `docs/prompt-store.md` has the layout byte by byte.

use super::key::{BLOCK_TOKENS, BlockTokens, KEY_BYTES, Key};
use crate::ids::Token;
use core::fmt;
use std::vec::Vec;
use twox_hash::XxHash3_64;

/// What a pack begins with.
const MAGIC: &[u8; 8] = b"BSTPACK1";
/// Version of the layout.
const VERSION: u32 = 1;
/// Bytes before the tables.
pub(super) const FIXED_BYTES: usize = 192;
/// Where the checksum of the head lies; it is zero while the checksum is computed.
const CHECK_AT: usize = 144;
/// A block's entry: its tokens, length and checksum of its payload.
const BLOCK_ENTRY: usize = BLOCK_TOKENS * 4 + 16;
/// A resume point's entry: its block, four zeros, length and checksum of its payload.
const RESUME_ENTRY: usize = 24;
/// Payloads begin at multiples of this.
pub(super) const ALIGN: u64 = 64;
/// The most blocks, and the most resume points, of a pack. Bounds what reading a head can allocate.
pub(super) const MAX_ENTRIES: usize = 4096;

/// Where a payload lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where it begins, from the start of the file.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// XXH3-64 of them.
    pub check: u64,
}

/// A block that a pack holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The key of the prefix that ends with this block.
    pub key: Key,
    /// Its tokens.
    pub tokens: BlockTokens,
    /// Its payload.
    pub payload: Extent,
}

/// A resume point that a pack holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resume {
    /// It stands after this many of the pack's blocks.
    pub after: u32,
    /// Its payload.
    pub payload: Extent,
}

/// What a pack says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The key of the empty prefix.
    pub root: Key,
    /// The key of the prefix that the first block follows.
    pub parent: Key,
    /// How many blocks that prefix has.
    pub n_before: u32,
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// The resume points, ascending.
    pub resumes: Vec<Resume>,
    /// Length of the whole file.
    pub total: u64,
    /// The head's own checksum.
    pub check: u64,
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// The file ends before its head, or before or behind the length that its head tells.
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes it should have.
        wanted: u64,
    },
    /// It does not begin like a pack.
    Magic,
    /// A later program wrote it; nothing is wrong with it.
    Version {
        /// The version.
        found: u32,
    },
    /// The checksum of the head is another.
    Checksum {
        /// What the head says.
        stored: u64,
        /// What its bytes give.
        computed: u64,
    },
    /// A field holds what no program writes.
    Field {
        /// Which.
        what: &'static str,
        /// Where it is, from the start of the file.
        offset: u64,
        /// What it holds.
        found: u64,
    },
    /// The chain of its tokens ends in another key than it tells, or than its file is named for.
    Chain,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found, wanted } => write!(f, "has {found} bytes instead of {wanted}"),
            Self::Magic => write!(f, "does not begin like a pack"),
            Self::Version { found } => {
                write!(f, "has version {found} of the layout, this program knows {VERSION}; use a newer one")
            }
            Self::Checksum { stored, computed } => {
                write!(f, "has a damaged head: its checksum is {computed:016x}, it should be {stored:016x}")
            }
            Self::Field { what, offset, found } => write!(f, "has {found} for {what} at offset {offset}"),
            Self::Chain => write!(f, "has tokens that do not lead to the key it is named for"),
        }
    }
}

/// What is put in a pack: the payloads' lengths and checksums are known, their places and all keys follow.
pub(super) struct Plan<'a> {
    pub root: Key,
    pub parent: Key,
    pub n_before: u32,
    /// Tokens, payload length and checksum of each block.
    pub blocks: &'a [(BlockTokens, u64, u64)],
    /// For each resume point: after how many blocks, payload length and checksum.
    pub resumes: &'a [(u32, u64, u64)],
}

impl Head {
    /// The head of a pack with this content; `None` if it would be longer than a file can be, or has more entries than a pack may.
    pub(super) fn new(plan: &Plan<'_>) -> Option<Head> {
        if plan.blocks.len().max(plan.resumes.len()) > MAX_ENTRIES {
            return None;
        }
        let head = head_bytes(plan.blocks.len(), plan.resumes.len());
        let mut places = Places { end: head as u64 };
        let mut key = plan.parent;
        let mut blocks = Vec::with_capacity(plan.blocks.len());
        for (tokens, len, check) in plan.blocks {
            key = key.then(tokens);
            blocks.push(Block { key, tokens: *tokens, payload: places.next(*len, *check)? });
        }
        let mut resumes = Vec::with_capacity(plan.resumes.len());
        for &(after, len, check) in plan.resumes {
            resumes.push(Resume { after, payload: places.next(len, check)? });
        }
        let (root, parent, n_before) = (plan.root, plan.parent, plan.n_before);
        let mut head = Head { root, parent, n_before, blocks, resumes, total: places.end, check: 0 };
        head.check = XxHash3_64::oneshot(&head.encode());
        Some(head)
    }

    /// The key of the longest prefix that the pack says anything about.
    pub(super) fn last(&self) -> Key {
        self.blocks.last().map_or(self.parent, |block| block.key)
    }

    /// The key of the prefix that ends after `n` of the pack's blocks.
    pub(super) fn key_after(&self, n: u32) -> Option<Key> {
        match (n as usize).checked_sub(1) {
            None => Some(self.parent),
            Some(block) => self.blocks.get(block).map(|block| block.key),
        }
    }

    /// Where the head ends.
    pub(super) fn payload_start(&self) -> u64 {
        head_bytes(self.blocks.len(), self.resumes.len()) as u64
    }

    /// All payloads, in the order in which they lie in the file.
    pub(super) fn payloads(&self) -> impl Iterator<Item = Extent> {
        let resumes = self.resumes.iter().map(|resume| resume.payload);
        self.blocks.iter().map(|block| block.payload).chain(resumes)
    }

    /// The head as bytes; as many as [`head_bytes`] tells.
    pub(super) fn encode(&self) -> Vec<u8> {
        let len = head_bytes(self.blocks.len(), self.resumes.len());
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.total.to_le_bytes());
        out.extend_from_slice(&(len as u64).to_le_bytes());
        for key in [self.root, self.parent, self.last()] {
            out.extend_from_slice(key.as_bytes());
        }
        for n in [self.n_before, self.blocks.len() as u32, self.resumes.len() as u32, 0] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&self.check.to_le_bytes());
        out.resize(FIXED_BYTES, 0);
        for block in &self.blocks {
            block.tokens.iter().for_each(|token| out.extend_from_slice(&token.0.to_le_bytes()));
            out.extend_from_slice(&block.payload.len.to_le_bytes());
            out.extend_from_slice(&block.payload.check.to_le_bytes());
        }
        for resume in &self.resumes {
            out.extend_from_slice(&resume.after.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&resume.payload.len.to_le_bytes());
            out.extend_from_slice(&resume.payload.check.to_le_bytes());
        }
        out.resize(len, 0);
        out
    }

    /// Reads the head of a pack; `bytes` are all of the head, as many as [`head_len`] tells.
    pub(super) fn decode(bytes: &[u8]) -> Result<Head, Flaw> {
        let stored = Cursor { bytes, at: CHECK_AT }.u64()?;
        let computed = checksum(bytes)?;
        if stored != computed {
            return Err(Flaw::Checksum { stored, computed });
        }
        let mut cursor = Cursor { bytes, at: 8 };
        cursor.version()?;
        let total = cursor.u64()?;
        let len = cursor.u64()?;
        let (root, parent, last) = (cursor.key()?, cursor.key()?, cursor.key()?);
        let n_before = cursor.u32()?;
        let n_blocks = cursor.count("the number of blocks")?;
        let n_resumes = cursor.count("the number of resume points")?;
        cursor.zeros(4)?;
        let check = cursor.u64()?;
        cursor.zeros(FIXED_BYTES - cursor.at)?;
        if len != bytes.len() as u64 || bytes.len() != head_bytes(n_blocks, n_resumes) {
            return Err(Flaw::Field { what: "the length of the head", offset: 24, found: len });
        }
        let mut places = Places { end: len };
        let blocks = cursor.blocks(n_blocks, parent, &mut places)?;
        let resumes = cursor.resumes(n_resumes, n_blocks, &mut places)?;
        cursor.zeros(bytes.len() - cursor.at)?;
        let head = Head { root, parent, n_before, blocks, resumes, total, check };
        head.check_whole(last, places.end)?;
        Ok(head)
    }

    /// What the fields must have in common.
    fn check_whole(&self, last: Key, end: u64) -> Result<(), Flaw> {
        if self.total != end {
            return Err(Flaw::Field { what: "the length of the file", offset: 16, found: self.total });
        }
        let n_before = u64::from(self.n_before);
        if self.n_before.checked_add(self.blocks.len() as u32).is_none() {
            return Err(Flaw::Field { what: "the number of blocks before", offset: 128, found: n_before });
        }
        if self.blocks.is_empty() && self.resumes.is_empty() {
            return Err(Flaw::Field { what: "the number of blocks", offset: 132, found: 0 });
        }
        if self.last() != last || (self.n_before == 0) != (self.parent == self.root) {
            return Err(Flaw::Chain);
        }
        Ok(())
    }
}

/// Bytes of a head with so many entries: a multiple of 64.
pub(super) fn head_bytes(n_blocks: usize, n_resumes: usize) -> usize {
    (FIXED_BYTES + n_blocks * BLOCK_ENTRY + n_resumes * RESUME_ENTRY).next_multiple_of(ALIGN as usize)
}

/// How long the head of a pack is, from its first [`FIXED_BYTES`] bytes and the length of the file.
pub(super) fn head_len(fixed: &[u8], file: u64) -> Result<usize, Flaw> {
    let mut cursor = Cursor { bytes: fixed, at: 0 };
    if cursor.take::<8>()? != *MAGIC {
        return Err(Flaw::Magic);
    }
    cursor.version()?;
    let total = cursor.u64()?;
    let len = cursor.u64()?;
    let most = head_bytes(MAX_ENTRIES, MAX_ENTRIES) as u64;
    if len < FIXED_BYTES as u64 || len > most || !len.is_multiple_of(ALIGN) {
        return Err(Flaw::Field { what: "the length of the head", offset: 24, found: len });
    }
    if total != file || len > file {
        return Err(Flaw::Length { found: file, wanted: total.max(len) });
    }
    usize::try_from(len).map_err(|_| Flaw::Length { found: file, wanted: len })
}

/// XXH3-64 of a head, as if the checksum in it were zero.
fn checksum(head: &[u8]) -> Result<u64, Flaw> {
    let mut bytes = head.to_vec();
    let wanted = FIXED_BYTES as u64;
    let short = Flaw::Length { found: head.len() as u64, wanted };
    bytes.get_mut(CHECK_AT..CHECK_AT + 8).ok_or(short)?.fill(0);
    Ok(XxHash3_64::oneshot(&bytes))
}

/// Where payloads go: one behind the other, each at the next multiple of 64. The file ends with the last one's last byte.
struct Places {
    end: u64,
}

impl Places {
    fn next(&mut self, len: u64, check: u64) -> Option<Extent> {
        let offset = self.end.checked_next_multiple_of(ALIGN)?;
        self.end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64)?;
        Some(Extent { offset, len, check })
    }
}

/// Reads numbers from bytes, from front to back.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(bytes) = rest.first_chunk() else {
            let found = self.bytes.len() as u64;
            return Err(Flaw::Length { found, wanted: self.at as u64 + N as u64 });
        };
        self.at += N;
        Ok(*bytes)
    }

    fn u32(&mut self) -> Result<u32, Flaw> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Flaw> {
        self.take().map(u64::from_le_bytes)
    }

    fn key(&mut self) -> Result<Key, Flaw> {
        self.take::<KEY_BYTES>().map(Key::from_bytes)
    }

    fn version(&mut self) -> Result<(), Flaw> {
        match self.u32()? {
            VERSION => self.zeros(4),
            found => Err(Flaw::Version { found }),
        }
    }

    fn count(&mut self, what: &'static str) -> Result<usize, Flaw> {
        let n = self.u32()?;
        let field = Flaw::Field { what, offset: self.at as u64 - 4, found: n.into() };
        usize::try_from(n).ok().filter(|&n| n <= MAX_ENTRIES).ok_or(field)
    }

    fn zeros(&mut self, n: usize) -> Result<(), Flaw> {
        for _ in 0..n {
            let [byte] = self.take()?;
            if byte != 0 {
                let offset = self.at as u64 - 1;
                return Err(Flaw::Field { what: "a byte that is always zero", offset, found: byte.into() });
            }
        }
        Ok(())
    }

    fn extent(&mut self, places: &mut Places) -> Result<Extent, Flaw> {
        let offset = self.at as u64;
        let (len, check) = (self.u64()?, self.u64()?);
        places.next(len, check).ok_or(Flaw::Field { what: "the length of a payload", offset, found: len })
    }

    fn blocks(&mut self, n: usize, parent: Key, places: &mut Places) -> Result<Vec<Block>, Flaw> {
        let mut blocks = Vec::with_capacity(n);
        let mut key = parent;
        for _ in 0..n {
            let mut tokens = [Token(0); BLOCK_TOKENS];
            for token in &mut tokens {
                *token = Token(self.u32()?);
            }
            key = key.then(&tokens);
            blocks.push(Block { key, tokens, payload: self.extent(places)? });
        }
        Ok(blocks)
    }

    fn resumes(&mut self, n: usize, n_blocks: usize, places: &mut Places) -> Result<Vec<Resume>, Flaw> {
        let mut resumes: Vec<Resume> = Vec::with_capacity(n);
        for _ in 0..n {
            let after = self.u32()?;
            let ascends = resumes.last().is_none_or(|last| last.after < after);
            if !ascends || after as usize > n_blocks {
                let offset = self.at as u64 - 4;
                return Err(Flaw::Field { what: "the place of a resume point", offset, found: after.into() });
            }
            self.zeros(4)?;
            resumes.push(Resume { after, payload: self.extent(places)? });
        }
        Ok(resumes)
    }
}

/// Gives a head the checksum that its bytes have.
#[cfg(test)]
pub(super) fn seal(head: &mut [u8]) {
    let check = checksum(head).unwrap();
    head[CHECK_AT..CHECK_AT + 8].copy_from_slice(&check.to_le_bytes());
}
