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
//! and turn them to floats there.
//!
//! That would cost a conversion, and while tiles are at work the processor multiplies and converts
//! with one of its two vector units but adds with both. So a tile starts not from zero but from the
//! bits of the float 3 * 2^22: integers below 2^22 added to those bits are that float plus the
//! integer, and one exact subtraction leaves the sum. Two blocks are added to a tile before it
//! starts anew; the sums of the second are the difference of the values stored after each.
//!
//! While the tiles multiply two blocks, the vectors scale and add the sums of the two blocks
//! before.
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
use core::arch::x86_64::{
    __cpuid, __cpuid_count, __m512, _MM_HINT_T0, _mm_prefetch, _mm512_loadu_ps, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_storeu_ps,
};
use core::marker::PhantomData;
use core::mem::offset_of;
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

/// The sums of two blocks in four tiles, where vectors read them.
#[repr(C, align(64))]
struct Buffer([[Sums; 4]; 2]);

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: this thread configured its tiles; nothing uses them without a `Tiles`.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// 3 * 2^22, to which an integer below 2^22 can be added as an integer or as a float.
const BIAS: f32 = 12_582_912.0;

/// The start of every row of sums.
#[repr(C, align(64))]
struct Start([u32; LANES]);

static START: Start = Start([BIAS.to_bits(); LANES]);

/// Load tile `tile` from rows `stride` bytes apart.
macro_rules! load {
    ($tile:literal, $from:expr, $stride:expr) => {
        asm!(
            concat!("tileloadd tmm", $tile, ", [{from} + {stride}]"),
            from = in(reg) $from, stride = in(reg) $stride,
            options(nostack, preserves_flags, readonly)
        )
    };
}

/// Go on with the sums of tile `c`: store those of the block before, if there is one, start anew if
/// this is the first of two, and add the products of tokens `a` with weights `b`, if there are any.
macro_rules! step {
    ($c:literal, $a:literal, $b:literal, $turn:expr, $stored:expr) => {{
        if $turn.stores {
            asm!(
                concat!("tilestored [{out} + {stride}], tmm", $c),
                out = in(reg) $stored, stride = in(reg) 64usize,
                options(nostack, preserves_flags)
            );
        }
        if $turn.starts {
            load!($c, START.0.as_ptr(), 0usize);
        }
        if $turn.multiplies {
            asm!(
                concat!("tdpbssd tmm", $c, ", tmm", $a, ", tmm", $b),
                options(nomem, nostack, preserves_flags)
            );
        }
    }};
}

/// The instructions that bring one token's sums of a block to its accumulator: of the first of two
/// blocks or of the second, of a format without minima or with.
macro_rules! token {
    (plain first $i:literal) => {
        concat!("vaddps zmm17, zmm20, [{sums} + 64*", $i, "]\n", token!($i))
    };
    (plain second $i:literal) => {
        concat!(
            "vmovaps zmm17, [{sums} + 64*", $i, "]\n",
            "vsubps zmm17, zmm17, [{before} + 64*", $i, "]\n",
            token!($i)
        )
    };
    (minimum $which:ident $i:literal) => {
        concat!(
            token!(plain $which $i),
            "vfmadd231ps zmm", $i, ", zmm19, dword ptr [{x} + {size}*", $i, " + {sum}]{{1to16}}\n"
        )
    };
    ($i:literal) => {
        concat!(
            "vmulps zmm18, zmm16, dword ptr [{x} + {size}*", $i, " + {d}]{{1to16}}\n",
            "vfmadd231ps zmm", $i, ", zmm17, zmm18\n"
        )
    };
}

