//! The steps of programs in which adapters matter beyond what all steps do with them: sets of new
//! sequences, and prompts that are remembered and recalled.

use super::fresh::Deed;
use super::{Machine, Twin};
use backstitch_models::adapter::AdapterSet;
use backstitch_models::prompt_cache::PromptCache;
use backstitch_models::{Error, SeqId, Token};

/// Tokens of a prompt that fill a block of the cache for certain.
const LEAST_PROMPT: i32 = 40;
/// The number that lets a decode append as many tokens as that.
const MANY: u8 = 14;

impl<'f> Machine<'f> {
    /// Let steps remember prompts in `cache` and recall them.
    pub fn with_prompts(mut self, cache: &'f PromptCache) -> Self {
        self.prompts = Some(cache);
        self
    }

    /// Return all sets that sequences may have.
    pub(super) fn adapter_sets(&self) -> Vec<AdapterSet> {
        self.fresh.iter().map(|fresh| fresh.set.clone()).collect()
    }

    /// Give the new sequence `seq` the set that `number` chooses.
    pub(super) fn adapt(&mut self, seq: SeqId, number: u32) {
        let set = number as usize % self.fresh.len();
        self.ctx.set_adapters(seq, &self.fresh[set].set).unwrap();
        self.sets[seq.index()] = set;
    }

    /// Remember the prompt of a sequence, and recall it in a new one with the same set, or with one
    /// that `c` chooses.
    pub(super) fn prompt(&mut self, seq: u32, other: u32, c: u8) {
        if self.end(seq) < LEAST_PROMPT {
            self.decode(seq, LEAST_PROMPT as u8, MANY, false);
        }
        let (Some(cache), Some(Some(twin))) = (self.prompts, self.twins.get(seq as usize)) else { return };
        let [Deed::Append(tokens)] = &twin.recipe[..] else { return };
        let tokens = tokens.clone();
        if let Some(prefix) = self.ctx.remember(SeqId(seq), cache).unwrap() {
            cache.put(&prefix).unwrap();
        }
        if other == seq {
            return;
        }
        self.release(other);
        let text: Vec<Token> = tokens.iter().copied().map(Token).collect();
        self.create(SeqId(other));
        let same = self.sets[seq as usize] as u32;
        self.adapt(SeqId(other), if c.is_multiple_of(2) { same } else { u32::from(c >> 4) });
        match self.ctx.recall(SeqId(other), cache, &text) {
            Ok(recalled) if recalled.n_tokens > 0 => {
                let known = tokens[..recalled.n_tokens].to_vec();
                let given = vec![None; known.len()];
                self.twins[other as usize] =
                    Some(Twin { recipe: vec![Deed::Append(known)], given, pins: Vec::new() });
                self.tally.recalled += 1;
                self.compare_logits(other);
            }
            Ok(_) => self.ctx.release(SeqId(other)).unwrap(),
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => {
                self.tally.refused += 1;
                self.ctx.release(SeqId(other)).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}
