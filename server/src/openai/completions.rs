//! `/v1/completions`: text behind prompts, with scores of the prompts if they are echoed.

use super::chat::read_include_usage;
use super::chunks::{n_batch, sum_usage};
use super::scores::scores_json;
use super::{FINGERPRINT, text_finish_reason};
use crate::conversation::Meter;
use crate::engine::{Ended, Event, Generate};
use crate::http::{
    ApiError, App, Body, Client, Events, Frames, Outcome, Ready, Writer, blocking, n_values, new_id,
    probabilities_json, sse, timings_json, unix_time, usage_json, write_json,
};
use crate::native::Gap;
use crate::params::{Fields, Formatted, read_generate, read_prompts};
use axum::response::Response;
use backstitch_models::Token;
use backstitch_models::session::TokenLogprobs;
use backstitch_models::vocab::WriteSpecial;
use serde_json::{Value, json};
use std::sync::Arc;

/// Complete one or more prompts.
pub(super) async fn complete(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    let (shared, class) = (app.clone(), body.class());
    let Work { requests, shape, answers, is_stream } =
        blocking(&client, class, move |client| Work::read(&shared, client, Fields::new(&body))).await?;
    let events = Events::start(&app, requests)?;
    if is_stream {
        let ping = app.params().ping;
        return sse(events, Parts { shape, answers }, ping).await;
    }
    let outcomes = events.outcomes().await?;
    let n_values = n_values(&outcomes);
    write_json(&client, n_values, move || whole(&shape, &answers, &outcomes).to_string()).await
}

/// The requests of a body for the engine, and their answers, which have not begun.
struct Work {
    requests: Vec<Generate>,
    shape: Shape,
    answers: Vec<Answer>,
    is_stream: bool,
}

impl Work {
    /// Read what to do.
    fn read(app: &Arc<App>, client: &Client, fields: Fields<'_>) -> Result<Self, ApiError> {
        if app.params().embedding || app.params().reranking {
            return Err(ApiError::not_supported("this server was started for embeddings only"));
        }
        let prompts = read_prompts(app, client, fields, "prompt", app.model().prompt_special())?;
        let echo = fields.bool("echo")?.unwrap_or(false);
        let n_listed = read_listed(fields)?;
        let suffix = fields.str("suffix")?.filter(|text| !text.is_empty() && Gap::is_known(app.vocab()));
        let given = fields.get("prompt").and_then(Value::as_str);
        let (mut tokens, mut echoed) = (Vec::new(), Vec::new());
        for prompt in prompts {
            let text = || given.map_or_else(|| written(app, &prompt), str::to_owned);
            echoed.push(echo.then(text));
            tokens.push(match suffix {
                Some(suffix) => fill(app, client, fields, &text(), suffix)?,
                None => prompt,
            });
        }
        let n_prompts = tokens.len();
        let n_tokens = tokens.iter().map(Vec::len).sum();
        let mut tokens = tokens.into_iter();
        let formatted = Formatted::read(fields, |name| name != "prompt")?;
        let generate = Fields::new(&formatted.fields);
        let reading = read_generate(generate, app, client, tokens.next().unwrap_or_default());
        let mut reading = reading.map_err(|error| formatted.named(error))?;
        reading.check_answers(app, n_prompts)?;
        check_best_of(fields, reading.n)?;
        let (is_stream, n_answers) = (reading.stream, reading.n);
        if n_listed.is_some() {
            reading.generate.logprobs = n_listed;
            // What the model reads around a gap is not the text that is echoed. With 0 clients
            // expect numbers alone, but a prompt's first token has no score.
            reading.generate.prompt_logprobs = n_listed.filter(|&n| echo && n > 0 && suffix.is_none());
        }
        reading.bound_listed(app, fields, n_prompts, n_tokens)?;
        let mut ignored = core::mem::take(&mut reading.ignored);
        ignored.extend(is_suffix_ignored(app, fields)?.then(|| "suffix".to_owned()));
        let requests = reading.requests(app, tokens.collect());
        let echoed = echoed.iter().flat_map(|echoed| core::iter::repeat_n(echoed, n_answers));
        let answers = requests.iter().zip(echoed).enumerate();
        let answers = answers.map(|(i, (request, echo))| {
            let meter = Meter::new(request.prompt.len(), ignored.clone());
            Answer::new(i, meter, echo.clone())
        });
        let answers = answers.collect();
        let shape = read_shape(app, fields, n_answers)?;
        Ok(Work { requests, shape, answers, is_stream })
    }
}

