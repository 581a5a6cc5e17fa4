//! Models in several files, as llama.cpp's `gguf-split` writes them.
//!
//! Each part is a whole GGUF file with `split.no` (from 0), `split.count` and `split.tensors.count` (of all parts); its name ends in
//! `-00001-of-00003.gguf` (from 1). The first part holds the metadata.

use alloc::format;
use alloc::string::String;

use super::reader::Gguf;
use crate::error::Error;

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS_COUNT: &str = "split.tensors.count";

/// The file name of one part of a split model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitName<'a> {
    prefix: &'a str,
    /// The part, from 0.
    pub part: u32,
    /// The number of parts, at least 1.
    pub count: u32,
}

impl<'a> SplitName<'a> {
    /// Takes a file name like `model-00001-of-00003.gguf` apart; none for any other name.
    pub fn parse(file_name: &'a str) -> Option<Self> {
        let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| Self { prefix, part: number - 1, count })
    }

    /// The file name of another part of the same model, counted from 0.
    pub fn of_part(&self, part: u32) -> String {
        format!("{}-{:05}-of-{:05}.gguf", self.prefix, part.saturating_add(1), self.count)
    }
}

/// A number of exactly five digits.
fn five_digits(text: &str) -> Option<u32> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Checks that a file is part `part` of a model of `count` files.
pub(super) fn check_part(gguf: &Gguf<'_>, part: usize, count: usize) -> Result<(), Error> {
    let stated = gguf.optional::<u64>(COUNT)?;
    if count == 1 {
        // Tools that merge parts leave a count of 0 or 1 behind.
        return match stated {
            Some(wanted) if wanted > 1 => Err(Error::Parts { found: 1, wanted }),
            _ => Ok(()),
        };
    }
    expect(COUNT, stated, count)?;
    expect(NO, gguf.optional(NO)?, part)
}

/// Checks that all parts together have as many tensors as the first one says.
pub(super) fn check_total(gguf: &Gguf<'_>) -> Result<(), Error> {
    expect(TENSORS_COUNT, gguf.optional(TENSORS_COUNT)?, gguf.tensors().len())
}

fn expect(key: &'static str, found: Option<u64>, wanted: usize) -> Result<(), Error> {
    let wanted = wanted as u64;
    if found == Some(wanted) { Ok(()) } else { Err(Error::Split { key, found, wanted }) }
}
