//! `backstitch timeline`: what a sequence holds, drawn.

use super::run::tokenize;
use crate::args::TimelineArgs;
use crate::error::Error;
use crate::interrupt::{self, Stoppable};
use crate::output::{Output, note};
use crate::picture::{Picture, json, svg, text};
use crate::session::too_long;
use crate::{embedded, model, prompt};
use backstitch_models::{Context, Model, Params, Pos, SeqId, Token};
use std::path::Path;

/// Tokens of the story that the embedded model tells when nothing is asked for.
const STORY: u32 = 600;

/// Runs the command.
///
/// # Errors
/// If there is no sound model, the text does not fit, a position is not there, or the output fails;
/// [`Error::Interrupted`] after Ctrl-C.
pub fn run(args: &TimelineArgs) -> Result<(), Error> {
    let to_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if to_stdout && args.json {
        return Err(Error::Refused("--json and --svg - both want standard output; give --svg a file".into()));
    }
    let prompt = prompt::read(&args.input)?;
    let story = prompt.is_none() && args.model.model.is_none();
    let prompt = if story { embedded::BEGINNING.into() } else { prompt.unwrap_or_default() };
    let n_predict = args.n_predict.unwrap_or(if story { STORY } else { 0 });
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let tokens = tokenize(&model, &prompt)?;
    let picture = picture(args, &model, &tokens, n_predict as usize)?;

    let mut out = Output::new(args.json);
    match &args.svg {
        Some(_) if to_stdout => out.stream(svg::draw(&picture).as_bytes())?,
        Some(path) => {
            let failed = |source| Error::Write { path: path.clone(), source };
            std::fs::write(path, svg::draw(&picture)).map_err(failed)?;
            note("note", format_args!("drawn to {}", path.display()));
            show(&mut out, &picture)?;
        }
        None => show(&mut out, &picture)?,
    }
    Ok(out.flush()?)
}

fn show(out: &mut Output, picture: &Picture) -> Result<(), Error> {
    if out.is_json() {
        return Ok(out.value(&json::value(picture))?);
    }
    for line in text::draw(picture) {
        let styled = |span: &text::Span| {
            let style = out.style(span.ink.style());
            format!("{style}{}{style:#}", span.text)
        };
        let line: String = line.iter().map(styled).collect();
        out.line(line.trim_end())?;
    }
    Ok(())
}

/// Does what was asked for and looks at what is held then.
fn picture(args: &TimelineArgs, model: &Model, tokens: &[Token], n_predict: usize) -> Result<Picture, Error> {
    let n_tokens = tokens.len().saturating_add(n_predict);
    let params = params(args, model);
    // Forks go on with a token of their own.
    let needed = n_tokens.saturating_add(usize::from(args.forks > 0));
    let mut ctx = Context::new(model, params)?;
    let n_ctx = ctx.params().n_ctx as usize;
    if needed > n_ctx {
        return Err(too_long(needed, n_ctx));
    }
    check_positions(args, n_tokens)?;
    let mut pins: Vec<usize> = args.pin.iter().map(|&pos| pos as usize).collect();
    pins.sort_unstable();
    let _stoppable = Stoppable::begin();
    let seq = ctx.sequence()?;
    feed(&mut ctx, seq, tokens, &pins)?;
    generate(&mut ctx, seq, n_tokens, &pins)?;
    let forks =
        (0..args.forks).map(|rank| fork(&mut ctx, seq, rank.into())).collect::<Result<Vec<_>, _>>()?;
    let mut rollbacks = Vec::new();
    for &pos in &args.rollback {
        let pos = Pos(i32::try_from(pos).unwrap_or(i32::MAX));
        rollbacks.push((pos, ctx.rollback(seq, pos)?));
    }
    Ok(Picture {
        model: model.name().unwrap_or("model without a name").into(),
        survey: ctx.survey(seq)?,
        ways: ctx.positions(seq)?,
        forks: forks.into_iter().map(|fork| ctx.survey(fork)).collect::<Result<_, _>>()?,
        rollbacks,
    })
}

/// Positions have to be there when it is their turn.
fn check_positions(args: &TimelineArgs, n_tokens: usize) -> Result<(), Error> {
    if let Some(pin) = args.pin.iter().find(|pin| **pin as usize > n_tokens) {
        return Err(Error::Refused(format!("cannot pin {pin}: the sequence has {n_tokens} tokens")));
    }
    let mut end = n_tokens;
    for &pos in &args.rollback {
        if pos as usize > end {
            return Err(Error::Refused(format!(
                "cannot roll back to {pos}: the sequence ends at {end} then"
            )));
        }
        end = pos as usize;
    }
    Ok(())
}

fn params(args: &TimelineArgs, model: &Model) -> Params {
    Params { n_seq_max: 1 + u32::from(args.forks), ..model::params(&args.context, model) }
}

/// Evaluates `tokens`, stopping at `pins` (ascending) to pin them.
fn feed(ctx: &mut Context, seq: SeqId, tokens: &[Token], pins: &[usize]) -> Result<(), Error> {
    let mut start = 0;
    let n_batch = ctx.params().n_batch as usize;
    while start < tokens.len() {
        stop_if_asked()?;
        let pin = pins.iter().copied().find(|&pin| pin > start).unwrap_or(usize::MAX);
        let end = tokens.len().min(pin).min(start + n_batch);
        ctx.append(seq, tokens.get(start..end).unwrap_or(&[]))?;
        if end == pin {
            ctx.pin(seq)?;
        }
        start = end;
    }
    Ok(())
}

/// Goes on with the likeliest tokens until there are `n_tokens`.
fn generate(ctx: &mut Context, seq: SeqId, n_tokens: usize, pins: &[usize]) -> Result<(), Error> {
    for len in ctx.tokens(seq)?.len() + 1..=n_tokens {
        stop_if_asked()?;
        let token = likely(ctx, seq, 0);
        ctx.append(seq, &[token])?;
        if pins.contains(&len) {
            ctx.pin(seq)?;
        }
    }
    Ok(())
}

/// A sequence that parts from `seq` and goes on with the likeliest token, or, for a `rank` above 0, one less likely.
fn fork(ctx: &mut Context, seq: SeqId, rank: usize) -> Result<SeqId, Error> {
    stop_if_asked()?;
    let token = likely(ctx, seq, rank);
    let fork = ctx.fork(seq)?;
    ctx.append(fork, &[token])?;
    Ok(fork)
}

/// The token that comes `rank` places after the likeliest.
fn likely(ctx: &Context, seq: SeqId, rank: usize) -> Token {
    let logits = ctx.logits(seq).unwrap_or(&[]);
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let Some(rank) = order.len().checked_sub(1).map(|last| rank.min(last)) else { return Token::default() };
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    Token(*order.select_nth_unstable_by(rank, by_logit).1)
}

fn stop_if_asked() -> Result<(), Error> {
    if interrupt::requested() { Err(Error::Interrupted) } else { Ok(()) }
}
