//! Handles: numbers that stand for models, contexts and other things of the library.
//!
//! C sees a handle as a pointer to a structure that it knows nothing of. It is no address: it names
//! a kind, a slot of that kind's registry and the slot's generation, which grows whenever the slot
//! is freed. A handle that was freed, that is of another kind, or that the program made up is
//! therefore noticed at every call, and no memory of anybody's is touched. On 64-bit systems the
//! kind stands in bits that no address of a program has.

use crate::error::Error;
use std::sync::{Arc, PoisonError, RwLock};

/// A handle as C has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Handle(pub usize);

impl Handle {
    /// The null pointer.
    pub const NULL: Handle = Handle(0);

    /// Return true for the null pointer.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

#[cfg(target_pointer_width = "64")]
const BITS: [u32; 2] = [20, 32];
#[cfg(not(target_pointer_width = "64"))]
const BITS: [u32; 2] = [12, 12];
/// Bits that stay zero, so that a handle looks aligned.
const ZEROS: u32 = 4;
const INDEX_MASK: usize = (1 << BITS[0]) - 1;
const GENERATION_MASK: usize = ((1u64 << BITS[1]) - 1) as usize;
/// The bits of a handle below its kind.
pub const KIND_SHIFT: u32 = usize::BITS - 4;

/// Kinds of handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// A model.
    Model = 1,
    /// The vocabulary of a model, in the slot of the model.
    Vocab,
    /// A context.
    Context,
    /// The memory of a context, in the slot of the context.
    Memory,
    /// An adapter.
    Adapter,
    /// A batch of the extended interface.
    BatchExt,
    /// A prompt cache.
    PromptCache,
}

impl Kind {
    /// The last of them.
    pub const LAST: Kind = Kind::PromptCache;

    /// Return the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Vocab => "vocabulary",
            Kind::Context => "context",
            Kind::Memory => "memory",
            Kind::Adapter => "adapter",
            Kind::BatchExt => "extended batch",
            Kind::PromptCache => "prompt cache",
        }
    }

    fn handle(self, index: usize, generation: usize) -> Handle {
        Handle((self as usize) << KIND_SHIFT | (generation << BITS[0] | index) << ZEROS)
    }
}

struct Slot<T> {
    generation: usize,
    content: Option<Arc<T>>,
}

/// The things of one kind that are alive.
pub struct Registry<T> {
    kind: Kind,
    slots: RwLock<Vec<Slot<T>>>,
}

impl<T> Registry<T> {
    /// Return an empty registry for things of one kind.
    pub const fn new(kind: Kind) -> Self {
        Registry { kind, slots: RwLock::new(Vec::new()) }
    }

    /// Keep `content`, and return its handle.
    ///
    /// # Errors
    /// [`Error::Range`] if there are too many.
    pub fn insert(&self, content: T) -> Result<Handle, Error> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = |slot: &Slot<T>| slot.content.is_none() && slot.generation < GENERATION_MASK;
        let index = slots.iter().position(is_free).unwrap_or(slots.len());
        if index > INDEX_MASK {
            return Err(Error::Range {
                what: "the number of handles",
                found: index as i64,
                wanted: "less than all slots",
            });
        }
        if index == slots.len() {
            // The first generation is 1, so that few numbers that a program may make up are
            // handles.
            slots.push(Slot { generation: 1, content: None });
        }
        let slot = &mut slots[index];
        slot.content = Some(Arc::new(content));
        Ok(self.kind.handle(index, slot.generation))
    }

    fn parse(&self, handle: Handle, kinds: &[Kind]) -> Result<(usize, usize), Error> {
        let wanted = kinds.first().map_or("handle", |kind| kind.name());
        if handle.is_null() {
            return Err(Error::Null { what: wanted });
        }
        let is_kind = kinds.iter().any(|&kind| handle.0 >> KIND_SHIFT == kind as usize);
        let rest = (handle.0 >> ZEROS) & ((1 << (KIND_SHIFT - ZEROS)) - 1);
        let (index, generation) = (rest & INDEX_MASK, rest >> BITS[0]);
        let is_whole = handle.0 & ((1 << ZEROS) - 1) == 0;
        match is_kind && is_whole {
            true => Ok((index, generation)),
            false => Err(Error::Foreign { wanted }),
        }
    }

    /// Return what a handle of one of `kinds` stands for.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Foreign`] or [`Error::Stale`].
    pub fn get_as(&self, handle: Handle, kinds: &[Kind]) -> Result<Arc<T>, Error> {
        let (index, generation) = self.parse(handle, kinds)?;
        let wanted = kinds.first().map_or("handle", |kind| kind.name());
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get(index).ok_or(Error::Foreign { wanted })?;
        match &slot.content {
            Some(content) if slot.generation == generation => Ok(content.clone()),
            _ if generation > slot.generation => Err(Error::Foreign { wanted }),
            _ => Err(Error::Stale { wanted }),
        }
    }

    /// Return what a handle of this registry's kind stands for.
    ///
    /// # Errors
    /// Those of [`Registry::get_as`].
    pub fn get(&self, handle: Handle) -> Result<Arc<T>, Error> {
        self.get_as(handle, &[self.kind])
    }

    /// Free a handle, and return what it stood for.
    ///
    /// # Errors
    /// Those of [`Registry::get_as`].
    pub fn remove(&self, handle: Handle) -> Result<Arc<T>, Error> {
        let (index, generation) = self.parse(handle, &[self.kind])?;
        let wanted = self.kind.name();
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get_mut(index).ok_or(Error::Foreign { wanted })?;
        if generation > slot.generation {
            return Err(Error::Foreign { wanted });
        }
        let is_live = slot.generation == generation;
        let content = if is_live { slot.content.take() } else { None };
        slot.generation += usize::from(content.is_some());
        content.ok_or(Error::Stale { wanted })
    }
}

/// Return the handle of `kind` in the slot of `handle`: a model's vocabulary, a context's memory.
pub fn sibling(handle: Handle, kind: Kind) -> Handle {
    Handle(handle.0 & ((1 << KIND_SHIFT) - 1) | (kind as usize) << KIND_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_foreign_and_null_handles_are_told_apart() {
        let (models, contexts) = (Registry::new(Kind::Model), Registry::new(Kind::Context));
        let first = models.insert(7).unwrap();
        let context = contexts.insert(8).unwrap();
        assert_eq!(*models.get(first).unwrap(), 7);
        assert_eq!(*models.get_as(sibling(first, Kind::Vocab), &[Kind::Vocab]).unwrap(), 7);
        assert!(matches!(models.get(context), Err(Error::Foreign { .. })));
        assert!(matches!(models.get(sibling(first, Kind::Vocab)), Err(Error::Foreign { .. })));
        assert!(matches!(models.get(Handle(first.0 + 1)), Err(Error::Foreign { .. })));
        assert!(matches!(models.get(Handle::NULL), Err(Error::Null { .. })));
        models.remove(first).unwrap();
        assert!(matches!(models.get(first), Err(Error::Stale { .. })));
        assert!(matches!(models.remove(first), Err(Error::Stale { .. })));
        let second = models.insert(9).unwrap();
        assert_ne!(first, second);
        assert!(matches!(models.get(first), Err(Error::Stale { .. })));
        assert_eq!(*models.get(second).unwrap(), 9);
    }
}
