//! Contexts whose length changes the model: with LongRoPE, keys are rotated by one set of
//! frequencies in contexts up to a length that the model states, and by another set in longer ones.
//!
//! A state bears another fingerprint in each of the two, so whoever restores one has to make a
//! context on the right side of that length, however few tokens the state holds.

use crate::error::Error;
use crate::output::one_line;
use backstitch_kv::storage::{Container, Fingerprint};
use backstitch_models::{Context, Model};
use std::path::Path;

/// Return the length of the longest context with the usual rotation; none if the length of the
/// context changes nothing.
fn longest_usual(model: &Model) -> Option<u32> {
    model.graph().rotations().iter().filter_map(|choice| Some(choice.long.as_ref()?.beyond)).min()
}

/// Return the fingerprint that states of long contexts bear; the usual one if the length of the
/// context changes nothing.
pub fn long_fingerprint(model: &Model) -> Fingerprint {
    model.fingerprint_in(u32::MAX)
}

/// Return the size of a context in which the state with this fingerprint can be restored: `least`,
/// or the next size with the rotation of the state.
pub fn n_ctx(model: &Model, fingerprint: &Fingerprint, least: u32) -> u32 {
    match longest_usual(model) {
        Some(usual) if *fingerprint == long_fingerprint(model) => least.max(usual.saturating_add(1)),
        // Whole blocks may reach beyond the context that they were saved from.
        Some(usual) if *fingerprint == model.fingerprint() => least.min(usual),
        _ => least,
    }
}

/// Check that a context rotates keys as the one that a state of its model was saved from. A state
/// of another model passes: restoring it fails with the fingerprints.
///
/// # Errors
/// [`Error::Refused`] with the `-c` that fits.
pub fn expect(path: &Path, container: &Container<'_>, ctx: &Context) -> Result<(), Error> {
    let (model, saved) = (ctx.model(), container.fingerprint());
    let Some(usual) = longest_usual(model).filter(|_| *saved != ctx.fingerprint()) else { return Ok(()) };
    let (was, advice) = match saved {
        saved if *saved == model.fingerprint() => ("at most", format!("lower -c to {usual}")),
        saved if *saved == long_fingerprint(model) => {
            ("more than", format!("raise -c to at least {}", usual.saturating_add(1)))
        }
        _ => return Ok(()),
    };
    Err(Error::Refused(format!(
        "{} was saved from a context of {was} {usual} tokens, in which this model encodes positions \
         in another way than in one of {}; {advice}",
        one_line(&path.display().to_string()),
        ctx.params().n_ctx
    )))
}
