//! The loaded model, and its sleep while nobody asks for anything.

use super::adapters::{Adapters, ScaledAdapters};
use super::body::Bodies;
use super::client::Client;
use super::error::{ApiError, ErrorKind};
use crate::conversation::{CHATML, Capabilities, OwnCalls, Template, builtin_template};
use crate::engine::{Counters, Engine, Ledger};
use crate::error::Error;
use crate::params::ServerParams;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use backstitch_models::Model;
use backstitch_models::backstitch_kv::storage::Fingerprint;
use backstitch_models::grammar::{Compiler, GrammarError};
use backstitch_models::vocab::Vocab;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A model with an engine that runs it.
#[derive(Debug)]
pub struct Loaded {
    /// The engine.
    pub engine: Engine,
    /// The source of the chat template, or the name of a known one, if the model's own is not
    /// wanted.
    pub template: Option<String>,
    /// The adapters that requests may choose.
    pub adapters: Adapters,
}

/// Loads the model: once at the start, and again after each sleep.
type Loader = Box<dyn Fn() -> Result<Loaded, Error> + Send + Sync>;

/// The sizes of a model, which are known also while it sleeps.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelSummary {
    /// The number of tokens of the vocabulary.
    pub n_vocab: usize,
    /// The context length that the model was trained with.
    pub n_ctx_train: u32,
    /// The most tokens of one request.
    pub n_ctx: u32,
    /// The width of embeddings.
    pub n_embd: usize,
    /// The number of parameters.
    pub n_params: u64,
    /// The bytes of the weights.
    pub n_bytes: u64,
    /// The number of slots.
    pub n_slots: usize,
    /// The most sequences held beside one for each slot.
    pub n_held: usize,
    /// The most bytes that they may take.
    pub held_bytes: u64,
    /// Tokens are drafted.
    pub has_drafts: bool,
    /// The source of the chat template.
    pub template: String,
    /// The abilities of the chat template.
    pub capabilities: Capabilities,
    /// The text of the token at the beginning of a sequence.
    pub bos: String,
    /// The text of the token at the end of a sequence.
    pub eos: String,
}

/// The loaded model and the settings of the server, with which handlers work.
#[derive(Debug)]
pub struct App {
    engine: Engine,
    template: Template,
    grammars: OnceLock<Result<Compiler, GrammarError>>,
    params: Arc<ServerParams>,
    summary: Arc<ModelSummary>,
    adapters: Arc<ScaledAdapters>,
    own_calls: OwnCalls,
}

impl App {
    /// `scaled` are the adapters of the model before it slept, whose scales may have been set.
    fn new(
        loaded: Loaded,
        params: Arc<ServerParams>,
        scaled: Option<Arc<ScaledAdapters>>,
    ) -> Result<Self, Error> {
        let model = loaded.engine.model();
        let for_tools = model.chat_template_for_tools().filter(|_| loaded.template.is_none());
        let own = model.chat_template().or(for_tools).unwrap_or(CHATML);
        let given = loaded.template.as_deref().map(|text| builtin_template(text).unwrap_or(text.into()));
        let source = given.as_deref().unwrap_or(own);
        let template = Template::new(source).map_err(backstitch_models::Error::from)?;
        let template = template.with_template_for_tools(for_tools);
        let vocab = model.vocab();
        let text = |token: Option<backstitch_models::Token>| {
            token.map_or(String::new(), |token| String::from_utf8_lossy(vocab.piece(token)).into_owned())
        };
        let summary = ModelSummary {
            n_vocab: model.hparams().n_vocab,
            n_ctx_train: model.hparams().n_ctx_train,
            n_ctx: loaded.engine.params().n_ctx,
            n_embd: model.hparams().n_embd,
            n_params: model.n_params(),
            n_bytes: model.n_bytes() as u64,
            n_slots: loaded.engine.params().n_slots,
            n_held: loaded.engine.params().n_held,
            held_bytes: loaded.engine.params().held_bytes,
            has_drafts: loaded.engine.params().drafts.is_some(),
            template: source.to_owned(),
            capabilities: *template.capabilities(),
            bos: text(vocab.bos()),
            eos: text(vocab.eos()),
        };
        let grammars = OnceLock::new();
        let (engine, summary) = (loaded.engine, Arc::new(summary));
        let adapters = scaled.unwrap_or_else(|| Arc::new(ScaledAdapters::new(loaded.adapters)));
        let own_calls = OwnCalls::default();
        Ok(App { engine, template, grammars, params, summary, adapters, own_calls })
    }

