//! The kinds of tokens, their roles, and the tokens that end a generation.
//!
//! Files state kinds and roles incompletely and sometimes wrongly, so some are found by their
//! well-known texts, as in llama.cpp (`llama-vocab.cpp`, `load`). Only complete texts count.

use alloc::vec::Vec;

use backstitch_kv::Token;

use super::error::VocabError;
use super::reserve::try_collect;
use super::source::{Roles, VocabSource};
use super::strings::Strings;

/// The kind of a token, as a set of bits of which several can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr(u8);

impl Attr {
    /// No kind: the token has no text.
    pub(super) const UNDEFINED: Self = Self(0);
    /// Plain text.
    pub(super) const NORMAL: Self = Self(1);
    /// The unknown token, for text that the vocabulary cannot express.
    pub(super) const UNKNOWN: Self = Self(1 << 1);
    /// A control token, which steers the model and is not part of the text.
    pub(super) const CONTROL: Self = Self(1 << 2);
    /// A user-defined token, found in text before anything else.
    pub(super) const USER: Self = Self(1 << 3);
    /// A single byte, written `<0x0A>`.
    pub(super) const BYTE: Self = Self(1 << 4);
    /// A token that removes the white space before it when it is found in text.
    pub(super) const LSTRIP: Self = Self(1 << 5);
    /// A token that removes the white space after it when it is found in text.
    pub(super) const RSTRIP: Self = Self(1 << 6);
    /// A token that structures messages, although it is written out like text.
    pub(super) const MARKUP: Self = Self(1 << 7);

    /// Return true if any kind of `other` is set.
    pub(super) const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Return true for a token that is found in any text, also in what people type: it is
    /// user-defined and does not steer the model.
    pub(super) const fn is_found_anywhere(self) -> bool {
        self.any(Self::USER) && !self.any(Self::CONTROL.or(Self::UNKNOWN).or(Self::MARKUP))
    }

    /// Return the union of two sets.
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Return the kind that GGUF numbers `n`.
    fn from_gguf(n: i32) -> Self {
        match n {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER,
            6 => Self::BYTE,
            _ => Self::UNDEFINED,
        }
    }
}

/// The kinds, roles and end-of-generation tokens of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Specials {
    /// One kind per token.
    pub(super) attrs: Vec<Attr>,
    pub(super) roles: Roles,
    /// The tokens that end a generation, sorted.
    pub(super) eog: Vec<Token>,
    /// The tokens that are never to be drawn, sorted.
    pub(super) suppressed: Vec<u32>,
}

impl Specials {
    /// Work everything out from the statements of the file and from the texts. Roles out of range
    /// count as absent.
    pub(super) fn new(
        source: &VocabSource<'_>,
        defaults: Roles,
        texts: &Strings,
    ) -> Result<Self, VocabError> {
        let n_vocab = source.tokens.len();
        let stated = source.types.iter().map(|&n| Attr::from_gguf(n));
        let attrs = try_collect(n_vocab, stated.chain(core::iter::repeat(Attr::NORMAL)))?;
        let roles = source.roles.or(defaults).in_range(n_vocab);
        let suppressed = source.suppressed.iter().filter_map(|&id| u32::try_from(id).ok());
        let suppressed = suppressed.filter(|&id| (id as usize) < n_vocab);
        let mut suppressed = try_collect(source.suppressed.len(), suppressed)?;
        // A file may repeat a token as often as it likes.
        suppressed.sort_unstable();
        suppressed.dedup();
        let mut specials = Self { attrs, roles, eog: Vec::new(), suppressed };
        specials.find_roles(texts);
        specials.find_eog(texts);
        for text in ALWAYS_WRITTEN {
            specials.reset(texts.find(text.as_bytes()), WRITTEN_MARKUP);
        }
        specials.exempt_end_of_part(texts);
        specials.exempt_ordinary_s(texts);
        specials.eog.sort();
        specials.eog.dedup();
        specials.set_strip(source, texts);
        Ok(specials)
    }

    /// Return the kinds of token `id`.
    pub(super) fn attr(&self, id: u32) -> Attr {
        self.attrs.get(id as usize).copied().unwrap_or(Attr::UNDEFINED)
    }

    /// Find missing roles by text.
    fn find_roles(&mut self, texts: &Strings) {
        let Self { attrs, roles, .. } = self;
        let missing: [(&mut Option<u32>, &[&str]); 8] = [
            (&mut roles.eot, EOT),
            (&mut roles.eom, &["<|eom_id|>"]),
            (&mut roles.fim_pre, FIM_PRE),
            (&mut roles.fim_suf, FIM_SUF),
            (&mut roles.fim_mid, FIM_MID),
            (&mut roles.fim_pad, &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
            (&mut roles.fim_rep, &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]),
            (&mut roles.fim_sep, &["<|file_sep|>"]),
        ];
        for (role, names) in missing {
            if role.is_none() {
                *role = names.iter().find_map(|name| texts.find(name.as_bytes()));
                role.iter().for_each(|&id| make_control(attrs, id));
            }
        }
    }

