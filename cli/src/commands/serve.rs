//! `backstitch serve`: answer programs over HTTP.
//!
//! The server itself is the crate `backstitch-server`. This command turns options into settings,
//! loads the model before the port is opened, and ends the server in order when a signal comes:
//! streams are finished, and what was evaluated is stored.

mod folders;
mod log;
mod template;

use crate::args::{
    AnswerArgs, Generator, ModelArgs, PoolingArg, SamplingArgs, ServeArgs, SlotArgs, SlotFormat,
    SpeculationArgs,
};
use crate::error::Error;
use crate::interrupt::{self, Stoppable};
use crate::memory::{self, Together};
use crate::output::{bytes, note};
use crate::{embedded, model, whole_file};
use backstitch_models::{LoadParams, Model, Params, Pooling, Token};
use backstitch_server::engine::{DraftSource, Drafts, Engine, EngineParams, SlotLayout};
use backstitch_server::http::{Adapters, Host, Loaded, LoadedAdapter, Server};
use backstitch_server::params::{Sampling, ServerParams};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// The number of requests that are evaluated together without `-np`.
const DEFAULT_SLOTS: u32 = 4;
/// The memory of conversations without a limit, where the system does not tell its memory.
const HELD_BYTES: u64 = 1 << 30;
/// The time between looks at whether a signal came.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Run the command, until a signal ends it.
///
/// # Errors
/// - [`Error::Read`] if the file of keys or the template cannot be read.
/// - [`Error::Refused`] for options that contradict each other, a context that this machine can
///   never hold, and if the address cannot be used.
/// - [`Error::Engine`] if the model cannot be loaded or the context does not fit into memory.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    log::start(args);
    let params = server_params(args)?;
    folders::check_folders(&args.slots)?;
    let template = template::read(&args.answers)?;
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    model::check_biases(&args.sampling, &model)?;
    let engine_params = engine_params(args, &model)?;
    memory::check(&model, &engine_params.context)?;
    if template.is_none() && !params.embedding && !params.reranking {
        note_template(&model);
    }
    let adapters = adapters(args, &model)?;
    let host = host(args, params, engine_params, (model, adapters), template)?;
    let server = Server::bind(host).map_err(|error| {
        let (hosts, port) = (args.network.host.join(","), args.network.port);
        Error::Refused(format!("cannot listen on {hosts}:{port}: {error}; --host and --port choose another"))
    })?;
    for address in server.addresses().map_err(Error::Terminal)? {
        note("note", format_args!("listening on http://{address}"));
    }
    let _stoppable = Stoppable::begin();
    let stopper = server.stopper();
    // The first signal ends the server in order, the second one ends the program.
    std::thread::spawn(move || {
        while !interrupt::cancel().is_cancelled() {
            std::thread::sleep(SIGNAL_CHECK);
        }
        stopper.stop();
    });
    server.run().map_err(Error::Terminal)
}

/// Tell that the model has no chat template, if that is so: its answers to messages are then likely
/// poor, as it was not trained for the one that is used.
fn note_template(model: &Model) {
    if model.chat_template().is_none() && model.chat_template_for_tools().is_none() {
        let text = "the model has no chat template: chat uses ChatML; --chat-template chooses another";
        note("note", text);
    }
}

/// Make the state of the server: it holds the model, and can load it again after a sleep. The model
/// that was loaded to check the options is the first one, so that nothing is read twice.
fn host(
    args: &ServeArgs,
    params: ServerParams,
    engine_params: EngineParams,
    loaded: (Model, Adapters),
    template: Option<String>,
) -> Result<Host, Error> {
    let (source, n_threads) = (args.model.clone(), model::n_threads(args.context.n_threads));
    let adapters = loaded.1;
    let first = Mutex::new(Some(loaded.0));
    let load = move || {
        let loaded = first.lock().ok().and_then(|mut first| first.take());
        let model = match loaded {
            Some(model) => model,
            None => reopen(&source, n_threads)?,
        };
        let engine = Engine::start(&model, engine_params.clone())?;
        // Adapters stay in memory while the model sleeps: they are small, and of the same model.
        Ok(Loaded { engine, template: template.clone(), adapters: adapters.clone() })
    };
    Host::new(params, load).map_err(|error| match error {
        backstitch_server::Error::Engine(error) => Error::Refused(crate::error::of_engine(&error)),
        error => Error::Refused(error.to_string()),
    })
}

