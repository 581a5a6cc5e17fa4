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
#[non_exhaustive]
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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use backstitch_core::DType;

    use super::*;
    use crate::gguf::Writer;

    #[test]
    fn names_of_parts_are_understood_and_made() {
        let name = SplitName::parse("my-model-00002-of-00003.gguf").unwrap();
        assert_eq!((name.part, name.count), (1, 3));
        assert_eq!(name.of_part(0), "my-model-00001-of-00003.gguf");
        let others = [
            "model.gguf",
            "model-00001-of-00003",
            "model-1-of-3.gguf",
            "model-00000-of-00003.gguf",
            "model-00004-of-00003.gguf",
            "model-00001-of-00000.gguf",
            "model-+0001-of-00003.gguf",
            "00001-of-00003.gguf",
            "",
        ];
        for other in others {
            assert_eq!(SplitName::parse(other), None, "{other}");
        }
    }

    /// A part with one tensor of that name.
    fn part(no: u16, count: u16, total: i32, tensor: &str) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.set(NO, no).unwrap().set(COUNT, count).unwrap().set(TENSORS_COUNT, total).unwrap();
        if no == 0 {
            writer.set("general.architecture", "llama").unwrap();
        }
        let data = [no as u8; 8];
        writer.tensor(tensor, &[2], DType::F32, &data).unwrap();
        writer.to_bytes()
    }

    #[test]
    fn parts_are_one_model() {
        let parts = [part(0, 2, 2, "a"), part(1, 2, 2, "b")];
        let gguf = Gguf::parse_parts(&[&parts[0], &parts[1]]).unwrap();
        assert_eq!(gguf.architecture().unwrap(), "llama");
        let names: Vec<_> = gguf.tensors().iter().map(|tensor| (tensor.name(), tensor.part())).collect();
        assert_eq!(names, [("a", 0), ("b", 1)]);
        let b = gguf.tensor("b").unwrap();
        assert_eq!(gguf.tensor_data(&b), [1; 8]);
        assert_eq!(parts[1].get(b.range()), Some(&[1; 8][..]));
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let good = part(0, 2, 2, "a");
        let plain = Writer::new().to_bytes();
        let cases: [(&[&[u8]], &str); 8] = [
            (&[], "the model has 1 parts, 0 at hand"),
            (
                &[&good],
                "the model has 2 parts, 1 at hand; keep them together, named like model-00001-of-00002.gguf",
            ),
            (&[&good, &good], "part 2 of the model: split.no is 0, not 1"),
            (&[&good, &plain], "part 2 of the model: split.count is missing, it should be 2"),
            (&[&good, &part(1, 3, 2, "b")], "part 2 of the model: split.count is 3, not 2"),
            (&[&good, &part(1, 2, 2, "a")], "part 2 of the model: tensor \"a\" appears a second time"),
            (&[&part(0, 2, 5, "a"), &part(1, 2, 5, "b")], "split.tensors.count is 5, not 2"),
            (&[&good, &good[..6]], "part 2 of the model: file is truncated in the header"),
        ];
        for (parts, text) in cases {
            let error = Gguf::parse_parts(parts).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}\nwanted: {text}");
        }
    }

    #[test]
    fn a_merged_file_may_keep_its_split_keys() {
        for count in [0, 1] {
            assert!(Gguf::parse(&part(0, count, 1, "a")).is_ok());
        }
    }
}
