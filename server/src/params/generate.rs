//! From the fields of a request to a request for the engine.

use super::constraint::Constraint;
use super::fields::Fields;
use super::sampling::{MAX_PROBS, MAX_STRING, MAX_STRINGS, Sampling};
use super::server::ServerParams;
use crate::engine::{Generate, WhenFull};
use crate::http::{ApiError, App, Client, Scales};
use backstitch_models::Token;
use backstitch_models::sampler::{Chain, Settings};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The names of the number of tokens to generate, in the order in which they count.
const LIMIT_NAMES: [&str; 3] = ["n_predict", "max_completion_tokens", "max_tokens"];

/// The names of the number of answers to each prompt, in the order in which they count.
pub(crate) const N_ANSWERS: [&str; 2] = ["n_cmpl", "n"];

/// The most bytes that the settings of all answers of a request may have as JSON, if there is more
/// than one answer.
const MAX_SETTINGS: usize = 64 << 20;

/// The most likeliest tokens that all answers of a request may list together. Each takes about a
/// KiB while an answer is made.
const MAX_LISTED: usize = 1 << 18;

/// A request for the engine, and what its answer needs of the fields.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reading {
    /// The request.
    pub generate: Generate,
    /// Its samplers.
    pub sampling: Sampling,
    /// The constraint on its output, if there is one.
    pub constraint: Option<Constraint>,
    /// The answer comes in pieces.
    pub stream: bool,
    /// The number of answers to each prompt.
    pub n: usize,
    /// Every piece tells counts and times.
    pub timings_per_token: bool,
    /// Pieces tell which part of the prompt was evaluated.
    pub return_progress: bool,
    /// The text of the grammar, if there is one; a schema has none.
    pub grammar: String,
    /// The parts of the request that do nothing, such as keywords of schemas that no grammar
    /// follows.
    pub ignored: Vec<String>,
    /// The adapters that the request names, with their scales.
    pub lora: Scales,
    /// The library's settings of the samplers, made once for all answers.
    samplers: Settings,
    full: Full,
}

/// The way in which generations go on when the context is full, whatever their prompt.
#[derive(Clone, Copy, Debug)]
enum Full {
    /// End them.
    End,
    /// Remove the oldest tokens. Without `n_keep` the whole prompt is kept.
    Shift { n_keep: Option<usize>, n_discard: usize },
}

impl Full {
    /// Return what happens behind a prompt of `n_prompt` tokens. A token that begins every sequence
    /// is kept besides those that were asked for, because all others attend to it.
    fn behind(self, app: &App, n_prompt: usize) -> WhenFull {
        match self {
            Full::End => WhenFull::End,
            Full::Shift { n_keep, n_discard } => {
                let n_bos = usize::from(app.vocab().adds_bos());
                let n_keep = n_keep.map_or(n_prompt, |n| n.saturating_add(n_bos));
                WhenFull::Shift { n_keep, n_discard }
            }
        }
    }
}

/// Return the number of tokens that the samplers see before the text: the prompt's, or with an
/// encoder, which takes these, the decoder's first one.
fn n_before(app: &App, prompt: &[Token]) -> usize {
    let has_encoder = app.engine().model().graph().encoder().is_some();
    if has_encoder { 1 } else { prompt.len() }
}

impl Reading {
    /// Return the requests for the engine: [`Reading::n`] for the prompt of this reading, and as
    /// many for each of `others`, all with random numbers of their own. Only the first one asks for
    /// a slot, because one slot cannot evaluate several prompts at a time.
    pub fn requests(self, app: &App, others: Vec<Vec<Token>>) -> Vec<Generate> {
        let again = |prompt: &[Token], index: usize| {
            let first = &self.generate;
            let mut request = Generate::new(prompt.to_vec(), self.chain(app, prompt, index));
            request.tenant = first.tenant;
            request.adapters.clone_from(&first.adapters);
            request.priority = first.priority;
            request.cache_prompt = first.cache_prompt;
            request.message_ends.clone_from(&first.message_ends);
            request.n_draft = first.n_draft;
            request.limit = first.limit;
            request.stops.clone_from(&first.stops);
            request.line_time = first.line_time;
            request.n_indent = first.n_indent;
            request.ignore_eos = first.ignore_eos;
            request.shown.clone_from(&first.shown);
            request.logprobs = first.logprobs;
            request.probs_after_sampling = first.probs_after_sampling;
            request.prompt_logprobs = first.prompt_logprobs;
            request.progress = first.progress;
            request.when_full = self.full.behind(app, prompt.len());
            request
        };
        let further = (1..self.n).map(|index| again(&self.generate.prompt, index));
        let others = others.iter().flat_map(|prompt| (0..self.n).map(|index| again(prompt, index)));
        let rest: Vec<_> = further.chain(others).collect();
        core::iter::once(self.generate).chain(rest).collect()
    }

