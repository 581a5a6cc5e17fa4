//! Parsers of single numbers. Each returns a number that the commands need not check again, or an
//! error that says what was wanted; clap adds the option and the value that was found.

/// Parse a number of threads or tokens. llama.cpp takes every negative number as "all" or "off";
/// that is 0 here. A number beyond 32 bits becomes the largest one.
pub fn count(text: &str) -> Result<u32, String> {
    let n: i64 = text.parse().map_err(|_| "wanted a whole number".to_owned())?;
    Ok(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

/// Parse a float for which `fits` is true.
fn number(text: &str, fits: fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(x) if fits(x) => Ok(x),
        _ => Err(format!("wanted {wanted}")),
    }
}

/// Parse a finite number.
pub fn finite(text: &str) -> Result<f32, String> {
    number(text, f32::is_finite, "a number")
}

/// Parse a finite number that is not negative.
pub fn at_least_zero(text: &str) -> Result<f32, String> {
    number(text, |x| x.is_finite() && x >= 0.0, "a number, zero or above")
}

/// Parse a finite number above zero.
pub fn above_zero(text: &str) -> Result<f32, String> {
    number(text, |x| x.is_finite() && x > 0.0, "a number above zero")
}

/// Parse a number from 0 to 1.
pub fn probability(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "a number from 0 to 1")
}

/// Parse a number from 0 to 0.99.
pub fn decay(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=0.99).contains(&x), "a number from 0 to 0.99")
}

/// Parse a logit bias, a token's number and what to add: `15043+1`, `15043-1.5`, `2-inf`.
pub fn bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = || {
        let (token, amount) = text.split_at(text.find(['+', '-'])?);
        let amount: f32 = amount.parse().ok()?;
        Some((token.parse().ok()?, amount)).filter(|_| !amount.is_nan())
    };
    parsed().ok_or_else(|| "wanted the number of a token, + or -, and a number, like 15043-1.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_zero_is_all_or_off() {
        assert_eq!(["-1", "-7", "0", "3"].map(count), [Ok(0), Ok(0), Ok(0), Ok(3)]);
        assert_eq!(count("99999999999"), Ok(u32::MAX));
        assert!(count("x").is_err());
    }

    #[test]
    fn biases_are_a_token_and_a_signed_number() {
        assert_eq!(bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(bias("15043-1.5"), Ok((15043, -1.5)));
        assert_eq!(bias("2-inf"), Ok((2, f32::NEG_INFINITY)));
        for wrong in ["", "7", "+1", "a+1", "1+", "1+nan", "-1+1"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }
}
