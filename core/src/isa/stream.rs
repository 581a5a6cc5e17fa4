//! The choice between prefetch instructions and the processor's own prefetcher, for weights that
//! one token passes.
//!
//! One token reads each weight once, so its time is that of the memory. Most processors reach the
//! full rate only if the kernel names the lines early; on some the prefetcher alone does as well,
//! and prefetch instructions take slots from the loads.

use core::sync::atomic::{AtomicU8, Ordering};

/// Return true if this processor follows one stream of memory by itself as fast as it can be read.
///
/// Measured: Zen 4 does, Zen 3 and Zen 5 do not. On all others weights are prefetched. Types that
/// gain on Zen 4 too say so (`Format::ALWAYS_PREFETCHED`).
pub(crate) fn follows_alone() -> bool {
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    let mut known = KNOWN.load(Ordering::Relaxed);
    if known == 0 {
        known = if ask() { YES } else { NO };
        KNOWN.store(known, Ordering::Relaxed);
    }
    known == YES
}

#[cfg(target_arch = "x86_64")]
fn ask() -> bool {
    use core::arch::x86_64::__cpuid;
    let (vendor, version) = (__cpuid(0), __cpuid(1));
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    vendor.as_flattened() == b"AuthenticAMD" && is_zen4(version.eax)
}

#[cfg(not(target_arch = "x86_64"))]
fn ask() -> bool {
    false
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
