//! The names of the samplers whose order can be chosen.

/// A sampler of the usual chain, for [`Settings::order`](super::Settings::order).
///
/// # Example
/// ```
/// use backstitch_models::sampler::Kind;
///
/// assert_eq!(Kind::from_name("top-k"), Some(Kind::TopK));
/// assert_eq!(Kind::from_letter('k').map(Kind::name), Some("top_k"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// [`Penalties`](super::Penalties).
    Penalties,
    /// [`Dry`](super::Dry).
    Dry,
    /// [`TopNSigma`](super::TopNSigma).
    TopNSigma,
    /// [`TopK`](super::TopK).
    TopK,
    /// [`Typical`](super::Typical).
    Typical,
    /// [`TopP`](super::TopP).
    TopP,
    /// [`MinP`](super::MinP).
    MinP,
    /// [`Xtc`](super::Xtc).
    Xtc,
    /// [`DynamicTemperature`](super::DynamicTemperature).
    Temperature,
    /// [`Infill`](super::Infill).
    Infill,
    /// [`AdaptiveP`](super::AdaptiveP), which comes last wherever the order names it.
    AdaptiveP,
}

/// The name and the letter of each sampler, as llama.cpp has them.
const NAMES: [(Kind, &str, char); 11] = [
    (Kind::Penalties, "penalties", 'e'),
    (Kind::Dry, "dry", 'd'),
    (Kind::TopNSigma, "top_n_sigma", 's'),
    (Kind::TopK, "top_k", 'k'),
    (Kind::Typical, "typ_p", 'y'),
    (Kind::TopP, "top_p", 'p'),
    (Kind::MinP, "min_p", 'm'),
    (Kind::Xtc, "xtc", 'x'),
    (Kind::Temperature, "temperature", 't'),
    (Kind::Infill, "infill", 'i'),
    (Kind::AdaptiveP, "adaptive_p", 'a'),
];

/// Names that are used besides those of [`NAMES`].
const ALIASES: [(&str, Kind); 4] = [
    ("nucleus", Kind::TopP),
    ("temp", Kind::Temperature),
    ("typ", Kind::Typical),
    ("typical_p", Kind::Typical),
];

impl Kind {
    /// The order of the usual chain.
    pub const USUAL: [Kind; 9] = [
        Kind::Penalties,
        Kind::Dry,
        Kind::TopNSigma,
        Kind::TopK,
        Kind::Typical,
        Kind::TopP,
        Kind::MinP,
        Kind::Xtc,
        Kind::Temperature,
    ];

    /// Return the name, as llama.cpp writes it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }

    /// Return the letter that stands for the sampler in llama.cpp's short form of an order.
    pub fn letter(self) -> char {
        NAMES.iter().find(|(kind, ..)| *kind == self).map_or('?', |(.., letter)| *letter)
    }

    /// Find a sampler by its name: `top_k`, `top-k` or `topk`, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let is_named = |(_, known, _): &&(Kind, &str, char)| {
            let plain = known.bytes().filter(|&byte| byte != b'_');
            name.eq_ignore_ascii_case(known)
                || name
                    .bytes()
                    .map(|byte| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() })
                    .eq(known.bytes())
                || name.bytes().map(|byte| byte.to_ascii_lowercase()).eq(plain)
        };
        let alias =
            || ALIASES.iter().find(|(alias, _)| name.eq_ignore_ascii_case(alias)).map(|&(_, kind)| kind);
        NAMES.iter().find(is_named).map(|&(kind, ..)| kind).or_else(alias)
    }

    /// Find a sampler by its letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        NAMES.iter().find(|(.., known)| *known == letter).map(|&(kind, ..)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sampler_is_found_by_its_names() {
        for (kind, name, letter) in NAMES {
            assert_eq!((kind.name(), kind.letter()), (name, letter));
            assert_eq!(Kind::from_letter(letter), Some(kind));
            for name in [name.into(), name.replace('_', "-"), name.replace('_', ""), name.to_uppercase()] {
                assert_eq!(Kind::from_name(&name), Some(kind), "{name}");
            }
        }
        for (alias, kind) in ALIASES {
            assert_eq!(Kind::from_name(alias), Some(kind));
        }
        assert_eq!(Kind::USUAL.map(Kind::letter), ['e', 'd', 's', 'k', 'y', 'p', 'm', 'x', 't']);
    }

    #[test]
    fn other_names_are_unknown() {
        for name in ["", "top", "top k", "top__k", "x", "mirostat"] {
            assert_eq!(Kind::from_name(name), None, "{name}");
        }
        assert_eq!(Kind::from_letter('K'), None);
    }
}
