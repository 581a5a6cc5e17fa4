//! Parts of the messages of errors that take more than a format string.
//!
//! A message names the thing and its byte offset, what was found, what was wanted, and, after a
//! semicolon, what to do. Counts agree with their nouns ([`count`]), and names from files are
//! escaped ([`Quoted`]).

use alloc::boxed::Box;
use core::fmt;

use super::Region;
use crate::nearest::Nearest;

/// Return a number and its noun, in the singular for 1: `1 byte`, `2 bytes`.
pub(super) fn count(n: u64, noun: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{n} {noun}{}", if n == 1 { "" } else { "s" }))
}

/// A name from a file in quotes: control characters escaped, cut after 96 characters.
///
/// The author of the file chose the name, so it must neither drive the terminal nor flood it.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(96).map_or(self.0.len(), |(at, _)| at);
        let (shown, rest) = self.0.split_at(end);
        write!(f, "\"{}{}\"", shown.escape_debug(), if rest.is_empty() { "" } else { "…" })
    }
}

/// Return a region of the file and the name of the thing there, as in `the value of key "a.b"`.
pub(super) fn subject(region: Region, name: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let what = match region {
            Region::Header => return f.write_str("the header"),
            Region::Key => "key",
            Region::Value => "the value of key",
            Region::Tensor => "tensor",
            Region::Data => "the data of tensor",
        };
        if name.starts_with('#') {
            write!(f, "{what} {}", name.escape_debug())
        } else {
            write!(f, "{what} {}", Quoted(name))
        }
    })
}

/// Return the place at which a file ends: a [`subject`], of a tensor its description.
pub(super) fn place(region: Region, name: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let table = if region == Region::Tensor { "the description of " } else { "" };
        write!(f, "{table}{}", subject(region, name))
    })
}

/// Return the plural noun of the things counted in a region.
pub(super) fn things(region: Region, name: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| match region {
        Region::Key | Region::Header => f.write_str("keys"),
        Region::Tensor | Region::Data => f.write_str("tensors"),
        Region::Value => write!(f, "elements of key {}", Quoted(name)),
    })
}

/// Return a number that should be another one, or that is missing.
pub(super) fn found_or_missing(found: Option<u64>, wanted: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match found {
        Some(found) => write!(f, "{found}, not {wanted}"),
        None => write!(f, "missing, it should be {wanted}"),
    })
}

/// Return the clause that names the supported architecture most like an unknown one, if there is
/// one.
pub(super) fn nearest_to(nearest: &Option<Box<Nearest>>) -> impl fmt::Display {
    fmt::from_fn(move |f| nearest.iter().try_for_each(|nearest| write!(f, "; {nearest}")))
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;
    use crate::error::{Error, Shapes};
    use crate::gguf::ValueType;

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    }

    #[test]
    fn texts_say_where_what_was_found_and_what_was_wanted() {
        let cases: [(Error, &str); 6] = [
            (
                Error::Truncated { region: Region::Value, name: "a.b".into(), offset: 30, need: 8, have: 3 },
                "file is truncated in the value of key \"a.b\": 8 bytes needed at offset 30, 3 left; get the file again",
            ),
            (
                Error::TooMany {
                    region: Region::Tensor,
                    name: "".into(),
                    offset: 8,
                    found: 1 << 60,
                    limit: 7,
                },
                "1152921504606846976 tensors at offset 8 do not fit the file, the rest of it holds at most 7; get the file again",
            ),
            (
                Error::Utf8 { region: Region::Key, name: "#17".into(), offset: 99 },
                "key #17 is not valid UTF-8 at offset 99; convert the model again",
            ),
            (
                Error::WrongType {
                    key: "llama.block_count".into(),
                    offset: 24,
                    found: ValueType::Str,
                    wanted: "an integer",
                },
                "key \"llama.block_count\" at offset 24 is of type string, not an integer",
            ),
            (
                Error::Shape {
                    tensor: "output.weight".into(),
                    shapes: Box::new(Shapes { found: [2, 3].into(), wanted: [3, 2].into() }),
                },
                "tensor \"output.weight\" has shape [2, 3], not [3, 2] (outermost dimension first)",
            ),
            (
                Error::Shard { shard: 1, source: Box::new(Error::Magic { found: *b"\0ggu" }) },
                "shard 2 of the model: not a GGUF file: it starts with \"\\x00ggu\", not \"GGUF\"; give the path of a GGUF file",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn names_from_files_cannot_take_over_the_terminal() {
        let name = String::from("\u{1b}[2J") + &"x".repeat(1000);
        let text = Error::MissingKey { key: name.into() }.to_string();
        assert!(
            text.starts_with("key \"\\u{1b}[2Jxxx")
                && text.ends_with("x…\" is missing; convert the model again"),
            "{text}"
        );
        assert!(text.len() < 170, "{}", text.len());
    }
}
