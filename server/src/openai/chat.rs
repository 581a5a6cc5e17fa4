//! `/v1/chat/completions`: the assistant's next message.

use super::chunks::{Choice, Chunks, Shape, sum_usage};
use super::{FINGERPRINT, finish_reason};
use crate::conversation::{Request, Turn, render};
use crate::http::{
    ApiError, App, Body, Client, Events, Outcome, Ready, blocking, json_text, n_values, new_id,
    probabilities_json, sse, timings_json, unix_time, write_json,
};
use crate::params::Fields;
use axum::Json;
use axum::response::Response;
use backstitch_models::chat::reply::Reply;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The most likeliest tokens beside each token.
const MAX_TOP: u64 = 1000;
/// The number of likeliest tokens if the request does not say, as with llama-server; fewer if the
/// answer can be so long that they would be too many.
const DEFAULT_TOP: usize = 20;

/// Answer with the assistant's next message, at OpenAI's own path. OpenAI asks for the name of a
/// model. Programs for llama-server leave it out, but set something; a body of nothing but messages
/// was forgotten to be completed.
pub(super) async fn complete_named(
    Ready(app): Ready,
    client: Client,
    body: Body,
) -> Result<Response, ApiError> {
    let is_forgotten = body.keys().all(|name| name == "messages");
    answer(app, client, body, is_forgotten).await
}

/// Answer with the assistant's next message.
pub(super) async fn complete(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    answer(app, client, body, false).await
}

/// Answer with the assistant's next message, unless the name of a model is missing.
async fn answer(app: Arc<App>, client: Client, body: Body, lacks_model: bool) -> Result<Response, ApiError> {
    let (shared, class) = (app.clone(), body.class());
    let work = blocking(&client, class, move |client| {
        let turn = Turn::read(&shared, client, &body, Request::from_chat(&body)?)?;
        match lacks_model {
            true => Err(ApiError::missing("model")),
            false => shaped(&shared, turn, Fields::new(&body)),
        }
    });
    let (turn, shape) = work.await?;
    let choices: Vec<Choice> = (0..turn.reading.n).map(|index| Choice::new(&app, index, &turn)).collect();
    let is_stream = turn.reading.stream;
    let events = Events::start(&app, turn.reading.requests(&app, Vec::new()))?;
    if is_stream {
        let ping = app.params().ping;
        return sse(events, Chunks::new(shape, choices), ping).await;
    }
    let outcomes = events.outcomes().await?;
    let n_values = n_values(&outcomes);
    write_json(&client, n_values, move || whole(&shape, choices, &outcomes).to_string()).await
}

/// Read what the answer to a turn is to tell.
fn shaped(app: &Arc<App>, mut turn: Turn, fields: Fields<'_>) -> Result<(Turn, Shape), ApiError> {
    if let Some(top) = read_top(fields)? {
        turn.reading.generate.logprobs = Some(top.unwrap_or(DEFAULT_TOP));
        if top.is_none() {
            turn.reading.lower_listed(app);
        }
    }
    let n_tokens = turn.reading.generate.prompt.len();
    turn.reading.bound_listed(app, fields, 1, n_tokens)?;
    let shape = read_shape(app, &turn, fields)?;
    Ok((turn, shape))
}

/// Return the number of tokens of a conversation.
pub(super) async fn count(Ready(app): Ready, client: Client, body: Body) -> Result<Json<Value>, ApiError> {
    let class = body.class();
    let read = move |client: &Client| render(&app, client, Request::from_chat(&body)?);
    let prompt = blocking(&client, class, read).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": prompt.tokens.len()})))
}

/// Return the text of a conversation.
pub(super) async fn apply_template(
    Ready(app): Ready,
    client: Client,
    body: Body,
) -> Result<Response, ApiError> {
    let text = blocking(&client, body.class(), move |client| {
        let prompt = render(&app, client, Request::from_chat(&body)?)?;
        Ok(json!({"prompt": prompt.text}).to_string())
    });
    Ok(json_text(text.await?))
}

/// Read the number of likeliest tokens to tell beside each token, `None` if that is open; `None`
/// for no log-probabilities.
fn read_top(fields: Fields<'_>) -> Result<Option<Option<usize>>, ApiError> {
    let top = fields.u64("top_logprobs")?;
    match fields.get("logprobs").map(Value::as_bool) {
        None | Some(Some(false)) if top.is_some() => {
            let text = "top_logprobs requires logprobs to be set to true";
            Err(ApiError::invalid(text).about("top_logprobs"))
        }
        None | Some(Some(false)) => Ok(None),
        Some(Some(true)) => match top {
            Some(n) if n > MAX_TOP => Err(ApiError::field("top_logprobs", "a whole number from 0 to 1000")),
            n => Ok(Some(n.map(|n| n as usize))),
        },
        Some(None) => Err(ApiError::field("logprobs", "true or false")),
    }
}

