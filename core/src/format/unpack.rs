//! Elements of a panel as vectors of bytes, the operands of the integer kernels.
//!
//! A kernel takes 32 columns of sixteen rows as eight vectors of 64 bytes: vector `g` holds the
//! four columns from `4g` of every row. The functions here take planes apart into these vectors.
//! `TO` shifts the elements up inside their bytes, for formats whose bytes are filled from the top
//! (see [`Format::SHIFT`](super::Format::SHIFT)).

use super::planes::{Fours, Ones, Twos};
use crate::isa::Simd;

/// Return elements of four bits, shifted up by `TO`.
#[inline(always)]
pub(super) fn fours<S: Simd, const TO: i32>(s: S, [a, b, c, d]: &Fours) -> [S::B; 8] {
    let (a, b, c, d) = (s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d));
    let (low, high, mask) = (-TO, 4 - TO, 15 << TO);
    [
        s.field(a, low, mask),
        s.field(b, low, mask),
        s.field(c, low, mask),
        s.field(d, low, mask),
        s.field(a, high, mask),
        s.field(b, high, mask),
        s.field(c, high, mask),
        s.field(d, high, mask),
    ]
}

/// Return elements of two bits, shifted up by `TO`.
#[inline(always)]
pub(super) fn twos<S: Simd, const TO: i32>(s: S, [a, b]: &Twos) -> [S::B; 8] {
    let (a, b, mask) = (s.bytes(a), s.bytes(b), 3 << TO);
    [
        s.field(a, -TO, mask),
        s.field(b, -TO, mask),
        s.field(a, 2 - TO, mask),
        s.field(b, 2 - TO, mask),
        s.field(a, 4 - TO, mask),
        s.field(b, 4 - TO, mask),
        s.field(a, 6 - TO, mask),
        s.field(b, 6 - TO, mask),
    ]
}

/// Return elements of one bit, shifted up by `TO`.
#[inline(always)]
pub(super) fn ones<S: Simd, const TO: i32>(s: S, [x]: &Ones) -> [S::B; 8] {
    let (x, mask) = (s.bytes(x), 1 << TO);
    [
        s.field(x, -TO, mask),
        s.field(x, 1 - TO, mask),
        s.field(x, 2 - TO, mask),
        s.field(x, 3 - TO, mask),
        s.field(x, 4 - TO, mask),
        s.field(x, 5 - TO, mask),
        s.field(x, 6 - TO, mask),
        s.field(x, 7 - TO, mask),
    ]
}

/// Join the lower bits `x` of all elements with their upper bits `y`.
#[inline(always)]
pub(super) fn join<S: Simd>(s: S, x: [S::B; 8], y: [S::B; 8]) -> [S::B; 8] {
    let [a, b, c, d, e, f, g, h] = x;
    [
        s.or(a, y[0]),
        s.or(b, y[1]),
        s.or(c, y[2]),
        s.or(d, y[3]),
        s.or(e, y[4]),
        s.or(f, y[5]),
        s.or(g, y[6]),
        s.or(h, y[7]),
    ]
}

/// Return the entries of `table` that the nibbles choose.
#[inline(always)]
pub(super) fn look_up<S: Simd>(s: S, table: &[u8; 16], quants: &Fours) -> [S::B; 8] {
    choose(s, table, fours::<S, 0>(s, quants))
}

/// Return the entries of `table` that bytes below 16 choose.
#[inline(always)]
pub(super) fn choose<S: Simd>(s: S, table: &[u8; 16], codes: [S::B; 8]) -> [S::B; 8] {
    let [a, b, c, d, e, f, g, h] = codes;
    [
        s.look_up(table, a),
        s.look_up(table, b),
        s.look_up(table, c),
        s.look_up(table, d),
        s.look_up(table, e),
        s.look_up(table, f),
        s.look_up(table, g),
        s.look_up(table, h),
    ]
}

/// Return a table of values plus 128, as unsigned bytes.
pub(super) const fn biased(values: &[i8; 16]) -> [u8; 16] {
    let (mut table, mut i) = ([0; 16], 0);
    while i < 16 {
        table[i] = values[i] as u8 ^ 0x80;
        i += 1;
    }
    table
}
