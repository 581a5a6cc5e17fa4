//! Content of a folder, as far as its entries tell without their payloads: built in memory, brought
//! up to date when the folder changed.

use super::entry::{Block, Entry, EntryName};
use super::folder::{Folder, Listing};
use super::found::Why;
use super::key::{BLOCK_TOKENS, BlockTokens, Key, blocks_of};
use crate::ids::Token;
use crate::storage::container::Section;
use crate::storage::error::Error;
use crate::storage::header::VERSION;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

/// An entry that is whole, as far as its payloads do not matter, or why a file that is named like
/// one is not.
pub(super) type Known = Result<Arc<Entry>, Useless>;

/// Reasons for which a file is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Useless {
    /// The file is not an entry, or was one: nobody will ever read it.
    Damaged,
    /// A later program wrote it.
    Later,
    /// The system did not let it be read; it may the next time.
    Unread,
}

/// The entries of a folder and where everything is in them.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// When the folder last changed, if nothing can have happened since without showing.
    as_of: Option<SystemTime>,
    pub entries: BTreeMap<EntryName, Known>,
    blocks: HashMap<Key, Place>,
    resumes: HashMap<Key, Place>,
}

/// An entry, and the number of a payload among its blocks or among its resume points.
type Place = (Arc<Entry>, usize);

impl Index {
    /// Look if the folder changed, and if it did, read the entries that are new.
    pub(super) fn refresh(&mut self, folder: &Folder) -> Result<(), Error> {
        // Asked before listing, so that what happens meanwhile shows next time.
        let changed = folder.changed();
        let unread = || self.entries.values().any(|known| *known == Err(Useless::Unread));
        if changed.is_none() || changed != self.as_of || unread() {
            self.as_of = changed;
            self.list(folder)?;
        }
        Ok(())
    }

    /// List the folder even if it seems not to have changed. One that cannot be listed is empty.
    pub(super) fn list(&mut self, folder: &Folder) -> Result<Listing, Error> {
        let listing = folder.list().inspect_err(|_| *self = Self::default())?;
        let n_before = self.entries.len();
        self.entries
            .retain(|name, known| listing.entries.contains_key(name) && *known != Err(Useless::Unread));
        let mut is_changed = self.entries.len() < n_before;
        for &name in listing.entries.keys() {
            self.entries.entry(name).or_insert_with(|| {
                is_changed = true;
                known(folder.entry(&name))
            });
        }
        if is_changed {
            self.rebuild();
        }
        Ok(listing)
    }

    /// Forget what is where, and learn it again from the entries. Where there is no memory for
    /// that, nothing is found, and the folder is read again the next time.
    pub(super) fn rebuild(&mut self) {
        self.blocks.clear();
        self.resumes.clear();
        for entry in self.entries.values().flatten() {
            let room = self.blocks.try_reserve(entry.blocks.len());
            if room.and_then(|()| self.resumes.try_reserve(entry.resumes.len())).is_err() {
                *self = Index::default();
                return;
            }
            let place = |number| (entry.clone(), number);
            self.blocks.extend((0..).zip(&entry.blocks).map(|(i, block)| (block.key, place(i))));
            let resumes = (0..).zip(&entry.resumes);
            self.resumes.extend(resumes.map(|(i, resume)| (entry.key_at(resume), place(i))));
        }
    }

    /// Return the block that ends the prefix with this key, and its entry, whatever its tokens are.
    pub(super) fn at(&self, key: &Key) -> Option<(&Arc<Entry>, &Block)> {
        let (entry, number) = self.blocks.get(key)?;
        Some((entry, entry.blocks.get(*number)?))
    }

    /// Return the block with this key, if it is stored with these tokens. Equal keys do not
    /// convince anybody.
    pub(super) fn block(&self, key: &Key, tokens: &BlockTokens) -> Option<(&Arc<Entry>, &Block)> {
        self.at(key).filter(|(_, block)| block.tokens == *tokens)
    }

    /// Return the entry that holds the last block before this one, if there is one and it is
    /// stored.
    pub(super) fn parent(&self, entry: &Entry) -> Option<&Arc<Entry>> {
        let (parent, number) = self.blocks.get(&entry.parent)?;
        (parent.n_before as usize + number + 1 == entry.n_before as usize).then_some(parent)
    }

    /// Return this entry, if it is whole, and those that it follows, nearest first.
    pub(super) fn with_ancestors(&self, name: &EntryName) -> impl Iterator<Item = &Arc<Entry>> {
        let entry = self.entries.get(name).and_then(|known| known.as_ref().ok());
        core::iter::successors(entry, |entry| self.parent(entry))
    }

    /// Return the resume point of the prefix with this key, and its entry, if one is stored.
    pub(super) fn resume(&self, key: &Key) -> Option<(&Arc<Entry>, &Section)> {
        let (entry, number) = self.resumes.get(key)?;
        Some((entry, entry.resumes.get(*number)?))
    }

    /// Tell why no more than the first `n` blocks of a prompt are stored.
    pub(super) fn why(&self, root: &Key, keys: &[Key], tokens: &[Token], n: usize) -> Why {
        let at = n * BLOCK_TOKENS;
        let mut rest = keys.iter().skip(n);
        if rest.next().is_none() {
            return Why::AllStored;
        }
        if rest.any(|key| self.blocks.contains_key(key)) {
            return Why::Gone { at };
        }
        let after = if n == 0 { root } else { &keys[n - 1] };
        match self.shared(after, tokens.split_at(at.min(tokens.len())).1) {
            Some(BLOCK_TOKENS..) => Why::Gone { at },
            Some(equal) => Why::Differs { at: at + equal },
            None if n == 0 => Why::NothingStored,
            None => Why::Ends { at },
        }
    }

    /// Return how many of the next tokens, at most a block, are stored behind the prefix with this
    /// key; `None` if nothing follows it.
    fn shared(&self, after: &Key, next: &[Token]) -> Option<usize> {
        let following = self.whole().flat_map(|entry| {
            let before = core::iter::once(&entry.parent).chain(entry.blocks.iter().map(|block| &block.key));
            before.zip(&entry.blocks).filter(|(before, _)| *before == after)
        });
        let equal = |block: &Block| block.tokens.iter().zip(next).take_while(|(a, b)| a == b).count();
        following.map(|(_, block)| equal(block)).max()
    }

    /// Return the entries that are whole.
    pub(super) fn whole(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values().flatten()
    }

    /// Return how many blocks from the start of the prompt are stored in one piece.
    pub(super) fn stored(&self, keys: &[Key], tokens: &[Token]) -> usize {
        let blocks = keys.iter().zip(blocks_of(tokens));
        blocks.take_while(|(key, tokens)| self.block(key, tokens).is_some()).count()
    }
}

/// Judge a file by the attempt to read it as an entry.
fn known(entry: Result<Entry, Error>) -> Known {
    entry.map(Arc::new).map_err(|error| match &error {
        Error::Entry { error, .. } if is_later(error) => Useless::Later,
        error if error.is_damage() => Useless::Damaged,
        _ => Useless::Unread,
    })
}

/// Return true if a later program wrote what this one does not understand.
fn is_later(error: &Error) -> bool {
    match *error {
        Error::Version { found, .. } => found > VERSION,
        Error::UnknownRequired { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
impl Index {
    /// Make what is stored under a key found under another too, as if a hash had collided.
    pub(super) fn collide(&mut self, stored: Key, other: Key) {
        if let Some(place) = self.blocks.get(&stored).cloned() {
            self.blocks.insert(other, place);
        }
    }
}