/// Read the adapters that requests may choose.
///
/// # Errors
/// Those of reading them.
fn adapters(args: &ServeArgs, model: &Model) -> Result<Adapters, Error> {
    let loras = crate::adapters::loras(&args.context.adapters, model)?;
    let loaded = |(path, adapter, scale)| {
        let scale = if args.answers.lora_init_without_apply { 0.0 } else { scale };
        LoadedAdapter { path, adapter, scale }
    };
    let controls = crate::adapters::controls(&args.context.adapters, model)?;
    Ok(Adapters { list: loras.into_iter().map(loaded).collect(), controls })
}

/// Load the model again, in the way in which it was loaded first. No progress is shown, because the
/// log of a server is no terminal to draw on.
fn reopen(args: &ModelArgs, n_threads: u32) -> Result<Model, backstitch_models::Error> {
    let Some(path) = &args.model else { return Model::from_bytes(embedded::GGUF) };
    let params = LoadParams::default().access(args.access()).n_threads(n_threads as usize);
    Model::open_with(path, params, |_, _| ())
}

/// Return the parameters of the engine.
fn engine_params(args: &ServeArgs, model: &Model) -> Result<EngineParams, Error> {
    let SlotArgs { parallel, kv_unified, cache_ram, .. } = &args.slots;
    let asked = parallel.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
    let n_slots = asked.unwrap_or(DEFAULT_SLOTS);
    let held_limit = u64::try_from(*cache_ram).ok().map(|mib| mib << 20);
    let mut context = model::params(&args.context, model).pooling(args.answers.pooling());
    // As with llama-server, -np N without --kv-unified shares the context out. Without -np every
    // request may have all of it.
    let n_shares = asked.filter(|_| !kv_unified).unwrap_or(1);
    let n_together = n_slots / n_shares;
    let drafts = drafts(args, model, n_slots)?;
    let draft = drafts.as_ref().and_then(|drafts| match &drafts.source {
        DraftSource::Model { model, params } => Some((model, params, n_slots)),
        _ => None,
    });
    let mut bounded_by = None;
    if args.context.evaluation.n_ctx.is_none() {
        let together = Together { model, params: &context, n_seqs: n_together, draft };
        // Conversations without a limit take what is left.
        let usual = memory::usual_context(together, held_limit.unwrap_or(0));
        (context, bounded_by) = (context.n_ctx(usual.n_ctx), usual.bounded_by);
    }
    let n_ctx = context.n_ctx / n_shares;
    if n_ctx == 0 {
        let text = format!(
            "-c {} is not enough for -np {n_slots}: give each request a token at least",
            context.n_ctx
        );
        return Err(Error::Refused(text));
    }
    let n_ctx = model::within_positions(n_ctx, model);
    note("note", context_line(n_ctx, model, n_together, bounded_by));
    let params = context.n_ctx(n_ctx);
    let together = Together { model, params: &params, n_seqs: n_slots, draft };
    let held_bytes = held_limit.unwrap_or_else(|| all_held(together));
    Ok(EngineParams {
        context: batched(context, n_ctx),
        n_ctx,
        n_slots: n_slots as usize,
        n_held: args.slots.cache_sequences.into(),
        held_bytes,
        max_waiting: args.network.max_waiting,
        state: args.slots.state.clone(),
        state_bytes: args.slots.state_mib.saturating_mul(1 << 20),
        drafts,
        ..EngineParams::default()
    })
}

