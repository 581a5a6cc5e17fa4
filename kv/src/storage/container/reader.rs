//! Reading: a container in a slice or on a device.

use super::layout::{Footer, HeaderBytes, waste};
use super::limits::{MAX_DIRECTORY, MAX_READ};
use super::section::{Section, by_offset};
use super::source::Source;
use crate::io::ReadAt;
use crate::storage::error::Error;
use crate::storage::header::{Fingerprint, Header, Scope, Tag, VERSION};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// A container whose header, footer and directory have been checked. Its sections are checked when
/// they are read.
///
/// Every number in it was compared with the length of the slice, so nothing that is derived from
/// one can lie outside.
#[derive(Debug)]
pub struct Container<'a> {
    pub(super) source: Source<'a>,
    pub(super) len: u64,
    /// The header's bytes in the file, which may hold more than `header` knows.
    pub(super) head: HeaderBytes,
    pub(super) header: Header,
    pub(super) stream: bool,
    pub(super) footer: Footer,
    pub(super) sections: Vec<Section>,
    pub(super) used: u64,
}

impl<'a> Container<'a> {
    /// Open the container that `bytes` begin with; for one written as a stream they must also end
    /// with it.
    ///
    /// Reads the header, the commit slots, the footer and the directory, and nothing of the
    /// sections: O(n log n) of their number. Allocates at most three times the directory's bytes.
    ///
    /// # Errors
    /// Says what is wrong with the first thing that is not as it was written; a damaged file is
    /// never an older state.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::on(Source::Slice(bytes), MAX_DIRECTORY)
    }

    /// Open the container on a device, as [`Container::parse`] does in a slice. It may grow
    /// meanwhile, or be written again from its start up to the newer commit slot: what was found at
    /// first stays readable.
    ///
    /// # Errors
    /// As [`Container::parse`], and what the device says.
    pub fn open(device: &'a dyn ReadAt) -> Result<Self, Error> {
        Self::on(Source::Device(device), MAX_DIRECTORY)
    }

    /// Open the container on a device, as [`Container::open`] does, if it has at most `n` sections.
    ///
    /// # Errors
    /// As [`Container::open`]; [`Error::TooLarge`] for more sections.
    #[cfg(feature = "std")]
    pub(in crate::storage) fn open_at_most(device: &'a dyn ReadAt, n: u64) -> Result<Self, Error> {
        Self::on(Source::Device(device), n.saturating_mul(super::section::RECORD_BYTES))
    }

    /// Return the container's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Return the model that the state belongs to.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.header.fingerprint
    }

    /// Return the kind of content.
    pub fn scope(&self) -> Scope {
        self.header.scope
    }

    /// Return the version of the format, which is the one that this release reads.
    pub fn version(&self) -> u32 {
        VERSION
    }

    /// Return true if it was written in one pass, and so cannot be continued in place.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// Return the number of saves of this file, from 1.
    pub fn generation(&self) -> u64 {
        self.footer.generation
    }

    /// Return the number of bytes that count.
    pub fn committed_len(&self) -> u64 {
        self.footer.total
    }

    /// Return the checksum of header and directory, which stands for all content.
    pub fn whole_checksum(&self) -> u64 {
        self.footer.whole_checksum
    }

    /// Return the bytes that there are.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Return the number of bytes after those that count: what is left of a save that did not come
    /// to its end.
    pub fn uncommitted(&self) -> u64 {
        self.file_len().saturating_sub(self.committed_len())
    }

    /// Return the number of bytes that count but that nothing refers to any more: older sections,
    /// directories and footers.
    pub fn waste(&self) -> u64 {
        waste(&self.footer, self.used)
    }

    /// Return all sections, by tag and index.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = &Section> {
        self.sections.iter()
    }

    /// Return the sections of a kind, by index.
    pub fn of(&self, tag: Tag) -> &[Section] {
        let start = self.sections.partition_point(|section| section.tag < tag);
        let end = self.sections.partition_point(|section| section.tag <= tag);
        &self.sections[start..end]
    }

    /// Return one section, if there is one. O(log n).
    pub fn find(&self, tag: Tag, index: u64) -> Option<&Section> {
        let at = self.sections.binary_search_by_key(&(tag, index), Section::key).ok()?;
        self.sections.get(at)
    }

    /// Return one section that must be there.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn require(&self, tag: Tag, index: u64) -> Result<&Section, Error> {
        self.find(tag, index).ok_or(Error::Missing { section: tag, index })
    }

    /// Check that the state belongs to a model.
    ///
    /// # Errors
    /// [`Error::Fingerprint`].
    pub fn expect_fingerprint(&self, wanted: &Fingerprint) -> Result<(), Error> {
        if self.fingerprint() == wanted {
            Ok(())
        } else {
            Err(Error::fingerprint(self.fingerprint(), wanted))
        }
    }

    /// Check that it is the state of what was wanted.
    ///
    /// # Errors
    /// [`Error::Scope`].
    pub fn expect_scope(&self, wanted: Scope) -> Result<(), Error> {
        let found = self.scope();
        if found == wanted { Ok(()) } else { Err(Error::Scope { found, wanted }) }
    }

    /// Check that a reader who knows these tags, each up to a version, understands all sections
    /// that it must. Others may be skipped.
    ///
    /// # Errors
    /// [`Error::UnknownRequired`].
    pub fn expect(&self, known: &[(Tag, u16)]) -> Result<(), Error> {
        let is_known = |section: &Section| {
            known.iter().any(|&(tag, newest)| section.tag == tag && section.version <= newest)
        };
        match self.sections.iter().find(|section| section.is_required() && !is_known(section)) {
            None => Ok(()),
            Some(section) => Err(Error::UnknownRequired { tag: section.tag, version: section.version }),
        }
    }

    /// Read the content of a section, checked; borrowed if the container lies in a slice and the
    /// section is not compressed. At most [`MAX_READ`] bytes.
    ///
    /// # Errors
    /// As [`Container::read_at_most`].
    pub fn read(&self, section: &Section) -> Result<Cow<'a, [u8]>, Error> {
        self.read_at_most(section, MAX_READ)
    }

    /// Read the content of a section, as [`Container::read`] does, if it has at most `limit` bytes:
    /// nothing is allocated for one that has more.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more bytes than `limit`; [`Error::Checksum`] if they are not those
    /// that were written; [`Error::Codec`] and [`Error::Malformed`] for a section that cannot be
    /// decompressed; [`Error::Truncated`] and [`Error::Io`] if the device has less than when it was
    /// opened; [`Error::OutOfMemory`].
    pub fn read_at_most(&self, section: &Section, limit: u64) -> Result<Cow<'a, [u8]>, Error> {
        self.source.read(section, limit)
    }

    /// Copy the content of a section to `targets`, one after the other, and check what has arrived
    /// there, step by step: a restore runs at nearly the speed of a copy. After an error the
    /// targets hold anything.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the targets together have another length than the content, else as
    /// [`Container::read_at_most`].
    pub fn read_into(&self, section: &Section, targets: &mut [&mut [u8]]) -> Result<(), Error> {
        self.source.read_into(section, targets)
    }

    /// Check everything: what opening has not read are the sections. Reads each once, and needs no
    /// memory for those that are not compressed.
    ///
    /// # Errors
    /// As [`Container::read_at_most`], of the first section that is damaged.
    pub fn check(&self) -> Result<(), Error> {
        let mut checked = None;
        for section in by_offset(&self.sections)? {
            if checked.replace(section.offset) != Some(section.offset) {
                self.source.check(section)?;
            }
        }
        Ok(())
    }
}
