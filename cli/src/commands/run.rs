//! `backstitch run`: continue a text.
//!
//! The order of the steps is the order in which a person wants to hear about problems: the target
//! of `--save` and the prompt are checked before the model is loaded, and the text that would be
//! replaced before the prompt is evaluated. From then on a signal stops the work, and `--save`
//! still saves what was evaluated and generated. With a model and nothing to continue, a person at
//! a terminal gets a chat.

use crate::args::RunArgs;
use crate::drafter::drafter;
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::output::{Output, bytes, counted, note};
use crate::progress::Progress;
use crate::prompt_cache::PromptCache;
use crate::session::{Session, Until};
use crate::target::{Kind, Saving, Target, Text};
use crate::{embedded, model, prompt, terminal};
use backstitch_models::session::Finish;
use backstitch_models::vocab::ParseSpecial;
use backstitch_models::{Model, Token};
use serde_json::json;

/// Run the command.
///
/// # Errors
/// - [`Error::Read`] if the prompt cannot be read.
/// - [`Error::Refused`] if the prompt does not fit the context, or `--save` would replace another
///   text.
/// - [`Error::Engine`] or [`Error::State`] if the model or the saved session cannot be used.
/// - [`Error::NotSaved`] or [`Error::Write`] if the session cannot be saved.
/// - [`Error::Interrupted`] after Ctrl-C.
/// - The errors of a chat, if it opens one.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    if args.is_open() && terminal::is_there() {
        return super::chat::run(&args.as_chat());
    }
    let target = target(args)?;
    let prompt = match prompt::read(&args.input)? {
        Some(prompt) => prompt,
        None if args.model.model.is_none() && args.file.restore.is_none() => embedded::BEGINNING.into(),
        // A restored session continues without a prompt, and a model begins with its first token.
        None => String::new(),
    };
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    model::check_biases(&args.sampling, &model)?;
    let (mut session, tokens) = begin(args, &model, &prompt)?;
    expect_text(args, target.as_ref(), &model, &session, &tokens)?;
    let n_ctx = session.n_ctx();
    if let Some(drafter) = drafter(&args.speculation, &args.model, &args.context, &model, n_ctx)? {
        session.draft_with(drafter, args.speculation.draft_max.into());
    }
    if args.report.verbose {
        introduce(&model, &session);
        session.machine(args.context.n_threads).iter().for_each(|line| note("note", line));
    }

    // Nothing was evaluated so far, so a signal could end the program at once. From here on it asks
    // for a stop, and the session is saved first.
    let mut out = Output::new(args.report.json);
    let _stoppable = Stoppable::begin();
    let mut cache = PromptCache::open(&args.cache);
    evaluate(args, &model, &mut session, &tokens, &mut cache, target.as_ref())?;
    // An encoder-decoder answers the prompt and does not continue it.
    let is_shown = !args.report.json && !args.no_display_prompt && model.graph().encoder().is_none();
    let mut generated = Generated { prompt: &prompt, text: String::new(), ids: Vec::new() };
    let shown = if is_shown { out.stream(&prompt).map_err(Error::from) } else { Ok(()) };
    let ended = shown.and_then(|()| generate(args, &mut session, &mut out, &mut generated));
    // The session is saved even if the reader of the output went away, as `head` does. That is no
    // failure, but a failed save is.
    let saved = target.as_ref().map_or(Ok(()), |target| save(args, &mut session, target));
    if saved.is_err() && ended.as_ref().is_err_and(Error::is_closed_pipe) {
        return saved;
    }
    let stop = ended?;
    if let Some(cache) = &mut cache {
        cache.finish(&mut session);
    }
    if args.report.json {
        let cache = cache.as_ref().map(|cache| cache.as_json(&model, &tokens));
        out.value(&as_json(&generated, stop, &session, cache))?;
    }
    out.flush()?;
    session.report(args.report.verbose, !args.report.json);
    saved?;
    end(stop, &session)
}

/// Evaluate the prompt. The prompt cache, if there is one, provides the longest prefix that it has,
/// and gets the blocks that it lacks. If a signal stops the evaluation, `--save` keeps what was
/// evaluated.
fn evaluate(
    args: &RunArgs,
    model: &Model,
    session: &mut Session,
    tokens: &[Token],
    cache: &mut Option<PromptCache>,
    target: Option<&Target<'_>>,
) -> Result<(), Error> {
    if let Some(cache) = cache {
        cache.recall(session, tokens);
    }
    let reused = cache.as_ref().map_or(0, PromptCache::reused);
    // A restored session may continue without a prompt.
    if let Some(rest) = tokens.get(reused..).filter(|rest| !rest.is_empty()) {
        let fed = session.prompt(rest);
        if let (Err(Error::Interrupted), Some(target), false) = (&fed, target, session.tokens().is_empty()) {
            save(args, session, target)?;
        }
        fed?;
    }
    if let Some(cache) = cache {
        cache.report(model, tokens);
        cache.remember(session);
    }
    Ok(())
}

/// Make a new session, or restore one. Returns it with the tokens of the prompt that follow its
/// own.
fn begin(args: &RunArgs, model: &Model, prompt: &str) -> Result<(Session, Vec<Token>), Error> {
    let Some(path) = &args.file.restore else {
        let tokens = tokenize(model, prompt)?;
        return Ok((Session::new(model, &args.context, &args.sampling)?, tokens));
    };
    if !prompt.is_empty() && model.graph().encoder().is_some() {
        let text = "an encoder-decoder takes a prompt only at the beginning; leave out -p or --restore";
        return Err(Error::Refused(text.into()));
    }
    let session = Session::restore(model, &args.context, &args.sampling, path, args.file.sequence)?;
    let tokens = session.tokenize_behind(prompt);
    let held = session.tokens().len();
    note("note", format_args!("restored {} from {}", counted(held, "token"), path.display()));
    Ok((session, tokens))
}

