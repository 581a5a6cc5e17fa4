//! Parsers of sizes and ages as people write them: "4G", "30d".

use std::time::Duration;

/// Parse a number of bytes: "500M", "4G", or a plain number. The units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
    number(text, &units).ok_or_else(|| "wanted a number of bytes, or one with K, M, G or T, like 4G".into())
}

/// Parse a span of time: "90s", "12h", "30d". The unit is required.
pub fn age(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let has_unit = text.ends_with(|c: char| !c.is_ascii_digit());
    let seconds = number(text, &units).filter(|_| has_unit);
    seconds.map(Duration::from_secs).ok_or_else(|| "wanted a number with s, m, h, d or w, like 30d".into())
}

/// Parse a whole number with one of the units, or none. Signs, spaces, fractions and results beyond
/// 64 bits are refused.
fn number(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit = units.iter().find(|(letter, _)| text.ends_with(letter));
    let (digits, factor) = match unit {
        Some((letter, factor)) => (text.strip_suffix(letter)?, *factor),
        None => (text, 1),
    };
    let is_digits = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_digits)?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_letter() {
        assert_eq!(size("500"), Ok(500));
        assert_eq!(size("3K"), Ok(3072));
        assert_eq!(size("4G"), Ok(4 << 30));
        for wrong in ["", "G", "-1", "+1", "1.5G", "4GB", "4 G", "18446744073709551615K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(age("2d"), Ok(Duration::from_secs(172_800)));
        for wrong in ["", "d", "30", "1.5h", "1y"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
