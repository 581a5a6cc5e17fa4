//! The choice between prefetch instructions and the processor's own prefetcher, for weights that
//! few tokens pass.
//!
//! One token reads each weight once, so its time is that of the memory. Most processors reach the
//! full rate only if the kernel names the lines early; on some the prefetcher alone does as well,
//! and prefetch instructions take slots from the loads. The best distance and cache differ:
//! docs/experiments.md has the measurements.

use super::processor::Processor;

/// Caches that weights are fetched to before they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// None: the processor follows one stream of memory by itself as fast as it can be read.
    Nothing,
    /// The nearest one, [`Fetch::FIRST_AHEAD`] bytes ahead.
    First,
    /// The second one, [`Fetch::SECOND_AHEAD`] bytes ahead, and from there the nearest one,
    /// [`Fetch::FIRST_FROM_SECOND`] bytes ahead.
    Both,
}

impl Fetch {
    /// Bytes between what is multiplied and what is fetched to the nearest cache: enough for the
    /// latency of memory, and more than a page, at whose end processors stop fetching by
    /// themselves.
    pub(crate) const FIRST_AHEAD: usize = 8192;
    /// Bytes between what is multiplied and what is fetched to the second cache: the best of those
    /// that were measured, as is the next.
    pub(crate) const SECOND_AHEAD: usize = 4096;
    /// Bytes between what is multiplied and what is fetched from the second to the nearest cache.
    pub(crate) const FIRST_FROM_SECOND: usize = 2048;

    /// Return what is fastest for one token on this processor.
    ///
    /// Measured: nothing on Zen 4; both caches on Sapphire Rapids, and so on all processors of
    /// Intel; the nearest one on Zen 3 and Zen 5, and so on all others.
    #[inline(always)]
    pub(crate) fn for_one_token() -> Fetch {
        match Processor::here() {
            Processor::Zen4 => Fetch::Nothing,
            Processor::Intel => Fetch::Both,
            Processor::Amd | Processor::Other => Fetch::First,
        }
    }

    /// Return what is fastest for `n` tokens that pass the weights together.
    ///
    /// On Zen 4 both caches from the third token on; measured were one, two, four and more.
    #[inline(always)]
    pub(crate) fn for_tokens(n: usize) -> Fetch {
        match Fetch::for_one_token() {
            Fetch::Nothing if n > 2 => Fetch::Both,
            found => found,
        }
    }
}
