//! `backstitch perplexity`: judge a model by the probabilities that it gives to a text.
//!
//! The library computes ([`judge`]); this command reads the text, shows progress, and formats. The
//! other two ways to judge have files of their own: `divergence` compares with a base model, and
//! `choice` answers questions.
//!
//! A text is cut into windows as long as the context. The first half of each window is read only,
//! so that every scored token stands behind some text; windows do not overlap unless `--stride`
//! says so. The perplexity is e to the power of the mean surprise, and its error is the standard
//! error of that mean, times the perplexity.

mod choice;
mod divergence;

use crate::args::{ContextArgs, EvaluationArgs, PerplexityArgs};
use crate::error::Error;
use crate::output::Output;
use crate::progress::Progress;
use crate::target::{Kind, Target};
use crate::{adapters, memory, model, prompt};
use backstitch_models::judge::{self, BaseError, BaseWriter, Estimate, Row, Windows};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Context, Model, Token};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Tokens of a window without `-c`, as in llama.cpp.
const DEFAULT_N_CTX: u32 = 512;

/// Run the command.
///
/// # Errors
/// - [`Error::Refused`] if there is no text, it is too short, or a file does not fit the model.
/// - [`Error::Engine`] if the model cannot be loaded or evaluated.
/// - [`Error::Read`] or [`Error::Write`] if a file cannot be read or written.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &PerplexityArgs) -> Result<(), Error> {
    match (&args.multiple_choice, &args.kl_divergence_base) {
        (Some(path), _) => choice::run(args, path),
        (_, Some(path)) if args.kl_divergence => divergence::run(args, path),
        (_, path) => of_text(args, path.as_deref()),
    }
}

/// Compute the perplexity of a text, and write the probabilities to a file if there is one.
fn of_text(args: &PerplexityArgs, base: Option<&Path>) -> Result<(), Error> {
    let read = [args.input.file.as_deref(), args.model.model.as_deref()];
    let target = base
        .map(|path| Target::check(path, "--kl-divergence-base", Kind::Probabilities, &read))
        .transpose()?;
    let text =
        prompt::read(&args.input)?.ok_or_else(|| Error::Refused("no text; give -f, -p or a pipe".into()))?;
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let mut tokens = Vec::new();
    model.vocab().tokenize(&text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
    let mut ctx = context(args, &model, args.context.evaluation.n_ctx.unwrap_or(DEFAULT_N_CTX))?;
    let windows = windows(args, &tokens, ctx.params().n_ctx)?;
    let mut report = Report { out: Output::new(args.json), surprise: Estimate::default() };
    match target {
        None => report.evaluate(&mut ctx, windows, &mut |_| Ok(()))?,
        Some(target) => {
            let mut failure = None;
            let written = target.write(|file| {
                let result = report.evaluate_to(&mut ctx, windows, &tokens, file);
                result.map_err(|error| io::Error::other(failure.insert(error).to_string()))
            });
            // The error of the evaluation says more than that of the file.
            failure.map_or(Ok(()), Err)?;
            written?;
        }
    }
    report.finish()
}

/// Return a context for windows of `n_ctx` tokens.
fn context(args: &PerplexityArgs, model: &Model, n_ctx: u32) -> Result<Context, Error> {
    let evaluation = EvaluationArgs { n_ctx: Some(n_ctx), ..args.context.evaluation.clone() };
    let params = model::params(&ContextArgs { evaluation, ..args.context.clone() }, model);
    let params = if args.multiple_choice.is_some() { params.n_seq_max(2) } else { params };
    memory::check(model, &params)?;
    model::warn_beyond_training(params.n_ctx, model);
    let mut ctx = Context::new(model, params)?;
    adapters::apply(&args.context.adapters, &mut ctx)?;
    Ok(ctx)
}

/// Divide the tokens of the text into windows.
fn windows<'t>(args: &PerplexityArgs, tokens: &'t [Token], n_ctx: u32) -> Result<Windows<'t>, Error> {
    let windows = Windows::new(tokens, n_ctx as usize, args.stride.map(|stride| stride as usize));
    let windows = windows.ok_or_else(|| {
        Error::Refused(format!("-c {n_ctx} leaves nothing to score; give at least 4, and more than --stride"))
    })?;
    if windows.len() == 0 {
        return Err(Error::Refused(format!(
            "the text has {} tokens, and a window takes {n_ctx}; lower -c, or give a longer text",
            tokens.len()
        )));
    }
    Ok(windows.at_most(args.chunks.map_or(usize::MAX, |n| n as usize)))
}

/// The report: estimates as windows are done, and the final one.
struct Report {
    /// The terminal or the pipe.
    out: Output,
    /// The mean surprise of all tokens so far.
    surprise: Estimate,
}

impl Report {
    /// Evaluate the windows, and call `found` with each prediction.
    fn evaluate(
        &mut self,
        ctx: &mut Context,
        windows: Windows<'_>,
        found: &mut dyn FnMut(&Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let progress = Progress::counted("evaluating", "windows");
        let total = windows.len() as u64;
        for (window, n) in windows.zip(1..) {
            let mut result = Ok(());
            judge::score(ctx, &window, &mut |row| {
                self.surprise.add(row.surprise());
                if result.is_ok() {
                    result = found(row);
                }
            })?;
            result?;
            progress.set(n, total);
            if !self.out.is_json() {
                let (value, last) = (self.surprise.perplexity(), n == total);
                progress.beside(|| {
                    self.out.stream(&format!("[{n}]{value:.4}{}", if last { "\n" } else { ", " }))
                })?;
            }
        }
        Ok(())
    }

    /// Evaluate the windows, and write the probabilities to `file`.
    fn evaluate_to(
        &mut self,
        ctx: &mut Context,
        windows: Windows<'_>,
        tokens: &[Token],
        file: File,
    ) -> Result<(), Error> {
        let (n_ctx, n_vocab) = (ctx.params().n_ctx as usize, ctx.model().hparams().n_vocab);
        let tokens = tokens.get(..windows.len() * n_ctx).unwrap_or(tokens);
        let mut file = BufWriter::new(file);
        let mut writer = BaseWriter::new(&mut file, tokens, n_ctx, n_vocab).map_err(of_base)?;
        self.evaluate(ctx, windows, &mut |row| writer.row(row).map_err(of_base))?;
        file.flush().map_err(|source| of_base(BaseError::Io(source.into())))
    }

    /// Print the final estimate.
    fn finish(&mut self) -> Result<(), Error> {
        let (value, error, n) =
            (self.surprise.perplexity(), self.surprise.perplexity_error(), self.surprise.n());
        if self.out.is_json() {
            self.out.value(&json!({
                "perplexity": value, "standard_error": error, "tokens": n,
                "negative_log_likelihood": self.surprise.mean(),
            }))?;
        } else {
            self.out.line(format_args!("Final estimate: PPL = {value:.4} +/- {error:.5}"))?;
        }
        Ok(self.out.flush()?)
    }
}

/// Return the error of the command for one about a file of probabilities.
fn of_base(error: BaseError) -> Error {
    Error::Refused(format!("--kl-divergence-base: {error}"))
}