/// Return true if a stream is to end with the numbers of tokens.
pub(super) fn read_include_usage(fields: Fields<'_>) -> Result<bool, ApiError> {
    let Some(options) = fields.object("stream_options")? else { return Ok(false) };
    let name = "include_usage";
    let include = Fields::new(options).bool(name);
    Ok(include.map_err(|error| error.renamed(name, "stream_options.include_usage"))?.unwrap_or(false))
}

/// Read what the shape of the answer depends on.
fn read_shape(app: &Arc<App>, turn: &Turn, fields: Fields<'_>) -> Result<Shape, ApiError> {
    let include_usage = read_include_usage(fields)?;
    let is_verbose = fields.bool("verbose")?.unwrap_or(app.params().verbose);
    let details = || {
        json!({
            "prompt": text_of(app, turn),
            "generation_settings": turn.reading.settings(app),
            "model": app.alias(),
            "tokens_evaluated": turn.reading.generate.prompt.len(),
        })
    };
    Ok(Shape {
        app: app.clone(),
        id: new_id("chatcmpl-"),
        created: unix_time(),
        timings_per_token: turn.reading.timings_per_token,
        is_progress: turn.reading.return_progress,
        include_usage,
        is_sampled: turn.reading.generate.probs_after_sampling,
        verbose: is_verbose.then(details),
    })
}

/// Return the prompt as the model sees it.
fn text_of(app: &App, turn: &Turn) -> String {
    let write = backstitch_models::vocab::WriteSpecial::Yes;
    let bytes = app.vocab().detokenize(&turn.reading.generate.prompt, write);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Return the answer in one piece.
fn whole(shape: &Shape, choices: Vec<Choice>, outcomes: &[Outcome]) -> Value {
    let reuse = outcomes.first().and_then(|outcome| outcome.reuse.as_ref());
    let account = choices.first().zip(reuse).map(|(choice, reuse)| choice.meter.account(reuse));
    let answers = choices.into_iter().zip(outcomes).map(|(mut choice, outcome)| {
        choice.speaker.write(&outcome.text, &outcome.tokens);
        choice.speaker.finish();
        let reply = choice.speaker.reply();
        let ending = outcome.ended.as_ref().map(|ended| choice.speaker.ending(ended.finish));
        let mut answer = json!({
            "finish_reason": ending.map(finish_reason),
            "index": choice.index,
            "message": message_json(reply),
            "logprobs": null,
        });
        if !outcome.logprobs.is_empty() {
            let content = probabilities_json(shape.app.vocab(), &outcome.logprobs, shape.is_sampled);
            answer["logprobs"] = json!({"content": content, "refusal": null});
        }
        answer
    });
    let answers: Vec<Value> = answers.collect();
    let ended: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.ended.as_ref()).collect();
    let mut body = json!({
        "choices": answers,
        "created": shape.created,
        "model": shape.app.alias(),
        "system_fingerprint": FINGERPRINT,
        "object": "chat.completion",
        "usage": sum_usage(&ended),
        "id": shape.id,
    });
    if let Some(verbose) = &shape.verbose {
        let mut verbose = verbose.clone();
        verbose["content"] = outcomes.first().map_or("", |outcome| &outcome.text).into();
        body["__verbose"] = verbose;
    }
    if let Some(ended) = ended.first() {
        body["timings"] = timings_json(&ended.timings);
    }
    if let Some(account) = account {
        body["backstitch"] = account;
    }
    body
}

/// Return the assistant's message.
pub(super) fn message_json(reply: &Reply) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let content = match reply.content.as_str() {
        "" if !reply.tool_calls.is_empty() => Value::Null,
        content => content.into(),
    };
    message.insert("content".into(), content);
    message.insert("refusal".into(), Value::Null);
    message.insert("annotations".into(), json!([]));
    if !reply.reasoning.is_empty() {
        message.insert("reasoning_content".into(), reply.reasoning.as_str().into());
    }
    if !reply.tool_calls.is_empty() {
        let calls = reply.tool_calls.iter().map(|call| {
            json!({
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
                "id": call.id,
            })
        });
        message.insert("tool_calls".into(), calls.collect());
    }
    Value::Object(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeliest_tokens_need_logprobs() {
        let read = |body: Value| read_top(Fields::new(body.as_object().unwrap()));
        assert_eq!(read(json!({})).unwrap(), None);
        assert_eq!(read(json!({"logprobs": false})).unwrap(), None);
        assert_eq!(read(json!({"logprobs": true})).unwrap(), Some(None));
        assert_eq!(read(json!({"logprobs": true, "top_logprobs": 0})).unwrap(), Some(Some(0)));
        assert!(read(json!({"top_logprobs": 2})).is_err());
        assert!(read(json!({"logprobs": 2})).is_err());
        assert!(read(json!({"logprobs": true, "top_logprobs": 1001})).is_err());
    }
}