    /// Refuse a request whose answers to `n_prompts` prompts would hold too much: each has samplers
    /// and stop strings of its own, and tells them.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid).
    pub fn check_answers(&self, app: &App, n_prompts: usize) -> Result<(), ApiError> {
        let n_answers = n_prompts.saturating_mul(self.n);
        if n_answers == 1 {
            return Ok(());
        }
        match self.settings(app).to_string().len().saturating_mul(n_answers) {
            n if n > MAX_SETTINGS => {
                let of = format!("{n_answers} answers with {n} bytes of settings together");
                Err(ApiError::invalid(format!("{of}; {MAX_SETTINGS} at most: ask for fewer at a time")))
            }
            _ => Ok(()),
        }
    }

    /// Bound the likeliest tokens that are listed beside those of `n_prompts` prompts, which have
    /// `n_prompt_tokens` together, and beside those of the answers. An answer in one piece ends
    /// where it would list too many, unless the request says how long it is to be; one in pieces
    /// needs no bound.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) if they are too many.
    pub fn bound_listed(
        &mut self,
        app: &App,
        fields: Fields<'_>,
        n_prompts: usize,
        n_prompt_tokens: usize,
    ) -> Result<(), ApiError> {
        let of_prompts = self.generate.prompt_logprobs.unwrap_or(0);
        let n_scored = n_prompt_tokens.saturating_mul(self.n).saturating_mul(of_prompts);
        let a_token = self.generate.logprobs.unwrap_or(0).saturating_mul(self.n).saturating_mul(n_prompts);
        let most = self.most_tokens(app);
        let n_free = MAX_LISTED.saturating_sub(n_scored);
        let is_free = self.stream || a_token.saturating_mul(most) <= n_free;
        let is_given = fields.first(&LIMIT_NAMES).is_some() && self.generate.limit.is_some();
        if n_scored > MAX_LISTED || !is_free && (is_given || a_token > n_free) {
            let text = "answers and echoed prompts would list more than";
            return Err(ApiError::invalid(format!(
                "{text} {MAX_LISTED} likeliest tokens together: ask for fewer of them, or for fewer tokens"
            )));
        }
        if !is_free {
            self.generate.limit = n_free.checked_div(a_token);
        }
        Ok(())
    }

    /// List no more likeliest tokens beside each token than fit the longest answers together.
    pub fn lower_listed(&mut self, app: &App) {
        let n_tokens = self.most_tokens(app).saturating_mul(self.n).max(1);
        let fits = if self.stream { usize::MAX } else { MAX_LISTED / n_tokens };
        self.generate.logprobs = self.generate.logprobs.map(|n| n.min(fits));
    }

    /// Return the most tokens that an answer can have.
    fn most_tokens(&self, app: &App) -> usize {
        self.generate.limit.unwrap_or(usize::MAX).min(app.summary().n_ctx as usize)
    }

    /// Return the samplers of answer `index` to a prompt.
    fn chain(&self, app: &App, prompt: &[Token], index: usize) -> Chain {
        let n_before = n_before(app, prompt);
        let grammar = self.constraint.as_ref().map(|constraint| constraint.sampler(n_before));
        self.sampling.chain(&self.samplers, app.vocab().n_vocab(), index, grammar)
    }

    /// Constrain the output.
    pub(crate) fn constrain(&mut self, app: &App, constraint: Constraint) {
        self.constraint = Some(constraint);
        self.generate.chain = self.chain(app, &self.generate.prompt, 0);
    }

