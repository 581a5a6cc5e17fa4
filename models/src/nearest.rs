//! The supported architecture that is most like an unknown one.
//!
//! Every architecture describes the file as if it were its own. The nearest is the one that leaves
//! the fewest tensors unread, then the fewest keys, and of several the one whose name is most
//! alike. What it leaves shows how the unknown architecture differs.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::arch::Arch;
use crate::error::text::Quoted;
use crate::gguf::Gguf;
use crate::graph::Builder;
use crate::hparams::Hparams;

/// The supported architecture that is most like an unknown one, and what it would not read.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Gguf, Value, Writer};
/// use backstitch_models::{Error, Model, arch};
///
/// let bytes = std::fs::read("../goldens/models/llama.gguf")?;
/// let mut writer = Writer::new();
/// let gguf = Gguf::parse(&bytes)?;
/// for entry in gguf.metadata() {
///     let key = entry.key.replace("llama.", "llamas.");
///     let is_name = entry.key == "general.architecture";
///     let value = if is_name { Value::Str("llamas") } else { entry.value.clone() };
///     writer.set(key, value)?;
/// }
/// for tensor in gguf.tensors() {
///     writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor))?;
/// }
/// let file = writer.to_bytes();
/// let error = Model::describe(&Gguf::parse(&file)?, arch::ALL).unwrap_err();
/// let Error::Architecture { nearest: Some(nearest), .. } = error else { panic!("{error}") };
/// assert_eq!((nearest.name, nearest.unread_tensors.len()), ("llama", 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The name of the supported architecture.
    pub name: &'static str,
    /// The reason why it cannot describe the file: a tensor or key that is missing or has another
    /// shape.
    pub refused: Option<Box<str>>,
    /// The names of the tensors that it would not read.
    pub unread_tensors: Box<[Box<str>]>,
    /// The keys of the architecture that it would not read.
    pub unread_keys: Box<[Box<str>]>,
}

/// The names that a message lists.
const SHOWN: usize = 3;
/// The longest name that is compared letter by letter.
const MAX_NAME: usize = 64;

impl Nearest {
    /// Find the architecture of `archs` that is most like that of `gguf`. Return `None` if there
    /// are none.
    pub(crate) fn of(gguf: &Gguf<'_>, archs: &[&Arch]) -> Option<Self> {
        let name = gguf.architecture().unwrap_or("");
        let prefix = format!("{name}.");
        let unread_keys =
            || gguf.unread_entries().map(|entry| entry.key).filter(|key| key.starts_with(&prefix));
        let rank = |arch: &&&Arch| {
            let refused = describe(gguf, arch).is_some();
            (gguf.unread_tensors().count(), refused, unread_keys().count(), distance(name, arch.name))
        };
        let nearest = archs.iter().min_by_key(rank)?;
        let refused = describe(gguf, nearest);
        Some(Self {
            name: nearest.name,
            refused,
            unread_keys: unread_keys().map(Box::from).collect(),
            unread_tensors: gguf.unread_tensors().map(|tensor| tensor.name().into()).collect(),
        })
    }
}

/// Let `arch` describe the file, and return what is in its way. The view then knows what was read.
fn describe(gguf: &Gguf<'_>, arch: &Arch) -> Option<Box<str>> {
    gguf.forget_reads();
    let described = Hparams::read(gguf).and_then(|hparams| (arch.build)(&mut Builder::new(gguf), &hparams));
    described.err().map(|error| format!("{error}").into())
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the nearest is {}, which ", self.name)?;
        if let Some(refused) = &self.refused {
            write!(f, "stops at: {refused}; it ")?;
        }
        let (tensors, keys) = (Names("tensor", &self.unread_tensors), Names("key", &self.unread_keys));
        match (self.unread_tensors.is_empty(), self.unread_keys.is_empty()) {
            (true, true) => f.write_str("reads all tensors and keys of the file"),
            (false, true) => write!(f, "leaves {tensors} unread"),
            (true, false) => write!(f, "leaves {keys} unread"),
            (false, false) => write!(f, "leaves {tensors} and {keys} unread"),
        }
    }
}

