//! Opening: from the first bytes of a container to the directory of its sections, each step checked
//! before the next one trusts it.

use super::checksum::{checksum, of_pieces};
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, Footer, HEADER_BYTES, HeaderBytes, MAGIC, N_SLOTS, SLOT_BYTES,
    Slot, align, verify,
};
use super::limits::expect_at_most;
use super::section::RECORD_BYTES;
use super::source::Source;
use crate::storage::error::Error;
use crate::storage::header::{Header, Tag};
use alloc::borrow::Cow;

/// Parts of a container, each checked.
pub(super) struct Opened<'a> {
    pub len: u64,
    pub head: HeaderBytes,
    pub header: Header,
    pub stream: bool,
    pub commit: Commit,
    pub footer: Footer,
    pub directory: Cow<'a, [u8]>,
}

/// Walk from the header to the directory, which may have `max_directory` bytes.
pub(super) fn open<'a>(source: &Source<'a>, max_directory: u64) -> Result<Opened<'a>, Error> {
    let head = head(source)?;
    let (header, stream) = head.decode()?;
    let (commit, footer, len) = if stream { stream_end(source)? } else { last_commit(source)? };
    let directory = directory(source, &head, &commit, &footer, max_directory)?;
    Ok(Opened { len, head, header, stream, commit, footer, directory })
}

/// Read the header. A file that begins otherwise is of another kind, even if it is shorter than a
/// header.
fn head(source: &Source) -> Result<HeaderBytes, Error> {
    let front: Result<[u8; 8], Error> = source.part(Tag::HEADER, 0);
    match front {
        Ok(found) if found != MAGIC => Err(Error::Magic { found }),
        _ => source.part(Tag::HEADER, 0),
    }
}

/// Read the footer of a container that was written as a stream, which ends the source.
fn stream_end(source: &Source) -> Result<(Commit, Footer, u64), Error> {
    let have = source.len()?;
    let offset = have.saturating_sub(FOOTER_BYTES).max(DATA_OFFSET);
    let end: Footer = source.part(Tag::FOOTER, offset)?;
    if !end.is_footer() {
        let need = have.saturating_add(FOOTER_BYTES);
        return Err(Error::Truncated { section: Tag::FOOTER, offset: have, need, have });
    }
    end.verify(offset)?;
    Ok((Commit::new(1, have, end.checksum()), end, have))
}

/// Read the newest commit whose slot is whole, and the footer that it names. The length is asked
/// for after the slots were read, because somebody may be appending: a commit is written after all
/// that it commits.
fn last_commit(source: &Source) -> Result<(Commit, Footer, u64), Error> {
    let mut newest: Option<Commit> = None;
    for slot in 0..N_SLOTS {
        let found: Slot = source.part(Tag::SLOT, HEADER_BYTES + slot * SLOT_BYTES)?;
        newest = newest.into_iter().chain(found.decode(slot)).max_by_key(|commit| commit.generation);
    }
    let have = source.len()?;
    let malformed = |what, found, wanted| Error::Malformed {
        section: Tag::SLOT,
        offset: HEADER_BYTES,
        what,
        found,
        wanted,
    };
    let commit = newest.ok_or_else(|| malformed("number of valid commits", 0, 1))?;
    let Commit { committed, footer_checksum, .. } = commit;
    if committed < DATA_OFFSET + FOOTER_BYTES || committed % ALIGN != 0 {
        return Err(malformed("committed length modulo 64", committed % ALIGN, 0));
    }
    let offset = committed - FOOTER_BYTES;
    if committed > have {
        return Err(Error::Truncated { section: Tag::FOOTER, offset, need: committed, have });
    }
    let end: Footer = source.part(Tag::FOOTER, offset)?;
    verify(Tag::FOOTER, offset, footer_checksum, end.checksum())?;
    end.verify(offset)?;
    Ok((commit, end, have))
}

/// Read the bytes of the directory that `footer` names, and check them.
fn directory<'a>(
    source: &Source<'a>,
    head: &HeaderBytes,
    commit: &Commit,
    footer: &Footer,
    max_directory: u64,
) -> Result<Cow<'a, [u8]>, Error> {
    let offset = commit.committed.saturating_sub(FOOTER_BYTES);
    let equal = |what, found, wanted| {
        let section = Tag::FOOTER;
        if found == wanted { Ok(()) } else { Err(Error::Malformed { section, offset, what, found, wanted }) }
    };
    equal("generation", footer.generation, commit.generation)?;
    equal("total length", footer.total, commit.committed)?;
    let Footer { directory_offset: start, directory_len: len, .. } = *footer;
    equal("directory length modulo the size of a record", len % RECORD_BYTES, 0)?;
    equal("directory offset modulo 64", start % ALIGN, 0)?;
    equal("directory offset", start, start.max(DATA_OFFSET))?;
    let end = start.checked_add(len).and_then(align);
    equal("end of the directory", end.unwrap_or(u64::MAX), offset)?;
    expect_at_most("bytes of the directory", len, max_directory)?;
    let directory = source.bytes(Tag::DIRECTORY, start, len)?;
    verify(Tag::DIRECTORY, start, footer.directory_checksum, checksum(&directory))?;
    let whole = of_pieces(&[bytemuck::bytes_of(head), &directory]);
    verify(Tag::FOOTER, offset, footer.whole_checksum, whole)?;
    Ok(directory)
}
