//! Admission: the choice of the request to begin, of its slot, and of the sequence that it
//! continues.

use super::super::conversations::{Prefix, common};
use super::super::event::{Event, Reuse, ReuseLimit};
use super::super::slots::SlotView;
use super::super::task::{Running, Task};
use super::Worker;
use crate::error::Error;
use backstitch_models::{Pos, SeqId, Token};

/// The number of tokens that waiting for another request must save.
const WORTH_WAITING: usize = 32;

/// The sequence in which a request begins.
struct Place {
    seq: SeqId,
    reuse: Reuse,
}

impl Worker {
    /// Begin as many waiting requests as there are free slots.
    pub(super) fn admit(&mut self) {
        while self.running.len() < self.params.n_slots && !self.is_crowded {
            let Some((index, slot)) = self.next_waiting() else { break };
            let mut task = self.waiting.remove(index);
            self.queue.leave(task.owner());
            match self.place(&mut task) {
                Ok(place) => self.begin(task, slot, place),
                Err(error) => task.send(Event::Failed(error)),
            }
        }
    }

    fn begin(&mut self, mut task: Task, slot: usize, place: Place) {
        self.n_begun += 1;
        self.begun.insert(task.owner(), self.n_begun);
        let is_first = task.begin(slot, Reuse { seq: place.seq.0, ..place.reuse });
        if is_first {
            self.counters.n_cached += place.reuse.n_reused as u64;
        }
        // A slot that showed the sequence until now shows it no longer: it could be erased there.
        for (id, view) in self.slots.iter_mut().enumerate().filter(|(id, _)| *id != slot) {
            if view.seq == Some(place.seq) {
                *view = SlotView::new(id);
            }
        }
        let running = Running { task, seq: place.seq, slot, served: self.n_steps };
        self.note_slot(&running, true);
        self.running.push(running);
    }

    /// Return the waiting request to begin next, and its slot. Clients take turns: those of which
    /// the fewest requests are evaluated come first, then those whose last turn is longest ago. Of
    /// one client, higher priorities come first, then what waits longest.
    fn next_waiting(&self) -> Option<(usize, usize)> {
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        // Sorting is stable, so that equal priorities stay in the order of arrival.
        order.sort_by_cached_key(|&i| {
            let task = self.waiting.get(i)?;
            let (owner, priority) = (task.owner(), std::cmp::Reverse(task.request.priority));
            Some((self.n_running(owner), self.begun.get(&owner).copied(), priority))
        });
        order.into_iter().find_map(|i| {
            let task = self.waiting.get(i)?;
            let slot = self.free_slot(task)?;
            (!self.should_wait(task)).then_some((i, slot))
        })
    }

    /// Return the slot for a task: the one that it names, if it is free; the one that shows the
    /// sequence with the longest common prefix; or the one whose last use is longest ago.
    fn free_slot(&self, task: &Task) -> Option<usize> {
        let is_free = |slot: &usize| self.running.iter().all(|running| running.slot != *slot);
        if let Some(slot) = task.request.slot {
            return Some(slot).filter(is_free);
        }
        let shares = |slot: usize| {
            let shown = self.slots.get(slot).and_then(|slot| slot.seq);
            let held = shown.and_then(|seq| self.conversations.get(seq));
            let own = held.filter(|held| held.tenant == task.request.tenant && task.request.cache_prompt);
            let own = own.filter(|held| self.ctx.adapters(held.seq).ok() == Some(&task.request.adapters));
            let tokens = own.and_then(|held| self.ctx.tokens(held.seq).ok()).unwrap_or_default();
            let n_common = common(tokens, &task.tokens);
            // A tenth in common is a coincidence: most prompts begin with the same special token.
            if n_common * 10 > task.tokens.len() { n_common } else { 0 }
        };
        let used = |slot: usize| self.slots.get(slot).and_then(|slot| slot.used);
        let free = (0..self.params.n_slots).filter(is_free);
        free.min_by_key(|&slot| (std::cmp::Reverse(shares(slot)), used(slot)))
    }

    /// Return true if a request under way will soon hold much more of this prompt than is held now.
    fn should_wait(&self, task: &Task) -> bool {
        if !task.request.cache_prompt || self.model.graph().encoder().is_some() {
            return false;
        }
        self.running.iter().any(|running| {
            let other = &running.task;
            let is_own = other.request.tenant == task.request.tenant
                && other.request.adapters == task.request.adapters
                && other.is_prompting();
            let n_common = if is_own { common(&other.tokens, &task.tokens) } else { 0 };
            n_common.min(task.tokens.len().saturating_sub(1)) > other.n_done + WORTH_WAITING
        })
    }

