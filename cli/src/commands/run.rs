//! `backstitch run`: continue a text.

use crate::args::{ModelArgs, RunArgs};
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::output::{Output, bytes, note};
use crate::session::{Session, Stop, Until};
use crate::{embedded, model, prompt};
use backstitch_models::speculative::{DraftModel, Drafter, Lookup};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Model, Params, Token};
use serde_json::json;

/// Runs the command.
///
/// # Errors
/// If there is no sound model or the prompt does not fit, [`Error::Interrupted`] after Ctrl-C.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let prompt = match prompt::read(&args.input)? {
        None if args.model.model.is_none() => embedded::BEGINNING.into(),
        prompt => prompt.unwrap_or_default(),
    };
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let tokens = tokenize(&model, &prompt)?;
    let mut session = Session::new(&model, &args.context, &args.sampling)?;
    if let Some(drafter) = drafter(args, &model, session.n_ctx())? {
        session.guess_with(drafter, args.speculation.draft_max.into());
    }
    if args.verbose {
        introduce(&model, &session);
    }

    let mut out = Output::new(args.json);
    let streaming = !args.json;
    let _stoppable = Stoppable::begin();
    session.prompt(&tokens)?;
    // What an encoder-decoder says is an answer, not a continuation.
    let shows_prompt = !args.no_display_prompt && model.graph().encoder().is_none();
    if streaming && shows_prompt {
        out.stream(prompt.as_bytes())?;
    }
    let (mut text, mut ids) = (String::new(), Vec::new());
    let until = Until { ignore_eos: args.ignore_eos, ..Until::tokens(args.n_predict) };
    let stop = session.generate(until, |token, piece| {
        if streaming {
            return Ok(out.stream(piece.as_bytes())?);
        }
        text.push_str(piece);
        ids.push(token.0);
        Ok(())
    })?;
    if streaming {
        out.line("")?;
    } else {
        out.value(&as_json(&prompt, &text, &ids, stop, &session))?;
    }
    out.flush()?;
    if args.verbose {
        session.stats.lines().iter().for_each(|line| note("note", line));
    }
    match stop {
        Stop::Interrupted => Err(Error::Interrupted),
        Stop::ContextFull => {
            note(
                "note",
                format_args!("stopped: the context of {} tokens is full; raise -c to go on", session.n_ctx()),
            );
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

fn as_json(prompt: &str, text: &str, ids: &[u32], stop: Stop, session: &Session) -> serde_json::Value {
    let stats = &session.stats;
    json!({
        "prompt": prompt,
        "content": text,
        "tokens": ids,
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
    })
}