/// Read the number of likeliest tokens to tell beside each token; `None` for no log-probabilities.
fn read_listed(fields: Fields<'_>) -> Result<Option<usize>, ApiError> {
    match fields.get("logprobs").is_some_and(Value::is_boolean) {
        true => Ok(fields.bool("logprobs")?.filter(|&on| on).map(|_| 0)),
        false => Ok(fields.u64("logprobs")?.map(|n| n.min(1000) as usize)),
    }
}

/// Return the prompt of a gap between `prefix` and `suffix`.
fn fill(
    app: &App,
    client: &Client,
    fields: Fields<'_>,
    prefix: &str,
    suffix: &str,
) -> Result<Vec<Token>, ApiError> {
    let n_predict = fields.i64("max_tokens")?.unwrap_or(-1);
    Gap { prefix, suffix, ..Gap::default() }.tokens(app, client, n_predict)
}

/// Refuse to choose the best of more answers than are returned.
fn check_best_of(fields: Fields<'_>, n: usize) -> Result<(), ApiError> {
    match fields.u64("best_of")? {
        Some(best_of) if best_of > n as u64 => {
            Err(ApiError::field("best_of", "no more than \"n\": all answers are returned"))
        }
        _ => Ok(()),
    }
}

/// Return true if the request has a suffix, and the vocabulary no tokens for a gap before it.
fn is_suffix_ignored(app: &App, fields: Fields<'_>) -> Result<bool, ApiError> {
    let has_suffix = fields.str("suffix")?.is_some_and(|suffix| !suffix.is_empty());
    Ok(has_suffix && !Gap::is_known(app.vocab()))
}

/// Return the text of tokens.
fn written(app: &App, tokens: &[Token]) -> String {
    let own = tokens.strip_prefix(app.vocab().bos().as_slice()).unwrap_or(tokens);
    String::from_utf8_lossy(&app.vocab().detokenize(own, WriteSpecial::Yes)).into_owned()
}

/// The common parts of all answers.
struct Shape {
    app: Arc<App>,
    id: String,
    created: u64,
    include_usage: bool,
    timings_per_token: bool,
    is_progress: bool,
    is_sampled: bool,
    /// The number of answers to each prompt.
    n_answers: usize,
}

/// Read what the shape of the answer depends on.
fn read_shape(app: &Arc<App>, fields: Fields<'_>, n_answers: usize) -> Result<Shape, ApiError> {
    let include_usage = read_include_usage(fields)?;
    Ok(Shape {
        app: app.clone(),
        id: new_id("cmpl-"),
        created: unix_time(),
        include_usage,
        timings_per_token: fields.bool("timings_per_token")?.unwrap_or(false),
        is_progress: fields.bool("return_progress")?.unwrap_or(false),
        is_sampled: fields.bool("post_sampling_probs")?.unwrap_or(false),
        n_answers,
    })
}

/// An answer under way.
struct Answer {
    index: usize,
    meter: Meter,
    /// The text of the prompt, if it is to be echoed and was not yet.
    echo: Option<String>,
    /// Scores of the prompt that were not sent yet.
    scores: Vec<TokenLogprobs>,
    /// The number of characters sent.
    n_chars: usize,
    ended: Option<Ended>,
}

impl Answer {
    fn new(index: usize, meter: Meter, echo: Option<String>) -> Self {
        Answer { index, meter, echo, scores: Vec::new(), n_chars: 0, ended: None }
    }
}

impl Shape {
    /// Return a body with these choices.
    fn body(&self, choices: Value) -> Value {
        json!({
            "choices": choices,
            "created": self.created,
            "model": self.app.alias(),
            "system_fingerprint": FINGERPRINT,
            "object": "text_completion",
            "id": self.id,
        })
    }

    /// Return log-probabilities: the lists of OpenAI, and llama-server's objects.
    fn logprobs(&self, prompt: &[TokenLogprobs], generated: &[TokenLogprobs], offset: usize) -> Value {
        if prompt.is_empty() && generated.is_empty() {
            return Value::Null;
        }
        let vocab = self.app.vocab();
        let mut json = scores_json(vocab, prompt, generated, offset);
        json["content"] = probabilities_json(vocab, &[prompt, generated].concat(), self.is_sampled);
        json
    }

    /// Return a choice of a piece.
    fn part(&self, answer: &Answer, text: &str, logprobs: Value) -> Value {
        self.body(json!([{
            "text": text,
            "index": answer.index,
            "logprobs": logprobs,
            "finish_reason": null,
        }]))
    }
}

