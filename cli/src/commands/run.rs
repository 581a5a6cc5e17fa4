//! `backstitch run`: continue a text.

use crate::args::{ModelArgs, RunArgs};
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::output::{Output, bytes, note};
use crate::prompt_cache::PromptCache;
use crate::session::{Session, Stop, Until};
use crate::{embedded, model, prompt};
use backstitch_models::speculative::{DraftModel, Drafter, Lookup};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Model, Params, Token};
use serde_json::json;
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// If there is no sound model or the prompt does not fit, [`Error::Interrupted`] after Ctrl-C.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let prompt = match prompt::read(&args.input)? {
        None if args.model.model.is_none() && args.file.restore.is_none() => embedded::BEGINNING.into(),
        prompt => prompt.unwrap_or_default(),
    };
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let (mut session, tokens) = begin(args, &model, &prompt)?;
    if let Some(drafter) = drafter(args, &model, session.n_ctx())? {
        session.guess_with(drafter, args.speculation.draft_max.into());
    }
    if args.verbose {
        introduce(&model, &session);
        session.machine(args.context.n_threads).iter().for_each(|line| note("note", line));
    }

    let mut out = Output::new(args.json);
    let _stoppable = Stoppable::begin();
    let mut cache = PromptCache::open(&args.cache);
    if let Some(cache) = &mut cache {
        cache.recall(&mut session, &tokens);
    }
    let reused = cache.as_ref().map_or(0, PromptCache::reused);
    // What was restored may go on without one.
    if let Some(rest) = tokens.get(reused..).filter(|rest| !rest.is_empty()) {
        session.prompt(rest)?;
    }
    if let Some(cache) = &mut cache {
        cache.report(&model, &tokens);
        cache.remember(&session);
    }
    // What an encoder-decoder says is an answer, not a continuation.
    if !args.json && !args.no_display_prompt && model.graph().encoder().is_none() {
        out.stream(prompt.as_bytes())?;
    }
    let mut story = Story { prompt: &prompt, text: String::new(), ids: Vec::new() };
    let stop = tell(args, &mut session, &mut out, &mut story)?;
    if let Some(cache) = &mut cache {
        cache.finish(&session);
    }
    if args.json {
        let cache = cache.as_ref().map(|cache| cache.as_json(&model, &tokens));
        out.value(&as_json(&story, stop, &session, cache))?;
    }
    out.flush()?;
    if args.verbose {
        session.stats.lines().iter().for_each(|line| note("note", line));
    }
    if let Some(path) = &args.file.save {
        save(&session, path)?;
    }
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
    let session = Session::restore(model, &args.context, &args.sampling, path)?;
    let mut tokens = Vec::new();
    // The beginning of the text is in the session.
    model.vocab().tokenize(prompt, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
    let held = session.tokens()?.len();
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
fn tell(args: &RunArgs, session: &mut Session, out: &mut Output, story: &mut Story) -> Result<Stop, Error> {
    let until = Until { ignore_eos: args.ignore_eos, ..Until::tokens(args.n_predict) };
    let stop = session.generate(until, |token, piece| {
        if !args.json {
            return Ok(out.stream(piece.as_bytes())?);
        }
        story.text.push_str(piece);
        story.ids.push(token.0);
        Ok(())
    })?;
    if !args.json {
        out.line("")?;
        out.flush()?;
    }
    Ok(stop)
}

fn save(session: &Session, path: &Path) -> Result<(), Error> {
    let saved = session.save(path)?;
    let (held, written) = (session.tokens()?.len(), bytes(saved.container.written));
    note("note", format_args!("saved {held} tokens to {}, {written} written", path.display()));
    Ok(())
}

fn end(stop: Stop, session: &Session) -> Result<(), Error> {
    match stop {
        Stop::Interrupted => Err(Error::Interrupted),
        Stop::ContextFull => {
            let n_ctx = session.n_ctx();
            note("note", format_args!("stopped: the context of {n_ctx} tokens is full; raise -c to go on"));
            Ok(())
        }
        Stop::End | Stop::Limit => Ok(()),
    }
}

/// What guesses ahead, if the user wants that.
fn drafter(args: &RunArgs, model: &Model, n_ctx: usize) -> Result<Option<Box<dyn Drafter>>, Error> {
    if args.speculation.lookup {
        return Ok(Some(Box::new(Lookup::default())));
    }
    let Some(path) = &args.speculation.draft_model else { return Ok(None) };
    let file = ModelArgs { model: Some(path.clone()), ..args.model.clone() };
    let draft = model::open(&file, model::n_threads(args.context.n_threads))?;
    let params = Params { n_ctx: n_ctx as u32, ..model::params(&args.context, &draft) };
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
    stop: Stop,
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
            Stop::End => "eos",
            Stop::Limit | Stop::ContextFull => "limit",
            Stop::Interrupted => "interrupt",
        },
        "truncated": stop == Stop::ContextFull,
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