/// A number of names, of which the first are listed.
struct Names<'n>(&'static str, &'n [Box<str>]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, names) = self;
        let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{}", Quoted(name))).collect();
        let plural = if names.len() == 1 { "" } else { "s" };
        let more = if names.len() > SHOWN { ", …" } else { "" };
        write!(f, "{} {what}{plural} ({}{more})", names.len(), shown.join(", "))
    }
}

/// Return the number of letters to insert, remove or replace to make one name of the other
/// (Levenshtein, 1966). Of long names only the beginnings are compared.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(MAX_NAME).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().take(MAX_NAME).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(c != *other);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        row.first_mut().into_iter().for_each(|first| *first = i + 1);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Value, Writer};
    use crate::{Error, Model, arch};

    /// Return the error about a golden model whose architecture has another name, without one of
    /// its tensors and with another one.
    fn renamed(golden: &str, from: &str, to: &str, without: &str, with: Option<&str>) -> Error {
        let path = format!("{}/../goldens/models/{golden}.gguf", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).unwrap();
        let gguf = Gguf::parse(&bytes).unwrap();
        let mut writer = Writer::new();
        for entry in gguf.metadata() {
            let key = match entry.key.strip_prefix(from).filter(|rest| rest.starts_with('.')) {
                Some(rest) => format!("{to}{rest}"),
                None => entry.key.into(),
            };
            let is_name = entry.key == "general.architecture";
            let value = if is_name { Value::Str(to) } else { entry.value.clone() };
            writer.set(key, value).unwrap();
        }
        writer.set(format!("{to}.strange_key"), 1u32).unwrap();
        for tensor in gguf.tensors().iter().filter(|tensor| tensor.name() != without) {
            writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
        }
        if let (Some(name), Some(tensor)) = (with, gguf.tensors().first()) {
            writer.tensor(name, tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
        }
        let file = writer.to_bytes();
        Model::describe(&Gguf::parse(&file).unwrap(), arch::ALL).unwrap_err()
    }

    fn nearest(error: Error) -> Nearest {
        match error {
            Error::Architecture { nearest: Some(nearest), .. } => *nearest,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_nearest_architecture_is_the_one_that_reads_the_most() {
        for (golden, name, new) in [
            ("gemma2", "gemma2", "gemma7"),
            ("mamba2", "mamba2", "llama"),
            ("falcon_h1", "falcon-h1", "mistral"),
        ] {
            let new = format!("{new}x");
            let found = nearest(renamed(golden, name, &new, "", None));
            assert_eq!((found.name, found.refused), (name, None));
            assert_eq!(found.unread_tensors.len(), 0);
            assert!(found.unread_keys.iter().any(|key| **key == *format!("{new}.strange_key")));
        }
    }

    #[test]
    fn what_is_left_and_what_is_missing_are_named() {
        let error = renamed("gemma2", "gemma2", "gemma22", "", Some("blk.0.extra"));
        let text = format!("{error}");
        assert!(
            text.starts_with("architecture \"gemma22\" is not supported; the nearest is gemma2, "),
            "{text}"
        );
        assert!(text.contains("1 tensor (\"blk.0.extra\")"), "{text}");
        let found = nearest(error);
        assert!(found.unread_keys.iter().any(|key| &**key == "gemma22.strange_key"));
        let found = nearest(renamed("gemma2", "gemma2", "gemma22", "token_embd.weight", None));
        assert!(found.refused.is_some() && format!("{found}").contains("which stops at: "), "{found}");
    }

    #[test]
    fn names_differ_by_letters() {
        for (a, b, wanted) in [
            ("llama", "llama", 0),
            ("llama", "llama4", 1),
            ("qwen3", "qwen2", 1),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), wanted, "{a} {b}");
        }
        assert_eq!(distance(&"a".repeat(1 << 20), "b"), MAX_NAME);
    }
}
