//! The engine thread: it takes requests in, composes batches, evaluates them, and hands out what
//! they give.

mod admit;
mod pace;
mod setup;
mod state;
mod step;

use super::conversations::Conversations;
use super::drafts::Drafters;
use super::event::Event;
use super::params::EngineParams;
use super::queue::{Owner, Queue};
use super::report::{Counters, HeldSequence, Ledger, SlotReport};
use super::request::Tenant;
use super::slots::SlotView;
use super::task::{Running, Task};
use super::{Call, Command};
use crate::error::Error;
pub(super) use admit::{is_full, lacking};
use backstitch_models::session::Finish;
use backstitch_models::{Batch, Context, Model, SeqId};
use pace::Pace;
use state::StateFolder;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// The time between two looks at clients that read too slowly, and at what waits for the disk.
const PAUSE: Duration = Duration::from_millis(20);
/// The time between two records of the counters while requests are evaluated.
const RECORD: Duration = Duration::from_millis(250);

/// The state of the engine thread.
pub(super) struct Worker {
    pub(super) ctx: Context,
    pub(super) model: Model,
    pub(super) params: EngineParams,
    inbox: Receiver<Command>,
    queue: Arc<Queue>,
    waiting: Vec<Task>,
    /// Calls whose slots evaluate requests.
    deferred: Vec<Call>,
    pub(super) running: Vec<Running>,
    pub(super) conversations: Conversations,
    pub(super) slots: Vec<SlotView>,
    state: Option<StateFolder>,
    drafters: Option<Drafters>,
    pub(super) batch: Batch,
    pace: Pace,
    pub(super) counters: Counters,
    ledger: Ledger,
    /// The time at which the counters were last kept there.
    recorded: Instant,
    /// The number of steps so far.
    n_steps: u64,
    /// For each client, the number of requests of all clients that had begun when its last one did.
    begun: HashMap<Owner, u64>,
    n_begun: u64,
    n_tasks: u64,
    /// Layers forget, so that a rollback to some positions costs evaluations unless they are
    /// pinned.
    is_forgetful: bool,
    is_finishing: bool,
    /// A request was put back into the queue for want of cells. None begins before one has ended,
    /// or two requests could take each other's place forever.
    is_crowded: bool,
    /// The last batch did not fit, so the next one has no drafts.
    is_without_drafts: bool,
}

impl Worker {
    /// Return the parameters, with all defaults filled in.
    pub fn params(&self) -> &EngineParams {
        &self.params
    }

    /// Return the record of the counters, which this keeps from step to step.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Take requests in and evaluate them until the last handle is dropped and nothing is left to
    /// do.
    pub fn run(&mut self) {
        loop {
            self.take_commands();
            self.drop_cancelled();
            self.store_more();
            self.call_deferred();
            self.admit();
            if self.is_finishing && self.running.is_empty() && self.waiting.is_empty() {
                break;
            }
            self.step();
            if self.recorded.elapsed() >= RECORD {
                self.record();
            }
        }
        self.remember_all();
        self.record();
    }

    /// Keep the counters where others can read them.
    fn record(&mut self) {
        self.ledger.set(self.counters());
        self.recorded = Instant::now();
    }

    /// Take all commands that have come; wait for one if there is nothing to do.
    fn take_commands(&mut self) {
        // What was deferred can be called now, if nothing runs any more.
        let can_wait = self.deferred.is_empty() || !self.running.is_empty();
        let is_idle = self.running.is_empty() && self.waiting.is_empty() && !self.is_finishing;
        if is_idle && can_wait && self.has_stored_all() {
            self.record();
            match self.inbox.recv() {
                Ok(command) => self.take(command),
                Err(_) => self.is_finishing = true,
            }
        } else if can_wait
            && (self.waiting.is_empty() || !self.running.is_empty())
            && self.running.iter().all(|running| running.task.is_paused())
        {
            match self.inbox.recv_timeout(PAUSE) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.is_finishing = true,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.is_finishing = true;
                    break;
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Generate { request, events, since } => {
                self.n_tasks += 1;
                self.waiting.push(Task::new(self.n_tasks, *request, events, since));
            }
            Command::Call(mut call) => {
                // Slots of clients that went away are idle.
                self.drop_cancelled();
                if !call(self) {
                    self.deferred.push(call);
                }
            }
            Command::Finish => self.is_finishing = true,
        }
    }

    /// Try the calls again whose slots evaluated requests.
    fn call_deferred(&mut self) {
        for mut call in std::mem::take(&mut self.deferred) {
            if !call(self) {
                self.deferred.push(call);
            }
        }
    }

    /// Return the number of requests of a client that are evaluated.
    fn n_running(&self, owner: Owner) -> usize {
        self.running.iter().filter(|running| running.task.owner() == owner).count()
    }

    /// End requests whose clients went away. What was evaluated of them stays held.
    fn drop_cancelled(&mut self) {
        for task in self.waiting.extract_if(.., |task| task.is_cancelled()) {
            self.queue.leave(task.owner());
        }
        let mut i = 0;
        while let Some(running) = self.running.get(i) {
            match running.task.is_cancelled() {
                true => self.finish(i, Ok(Finish::Cancelled)),
                false => i += 1,
            }
        }
    }

