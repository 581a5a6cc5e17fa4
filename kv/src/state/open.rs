//! Opening: from the first bytes of a container to the directory of its sections, each step checked before the next one trusts it.

use super::checksum::{checksum, of_pieces};
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, Footer, FooterBytes, HEADER_BYTES, HeaderBytes, MAGIC, N_SLOTS,
    RECORD_BYTES, SLOT_BYTES, SlotBytes, align, verify,
};
use super::limits::{MAX_DIRECTORY, expect_at_most};
use super::source::Source;
use super::{Error, Header, Tag};
use alloc::borrow::Cow;

/// What was found on the way.
pub(super) struct Opened<'a> {
    pub len: u64,
    pub head: HeaderBytes,
    pub header: Header,
    pub stream: bool,
    pub commit: Commit,
    pub footer: Footer,
    pub directory: Cow<'a, [u8]>,
}

/// Walks from the header to the directory.
pub(super) fn open<'a>(source: &Source<'a>) -> Result<Opened<'a>, Error> {
    let head = head(source)?;
    let (header, stream) = head.decode()?;
    let (commit, footer, len) = if stream { stream_end(source)? } else { last_commit(source)? };
    let directory = directory(source, &head, &commit, &footer)?;
    Ok(Opened { len, head, header, stream, commit, footer, directory })
}

/// The header. What begins otherwise is another kind of file, even if it is shorter.
fn head(source: &Source) -> Result<HeaderBytes, Error> {
    let front: Result<[u8; 8], Error> = source.part(Tag::HEADER, 0);
    match front {
        Ok(found) if found != MAGIC => Err(Error::Magic { found }),
        _ => source.part(Tag::HEADER, 0),
    }
}

/// The end of a container that was written as a stream: the end of the source.
fn stream_end(source: &Source) -> Result<(Commit, Footer, u64), Error> {
    let have = source.len()?;
    let offset = have.saturating_sub(FOOTER_BYTES).max(DATA_OFFSET);
    let end: FooterBytes = source.part(Tag::FOOTER, offset)?;
    if !end.is_footer() {
        let need = have.saturating_add(FOOTER_BYTES);
        return Err(Error::Truncated { section: Tag::FOOTER, offset: have, need, have });
    }
    let footer = end.decode(offset)?;
    Ok((Commit { generation: 1, committed: have, footer_checksum: end.checksum() }, footer, have))
}

/// The newest commit whose slot is whole, and the footer that it names. The length is asked for after the slots were read, because somebody
/// may be appending: a commit is written after all that it commits.
fn last_commit(source: &Source) -> Result<(Commit, Footer, u64), Error> {
    let mut newest: Option<Commit> = None;
    for slot in 0..N_SLOTS {
        let found: SlotBytes = source.part(Tag::SLOT, HEADER_BYTES + slot * SLOT_BYTES)?;
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
    let end: FooterBytes = source.part(Tag::FOOTER, offset)?;
    verify(Tag::FOOTER, offset, footer_checksum, end.checksum())?;
    Ok((commit, end.decode(offset)?, have))
}

/// The bytes of the directory that `footer` names, checked.
fn directory<'a>(
    source: &Source<'a>,
    head: &HeaderBytes,
    commit: &Commit,
    footer: &Footer,
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
    expect_at_most("bytes of the directory", len, MAX_DIRECTORY)?;
    let directory = source.bytes(Tag::DIRECTORY, start, len)?;
    verify(Tag::DIRECTORY, start, footer.directory_checksum, checksum(&directory))?;
    let whole = of_pieces(&[bytemuck::bytes_of(head), &directory]);
    verify(Tag::FOOTER, offset, footer.whole_checksum, whole)?;
    Ok(directory)
}
