//! Eviction: damaged entries first, then those that no look-up can reach, then the least recently
//! used; and never a block before those that follow it.

use super::entry::EntryName;
use super::error::Error;
use super::folder::Listing;
use super::index::{Index, Known};
use super::{PromptCache, Shared};
use crate::storage::disk::{Facts, Lock};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, SystemTime};
use std::vec::Vec;

/// The time that opening a prompt cache waits for the lock before it leaves tidying to others. A
/// process that is being started holds the locks of the one that starts it for a moment.
const TIDY_WAIT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 100 });

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

/// End of an eviction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// When all files together have at most so many bytes.
    AtBytes(u64),
    /// At the first entry that was used since.
    AtTime(SystemTime),
}

impl Stop {
    /// Return true if an entry has to go while all files together have `bytes`.
    fn removes(self, victim: &Victim, bytes: u64) -> bool {
        match self {
            _ if victim.rank == Rank::Damaged => true,
            Stop::AtBytes(most) => bytes > most,
            Stop::AtTime(time) => victim.rank == Rank::Unreachable || victim.used < time,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victim {
    rank: Rank,
    used: SystemTime,
    name: EntryName,
    len: u64,
}

impl PromptCache {
    /// Remove the least recently used entries, and whatever is damaged or cannot be reached, until
    /// what is left is as asked.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Locked`], and [`Error::Disk`] if the folder cannot be locked
    /// or listed, or an entry not removed; all others that have to go are removed then.
    pub fn prune(&self, prune: Prune) -> Result<Evicted, Error> {
        self.shared.budget()?;
        if prune == Prune::Damaged {
            self.remove_findings()?;
        }
        let stop = match prune {
            Prune::Damaged => Stop::AtTime(SystemTime::UNIX_EPOCH),
            Prune::ToBytes(bytes) => Stop::AtBytes(bytes),
            Prune::OlderThan(age) => {
                Stop::AtTime(SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
            }
        };
        let lock = self.shared.folder.lock()?;
        self.evict_until(&lock, stop)
    }

    /// Remove what dead writers and damage left, unless somebody holds the lock for long: nobody
    /// waits for a cache to open.
    pub(super) fn tidy(&self) -> Result<Evicted, Error> {
        let lock = self.shared.folder.lock_within(TIDY_WAIT)?;
        self.evict_until(&lock, Stop::AtBytes(u64::MAX))
    }

    fn evict_until(&self, lock: &Lock, stop: Stop) -> Result<Evicted, Error> {
        let mut index = self.shared.index();
        let listing = index.list(&self.shared.folder)?;
        let (evicted, failed) = self.shared.evict(lock, &mut index, listing, &BTreeSet::new(), stop);
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
        keep: &BTreeSet<EntryName>,
        stop: Stop,
    ) -> (Evicted, Option<Error>) {
        let of_others = listing.others.iter().filter(|(name, _)| !self.folder.remove_leftover(lock, name));
        let lens = of_others.map(|other| other.1.len).chain(listing.entries.iter().map(|entry| entry.1.len));
        let mut evicted = Evicted { entries: 0, bytes: lens.fold(0, u64::saturating_add) };
        let facts: BTreeMap<EntryName, Facts> = listing.entries.iter().copied().collect();
        let (mut failed, mut stuck) = (None, BTreeSet::new());
        for victim in order(index, &facts, keep) {
            if !stop.removes(&victim, evicted.bytes) {
                break;
            }
            if stuck.contains(&victim.name) {
                continue;
            }
            // One that cannot be removed stays, and so does everything that it follows.
            if let Err(error) = self.folder.remove(&victim.name) {
                stuck.extend(index.ancestors(&victim.name));
                failed = Some(error);
                continue;
            }
            index.entries.remove(&victim.name);
            evicted.bytes = evicted.bytes.saturating_sub(victim.len);
            evicted.entries += 1;
            self.count(|stats| match victim.rank {
                Rank::Damaged => stats.damaged += 1,
                Rank::Unreachable | Rank::Used => stats.evicted += 1,
            });
        }
        if evicted.entries > 0 {
            index.rebuild();
        }
        (evicted, failed)
    }
}

/// Links of an entry: the one that it follows, how many follow it, and whether a look-up can reach
/// it.
struct Links {
    parent: Option<EntryName>,
    n_children: usize,
    reachable: bool,
}

/// Return all entries in the order in which they would go, except those in `keep` and what those
/// follow.
fn order(index: &Index, facts: &BTreeMap<EntryName, Facts>, keep: &BTreeSet<EntryName>) -> Vec<Victim> {
    let mut links = links(index);
    let victim = |name: &EntryName, links: &BTreeMap<EntryName, Links>| {
        let rank = match (index.entries.get(name)?, links.get(name)) {
            (Known::Damaged, _) => Rank::Damaged,
            (Known::Readable(_), Some(Links { reachable: false, .. })) => Rank::Unreachable,
            _ => Rank::Used,
        };
        let free = links.get(name).is_none_or(|links| links.n_children == 0) && !keep.contains(name);
        let Facts { modified: used, len, .. } = *facts.get(name)?;
        free.then_some(Reverse(Victim { rank, used, name: *name, len }))
    };
    let mut heap: BinaryHeap<_> = index.entries.keys().filter_map(|name| victim(name, &links)).collect();
    let mut order = Vec::with_capacity(heap.len());
    while let Some(Reverse(next)) = heap.pop() {
        order.push(next);
        let Some(parent) = links.get(&next.name).and_then(|links| links.parent) else { continue };
        if let Some(links) = links.get_mut(&parent) {
            links.n_children = links.n_children.saturating_sub(1);
        }
        heap.extend(victim(&parent, &links));
    }
    order
}

fn links(index: &Index) -> BTreeMap<EntryName, Links> {
    let mut entries: Vec<_> = index.whole().collect();
    // An entry has more blocks before it than the one that it follows: there are no circles, and
    // parents come first.
    entries.sort_by_key(|(_, entry)| entry.n_before);
    let mut links: BTreeMap<EntryName, Links> = BTreeMap::new();
    for (name, entry) in entries {
        let parent = index.parent(entry);
        let above = parent.and_then(|parent| links.get_mut(&parent));
        let reachable = match above {
            Some(above) => {
                above.n_children += 1;
                above.reachable
            }
            None => entry.n_before == 0,
        };
        links.insert(name, Links { parent, n_children: 0, reachable });
    }
    links
}

/// Return the entries that no look-up can reach, because something that they follow is gone.
pub(super) fn unreachable(index: &Index) -> impl Iterator<Item = EntryName> {
    links(index).into_iter().filter(|(_, links)| !links.reachable).map(|(name, _)| name)
}
