//! Content of a folder, as far as its entries tell without their payloads: built in memory, brought
//! up to date when the folder changed.

use super::entry::{Block, Entry, EntryName};
use super::error::Error;
use super::folder::{Folder, Listing};
use super::found::Why;
use super::key::{BLOCK_TOKENS, BlockTokens, Key, blocks_of};
use crate::ids::Token;
use crate::storage::container::Section;
use crate::storage::error;
use crate::storage::header::VERSION;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

/// Knowledge about a file that is named like an entry.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// The entry is whole, as far as its payloads do not matter.
    Readable(Arc<Entry>),
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

/// Number of a payload among the blocks of an entry, or among its resume points.
#[derive(Clone, Copy, Debug)]
struct Place {
    entry: EntryName,
    number: usize,
}

impl Index {
    /// Look if the folder changed, and if it did, read the entries that are new. A folder that
    /// cannot be listed is empty.
    pub(super) fn refresh(&mut self, folder: &Folder) -> Result<(), Error> {
        let refreshed = self.refresh_if_changed(folder);
        if refreshed.is_err() {
            *self = Index::default();
        }
        refreshed
    }

    fn refresh_if_changed(&mut self, folder: &Folder) -> Result<(), Error> {
        // Asked before listing, so that what happens meanwhile shows next time.
        let changed = folder.changed()?;
        let unread = || self.entries.values().any(|known| matches!(known, Known::Unread));
        if changed.is_none() || changed != self.as_of || unread() {
            self.list(folder)?;
            self.as_of = changed;
        }
        Ok(())
    }

    /// List the folder even if it seems not to have changed.
    pub(super) fn list(&mut self, folder: &Folder) -> Result<Listing, Error> {
        let listing = folder.list()?;
        let mut before = core::mem::take(&mut self.entries);
        let n_before = before.len();
        let mut n_new = 0;
        for &(name, _) in &listing.entries {
            let known = match before.remove(&name) {
                Some(Known::Unread) | None => {
                    n_new += 1;
                    known(folder.entry(&name))
                }
                Some(known) => known,
            };
            self.entries.insert(name, known);
        }
        if n_new > 0 || self.entries.len() != n_before {
            self.rebuild();
        }
        Ok(listing)
    }

    /// Forget what is where, and learn it again from the entries. Where there is no memory for
    /// that, nothing is found, and the folder is read again the next time.
    pub(super) fn rebuild(&mut self) {
        self.blocks.clear();
        self.resumes.clear();
        let n_blocks = self.whole().map(|(_, entry)| entry.blocks.len()).sum();
        let n_resumes = self.whole().map(|(_, entry)| entry.resumes.len()).sum();
        let room = self.blocks.try_reserve(n_blocks).and_then(|()| self.resumes.try_reserve(n_resumes));
        if room.is_err() {
            *self = Index::default();
            return;
        }
        for (&name, known) in &self.entries {
            let Known::Readable(entry) = known else { continue };
            let place = |number| Place { entry: name, number };
            self.blocks.extend((0..).zip(&entry.blocks).map(|(i, block)| (block.key, place(i))));
            self.resumes
                .extend((0..).zip(&entry.resumes).map(|(i, resume)| (entry.key_at(resume), place(i))));
        }
    }

    /// Return an entry that is whole.
    pub(super) fn entry(&self, name: &EntryName) -> Option<&Arc<Entry>> {
        match self.entries.get(name)? {
            Known::Readable(entry) => Some(entry),
            _ => None,
        }
    }

    /// Return the block that ends the prefix with this key, and its entry's name, whatever its
    /// tokens are.
    pub(super) fn at(&self, key: &Key) -> Option<(EntryName, &Block)> {
        let place = self.blocks.get(key)?;
        Some((place.entry, self.entry(&place.entry)?.blocks.get(place.number)?))
    }

    /// Return the block with this key, if it is stored with these tokens. Equal keys do not
    /// convince anybody.
    pub(super) fn block(&self, key: &Key, tokens: &BlockTokens) -> Option<(EntryName, &Block)> {
        self.at(key).filter(|(_, block)| block.tokens == *tokens)
    }

    /// Return the entry that holds the last block before this one, if there is one and it is
    /// stored.
    pub(super) fn parent(&self, entry: &Entry) -> Option<EntryName> {
        let place = self.blocks.get(&entry.parent)?;
        let n_before = self.entry(&place.entry)?.n_before as usize + place.number + 1;
        (n_before == entry.n_before as usize).then_some(place.entry)
    }

    /// Return the entries that this one follows, nearest first.
    pub(super) fn ancestors(&self, name: &EntryName) -> impl Iterator<Item = EntryName> {
        let parent = |name: &EntryName| self.parent(self.entry(name)?);
        core::iter::successors(parent(name), move |name| parent(name))
    }

    /// Return the resume point of the prefix with this key, and its entry's name, if one is stored.
    pub(super) fn resume(&self, key: &Key) -> Option<(EntryName, &Section)> {
        let place = self.resumes.get(key)?;
        Some((place.entry, self.entry(&place.entry)?.resumes.get(place.number)?))
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
        let follow = |entry: &Arc<Entry>| {
            let first = [entry.parent];
            let before = first.iter().chain(entry.blocks.iter().map(|block| &block.key));
            let follow = before.zip(&entry.blocks).filter(|(before, _)| *before == after);
            let equal = |block: &Block| block.tokens.iter().zip(next).take_while(|(a, b)| a == b).count();
            follow.map(|(_, block)| equal(block)).max()
        };
        self.whole().filter_map(|(_, entry)| follow(entry)).max()
    }

    /// Return the entries that are whole.
    pub(super) fn whole(&self) -> impl Iterator<Item = (EntryName, &Arc<Entry>)> {
        self.entries.iter().filter_map(|(name, known)| match known {
            Known::Readable(entry) => Some((*name, entry)),
            _ => None,
        })
    }

    /// Return how many blocks from the start of the prompt are stored in one piece.
    pub(super) fn stored(&self, keys: &[Key], tokens: &[Token]) -> usize {
        let blocks = keys.iter().zip(blocks_of(tokens));
        blocks.take_while(|(key, tokens)| self.block(key, tokens).is_some()).count()
    }
}

/// Judge a file by the attempt to read it as an entry.
fn known(entry: Result<Entry, Error>) -> Known {
    match entry {
        Ok(entry) => Known::Readable(Arc::new(entry)),
        Err(Error::Entry { error: error::Error::Version { found, .. }, .. }) if found > VERSION => {
            Known::Later
        }
        Err(error) if error.is_damage() => Known::Damaged,
        Err(_) => Known::Unread,
    }
}

#[cfg(test)]
impl Index {
    /// Make what is stored under a key found under another too, as if a hash had collided.
    pub(super) fn collide(&mut self, stored: Key, other: Key) {
        if let Some(&place) = self.blocks.get(&stored) {
            self.blocks.insert(other, place);
        }
    }
}