    /// End the running task `index`, and keep its sequence.
    fn finish(&mut self, index: usize, result: Result<Finish, Error>) {
        let mut running = self.running.remove(index);
        self.is_crowded = false;
        self.note_slot(&running, false);
        let timings = &running.task.timings;
        self.counters.n_generated += timings.n_generated as u64;
        self.counters.generation += timings.generation;
        self.counters.n_drafts += timings.n_drafts as u64;
        self.counters.n_drafted += timings.n_drafted as u64;
        self.counters.n_accepted += timings.n_accepted as u64;
        let kept = self.retain(&running);
        match (result, kept) {
            (Ok(finish), Ok(())) => running.task.end(finish),
            (Err(error), _) | (Ok(_), Err(error)) => running.task.send(Event::Failed(error)),
        }
    }

    /// Keep the sequence of a task that ended, and what it makes superfluous no longer.
    fn retain(&mut self, running: &Running) -> Result<(), Error> {
        let seq = running.seq;
        let is_reusable = !running.task.is_shifted() && self.model.graph().encoder().is_none();
        if let Some(held) = self.conversations.get_mut(seq) {
            held.is_busy = false;
            held.used = Instant::now();
            held.is_reusable &= is_reusable;
        }
        let n_tokens = self.ctx.pos(seq)?.0.unsigned_abs() as usize;
        self.counters.n_tokens_max = self.counters.n_tokens_max.max(n_tokens);
        if n_tokens == 0 {
            self.release(seq)?;
            return Ok(());
        }
        // A sequence that forgets is itself a place to return to.
        if is_reusable && !self.is_forgetful {
            for prefix in self.conversations.prefixes_of(&self.ctx, seq)? {
                self.show_instead(prefix, seq);
                // The longer sequence has all of it.
                self.forget_unstored(prefix);
                self.release(prefix)?;
            }
        }
        if is_reusable {
            self.remember(seq);
        }
        while self.conversations.n_idle() > self.params.n_held + self.n_free_slots()
            && self.evict(Some(seq))?
        {}
        Ok(())
    }

    /// Return the number of slots in which nothing is evaluated. Their sequences are held beside
    /// the [`EngineParams::n_held`].
    fn n_free_slots(&self) -> usize {
        self.params.n_slots.saturating_sub(self.running.len())
    }

    /// Drop the idle sequence that was used last before all others, except `spared`. Return false
    /// if there is none.
    fn evict(&mut self, spared: Option<SeqId>) -> Result<bool, Error> {
        let Some(seq) = self.conversations.oldest_idle(spared) else { return Ok(false) };
        self.release(seq)?;
        self.counters.n_evicted += 1;
        Ok(true)
    }

    pub(super) fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.conversations.remove(seq);
        self.counters.n_unstored += u64::from(self.forget_unstored(seq));
        self.slots.iter_mut().for_each(|slot| slot.forget(seq));
        Ok(self.ctx.release(seq)?)
    }

    /// Show a sequence in the slots that showed another.
    fn show_instead(&mut self, former: SeqId, seq: SeqId) {
        self.slots.iter_mut().for_each(|slot| slot.replace(former, seq));
    }

    /// Record what a slot shows of a task.
    fn note_slot(&mut self, running: &Running, is_processing: bool) {
        let Some(slot) = self.slots.get_mut(running.slot) else { return };
        let task = &running.task;
        slot.seq = Some(running.seq);
        slot.used = Some(Instant::now());
        slot.report = SlotReport {
            id: running.slot,
            task: Some(task.id),
            is_processing,
            n_prompt: task.n_prompt,
            n_prompt_evaluated: task.timings.n_prompt,
            n_prompt_cached: task.timings.n_cached,
            n_generated: task.timings.n_generated,
            n_left: task.n_left(),
            tokens: task.tokens.clone(),
            timings: task.timings,
        };
    }

    /// Return what the slots do.
    pub fn slots(&mut self) -> Vec<SlotReport> {
        for running in std::mem::take(&mut self.running) {
            self.note_slot(&running, true);
            self.running.push(running);
        }
        self.slots.iter().map(|slot| slot.report.clone()).collect()
    }

    /// Return the counters.
    pub fn counters(&self) -> Counters {
        Counters {
            n_processing: self.running.len(),
            n_waiting: self.waiting.len(),
            n_held: self.conversations.n_idle(),
            n_unstored: self.n_unstored(),
            n_damaged: self.n_damaged(),
            ..self.counters
        }
    }

    /// Return the sequences of a tenant, the one used last first.
    pub fn held(&self, tenant: Tenant) -> Vec<HeldSequence> {
        let mut held: Vec<_> = self.conversations.iter().filter(|held| held.tenant == tenant).collect();
        held.sort_by_key(|held| std::cmp::Reverse(held.used));
        held.into_iter()
            .map(|held| {
                let bytes = self.ctx.survey(held.seq).map(|survey| survey.bytes()).unwrap_or_default();
                HeldSequence {
                    seq: held.seq.0,
                    slot: self.slots.iter().position(|slot| slot.seq == Some(held.seq)),
                    is_busy: held.is_busy,
                    tokens: self.ctx.tokens(held.seq).map(<[_]>::to_vec).unwrap_or_default(),
                    idle: held.used.elapsed(),
                    n_bytes: bytes.cells + bytes.states + bytes.checkpoints + bytes.journal,
                    positions: self.ctx.positions(held.seq).unwrap_or_default(),
                }
            })
            .collect()
    }
}