/// Return the line about the context of a request, and about the memory if that bounds it.
fn context_line(n_ctx: u32, model: &Model, n_together: u32, bounded_by: Option<u64>) -> String {
    let line = format!("context: {n_ctx} of {} tokens", model.hparams().n_ctx_train);
    match bounded_by.map(bytes) {
        None => line,
        Some(memory) => {
            let requests = if n_together == 1 { "one".into() } else { format!("{n_together} at once") };
            format!("{line}; {requests} may take half of the {memory} beside the weights, -c asks for more")
        }
    }
}

/// Return the bytes that conversations may take for `--cache-ram -1`: what the weights and the
/// requests that run leave of the memory.
fn all_held(together: Together<'_>) -> u64 {
    let left = memory::left_for_conversations(together);
    let held_bytes = left.unwrap_or(HELD_BYTES);
    let reason =
        if left.is_some() { "the memory that is left" } else { "as this system does not tell its memory" };
    note("note", format_args!("conversations: at most {}, {reason}", bytes(held_bytes)));
    held_bytes
}

/// Return the drafts of speculative decoding, if they are wanted.
///
/// # Errors
/// Those of loading the draft model.
fn drafts(args: &ServeArgs, model: &Model, n_slots: u32) -> Result<Option<Drafts>, Error> {
    let SpeculationArgs { draft_model, lookup, draft_max } = &args.speculation;
    let source = match draft_model {
        _ if *lookup => DraftSource::Lookup,
        None => return Ok(None),
        Some(path) => {
            let file = ModelArgs { model: Some(path.clone()), ..args.model.clone() };
            let draft = model::open(&file, model::n_threads(args.context.n_threads))?;
            let params = model::draft_params(&args.context, model, &draft, n_slots);
            DraftSource::Model { params, model: draft }
        }
    };
    Ok(Some(Drafts { source, n_max: (*draft_max).into() }))
}

/// Return parameters whose logical batch is at least one physical batch.
fn batched(context: Params, n_ctx: u32) -> Params {
    let n_ubatch = context.n_ubatch.min(context.n_batch);
    context.n_ctx(n_ctx).n_ubatch(n_ubatch)
}

impl AnswerArgs {
    /// Return the method of pooling; `None` for the model's.
    fn pooling(&self) -> Option<Pooling> {
        match self.pooling {
            None if self.reranking => Some(Pooling::Mean),
            None => None,
            Some(PoolingArg::None) => Some(Pooling::None),
            Some(PoolingArg::Mean | PoolingArg::Rank) => Some(Pooling::Mean),
            Some(PoolingArg::Cls) => Some(Pooling::Cls),
            Some(PoolingArg::Last) => Some(Pooling::Last),
        }
    }
}

/// Return the settings of the server.
fn server_params(args: &ServeArgs) -> Result<ServerParams, Error> {
    let ServeArgs { network, access, slots, answers, .. } = args;
    let template_variables = match &answers.chat_template_kwargs {
        None => serde_json::Map::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Error::Refused(format!("--chat-template-kwargs is no JSON object: {error}")))?,
    };
    // The first name is in answers. llama-server sorts them.
    let names: BTreeSet<_> = answers.alias.iter().filter(|name| !name.is_empty()).cloned().collect();
    let aliases = if names.is_empty() { vec![model_name(&args.model)] } else { names.into_iter().collect() };
    Ok(ServerParams {
        hosts: network.host.clone(),
        port: network.port,
        aliases,
        tags: answers.tags.clone(),
        model_path: args.model.model.clone(),
        sampling: sampling(&args.sampling)?,
        n_predict: usize::try_from(answers.n_predict).ok(),
        n_keep: usize::try_from(slots.keep).ok(),
        context_shift: slots.context_shift,
        cache_prompt: !slots.no_cache_prompt,
        api_keys: keys(&access.api_key, access.api_key_file.as_deref())?,
        cors_origins: access.cors_origins.clone(),
        max_body_bytes: usize::from(network.max_body_mib) << 20,
        timeout: Duration::from_secs(network.timeout),
        slot_save_path: slots.slot_save_path.clone(),
        slot_layout: match slots.slot_save_format {
            SlotFormat::Backstitch => SlotLayout::Backstitch,
            SlotFormat::Llama => SlotLayout::Llama,
        },
        metrics: access.metrics,
        slots: !access.no_slots,
        props: access.props,
        embedding: answers.embedding,
        reranking: answers.reranking || answers.pooling == Some(PoolingArg::Rank),
        ui: !network.no_ui,
        jinja: !answers.no_jinja,
        reasoning_format: answers.reasoning_format.clone(),
        reasoning: match answers.reasoning_budget {
            0 => "off".into(),
            _ => answers.reasoning.clone(),
        },
        template_variables,
        prefill_assistant: !answers.no_prefill_assistant,
        sleep_after: u64::try_from(slots.sleep_idle_seconds).ok().map(Duration::from_secs),
        ping: Duration::from_secs(network.sse_ping_interval),
        verbose: args.verbose,
        ..ServerParams::default()
    })
}

