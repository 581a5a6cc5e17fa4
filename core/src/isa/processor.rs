//! The processor at hand, as far as choices by measurement depend on it.

/// Processors, as far as measurements tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other architecture is asked"))]
pub(crate) enum Processor {
    /// All of Intel; Sapphire Rapids was measured.
    Intel = 1,
    Zen4,
    /// The others of AMD; Zen 3 and Zen 5 were measured in part.
    Amd,
    Other,
}

impl Processor {
    /// Return the processor that this code runs on.
    #[inline(always)]
    pub(crate) fn here() -> Processor {
        #[cfg(target_arch = "x86_64")]
        return known();
        // A constant: kernels have no loops for the others then.
        #[cfg(not(target_arch = "x86_64"))]
        Processor::Other
    }
}

/// Return the processor, asking it the first time, which is slow in a virtual machine.
#[cfg(target_arch = "x86_64")]
fn known() -> Processor {
    use core::sync::atomic::{AtomicU8, Ordering};
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        1 => Processor::Intel,
        2 => Processor::Zen4,
        3 => Processor::Amd,
        4 => Processor::Other,
        _ => {
            let found = ask();
            KNOWN.store(found as u8, Ordering::Relaxed);
            found
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn ask() -> Processor {
    use core::arch::x86_64::__cpuid;
    let leaf = __cpuid(0);
    match [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() {
        b"GenuineIntel" => Processor::Intel,
        b"AuthenticAMD" if is_zen4(__cpuid(1).eax) => Processor::Zen4,
        b"AuthenticAMD" => Processor::Amd,
        _ => Processor::Other,
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
