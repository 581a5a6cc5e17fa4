//! Characters that no expression of a grammar tells apart are one letter of its alphabet.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{CharSet, Expr, Rules};

/// The number of letters up to which terminals are merged.
const MAX_LETTERS: usize = 512;

/// The letters of a grammar, and its sets of characters in them.
#[derive(Debug)]
pub(super) struct Alphabet {
    n_letters: usize,
    /// The letters of each set of characters in the grammar, ascending.
    sets: BTreeMap<CharSet, Vec<u32>>,
}

impl Alphabet {
    /// Return the alphabet of a grammar; `None` if it has too many letters.
    pub(super) fn new(rules: &Rules) -> Option<Self> {
        let mut sets = BTreeMap::new();
        for rule in &rules.rules {
            rule.expr.walk(&mut |expr| match expr {
                Expr::Chars(set) => {
                    sets.insert(set.clone(), Vec::new());
                }
                Expr::Literal(chars) => {
                    sets.extend(chars.iter().map(|&c| (CharSet::single(c), Vec::new())));
                }
                _ => {}
            });
        }
        let mut starts: Vec<u32> = sets.keys().flat_map(CharSet::boundaries).collect();
        starts.sort_unstable();
        starts.dedup();
        // Stretches of characters that are in the same sets are one letter.
        if starts.len().saturating_mul(sets.len()) > 1 << 20 {
            return None;
        }
        let mut letters: BTreeMap<Vec<bool>, u32> = BTreeMap::new();
        for &start in &starts {
            let signature: Vec<bool> = sets.keys().map(|set| set.contains(start)).collect();
            let next = letters.len() as u32;
            if signature.contains(&true) {
                letters.entry(signature).or_insert(next);
            }
        }
        for (signature, letter) in &letters {
            for (list, _) in sets.values_mut().zip(signature).filter(|(_, has)| **has) {
                list.push(*letter);
            }
        }
        (letters.len() <= MAX_LETTERS).then_some(Self { n_letters: letters.len(), sets })
    }

    pub(super) fn n_letters(&self) -> usize {
        self.n_letters
    }

    /// Return the letters of a set of characters that the grammar has.
    pub(super) fn letters(&self, set: &CharSet) -> &[u32] {
        self.sets.get(set).map_or(&[], Vec::as_slice)
    }
}
