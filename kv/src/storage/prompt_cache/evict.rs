//! Eviction: damaged entries first, then those that no look-up can reach, then the least recently
//! used; and never a block before those that follow it.

use super::entry::EntryName;
use super::folder::{LOCK_WAIT, Listing};
use super::index::{Index, Useless};
use super::{PromptCache, Shared};
use crate::storage::disk::{Facts, Lock};
use crate::storage::error::Error;
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};
use std::vec::Vec;

/// Content to keep when a prompt cache is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prune {
    /// At most so many bytes, the most recently used.
    ToBytes(u64),
    /// Entries that were used within this time.
    OlderThan(Duration),
    /// Entries that [`PromptCache::check`] finds sound. Reads everything.
    Damaged,
}

impl Prune {
    /// Return true if an entry has to go while all files together have `bytes`.
    fn removes(self, victim: &Victim, bytes: u64) -> bool {
        match self {
            _ if victim.rank == Rank::Damaged => true,
            Self::ToBytes(most) => bytes > most,
            Self::OlderThan(age) => {
                victim.rank == Rank::Unreachable || victim.used.elapsed().is_ok_and(|unused| unused > age)
            }
            Self::Damaged => victim.rank == Rank::Unreachable,
        }
    }
}

/// Result of an eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted {
    /// Entries that were removed.
    pub entries: u64,
    /// Bytes of all files that stayed, those being written included.
    pub bytes: u64,
}

/// Reasons for an entry to go, in the order of going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Damaged,
    Unreachable,
    Used,
}

/// An entry that may go.
struct Victim {
    rank: Rank,
    /// When it was last used, or any that follows it.
    used: SystemTime,
    name: EntryName,
    len: u64,
}

impl PromptCache {
    /// Remove the least recently used entries, and whatever is damaged or cannot be reached, until
    /// what is left is as asked.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Locked`], and [`Error::File`] if the folder cannot be locked
    /// or listed, or an entry not removed; all others that have to go are removed then.
    pub fn prune(&self, prune: Prune) -> Result<Evicted, Error> {
        self.shared.budget.ok_or(Error::ReadOnly)?;
        if prune == Prune::Damaged {
            self.remove_findings()?;
        }
        self.evict_within(LOCK_WAIT, prune)
    }

    /// Remove what has to go, unless somebody holds the lock for longer than `wait`.
    pub(super) fn evict_within(&self, wait: Duration, prune: Prune) -> Result<Evicted, Error> {
        let lock = self.shared.folder.lock(wait)?;
        let mut index = self.shared.index();
        let listing = index.list(&self.shared.folder)?;
        let (evicted, failed) = self.shared.evict(&lock, &mut index, listing, BTreeSet::new(), prune);
        failed.map_or(Ok(evicted), Err)
    }
}

impl Shared {
    /// Remove leftovers, damaged entries, and then what goes first until it is time to stop; never
    /// what is in `keep`. Returns, with what it came to, why the last of the entries that could not
    /// be removed was not.
    pub(super) fn evict(
        &self,
        lock: &Lock,
        index: &mut Index,
        listing: Listing,
        keep: BTreeSet<EntryName>,
        prune: Prune,
    ) -> (Evicted, Option<Error>) {
        let of_others = listing.others.iter().filter(|(name, _)| !self.folder.remove_leftover(lock, name));
        let all = of_others.map(|(_, facts)| facts).chain(listing.entries.values());
        let bytes = all.map(|facts| facts.len).fold(0, u64::saturating_add);
        let mut evicted = Evicted { entries: 0, bytes };
        let (mut failed, mut stuck) = (None, BTreeSet::new());
        for victim in order(index, listing.entries, keep) {
            if !prune.removes(&victim, evicted.bytes) {
                break;
            }
            if stuck.contains(&victim.name) {
                continue;
            }
            // One that cannot be removed stays, and so does everything that it follows.
            if let Err(error) = self.folder.remove(&victim.name) {
                stuck.extend(index.with_ancestors(&victim.name).map(|entry| entry.name));
                failed = Some(error);
                continue;
            }
            index.entries.remove(&victim.name);
            evicted.bytes = evicted.bytes.saturating_sub(victim.len);
            evicted.entries += 1;
            match victim.rank {
                Rank::Damaged => self.note_damaged(&victim.name),
                Rank::Unreachable | Rank::Used => self.count(|stats| stats.evicted += 1),
            }
        }
        if evicted.entries > 0 {
            index.rebuild();
        }
        (evicted, failed)
    }
}

/// Return all entries in the order in which they go, except those in `keep` and what those follow.
fn order(index: &Index, mut facts: BTreeMap<EntryName, Facts>, mut keep: BTreeSet<EntryName>) -> Vec<Victim> {
    let unreachable = unreachable(index);
    let mut entries: Vec<_> = index.entries.iter().collect();
    // Those that follow others come first, and so their times arrive at the others before those are
    // reached.
    entries.sort_by_key(|(_, known)| Reverse(known.as_ref().map_or(0, |entry| entry.n_before)));
    let mut order = Vec::with_capacity(entries.len());
    for (name, known) in entries {
        let Some(&Facts { modified: used, len, .. }) = facts.get(name) else { continue };
        let stays = keep.contains(name);
        if let Some(parent) = known.as_ref().ok().and_then(|entry| index.parent(entry)) {
            if let Some(above) = facts.get_mut(&parent.name) {
                above.modified = above.modified.max(used);
            }
            if stays {
                keep.insert(parent.name);
            }
        }
        if stays {
            continue;
        }
        let rank = match known {
            Err(Useless::Damaged) => Rank::Damaged,
            _ if unreachable.contains(name) => Rank::Unreachable,
            _ => Rank::Used,
        };
        order.push(Victim { rank, used, name: *name, len });
    }
    // Stable: of equal times, those that follow others stay first.
    order.sort_by_key(|victim| (victim.rank, victim.used));
    order
}

/// Return the entries that no look-up can reach, because something that they follow is gone.
pub(super) fn unreachable(index: &Index) -> BTreeSet<EntryName> {
    let mut entries: Vec<_> = index.whole().collect();
    // An entry has more blocks before it than the one that it follows: there are no circles, and
    // what is followed comes first.
    entries.sort_by_key(|entry| entry.n_before);
    let mut unreachable = BTreeSet::new();
    for entry in entries {
        let is_reachable = match index.parent(entry) {
            Some(parent) => !unreachable.contains(&parent.name),
            None => entry.n_before == 0,
        };
        if !is_reachable {
            unreachable.insert(entry.name);
        }
    }
    unreachable
}