    /// Return the settings as llama-server tells them, under `generation_settings` and in slots.
    pub fn settings(&self, app: &App) -> Value {
        let mut settings = default_settings(app.params());
        extend(&mut settings, self.sampling.to_json());
        let n_predict = self.generate.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let n_discard = match self.full {
            Full::Shift { n_discard, .. } => n_discard,
            Full::End => 0,
        };
        let given = json!({
            "stop": *self.generate.stops,
            "max_tokens": n_predict,
            "n_predict": n_predict,
            "n_keep": self.generate.when_full.n_keep(),
            "n_discard": n_discard,
            "stream": self.stream,
            "n_probs": self.generate.logprobs.unwrap_or(0),
            "grammar": self.grammar,
            "timings_per_token": self.timings_per_token,
            "post_sampling_probs": self.generate.probs_after_sampling,
            "lora": self.lora.iter().map(|(id, scale)| json!({"id": id, "scale": scale})).collect::<Value>(),
        });
        extend(&mut settings, given);
        settings
    }
}

/// Return the settings of a request that says nothing, as llama-server tells them.
pub fn default_settings(params: &ServerParams) -> Value {
    let mut settings = params.sampling.to_json();
    let n_predict = params.n_predict.map_or(json!(-1), |n| json!(n));
    let others = json!({
        "stop": [],
        "max_tokens": n_predict,
        "n_predict": n_predict,
        "n_keep": params.n_keep.unwrap_or(0),
        "n_discard": 0,
        "stream": false,
        "n_probs": 0,
        "grammar": "",
        "grammar_lazy": false,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "reasoning_format": "none",
        "reasoning_in_content": false,
        "generation_prompt": "",
        "speculative.types": "none",
        "timings_per_token": false,
        "post_sampling_probs": false,
        "backend_sampling": false,
        "lora": [],
    });
    extend(&mut settings, others);
    settings
}

/// Add the entries of an object to another.
fn extend(settings: &mut Value, others: Value) {
    if let (Value::Object(settings), Value::Object(others)) = (settings, others) {
        settings.extend(others);
    }
}

/// Read what all interfaces have in common: samplers, limits, stop strings, probabilities, slot,
/// tenant and priority. The caller adds what its interface alone has.
///
/// # Errors
/// - [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) with the field that is wrong.
/// - [`ErrorKind::NotSupported`](crate::http::ErrorKind::NotSupported) for what cannot be done.
pub fn read_generate(
    fields: Fields<'_>,
    app: &App,
    client: &Client,
    prompt: Vec<Token>,
) -> Result<Reading, ApiError> {
    // Any name will do, as there is one model.
    fields.str("model")?;
    let sampling = Sampling::read(fields, app)?;
    let params = app.params();
    let constraint = Constraint::read(fields, app, client)?;
    let grammar = constraint.as_ref().map(|constraint| constraint.sampler(n_before(app, &prompt)));
    let samplers = sampling.settings(app.vocab(), app.summary().n_ctx);
    let chain = sampling.chain(&samplers, app.vocab().n_vocab(), 0, grammar);
    let mut generate = Generate::new(prompt, chain);
    generate.tenant = client.tenant(fields.str("cache_salt")?);
    generate.priority = i32::try_from(fields.i64("priority")?.unwrap_or(0))
        .map_err(|_| ApiError::field("priority", "a whole number of 32 bits"))?;
    generate.slot = read_slot(fields, app)?;
    generate.cache_prompt = fields.bool("cache_prompt")?.unwrap_or(params.cache_prompt);
    generate.limit = read_limit(fields, params.n_predict)?;
    generate.stops = read_stops(fields)?;
    let line_ms = fields.i64("t_max_predict_ms")?.and_then(|ms| u64::try_from(ms).ok());
    generate.line_time = line_ms.filter(|&ms| ms > 0).map(Duration::from_millis);
    generate.n_indent = fields.u64("n_indent")?.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    // Tokens that end the text are banned by a bias, so that none is generated.
    generate.ignore_eos = sampling.ignore_eos;
    read_probabilities(fields, &mut generate)?;
    let full = read_when_full(fields, app)?;
    generate.when_full = full.behind(app, generate.prompt.len());
    let n =
        fields.first(&N_ANSWERS).map_or(Ok(None), |name| fields.u64(name).map(|n| n.map(|n| (name, n))))?;
    let n = match n {
        None => 1,
        Some((_, n)) if (1..=app.summary().n_slots as u64).contains(&n) => n as usize,
        Some((name, _)) => {
            let wanted = format!("a whole number from 1 to {} (the number of slots)", app.summary().n_slots);
            return Err(ApiError::field(name, &wanted));
        }
    };
    if let Some(n) = fields.u64("speculative.n_max")? {
        generate.n_draft = usize::try_from(n).unwrap_or(usize::MAX);
    }
    let lora = app.adapters().read(fields.array("lora")?.unwrap_or_default(), "lora")?;
    generate.adapters = app.adapters().set(&lora)?;
    let return_progress = fields.bool("return_progress")?.unwrap_or(false);
    generate.progress = return_progress;
    let ignored = constraint.iter().flat_map(Constraint::relaxed).collect();
    Ok(Reading {
        generate,
        sampling,
        constraint,
        ignored,
        stream: fields.bool("stream")?.unwrap_or(false),
        n,
        timings_per_token: fields.bool("timings_per_token")?.unwrap_or(false),
        return_progress,
        grammar: fields.str("grammar")?.unwrap_or_default().to_owned(),
        lora,
        samplers,
        full,
    })
}

