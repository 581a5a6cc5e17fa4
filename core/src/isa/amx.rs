//! AMX with 8-bit integers: a product of sixteen tokens and sixteen outputs in one instruction.
//!
//! Stable Rust has no intrinsics for tiles, so the instructions are written out. A [`Tiles`] is the
//! proof that this thread may use them: [`Tiles::configure`] returns one only where the processor
//! has them and the operating system lets this process keep their state, which has to be asked for
//! once.
//!
//! # One product
//! Four tiles hold the integer sums of 32 tokens and 32 outputs; so many, because tokens and
//! weights are then loaded once for two. Vectors reach the sums of a block through memory alone,
//! and turn them to floats there ([`turn`]).
//!
//! # Tiles
//! | tile | content | rows x bytes |
//! |---|---|---|
//! | 0, 1 | sums of the first sixteen tokens with the first and the second panel | 16 x 64 |
//! | 2, 3 | sums of the other sixteen tokens | 16 x 64 |
//! | 4, 5 | the first and the other sixteen tokens, 32 columns | 16 x 32 |
//! | 6, 7 | the first and the second panel, 32 columns | 8 x 64 |

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use super::LANES;
use crate::block::activations::QBlock;
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, Ordering};

/// Tokens of a tile.
pub(crate) const TOKENS: usize = 16;

/// Sixteen rows of weights, 32 columns: what a block of any format is unpacked to.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Block {
    /// Four columns of each row a line.
    pub q: [[u8; 64]; 8],
    /// The scale of each row.
    pub scales: [f32; LANES],
    /// The minimum of each row, for formats that have one.
    pub mins: [f32; LANES],
}

impl Block {
    /// A block of zeros.
    pub(crate) const ZERO: Self = Self { q: [[0; 64]; 8], scales: [0.0; LANES], mins: [0.0; LANES] };
}

/// The accumulators of sixteen tokens and sixteen outputs.
pub(crate) type Sums = [[f32; LANES]; TOKENS];

/// The process's permission to use tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// The processor has none, or this crate does not know how to ask the operating system.
    Absent,
    /// The operating system keeps them from this process.
    Refused,
    /// The process may use them.
    Granted,
}

impl Permission {
    fn of(processor_has_tiles: bool, permitted: impl FnOnce() -> bool) -> Self {
        match processor_has_tiles {
            false => Self::Absent,
            true if permitted() => Self::Granted,
            true => Self::Refused,
        }
    }
}

/// Return the permission of this process: asked once, then remembered.
pub(crate) fn permission() -> Permission {
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const ABSENT: u8 = 1;
    const REFUSED: u8 = 2;
    const GRANTED: u8 = 3;
    match KNOWN.load(Ordering::Relaxed) {
        ABSENT => Permission::Absent,
        REFUSED => Permission::Refused,
        GRANTED => Permission::Granted,
        _ => {
            let permission = Permission::of(cfg!(target_os = "linux") && processor_has_tiles(), permitted);
            let known = match permission {
                Permission::Absent => ABSENT,
                Permission::Refused => REFUSED,
                Permission::Granted => GRANTED,
            };
            KNOWN.store(known, Ordering::Relaxed);
            permission
        }
    }
}

/// Return true if there are AMX-TILE, AMX-INT8 and AVX-512 F, with an operating system that saves
/// the registers of all.
fn processor_has_tiles() -> bool {
    const TILES: u32 = 1 << 24 | 1 << 25;
    const AVX512F: u32 = 1 << 16;
    const OSXSAVE: u32 = 1 << 27;
    const STATE: u32 = 0b111 << 5 | 0b11 << 1 | 0b11 << 17;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let features = __cpuid_count(7, 0);
    if features.edx & TILES != TILES || features.ebx & AVX512F == 0 {
        return false;
    }
    let (saved, _high): (u32, u32);
    // SAFETY: reading XCR0 is allowed where OSXSAVE is set.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _high, options(nomem, nostack)) };
    saved & STATE == STATE
}

/// Ask the kernel for room for the tiles' state; return true if it grants it.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: isize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let result: isize;
    // SAFETY: the call changes what this process may use and touches no memory of ours; the kernel
    // overwrites rcx and r11.
    unsafe {
        asm!("syscall", inout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

/// Return false: this crate does not know how other systems are asked.
#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// The operand of `ldtilecfg`: the shape of each tile.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles 0 to 3 hold sums, 4 and 5 tokens, 6 and 7 weights.
static SHAPES: Shapes = Shapes {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 32, 32, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// This thread's tiles, ready for use; dropping it empties them, so that the operating system need
/// not save them.
pub(crate) struct Tiles {
    buffer: Buffer,
    /// Tiles belong to a thread.
    thread: PhantomData<*mut ()>,
}

/// The sums of four tiles after each of two blocks, twice: one half is written while the other is
/// read.
#[repr(C, align(64))]
struct Buffer([[[Sums; 4]; 2]; 2]);

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: this thread configured its tiles; nothing uses them without a `Tiles`.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// A product of 32 tokens and 32 outputs.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// Two panels, of equally many blocks.
    pub w: [&'a [Block]; 2],
    /// Two times sixteen tokens: those of one block lie side by side.
    pub x: [&'a [QBlock]; 2],
    /// Blocks between a block of a token and its next.
    pub strides: [usize; 2],
    /// True if blocks have minima.
    pub minima: bool,
}

impl Tiles {
    /// Configure this thread's tiles; none if the process may not use them.
    pub(crate) fn configure() -> Option<Self> {
        if permission() != Permission::Granted {
            return None;
        }
        // SAFETY: the processor has tiles and the process may use them; `SHAPES` is a valid
        // configuration.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, preserves_flags, readonly))
        };
        Some(Self { buffer: Buffer([[[[[0.0; LANES]; TOKENS]; 4]; 2]; 2]), thread: PhantomData })
    }

    /// Configure the tiles anew, as large as they can be and full of zeros.
    fn fill(&mut self) {
        // SAFETY: `self` shows that the processor has tiles and the process may use them; `FULL` is
        // a valid configuration, and loading one sets all tiles to zero.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const FULL, options(nostack, preserves_flags, readonly))
        };
    }
}

/// Eight tiles as large as they can be.
static FULL: Shapes = Shapes {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Multiply full tiles of zeros `n_rounds` times: the limit of this processor's products. Return
/// the number of multiplications and additions; none if the process may not use tiles.
pub(crate) fn multiply_in_tiles(n_rounds: usize) -> Option<u64> {
    let mut tiles = Tiles::configure()?;
    tiles.fill();
    for _ in 0..n_rounds {
        // SAFETY: `fill` configured eight full tiles; the instructions change four of them and
        // nothing else.
        unsafe {
            asm!(
                "tdpbssd tmm0, tmm4, tmm6",
                "tdpbssd tmm1, tmm4, tmm7",
                "tdpbssd tmm2, tmm5, tmm6",
                "tdpbssd tmm3, tmm5, tmm7",
                options(nomem, nostack, preserves_flags)
            );
        }
    }
    Some(2 * (4 * TOKENS * LANES * 64 * n_rounds) as u64)
}

#[cfg(test)]
mod tests;
mod turn;
