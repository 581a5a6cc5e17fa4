//! `backstitch imatrix`: measure how much the columns of a model's matrices matter.
//!
//! The model reads a text in windows, as for `perplexity`, and the squares of everything that its
//! matrices are multiplied by are added up. `quantize --imatrix` takes the file, and so does
//! llama-quantize.
//!
//! Each window is read from an empty sequence, and all of its tokens count, also those of the last
//! layer: their logits are computed for that, and thrown away.

use crate::args::{ContextArgs, EvaluationArgs, ImatrixArgs};
use crate::error::Error;
use crate::output::{Output, bytes, counted, one_line};
use crate::progress::Progress;
use crate::target::{Kind, Target};
use crate::{adapters, memory, model, prompt};
use backstitch_models::judge::Windows;
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Context, Model};
use backstitch_quantize::{Error as QuantizeError, collect};
use serde_json::json;
use std::io::Write;

/// Tokens of a window without `-c`, as in llama.cpp.
const DEFAULT_N_CTX: u32 = 512;

/// Run the command.
///
/// # Errors
/// - [`Error::Refused`] if there is no text, it is too short, or an input of a matrix is no number.
/// - [`Error::Engine`] if the model cannot be loaded or evaluated.
/// - [`Error::Read`] or [`Error::Write`] if a file cannot be read or written.
pub fn run(args: &ImatrixArgs) -> Result<(), Error> {
    let read = [args.input.file.as_deref(), args.model.model.as_deref()];
    let target = Target::check(&args.output, "-o", Kind::Imatrix, &read)?;
    let text =
        prompt::read(&args.input)?.ok_or_else(|| Error::Refused("no text; give -f, -p or a pipe".into()))?;
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let mut tokens = Vec::new();
    model.vocab().tokenize(&text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
    let mut ctx = context(args, &model)?;
    let n_ctx = ctx.params().n_ctx;
    let windows = Windows::new(&tokens, n_ctx as usize, None).filter(|windows| windows.len() > 0);
    let windows = windows.ok_or_else(|| {
        let n = tokens.len();
        Error::Refused(format!(
            "the text has {n} tokens, and a window takes {n_ctx}; lower -c, or give a longer text"
        ))
    })?;
    let windows = windows.at_most(args.chunks.map_or(usize::MAX, |n| n as usize));
    let (progress, total) = (Progress::counted("reading", "windows"), windows.len() as u64);
    let dataset = args.input.file.as_ref().map_or_else(|| "-".into(), |path| path.display().to_string());
    let collected = collect(&mut ctx, windows, &dataset, args.process_output, &mut |n| {
        progress.set(n as u64, total);
    });
    let imatrix = collected.map_err(of_quantizer)?;
    drop(progress);
    let file = imatrix.to_bytes().map_err(of_quantizer)?;
    target.write(|mut out| out.write_all(&file))?;
    let mut out = Output::new(args.json);
    if out.is_json() {
        let output = args.output.display().to_string();
        out.value(&json!({
            "output": output, "bytes": file.len(), "tensors": imatrix.n_entries(), "windows": total,
        }))?;
    } else {
        let (name, size) = (one_line(&args.output.display().to_string()), bytes(file.len() as u64));
        let (tensors, windows) = (counted(imatrix.n_entries(), "tensor"), counted(total as usize, "window"));
        out.text(format_args!("{name}: {tensors}, {windows}, {size}"), 6)?;
    }
    Ok(out.flush()?)
}

/// Return a context for a window. Without `-c` it is as long as that of `perplexity`, so that what
/// is measured and what is judged are texts of one length.
fn context(args: &ImatrixArgs, model: &Model) -> Result<Context, Error> {
    let n_ctx = args.context.evaluation.n_ctx.unwrap_or(DEFAULT_N_CTX);
    let evaluation = EvaluationArgs { n_ctx: Some(n_ctx), ..args.context.evaluation.clone() };
    let params = model::params(&ContextArgs { evaluation, ..args.context.clone() }, model);
    memory::check(model, &params)?;
    model::warn_beyond_training(params.n_ctx, model);
    let mut ctx = Context::new(model, params)?;
    adapters::apply(&args.context.adapters, &mut ctx)?;
    Ok(ctx)
}

/// Return the error of the program for one of collecting.
fn of_quantizer(error: QuantizeError) -> Error {
    match error {
        QuantizeError::Model(error) => Error::Engine(error),
        error => Error::Refused(error.to_string()),
    }
}
