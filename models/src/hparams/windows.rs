//! Sliding windows: the layers that see the last tokens only.

use super::reader::Reader;
use crate::{error::Error, gguf::Value};
use alloc::vec::Vec;

/// Sliding windows, as far as the file states them.
///
/// # Example
/// ```
/// use backstitch_models::{Pattern, Windows};
///
/// let windows = Windows { n_swa: Some(512), ..Windows::default() };
/// let default = Pattern::Every(6); // the sixth layer sees everything
/// assert_eq!(windows.of_layer(4, &default), Some(512));
/// assert_eq!(windows.of_layer(5, &default), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    /// Positions that windowed layers see, a token's own included; 0 turns windows off.
    pub n_swa: Option<u32>,
    /// The layers that have a window.
    pub pattern: Option<Pattern>,
    /// True if the file states a base of the frequencies of windowed layers alone.
    pub has_freq_base: bool,
}

/// The layers that have a window.
///
/// # Example
/// ```
/// use backstitch_models::Pattern;
///
/// assert!(Pattern::Every(2).is_windowed(0) && !Pattern::Every(2).is_windowed(1));
/// assert!(Pattern::Each(vec![false, true]).is_windowed(1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All layers except each one whose number, counted from 1, is a multiple of this; all layers
    /// for 0.
    Every(u32),
    /// All but the first of so many layers have a window; 0: all.
    FirstOf(u32),
    /// The layers whose element is true, `[n_layer]`.
    Each(Vec<bool>),
}

impl Pattern {
    /// No layer has a window.
    pub const NONE: Self = Pattern::Every(1);

    /// Return true if layer `il` has a window.
    pub fn is_windowed(&self, il: usize) -> bool {
        match self {
            Self::Every(0) => true,
            Self::Every(n) => !(il as u64 + 1).is_multiple_of(u64::from(*n)),
            Self::FirstOf(0) => true,
            Self::FirstOf(n) => !(il as u64).is_multiple_of(u64::from(*n)),
            Self::Each(layers) => {
                debug_assert!(il < layers.len(), "the file's pattern has an element for every layer");
                layers.get(il) == Some(&true)
            }
        }
    }
}

impl Windows {
    /// Read the keys about windows; a list has an element for every layer.
    pub(super) fn read(r: &Reader<'_, '_>, n_layer: usize) -> Result<Self, Error> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        let keys = r.gguf.keys()?;
        let pattern = match keys.entry(PATTERN) {
            None => None,
            Some(entry) if matches!(entry.value, Value::Array(_)) => {
                r.flags(PATTERN, n_layer)?.map(Pattern::Each)
            }
            Some(entry) => Some(Pattern::Every(entry.read()?)),
        };
        let n_swa = keys.optional("attention.sliding_window")?;
        Ok(Windows { n_swa, pattern, has_freq_base: keys.entry("rope.freq_base_swa").is_some() })
    }

    /// Return the window of layer `il`: the file's, where its pattern or else `default` gives the
    /// layer one.
    pub fn of_layer(&self, il: usize, default: &Pattern) -> Option<u32> {
        let windowed = self.pattern.as_ref().unwrap_or(default).is_windowed(il);
        self.n_swa.filter(|&n| n > 0 && windowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Gguf, Writer};
    use alloc::{string::ToString, vec};

    const KEY: &str = "x.attention.sliding_window_pattern";

    fn read(fill: impl FnOnce(&mut Writer)) -> Result<Windows, Error> {
        let mut writer = Writer::new();
        writer.set("general.architecture", "x")?;
        writer.set("x.attention.sliding_window", 8u32)?;
        fill(&mut writer);
        let bytes = writer.to_bytes();
        let gguf = Gguf::parse(&bytes)?;
        Windows::read(&Reader { gguf: &gguf, architecture: "x" }, 4)
    }

    fn layers(windows: &Windows) -> Vec<Option<u32>> {
        (0..4).map(|il| windows.of_layer(il, &Pattern::Every(2))).collect()
    }

    #[test]
    fn the_pattern_comes_from_the_file_or_the_architecture() {
        let (yes, no) = (Some(8), None);
        assert_eq!(layers(&read(|_| {}).unwrap()), [yes, no, yes, no]);
        let numbered = |n: u32| read(|w| drop(w.set(KEY, n))).unwrap();
        assert_eq!(layers(&numbered(3)), [yes, yes, no, yes]);
        assert_eq!(layers(&numbered(1)), [no; 4]);
        assert_eq!(layers(&numbered(0)), [yes; 4]);
        let listed = read(|w| drop(w.set(KEY, vec![true, true, false, true]))).unwrap();
        assert_eq!(layers(&listed), [yes, yes, no, yes]);
        let listed = read(|w| drop(w.set(KEY, vec![0u32, 1, 1, 0]))).unwrap();
        assert_eq!(layers(&listed), [no, yes, yes, no]);
    }

    #[test]
    fn a_window_of_nothing_is_none() {
        let windows = read(|w| drop(w.set("x.attention.sliding_window", 0u32))).unwrap();
        assert_eq!(layers(&windows), [None; 4]);
    }

    #[test]
    fn a_pattern_of_another_length_is_refused() {
        let error = read(|w| drop(w.set(KEY, vec![true; 5]))).unwrap_err().to_string();
        assert!(error.contains(KEY) && error.contains('5'), "{error}");
        assert!(read(|w| drop(w.set(KEY, "all"))).is_err());
    }
}
