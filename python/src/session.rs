//! Sessions: texts that grow, branch and are rolled back.

mod options;
mod saved;

use crate::arguments::{
    FilePath, Prompt, number, number_or_none, numbers, parse_special, position, write_special,
};
use crate::arrays::Logits;
use crate::cancel::Cancel;
use crate::chat::{ChatTemplate, RenderOptions};
use crate::engine::{self, Branch, Engine};
use crate::errors::{Class, OrRaise, argument};
use crate::generation::Generation;
use crate::model::Model;
use crate::results::{CostRange, PrefixReuse, Rollback, TokenLogprobs};
use crate::sampling::{self, Constraint, Settings, chain};
use crate::watch::{Progress, Watch};
use backstitch_models::session::{GenerateOptions, Randomness};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{self as models, Context, Error, SaveOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use saved::{Restoring, Source};
use std::sync::{Arc, Mutex, PoisonError};

/// A way to evaluate tokens behind the end, which reports how many were evaluated.
type Evaluate = fn(&mut models::Session, &[models::Token], &dyn Fn(usize)) -> Result<(), Error>;

/// A text that grows, branches and is rolled back, with the samplers that write it.
///
/// A session is made of a model, or forked from another one; forks share a context, and what they
/// have in common is there once. Any thread may use a session. Calls of sessions that share a
/// context take turns.
#[pyclass(frozen, weakref, module = "backstitch")]
pub struct Session {
    engine: Arc<Engine<models::Session>>,
    branch: Branch,
    model: Py<Model>,
    sampling: Mutex<Sampling>,
    metadata: Vec<u8>,
}

/// The samplers of a session.
#[derive(Clone)]
struct Sampling {
    settings: Settings,
    /// The chain of samplers begins with a grammar, that of the last generation.
    has_grammar: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.release();
    }
}

impl Session {
    /// Return the session of the library and its turns.
    pub fn engine(&self) -> &Engine<models::Session> {
        &self.engine
    }

    /// Give the branch back.
    fn release(&self) {
        let branch = self.branch.lock().unwrap_or_else(PoisonError::into_inner).take();
        branch.into_iter().for_each(|seq| self.engine.drop_branch(seq));
    }

    fn sampling(&self) -> Sampling {
        self.sampling.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_sampling(&self, sampling: Sampling) {
        *self.sampling.lock().unwrap_or_else(PoisonError::into_inner) = sampling;
    }

    /// Compute with the branch of this object.
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        compute: impl FnOnce(&mut models::Session) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.run_watched(py, Watch::new([None]), compute)
    }

    /// Compute with the branch of this object under `watch`.
    fn run_watched<R: Send>(
        &self,
        py: Python<'_>,
        watch: Watch,
        compute: impl FnOnce(&mut models::Session) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let branch = engine::branch(py, &self.branch)?;
        self.engine.run_watched(py, watch, |session| compute(session.switch(branch)?))
    }

    /// Return an object for another branch of the same context.
    fn beside(&self, py: Python<'_>, branch: models::SeqId) -> Session {
        Session {
            engine: self.engine.clone(),
            branch: Mutex::new(Some(branch)),
            model: self.model.clone_ref(py),
            sampling: Mutex::new(self.sampling()),
            metadata: self.metadata.clone(),
        }
    }

    /// Evaluate text behind the end, as `evaluate` does. Return the new end.
    fn extend(
        &self,
        py: Python<'_>,
        text: Prompt,
        parse: ParseSpecial,
        watching: Watching<'_>,
        evaluate: Evaluate,
    ) -> PyResult<i32> {
        let (watch, progress) = watching.begin();
        self.run_watched(py, watch, |session| {
            let tokens = text.tokens_behind(session, parse);
            evaluate(session, &tokens, &|done| progress.report(done as u64, tokens.len() as u64))?;
            Ok(session.pos().0)
        })
    }

    /// Set all tokens.
    fn replace(
        &self,
        py: Python<'_>,
        tokens: impl FnOnce(&models::Session) -> Vec<models::Token> + Send,
        watching: Watching<'_>,
    ) -> PyResult<PrefixReuse> {
        let (watch, progress) = watching.begin();
        let reuse = self.run_watched(py, watch, |session| {
            let tokens = tokens(session);
            let kept = session.tokens().iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            let n_new = tokens.len() - kept;
            session.set_tokens_with(&tokens, |done| progress.report(done as u64, n_new as u64))
        });
        reuse.map(PrefixReuse::from)
    }
}