/// Compute `acc = fma(sum, scale * d, acc)` for each token, and for formats with a minimum `acc =
/// fma(min, sum of x, acc)`.
macro_rules! accumulate {
    ($kind:ident $which:ident, $acc:ident, $sums:expr, $before:expr, $x:expr, $w:expr) => {
        asm!(
            "vmovaps zmm16, [{w} + {scales}]",
            "vmovaps zmm19, [{w} + {mins}]",
            token!($kind $which 0),
            token!($kind $which 1),
            token!($kind $which 2),
            token!($kind $which 3),
            token!($kind $which 4),
            token!($kind $which 5),
            token!($kind $which 6),
            token!($kind $which 7),
            token!($kind $which 8),
            token!($kind $which 9),
            token!($kind $which 10),
            token!($kind $which 11),
            token!($kind $which 12),
            token!($kind $which 13),
            token!($kind $which 14),
            token!($kind $which 15),
            "/* {before} {sum} */",
            sums = in(reg) $sums, before = in(reg) $before, x = in(reg) $x, w = in(reg) $w,
            size = const size_of::<QBlock>(), d = const offset_of!(QBlock, d), sum = const offset_of!(QBlock, sum),
            scales = const offset_of!(Block, scales), mins = const offset_of!(Block, mins),
            inout("zmm0") $acc[0],
            inout("zmm1") $acc[1],
            inout("zmm2") $acc[2],
            inout("zmm3") $acc[3],
            inout("zmm4") $acc[4],
            inout("zmm5") $acc[5],
            inout("zmm6") $acc[6],
            inout("zmm7") $acc[7],
            inout("zmm8") $acc[8],
            inout("zmm9") $acc[9],
            inout("zmm10") $acc[10],
            inout("zmm11") $acc[11],
            inout("zmm12") $acc[12],
            inout("zmm13") $acc[13],
            inout("zmm14") $acc[14],
            inout("zmm15") $acc[15],
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            in("zmm20") _mm512_set1_ps(-BIAS),
            options(nostack, readonly)
        )
    };
}

/// Blocks from the tokens that are multiplied to those that are fetched from the second cache.
const AHEAD: usize = 3;

/// The steps of a turn, for each tile.
#[derive(Clone, Copy)]
struct Turn {
    /// Stores the sums of the block before.
    stores: bool,
    /// Starts the sums anew.
    starts: bool,
    /// Multiplies a block.
    multiplies: bool,
}

impl Turn {
    /// Return the steps in the turn of block `block` of `n`.
    fn new(block: usize, n: usize) -> Self {
        let multiplies = block < n;
        Self { stores: 0 < block && block <= n, starts: multiplies && block.is_multiple_of(2), multiplies }
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
        Some(Self { buffer: Buffer([[[[0.0; LANES]; TOKENS]; 4]; 2]), thread: PhantomData })
    }