/// Return all answers in one piece.
fn whole(shape: &Shape, answers: &[Answer], outcomes: &[Outcome]) -> Value {
    let choices = answers.iter().zip(outcomes).map(|(answer, outcome)| {
        let echo = answer.echo.as_deref().unwrap_or_default();
        let offset = if outcome.prompt_logprobs.is_empty() { echo.chars().count() } else { 0 };
        json!({
            "text": format!("{echo}{}", outcome.text),
            "index": answer.index,
            "logprobs": shape.logprobs(&outcome.prompt_logprobs, &outcome.logprobs, offset),
            "finish_reason": outcome.ended.as_ref().map(|ended| text_finish_reason(ended.finish)),
        })
    });
    let mut body = shape.body(choices.collect());
    // Answers to one prompt share its tokens.
    let ended: Vec<&Ended> = outcomes.iter().filter_map(|outcome| outcome.ended.as_ref()).collect();
    body["usage"] = sum_prompts(&ended, shape.n_answers);
    if let Some(first) = ended.first() {
        body["timings"] = timings_json(&first.timings);
    }
    let reuse = outcomes.first().and_then(|outcome| outcome.reuse.as_ref());
    if let Some((answer, reuse)) = answers.first().zip(reuse) {
        body["backstitch"] = answer.meter.account(reuse);
    }
    body
}

/// Return the counts of several prompts with `n` answers each.
fn sum_prompts(ended: &[&Ended], n: usize) -> Value {
    let groups: Vec<Value> = ended.chunks(n.max(1)).map(sum_usage).collect();
    let sum = |pointer: &str| -> u64 {
        groups.iter().filter_map(|usage| usage.pointer(pointer).and_then(Value::as_u64)).sum()
    };
    json!({
        "completion_tokens": sum("/completion_tokens"),
        "prompt_tokens": sum("/prompt_tokens"),
        "total_tokens": sum("/total_tokens"),
        "prompt_tokens_details": {"cached_tokens": sum("/prompt_tokens_details/cached_tokens")},
    })
}

/// Writes answers in pieces.
struct Parts {
    shape: Shape,
    answers: Vec<Answer>,
}

impl Writer for Parts {
    fn event(&mut self, index: usize, event: Event, frames: &mut Frames) {
        let Parts { shape, answers } = self;
        let Some(answer) = answers.get_mut(index) else { return };
        answer.meter.note(&event);
        match event {
            Event::Began { .. } | Event::Progress { .. } if shape.is_progress => {
                if let Some(progress) = answer.meter.report(n_batch(&shape.app)) {
                    let mut piece = shape.part(answer, "", Value::Null);
                    piece["prompt_progress"] = progress;
                    frames.data(&piece);
                }
            }
            Event::PromptLogprobs(scores) => answer.scores.extend(scores),
            Event::Chunk(chunk) => {
                let scores = core::mem::take(&mut answer.scores);
                let text = answer.echo.take().unwrap_or_default() + &chunk.text;
                let logprobs = shape.logprobs(&scores, &chunk.logprobs, answer.n_chars);
                if text.is_empty() && logprobs.is_null() {
                    return;
                }
                answer.n_chars += text.chars().count();
                let mut piece = shape.part(answer, &text, logprobs);
                if shape.timings_per_token {
                    piece["timings"] = answer.meter.timings();
                }
                frames.data(&piece);
            }
            Event::Ended(ended) => {
                let logprobs = shape.logprobs(&core::mem::take(&mut answer.scores), &[], answer.n_chars);
                let text = answer.echo.take().unwrap_or_default();
                let mut piece = shape.part(answer, &text, logprobs);
                piece["choices"][0]["finish_reason"] = text_finish_reason(ended.finish).into();
                // A client that adds up would count it twice: the last piece of all has the sum.
                if !shape.include_usage {
                    piece["usage"] = usage_json(&ended);
                }
                piece["timings"] = timings_json(&ended.timings);
                if let Some(reuse) = &answer.meter.reuse {
                    piece["backstitch"] = answer.meter.account(reuse);
                }
                frames.data(&piece);
                answer.ended = Some(ended);
            }
            _ => {}
        }
    }

    fn end(&mut self, frames: &mut Frames) {
        let ended: Vec<&Ended> = self.answers.iter().filter_map(|answer| answer.ended.as_ref()).collect();
        if self.shape.include_usage && !ended.is_empty() {
            let mut piece = self.shape.body(json!([]));
            piece["usage"] = sum_prompts(&ended, self.shape.n_answers);
            frames.data(&piece);
        }
        frames.done();
    }
}
