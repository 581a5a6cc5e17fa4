//! Sharded models, as llama.cpp's `gguf-split` writes them.
//!
//! Each shard is a GGUF file of its own with `split.no` (from 0), `split.count` and
//! `split.tensors.count` (of all shards). Its name ends in `-00001-of-00003.gguf` (from 1). The
//! first shard holds the metadata.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use super::reader::Gguf;
use crate::error::Error;

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS_COUNT: &str = "split.tensors.count";

/// The file name of one shard of a model.
///
/// `Source::open` uses it to find the other shards; a program that downloads
/// models can do the same.
///
/// # Example
/// ```
/// use backstitch_models::gguf::SplitName;
///
/// let name = SplitName::parse("tiny-00002-of-00003.gguf").unwrap();
/// assert_eq!((name.shard, name.count), (1, 3));
/// assert_eq!(name.of_shard(0), "tiny-00001-of-00003.gguf");
/// assert_eq!(SplitName::parse("tiny.gguf"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitName<'a> {
    prefix: &'a str,
    /// The index of the shard, from 0.
    pub shard: u32,
    /// The number of shards, at least 1.
    pub count: u32,
}

impl<'a> SplitName<'a> {
    /// Parse a file name like `model-00001-of-00003.gguf`; `None` for any other name.
    pub fn parse(file_name: &'a str) -> Option<Self> {
        let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| Self { prefix, shard: number - 1, count })
    }

    /// Return the file name of another shard of the same model, counted from 0.
    pub fn of_shard(&self, shard: u32) -> String {
        format!("{}-{:05}-of-{:05}.gguf", self.prefix, shard.saturating_add(1), self.count)
    }
}

impl<'a> Gguf<'a> {
    /// Read the header of a file and check all of it.
    ///
    /// This takes time linear in the size of the header, times the logarithm of the number of keys
    /// and tensors. Tensor data is not read; only its range is checked.
    ///
    /// # Errors
    /// The [`Error`] of the first thing that is wrong, with the key or tensor, the offset, the
    /// value found and the value wanted. [`Error::MissingShards`] if the file is one of several
    /// shards.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::parse_shards(&[bytes])
    }

    /// Read the shards of a model in order, and present them as one file: the metadata of the
    /// first, the tensors of all.
    ///
    /// # Errors
    /// Those of [`Gguf::parse`], inside [`Error::Shard`] if there are several shards.
    /// [`Error::Split`] if the shards do not belong together; [`Error::MissingShards`] if some are
    /// missing.
    pub fn parse_shards(shards: &[&'a [u8]]) -> Result<Self, Error> {
        let (first, rest) = shards.split_first().ok_or(Error::MissingShards { found: 0, wanted: 1 })?;
        let in_shard = |shard, error: Error| match rest {
            [] => error,
            _ => Error::Shard { shard, source: Box::new(error) },
        };
        let parse = |shard, bytes| {
            let gguf = Self::parse_shard(bytes, shard)?;
            check_shard(&gguf, shard, shards.len())?;
            Ok(gguf)
        };
        let mut gguf = parse(0, first).map_err(|error| in_shard(0, error))?;
        for (shard, bytes) in (1..).zip(rest) {
            gguf.add_tensors(parse(shard, bytes).map_err(|error| in_shard(shard, error))?);
        }
        if !rest.is_empty() {
            check_total(&gguf)?;
            gguf.index_tensors(in_shard)?;
        }
        Ok(gguf)
    }
}

/// Parse a number of exactly five digits.
fn five_digits(text: &str) -> Option<u32> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Check that a file is shard `shard` of a model of `count` files.
fn check_shard(gguf: &Gguf<'_>, shard: usize, count: usize) -> Result<(), Error> {
    let stated = gguf.optional::<u64>(COUNT)?;
    if count == 1 {
        // Tools that merge shards leave a count of 0 or 1 behind.
        return match stated {
            Some(wanted) if wanted > 1 => Err(Error::MissingShards { found: 1, wanted }),
            _ => Ok(()),
        };
    }
    expect(COUNT, stated, count)?;
    expect(NO, gguf.optional(NO)?, shard)
}

/// Check that all shards together have as many tensors as the first one says.
fn check_total(gguf: &Gguf<'_>) -> Result<(), Error> {
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
    fn names_of_shards_are_understood_and_made() {
        let name = SplitName::parse("my-model-00002-of-00003.gguf").unwrap();
        assert_eq!((name.shard, name.count), (1, 3));
        assert_eq!(name.of_shard(0), "my-model-00001-of-00003.gguf");
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

    /// Return a shard with one tensor of that name.
    fn shard(no: u16, count: u16, total: i32, tensor: &str) -> Vec<u8> {
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
    fn shards_are_one_model() {
        let shards = [shard(0, 2, 2, "a"), shard(1, 2, 2, "b")];
        let gguf = Gguf::parse_shards(&[&shards[0], &shards[1]]).unwrap();
        assert_eq!(gguf.architecture().unwrap(), "llama");
        let names: Vec<_> = gguf.tensors().iter().map(|tensor| (tensor.name(), tensor.shard())).collect();
        assert_eq!(names, [("a", 0), ("b", 1)]);
        let b = gguf.tensor("b").unwrap();
        assert_eq!(gguf.tensor_data(&b), [1; 8]);
        assert_eq!(shards[1].get(b.range()), Some(&[1; 8][..]));
    }

    #[test]
    fn shards_that_do_not_belong_together_are_refused() {
        let good = shard(0, 2, 2, "a");
        let plain = Writer::new().to_bytes();
        let cases: [(&[&[u8]], &str); 8] = [
            (&[], "the model has 1 shard, 0 at hand"),
            (
                &[&good],
                "the model has 2 shards, 1 at hand; keep them together, named like model-00001-of-00002.gguf",
            ),
            (&[&good, &good], "shard 2 of the model: split.no is 0, not 1"),
            (&[&good, &plain], "shard 2 of the model: split.count is missing, it should be 2"),
            (&[&good, &shard(1, 3, 2, "b")], "shard 2 of the model: split.count is 3, not 2"),
            (&[&good, &shard(1, 2, 2, "a")], "shard 2 of the model: tensor \"a\" appears a second time"),
            (&[&shard(0, 2, 5, "a"), &shard(1, 2, 5, "b")], "split.tensors.count is 5, not 2"),
            (&[&good, &good[..6]], "shard 2 of the model: file is truncated in the header"),
        ];
        for (shards, text) in cases {
            let error = Gguf::parse_shards(shards).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}\nwanted: {text}");
        }
    }

    #[test]
    fn a_merged_file_may_keep_its_split_keys() {
        for count in [0, 1] {
            assert!(Gguf::parse(&shard(0, count, 1, "a")).is_ok());
        }
    }
}