    /// Find a sequence for a task, and prepare it.
    fn place(&mut self, task: &mut Task) -> Result<Place, Error> {
        if self.model.graph().encoder().is_some() {
            return self.encode(task);
        }
        // Scores of the prompt come from evaluating all of it.
        if !task.request.cache_prompt || task.request.prompt_logprobs.is_some() {
            let seq = self.new_sequence(task, None)?;
            return Ok(Place { seq, reuse: Reuse { limit: ReuseLimit::NotAsked, ..Reuse::default() } });
        }
        let tenant = task.request.tenant;
        let adapters = &task.request.adapters;
        let prefix = self.conversations.longest(&self.ctx, tenant, adapters, &task.tokens)?;
        let n_held = prefix.map_or(0, |prefix| prefix.start);
        let spared = prefix.map(|prefix| prefix.seq);
        if let Some((seq, n_recalled)) = self.recall(task, n_held, spared)? {
            let n_common = prefix.map_or(0, |prefix| prefix.n_common).max(n_recalled);
            let recalled = Prefix { seq, n_common, start: n_recalled, n_replayed: 0, is_whole: true };
            let reuse = Reuse { n_from_disk: n_recalled, ..recalled.reuse(task.tokens.len()) };
            return Ok(Place { seq, reuse });
        }
        let seq = match &prefix {
            Some(prefix) if prefix.start > 0 => self.go_on(task, prefix)?,
            _ => self.new_sequence(task, None)?,
        };
        let n_prompt = task.tokens.len();
        let reuse = prefix.map_or_else(Reuse::default, |prefix| prefix.reuse(n_prompt));
        Ok(Place { seq, reuse })
    }

    /// Continue a held sequence: itself, if nothing is lost by that, or a fork.
    fn go_on(&mut self, task: &Task, prefix: &Prefix) -> Result<SeqId, Error> {
        if prefix.is_whole {
            if let Some(held) = self.conversations.get_mut(prefix.seq) {
                held.is_busy = true;
            }
            return Ok(prefix.seq);
        }
        self.make_sequence_free(Some(prefix.seq))?;
        let fork = self.ctx.fork(prefix.seq)?;
        let start = Pos(i32::try_from(prefix.start).unwrap_or(i32::MAX));
        self.conversations.add_fork(fork, task.request.tenant, prefix.seq, start);
        if let Err(error) = self.roll_back(fork, prefix.start, Some(prefix.seq)) {
            self.release(fork)?;
            return Err(error);
        }
        Ok(fork)
    }

    /// Roll a busy sequence back to its first `n_tokens` tokens. Idle sequences, except
    /// `spared`, make place for the blocks that this needs if it cuts off cells that are shared.
    pub(super) fn roll_back(
        &mut self,
        seq: SeqId,
        n_tokens: usize,
        spared: Option<SeqId>,
    ) -> Result<(), Error> {
        let pos = Pos(i32::try_from(n_tokens).unwrap_or(i32::MAX));
        while let Err(error) = self.ctx.rollback(seq, pos) {
            if !is_full(&error) || !self.evict(spared)? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Make an empty sequence for a task.
    pub(super) fn new_sequence(&mut self, task: &Task, spared: Option<SeqId>) -> Result<SeqId, Error> {
        self.make_sequence_free(spared)?;
        let seq = self.ctx.sequence_with(&task.request.adapters)?;
        self.conversations.add(seq, task.request.tenant);
        Ok(seq)
    }

    /// Drop idle sequences until one more can be made.
    pub(in crate::engine) fn make_sequence_free(&mut self, spared: Option<SeqId>) -> Result<(), Error> {
        self.make_sequences_free(1, spared)
    }

    /// Drop idle sequences until `n` more can be made.
    pub(in crate::engine) fn make_sequences_free(
        &mut self,
        n: usize,
        spared: Option<SeqId>,
    ) -> Result<(), Error> {
        let most = self.params.context.n_seq_max as usize;
        while self.conversations.iter().count() + n > most && self.evict(spared)? {}
        Ok(())
    }

    /// Drop an idle sequence, except `spared`, if `error` says that no block was free. Return false
    /// if it says something else, or if there is no idle sequence.
    pub(in crate::engine) fn make_place(
        &mut self,
        error: &backstitch_models::Error,
        spared: Option<SeqId>,
    ) -> Result<bool, Error> {
        Ok(is_full(error) && self.evict(spared)?)
    }

    /// Run the encoder over the prompt of a task; the decoder then begins with its start token. A
    /// task that was put back into the queue has begun already.
    fn encode(&mut self, task: &mut Task) -> Result<Place, Error> {
        let hparams = self.model.hparams();
        let start = hparams.decoder_start.map(Token).or(self.model.vocab().bos());
        let start = start.ok_or(backstitch_models::Error::NoDecoderStart)?;
        let seq = self.new_sequence(task, None)?;
        if let Err(error) = self.ctx.encode(seq, task.encoder_input()) {
            self.release(seq)?;
            return Err(error.into());
        }
        task.start_decoder(start);
        Ok(Place { seq, reuse: Reuse::default() })
    }
}

/// Return true if no block was free, for a batch or for what a file holds.
pub(in crate::engine) fn is_full(error: &backstitch_models::Error) -> bool {
    lacking(error).is_some()
}

/// Return the number of cells or states that were needed where too few were free.
pub(in crate::engine) fn lacking(error: &backstitch_models::Error) -> Option<u64> {
    use backstitch_models::Error as E;
    use backstitch_models::backstitch_kv::{Error as Memory, storage};
    match error {
        E::Memory(Memory::Full { need, .. })
        | E::State(storage::Error::Memory(Memory::Full { need, .. })) => Some(*need),
        E::File { source, .. } => lacking(source),
        _ => None,
    }
}
