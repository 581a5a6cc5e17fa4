//! The adapters that options name, read for a model.

use crate::args::AdapterArgs;
use crate::error::Error;
use crate::output::note;
use backstitch_models::adapter::{Adapter, AdapterSet, ControlVector};
use backstitch_models::{Context, Model};
use std::path::{Path, PathBuf};

/// A LoRA adapter, its file, and its scale.
pub type Named = (PathBuf, Adapter, f32);

/// Read the LoRA adapters, those at scale 1 first.
///
/// # Errors
/// [`Error::Engine`] if a file cannot be read, or is no adapter of the model.
pub fn loras(args: &AdapterArgs, model: &Model) -> Result<Vec<Named>, Error> {
    let scaled = args.lora_scaled.iter().map(|scaled| (&scaled.path, scaled.scale));
    let all = args.lora.iter().map(|path| (path, 1.0)).chain(scaled);
    let read = |(path, scale): (&PathBuf, f32)| {
        let adapter = Adapter::open(path, model)?;
        tell_left_out(path, &adapter);
        Ok((path.clone(), adapter, scale))
    };
    all.map(read).collect()
}

/// Tell that some tensors of an adapter are not used.
fn tell_left_out(path: &Path, adapter: &Adapter) {
    if let Some(first) = adapter.left_out().first() {
        let (n, path) = (adapter.left_out().len(), path.display());
        note("note", format_args!("{path}: {n} of its tensors are norms and not used, as {first}"));
    }
}

/// Read the control vectors.
///
/// # Errors
/// [`Error::Engine`] if a file cannot be read or is no control vector of the model, or the range of
/// layers is none.
pub fn controls(args: &AdapterArgs, model: &Model) -> Result<AdapterSet, Error> {
    let scaled = args.control_vector_scaled.iter().map(|scaled| (&scaled.path, scaled.scale));
    let all = args.control_vector.iter().map(|path| (path, 1.0)).chain(scaled);
    let layers = match args.control_vector_layer_range.as_deref() {
        Some(&[first, last]) => Some(first..=last),
        _ => None,
    };
    let mut set = AdapterSet::default();
    for (path, scale) in all {
        set = set.with_control(&ControlVector::open(path, model)?, scale, layers.clone())?;
    }
    Ok(set)
}

/// Evaluate all sequences of a new context with the adapters that options name.
///
/// # Errors
/// Those of [`loras`] and [`controls`].
pub fn apply(args: &AdapterArgs, ctx: &mut Context) -> Result<(), Error> {
    let model = ctx.model().clone();
    let mut set = controls(args, &model)?;
    for (_, adapter, scale) in loras(args, &model)? {
        set = set.with(&adapter, scale)?;
    }
    Ok(ctx.set_default_adapters(&set)?)
}
