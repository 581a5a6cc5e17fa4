//! Calls of samplers, whoever made them.

use super::chain;
use super::registry::{Known, SamplerRef};
use crate::border::{In, Out, exports};
use crate::context::{Row, context};
use crate::error::Error;
use crate::handles::Handle;
use crate::layouts::{Sampler, SamplerInterface, TokenData, TokenDataArray};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// The number that stands for no token.
const NO_TOKEN: i32 = -1;
/// The seed of samplers that draw nothing.
const NO_SEED: u32 = u32::MAX;

thread_local! {
    /// The candidates of the last draw of this thread, whose memory the next one uses again.
    static CANDIDATES: RefCell<Vec<TokenData>> = const { RefCell::new(Vec::new()) };
}

/// Show a token to a sampler.
///
/// # Errors
/// Those of [`SamplerRef::known`].
pub fn accept(sampler: SamplerRef, token: i32) -> Result<(), Error> {
    match sampler.known()? {
        Known::BuiltIn(own) => own.lock().unwrap_or_else(PoisonError::into_inner).accept(token),
        Known::Chain(chain) => chain::accept_all(&chain, token)?,
        Known::Foreign => {
            if let Some(accept) = sampler.functions()?.accept {
                accept(sampler.0, token);
            }
        }
    }
    Ok(())
}

/// Apply a sampler to candidates.
///
/// # Errors
/// Those of [`SamplerRef::known`]; [`Error::Null`] or [`Error::Unaligned`] if there are no
/// candidates.
pub fn apply(sampler: SamplerRef, array: Out<TokenDataArray>) -> Result<(), Error> {
    match sampler.known()? {
        Known::BuiltIn(own) => own.lock().unwrap_or_else(PoisonError::into_inner).apply(array),
        Known::Chain(chain) => chain::apply_all(&chain, array),
        Known::Foreign => {
            if let Some(apply) = sampler.functions()?.apply {
                apply(sampler.0, array);
            }
            Ok(())
        }
    }
}

/// Reset a sampler.
///
/// # Errors
/// Those of [`SamplerRef::known`].
pub fn reset(sampler: SamplerRef) -> Result<(), Error> {
    match sampler.known()? {
        Known::BuiltIn(own) => own.lock().unwrap_or_else(PoisonError::into_inner).reset(),
        Known::Chain(chain) => chain::reset_all(&chain)?,
        Known::Foreign => {
            if let Some(reset) = sampler.functions()?.reset {
                reset(sampler.0);
            }
        }
    }
    Ok(())
}

/// Free a sampler with all that it owns.
///
/// # Errors
/// Those of [`SamplerRef::forget`].
pub fn free(sampler: SamplerRef) -> Result<(), Error> {
    let functions = match sampler.known()? {
        Known::Foreign => Some(sampler.functions()?),
        _ => None,
    };
    match sampler.forget()? {
        Known::BuiltIn(_) => {}
        Known::Chain(chain) => chain::free_all(&chain)?,
        // The memory of the structure is still there: in quarantine, or the program's.
        Known::Foreign => {
            if let Some(free) = functions.and_then(|functions| functions.free) {
                free(sampler.0);
            }
        }
    }
    Ok(())
}

/// Return a copy of a sampler, with all that it owns.
///
/// # Errors
/// Those of [`SamplerRef::known`]; [`Error::Absent`] if a foreign sampler cannot be copied.
fn cloned(sampler: SamplerRef) -> Result<SamplerRef, Error> {
    match sampler.known()? {
        Known::BuiltIn(own) => {
            let copy = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(SamplerRef::of(Known::BuiltIn(Arc::new(Mutex::new(copy)))))
        }
        Known::Chain(chain) => {
            let mut copies = Vec::new();
            for member in chain::members(&chain) {
                match cloned(member) {
                    Ok(copy) => copies.push(copy),
                    Err(error) => {
                        copies.into_iter().try_for_each(free)?;
                        return Err(error);
                    }
                }
            }
            Ok(chain::keep(chain::params_of(&chain), copies))
        }
        Known::Foreign => {
            let functions = sampler.functions()?;
            if let Some(clone) = functions.clone {
                return Ok(SamplerRef(clone(sampler.0)));
            }
            if !sampler.data()?.is_null() {
                return Err(Error::Absent { what: "copying a sampler without a function for that" });
            }
            Ok(SamplerRef::keep(Known::Foreign, sampler.table()?, std::ptr::null_mut()))
        }
    }
}

