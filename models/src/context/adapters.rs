//! Adapters of sequences: each sequence is evaluated with a set of its own, from its first token to
//! its last.

use super::Context;
use crate::adapter::{AdapterError, AdapterSet};
use crate::error::Error;
use alloc::boxed::Box;
use alloc::string::String;
use backstitch_kv::storage::Fingerprint;
use backstitch_kv::{Batch, SeqId};

/// The domain of the keys of prefixes that were evaluated with adapters.
#[cfg(feature = "std")]
const KEY: &str = "Backstitch key of prompts evaluated with adapters, version 1";

impl Context {
    /// Create an empty sequence that is evaluated with `set`, and return its id. Forks inherit the
    /// set.
    ///
    /// # Errors
    /// - Those of [`Context::sequence`].
    /// - [`Error::Adapter`] with [`AdapterError::Model`] if the adapters were read for another
    ///   model.
    pub fn sequence_with(&mut self, set: &AdapterSet) -> Result<SeqId, Error> {
        self.prepare_adapters(set)?;
        let seq = self.sequence()?;
        self.runner.adapters.assign(seq, set.clone());
        Ok(seq)
    }

    /// Evaluate sequences that come into being from now on with `set`, unless they are made with
    /// another; those that there are keep theirs.
    ///
    /// # Errors
    /// [`Error::Adapter`] with [`AdapterError::Model`] if the adapters were read for another model,
    /// [`Error::OutOfMemory`].
    pub fn set_default_adapters(&mut self, set: &AdapterSet) -> Result<(), Error> {
        self.prepare_adapters(set)?;
        self.runner.adapters.default = set.clone();
        Ok(())
    }

    /// Return the set of sequences that are made without another.
    pub fn default_adapters(&self) -> &AdapterSet {
        &self.runner.adapters.default
    }

    /// Evaluate the empty sequence `seq` with `set` from now on. An encoder output that another set
    /// gave is forgotten.
    ///
    /// # Errors
    /// - [`Error::Sequence`] if it does not exist.
    /// - [`Error::Adapter`] with [`AdapterError::HoldsTokens`] if it holds tokens and has another
    ///   set, with [`AdapterError::Model`] if the adapters were read for another model.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn set_adapters(&mut self, seq: SeqId, set: &AdapterSet) -> Result<(), Error> {
        self.history(seq)?;
        if self.runner.adapters.of(seq) == set {
            return Ok(());
        }
        if self.memory.seq_pos_max(seq).is_some() {
            let end = self.end(seq).0;
            return Err(AdapterError::HoldsTokens { seq: seq.0, end }.into());
        }
        self.prepare_adapters(set)?;
        self.memory.forget(seq)?;
        self.outputs.forget(seq);
        self.runner.adapters.assign(seq, set.clone());
        Ok(())
    }

    /// Return the set that `seq` is evaluated with.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn adapters(&self, seq: SeqId) -> Result<&AdapterSet, Error> {
        self.history(seq)?;
        Ok(self.runner.adapters.of(seq))
    }

    /// Check that a set is of this model, and make room for its products.
    pub(super) fn prepare_adapters(&mut self, set: &AdapterSet) -> Result<(), Error> {
        set.expect_model(self.model.fingerprint())?;
        self.runner.adapters.make_room(set)
    }

    /// Check that the sequences of each token have the same set: a token is computed once for all
    /// of them.
    pub(super) fn check_adapters(&self, batch: &Batch) -> Result<(), Error> {
        for i in 0..batch.len() {
            let Some((&first, others)) = batch.seqs(i).split_first() else { continue };
            others.iter().try_for_each(|&other| self.expect_same_adapters(first, other))?;
        }
        Ok(())
    }

    /// Check that two sequences have the same set.
    ///
    /// # Errors
    /// [`AdapterError::OtherSet`] with both sets.
    pub(super) fn expect_same_adapters(&self, seq: SeqId, other: SeqId) -> Result<(), Error> {
        let [found, wanted] = [seq, other].map(|seq| self.runner.adapters.of(seq));
        match found == wanted {
            true => Ok(()),
            false => Err(other_set(&described(found), &described(wanted))),
        }
    }

    /// Return the set among `given` that has an identity, after making room for it.
    ///
    /// # Errors
    /// [`AdapterError::OtherSet`] with `found`, the description of the one wanted, and all given.
    pub(super) fn find_adapters(
        &mut self,
        id: Fingerprint,
        found: &str,
        given: &[AdapterSet],
    ) -> Result<AdapterSet, Error> {
        let set = given.iter().find(|set| set.id() == Some(id)).cloned();
        let set = set.ok_or_else(|| {
            let mut all = String::new();
            for set in given.iter().filter(|set| !set.is_empty()) {
                all += if all.is_empty() { "" } else { "; " };
                all += &described(set);
            }
            let wanted = if all.is_empty() { "no adapters" } else { &all };
            other_set(&with_id(found, id), wanted)
        })?;
        self.prepare_adapters(&set)?;
        Ok(set)
    }

    /// Return the fingerprint of all that decides what the tokens of `seq` evaluate to: the model's
    /// in this context and, where it has adapters, theirs.
    #[cfg(feature = "std")]
    pub(super) fn evaluated_by(&self, set: &AdapterSet) -> Fingerprint {
        let Some(id) = set.id() else { return self.fingerprint() };
        let mut hasher = blake3::Hasher::new_derive_key(KEY);
        hasher.update(&self.fingerprint().0).update(&id.0);
        Fingerprint(*hasher.finalize().as_bytes())
    }

    /// Refuse sequences with adapters where a file has no place for them.
    pub(super) fn expect_no_adapters(&self, seqs: &[SeqId]) -> Result<(), Error> {
        match seqs.iter().find(|&&seq| !self.runner.adapters.of(seq).is_empty()) {
            Some(seq) => Err(AdapterError::NoPlace { seq: seq.0 }.into()),
            None => Ok(()),
        }
    }
}

/// Return a set in words, with the start of its identity.
fn described(set: &AdapterSet) -> Box<str> {
    set.id().map_or_else(|| set.description(), |id| with_id(&set.description(), id).into())
}

/// Return a description with the start of an identity, which tells adapters of one name apart.
fn with_id(description: &str, id: Fingerprint) -> String {
    let [a, b, c, d, ..] = id.0;
    alloc::format!("{description} ({a:02x}{b:02x}{c:02x}{d:02x})")
}

fn other_set(found: &str, wanted: &str) -> Error {
    AdapterError::OtherSet { found: found.into(), wanted: wanted.into() }.into()
}
