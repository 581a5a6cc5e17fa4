//! The samplers that are alive, and the addresses of those that were freed.

use super::built_in::BuiltIn;
use super::calls::{call_accept, call_apply, call_clone, call_name, call_reset};
use super::chain::Chain;
use crate::border::{In, Out};
use crate::error::Error;
use crate::handles::{KIND_SHIFT, Kind};
use crate::layouts::{Sampler, SamplerInterface};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The number of freed samplers whose addresses are not used again; fewer under Miri, where each
/// look at them takes long.
const QUARANTINE: usize = if cfg!(miri) { 8 } else { 4096 };

/// The address of a sampler as C has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct SamplerRef(pub *mut Sampler);

/// Kinds of samplers.
#[derive(Clone)]
pub enum Known {
    /// One of the library's.
    BuiltIn(Arc<Mutex<BuiltIn>>),
    /// A chain.
    Chain(Arc<Mutex<Chain>>),
    /// One with functions of the program's.
    Foreign,
}

struct Entry {
    known: Known,
    /// The chain that it belongs to.
    owner: Option<usize>,
}

#[derive(Default)]
struct Registry {
    live: HashMap<usize, Entry>,
    dead: VecDeque<usize>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// The functions that every sampler of the library has.
static INTERFACE: SamplerInterface =
    SamplerInterface::of_library(call_name, call_accept, call_apply, call_reset, call_clone);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SamplerRef {
    /// The null pointer.
    pub const NULL: SamplerRef = SamplerRef(std::ptr::null_mut());

    /// Return true for the null pointer.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Return the number of the address.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// Keep a sampler of the library.
    pub fn of(known: Known) -> Self {
        Self::keep(known, &raw const INTERFACE, std::ptr::null_mut())
    }

    /// Keep a sampler of these functions.
    pub fn keep(known: Known, iface: *const SamplerInterface, ctx: *mut c_void) -> Self {
        let address = Box::into_raw(Box::new(Sampler { iface, ctx }));
        registry().live.insert(address as usize, Entry { known, owner: None });
        SamplerRef(address)
    }

    /// Return what the address stands for; `Known::Foreign` for samplers that the program made.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Stale`]; [`Error::Foreign`] for handles of other things.
    pub fn known(self) -> Result<Known, Error> {
        const WANTED: &str = "sampler";
        if self.is_null() {
            return Err(Error::Null { what: WANTED });
        }
        let registry = registry();
        match registry.live.get(&self.address()) {
            Some(entry) => Ok(entry.known.clone()),
            None if registry.dead.contains(&self.address()) => Err(Error::Stale { wanted: WANTED }),
            None if !self.0.is_aligned() || is_handle(self.address()) => {
                Err(Error::Foreign { wanted: WANTED })
            }
            None => Ok(Known::Foreign),
        }
    }

    /// Return the functions of a sampler of the program's.
    ///
    /// # Errors
    /// [`Error::Null`] or [`Error::Unaligned`] if it has none.
    pub fn functions(self) -> Result<SamplerInterface, Error> {
        // SAFETY: the C program claims that the table of its sampler is null or complete.
        let functions = unsafe { In::new(self.table()?) };
        functions.get("sampler.iface")
    }

    /// Return the address of the functions of a sampler of the program's.
    ///
    /// # Errors
    /// [`Error::Null`] or [`Error::Unaligned`] if the address is none of a sampler.
    pub fn table(self) -> Result<*const SamplerInterface, Error> {
        // SAFETY: the C program claims that a sampler which the library does not know is a
        // structure of its own; stale addresses of the library's and handles were told apart
        // before.
        let table = unsafe { In::new(self.0.cast_const().cast::<*const SamplerInterface>()) };
        table.get("sampler")
    }

    /// Return what the functions of a sampler of the program's know it by.
    ///
    /// # Errors
    /// [`Error::Null`] or [`Error::Unaligned`].
    pub fn data(self) -> Result<*mut c_void, Error> {
        // SAFETY: as in `functions`; the data is the second word of the structure.
        let words = unsafe { In::new(self.0.cast_const().cast::<*mut c_void>()) };
        words.at(1, "sampler.ctx")
    }

    /// Change what these functions know it by.
    ///
    /// # Errors
    /// [`Error::Null`] or [`Error::Unaligned`].
    pub fn set_data(self, data: *mut c_void) -> Result<(), Error> {
        // SAFETY: as in `data`; nobody else uses the sampler during the call.
        let word = unsafe { Out::new(self.0.cast::<*mut c_void>().wrapping_add(1)) };
        word.write(data, "sampler.ctx")
    }

    /// Note that a chain owns the sampler now, or that none does.
    ///
    /// # Errors
    /// [`Error::Owned`] if a chain owns it already, or if it would contain itself.
    pub fn set_owner(self, owner: Option<SamplerRef>) -> Result<(), Error> {
        let mut registry = registry();
        let mut above = owner.map(SamplerRef::address);
        while let Some(address) = above {
            if address == self.address() {
                return Err(Error::Owned);
            }
            above = registry.live.get(&address).and_then(|entry| entry.owner);
        }
        let Some(entry) = registry.live.get_mut(&self.address()) else { return Ok(()) };
        if owner.is_some() && entry.owner.is_some() {
            return Err(Error::Owned);
        }
        entry.owner = owner.map(SamplerRef::address);
        Ok(())
    }

    /// Take the sampler out of the registry, and return what it was. Its memory stays in quarantine
    /// for a while.
    ///
    /// # Errors
    /// Those of [`SamplerRef::known`], and [`Error::Owned`] if a chain owns it.
    pub fn forget(self) -> Result<Known, Error> {
        let known = self.known()?;
        let mut registry = registry();
        if registry.live.get(&self.address()).is_some_and(|entry| entry.owner.is_some()) {
            return Err(Error::Owned);
        }
        // The memory of samplers that the program made is its own.
        if registry.live.remove(&self.address()).is_none() {
            return Ok(known);
        }
        registry.dead.push_back(self.address());
        if registry.dead.len() > QUARANTINE
            && let Some(oldest) = registry.dead.pop_front()
        {
            // SAFETY: the address came from `Box::into_raw` in `keep`, and leaves the registry's
            // last list here, so nothing frees it twice.
            drop(unsafe { Box::from_raw(oldest as *mut Sampler) });
        }
        Ok(known)
    }
}

/// Return true for addresses that are handles of the library. Android marks addresses in their
/// upper byte with a larger number than there are kinds of handles; tools that use any number there
/// are not supported.
fn is_handle(address: usize) -> bool {
    cfg!(target_pointer_width = "64") && (1..=Kind::LAST as usize).contains(&(address >> KIND_SHIFT))
}