    /// Return the answers with calls that were given.
    pub(crate) fn own_calls(&self) -> &OwnCalls {
        &self.own_calls
    }

    /// Return the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Return the model.
    pub fn model(&self) -> &Model {
        self.engine.model()
    }

    /// Return the vocabulary.
    pub fn vocab(&self) -> &Vocab {
        self.engine.model().vocab()
    }

    /// Return the adapters that requests may choose, and their scales.
    pub fn adapters(&self) -> &ScaledAdapters {
        &self.adapters
    }

    /// Return the settings of the server.
    pub fn params(&self) -> &ServerParams {
        &self.params
    }

    /// Return the chat template: the one that the server was started with, the model's, or ChatML.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Return the sizes of the model.
    pub fn summary(&self) -> &ModelSummary {
        &self.summary
    }

    /// Return a compiler of grammars for a client, whose work ends with the client. The first
    /// call indexes the vocabulary, which is for all clients and takes none of this one's time.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] if the vocabulary is too large for that.
    pub fn compiler(&self, client: &Client) -> Result<Compiler, ApiError> {
        let made = client.work_time().pause(|| self.grammars.get_or_init(|| Compiler::new(self.vocab())));
        let compiler = made.as_ref().map_err(|error| ApiError::from(error.clone()))?;
        Ok(compiler.with_cancel(client.cancel().clone()))
    }

    /// Return the name of the model.
    pub fn alias(&self) -> &str {
        self.params.alias()
    }
}

/// The state of the router: it loads the model when a request needs it, and drops it when it was
/// idle for long ([`ServerParams::sleep_after`]).
pub struct Host {
    params: Arc<ServerParams>,
    loader: Loader,
    /// The last model that was loaded.
    known: Mutex<Known>,
    adapters: Arc<ScaledAdapters>,
    /// `None` while the model sleeps. Locked for long only while it is loaded or dropped.
    app: Arc<tokio::sync::Mutex<Option<Arc<App>>>>,
    last_use: Mutex<Instant>,
    started: u64,
    bodies: Arc<Bodies>,
    /// The engine ended by a panic, and the model is not loaded again yet.
    is_broken: AtomicBool,
    totals: Mutex<Totals>,
}

/// A model as it is known also while it sleeps.
struct Known {
    fingerprint: Fingerprint,
    summary: Arc<ModelSummary>,
}

impl Known {
    fn of(app: &App) -> Self {
        Known { fingerprint: app.model().fingerprint(), summary: app.summary.clone() }
    }
}

/// The counters of all engines of the server, one after the other.
struct Totals {
    /// Those of engines before the last one.
    earlier: Counters,
    /// Those of the last one, which may have ended.
    last: Ledger,
    /// All of them when somebody last [looked](Host::look) at them.
    seen: Counters,
}

impl Totals {
    /// Go on with the counters of a new engine.
    fn begin(&mut self, ledger: &Ledger) {
        self.earlier = self.last.get().after(&self.earlier).ended();
        self.last = ledger.clone();
    }
}

impl core::fmt::Debug for Host {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Host").field("params", &self.params).finish_non_exhaustive()
    }
}

impl Host {
    /// Load the model.
    ///
    /// # Errors
    /// Those of `loader`; [`Error::Engine`] if the chat template cannot be parsed.
    pub fn new(
        params: ServerParams,
        loader: impl Fn() -> Result<Loaded, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let params = Arc::new(params);
        let app = App::new(loader()?, params.clone(), None)?;
        let (known, adapters) = (Mutex::new(Known::of(&app)), app.adapters.clone());
        let last = app.engine.ledger().clone();
        let app = Arc::new(tokio::sync::Mutex::new(Some(Arc::new(app))));
        let last_use = Mutex::new(Instant::now());
        let (loader, started) = (Box::new(loader), unix_time());
        let (bodies, is_broken) = (Arc::default(), AtomicBool::new(false));
        let totals = Mutex::new(Totals { earlier: Counters::default(), last, seen: Counters::default() });
        Ok(Host { params, loader, known, adapters, app, last_use, started, bodies, is_broken, totals })
    }