/// The callback of a computation, and the request to cancel it.
struct Watching<'a> {
    progress: Option<Py<PyAny>>,
    cancel: Option<&'a Cancel>,
}

impl Watching<'_> {
    fn begin(self) -> (Watch, Progress) {
        let watch = Watch::new([self.cancel.map(|cancel| cancel.inner.clone())]);
        let progress = Progress::new(self.progress, &watch);
        (watch, progress)
    }
}

/// Stop strings: one, or several.
#[derive(FromPyObject)]
enum Stops {
    One(String),
    Several(Vec<String>),
}

#[pymethods]
impl Session {
    /// Make an empty session in a context of its own.
    ///
    /// Options of the context: `n_ctx`, the number of tokens that it has room for, all forks
    /// together (by default what the model was trained for, 4096 at most; 0 for all of that);
    /// `n_seq_max`, the number of sessions that may share it (4); `n_threads`; `n_batch` and
    /// `n_ubatch`, the logical and the physical batch size; `cache_type_k` and `cache_type_v`
    /// ("f16", "f32", "bf16", "q8_0", "q4_0"); `checkpoint_bytes`, the budget of checkpoints.
    #[new]
    #[pyo3(signature = (model, *, settings=None, **context))]
    fn new(
        model: &Bound<'_, Model>,
        settings: Option<&Settings>,
        context: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (py, loaded) = (model.py(), &model.get().inner);
        let params = options::params(loaded, context)?;
        let settings = settings.cloned().unwrap_or_default();
        let session = py.detach(|| {
            let ctx = Context::new(loaded, params)?;
            let settings = settings.in_context(&ctx);
            models::Session::new(ctx, &settings)
        });
        Ok(Session {
            engine: Arc::new(Engine::new(session.or_raise(py)?)),
            branch: Mutex::new(Some(models::SeqId(0))),
            model: model.clone().unbind(),
            sampling: Mutex::new(Sampling { settings, has_grammar: false }),
            metadata: Vec::new(),
        })
    }

    // Restoring.

    /// Restore the session in the file at `path`, which `save` wrote, into a context of its own. It
    /// goes on with the same bits, and the samplers with the same random numbers. `convert` allows
    /// for cells of another type.
    #[staticmethod]
    #[pyo3(signature = (model, path, *, settings=None, convert=false, **context))]
    fn restore(
        model: &Bound<'_, Model>,
        path: FilePath,
        settings: Option<&Settings>,
        convert: bool,
        context: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let restoring = Restoring { model, settings, convert, context };
        first(model.py(), restoring.restore(Source::File(&path))?)
    }

