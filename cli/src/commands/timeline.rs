//! `backstitch timeline`: draw the memory of a sequence, with the cost of every rollback.
//!
//! The command does to a sequence what its options ask for (evaluate, pin, generate, fork, roll
//! back, in this order) and surveys the memory at the end. `picture` draws the result.

use super::run::tokenize;
use crate::args::TimelineArgs;
use crate::error::Error;
use crate::output::{Output, note};
use crate::picture::{Picture, json, svg, text};
use crate::progress::Progress;
use crate::session::too_long;
use crate::target::{Kind, Target};
use crate::{adapters, embedded, memory, model, prompt};
use backstitch_models::{Context, Model, Params, Pos, SeqId, Token};
use std::io::Write;
use std::path::Path;

/// Number of tokens that the embedded model generates if neither text nor model is given.
const N_DEFAULT: u32 = 600;

/// Run the command.
///
/// # Errors
/// - [`Error::Refused`] if the text does not fit the context, a position lies beyond its end, or
///   both outputs go to standard output.
/// - [`Error::Engine`] if the model cannot be loaded or evaluated.
/// - [`Error::Read`] or [`Error::Write`] if a file cannot be read or written.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &TimelineArgs) -> Result<(), Error> {
    let to_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if to_stdout && args.json {
        return Err(Error::Refused("--json and --svg - both want standard output; give --svg a file".into()));
    }
    let target = match args.svg.as_deref().filter(|_| !to_stdout) {
        Some(path) => {
            let read = [args.input.file.as_deref(), args.model.model.as_deref()];
            Some(Target::check(path, "--svg", Kind::Drawing, &read)?)
        }
        None => None,
    };
    let prompt = prompt::read(&args.input)?;
    let is_default = prompt.is_none() && args.model.model.is_none();
    let prompt = if is_default { embedded::BEGINNING.into() } else { prompt.unwrap_or_default() };
    let n_predict = args.n_predict.unwrap_or(if is_default { N_DEFAULT } else { 0 });
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let tokens = tokenize(&model, &prompt)?;
    let picture = picture(args, &model, &tokens, n_predict as usize)?;

    let mut out = Output::new(args.json);
    if to_stdout {
        out.stream(&svg::draw(&picture))?;
        return Ok(());
    }
    if let Some(target) = target {
        target.write(|mut file| file.write_all(svg::draw(&picture).as_bytes()))?;
        note("note", format_args!("drawn to {}", target.path().display()));
    }
    show(&mut out, &picture)?;
    Ok(out.flush()?)
}

/// Print the picture, or its numbers with `--json`.
fn show(out: &mut Output, picture: &Picture) -> Result<(), Error> {
    if out.is_json() {
        return Ok(out.value(&json::value(picture))?);
    }
    for line in text::draw(picture, out.columns()) {
        let styled = |span: &text::Span| {
            let style = out.style(span.ink.style());
            format!("{style}{}{style:#}", span.text)
        };
        let line: String = line.iter().map(styled).collect();
        out.line(line.trim_end())?;
    }
    Ok(())
}