    /// Return the settings of the server.
    pub fn params(&self) -> &ServerParams {
        &self.params
    }

    /// Return the memory that bodies use.
    pub(super) fn bodies(&self) -> &Arc<Bodies> {
        &self.bodies
    }

    /// Return the adapters that requests may choose, and their scales, which outlive sleep.
    pub fn adapters(&self) -> &ScaledAdapters {
        &self.adapters
    }

    /// Return the sizes of the model; of the last one, while it sleeps.
    pub fn summary(&self) -> Arc<ModelSummary> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).summary.clone()
    }

    /// Return the time at which the server was started, in seconds since 1970.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Return true while the model is not loaded.
    pub fn is_sleeping(&self) -> bool {
        self.peek().is_none()
    }

    /// Return the model if it is loaded, without counting that as a use.
    pub fn peek(&self) -> Option<Arc<App>> {
        self.app.try_lock().ok()?.clone()
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the counters since the server was started. That does not wake a model that sleeps:
    /// they are then the last ones.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the engine has ended by a panic.
    pub async fn counters(&self) -> Result<Counters, ApiError> {
        match self.peek() {
            Some(app) => {
                let now = app.engine().counters().await?;
                Ok(now.after(&self.totals().earlier))
            }
            None => {
                let totals = self.totals();
                Ok(totals.last.get().after(&totals.earlier).ended())
            }
        }
    }

    /// Look at the counters: return them as they were at the look before, for rates in between.
    pub fn look(&self, counters: Counters) -> Counters {
        std::mem::replace(&mut self.totals().seen, counters)
    }

    /// Go on with a model that was loaded again. Its file may hold another one by now, which then
    /// finds nothing of what the former one evaluated.
    fn note(&self, app: &App) {
        let known = Known::of(app);
        let mut last = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.fingerprint != last.fingerprint {
            let (before, now) = (last.fingerprint, known.fingerprint);
            tracing::warn!(%before, %now, "the file holds another model than before the sleep");
        }
        *last = known;
        self.totals().begin(app.engine.ledger());
    }

    /// Return true if the engine ended by a panic, until the model is loaded again, which the next
    /// request begins.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed) || self.peek().is_some_and(|app| !app.engine().is_alive())
    }

    /// Return the model, loading it if it sleeps or if its engine ended by a panic.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if it cannot be loaded any more.
    pub async fn wake(self: &Arc<Self>) -> Result<Arc<App>, ApiError> {
        self.touch();
        let mut app = self.app.clone().lock_owned().await;
        match &*app {
            Some(app) if app.engine().is_alive() => return Ok(app.clone()),
            Some(_) => {
                self.is_broken.store(true, Ordering::Relaxed);
                tracing::error!("the engine ended by a panic: loading the model again");
            }
            None => tracing::info!("loading the model again"),
        }
        let host = self.clone();
        // The lock goes along: the load goes on if this client goes away, and nobody else should
        // load the model beside it.
        let load = move || {
            // The memory of a broken engine's model is given back once nobody reads its answers.
            drop(app.take());
            let loaded = App::new((host.loader)()?, host.params.clone(), Some(host.adapters.clone()))?;
            host.note(&loaded);
            host.is_broken.store(false, Ordering::Relaxed);
            Ok::<_, Error>(app.insert(Arc::new(loaded)).clone())
        };
        let loaded = tokio::task::spawn_blocking(load).await;
        Ok(loaded.map_err(|error| ApiError::new(ErrorKind::Server, error.to_string()))??)
    }

    /// Drop the model if nothing has used it for the time of [`ServerParams::sleep_after`]. Waits
    /// for nothing: other requests go on while a model is loaded or dropped.
    pub(super) fn sleep_if_idle(self: &Arc<Self>) {
        let Some(after) = self.params.sleep_after else { return };
        // Whoever holds the lock is loading the model, or looks at it.
        let Ok(mut app) = self.app.clone().try_lock_owned() else { return };
        if app.as_ref().is_some_and(|app| Arc::strong_count(app) > 1) {
            return self.touch();
        }
        if self.idle() >= after
            && let Some(idle) = app.take()
        {
            tracing::info!("idle for {} s: the model sleeps", after.as_secs());
            // Joining the engine's thread blocks. Until it is done, no other model is loaded, which
            // would need as much memory again.
            drop(tokio::task::spawn_blocking(move || {
                drop(idle);
                drop(app);
            }));
        }
    }

    /// Drop the model, after the requests under way have ended and their state was kept.
    pub(super) async fn close(&self) {
        let app = self.app.lock().await.take();
        let _ = tokio::task::spawn_blocking(move || drop(app)).await;
    }

    fn touch(&self) {
        *self.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle(&self) -> Duration {
        self.last_use.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// The loaded model, as an argument of handlers.
#[derive(Clone, Debug)]
pub struct Ready(pub Arc<App>);

impl FromRequestParts<Arc<Host>> for Ready {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, host: &Arc<Host>) -> Result<Self, ApiError> {
        host.wake().await.map(Ready)
    }
}

/// Return the seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineParams, Generate};
    use backstitch_models::Token;
    use backstitch_models::sampler::{Chain, Settings};

    #[test]
    fn a_broken_engine_is_loaded_again() {
        let load = || {
            let model = Model::from_bytes(backstitch_demo::GGUF)?;
            let engine = Engine::start(&model, EngineParams { n_ctx: 64, ..EngineParams::default() })?;
            Ok(Loaded { engine, template: None, adapters: Adapters::default() })
        };
        let host = Arc::new(Host::new(ServerParams::default(), load).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let app = runtime.block_on(host.wake()).unwrap();
        assert!(!host.is_broken());
        runtime.block_on(app.engine().crash());
        assert!(host.is_broken());
        let again = runtime.block_on(host.wake()).unwrap();
        assert!(!host.is_broken() && !Arc::ptr_eq(&app, &again));
        assert!(runtime.block_on(again.engine().counters()).is_ok());
    }

    /// Evaluate a few tokens.
    fn generate(app: &App) {
        let chain = Chain::new(app.vocab().n_vocab(), &Settings::default().temp(0.0));
        let mut request = Generate::new(vec![Token(1), Token(2), Token(3)], chain);
        (request.limit, request.ignore_eos) = (Some(2), true);
        let mut events = app.engine().generate(request).unwrap();
        while events.blocking_recv().is_some() {}
    }

    /// Counters grow through sleeps and broken engines, and asleep they are those from before.
    #[test]
    fn counters_survive_sleep() {
        let load = || {
            let model = Model::from_bytes(backstitch_demo::GGUF)?;
            let engine = Engine::start(&model, EngineParams { n_ctx: 64, ..EngineParams::default() })?;
            Ok(Loaded { engine, template: None, adapters: Adapters::default() })
        };
        let params = ServerParams { sleep_after: Some(Duration::ZERO), ..ServerParams::default() };
        let host = Arc::new(Host::new(params, load).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let count = || runtime.block_on(host.counters()).unwrap();
        let mut before = Counters::default();
        for round in 1..=4 {
            let app = runtime.block_on(host.wake()).unwrap();
            assert_eq!(count().n_generated, before.n_generated, "round {round}");
            generate(&app);
            let awake = count();
            assert_eq!(awake.n_generated, 2 * round);
            assert!(awake.n_prompt > before.n_prompt && awake.n_batches > before.n_batches);
            if round == 2 {
                runtime.block_on(app.engine().crash());
                before = awake;
                continue;
            }
            drop(app);
            runtime.block_on(async {
                host.sleep_if_idle();
                while host.app.try_lock().is_err() {
                    tokio::task::yield_now().await;
                }
            });
            assert!(host.is_sleeping());
            assert_eq!(count(), awake, "asleep");
            before = count();
        }
    }
}