/// Return the name of a model without another: that of its file.
fn model_name(args: &ModelArgs) -> String {
    let stem = args.model.as_deref().and_then(Path::file_stem);
    stem.map_or_else(|| "backstitch-demo".into(), |stem| stem.to_string_lossy().into_owned())
}

/// Return the keys of clients, those of the command line first. Lines of a file that begin with a
/// hash are comments.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read; [`Error::Refused`] if it is too long, or if it or
/// the options have no keys, because the server would then admit everyone.
fn keys(given: &[String], file: Option<&Path>) -> Result<Vec<String>, Error> {
    let mut keys: Vec<String> = given.iter().filter(|key| !key.is_empty()).cloned().collect();
    if keys.is_empty() && !given.is_empty() && file.is_none() {
        let text = "--api-key is empty, and the server would admit everyone; give a key, or leave it out";
        return Err(Error::Refused(text.into()));
    }
    if let Some(path) = file {
        let text = whole_file::written(path)?;
        let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let lines: Vec<_> = text.lines().map(str::trim).filter(is_key).collect();
        if lines.is_empty() {
            return Err(Error::Refused(format!("{} has no keys: write one a line", path.display())));
        }
        keys.extend(lines.into_iter().map(str::to_owned));
    }
    Ok(keys)
}

/// Return the samplers of requests that do not say otherwise.
///
/// # Errors
/// [`Error::Refused`] for a seed of more than 32 bits.
fn sampling(args: &SamplingArgs) -> Result<Sampling, Error> {
    let seed = match u32::try_from(args.seed) {
        Ok(seed) => seed,
        // llama-server's seeds have 32 bits, and -1 is a random one.
        Err(_) if args.seed < 0 => u32::MAX,
        Err(_) => return Err(Error::Refused(format!("--seed {}: seeds here have 32 bits", args.seed))),
    };
    let breakers = match args.dry_sequence_breaker.as_slice() {
        [none] if none == "none" => Vec::new(),
        texts => texts.to_vec(),
    };
    Ok(Sampling {
        seed,
        temp: args.temp,
        dynatemp_range: args.dynatemp_range,
        dynatemp_exponent: args.dynatemp_exp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        top_n_sigma: if args.top_n_sigma > 0.0 { args.top_n_sigma } else { -1.0 },
        xtc_probability: args.xtc_probability,
        xtc_threshold: args.xtc_threshold,
        typical_p: args.typical_p,
        repeat_last_n: args.repeat_last_n,
        repeat_penalty: args.repeat_penalty,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        dry_multiplier: args.dry_multiplier,
        dry_base: args.dry_base,
        dry_allowed_length: args.dry_allowed_length,
        dry_penalty_last_n: args.dry_penalty_last_n,
        dry_sequence_breakers: breakers,
        samplers: args.order(),
        // llama-server's clients expect its texts.
        generator: args.generator.unwrap_or(Generator::Llama).of_library(),
        mirostat: args.mirostat,
        mirostat_tau: args.mirostat_ent,
        mirostat_eta: args.mirostat_lr,
        adaptive_target: args.adaptive_target,
        adaptive_decay: args.adaptive_decay,
        logit_bias: args.logit_bias.iter().map(|&(token, bias)| (Token(token), bias)).collect(),
        ..Sampling::default()
    })
}
