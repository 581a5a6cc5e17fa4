//! Integers within bounds, as regular expressions.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The largest integer that is written: 16 digits.
const LARGEST: i64 = 9_999_999_999_999_999;

/// Return a regular expression of the integers from `least` to `most`, written without leading
/// zeros; `None` if there is none.
pub(super) fn integers(least: Option<i64>, most: Option<i64>) -> Option<String> {
    let least = least.unwrap_or(-LARGEST).clamp(-LARGEST, LARGEST);
    let most = most.unwrap_or(LARGEST).clamp(-LARGEST, LARGEST);
    let mut parts = Vec::new();
    if least < 0 && least <= most {
        let (from, to) = (if most < 0 { -most } else { 1 }, -least);
        parts.push(format!("-({})", natural(from, to)));
    }
    if most >= 0 && least <= most {
        parts.push(natural(least.max(0), most));
    }
    (!parts.is_empty()).then(|| format!("({})", parts.join("|")))
}

/// Return the expression of the numbers from `from` to `to`, which are not negative.
fn natural(from: i64, to: i64) -> String {
    let (from, to) = (from.to_string(), to.to_string());
    let lengths = from.len()..=to.len();
    let of_length = lengths.map(|n| {
        let first = if n == from.len() { from.clone() } else { format!("1{}", "0".repeat(n - 1)) };
        let last = if n == to.len() { to.clone() } else { "9".repeat(n) };
        between(first.as_bytes(), last.as_bytes())
    });
    of_length.collect::<Vec<_>>().join("|")
}

/// Return the expression of the texts of digits from `from` to `to`, which are equally long.
fn between(from: &[u8], to: &[u8]) -> String {
    let (Some((&low, below)), Some((&high, above))) = (from.split_first(), to.split_first()) else {
        return String::new();
    };
    let digit = |digit: u8| char::from(digit);
    if low == high {
        return format!("{}{}", digit(low), grouped(between(below, above)));
    }
    let rest = below.len();
    let (zeros, nines) = ("0".repeat(rest), "9".repeat(rest));
    let mut parts = Vec::new();
    let (mut first, mut last) = (low, high);
    if below != zeros.as_bytes() {
        parts.push(format!("{}{}", digit(low), grouped(between(below, nines.as_bytes()))));
        first += 1;
    }
    if above != nines.as_bytes() {
        last -= 1;
    }
    if first <= last {
        parts.push(format!("[{}-{}][0-9]{{{rest}}}", digit(first), digit(last)));
    }
    if above != nines.as_bytes() {
        parts.push(format!("{}{}", digit(high), grouped(between(zeros.as_bytes(), above))));
    }
    parts.join("|")
}

/// Return an expression as one part.
fn grouped(expression: String) -> String {
    if expression.contains('|') { format!("({expression})") } else { expression }
}

#[cfg(all(test, feature = "grammar"))]
mod tests {
    use super::*;
    use regex_automata::meta::Regex;

    #[test]
    fn bounds_hold_for_every_integer() {
        let bounds = [
            None,
            Some(-120),
            Some(-10),
            Some(-9),
            Some(-1),
            Some(0),
            Some(1),
            Some(9),
            Some(10),
            Some(99),
            Some(105),
        ];
        for least in bounds {
            for most in bounds {
                let found = integers(least, most);
                let is_empty = matches!((least, most), (Some(least), Some(most)) if least > most);
                assert_eq!(found.is_none(), is_empty, "{least:?} {most:?}");
                let Some(found) = found else { continue };
                let regex = Regex::new(&format!("^{found}$")).unwrap();
                for n in -1100..1100_i64 {
                    let is_within = least.is_none_or(|least| n >= least) && most.is_none_or(|most| n <= most);
                    assert_eq!(
                        regex.is_match(&n.to_string()),
                        is_within,
                        "{n} in {least:?} {most:?}: {found}"
                    );
                }
                assert!(!regex.is_match("007") && !regex.is_match("-0"));
            }
        }
    }
}
