//! What a folder holds, as far as the heads of its packs tell: built in memory, brought up to date when the folder changed.

use super::error::Error;
use super::folder::{Folder, PackName};
use super::found::Why;
use super::key::{BLOCK_TOKENS, BlockTokens, Key, blocks_of};
use super::pack::{Block, Flaw, Head, Resume};
use crate::ids::Token;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

/// What is known of a file that is named like a pack.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// Its head is whole.
    Whole(Arc<Head>),
    /// It is not a pack, or was one: nobody will ever read it.
    Damaged,
    /// A later program wrote it.
    Later,
    /// The system did not let it be read; it may the next time.
    Unread,
}

/// The packs of a folder and where everything is in them.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// When the folder last changed, if nothing can have happened since without showing.
    as_of: Option<SystemTime>,
    pub packs: BTreeMap<PackName, Known>,
    blocks: HashMap<Key, Place>,
    resumes: HashMap<Key, Place>,
}

/// Entry `entry` of a pack's blocks, or of its resume points.
#[derive(Clone, Copy, Debug)]
struct Place {
    pack: PackName,
    entry: usize,
}

/// A block found in a pack.
pub(super) struct FoundBlock<'a> {
    pub pack: PackName,
    pub head: &'a Arc<Head>,
    pub block: &'a Block,
}

