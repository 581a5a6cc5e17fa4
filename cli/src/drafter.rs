//! The drafter of speculative decoding that the options ask for.

use crate::args::{ContextArgs, ModelArgs, SpeculationArgs};
use crate::error::Error;
use crate::model;
use backstitch_models::Model;
use backstitch_models::speculative::{DraftModel, Drafter, Lookup};

/// Make the drafter of speculative decoding, if one is wanted: prompt lookup, or a draft model with
/// a context of its own that is as long as the session's, `n_ctx` tokens.
///
/// # Errors
/// - [`Error::Engine`] if the draft model cannot be loaded, or has another vocabulary.
/// - [`Error::Refused`] if its file is no model.
pub fn drafter(
    args: &SpeculationArgs,
    file: &ModelArgs,
    context: &ContextArgs,
    model: &Model,
    n_ctx: usize,
) -> Result<Option<Box<dyn Drafter + Send>>, Error> {
    if args.lookup {
        return Ok(Some(Box::new(Lookup::default())));
    }
    let Some(path) = &args.draft_model else { return Ok(None) };
    let file = ModelArgs { model: Some(path.clone()), ..file.clone() };
    let draft = model::open(&file, model::n_threads(context.n_threads))?;
    let params = model::draft_params(context, model, &draft, 1).n_ctx(n_ctx as u32);
    Ok(Some(Box::new(DraftModel::new(model, &draft, params)?)))
}
