//! The sizes of caches, which decide how many tokens pass a panel of weights together.
//!
//! Kernels for many tokens keep activations in a cache while weights stream past. A size that is
//! too large makes every pass wait for memory, one that is too small unpacks weights more often
//! than needed; neither changes a bit.

use super::processor::Processor;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The size of a second cache assumed if the processor does not tell: small enough for today's
/// processors.
const DEFAULT: usize = 1 << 20;

/// Return the bytes of the second cache that one core has for itself.
///
/// None if the processor does not tell (x86-64 is asked, others are not), or tells an impossible
/// size, as some virtual machines do.
pub fn second_cache() -> Option<usize> {
    static KNOWN: Known = Known::new();
    KNOWN.get(64 << 10..=64 << 20, || {
        let (bytes, n_cores) = ask(2)?;
        Some(bytes / n_cores)
    })
}

/// Return `n` quarters of the second cache.
pub(crate) fn quarters(n: usize) -> usize {
    second_cache().unwrap_or(DEFAULT) / 4 * n
}

/// Return the bytes of a third cache from which activations come as fast as they are multiplied;
/// `None` if it is too far, or there is none.
///
/// Measured with prompts on Zen 4. All processors of AMD are taken to be like it, and no others.
/// Kernels with fewer than 32 registers do not use it.
pub fn near_third_cache() -> Option<usize> {
    #[cfg(test)]
    if let Some(size) = ASSUMED.get() {
        return size;
    }
    static KNOWN: Known = Known::new();
    KNOWN.get(4 << 20..=1 << 30, || match Processor::here() {
        Processor::Zen4 | Processor::Amd => ask(3).map(|(bytes, _)| bytes),
        Processor::Intel | Processor::Other => None,
    })
}

#[cfg(test)]
std::thread_local! {
    /// The near third cache that tests on this thread assume, so that all sizes of passes are
    /// tested on every machine.
    pub(crate) static ASSUMED: core::cell::Cell<Option<Option<usize>>> =
        const { core::cell::Cell::new(None) };
}

/// A size that is asked for once.
struct Known(AtomicUsize);

impl Known {
    const NOT_ASKED: usize = usize::MAX;

    const fn new() -> Self {
        Self(AtomicUsize::new(Self::NOT_ASKED))
    }

    /// Return the size, if there is one and it is among the `possible` ones.
    fn get(&self, possible: RangeInclusive<usize>, ask: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let mut size = self.0.load(Ordering::Relaxed);
        if size == Self::NOT_ASKED {
            size = ask().filter(|size| possible.contains(size)).unwrap_or(0);
            self.0.store(size, Ordering::Relaxed);
        }
        (size != 0).then_some(size)
    }
}

/// Return the bytes of the processor's cache of a level, and the number of cores that share it.
#[cfg(target_arch = "x86_64")]
fn ask(level: u32) -> Option<(usize, usize)> {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    // AMD's processors describe their caches in a leaf of their own, in the form of Intel's.
    const INTEL: u32 = 4;
    const AMD: u32 = 0x8000_001d;
    const AMD_DESCRIBES: u32 = 1 << 22;
    let has_amd = __cpuid(0x8000_0000).eax >= AMD && __cpuid(0x8000_0001).ecx & AMD_DESCRIBES != 0;
    let leaf = match has_amd {
        true => AMD,
        false if __cpuid(0).eax >= INTEL => INTEL,
        false => return None,
    };
    // No processor lists more than a handful.
    (0..16)
        .map(|i| __cpuid_count(leaf, i))
        .take_while(|cache| cache.eax & 31 != 0)
        .find_map(|cache| of_level(level, [cache.eax, cache.ebx, cache.ecx]))
}

#[cfg(not(target_arch = "x86_64"))]
fn ask(_level: u32) -> Option<(usize, usize)> {
    None
}

/// Return the bytes of a cache that CPUID describes so, and the number of cores that share it, if
/// it is of that level. The two threads of a core count as one.
#[cfg(any(target_arch = "x86_64", test))]
fn of_level(level: u32, [eax, ebx, ecx]: [u32; 3]) -> Option<(usize, usize)> {
    if eax >> 5 & 7 != level {
        return None;
    }
    let parts = [ebx >> 22, ebx >> 12 & 0x3ff, ebx & 0xfff, ecx].map(|less_1| u64::from(less_1) + 1);
    let bytes = parts.iter().try_fold(1_u64, |bytes, part| bytes.checked_mul(*part))?;
    let n_cores = ((eax >> 14 & 0xfff) + 1).div_ceil(2);
    Some((usize::try_from(bytes).ok()?, usize::try_from(n_cores).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_as_the_manuals_say() {
        // Zen 4: 8 ways, lines of 64 bytes, 2,048 sets, shared by two threads.
        let zen4 = [3 | 2 << 5 | 1 << 14, 7 << 22 | 63, 2047];
        assert_eq!(of_level(2, zen4), Some((1 << 20, 1)));
        assert_eq!(of_level(3, zen4), None);
        // Its third cache: 16 ways, 32,768 sets, shared by sixteen threads.
        assert_eq!(of_level(3, [3 | 3 << 5 | 15 << 14, 15 << 22 | 63, 32_767]), Some((32 << 20, 8)));
        // Sapphire Rapids: 16 ways, 2,048 sets. Four small cores that share 4 MiB, 16 ways.
        assert_eq!(of_level(2, [3 | 2 << 5 | 1 << 14, 15 << 22 | 63, 2047]), Some((2 << 20, 1)));
        assert_eq!(of_level(2, [3 | 2 << 5 | 7 << 14, 15 << 22 | 63, 4095]), Some((4 << 20, 4)));
    }

    #[test]
    fn what_is_asked_once_stays() {
        assert_eq!(second_cache(), second_cache());
        assert_eq!(near_third_cache(), near_third_cache());
        assert!(second_cache().is_none_or(|size| size >= 64 << 10));
        assert!(quarters(2) >= 32 << 10);
    }
}