const OTHER: Error = Error::Foreign { wanted: "sampler of the same kind" };

/// Give one sampler the state of another of the same kind.
fn copy(from: SamplerRef, to: SamplerRef) -> Result<(), Error> {
    if from == to {
        return Ok(());
    }
    match (from.known()?, to.known()?) {
        (Known::BuiltIn(from), Known::BuiltIn(to)) => {
            let copy = from.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            if to.name != copy.name {
                return Err(OTHER);
            }
            *to = copy;
            Ok(())
        }
        (Known::Chain(from), Known::Chain(to)) => {
            let (from, to) = (chain::members(&from), chain::members(&to));
            if from.len() != to.len() {
                return Err(OTHER);
            }
            from.into_iter().zip(to).try_for_each(|(from, to)| copy(from, to))
        }
        (Known::Foreign, Known::Foreign) => copy_foreign(from, to),
        _ => Err(OTHER),
    }
}

/// Give one sampler of the program's the state of another: by its function for that, or else by the
/// data of a copy, in the place of its own.
fn copy_foreign(from: SamplerRef, to: SamplerRef) -> Result<(), Error> {
    let functions = from.functions()?;
    if from.table()? != to.table()? {
        return Err(OTHER);
    }
    #[cfg(not(feature = "layout-0-3-16"))]
    if let Some(copy) = functions.copy_state {
        copy(from.0, to.0);
        return Ok(());
    }
    let copy = cloned(from)?;
    if copy.table()? != to.table()? {
        return free(copy).and(Err(OTHER));
    }
    let data = copy.data()?;
    if let Some(free) = functions.free {
        free(to.0);
    }
    to.set_data(data)?;
    // Only the structure of the copy is left, without its data.
    copy.forget().map(drop)
}

/// Return the name of a sampler.
fn name(sampler: SamplerRef) -> Result<*const c_char, Error> {
    match sampler.known()? {
        Known::BuiltIn(own) => Ok(own.lock().unwrap_or_else(PoisonError::into_inner).name.as_ptr()),
        Known::Chain(_) => Ok(c"chain".as_ptr()),
        Known::Foreign => Ok(match sampler.functions()?.name {
            Some(name) => name(sampler.0),
            None => c"(null)".as_ptr(),
        }),
    }
}

/// Return the seed of a sampler; that of the last one that has some, for a chain.
fn seed(sampler: SamplerRef) -> Result<Option<u32>, Error> {
    match sampler.known()? {
        Known::BuiltIn(own) => Ok(own.lock().unwrap_or_else(PoisonError::into_inner).seed),
        Known::Chain(chain) => {
            for member in chain::members(&chain).into_iter().rev() {
                if let Some(seed) = seed(member)? {
                    return Ok(Some(seed));
                }
            }
            Ok(None)
        }
        Known::Foreign => Ok(None),
    }
}

/// Draw a token among candidates, and return it.
fn draw(sampler: SamplerRef, candidates: &mut [TokenData]) -> Result<i32, Error> {
    let data = candidates.as_mut_ptr();
    let mut array = TokenDataArray { data, size: candidates.len(), selected: -1, sorted: 0 };
    // SAFETY: the array lives until the end of this function, and only the samplers use it.
    let out = unsafe { Out::new(&raw mut array) };
    apply(sampler, out)?;
    let array = out.read("cur_p")?;
    let chosen = usize::try_from(array.selected).ok().filter(|&chosen| chosen < array.size);
    // SAFETY: a sampler of the program's may point the array to candidates of its own. It claims
    // that as many lie there as the array says, until its next call.
    let data = unsafe { In::new(array.data.cast_const()) };
    Ok(data.at(chosen.ok_or(Error::NoToken)?, "cur_p.data")?.id)
}

