//! `backstitch run`: continue a text.

use crate::args::{ModelArgs, RunArgs};
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::output::{Output, bytes, note};
use crate::progress::Progress;
use crate::prompt_cache::PromptCache;
use crate::session::{Session, Until};
use crate::target::{Kind, Saving, Target, Text};
use crate::{embedded, model, prompt};
use backstitch_models::session::Finish;
use backstitch_models::speculative::{DraftModel, Drafter, Lookup};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Model, Token};
use serde_json::json;

/// Runs the command.
///
/// # Errors
/// If there is no sound model or the prompt does not fit, [`Error::Interrupted`] after Ctrl-C.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let target = target(args)?;
    let prompt = match prompt::read(&args.input)? {
        None if args.model.model.is_none() && args.file.restore.is_none() => embedded::BEGINNING.into(),
        prompt => prompt.unwrap_or_default(),
    };
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    model::check_biases(&args.sampling, &model)?;
    let (mut session, tokens) = begin(args, &model, &prompt)?;
    expect_text(args, target.as_ref(), &model, session.tokens(), &tokens)?;
    if let Some(drafter) = drafter(args, &model, session.n_ctx())? {
        session.guess_with(drafter, args.speculation.draft_max.into());
    }
    if args.report.verbose {
        introduce(&model, &session);
        session.machine(args.context.n_threads).iter().for_each(|line| note("note", line));
    }

    let mut out = Output::new(args.report.json);
    let _stoppable = Stoppable::begin();
    let mut cache = PromptCache::open(&args.cache);
    if let Some(cache) = &mut cache {
        cache.recall(&mut session, &tokens);
    }
    let reused = cache.as_ref().map_or(0, PromptCache::reused);
    // What was restored may go on without one.
    if let Some(rest) = tokens.get(reused..).filter(|rest| !rest.is_empty()) {
        let fed = session.prompt(rest);
        if let (Err(Error::Interrupted), Some(target), false) = (&fed, &target, session.tokens().is_empty()) {
            save(args, &model, &mut session, target)?;
        }
        fed?;
    }
    if let Some(cache) = &mut cache {
        cache.report(&model, &tokens);
        cache.remember(&mut session);
    }
    // What an encoder-decoder says is an answer, not a continuation.
    let is_shown = !args.report.json && !args.no_display_prompt && model.graph().encoder().is_none();
    let mut story = Story { prompt: &prompt, text: String::new(), ids: Vec::new() };
    let shown = if is_shown { out.stream(&prompt).map_err(Error::from) } else { Ok(()) };
    let told = shown.and_then(|()| tell(args, &mut session, &mut out, &mut story));
    // Also where nobody reads the text any more, what was asked to be saved is saved.
    let saved = target.as_ref().map_or(Ok(()), |target| save(args, &model, &mut session, target));
    if saved.is_err() && told.as_ref().is_err_and(Error::is_closed_pipe) {
        return saved;
    }
    let stop = told?;
    if let Some(cache) = &mut cache {
        cache.finish(&mut session);
    }
    if args.report.json {
        let cache = cache.as_ref().map(|cache| cache.as_json(&model, &tokens));
        out.value(&as_json(&story, stop, &session, cache))?;
    }
    out.flush()?;
    if args.report.verbose {
        session.stats.lines().iter().for_each(|line| note("note", line));
    }
    saved?;
    end(stop, &session)
}

/// A session, and the tokens of the prompt that it goes on with.
fn begin(args: &RunArgs, model: &Model, prompt: &str) -> Result<(Session, Vec<Token>), Error> {
    let Some(path) = &args.file.restore else {
        let tokens = tokenize(model, prompt)?;
        return Ok((Session::new(model, &args.context, &args.sampling)?, tokens));
    };
    if !prompt.is_empty() && model.graph().encoder().is_some() {
        let text = "a model that answers texts takes one only at the beginning; leave out -p or --restore";
        return Err(Error::Refused(text.into()));
    }
    let session = Session::restore(model, &args.context, &args.sampling, path, args.file.sequence)?;
    let tokens = session.tokenize_behind(prompt);
    let held = session.tokens().len();
    note("note", format_args!("restored {held} tokens from {}", path.display()));
    Ok((session, tokens))
}

/// Text that is generated.
struct Story<'a> {
    prompt: &'a str,
    text: String,
    ids: Vec<u32>,
}