    /// Collect the tokens that end a generation, by role and by text.
    fn find_eog(&mut self, texts: &Strings) {
        for id in EOG.iter().filter_map(|text| texts.find(text.as_bytes())) {
            self.eog.push(Token(id));
            make_control(&mut self.attrs, id);
        }
        let Roles { eos, eot, eom, fim_pad, fim_rep, fim_sep, .. } = self.roles;
        let roles = [eos, eot, eom, fim_pad, fim_rep, fim_sep];
        self.eog.extend(roles.into_iter().flatten().map(Token));
    }

    /// Exempt `<|end|>` in formats whose messages have several parts, where it ends a part only.
    fn exempt_end_of_part(&mut self, texts: &Strings) {
        let has = |text: &str| texts.find(text.as_bytes()).is_some();
        if (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>")) {
            self.exempt(texts.find(b"<|end|>"), WRITTEN_MARKUP);
        }
    }

    /// Exempt `</s>` in vocabularies in which it is an ordinary token.
    fn exempt_ordinary_s(&mut self, texts: &Strings) {
        let has_eog =
            |text: &str| texts.find(text.as_bytes()).is_some_and(|id| self.eog.contains(&Token(id)));
        if has_eog("<|tool_response>") || has_eog("<|plamo:eos|>") {
            self.exempt(texts.find(b"</s>"), Attr::NORMAL);
        }
    }

    /// Remove a token from those that end a generation, and set its kind to `attr`.
    fn exempt(&mut self, id: Option<u32>, attr: Attr) {
        self.eog.retain(|token| Some(token.0) != id);
        self.reset(id, attr);
    }

    fn reset(&mut self, id: Option<u32>, attr: Attr) {
        if let Some(old) = id.and_then(|id| self.attrs.get_mut(id as usize)) {
            *old = attr;
        }
    }

    /// Set the removal of white space around special tokens, for the few families that need it.
    fn set_strip(&mut self, source: &VocabSource<'_>, texts: &Strings) {
        let pre = source.pre.unwrap_or("");
        let name = source.name.unwrap_or("").to_ascii_lowercase();
        let architecture = source.architecture.unwrap_or("");
        let pres = ["jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"];
        let by_pre = pres.iter().any(|part| pre.contains(part));
        let encoder = ["nomic-bert-moe", "jina-bert-v3"].iter().any(|part| architecture.contains(part));
        if by_pre || encoder {
            self.add_to(texts.find(b"<mask>"), Attr::LSTRIP);
        } else if name.contains("phi-3") || name.contains("phi3") {
            let special = Attr::CONTROL.or(Attr::USER).or(Attr::UNKNOWN);
            self.attrs
                .iter_mut()
                .filter(|attr| attr.any(special))
                .for_each(|attr| *attr = attr.or(Attr::RSTRIP));
            self.add_to(texts.find(b"</s>"), Attr::RSTRIP);
            for text in ["<unk>", "<s>", "<|endoftext|>"] {
                let id = texts.find(text.as_bytes());
                id.into_iter().for_each(|id| self.reset(Some(id), self.attr(id).without(Attr::RSTRIP)));
            }
        } else if name.contains("modern-bert") {
            self.add_to(texts.find(b"[MASK]"), Attr::LSTRIP);
        }
    }

    fn add_to(&mut self, id: Option<u32>, attr: Attr) {
        if let Some(old) = id.and_then(|id| self.attrs.get_mut(id as usize)) {
            *old = old.or(attr);
        }
    }
}

fn make_control(attrs: &mut [Attr], id: u32) {
    if let Some(attr) = attrs.get_mut(id as usize) {
        *attr = attr.or(Attr::CONTROL);
    }
}

impl Roles {
    /// Return these roles, and those of `other` where these have none.
    fn or(self, other: Self) -> Self {
        self.zip(other, Option::or)
    }

    /// Return these roles without those that are not tokens.
    fn in_range(self, n_vocab: usize) -> Self {
        self.zip(self, |role, _| role.filter(|&id| (id as usize) < n_vocab))
    }

    fn zip(self, other: Self, pick: impl Fn(Option<u32>, Option<u32>) -> Option<u32>) -> Self {
        Self {
            bos: pick(self.bos, other.bos),
            eos: pick(self.eos, other.eos),
            eot: pick(self.eot, other.eot),
            eom: pick(self.eom, other.eom),
            unk: pick(self.unk, other.unk),
            sep: pick(self.sep, other.sep),
            pad: pick(self.pad, other.pad),
            mask: pick(self.mask, other.mask),
            fim_pre: pick(self.fim_pre, other.fim_pre),
            fim_suf: pick(self.fim_suf, other.fim_suf),
            fim_mid: pick(self.fim_mid, other.fim_mid),
            fim_pad: pick(self.fim_pad, other.fim_pad),
            fim_rep: pick(self.fim_rep, other.fim_rep),
            fim_sep: pick(self.fim_sep, other.fim_sep),
        }
    }
}