/// Read the slot; -1 and absence mean any.
fn read_slot(fields: Fields<'_>, app: &App) -> Result<Option<usize>, ApiError> {
    match fields.i64("id_slot")? {
        None | Some(-1) => Ok(None),
        Some(slot) => {
            let slot = usize::try_from(slot).ok().filter(|&slot| slot < app.summary().n_slots);
            slot.map(Some).ok_or_else(|| {
                let last = app.summary().n_slots.saturating_sub(1);
                ApiError::field("id_slot", &format!("-1 or a slot from 0 to {last}"))
            })
        }
    }
}

/// Read the most tokens to generate; `default` is that of requests that name none.
fn read_limit(fields: Fields<'_>, default: Option<usize>) -> Result<Option<usize>, ApiError> {
    let Some(name) = fields.first(&LIMIT_NAMES) else { return Ok(default) };
    let wanted = match fields.i64(name)? {
        Some(n) if n >= 0 => Some(usize::try_from(n).unwrap_or(usize::MAX)),
        None | Some(-1) => None,
        Some(_) => return Err(ApiError::field(name, "a whole number, -1 or above")),
    };
    Ok(wanted.or(default))
}

/// Read the stop strings.
fn read_stops(fields: Fields<'_>) -> Result<Arc<[String]>, ApiError> {
    let stops = fields.strings("stop")?.unwrap_or_default();
    if stops.len() > MAX_STRINGS || stops.iter().any(|stop| stop.len() > MAX_STRING) {
        return Err(ApiError::field("stop", "at most 256 strings of at most 4096 bytes"));
    }
    Ok(stops.into_iter().filter(|stop| !stop.is_empty()).map(str::to_owned).collect())
}

/// Read the number of probabilities to tell. OpenAI's `logprobs` may be a boolean.
fn read_probabilities(fields: Fields<'_>, generate: &mut Generate) -> Result<(), ApiError> {
    let name = fields.first(&["n_probs", "logprobs"]);
    let n = match name {
        Some("logprobs") if fields.get("logprobs").is_some_and(Value::is_boolean) => None,
        Some(name) => fields.u64(name)?.map(|n| (name, n)),
        None => None,
    };
    generate.logprobs = match n {
        Some((name, n)) if n > MAX_PROBS => {
            return Err(ApiError::field(name, "a whole number from 0 to 1000"));
        }
        Some((_, n)) => Some(n as usize).filter(|&n| n > 0),
        None => None,
    };
    generate.probs_after_sampling = fields.bool("post_sampling_probs")?.unwrap_or(false);
    Ok(())
}

/// Read what happens when the context is full.
fn read_when_full(fields: Fields<'_>, app: &App) -> Result<Full, ApiError> {
    let params = app.params();
    let n_keep = match fields.i64("n_keep")? {
        None => params.n_keep,
        Some(-1) => None,
        Some(n) => {
            Some(usize::try_from(n).map_err(|_| ApiError::field("n_keep", "a whole number, -1 or above"))?)
        }
    };
    let n_discard = fields.u64("n_discard")?.unwrap_or(0) as usize;
    Ok(if params.context_shift { Full::Shift { n_keep, n_discard } } else { Full::End })
}