/// The generated text and its prompt, for `--json`. Without `--json` the text is printed as it
/// comes and not collected.
struct Generated<'a> {
    /// Text of the prompt.
    prompt: &'a str,
    /// Generated text.
    text: String,
    /// Generated tokens, by number.
    ids: Vec<u32>,
}

/// Generate tokens. Their text is printed as it comes, or collected for `--json`.
fn generate(
    args: &RunArgs,
    session: &mut Session,
    out: &mut Output,
    generated: &mut Generated,
) -> Result<Finish, Error> {
    let stops = args.stops.texts(args.input.escape);
    let until = Until { ignore_eos: args.ignore_eos, stops, ..Until::tokens(args.n_predict) };
    let stop = session.generate(until, |piece| {
        if !args.report.json {
            return Ok(out.stream(&piece.text)?);
        }
        generated.text.push_str(&piece.text);
        generated.ids.extend(piece.tokens.iter().map(|token| token.0));
        Ok(())
    })?;
    if !args.report.json {
        out.line("")?;
        out.flush()?;
    }
    Ok(stop)
}

/// Check the file of `--save`, before the work.
fn target(args: &RunArgs) -> Result<Option<Target<'_>>, Error> {
    let Some(path) = &args.file.save else { return Ok(None) };
    let read =
        [&args.input.file, &args.model.model, &args.speculation.draft_model].map(|path| path.as_deref());
    Target::check_in_place(path, "--save", Kind::State, args.file.restore.as_deref(), &read).map(Some)
}

/// Check that `--save` replaces no other text than the one that begins with the session's tokens
/// `held` and the prompt.
fn expect_text(
    args: &RunArgs,
    target: Option<&Target<'_>>,
    model: &Model,
    session: &Session,
    prompt: &[Token],
) -> Result<(), Error> {
    let Some(target) = target.filter(|_| !args.file.force) else { return Ok(()) };
    // The prompt of an encoder-decoder is no part of the text that its decoder continues.
    let prompt = if model.graph().encoder().is_some() { &[] } else { prompt };
    // With temperature 0 or a fixed seed, the same command generates the same text again.
    let is_repeatable = args.sampling.temp == 0.0 || args.sampling.seed >= 0;
    let saving = match args.n_predict {
        0 => Saving::All,
        _ if is_repeatable => Saving::Again,
        _ => Saving::Beginning,
    };
    let tokens = [session.tokens(), prompt].concat();
    target.expect_text(Text { model: &session.fingerprint(), tokens: &tokens, saving })
}

/// Save the session, and say where and how much was written.
fn save(args: &RunArgs, session: &mut Session, target: &Target<'_>) -> Result<(), Error> {
    let (fingerprint, tokens) = (session.fingerprint(), session.tokens().to_vec());
    let text = Text { model: &fingerprint, tokens: &tokens, saving: Saving::All };
    let progress = Progress::endless("saving");
    let (path, saved) = target.save(text, args.file.force, |path, watch| session.save(path, watch))?;
    drop(progress);
    let (held, written) = (counted(session.tokens().len(), "token"), bytes(saved.container.written));
    note("note", format_args!("saved {held} to {}, {written} written", path.display()));
    Ok(())
}

/// Return the result of the command, and say if the context was too small for the text.
fn end(stop: Finish, session: &Session) -> Result<(), Error> {
    match stop {
        Finish::Cancelled => Err(Error::Interrupted),
        Finish::ContextFull => {
            let n_ctx = session.n_ctx();
            note(
                "note",
                format_args!("stopped: the context of {n_ctx} tokens is full; raise -c to continue"),
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Tokenize the prompt. An empty prompt becomes the token with which the model begins a text.
pub(super) fn tokenize(model: &Model, prompt: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    model.vocab().tokenize(prompt, model.prompt_special(), ParseSpecial::Yes, &mut tokens);
    if tokens.is_empty() {
        tokens.extend(model.vocab().bos());
    }
    if tokens.is_empty() {
        return Err(Error::Refused(
            "the prompt is empty and this model has no token to begin with; give -p".into(),
        ));
    }
    Ok(tokens)
}

/// Print the line of `-v` about the model.
fn introduce(model: &Model, session: &Session) {
    let hparams = model.hparams();
    note(
        "note",
        format_args!(
            "{}, {}, {} layers, {} of weights, context of {} tokens, seed {}",
            model.name().unwrap_or("model without a name"),
            hparams.architecture,
            hparams.n_layer,
            bytes(model.n_bytes() as u64),
            session.n_ctx(),
            session.seed
        ),
    );
}

/// Return the result as JSON, with llama.cpp's names for its fields.
fn as_json(
    generated: &Generated,
    stop: Finish,
    session: &Session,
    cache: Option<serde_json::Value>,
) -> serde_json::Value {
    let stats = &session.stats;
    json!({
        "prompt": generated.prompt,
        "content": generated.text,
        "tokens": generated.ids,
        "seed": session.seed,
        "stop_type": match stop {
            Finish::End(_) => "eos",
            Finish::Stop { .. } => "word",
            Finish::Cancelled => "interrupt",
            _ => "limit",
        },
        "truncated": stop == Finish::ContextFull,
        "timings": {
            "prompt_n": stats.n_prompt,
            "prompt_ms": stats.prompt_time.as_secs_f64() * 1e3,
            "predicted_n": stats.n_generated,
            "predicted_ms": stats.generation_time.as_secs_f64() * 1e3,
            "draft_n": stats.drafts.n_drafted,
            "draft_n_accepted": stats.drafts.n_accepted,
            "decode_n": stats.drafts.n_decodes,
        },
        "prompt_cache": cache,
    })
}
