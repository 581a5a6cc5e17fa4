//! The choice between prefetch instructions and the processor's own prefetcher, for weights that
//! few tokens pass.
//!
//! One token reads each weight once, so its time is that of the memory. Most processors reach the
//! full rate only if the kernel names the lines early; on some the prefetcher alone does as well,
//! and prefetch instructions take slots from the loads. The best distance and cache differ:
//! docs/experiments.md has the measurements.

/// Caches that weights are fetched to before they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fetch {
    /// None: the processor follows one stream of memory by itself as fast as it can be read.
    Nothing = 1,
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
        #[cfg(target_arch = "x86_64")]
        return known();
        // A constant: kernels have no loops for the others then.
        #[cfg(not(target_arch = "x86_64"))]
        Fetch::First
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

/// Return what is fastest for one token, asking the processor the first time.
#[cfg(target_arch = "x86_64")]
fn known() -> Fetch {
    use core::sync::atomic::{AtomicU8, Ordering};
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        1 => Fetch::Nothing,
        2 => Fetch::First,
        3 => Fetch::Both,
        _ => {
            let found = ask();
            KNOWN.store(found as u8, Ordering::Relaxed);
            found
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn ask() -> Fetch {
    use super::vendor::{Vendor, vendor};
    match vendor() {
        Vendor::Intel => Fetch::Both,
        Vendor::Amd if is_zen4(core::arch::x86_64::__cpuid(1).eax) => Fetch::Nothing,
        Vendor::Amd | Vendor::Other => Fetch::First,
    }
}

/// Return true if this version of a processor of AMD is a Zen 4, whose family has Zen 3 too.
#[cfg(any(target_arch = "x86_64", test))]
fn is_zen4(version: u32) -> bool {
    let model = version >> 4 & 15 | version >> 12 & 0xf0;
    family(version) == 0x19 && matches!(model, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf)
}

/// Return the family in a processor's version: the extended part counts where the other is full.
#[cfg(any(target_arch = "x86_64", test))]
fn family(version: u32) -> u32 {
    match version >> 8 & 15 {
        15 => 15 + (version >> 20 & 0xff),
        family => family,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_manuals_say() {
        // Zen 4 (Genoa), Zen 5 (Turin), Sapphire Rapids.
        assert_eq!(family(0x00a1_0f11), 0x19);
        assert_eq!(family(0x00b0_0f21), 0x1a);
        assert_eq!(family(0x0008_06f8), 6);
        // Zen 4: Genoa, Bergamo, Raphael, Phoenix. Zen 3: Milan, Vermeer, Cezanne, Rembrandt.
        assert!([0x00a1_0f11, 0x00aa_0f02, 0x00a6_0f12, 0x00a7_0f41].into_iter().all(is_zen4));
        assert!(![0x00a0_0f11, 0x00a2_0f12, 0x00a5_0f00, 0x00a4_0f41].into_iter().any(is_zen4));
        assert!(!is_zen4(0x00b1_0f00));
    }
}
