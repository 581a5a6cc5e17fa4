//! The engine thread: requests of many clients over one context.
//!
//! [`Engine`] is the handle. Its thread runs steps: each one evaluates a token of every text that
//! is being generated and a piece of the prompts that wait, in one batch. A step takes about a
//! fifth of a second at most, so a new request never waits long for a long prompt.
//!
//! | submodule | content |
//! |---|---|
//! | `request`, `event` | what goes into the engine and comes out of it |
//! | `worker` | the thread: it takes requests in, composes batches and evaluates them |
//! | `task`, `lines` | a request under way: its samplers, its text, its events |
//! | `conversations` | the sequences that are held, and the choice of the one to continue |
//! | `pins` | the ends of messages that stay reachable, and those given up when space runs out |
//! | `queue` | the places of requests that wait |
//! | `report` | what the engine tells about slots, the cache and its counters |
//!
//! ```
//! use backstitch_models::sampler::{Chain, Settings};
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial};
//! use backstitch_models::Model;
//! use backstitch_server::engine::{Engine, EngineParams, Event, Generate};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let engine = Engine::start(&model, EngineParams::default())?;
//! let mut prompt = Vec::new();
//! model.vocab().tokenize("Once upon a time", AddSpecial::Start, ParseSpecial::No, &mut prompt);
//! let chain = Chain::new(model.vocab().n_vocab(), &Settings::default().temp(0.0));
//! let mut request = Generate::new(prompt, chain);
//! request.limit = Some(5);
//! let mut events = engine.generate(request)?;
//! let mut text = String::new();
//! while let Some(event) = events.blocking_recv() {
//!     match event {
//!         Event::Chunk(chunk) => text += &chunk.text,
//!         Event::Failed(error) => return Err(error.into()),
//!         _ => {}
//!     }
//! }
//! assert_eq!(text, ", there was a little");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod conversations;
mod drafts;
mod embed;
mod event;
mod lines;
mod params;
mod pins;
mod queue;
mod report;
mod request;
mod slots;
mod task;
mod worker;

pub use drafts::{DraftSource, Drafts};
pub use embed::Embedding;
pub use event::{Chunk, Ended, Event, Reuse, ReuseLimit, Timings};
pub use params::{EngineParams, check_folder};
pub(crate) use report::Ledger;
pub use report::{Counters, HeldSequence, SlotReport};
pub use request::{Generate, Tenant, WhenFull};
pub use slots::{SlotFile, SlotLayout};

use crate::error::Error;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::{Model, Token};
use queue::Queue;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc as events, oneshot};
use worker::Worker;

/// The number of events that may wait for a client. A generation whose client reads no further
/// pauses.
const EVENTS_AHEAD: usize = 256;

/// The time between two looks at whether there are cells for an input.
const WAIT_FOR_CELLS: Duration = Duration::from_millis(20);

/// Something for the engine thread to do.
enum Command {
    /// Evaluate a request.
    Generate { request: Box<Generate>, events: events::Sender<Event>, since: Instant },
    /// Do something between two steps.
    Call(Call),
    /// End the thread when no request is under way any more.
    Finish,
}

/// Something to do between two steps. It returns false if a slot that it needs evaluates a request;
/// it then did nothing, and is called again before a later step.
type Call = Box<dyn FnMut(&mut Worker) -> bool + Send>;

