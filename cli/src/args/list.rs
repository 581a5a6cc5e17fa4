//! Options that take several numbers, as those of llama-bench do: `-p 128,512`.

use super::numbers::count;
use std::ops::Deref;

/// Whole numbers in the order in which they were typed. There is always at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List(Vec<u32>);

impl Deref for List {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

/// Parse numbers from 0 up, separated by commas.
pub fn list(text: &str) -> Result<List, String> {
    parse(text, "from 0", |part| part.parse().ok())
}

/// Parse numbers from 1 up, separated by commas.
pub fn positive_list(text: &str) -> Result<List, String> {
    parse(text, "from 1", |part| part.parse().ok().filter(|&n| n > 0))
}

/// Parse numbers of threads, separated by commas. A negative number becomes 0, which means one
/// thread for each core.
pub fn count_list(text: &str) -> Result<List, String> {
    parse(text, "from -1", |part| count(part).ok())
}

/// Parse numbers separated by commas, each with `number`. The error names the place of the first
/// part that is none.
fn parse(text: &str, range: &str, number: impl Fn(&str) -> Option<u32>) -> Result<List, String> {
    let wanted = format!("wanted a whole number {range}, or several with commas between, like 1,2");
    let one = |(i, part): (usize, &str)| {
        number(part).ok_or_else(|| match part {
            _ if !text.contains(',') => wanted.clone(),
            "" => format!("nothing at place {}: {wanted}", i + 1),
            part => format!("{part:?} at place {}: {wanted}", i + 1),
        })
    };
    text.split(',').enumerate().map(one).collect::<Result<_, _>>().map(List)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_separated_by_commas() {
        assert_eq!(*positive_list("512").unwrap(), [512]);
        assert_eq!(*positive_list("128,512").unwrap(), [128, 512]);
        assert_eq!(*list("0,2048").unwrap(), [0, 2048]);
        assert_eq!(*count_list("1,-1,2").unwrap(), [1, 0, 2]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let error = |text| positive_list(text).unwrap_err();
        let wanted = "wanted a whole number from 1, or several with commas between, like 1,2";
        assert_eq!(error("128,x"), format!("\"x\" at place 2: {wanted}"));
        assert_eq!(error("x"), wanted);
        assert_eq!(error("1,,2"), format!("nothing at place 2: {wanted}"));
        assert_eq!(error("1,"), format!("nothing at place 2: {wanted}"));
        for wrong in ["", "0", "-1", "1 2", "1;2", "4294967296", "1.5"] {
            assert!(positive_list(wrong).is_err(), "{wrong}");
        }
        assert!(list("-1").is_err() && count_list("1,x").is_err());
    }
}
