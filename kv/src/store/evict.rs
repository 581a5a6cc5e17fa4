//! What goes first when room is needed: the damaged, then what nobody can reach, then what was not used for longest; and never a block
//! before those that follow it.

use super::folder::{Facts, Lock, PackName};
use super::index::{Index, Known};
use super::{Error, Shared, Store, count};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, SystemTime};
use std::vec::Vec;

/// How long opening a store waits for the lock before it leaves tidying to others. A process that is being started holds the locks of the one
/// that starts it for a moment.
const TIDY_WAIT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 100 });

/// What to keep when a store is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prune {
    /// At most so many bytes.
    ToBytes(u64),
    /// What was used within this time.
    OlderThan(Duration),
    /// What [`Store::check`] finds sound. Reads everything.
    Damaged,
}

/// Where evicting ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// When all files together have at most so many bytes.
    AtBytes(u64),
    /// At the first pack that was used since.
    AtTime(SystemTime),
}

impl Stop {
    /// Whether a pack has to go while all files together have `bytes`.
    fn removes(self, victim: &Victim, bytes: u64) -> bool {
        match self {
            _ if victim.rank == Rank::Damaged => true,
            Stop::AtBytes(most) => bytes > most,
            Stop::AtTime(time) => victim.rank == Rank::Unreachable || victim.used < time,
        }
    }
}

/// What evicting came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted {
    /// Packs that were removed.
    pub packs: u64,
    /// Bytes of all files that stayed, those being written included.
    pub bytes: u64,
}

/// Why a pack goes; in the order of going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Damaged,
    Unreachable,
    Used,
}

/// A pack that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victim {
    rank: Rank,
    used: SystemTime,
    name: PackName,
}

impl Store {
    /// Removes packs that were not used for longest, and whatever is damaged or cannot be reached, until what is left is as asked.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Locked`], and [`Error::Io`] if the folder cannot be locked or listed, or a pack not removed; all others that
    /// have to go are removed then.
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

    /// Removes what dead writers and damage left, unless somebody holds the lock for long: nobody waits for a store to open.
    pub(super) fn tidy(&self) -> Result<Evicted, Error> {
        let lock = self.shared.folder.lock_within(TIDY_WAIT)?;
        self.evict_until(&lock, Stop::AtBytes(u64::MAX))
    }

    fn evict_until(&self, lock: &Lock, stop: Stop) -> Result<Evicted, Error> {
        let mut index = self.shared.index();
        index.list(&self.shared.folder)?;
        let (evicted, failed) = self.shared.evict(lock, &mut index, &BTreeSet::new(), stop)?;
        failed.map_or(Ok(evicted), Err)
    }
}

impl Shared {
    /// Removes leftovers, damaged packs, and then what goes first until it is time to stop; never what is in `keep`. Also tells why the last
    /// of the packs that could not be removed was not.
    pub(super) fn evict(
        &self,
        lock: &Lock,
        index: &mut Index,
        keep: &BTreeSet<PackName>,
        stop: Stop,
    ) -> Result<(Evicted, Option<Error>), Error> {
        let parts = self.bytes_of_parts(lock)?;
        let facts = self.facts(index)?;
        let bytes = facts.values().fold(parts, |sum, facts| sum.saturating_add(facts.len));
        let mut evicted = Evicted { packs: 0, bytes };
        let mut failed = None;
        let mut stuck = BTreeSet::new();
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
            index.packs.remove(&victim.name);
            evicted.bytes =
                evicted.bytes.saturating_sub(facts.get(&victim.name).map_or(0, |facts| facts.len));
            evicted.packs += 1;
            let counts = &self.counts;
            count(if victim.rank == Rank::Damaged { &counts.damaged } else { &counts.evicted });
        }
        if evicted.packs > 0 {
            index.rebuild();
        }
        Ok((evicted, failed))
    }

    /// Bytes reserved by living writers; removes what dead ones left.
    fn bytes_of_parts(&self, lock: &Lock) -> Result<u64, Error> {
        let mut bytes: u64 = 0;
        for name in self.folder.list()?.parts {
            if !self.folder.remove_leftover(lock, &name).unwrap_or(false) {
                let facts = still_there(self.folder.facts_of_part(&name))?;
                bytes = bytes.saturating_add(facts.map_or(0, |facts| facts.len));
            }
        }
        Ok(bytes)
    }

    /// Lengths and times of all packs that are there.
    fn facts(&self, index: &Index) -> Result<BTreeMap<PackName, Facts>, Error> {
        let mut all = BTreeMap::new();
        for name in index.packs.keys() {
            all.extend(still_there(self.folder.facts(name))?.map(|facts| (*name, facts)));
        }
        Ok(all)
    }
}

/// What cannot be asked must not count as nothing, unless it is gone.
fn still_there(facts: Result<Facts, Error>) -> Result<Option<Facts>, Error> {
    match facts {
        Err(error) if error.is_gone() => Ok(None),
        other => other.map(Some),
    }
}

/// How packs hang together: what each follows, how many follow it, and whether a look-up can reach it.
struct Links {
    parent: Option<PackName>,
    n_children: usize,
    reachable: bool,
}

/// All packs in the order in which they would go, except those in `keep` and what those follow.
fn order(index: &Index, facts: &BTreeMap<PackName, Facts>, keep: &BTreeSet<PackName>) -> Vec<Victim> {
    let mut links = links(index);
    let victim = |name: &PackName, links: &BTreeMap<PackName, Links>| {
        let rank = match (index.packs.get(name)?, links.get(name)) {
            (Known::Damaged, _) => Rank::Damaged,
            (Known::Whole(_), Some(Links { reachable: false, .. })) => Rank::Unreachable,
            _ => Rank::Used,
        };
        let free = links.get(name).is_none_or(|links| links.n_children == 0) && !keep.contains(name);
        free.then_some(Reverse(Victim { rank, used: facts.get(name)?.used, name: *name }))
    };
    let mut heap: BinaryHeap<_> = index.packs.keys().filter_map(|name| victim(name, &links)).collect();
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

fn links(index: &Index) -> BTreeMap<PackName, Links> {
    let mut heads: Vec<_> = index.heads().collect();
    // What a pack follows has fewer blocks before it: there are no circles, and parents come first.
    heads.sort_by_key(|(_, head)| head.n_before);
    let mut links: BTreeMap<PackName, Links> = BTreeMap::new();
    for (name, head) in heads {
        let parent = index.parent(head);
        let above = parent.and_then(|parent| links.get_mut(&parent));
        let reachable = match above {
            Some(above) => {
                above.n_children += 1;
                above.reachable
            }
            None => head.n_before == 0,
        };
        links.insert(name, Links { parent, n_children: 0, reachable });
    }
    links
}

/// The packs that no look-up can reach, because something that they follow is gone.
pub(super) fn unreachable(index: &Index) -> impl Iterator<Item = PackName> {
    links(index).into_iter().filter(|(_, links)| !links.reachable).map(|(name, _)| name)
}
