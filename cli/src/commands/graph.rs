//! `backstitch graph`: print the operations that a model runs, those of its encoder first.
//!
//! The graph follows from the header of the file, so no weights are loaded.

use crate::args::GraphArgs;
use crate::embedded;
use crate::error::Error;
use crate::model;
use crate::output::Output;
use backstitch_models::gguf::Gguf;
use backstitch_models::{Model, arch};

/// Run the command. Only the header of the file is read.
///
/// # Errors
/// - [`Error::Engine`] if the file cannot be read, is damaged, or has an unknown architecture.
/// - [`Error::Refused`] if the file is a state, not a model.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &GraphArgs) -> Result<(), Error> {
    match &args.model.model {
        Some(path) => {
            let source = model::source(path, args.model.access())?;
            show(&source.gguf().map_err(|error| Error::of_model(path, error))?, args.dot)
        }
        None => show(&Gguf::parse(embedded::GGUF)?, args.dot),
    }
}

/// Print the graphs of a model as text, or in the language of Graphviz.
fn show(gguf: &Gguf, dot: bool) -> Result<(), Error> {
    let (_, graph) = Model::describe(gguf, arch::ALL)?;
    let mut out = Output::new(false);
    if dot {
        out.stream(&graph.to_dot())?;
    } else {
        graph.encoder().map_or(Ok(()), |encoder| out.stream(&encoder.to_text()))?;
        out.stream(&graph.to_text())?;
    }
    Ok(out.flush()?)
}
