//! Looking at a whole prompt cache: its entries, and whether all of them are what they should be.

use super::PromptCache;
use super::entry::{BLOCK, Entry, EntryName, RESUME};
use super::evict::unreachable;
use super::folder::{Folder, LOCK_WAIT};
use super::index::Index;
use super::key::Key;
use crate::ids::Token;
use crate::storage::container::Source;
use crate::storage::error::Error;
use crate::storage::header::Tag;
use core::fmt;
use std::collections::BTreeSet;
use std::format;
use std::string::String;
use std::sync::Arc;
use std::time::SystemTime;
use std::vec::Vec;

/// An entry, as [`PromptCache::list`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryInfo {
    /// The file's name.
    pub name: String,
    /// The root that stands for model and cache.
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

/// Result of a check.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Whole entries.
    pub entries: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their resume points.
    pub resumes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are not as they should be.
    pub findings: Vec<Finding>,
}

/// A file that is not as it should be.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The file's name.
    pub name: String,
    /// The problem.
    pub problem: Problem,
}

/// Faults of a file in a prompt cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file is not a whole entry, or a payload is not what was stored.
    Damaged(Error),
    /// The system does not let it be read.
    Unreadable(Error),
    /// A block, or a resume point, is stored elsewhere too.
    Twice {
        /// The key of the prefix that it ends.
        key: Key,
    },
    /// No look-up can reach it: something that it follows is gone.
    Unreachable,
    /// A dead writer or an older release left it.
    Leftover,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.problem {
            Problem::Damaged(error) | Problem::Unreadable(error) => write!(f, "{error}"),
            Problem::Twice { key } => write!(f, "{name} holds what is stored elsewhere too, at {key}"),
            Problem::Unreachable => write!(f, "{name} cannot be reached: what it follows is gone"),
            Problem::Leftover => write!(f, "{name} was left by a process that died, or by an older release"),
        }
    }
}

impl Report {
    /// Return true if everything is as it should be.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, name: impl fmt::Display, problem: Problem) {
        self.findings.push(Finding { name: format!("{name}"), problem });
    }

    /// Count an entry, and check its payloads and that nothing in it was `seen` before.
    fn add(&mut self, folder: &Folder, entry: &Entry, seen: &mut BTreeSet<(Tag, Key)>) -> Result<(), Error> {
        self.entries += 1;
        self.blocks += entry.blocks.len() as u64;
        self.resumes += entry.resumes.len() as u64;
        self.bytes = self.bytes.saturating_add(entry.total);
        let blocks = entry.blocks.iter().map(|block| (BLOCK, block.key));
        let resumes = entry.resumes.iter().map(|resume| (RESUME, entry.key_at(resume)));
        for (_, key) in blocks.chain(resumes).filter(|place| !seen.insert(*place)) {
            self.find(entry.name, Problem::Twice { key });
        }
        let file = folder.open(&entry.name)?;
        let mut payloads = entry.blocks.iter().map(|block| &block.payload).chain(&entry.resumes);
        let checked = payloads.try_for_each(|payload| Source::Device(&*file).check(payload));
        folder.in_entry(&entry.name, checked)
    }
}

impl PromptCache {
    /// List all whole entries, the least recently used first.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be listed.
    pub fn list(&self) -> Result<Vec<EntryInfo>, Error> {
        let mut index = self.shared.index();
        let listing = index.list(&self.shared.folder)?;
        let info = |entry: &Arc<Entry>| {
            let facts = listing.entries.get(&entry.name)?;
            Some(EntryInfo {
                name: format!("{}", entry.name),
                root: entry.root,
                n_before: entry.n_before,
                tokens: entry.blocks.iter().flat_map(|block| block.tokens).collect(),
                n_resumes: entry.resumes.len() as u32,
                bytes: facts.len,
                used: facts.modified,
            })
        };
        let mut entries: Vec<_> = index.whole().filter_map(info).collect();
        entries.sort_by_key(|entry| entry.used);
        Ok(entries)
    }

    /// Read everything and check it: entries, chains of keys, payloads, what cannot be reached,
    /// what was left behind. Changes nothing; damaged entries are removed when the cache is opened
    /// for writing, or pruned. Entries that others remove meanwhile do not count.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be listed.
    pub fn check(&self) -> Result<Report, Error> {
        self.check_with(&mut |_, _| {})
    }

    /// Check everything as [`PromptCache::check`] does; `progress` hears how many bytes of how many
    /// are read.
    ///
    /// # Errors
    /// As [`PromptCache::check`].
    pub fn check_with(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Error> {
        let mut report = Report::default();
        let (folder, mut seen) = (&self.shared.folder, BTreeSet::new());
        let entries = folder.list()?.entries;
        let total = entries.values().map(|facts| facts.len).fold(0, u64::saturating_add);
        let mut done = 0_u64;
        for (name, facts) in &entries {
            progress(done, total);
            done = done.saturating_add(facts.len);
            let checked = folder.entry(name).and_then(|entry| report.add(folder, &entry, &mut seen));
            match checked {
                Err(error) if error.is_damage() => report.find(name, Problem::Damaged(error)),
                Err(error) if !error.is_gone() => report.find(name, Problem::Unreadable(error)),
                _ => {}
            }
        }
        // With the lock, if this cache may take it: nobody removes or begins anything meanwhile.
        let _lock = self.shared.budget.and_then(|_| folder.lock(LOCK_WAIT).ok());
        let mut index = Index::default();
        let others = index.list(folder)?.others;
        unreachable(&index).iter().for_each(|name| report.find(name, Problem::Unreachable));
        for (name, _) in others.iter().filter(|(name, _)| folder.is_leftover(name)) {
            report.find(name, Problem::Leftover);
        }
        Ok(report)
    }

    /// Remove the entries in which [`PromptCache::check`] finds damage, or what is stored elsewhere
    /// too.
    pub(super) fn remove_findings(&self) -> Result<(), Error> {
        let is_useless =
            |finding: &Finding| matches!(finding.problem, Problem::Damaged(_) | Problem::Twice { .. });
        let findings = self.check()?.findings.into_iter().filter(is_useless);
        let names: BTreeSet<_> = findings.filter_map(|finding| EntryName::parse(&finding.name)).collect();
        let mut index = self.shared.index();
        names.iter().for_each(|name| self.shared.give_up(&mut index, name));
        Ok(())
    }
}
