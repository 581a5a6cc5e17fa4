//! Opening: from the first bytes of a container to the directory of its sections, each step checked
//! before the next one trusts it.

use super::checksum::{checksum, of_pieces};
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, FOOTER_MAGIC, Footer, HEADER_BYTES, HeaderBytes, MAGIC,
    N_SLOTS, SLOT_BYTES, Slot, align, verify,
};
use super::limits::{expect_at_most, zeroed};
use super::reader::Container;
use super::section::{RECORD_BYTES, Section, check_all};
use super::source::Source;
use crate::storage::error::{Error, expect_equal};
use crate::storage::header::Tag;
use alloc::vec::Vec;

impl<'a> Container<'a> {
    /// Walk from the header to the directory, which may have `max_directory` bytes.
    pub(super) fn on(source: Source<'a>, max_directory: u64) -> Result<Self, Error> {
        let head = head(&source)?;
        let (header, stream) = head.decode()?;
        let (footer, len) = if stream { stream_end(&source)? } else { last_commit(&source)? };
        let sections = directory(&source, &head, &footer, max_directory)?;
        let used = check_all(&sections, footer.directory_offset)?;
        Ok(Self { source, len, head, header, stream, footer, sections, used })
    }
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

/// Read the footer of a container that was written as a stream, which ends the source, and return
/// the source's length with it.
fn stream_end(source: &Source) -> Result<(Footer, u64), Error> {
    let have = source.len()?;
    let offset = have.saturating_sub(FOOTER_BYTES).max(DATA_OFFSET);
    let end: Footer = source.part(Tag::FOOTER, offset)?;
    if end.magic != FOOTER_MAGIC {
        let need = have.saturating_add(FOOTER_BYTES);
        return Err(Error::Truncated { section: Tag::FOOTER, offset: have, need, have });
    }
    end.verify(offset)?;
    expect_commit(&end, 1, have)?;
    Ok((end, have))
}

/// Read the newest commit whose slot is whole, and return the footer that it names and the source's
/// length. That is asked for after the slots were read, because somebody may be appending: a commit
/// is written after all that it commits.
fn last_commit(source: &Source) -> Result<(Footer, u64), Error> {
    let mut newest: Option<Commit> = None;
    for slot in 0..N_SLOTS {
        let found: Slot = source.part(Tag::SLOT, HEADER_BYTES + slot * SLOT_BYTES)?;
        newest = newest.into_iter().chain(found.decode(slot)).max_by_key(|commit| commit.generation);
    }
    let have = source.len()?;
    let (section, offset) = (Tag::SLOT, HEADER_BYTES);
    let what = "number of valid commits";
    let commit = newest.ok_or(Error::Malformed { section, offset, what, found: 0, wanted: 1 })?;
    let Commit { generation, committed, footer_checksum, .. } = commit;
    expect_equal(section, offset, "committed length modulo 64", committed % ALIGN, 0)?;
    let least = DATA_OFFSET + FOOTER_BYTES;
    expect_equal(section, offset, "committed length", committed, committed.max(least))?;
    let offset = committed - FOOTER_BYTES;
    if committed > have {
        return Err(Error::Truncated { section: Tag::FOOTER, offset, need: committed, have });
    }
    let end: Footer = source.part(Tag::FOOTER, offset)?;
    verify(Tag::FOOTER, offset, footer_checksum, end.checksum())?;
    end.verify(offset)?;
    expect_commit(&end, generation, committed)?;
    Ok((end, have))
}

/// Check that a footer belongs to a commit.
fn expect_commit(footer: &Footer, generation: u64, committed: u64) -> Result<(), Error> {
    let offset = committed.saturating_sub(FOOTER_BYTES);
    expect_equal(Tag::FOOTER, offset, "generation", footer.generation, generation)?;
    expect_equal(Tag::FOOTER, offset, "total length", footer.total, committed)
}

/// Read the sections of the directory that `footer` names.
fn directory(
    source: &Source,
    head: &HeaderBytes,
    footer: &Footer,
    max_directory: u64,
) -> Result<Vec<Section>, Error> {
    let offset = footer.total.saturating_sub(FOOTER_BYTES);
    let equal = |what, found, wanted| expect_equal(Tag::FOOTER, offset, what, found, wanted);
    let Footer { directory_offset: start, directory_len: len, .. } = *footer;
    equal("directory length modulo the size of a record", len % RECORD_BYTES, 0)?;
    equal("directory offset modulo 64", start % ALIGN, 0)?;
    equal("directory offset", start, start.max(DATA_OFFSET))?;
    let end = start.checked_add(len).and_then(align);
    equal("end of the directory", end.unwrap_or(u64::MAX), offset)?;
    expect_at_most("bytes of the directory", len, max_directory)?;
    let mut sections: Vec<Section> = zeroed(len / RECORD_BYTES)?;
    let directory: &mut [u8] = bytemuck::must_cast_slice_mut(&mut sections);
    source.fill(Tag::DIRECTORY, start, directory)?;
    verify(Tag::DIRECTORY, start, footer.directory_checksum, checksum(directory))?;
    let whole = of_pieces(&[bytemuck::bytes_of(head), directory]);
    verify(Tag::FOOTER, offset, footer.whole_checksum, whole)?;
    Ok(sections)
}
