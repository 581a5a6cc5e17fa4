//! The name of a processor's maker.

/// The makers that this crate tells apart where it chooses by measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other architecture is asked"))]
pub(crate) enum Vendor {
    Intel,
    Amd,
    Other,
}

/// Ask the processor for its maker. Slow in a virtual machine: callers keep what follows from it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn vendor() -> Vendor {
    let leaf = core::arch::x86_64::__cpuid(0);
    match [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() {
        b"GenuineIntel" => Vendor::Intel,
        b"AuthenticAMD" => Vendor::Amd,
        _ => Vendor::Other,
    }
}

/// No other architecture is asked.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn vendor() -> Vendor {
    Vendor::Other
}
