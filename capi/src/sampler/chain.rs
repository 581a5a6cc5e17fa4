//! Chains of samplers.

use super::calls::{accept, apply, free, reset};
use super::registry::{Known, SamplerRef};
use crate::border::{Out, exports};
use crate::context::now_us;
use crate::error::Error;
use crate::layouts::{ChainParams, PerfSampler, TokenDataArray};
use crate::log::{self, Level};
use std::sync::{Arc, Mutex, PoisonError};

/// A chain: samplers that it owns, in order.
#[derive(Debug)]
pub struct Chain {
    samplers: Vec<SamplerRef>,
    params: ChainParams,
    perf: PerfSampler,
}

// SAFETY: the chain holds addresses that it does not look into itself; whoever uses them goes
// through the registry, which has a lock.
unsafe impl Send for Chain {}

/// Return the samplers of a chain. The lock is not kept, so that foreign samplers may call the
/// chain.
pub fn members(chain: &Mutex<Chain>) -> Vec<SamplerRef> {
    chain.lock().unwrap_or_else(PoisonError::into_inner).samplers.clone()
}

/// Return the chain of an address.
fn chain(sampler: SamplerRef) -> Result<Arc<Mutex<Chain>>, Error> {
    match sampler.known()? {
        Known::Chain(chain) => Ok(chain),
        _ => Err(Error::Foreign { wanted: "chain of samplers" }),
    }
}

fn with<T>(sampler: SamplerRef, act: impl FnOnce(&mut Chain) -> T) -> Result<T, Error> {
    let chain = chain(sampler)?;
    let mut chain = chain.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(act(&mut chain))
}

fn member(samplers: &[SamplerRef], index: i32) -> Result<usize, Error> {
    let position = usize::try_from(index).ok().filter(|&index| index < samplers.len());
    let wanted = "the index of a sampler of the chain";
    position.ok_or(Error::Range { what: "i", found: index.into(), wanted })
}

/// Keep a chain of these samplers, which it owns from now on.
pub fn keep(params: ChainParams, samplers: Vec<SamplerRef>) -> SamplerRef {
    let chain = Chain { samplers: samplers.clone(), params, perf: PerfSampler::default() };
    let kept = SamplerRef::of(Known::Chain(Arc::new(Mutex::new(chain))));
    for sampler in samplers {
        // They were just made for this chain, so nobody else owns them.
        let _ = sampler.set_owner(Some(kept));
    }
    kept
}

/// Return the options of a chain.
pub fn params_of(chain: &Mutex<Chain>) -> ChainParams {
    chain.lock().unwrap_or_else(PoisonError::into_inner).params
}

/// Show a token to all samplers of a chain.
pub fn accept_all(chain: &Mutex<Chain>, token: i32) -> Result<(), Error> {
    members(chain).into_iter().try_for_each(|sampler| accept(sampler, token))?;
    chain.lock().unwrap_or_else(PoisonError::into_inner).perf.n_sample += 1;
    Ok(())
}

/// Apply all samplers of a chain in order.
pub fn apply_all(chain: &Mutex<Chain>, array: Out<TokenDataArray>) -> Result<(), Error> {
    let start = now_us();
    members(chain).into_iter().try_for_each(|sampler| apply(sampler, array))?;
    let mut chain = chain.lock().unwrap_or_else(PoisonError::into_inner);
    if chain.params.no_perf == 0 {
        chain.perf.t_sample_ms += (now_us() - start) as f64 / 1e3;
    }
    Ok(())
}

/// Reset all samplers of a chain.
pub fn reset_all(chain: &Mutex<Chain>) -> Result<(), Error> {
    members(chain).into_iter().try_for_each(reset)
}

/// Free the samplers of a chain that is gone.
pub fn free_all(chain: &Mutex<Chain>) -> Result<(), Error> {
    let samplers = std::mem::take(&mut chain.lock().unwrap_or_else(PoisonError::into_inner).samplers);
    let mut result = Ok(());
    for sampler in samplers {
        result = result.and(sampler.set_owner(None).and_then(|()| free(sampler)));
    }
    result
}

exports! {
    /// Return an empty chain.
    fn llama_sampler_chain_init(params: ChainParams) -> SamplerRef = [SamplerRef::NULL] {
        Ok(keep(params, Vec::new()))
    }

    /// Return the default options of a chain.
    fn llama_sampler_chain_default_params() -> ChainParams = [ChainParams { no_perf: 1 }] {
        Ok(ChainParams { no_perf: 1 })
    }

    /// Append a sampler, which the chain owns from now on. One that a chain owns stays there.
    fn llama_sampler_chain_add(chain: SamplerRef, sampler: SamplerRef) {
        sampler.known()?;
        self::chain(chain)?;
        sampler.set_owner(Some(chain))?;
        with(chain, |chain| chain.samplers.push(sampler))
    }

    /// Return a sampler of a chain; the chain itself for -1; null for other numbers.
    fn llama_sampler_chain_get(chain: SamplerRef, i: i32) -> SamplerRef = [SamplerRef::NULL] {
        if i == -1 {
            return self::chain(chain).map(|_| chain);
        }
        with(chain, |inner| member(&inner.samplers, i).map(|i| inner.samplers[i]))?
    }

    /// Return the number of samplers.
    fn llama_sampler_chain_n(chain: SamplerRef) -> i32 = [0] {
        with(chain, |chain| chain.samplers.len() as i32)
    }

    /// Take a sampler out of its chain, and return it; null if there are not so many. Whoever calls
    /// this owns it then.
    fn llama_sampler_chain_remove(chain: SamplerRef, i: i32) -> SamplerRef = [SamplerRef::NULL] {
        let removed = with(chain, |inner| member(&inner.samplers, i).map(|i| inner.samplers.remove(i)))??;
        removed.set_owner(None)?;
        Ok(removed)
    }

    /// Return the times of a chain.
    fn llama_perf_sampler(chain: SamplerRef) -> PerfSampler = [PerfSampler::default()] {
        with(chain, |chain| chain.perf)
    }

    /// Write the times of a chain to the log.
    fn llama_perf_sampler_print(chain: SamplerRef) {
        let perf = with(chain, |chain| chain.perf)?;
        log::write(Level::Info, &format!("sampling {:.2} ms for {} tokens", perf.t_sample_ms, perf.n_sample));
        Ok(())
    }

    /// Set the times of a chain to zero.
    fn llama_perf_sampler_reset(chain: SamplerRef) {
        with(chain, |chain| chain.perf = PerfSampler::default())
    }
}
