//! Names of prefixes: a chain of hashes, one link for each block of tokens.
//!
//! A [`Key`] stands for a model, a shape of its cache and every token up to the end of a block. The
//! first link, the *root*, is made of the model and the cache; each further one of the link before
//! it and the tokens of its block. Two prompts share exactly the keys of the blocks that they
//! share. The function is fixed for ever: `docs/prompt-cache.md` has test vectors.

use crate::ids::Token;
use crate::storage::header::Fingerprint;
use core::fmt;
use std::vec::Vec;

/// Tokens of a block: the unit in which prefixes are stored.
pub const BLOCK_TOKENS: usize = 32;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The beginning of the root's hash, so that it never equals the hash of anything else. 32 bytes;
/// the version is its end.
const DOMAIN: &[u8; 32] = b"backstitch prompt store, root, 1";

/// The tokens of a block.
pub(super) type BlockTokens = [Token; BLOCK_TOKENS];

/// The name of a prefix: 32 bytes that depend on the model, its cache and all tokens of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(super) Fingerprint);

impl Key {
    /// Return the key of the empty prefix: blake3 over a domain string, the model's fingerprint and
    /// a description of the cache (layers, types, sizes: whatever makes payloads of one context
    /// useless to another).
    pub fn root(fingerprint: &[u8; 32], cache: &[u8; 32]) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN).update(fingerprint).update(cache);
        Key(Fingerprint(*hasher.finalize().as_bytes()))
    }

    /// Return the key of the prefix that is a block longer: blake3 over this key and the tokens,
    /// each as 4 bytes, little-endian.
    pub fn then(&self, tokens: &[Token; BLOCK_TOKENS]) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.as_bytes());
        for token in tokens {
            hasher.update(&token.0.to_le_bytes());
        }
        Key(Fingerprint(*hasher.finalize().as_bytes()))
    }

    /// Return the key as bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0.0
    }
}

impl fmt::Display for Key {
    /// 64 hexadecimal digits, lower-case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Return the whole blocks of `tokens`; what is left over at the end is not a block.
pub(super) fn blocks_of(tokens: &[Token]) -> &[BlockTokens] {
    tokens.as_chunks().0
}

/// Return the keys of all whole blocks of `tokens`, in order.
pub(super) fn chain(root: &Key, tokens: &[Token]) -> Vec<Key> {
    let mut key = *root;
    let link = |tokens: &BlockTokens| {
        key = key.then(tokens);
        key
    };
    blocks_of(tokens).iter().map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn counted() -> (Key, Vec<Token>) {
        let fingerprint = core::array::from_fn(|i| i as u8);
        let cache = core::array::from_fn(|i| 255 - i as u8);
        (Key::root(&fingerprint, &cache), (0..96).map(|i| Token(i * 1000)).collect())
    }

    /// Changing any of these loses every store there is.
    const VECTORS: [&str; 4] = [
        "4ca55b048862b18d672f1c806dee08a02ad7b984ae27d2c5113904f8e5142103",
        "a3dc247ef3af46926946112ff907cae50804eca8394d4db41ab104b9ca079ce9",
        "3b888c22e3bf466a0f15c94800ddfb2cf1055ac5eeebfe7f6ac28fd3ab784c74",
        "81a1bd422b5dd34eda44c21e3b0e6a9926ac5e3dc725b321073c2a4d3a8141a5",
    ];

    #[test]
    fn keys_are_those_of_the_published_vectors() {
        let (root, tokens) = counted();
        let keys: Vec<_> =
            [root].into_iter().chain(chain(&root, &tokens)).map(|key| key.to_string()).collect();
        assert_eq!(keys, VECTORS);
        let document = include_str!("../../../../docs/prompt-cache.md");
        for vector in VECTORS {
            assert!(document.contains(vector), "docs/prompt-cache.md lacks {vector}");
        }
    }

    #[test]
    fn a_key_depends_on_everything_before_it_and_nothing_after() {
        let (root, tokens) = counted();
        let keys = chain(&root, &tokens);
        for changed in 0..tokens.len() {
            let mut other = tokens.clone();
            other[changed].0 ^= 1;
            let others = chain(&root, &other);
            for (block, (a, b)) in keys.iter().zip(&others).enumerate() {
                assert_eq!(a == b, block < changed / BLOCK_TOKENS, "block {block}, token {changed} changed");
            }
        }
        assert_ne!(
            chain(&Key::root(&[0; 32], &[1; 32]), &tokens),
            chain(&Key::root(&[1; 32], &[0; 32]), &tokens)
        );
    }

    #[test]
    fn what_is_left_over_behind_the_last_whole_block_has_no_key() {
        let (root, tokens) = counted();
        let keys = chain(&root, &tokens);
        for len in 0..tokens.len() {
            assert_eq!(chain(&root, &tokens[..len]), keys[..len / BLOCK_TOKENS]);
        }
    }
}