    /// Configure the tiles anew, as large as they can be and full of zeros.
    fn fill(&mut self) {
        // SAFETY: `self` shows that the processor has tiles and the process may use them; `FULL` is
        // a valid configuration, and loading one sets all tiles to zero.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const FULL, options(nostack, preserves_flags, readonly))
        };
    }

    /// Add a product to `sums`, block by block: those of the first tokens with both panels, then
    /// those of the others.
    pub(crate) fn multiply(&mut self, product: Product<'_>, sums: &mut [Sums; 4]) {
        // SAFETY: a `Tiles` is made only where `available` has found AVX-512 F.
        unsafe {
            if product.minima {
                self.blocks::<true>(product, sums);
            } else {
                self.blocks::<false>(product, sums);
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn blocks<const MINIMA: bool>(&mut self, product: Product<'_>, sums: &mut [Sums; 4]) {
        let n = product.w[0].len().min(product.w[1].len());
        for first in (0..n + 2).step_by(2) {
            let [a, b, c, d] = &mut *sums;
            self.unit::<MINIMA, 0>(&product, first, n, a);
            self.unit::<MINIMA, 1>(&product, first, n, b);
            self.unit::<MINIMA, 2>(&product, first, n, c);
            self.unit::<MINIMA, 3>(&product, first, n, d);
        }
    }

    /// Add the two blocks before `first` to the sums of tile `UNIT`, between a quarter of the turns
    /// of the tiles.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn unit<const MINIMA: bool, const UNIT: usize>(
        &mut self,
        product: &Product<'_>,
        first: usize,
        n: usize,
        sums: &mut Sums,
    ) {
        let mut acc = [_mm512_setzero_ps(); TOKENS];
        for (acc, sums) in acc.iter_mut().zip(&*sums) {
            // SAFETY: a row is sixteen floats; the load asks for no alignment.
            *acc = unsafe { _mm512_loadu_ps(sums.as_ptr()) };
        }
        let (turn, i) = (UNIT / 2, UNIT % 2 * 2);
        let (w, x, stride) = (product.w[UNIT % 2], product.x[UNIT / 2], product.strides[UNIT / 2]);
        if let Some(block) = first.checked_sub(2).filter(|block| *block < n) {
            self.add::<MINIMA, false>(UNIT, &w[block], &x[block * stride..], &mut acc);
        }
        self.step(i, first + turn, n, product);
        if let Some(block) = first.checked_sub(1).filter(|block| *block < n) {
            self.add::<MINIMA, true>(UNIT, &w[block], &x[block * stride..], &mut acc);
        }
        self.step(i + 1, first + turn, n, product);
        for (acc, sums) in acc.iter().zip(sums) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), *acc) };
        }
    }

    /// Add the sums that tile `unit` has stored of one block to sixteen accumulators.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add<const MINIMA: bool, const SECOND: bool>(
        &self,
        unit: usize,
        w: &Block,
        x: &[QBlock],
        acc: &mut [__m512; TOKENS],
    ) {
        let [first, second] = &self.buffer.0;
        let (first, second, x) = (&raw const first[unit], &raw const second[unit], x[..TOKENS].as_ptr());
        // SAFETY: the instructions read what the operands point to: sixteen rows of sums, aligned
        // to a line, sixteen tokens, and a block's scales and minima. They write the registers
        // named and the exception flags of MXCSR, and nothing else.
        unsafe {
            match (MINIMA, SECOND) {
                (false, false) => accumulate!(plain first, acc, first, first, x, w),
                (false, true) => accumulate!(plain second, acc, second, first, x, w),
                (true, false) => accumulate!(minimum first, acc, first, first, x, w),
                (true, true) => accumulate!(minimum second, acc, second, first, x, w),
            }
        }
    }

    /// Do the steps of tile `tile` in the turn of block `block` of `n`; the first tile's turn loads
    /// tokens and weights.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn step(&mut self, tile: usize, block: usize, n: usize, product: &Product<'_>) {
        let turn = Turn::new(block, n);
        if tile == 0 && turn.multiplies {
            let tokens = [0, 1].map(|i| &raw const product.x[i][block * product.strides[i]..][..TOKENS][0].q);
            let weights = product.w.map(|w| &raw const w[block].q);
            // SAFETY: the tiles are configured, as `self` shows. A tile of tokens has sixteen rows
            // of 32 bytes a `QBlock` apart, one of weights eight of 64.
            unsafe {
                load!(4, tokens[0], size_of::<QBlock>());
                load!(6, weights[0], 64usize);
                load!(7, weights[1], 64usize);
                load!(5, tokens[1], size_of::<QBlock>());
            }
            for (tokens, stride) in tokens.iter().zip(product.strides) {
                let ahead = tokens.cast::<i8>().wrapping_add(AHEAD * stride * size_of::<QBlock>());
                for line in 0..TOKENS * size_of::<QBlock>() / 64 {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line));
                }
            }
        }
        let stored = self.buffer.0[1 - block % 2][tile].as_mut_ptr();
        // SAFETY: the tiles are configured; stored are sixteen rows of 64 bytes.
        unsafe {
            match tile {
                0 => step!(0, 4, 6, turn, stored),
                1 => step!(1, 4, 7, turn, stored),
                2 => step!(2, 5, 6, turn, stored),
                _ => step!(3, 5, 7, turn, stored),
            }
        }
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