impl Index {
    /// Looks whether the folder changed, and if it did, reads the heads of packs that are new. A folder that cannot be listed is empty.
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
        let unread = || self.packs.values().any(|known| matches!(known, Known::Unread));
        if changed.is_none() || changed != self.as_of || unread() {
            self.list(folder)?;
            self.as_of = changed;
        }
        Ok(())
    }

    /// Lists the folder even if it seems not to have changed.
    pub(super) fn list(&mut self, folder: &Folder) -> Result<(), Error> {
        let listing = folder.list()?;
        let mut before = core::mem::take(&mut self.packs);
        let n_before = before.len();
        let mut n_new = 0;
        for name in listing.packs {
            let known = match before.remove(&name) {
                Some(Known::Unread) | None => {
                    n_new += 1;
                    known(folder.head(&name))
                }
                Some(known) => known,
            };
            self.packs.insert(name, known);
        }
        if n_new > 0 || self.packs.len() != n_before {
            self.rebuild();
        }
        Ok(())
    }

    /// Forgets what is where, and learns it again from the heads. Where there is no memory for that, nothing is found, and the folder is
    /// read again the next time.
    pub(super) fn rebuild(&mut self) {
        self.blocks.clear();
        self.resumes.clear();
        let (n_blocks, n_resumes) = self.heads().fold((0usize, 0usize), |(blocks, resumes), (_, head)| {
            (blocks.saturating_add(head.blocks.len()), resumes.saturating_add(head.resumes.len()))
        });
        let room = self.blocks.try_reserve(n_blocks).and_then(|()| self.resumes.try_reserve(n_resumes));
        if room.is_err() {
            *self = Index::default();
            return;
        }
        for (&pack, known) in &self.packs {
            let Known::Whole(head) = known else { continue };
            for (entry, block) in head.blocks.iter().enumerate() {
                self.blocks.insert(block.key, Place { pack, entry });
            }
            for (entry, resume) in head.resumes.iter().enumerate() {
                let key = head.key_after(resume.after);
                self.resumes.extend(key.map(|key| (key, Place { pack, entry })));
            }
        }
    }

    /// Forgets a pack that was removed.
    pub(super) fn forget(&mut self, name: &PackName) {
        if self.packs.remove(name).is_some() {
            self.rebuild();
        }
    }

    /// Changes what is known of a pack.
    pub(super) fn mark(&mut self, name: &PackName, known: Known) {
        self.packs.insert(*name, known);
        self.rebuild();
    }

    fn head(&self, pack: &PackName) -> Option<&Arc<Head>> {
        match self.packs.get(pack)? {
            Known::Whole(head) => Some(head),
            _ => None,
        }
    }

    /// Where the prefix with this key ends, if its last block is stored: whatever its tokens are.
    pub(super) fn at(&self, key: &Key) -> Option<FoundBlock<'_>> {
        let place = self.blocks.get(key)?;
        let head = self.head(&place.pack)?;
        Some(FoundBlock { pack: place.pack, head, block: head.blocks.get(place.entry)? })
    }

    /// The block with this key, if it is stored with these tokens. Equal keys do not convince anybody.
    pub(super) fn block(&self, key: &Key, tokens: &BlockTokens) -> Option<FoundBlock<'_>> {
        self.at(key).filter(|found| found.block.tokens == *tokens)
    }

    /// The pack that holds the last block before this one, if there is one and it is stored.
    pub(super) fn parent(&self, head: &Head) -> Option<PackName> {
        let place = self.blocks.get(&head.parent)?;
        let n_before = self.head(&place.pack)?.n_before as usize + place.entry + 1;
        (n_before == head.n_before as usize).then_some(place.pack)
    }

    /// The packs that this one follows, nearest first.
    pub(super) fn ancestors(&self, name: &PackName) -> impl Iterator<Item = PackName> {
        let parent = |name: &PackName| self.parent(self.head(name)?);
        core::iter::successors(parent(name), move |name| parent(name))
    }

    /// The resume point of the prefix with this key, if one is stored.
    pub(super) fn resume(&self, key: &Key) -> Option<(PackName, &Arc<Head>, &Resume)> {
        let place = self.resumes.get(key)?;
        let head = self.head(&place.pack)?;
        Some((place.pack, head, head.resumes.get(place.entry)?))
    }

    /// Why no more than the first `n` blocks of a prompt are stored.
    pub(super) fn why(&self, root: &Key, keys: &[Key], tokens: &[Token], n: usize) -> Why {
        let at = n * BLOCK_TOKENS;
        let mut rest = keys.iter().skip(n);
        if rest.next().is_none() {
            return Why::Whole;
        }
        if rest.any(|key| self.blocks.contains_key(key)) {
            return Why::Gone { at };
        }
        let after = n.checked_sub(1).and_then(|last| keys.get(last)).unwrap_or(root);
        match self.shared(after, tokens.get(at..).unwrap_or_default()) {
            Some(BLOCK_TOKENS..) => Why::Gone { at },
            Some(equal) => Why::Differs { at: at + equal },
            None if n == 0 => Why::NothingStored,
            None => Why::Ends { at },
        }
    }

    /// How many of the next tokens, at most a block, somebody stored behind the prefix with this key; `None` if nothing follows it.
    fn shared(&self, after: &Key, next: &[Token]) -> Option<usize> {
        let follow = |head: &Arc<Head>| {
            let first = [head.parent];
            let before = first.iter().chain(head.blocks.iter().map(|block| &block.key));
            let follow = before.zip(&head.blocks).filter(|(before, _)| *before == after);
            follow.map(|(_, block)| equal_tokens(&block.tokens, next)).max()
        };
        self.heads().filter_map(|(_, head)| follow(head)).max()
    }

    /// The packs whose heads are whole.
    pub(super) fn heads(&self) -> impl Iterator<Item = (PackName, &Arc<Head>)> {
        self.packs.iter().filter_map(|(name, known)| match known {
            Known::Whole(head) => Some((*name, head)),
            _ => None,
        })
    }

    /// How many blocks from the start of the prompt are stored in one piece.
    pub(super) fn stored(&self, keys: &[Key], tokens: &[Token]) -> usize {
        let blocks = keys.iter().zip(blocks_of(tokens));
        blocks.take_while(|(key, tokens)| self.block(key, tokens).is_some()).count()
    }
}

fn equal_tokens(stored: &[Token; BLOCK_TOKENS], next: &[Token]) -> usize {
    stored.iter().zip(next).take_while(|(a, b)| a == b).count()
}

/// What the attempt to read a head says about the file.
fn known(head: Result<Head, Error>) -> Known {
    match head {
        Ok(head) => Known::Whole(Arc::new(head)),
        Err(Error::Pack { flaw: Flaw::Version { .. }, .. }) => Known::Later,
        Err(Error::Pack { .. }) => Known::Damaged,
        Err(_) => Known::Unread,
    }
}

#[cfg(test)]
impl Index {
    /// Makes what is stored under a key found under another too, as if a hash had collided.
    pub(super) fn collide(&mut self, stored: Key, other: Key) {
        if let Some(&place) = self.blocks.get(&stored) {
            self.blocks.insert(other, place);
        }
    }
}
