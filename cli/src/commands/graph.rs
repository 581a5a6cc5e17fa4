//! `backstitch graph`: the operations a model runs, those of its encoder first.

use crate::args::GraphArgs;
use crate::embedded;
use crate::error::Error;
use crate::output::Output;
use backstitch_models::gguf::{Gguf, Source};
use backstitch_models::{Model, arch};

/// Runs the command. Reads the header of the file only.
///
/// # Errors
/// If there is no sound model of a known architecture, or the output fails.
pub fn run(args: &GraphArgs) -> Result<(), Error> {
    match &args.model.model {
        Some(path) => show(&Source::open(path, args.model.access())?.gguf()?, args.dot),
        None => show(&Gguf::parse(embedded::GGUF)?, args.dot),
    }
}

fn show(gguf: &Gguf, dot: bool) -> Result<(), Error> {
    let (_, graph) = Model::describe(gguf, arch::ALL)?;
    let mut out = Output::new(false);
    if let Some(encoder) = graph.encoder() {
        out.stream(&if dot { encoder.to_dot() } else { encoder.to_text() })?;
    }
    out.stream(&if dot { graph.to_dot() } else { graph.to_text() })?;
    Ok(out.flush()?)
}
