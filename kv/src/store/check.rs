//! Looking at a whole store: what it holds, and whether all of it is what it should be.

use super::evict::unreachable;
use super::folder::PackName;
use super::found::checksum_at;
use super::index::Index;
use super::key::Key;
use super::pack::{ALIGN, Extent, Flaw, Head};
use super::{Access, Error, Shared, Store};
use crate::ids::Token;
use core::fmt;
use std::collections::BTreeSet;
use std::format;
use std::fs::File;
use std::string::String;
use std::sync::Arc;
use std::time::SystemTime;
use std::vec::Vec;

/// A pack of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The file's name.
    pub name: String,
    /// Which model and cache it is for.
    pub root: Key,
    /// Blocks of the prompt before its first.
    pub n_before: u32,
    /// The tokens of its blocks.
    pub tokens: Vec<Token>,
    /// Its resume points.
    pub n_resumes: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// When it was last used, or else written.
    pub used: SystemTime,
}

/// What a store looks like.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Whole packs.
    pub packs: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their resume points.
    pub resumes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

/// Something that is not as it should be.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The file's name.
    pub name: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a file of a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file is not a whole pack.
    Damaged(Flaw),
    /// A payload has another checksum.
    Payload {
        /// Where it begins in the file.
        offset: u64,
    },
    /// Bytes that belong to nothing are not zero; what is stored is not affected.
    Padding {
        /// Where they begin in the file.
        offset: u64,
    },
    /// The system does not let it be read.
    Unreadable(Error),
    /// A block, or a resume point, is stored elsewhere too.
    Twice {
        /// The key of the prefix that it ends.
        key: Key,
    },
    /// No look-up can reach it: something that it follows is gone.
    Unreachable,
    /// A dead writer left it.
    Leftover,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.problem {
            Problem::Damaged(flaw) => write!(f, "{name} {flaw}"),
            Problem::Payload { offset } => write!(f, "{name} has a damaged payload at offset {offset}"),
            Problem::Padding { offset } => {
                write!(f, "{name} has bytes at offset {offset} that should be zero")
            }
            Problem::Unreadable(error) => write!(f, "{error}"),
            Problem::Twice { key } => write!(f, "{name} holds what is stored elsewhere too, at {key}"),
            Problem::Unreachable => write!(f, "{name} cannot be reached: what it follows is gone"),
            Problem::Leftover => write!(f, "{name} was left by a process that died"),
        }
    }
}

impl Report {
    /// Whether everything is as it should be.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, name: String, problem: Problem) {
        self.findings.push(Finding { name, problem });
    }
}

impl Store {
    /// All packs with whole heads, those not used for longest first.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let folder = &self.shared.folder;
        let mut index = self.shared.index();
        index.list(folder)?;
        let listed = |(name, head): (PackName, &Arc<Head>)| {
            // One that is gone meanwhile is not listed.
            let facts = folder.facts(&name).ok()?;
            Some(Listed {
                name: format!("{name}"),
                root: head.root,
                n_before: head.n_before,
                tokens: head.blocks.iter().flat_map(|block| block.tokens).collect(),
                n_resumes: head.resumes.len() as u32,
                bytes: facts.len,
                used: facts.used,
            })
        };
        let mut packs: Vec<_> = index.heads().filter_map(listed).collect();
        packs.sort_by_key(|pack| pack.used);
        Ok(packs)
    }

    /// Reads everything and checks it: heads, chains of keys, payloads, what hangs in the air, what was left behind. Changes nothing; what
    /// is damaged is removed when the store is opened for writing, or pruned. Packs that others remove meanwhile do not count.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn check(&self) -> Result<Report, Error> {
        self.check_with(&mut |_, _| {})
    }

    /// As [`Store::check`]; `progress` hears how many bytes of how many are read.
    ///
    /// # Errors
    /// As [`Store::check`].
    pub fn check_with(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut seen = (BTreeSet::new(), BTreeSet::new());
        let listing = self.shared.folder.list()?;
        let len = |name| self.shared.folder.facts(name).map_or(0, |facts| facts.len);
        let lens: Vec<_> = listing.packs.iter().map(len).collect();
        let (mut done, total) = (0u64, lens.iter().fold(0, |sum: u64, len| sum.saturating_add(*len)));
        for (name, len) in listing.packs.iter().zip(lens) {
            progress(done, total);
            done = done.saturating_add(len);
            match self.shared.folder.head(name) {
                Ok(head) => self.shared.check_pack(name, &head, &mut seen, &mut report),
                Err(error) if error.is_gone() => {}
                Err(Error::Pack { flaw, .. }) => report.find(format!("{name}"), Problem::Damaged(flaw)),
                Err(error) => report.find(format!("{name}"), Problem::Unreadable(error)),
            }
        }
        self.check_folder(&mut report)?;
        Ok(report)
    }

    /// Removes the packs in which [`Store::check`] finds damage that opening a store does not see.
    pub(super) fn remove_findings(&self) -> Result<(), Error> {
        let is_beyond_heads = |finding: &Finding| {
            matches!(
                finding.problem,
                Problem::Payload { .. } | Problem::Padding { .. } | Problem::Twice { .. }
            )
        };
        let findings = self.check()?.findings;
        let names: BTreeSet<_> =
            findings.into_iter().filter(is_beyond_heads).map(|finding| finding.name).collect();
        for name in self.shared.folder.list()?.packs {
            if names.contains(&format!("{name}")) {
                self.shared.remove_damaged(&name);
            }
        }
        Ok(())
    }
}

