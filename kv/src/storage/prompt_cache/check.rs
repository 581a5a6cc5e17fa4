//! Looking at a whole prompt cache: its entries, and whether all of them are what they should be.

use super::entry::{Entry, EntryName};
use super::error::Error;
use super::evict::unreachable;
use super::index::Index;
use super::key::Key;
use super::{Access, PromptCache, Shared};
use crate::ids::Token;
use crate::storage::container::Source;
use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
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
}

impl PromptCache {
    /// List all whole entries, the least recently used first.
    ///
    /// # Errors
    /// [`Error::Disk`] if the folder cannot be listed.
    pub fn list(&self) -> Result<Vec<EntryInfo>, Error> {
        let mut index = self.shared.index();
        let facts: BTreeMap<_, _> = index.list(&self.shared.folder)?.entries.into_iter().collect();
        let info = |(name, entry): (EntryName, &std::sync::Arc<Entry>)| {
            let facts = facts.get(&name)?;
            Some(EntryInfo {
                name: format!("{name}"),
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
    /// [`Error::Disk`] if the folder cannot be listed.
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
        let mut seen = (BTreeSet::new(), BTreeSet::new());
        let entries = self.shared.folder.list()?.entries;
        let total = entries.iter().fold(0, |sum: u64, (_, facts)| sum.saturating_add(facts.len));
        let mut done = 0_u64;
        for (name, facts) in &entries {
            progress(done, total);
            done = done.saturating_add(facts.len);
            let entry = self.shared.folder.entry(name);
            match entry.and_then(|entry| self.shared.check_entry(name, &entry, &mut seen, &mut report)) {
                Err(error) if error.is_damage() => report.find(name, Problem::Damaged(error)),
                Err(error) if !error.is_gone() => report.find(name, Problem::Unreadable(error)),
                _ => {}
            }
        }
        self.check_folder(&mut report)?;
        Ok(report)
    }

    /// Remove the entries in which [`PromptCache::check`] finds damage, or what is stored elsewhere
    /// too.
    pub(super) fn remove_findings(&self) -> Result<(), Error> {
        let is_useless =
            |finding: &Finding| matches!(finding.problem, Problem::Damaged(_) | Problem::Twice { .. });
        let findings = self.check()?.findings.into_iter().filter(is_useless);
        let names: BTreeSet<_> = findings.filter_map(|finding| EntryName::parse(&finding.name)).collect();
        names.iter().for_each(|name| self.shared.remove_damaged(name));
        Ok(())
    }

    /// Look for entries that cannot be reached and files that were left behind. With the lock, if
    /// this cache may take it: nobody removes or begins anything meanwhile.
    fn check_folder(&self, report: &mut Report) -> Result<(), Error> {
        let folder = &self.shared.folder;
        let _lock = match self.shared.access {
            Access::ReadOnly => None,
            Access::ReadWrite { .. } => folder.lock().ok(),
        };
        let mut index = Index::default();
        let others = index.list(folder)?.others;
        unreachable(&index).for_each(|name| report.find(name, Problem::Unreachable));
        for (name, _) in others.iter().filter(|(name, _)| folder.is_leftover(name)) {
            report.find(name, Problem::Leftover);
        }
        Ok(())
    }
}

/// Keys of blocks, and of resume points.
type Seen = (BTreeSet<Key>, BTreeSet<Key>);

impl Shared {
    /// Check the payloads of an entry, and that nothing in it was seen before.
    fn check_entry(
        &self,
        name: &EntryName,
        entry: &Entry,
        seen: &mut Seen,
        report: &mut Report,
    ) -> Result<(), Error> {
        report.entries += 1;
        report.blocks += entry.blocks.len() as u64;
        report.resumes += entry.resumes.len() as u64;
        report.bytes = report.bytes.saturating_add(entry.total);
        let blocks = entry.blocks.iter().map(|block| block.key).filter(|key| !seen.0.insert(*key));
        let resumes = entry.resumes.iter().map(|resume| entry.key_at(resume));
        for key in blocks.chain(resumes.filter(|key| !seen.1.insert(*key))) {
            report.find(name, Problem::Twice { key });
        }
        let file = self.folder.open(name)?;
        let checked = entry.payloads().try_for_each(|payload| Source::Device(&*file).check(payload));
        checked.map_err(|error| Error::Entry { path: self.folder.path_of(name).into(), error })
    }
}