/// Generates, and shows the text as it comes or collects it.
fn tell(args: &RunArgs, session: &mut Session, out: &mut Output, story: &mut Story) -> Result<Finish, Error> {
    let until = Until { ignore_eos: args.ignore_eos, ..Until::tokens(args.n_predict) };
    let stop = session.generate(until, |piece| {
        if !args.report.json {
            return Ok(out.stream(&piece.text)?);
        }
        story.text.push_str(&piece.text);
        story.ids.extend(piece.tokens.iter().map(|token| token.0));
        Ok(())
    })?;
    if !args.report.json {
        out.line("")?;
        out.flush()?;
    }
    Ok(stop)
}

/// Where the session is to be saved, checked before the work.
fn target(args: &RunArgs) -> Result<Option<Target<'_>>, Error> {
    let Some(path) = &args.file.save else { return Ok(None) };
    let read =
        [&args.input.file, &args.model.model, &args.speculation.draft_model].map(|path| path.as_deref());
    Target::check_in_place(path, "--save", Kind::State, args.file.restore.as_deref(), &read).map(Some)
}

/// Refuses to replace another text than the one that begins with `held` and the tokens of the prompt.
fn expect_text(
    args: &RunArgs,
    target: Option<&Target<'_>>,
    model: &Model,
    held: &[Token],
    prompt: &[Token],
) -> Result<(), Error> {
    let Some(target) = target.filter(|_| !args.file.force) else { return Ok(()) };
    // What an encoder-decoder encodes is no part of the text that it answers.
    let prompt = if model.graph().encoder().is_some() { &[] } else { prompt };
    let is_repeatable = args.sampling.temp == 0.0 || args.sampling.seed >= 0;
    let saving = match args.n_predict {
        0 => Saving::All,
        _ if is_repeatable => Saving::Again,
        _ => Saving::Beginning,
    };
    target.expect_text(Text { model: &model.fingerprint(), tokens: &[held, prompt].concat() }, saving)
}

fn save(args: &RunArgs, model: &Model, session: &mut Session, target: &Target<'_>) -> Result<(), Error> {
    let (fingerprint, tokens) = (model.fingerprint(), session.tokens().to_vec());
    let text = Text { model: &fingerprint, tokens: &tokens };
    let progress = Progress::endless("saving");
    let (path, saved) =
        target.save(text, Saving::All, args.file.force, |path, watch| session.save(path, watch))?;
    drop(progress);
    let (held, written) = (session.tokens().len(), bytes(saved.container.written));
    note("note", format_args!("saved {held} tokens to {}, {written} written", path.display()));
    Ok(())
}

fn end(stop: Finish, session: &Session) -> Result<(), Error> {
    match stop {
        Finish::Cancelled => Err(Error::Interrupted),
        Finish::ContextFull => {
            let n_ctx = session.n_ctx();
            note("note", format_args!("stopped: the context of {n_ctx} tokens is full; raise -c to go on"));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What guesses ahead, if the user wants that.
fn drafter(args: &RunArgs, model: &Model, n_ctx: usize) -> Result<Option<Box<dyn Drafter + Send>>, Error> {
    if args.speculation.lookup {
        return Ok(Some(Box::new(Lookup::default())));
    }
    let Some(path) = &args.speculation.draft_model else { return Ok(None) };
    let file = ModelArgs { model: Some(path.clone()), ..args.model.clone() };
    let draft = model::open(&file, model::n_threads(args.context.n_threads))?;
    let params = (model::params(&args.context, &draft)).n_ctx(n_ctx as u32);
    Ok(Some(Box::new(DraftModel::new(model, &draft, params)?)))
}

/// The tokens of the prompt; for an empty one, what the model begins a text with.
pub(super) fn tokenize(model: &Model, prompt: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    model.vocab().tokenize(prompt, AddSpecial::Yes, ParseSpecial::Yes, &mut tokens);
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

fn as_json(
    story: &Story,
    stop: Finish,
    session: &Session,
    cache: Option<serde_json::Value>,
) -> serde_json::Value {
    let stats = &session.stats;
    json!({
        "prompt": story.prompt,
        "content": story.text,
        "tokens": story.ids,
        "seed": session.seed,
        "stop_type": match stop {
            Finish::End(_) => "eos",
            Finish::Cancelled => "interrupt",
            _ => "limit",
        },
        "truncated": stop == Finish::ContextFull,
        "timings": {
            "prompt_n": stats.n_prompt,
            "prompt_ms": stats.prompt_time.as_secs_f64() * 1e3,
            "predicted_n": stats.n_generated,
            "predicted_ms": stats.generation_time.as_secs_f64() * 1e3,
            "draft_n": stats.guesses.n_drafted,
            "draft_n_accepted": stats.guesses.n_accepted,
            "decode_n": stats.guesses.n_decodes,
        },
        "prompt_cache": cache,
    })
}