impl Store {
    /// Looks for what hangs in the air and what was left behind. With the lock, if this store may take it: nobody removes or begins anything
    /// meanwhile.
    fn check_folder(&self, report: &mut Report) -> Result<(), Error> {
        let folder = &self.shared.folder;
        let _lock = match self.shared.access {
            Access::ReadOnly => None,
            Access::ReadWrite { .. } => folder.lock().ok(),
        };
        let mut index = Index::default();
        index.list(folder)?;
        unreachable(&index).for_each(|name| report.find(format!("{name}"), Problem::Unreachable));
        for name in folder.list()?.parts {
            if folder.is_leftover(&name) {
                report.find(name, Problem::Leftover);
            }
        }
        Ok(())
    }
}

/// Keys of blocks, and of resume points.
type Seen = (BTreeSet<Key>, BTreeSet<Key>);

impl Shared {
    fn check_pack(&self, name: &PackName, head: &Head, seen: &mut Seen, report: &mut Report) {
        report.packs += 1;
        report.blocks += head.blocks.len() as u64;
        report.resumes += head.resumes.len() as u64;
        report.bytes = report.bytes.saturating_add(head.total);
        let blocks = head.blocks.iter().map(|block| block.key).filter(|key| !seen.0.insert(*key));
        let resumes = head.resumes.iter().filter_map(|resume| head.key_after(resume.after));
        let resumes = resumes.filter(|key| !seen.1.insert(*key));
        for key in blocks.chain(resumes) {
            report.find(format!("{name}"), Problem::Twice { key });
        }
        match self.check_payloads(name, head, report) {
            Err(error) if !error.is_gone() => report.find(format!("{name}"), Problem::Unreadable(error)),
            _ => {}
        }
    }

    fn check_payloads(&self, name: &PackName, head: &Head, report: &mut Report) -> Result<(), Error> {
        let (file, _) = self.folder.open(name)?;
        let mut end = head.payload_start();
        for Extent { offset, len, check } in head.payloads() {
            if self.padding(name, &file, end, offset)?.iter().any(|&byte| byte != 0) {
                report.find(format!("{name}"), Problem::Padding { offset: end });
            }
            if checksum_at(&self.folder, name, &file, offset, len)? != check {
                report.find(format!("{name}"), Problem::Payload { offset });
            }
            end = offset.saturating_add(len);
        }
        Ok(())
    }

    /// The bytes between two payloads.
    fn padding(&self, name: &PackName, file: &File, from: u64, to: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = [0; ALIGN as usize];
        let bytes = bytes.get_mut(..to.saturating_sub(from) as usize).unwrap_or_default();
        self.folder.read(name, file, bytes, from)?;
        Ok(bytes.to_vec())
    }
}