/// Sampler functions of the library's table: the name.
pub extern "C" fn call_name(sampler: *const Sampler) -> *const c_char {
    llama_sampler_name(SamplerRef(sampler.cast_mut()))
}

/// Sampler functions of the library's table: showing a token.
pub extern "C" fn call_accept(sampler: *mut Sampler, token: i32) {
    llama_sampler_accept(SamplerRef(sampler), token);
}

/// Sampler functions of the library's table: applying.
pub extern "C" fn call_apply(sampler: *mut Sampler, array: Out<TokenDataArray>) {
    llama_sampler_apply(SamplerRef(sampler), array);
}

/// Sampler functions of the library's table: starting anew.
pub extern "C" fn call_reset(sampler: *mut Sampler) {
    llama_sampler_reset(SamplerRef(sampler));
}

/// Sampler functions of the library's table: copying.
pub extern "C" fn call_clone(sampler: *const Sampler) -> *mut Sampler {
    llama_sampler_clone(SamplerRef(sampler.cast_mut())).0
}

exports! {
    /// Return a sampler of the functions in `iface`, which has to live as long as it.
    fn llama_sampler_init(iface: *const SamplerInterface, ctx: *mut c_void) -> SamplerRef = [SamplerRef::NULL] {
        if iface.is_null() {
            return Err(Error::Null { what: "iface" });
        }
        Ok(SamplerRef::keep(Known::Foreign, iface, ctx))
    }

    /// Return the name of a sampler.
    fn llama_sampler_name(sampler: SamplerRef) -> *const c_char = [c"(null)".as_ptr()] {
        name(sampler)
    }

    /// Show a token of the sequence to a sampler.
    fn llama_sampler_accept(sampler: SamplerRef, token: i32) {
        accept(sampler, token)
    }

    /// Apply a sampler to candidates.
    fn llama_sampler_apply(sampler: SamplerRef, array: Out<TokenDataArray>) {
        apply(sampler, array)
    }

    /// Set a sampler back to its beginning.
    fn llama_sampler_reset(sampler: SamplerRef) {
        reset(sampler)
    }

    /// Return a copy of a sampler, or null.
    fn llama_sampler_clone(sampler: SamplerRef) -> SamplerRef = [SamplerRef::NULL] {
        cloned(sampler)
    }

    /// Give one sampler the state of another of the same kind.
    fn llama_sampler_copy(from: SamplerRef, to: SamplerRef) {
        copy(from, to)
    }

    /// Free a sampler, and the samplers that it owns. One that a chain owns stays.
    fn llama_sampler_free(sampler: SamplerRef) {
        if sampler.is_null() {
            return Ok(());
        }
        free(sampler)
    }

    /// Return the seed of a sampler's random numbers; 0xFFFFFFFF if it draws none.
    fn llama_sampler_get_seed(sampler: SamplerRef) -> u32 = [NO_SEED] {
        Ok(seed(sampler)?.unwrap_or(NO_SEED))
    }

    /// Draw a token from the logits of output `idx` of the last batch, show it to the sampler, and
    /// return it; -1 if there is none.
    fn llama_sampler_sample(sampler: SamplerRef, ctx: Handle, idx: i32) -> i32 = [NO_TOKEN] {
        sampler.known()?;
        let mut candidates = CANDIDATES.take();
        candidates.clear();
        {
            let entry = context(ctx)?;
            let mut live = entry.live()?;
            let (context, outputs) = live.outputs()?;
            let n_vocab = context.model().hparams().n_vocab;
            let row = outputs.row(context, Row::Logits, idx)?;
            // SAFETY: the outputs hold the row, `n_vocab` long, and the lock keeps them.
            let row = unsafe { In::new(row.cast_const()) };
            let logits = row.slice(n_vocab, "logits")?;
            let of = |(id, &logit): (i32, &f32)| TokenData { id, logit, p: 0.0 };
            candidates.extend((0..).zip(logits).map(of));
        }
        let token = draw(sampler, &mut candidates)?;
        CANDIDATES.set(candidates);
        accept(sampler, token)?;
        Ok(token)
    }
}
