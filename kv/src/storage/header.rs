//! Names in a container: the model that it belongs to, what it holds, and the tags of its sections.

use bytemuck::{Pod, Zeroable};
use core::fmt;

/// The format version that is written, and the only one that is read.
pub const VERSION: u32 = 2;

/// The kind of a section: four bytes, upper-case letters and digits by custom.
///
/// `HEAD`, `SLOT`, `DIRY` and `FOOT` name the container's own parts in errors and are never
/// sections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Tag(pub [u8; 4]);

impl Tag {
    /// The header, in errors.
    pub const HEADER: Self = Self(*b"HEAD");
    /// The commit slots, in errors.
    pub const SLOT: Self = Self(*b"SLOT");
    /// The directory, in errors.
    pub const DIRECTORY: Self = Self(*b"DIRY");
    /// The footer, in errors.
    pub const FOOTER: Self = Self(*b"FOOT");
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}

/// Identity of a model, and in prompt-cache entries of a model and a cache: containers of different
/// fingerprints never mix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Parse 64 hexadecimal digits.
    pub fn parse(digits: &str) -> Option<Self> {
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
        let pairs: &[[u8; 2]; 32] = pairs.try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            *byte = (high? << 4 | low?) as u8;
        }
        Some(Self(bytes))
    }

    /// Return the first half, which is enough to tell fingerprints apart in a message.
    pub fn front(&self) -> [u8; 16] {
        let [front, _] = bytemuck::must_cast::<[u8; 32], [[u8; 16]; 2]>(self.0);
        front
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Content of a container as a whole, with its number in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A whole context: all sequences under their ids.
    Context = 1,
    /// One sequence, which may be restored under any id.
    Sequence = 2,
    /// An entry of a prompt cache: blocks of a prompt, and resume points.
    Entry = 3,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Context => "a whole context",
            Self::Sequence => "one sequence",
            Self::Entry => "an entry of a prompt cache",
        })
    }
}

/// A container's own account of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The model that the content belongs to.
    pub fingerprint: Fingerprint,
    /// The kind of content.
    pub scope: Scope,
}

/// Bytes in base 16.
pub(super) struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn fingerprints_are_read_as_they_are_written() {
        let fingerprint = Fingerprint(core::array::from_fn(|i| (i * 37) as u8));
        let digits = fingerprint.to_string();
        assert_eq!(Fingerprint::parse(&digits), Some(fingerprint));
        assert_eq!(Fingerprint::parse(&digits.to_uppercase()), Some(fingerprint));
        for wrong in ["", &digits[1..], &digits[2..], &(digits.clone() + "00"), &digits.replace('0', "+")] {
            assert_eq!(Fingerprint::parse(wrong), None, "{wrong}");
        }
    }
}