/// Carry out what the options ask for and survey the memory afterwards.
fn picture(args: &TimelineArgs, model: &Model, tokens: &[Token], n_predict: usize) -> Result<Picture, Error> {
    let n_tokens = tokens.len().saturating_add(n_predict);
    let params = params(args, model);
    // Each fork continues with a token of its own.
    let needed = n_tokens.saturating_add(usize::from(args.forks > 0));
    memory::check(model, &params)?;
    let mut ctx = Context::new(model, params)?;
    adapters::apply(&args.context.adapters, &mut ctx)?;
    let n_ctx = ctx.params().n_ctx as usize;
    if needed > n_ctx {
        return Err(too_long(needed, n_ctx));
    }
    check_positions(args, n_tokens)?;
    let mut pins: Vec<usize> = args.pin.iter().map(|&pos| pos as usize).collect();
    pins.sort_unstable();
    let seq = ctx.sequence()?;
    let progress = Progress::counted("evaluating", "tokens");
    feed(&mut ctx, seq, tokens, &pins, |n| progress.set(n as u64, n_tokens as u64))?;
    generate(&mut ctx, seq, n_tokens, &pins, |n| progress.set(n as u64, n_tokens as u64))?;
    drop(progress);
    let progress = (!args.rollback.is_empty()).then(|| Progress::endless("rolling back"));
    let forks =
        (0..args.forks).map(|rank| fork(&mut ctx, seq, rank.into())).collect::<Result<Vec<_>, _>>()?;
    let mut rollbacks = Vec::new();
    for &pos in &args.rollback {
        let pos = Pos(i32::try_from(pos).unwrap_or(i32::MAX));
        rollbacks.push((pos, ctx.rollback(seq, pos)?));
    }
    drop(progress);
    Ok(Picture {
        model: model.name().unwrap_or("model without a name").into(),
        survey: ctx.survey(seq)?,
        costs: ctx.positions(seq)?,
        forks: forks.into_iter().map(|fork| ctx.survey(fork)).collect::<Result<_, _>>()?,
        rollbacks,
    })
}

/// Check that every position to pin or to roll back to is reached at that time.
///
/// # Errors
/// [`Error::Refused`] with the first that is not.
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

/// Return the parameters of a context with a sequence for each fork.
fn params(args: &TimelineArgs, model: &Model) -> Params {
    (model::params(&args.context, model)).n_seq_max(1 + u32::from(args.forks))
}

/// Evaluate `tokens`, and pin the positions in `pins`, which ascend.
fn feed(
    ctx: &mut Context,
    seq: SeqId,
    tokens: &[Token],
    pins: &[usize],
    report: impl Fn(usize),
) -> Result<(), Error> {
    let mut start = 0;
    let n_batch = ctx.params().n_ubatch as usize;
    while start < tokens.len() {
        let pin = pins.iter().copied().find(|&pin| pin > start).unwrap_or(usize::MAX);
        let end = tokens.len().min(pin).min(start + n_batch);
        ctx.append(seq, tokens.get(start..end).unwrap_or(&[]))?;
        if end == pin {
            ctx.pin(seq)?;
        }
        start = end;
        report(start);
    }
    Ok(())
}

/// Append the most likely tokens until there are `n_tokens`.
fn generate(
    ctx: &mut Context,
    seq: SeqId,
    n_tokens: usize,
    pins: &[usize],
    report: impl Fn(usize),
) -> Result<(), Error> {
    for len in ctx.tokens(seq)?.len() + 1..=n_tokens {
        let token = likely(ctx, seq, 0)?;
        ctx.append(seq, &[token])?;
        if pins.contains(&len) {
            ctx.pin(seq)?;
        }
        report(len);
    }
    Ok(())
}

/// Fork `seq`, and append to the fork the token of this rank: 0 is the most likely.
fn fork(ctx: &mut Context, seq: SeqId, rank: usize) -> Result<SeqId, Error> {
    let token = likely(ctx, seq, rank)?;
    let fork = ctx.fork(seq)?;
    ctx.append(fork, &[token])?;
    Ok(fork)
}

/// Return the token that comes `rank` places after the most likely.
fn likely(ctx: &mut Context, seq: SeqId, rank: usize) -> Result<Token, Error> {
    let logits = ctx.logits(seq)?;
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let Some(last) = order.len().checked_sub(1) else { return Ok(Token::default()) };
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    Ok(Token(*order.select_nth_unstable_by(rank.min(last), by_logit).1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fork_continues_with_another_of_the_most_likely_tokens() {
        let model = Model::from_bytes(embedded::GGUF).unwrap();
        let mut ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(4)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &tokenize(&model, "Once upon a time").unwrap()).unwrap();
        let logits = ctx.logits(seq).unwrap().to_vec();
        let mut next = Vec::new();
        for rank in 0..3 {
            let fork = fork(&mut ctx, seq, rank).unwrap();
            next.extend(ctx.tokens(fork).unwrap().last().map(|token| logits[token.0 as usize]));
        }
        let mut best = logits;
        best.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(next, best[..3]);
    }
}