/// A handle to the engine thread. Clones share the thread, which ends with the last of them.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    model: Model,
    params: EngineParams,
    commands: mpsc::Sender<Command>,
    /// The requests that were sent and have not begun.
    queue: Arc<Queue>,
    ledger: Ledger,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl core::fmt::Debug for Engine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine").field("params", &self.shared.params).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread may have ended already.
        let _ = self.commands.send(Command::Finish);
        let thread = self.thread.get_mut().ok().and_then(Option::take);
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Engine {
    /// Make a context of `model` and start a thread that evaluates requests in it.
    ///
    /// # Errors
    /// [`Error::Engine`] with those of [`Context::new`](backstitch_models::Context::new), and of
    /// opening the prompt cache.
    pub fn start(model: &Model, params: EngineParams) -> Result<Self, Error> {
        let queue = Arc::new(Queue::new(params.max_waiting));
        let (commands, inbox) = mpsc::channel();
        let mut worker = Worker::new(model, &params, inbox, queue.clone())?;
        let ledger = worker.ledger().clone();
        let params = worker.params().clone();
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || worker.run());
        let thread = Mutex::new(thread.ok());
        let shared = Shared { model: model.clone(), params, commands, queue, ledger, thread };
        Ok(Engine { shared: Arc::new(shared) })
    }

    /// Return the model.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// Return the parameters, with all defaults filled in.
    pub fn params(&self) -> &EngineParams {
        &self.shared.params
    }

    /// Return false if the thread ended by a panic, after which nothing is evaluated any more.
    pub fn is_alive(&self) -> bool {
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Evaluate a request, and return its events. Dropping the receiver cancels the request; what
    /// was evaluated until then stays held for later ones. A request whose events nobody takes
    /// pauses, and keeps its slot.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`], [`Error::Slot`]; [`Error::Engine`] for a
    /// token outside of the vocabulary; [`Error::Busy`] if the queue is full; [`Error::Stopped`].
    pub fn generate(&self, request: Generate) -> Result<events::Receiver<Event>, Error> {
        self.check(&request)?;
        self.shared.queue.enter(request.tenant.owner())?;
        let (sender, receiver) = events::channel(EVENTS_AHEAD);
        let command = Command::Generate { request: Box::new(request), events: sender, since: Instant::now() };
        self.shared.commands.send(command).map_err(|_| Error::Stopped)?;
        Ok(receiver)
    }

    /// Make the thread panic, and wait until it has.
    #[cfg(test)]
    #[expect(clippy::panic, reason = "as a mistake would")]
    pub(crate) async fn crash(&self) {
        let ended: Result<(), Error> = self.call(|_| panic!("a test")).await;
        assert!(matches!(ended, Err(Error::Stopped)));
        while self.is_alive() {
            std::thread::yield_now();
        }
    }

    fn check(&self, request: &Generate) -> Result<(), Error> {
        let EngineParams { n_ctx, n_slots, .. } = self.shared.params;
        match request.slot {
            Some(slot) if slot >= n_slots => return Err(Error::Slot { slot, n_slots }),
            _ => {}
        }
        let n_vocab = self.model().hparams().n_vocab;
        let stranger = (0..).zip(&request.prompt).find(|(_, token)| token.0 as usize >= n_vocab);
        if let Some((index, token)) = stranger {
            return Err(backstitch_models::Error::Token { index, token: token.0, n_vocab }.into());
        }
        match request.prompt.len() {
            0 => Err(Error::EmptyPrompt),
            n if n >= n_ctx as usize => {
                Err(Error::PromptTooLong { n_prompt_tokens: n, n_ctx: n_ctx as usize })
            }
            _ => Ok(()),
        }
    }

    /// Do `work` between two steps of the engine, and return what it returns.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let mut work = Some(work);
        self.call_again(move |worker| Ok(work.take().map(|work| work(worker)))).await?.ok_or(Error::Stopped)
    }

    /// Do `work` between two steps of the engine, as soon as it finds its slot idle
    /// ([`Error::BusySlot`] otherwise), and return what it returns.
    async fn call_again<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut Worker) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let call: Call = Box::new(move |worker| {
            // Nobody waits any more for the slot.
            if sender.as_ref().is_none_or(oneshot::Sender::is_closed) {
                return true;
            }
            let result = work(worker);
            let is_done = !matches!(result, Err(Error::BusySlot { .. }));
            if is_done && let Some(sender) = sender.take() {
                // The one who asked may have gone away.
                let _ = sender.send(result);
            }
            is_done
        });
        self.shared.commands.send(Command::Call(call)).map_err(|_| Error::Stopped)?;
        receiver.await.map_err(|_| Error::Stopped)?
    }

    /// Return the embeddings of `inputs`, in their order, evaluated with `adapters`.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`]; [`Error::InputTooLong`] or [`Error::InputBeyondContext`] with an
    /// encoder, [`Error::PromptTooLong`] with a decoder; [`Error::Stopped`]; [`Error::Engine`] if
    /// the model is an encoder-decoder, or fails.
    pub async fn embed(
        &self,
        inputs: Vec<Vec<Token>>,
        adapters: &AdapterSet,
    ) -> Result<Vec<Embedding>, Error> {
        let (n_inputs, inputs) = (inputs.len(), Arc::new(inputs));
        let mut embeddings = Vec::with_capacity(n_inputs);
        // A batch at a time, so that other requests go on between them.
        while embeddings.len() < n_inputs {
            let (inputs, set, n_done) = (inputs.clone(), adapters.clone(), embeddings.len());
            let rest =
                move |worker: &mut Worker| worker.embed(inputs.get(n_done..).unwrap_or_default(), &set);
            let some = self.call(rest).await??;
            if some.is_empty() {
                tokio::time::sleep(WAIT_FOR_CELLS).await;
            }
            embeddings.extend(some);
        }
        Ok(embeddings)
    }

    /// Return what the slots do, in their order.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn slots(&self) -> Result<Vec<SlotReport>, Error> {
        self.call(|worker| worker.slots()).await
    }

    /// Return the sequences of `tenant` that are held, the one used last first.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn held(&self, tenant: Tenant) -> Result<Vec<HeldSequence>, Error> {
        self.call(move |worker| worker.held(tenant)).await
    }

    /// Return the counters.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn counters(&self) -> Result<Counters, Error> {
        self.call(|worker| worker.counters()).await
    }

    /// Return the record of the counters, which stays when the engine ends.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Save the sequence of a slot, if it is one of `tenant`, once the slot is idle.
    ///
    /// # Errors
    /// [`Error::Slot`], [`Error::Stopped`];
    /// [`Error::Engine`] if the file cannot be written, whose former content then stays.
    pub async fn save_slot(
        &self,
        slot: usize,
        tenant: Tenant,
        path: PathBuf,
        layout: SlotLayout,
    ) -> Result<SlotFile, Error> {
        self.call_again(move |worker| worker.save_slot(slot, tenant, &path, layout)).await
    }

    /// Restore a saved sequence, of either layout, into a slot, for requests of `tenant`, once the
    /// slot is idle. The
    /// sequence that the slot showed before stays held. `sets` are the adapters that the saved one
    /// may have been evaluated with.
    ///
    /// # Errors
    /// [`Error::Slot`], [`Error::Stopped`]; [`Error::Engine`] if the file cannot be read, is
    /// damaged, or of another model.
    pub async fn restore_slot(
        &self,
        slot: usize,
        path: PathBuf,
        tenant: Tenant,
        sets: Vec<AdapterSet>,
    ) -> Result<SlotFile, Error> {
        self.call_again(move |worker| worker.restore_slot(slot, &path, tenant, &sets)).await
    }

    /// Drop the sequence of a slot once it is idle, and return the number of its tokens; 0 if it is
    /// none of `tenant`.
    ///
    /// # Errors
    /// [`Error::Slot`], [`Error::Stopped`].
    pub async fn erase_slot(&self, slot: usize, tenant: Tenant) -> Result<usize, Error> {
        self.call_again(move |worker| worker.erase_slot(slot, tenant)).await
    }
}
