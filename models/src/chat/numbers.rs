//! Numbers as Python writes and reads them.
//!
//! Templates print numbers, and models were trained on Python's output, so the shortest digits that
//! read back as the same float are written in Python's notation: `1e+16`, not `1e16`.

use alloc::format;
use alloc::string::String;

use super::lexer::is_space;

/// Return the shortest text that reads back as `x`.
pub(super) fn repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let (digits, exponent) = scientific(&format!("{x:e}"));
    if (-4..16).contains(&exponent) || x == 0.0 {
        return format!("{x:?}");
    }
    with_exponent(&digits, exponent)
}

/// Split `text`, a finite number in Rust's notation with an exponent, into its digits and the
/// exponent: `1.5e3` into `1.5` and 3.
pub(super) fn scientific(text: &str) -> (String, i32) {
    let parts = text.split_once('e').and_then(|(digits, power)| Some((digits, power.parse().ok()?)));
    debug_assert!(parts.is_some(), "{text} has an exponent");
    let (digits, exponent) = parts.unwrap_or((text, 0));
    (digits.into(), exponent)
}

/// Return a number with an exponent in Python's notation: `1e+05`.
pub(super) fn with_exponent(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// Parse an integer as Python's `int(text, base)` does: with white space around it, a sign, a
/// prefix of the base, and single underscores between digits.
pub(super) fn parse_int(text: &str, base: u32) -> Option<i64> {
    let text = text.trim_matches(is_space);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let prefix = match base {
        2 => ["0b", "0B"],
        8 => ["0o", "0O"],
        16 => ["0x", "0X"],
        _ => ["", ""],
    };
    let digits = digits.strip_prefix(prefix[0]).or_else(|| digits.strip_prefix(prefix[1])).unwrap_or(digits);
    let separated = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if separated || digits.starts_with(['+', '-']) || !(2..=36).contains(&base) {
        return None;
    }
    let digits: String = sign.chars().chain(digits.chars().filter(|c| *c != '_')).collect();
    i64::from_str_radix(&digits, base).ok()
}

/// Parse a float as Python's `float(text)` does: with white space around it, and single underscores
/// between digits.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let separated = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    if separated { None } else { plain.parse().ok() }
}

/// Round `x` to `digits` behind the point, halves to even, as Python's `round` does.
pub(super) fn round(x: f64, digits: i64) -> f64 {
    if !x.is_finite() || digits > 300 {
        return x;
    }
    if digits >= 0 {
        return format!("{x:.*}", digits as usize).parse().unwrap_or(x);
    }
    let scale = libm::pow(10.0, -digits.max(-400) as f64);
    if scale.is_finite() { libm::rint(x / scale) * scale } else { 0.0 }
}

/// Return the integer part of `x`, if it fits 64 bits.
pub(super) fn truncated(x: f64) -> Option<i64> {
    (x.is_finite() && libm::fabs(x) < 9.2e18).then_some(x as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123456789.125, "123456789.125"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (x, wanted) in cases {
            assert_eq!(repr(x), wanted);
        }
    }

    #[test]
    fn texts_are_read_as_python_does() {
        assert_eq!(parse_int(" -1_000\n", 10), Some(-1000));
        assert_eq!(parse_int("0x1F", 16), Some(31));
        for wrong in ["", "1__0", "_1", "--1", "1.5", "99999999999999999999"] {
            assert_eq!(parse_int(wrong, 10), None, "{wrong}");
        }
        assert_eq!(parse_float(" 1e3 "), Some(1000.0));
        assert_eq!((round(2.5, 0), round(2.675, 2), round(1234.0, -2)), (2.0, 2.67, 1200.0));
    }
}
