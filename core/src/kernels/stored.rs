//! Element types of the cache as kernels see them: sixteen at a time.

use super::map::padded;
use crate::isa::{LANES, Simd};

/// A type that keys and values are stored in.
pub(crate) trait Stored {
    /// The bits in memory.
    type Bits: bytemuck::Pod;

    /// Return sixteen elements as floats.
    fn load<S: Simd>(s: S, x: &[Self::Bits; LANES]) -> S::F;

    /// Round sixteen floats to elements.
    fn store<S: Simd>(s: S, x: S::F, out: &mut [Self::Bits; LANES]);

    /// Return at most sixteen elements as floats, with zeros behind them.
    #[inline(always)]
    fn load_part<S: Simd>(s: S, x: &[Self::Bits]) -> S::F {
        if let Some(x) = x.first_chunk() {
            return Self::load(s, x);
        }
        let mut lanes = [bytemuck::Zeroable::zeroed(); LANES];
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane = *x);
        Self::load(s, &lanes)
    }

    /// Round `x` into `out`, up to the end of the shorter.
    #[inline(always)]
    fn convert<S: Simd>(s: S, x: &[f32], out: &mut [Self::Bits]) {
        let n = x.len().min(out.len());
        let (x, out) = (&x[..n], &mut out[..n]);
        let (body, tail) = out.as_chunks_mut::<LANES>();
        let mut x = x.chunks(LANES);
        for (out, x) in body.iter_mut().zip(&mut x) {
            Self::store(s, super::map::load(s, x), out);
        }
        if let Some(x) = x.next() {
            let mut lanes = [bytemuck::Zeroable::zeroed(); LANES];
            Self::store(s, s.load(&padded(x, 0.0)), &mut lanes);
            tail.iter_mut().zip(lanes).for_each(|(out, lane)| *out = lane);
        }
    }
}

/// Return the elements of a part of a block; none of a block that no row sees.
#[inline(always)]
pub(crate) fn elements<E: Stored>(part: &[u8]) -> &[E::Bits] {
    let elements = bytemuck::try_cast_slice(part);
    // An empty slice may have any address.
    debug_assert!(part.is_empty() || elements.is_ok(), "parts of blocks are aligned and whole");
    // A fallback and no panic: the loops that follow stay free of unwinding and are unrolled.
    elements.unwrap_or(&[])
}

/// IEEE single precision.
pub(crate) struct F32;
/// IEEE half precision.
pub(crate) struct F16;
/// The upper half of single precision.
pub(crate) struct BF16;

impl Stored for F32 {
    type Bits = f32;
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[f32; LANES]) -> S::F {
        s.load(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, x: S::F, out: &mut [f32; LANES]) {
        s.store(x, out);
    }
}

impl Stored for F16 {
    type Bits = u16;
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[u16; LANES]) -> S::F {
        s.load_f16(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, x: S::F, out: &mut [u16; LANES]) {
        s.store_f16(x, out);
    }
}

impl Stored for BF16 {
    type Bits = u16;
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[u16; LANES]) -> S::F {
        s.load_bf16(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, x: S::F, out: &mut [u16; LANES]) {
        s.store_bf16(x, out);
    }
}

/// Set `out[i]` to the bits of `x[i]` rounded to half precision, to nearest even, up to the end of
/// the shorter.
#[inline(always)]
pub(crate) fn encode_f16<S: Simd>(s: S, x: &[f32], out: &mut [u16]) {
    F16::convert(s, x, out);
}

/// Set `out[i]` to the bits of `x[i]` rounded to bfloat16, to nearest even, up to the end of the
/// shorter.
#[inline(always)]
pub(crate) fn encode_bf16<S: Simd>(s: S, x: &[f32], out: &mut [u16]) {
    BF16::convert(s, x, out);
}