/// Texts of the token before the prefix of a fill-in-the-middle prompt.
const FIM_PRE: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];

/// Texts of the token before the suffix of such a prompt.
const FIM_SUF: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];

/// Texts of the token before the middle of such a prompt.
const FIM_MID: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];

/// Texts of the token that ends a turn, the most telling first.
const EOT: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<|end_of_text|>",
    "<|endoftext|>",
];

/// Texts of tokens that end a generation.
const EOG: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Texts of tokens that structure a message and belong to the text that users read.
const ALWAYS_WRITTEN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];
/// The kinds of these tokens.
const WRITTEN_MARKUP: Attr = Attr::USER.or(Attr::MARKUP);

#[cfg(test)]
mod tests {
    use super::*;

    fn specials(tokens: &[(&str, i32)], change: impl Fn(&mut VocabSource<'_>)) -> Specials {
        let texts: Vec<&str> = tokens.iter().map(|(text, _)| *text).collect();
        let mut source = VocabSource {
            tokens: &texts,
            types: tokens.iter().map(|(_, n)| *n).collect(),
            ..VocabSource::default()
        };
        change(&mut source);
        let mut texts = Strings::with_capacity(0, 0).unwrap();
        for (text, _) in tokens {
            assert!(texts.push(text.as_bytes()).is_ok());
        }
        Specials::new(&source, Roles::default(), &texts).unwrap()
    }

    #[test]
    fn what_ends_generation_is_found_by_role_and_by_text() {
        let tokens = [("a", 1), ("<|eot_id|>", 1), ("stop", 3), ("<|endoftext|>", 3), ("<reponame>", 3)];
        let specials = specials(&tokens, |source| source.roles.eos = Some(2));
        assert_eq!(specials.eog, [Token(1), Token(2), Token(3), Token(4)]);
        assert_eq!(specials.roles.eot, Some(1));
        assert!(specials.attr(1).any(Attr::CONTROL));
        assert!(!specials.attr(0).any(Attr::CONTROL));
    }

    #[test]
    fn roles_out_of_range_are_absent() {
        let specials = specials(&[("a", 1)], |source| {
            source.roles = Roles { bos: Some(1), eos: Some(u32::MAX), unk: Some(0), ..Roles::default() };
        });
        assert_eq!(specials.roles, Roles { unk: Some(0), ..Roles::default() });
        assert_eq!(specials.eog, []);
    }

    #[test]
    fn parts_of_fill_in_the_middle_prompts_are_found_by_text_and_are_control_tokens() {
        let families = [
            ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
            ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
            ["<|prefix|>", "<|suffix|>", "<|middle|>"],
        ];
        for [prefix, suffix, middle] in families {
            let found = specials(&[("a", 1), (prefix, 1), (suffix, 4), (middle, 3)], |_| ());
            let Roles { fim_pre, fim_suf, fim_mid, .. } = found.roles;
            assert_eq!([fim_pre, fim_suf, fim_mid], [Some(1), Some(2), Some(3)], "{prefix}");
            assert!((1..4).all(|id| found.attr(id).any(Attr::CONTROL)), "{prefix}");
            assert!(found.eog.is_empty(), "{prefix}");
        }
        let stated = specials(&[("a", 1), ("<PRE>", 3)], |source| source.roles.fim_pre = Some(0));
        assert_eq!(stated.roles.fim_pre, Some(0));
    }

    #[test]
    fn the_end_of_a_part_does_not_end_generation() {
        let specials =
            specials(&[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3), ("<|channel|>", 3)], |_| ());
        assert_eq!(specials.eog, [Token(1), Token(2)]);
        assert_eq!(specials.attr(0), WRITTEN_MARKUP);
        assert_eq!(specials.attr(3), WRITTEN_MARKUP);
    }

    #[test]
    fn families_that_drop_white_space() {
        let phi = specials(&[("<|user|>", 3), ("<s>", 3), ("</s>", 3), ("a", 1)], |source| {
            source.name = Some("Phi-3 mini")
        });
        let stripped: Vec<_> = phi.attrs.iter().map(|attr| attr.any(Attr::RSTRIP)).collect();
        assert_eq!(stripped, [true, false, true, false]);
        for pre in ["jina-v2-de", "mmbert"] {
            let encoder = specials(&[("<mask>", 3)], |source| source.pre = Some(pre));
            assert!(encoder.attr(0).any(Attr::LSTRIP), "{pre}");
        }
    }
}
