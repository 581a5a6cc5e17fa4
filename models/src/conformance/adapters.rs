//! The adapters with which the steps of a case are run.

use super::files;
use super::golden::{Case, Control};
use super::replay::Abort;
use crate::Context;
use crate::adapter::{Adapter, AdapterSet, ControlVector};
use alloc::format;
use std::path::{Path, PathBuf};

/// Let all sequences that will be made in a context have the adapters of a case, whose files the
/// file at `path` names.
pub(super) fn set(path: &Path, case: &Case, ctx: &mut Context) -> Result<(), Abort> {
    let find = |name: &str| -> Result<PathBuf, Abort> {
        files::named(path, name).ok_or_else(|| Abort::Failed(format!("{name} is not there")))
    };
    let mut set = AdapterSet::default();
    for (file, scale) in &case.loras {
        set = set.with(&Adapter::open(find(file)?, ctx.model())?, *scale)?;
    }
    for Control { file, scale, layers } in &case.controls {
        let vector = ControlVector::open(find(file)?, ctx.model())?;
        set = set.with_control(&vector, *scale, Some(layers.clone()))?;
    }
    Ok(ctx.set_default_adapters(&set)?)
}