    /// Restore all sessions in the file at `path`, which `save_all` wrote, into one context.
    #[staticmethod]
    #[pyo3(signature = (model, path, *, settings=None, convert=false, **context))]
    fn restore_all(
        model: &Bound<'_, Model>,
        path: FilePath,
        settings: Option<&Settings>,
        convert: bool,
        context: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Self>> {
        let restoring = Restoring { model, settings, convert, context };
        restoring.restore(Source::All(&path))
    }

    /// Restore the session in `data`, which `to_bytes` returned, into a context of its own.
    #[staticmethod]
    #[pyo3(signature = (model, data, *, settings=None, convert=false, **context))]
    fn from_bytes(
        model: &Bound<'_, Model>,
        data: &[u8],
        settings: Option<&Settings>,
        convert: bool,
        context: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let restoring = Restoring { model, settings, convert, context };
        first(model.py(), restoring.restore(Source::Bytes(data))?)
    }

    // What the session holds.

    /// The model.
    #[getter]
    fn model(&self, py: Python<'_>) -> Py<Model> {
        self.model.clone_ref(py)
    }

    /// The position of the next token, which is the number of tokens.
    #[getter]
    fn pos(&self, py: Python<'_>) -> PyResult<i32> {
        self.run(py, |session| Ok(session.pos().0))
    }

    /// The tokens.
    #[getter]
    fn tokens(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.run(py, |session| Ok(numbers(session.tokens())))
    }

    /// Return the text of the tokens from position `start` on.
    #[pyo3(signature = (start=0, *, write_special=false))]
    fn text(&self, py: Python<'_>, start: i128, write_special: bool) -> PyResult<String> {
        let start: usize = number(py, "start", start)?;
        self.run(py, |session| {
            let tokens = session.tokens().get(start..).unwrap_or_default();
            let vocab = session.context().model().vocab();
            let bytes = vocab.detokenize(tokens, self::write_special(write_special));
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
    }

    /// The bytes that were saved beside the session that was restored; empty for others.
    #[getter]
    fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// The number of tokens that the context has room for.
    #[getter]
    fn n_ctx(&self, py: Python<'_>) -> PyResult<u32> {
        self.run(py, |session| Ok(session.context().params().n_ctx))
    }

    /// Return the bytes of the context and its model in memory, by their use.
    fn budget<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let budget = self.run(py, |session| Ok(session.context().budget()))?;
        let sizes = PyDict::new(py);
        sizes.set_item("weights", budget.weights)?;
        sizes.set_item("caches", budget.caches)?;
        sizes.set_item("states", budget.states)?;
        sizes.set_item("journal", budget.journal)?;
        sizes.set_item("arena", budget.arena)?;
        sizes.set_item("outputs", budget.outputs)?;
        sizes.set_item("tokens", budget.tokens)?;
        Ok(sizes)
    }

    /// The settings of the samplers. Setting them begins their random numbers at their seed, or at
    /// one that is drawn if they have none.
    #[getter]
    fn settings(&self) -> Settings {
        self.sampling().settings
    }

    #[setter]
    fn set_settings(&self, py: Python<'_>, settings: &Settings) -> PyResult<()> {
        self.run(py, |session| {
            let ctx = session.context();
            let n_vocab = ctx.model().hparams().n_vocab;
            settings.check(n_vocab)?;
            let chain = chain(n_vocab, &settings.in_context(ctx), None);
            session.set_chain(chain);
            Ok(())
        })?;
        self.set_sampling(Sampling { settings: settings.clone(), has_grammar: false });
        Ok(())
    }

    /// The seed that the random numbers began from: that of the settings or of `reseed`, or the one
    /// that was drawn because there was none.
    #[getter]
    fn seed(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |session| Ok(session.chain().seed()))
    }

    // Evaluating.

    /// Evaluate a prompt, text or tokens, behind the end. Return the new end.
    ///
    /// Text at the beginning gets the special tokens that the model wants there. `parse_special`
    /// turns control tokens that are written out in a text into those tokens: use it only for text
    /// whose every byte is trusted. `progress` is called with the number of tokens that are done,
    /// and with the number of all.
    ///
    /// Raises `CancelledError` after a request of `cancel`; tokens evaluated until then stay. After
    /// any other error the session is as it was.
    #[pyo3(signature = (text, *, parse_special=false, progress=None, cancel=None))]
    fn prompt(
        &self,
        py: Python<'_>,
        text: Prompt,
        parse_special: bool,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Cancel>,
    ) -> PyResult<i32> {
        let watching = Watching { progress, cancel };
        let parse = self::parse_special(parse_special);
        self.extend(py, text, parse, watching, |session, tokens, done| session.prompt_with(tokens, done))
    }

    /// Evaluate text or tokens behind the end, as `prompt` does. For models with an encoder and a
    /// decoder, this is text of the decoder.
    #[pyo3(signature = (text, *, parse_special=false, progress=None, cancel=None))]
    fn feed(
        &self,
        py: Python<'_>,
        text: Prompt,
        parse_special: bool,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Cancel>,
    ) -> PyResult<i32> {
        let watching = Watching { progress, cancel };
        let parse = self::parse_special(parse_special);
        self.extend(py, text, parse, watching, |session, tokens, done| session.feed_with(tokens, done))
    }

    /// Set all tokens, or the whole text: keep the common beginning, roll back the rest, and
    /// evaluate what is new.
    #[pyo3(signature = (text, *, parse_special=false, progress=None, cancel=None))]
    fn set_tokens(
        &self,
        py: Python<'_>,
        text: Prompt,
        parse_special: bool,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Cancel>,
    ) -> PyResult<PrefixReuse> {
        let parse = self::parse_special(parse_special);
        self.replace(py, |session| text.tokens(session, parse), Watching { progress, cancel })
    }

    /// Set the whole conversation: messages, each a dict with "role" and "content". What has not
    /// changed since the last call is not evaluated another time.
    ///
    /// `template` takes the place of the model's own one. Further keyword arguments are variables
    /// of the template.
    #[pyo3(signature = (messages, *, template=None, add_generation_prompt=true, tools=None, progress=None, cancel=None, **variables))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn set_messages(
        &self,
        messages: &Bound<'_, PyAny>,
        template: Option<Bound<'_, ChatTemplate>>,
        add_generation_prompt: bool,
        tools: Option<Bound<'_, PyAny>>,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Cancel>,
        variables: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PrefixReuse> {
        let py = messages.py();
        let model = &self.model.get().inner;
        let own = model.chat_template().filter(|_| template.is_none());
        let own = own.map(|source| ChatTemplate::parse(py, source.into())).transpose()?;
        let template = template.as_ref().map(Bound::get).or(own.as_ref());
        let no_template = || Class::Chat.error(py, "this model has no chat template; give one as `template`");
        let options = RenderOptions { add_generation_prompt, tools, variables };
        let template = template.ok_or_else(no_template)?;
        let rendered = template.rendered(messages, Some(model.vocab()), &options)?;
        let tokens = |session: &models::Session| {
            let mut tokens = Vec::new();
            rendered.tokenize(session.context().model().vocab(), AddSpecial::Start, &mut tokens);
            tokens
        };
        self.replace(py, tokens, Watching { progress, cancel })
    }

    /// Return the logits after the last token.
    fn logits(&self, py: Python<'_>) -> PyResult<Logits> {
        self.run(py, models::Session::shared_logits).map(|values| Logits { values })
    }

    /// Evaluate text or tokens behind the end, and return the log-probability of each token, with
    /// the `top` likeliest at its position.
    #[pyo3(signature = (text, *, top=0, parse_special=false, cancel=None))]
    fn score(
        &self,
        py: Python<'_>,
        text: Prompt,
        top: i128,
        parse_special: bool,
        cancel: Option<&Cancel>,
    ) -> PyResult<Vec<TokenLogprobs>> {
        let top: usize = number(py, "top", top)?;
        let (watch, _) = Watching { progress: None, cancel }.begin();
        let parse = self::parse_special(parse_special);
        self.run_watched(py, watch, |session| {
            let tokens = text.tokens_behind(session, parse);
            let mut scored = Vec::new();
            session.score(&tokens, top, |token| scored.push(token.into()))?;
            Ok(scored)
        })
    }

    // Generating.

    /// Generate behind the end: return an iterator over chunks of text, for `for` and `async for`.
    ///
    /// `limit` is the most tokens; without it, or with -1, the generation goes on until the model
    /// ends the text or the context is full. The text ends before the first of the strings `stop`
    /// that occurs. `settings` become those of the session. `ignore_eos` goes on behind the end of
    /// the text. `logprobs` reports that many likeliest tokens at each position. The text matches
    /// one of `grammar` (GBNF), `json_schema` (text or a dict), `regex` or `lark`, if that is
    /// given.
    #[pyo3(signature = (limit=None, stop=None, *, settings=None, ignore_eos=false, logprobs=None, grammar=None, json_schema=None, regex=None, lark=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn generate(
        slf: &Bound<'_, Self>,
        limit: Option<i128>,
        stop: Option<Stops>,
        settings: Option<&Settings>,
        ignore_eos: bool,
        logprobs: Option<i128>,
        grammar: Option<String>,
        json_schema: Option<Bound<'_, PyAny>>,
        regex: Option<String>,
        lark: Option<String>,
        cancel: Option<&Cancel>,
    ) -> PyResult<Generation> {
        let (py, this) = (slf.py(), slf.get());
        let mut options = GenerateOptions::default();
        options.limit = limit.map(|n| number_or_none(py, "limit", n)).transpose()?.flatten();
        options.logprobs = logprobs.map(|n| number(py, "logprobs", n)).transpose()?;
        options.ignore_eos = ignore_eos;
        options.stops = match stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop],
            Some(Stops::Several(stops)) => stops,
        };
        let constraint = Constraint { grammar, json_schema, regex, lark };
        let grammar = constraint.compile(py, &this.model.get().grammars)?;
        // Only now that nothing else can be refused: an error leaves the session as it was.
        if let Some(settings) = settings {
            this.set_settings(py, settings)?;
        }
        let sampling = this.sampling();
        let has_grammar = grammar.is_some();
        let paused = this.run(py, |session| {
            if has_grammar || sampling.has_grammar {
                let (ctx, n_prompt) = (session.context(), session.tokens().len());
                let grammar = grammar.as_ref().map(|grammar| (grammar, n_prompt));
                let settings = sampling.settings.in_context(ctx);
                let mut chain = chain(ctx.model().hparams().n_vocab, &settings, grammar);
                chain.continue_draws(session.chain());
                session.set_chain(chain);
            }
            Ok(session.generate(options).pause())
        })?;
        this.set_sampling(Sampling { has_grammar, ..sampling });
        let cancel = cancel.map(|cancel| cancel.inner.clone());
        Ok(Generation::new(slf.clone().unbind(), paused, cancel))
    }

    /// Roll the last generation back, with everything behind it, to generate another time.
    ///
    /// Its random numbers repeat, which gives the same text; with "continue" they go on, and with a
    /// seed they begin there; -1 draws one.
    #[pyo3(signature = (randomness=None, *, seed=None))]
    fn regenerate(&self, py: Python<'_>, randomness: Option<&str>, seed: Option<i128>) -> PyResult<Rollback> {
        let randomness = match (randomness, seed) {
            (None, Some(seed)) => Randomness::Seed(sampling::seed(py, seed)?),
            (None | Some("repeat"), None) => Randomness::Repeat,
            (Some("continue"), None) => Randomness::Continue,
            _ => return Err(argument(py, "give \"repeat\" or \"continue\", or a seed")),
        };
        self.run(py, |session| session.regenerate(randomness)).map(Rollback::from)
    }

    /// Draw with the random numbers of `seed` from here on; -1 draws a seed.
    fn reseed(&self, py: Python<'_>, seed: i128) -> PyResult<()> {
        let seed = sampling::seed(py, seed)?;
        self.run(py, |session| {
            session.reseed(seed);
            Ok(())
        })
    }

    /// Remove the stop string that ended the last generation, so that the session holds exactly the
    /// text that was yielded. Return `None` if there is none.
    fn cut_stop(&self, py: Python<'_>) -> PyResult<Option<PrefixReuse>> {
        Ok(self.run(py, models::Session::cut_stop)?.map(PrefixReuse::from))
    }

    // Going back.

    /// Roll back, so that `pos` is the position of the next token, and return the work that this
    /// took. It works for every model and every position.
    #[pyo3(signature = (pos, *, cancel=None))]
    fn rollback(&self, py: Python<'_>, pos: i64, cancel: Option<&Cancel>) -> PyResult<Rollback> {
        let (watch, _) = Watching { progress: None, cancel }.begin();
        let rollback = self.run_watched(py, watch, |session| {
            let pos = position(pos, session.pos().0)?;
            session.rollback(pos)
        });
        rollback.map(Rollback::from)
    }

    /// Return what a rollback to each position costs, as ranges of positions.
    fn rollback_costs(&self, py: Python<'_>) -> PyResult<Vec<CostRange>> {
        let costs = self.run(py, |session| session.context().positions(session.current()))?;
        Ok(costs.into_iter().map(CostRange::from).collect())
    }

    /// Replace everything from `pos` on by text or tokens.
    #[pyo3(signature = (pos, text, *, parse_special=false, cancel=None))]
    fn edit(
        &self,
        py: Python<'_>,
        pos: i64,
        text: Prompt,
        parse_special: bool,
        cancel: Option<&Cancel>,
    ) -> PyResult<Rollback> {
        let (watch, _) = Watching { progress: None, cancel }.begin();
        let parse = self::parse_special(parse_special);
        let rollback = self.run_watched(py, watch, |session| {
            let pos = position(pos, session.pos().0)?;
            let tokens = match text {
                Prompt::Text(text) => session.tokenize_at(pos, &text, parse),
                Prompt::Tokens(tokens) => tokens.0,
            };
            session.edit(pos, &tokens)
        });
        rollback.map(Rollback::from)
    }

    /// Pin the end: a rollback reaches it at once until it is unpinned or left behind. Return its
    /// position.
    fn pin(&self, py: Python<'_>) -> PyResult<i32> {
        self.run(py, |session| Ok(session.pin()?.0))
    }

    /// Remove the pin at `pos`, from all forks that share it; return false if there is none.
    fn unpin(&self, py: Python<'_>, pos: i64) -> PyResult<bool> {
        self.run(py, |session| session.unpin(position(pos, session.pos().0)?))
    }

    // Branching.

    /// Return another session with the same tokens and the same state of the samplers. Nothing is
    /// copied until one of them changes.
    fn fork(&self, py: Python<'_>) -> PyResult<Session> {
        let branch = self.run(py, models::Session::branch)?;
        Ok(self.beside(py, branch))
    }

    /// Return an empty session in the same context, with the same settings.
    fn empty_branch(&self, py: Python<'_>) -> PyResult<Session> {
        let branch = self.run(py, models::Session::empty_branch)?;
        let session = self.beside(py, branch);
        if self.sampling().has_grammar {
            let seed = session.seed(py)?;
            session.set_settings(py, &self.settings())?;
            session.reseed(py, seed.into())?;
        }
        Ok(session)
    }

    /// Return a context manager that takes back all that happens to the session in its block, if
    /// the block raises. It needs a sequence of the context.
    fn savepoint<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("backstitch._savepoint")?.call_method1("Savepoint", (slf,))
    }

    /// Exchange the contents of two sessions of one context.
    fn _swap(&self, other: &Session) {
        let take = |session: &Session| session.branch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let put = |session: &Session, branch| {
            *session.branch.lock().unwrap_or_else(PoisonError::into_inner) = branch;
        };
        let (mine, theirs) = (take(self), take(other));
        put(self, theirs);
        put(other, mine);
        let mine = self.sampling();
        self.set_sampling(other.sampling());
        other.set_sampling(mine);
    }

    // Saving.

    /// Save the session with its samplers to the file at `path`, in place of a file that is there.
    /// A crash leaves the old file or the new one; `sync` waits until it is on disk.
    #[pyo3(signature = (path, *, metadata=None, sync=true))]
    fn save(&self, py: Python<'_>, path: FilePath, metadata: Option<&[u8]>, sync: bool) -> PyResult<()> {
        let options = SaveOptions::default().metadata(metadata.unwrap_or_default()).sync(sync);
        self.run(py, |session| session.save_with(path, &options).map(drop))
    }

    /// Save all sessions of the context to the file at `path`, as `save` does. What they share is
    /// saved once.
    #[pyo3(signature = (path, *, metadata=None, sync=true))]
    fn save_all(&self, py: Python<'_>, path: FilePath, metadata: Option<&[u8]>, sync: bool) -> PyResult<()> {
        let options = SaveOptions::default().metadata(metadata.unwrap_or_default()).sync(sync);
        self.run(py, |session| session.save_all_with(path, &options).map(drop))
    }

    /// Return the session with its samplers as bytes.
    #[pyo3(signature = (*, metadata=None))]
    fn to_bytes<'py>(&self, py: Python<'py>, metadata: Option<&[u8]>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.run(py, |session| saved::to_bytes(session, metadata.unwrap_or_default()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    // The end.

    /// Give the sequence back to the context. The session cannot be used any more.
    fn close(&self) {
        self.release();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.release();
    }

    fn __repr__(&self) -> String {
        match *self.branch.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(seq) => format!("<backstitch.Session, sequence {}>", seq.0),
            None => "<backstitch.Session, closed>".into(),
        }
    }
}

/// Return the session of a state with one sequence.
fn first(py: Python<'_>, sessions: Vec<Session>) -> PyResult<Session> {
    let none = || Class::Damaged.error(py, "the saved state holds no sequence");
    sessions.into_iter().next().ok_or_else(none)
}
