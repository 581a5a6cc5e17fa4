//! A step: a batch of one token for each text that is being generated, and of pieces of prompts.

use super::Worker;
use super::admit::is_full;
use crate::engine::task::Running;
use crate::error::Error;
use backstitch_models::sampler::Chain;
use backstitch_models::session::Finish;
use backstitch_models::{Pos, Wanted};
use std::time::Instant;

/// A part of a batch: consecutive tokens of one task.
struct Piece {
    /// The id of the task.
    task: u64,
    n_tokens: usize,
    /// The index of its first token in the batch.
    first: usize,
    /// The tokens belong to a prompt.
    is_prompt: bool,
}

impl Worker {
    /// Evaluate one batch, and draw the next tokens.
    pub(super) fn step(&mut self) {
        self.n_steps += 1;
        self.shift_full();
        let began = Instant::now();
        let pieces = match self.fill() {
            Ok(pieces) if pieces.is_empty() => return,
            Ok(pieces) => pieces,
            Err(error) => return self.fail_all(error.into()),
        };
        match self.evaluate() {
            Ok(()) => self.take_outputs(&pieces, began),
            Err(error) if is_full(&error) => {
                let has_drafts = self.running.iter().any(|running| !running.task.draft.is_empty());
                match has_drafts {
                    true => self.is_without_drafts = true,
                    false => self.make_cells_free(error),
                }
            }
            // One of them is at fault; the others go on.
            Err(_) if pieces.len() > 1 => pieces.iter().for_each(|piece| self.step_alone(piece)),
            Err(error) => self.fail(&pieces, error.into()),
        }
    }

    /// Evaluate one piece of a batch that failed.
    fn step_alone(&mut self, piece: &Piece) {
        let Some(index) = self.running.iter().position(|running| running.task.id == piece.task) else {
            return;
        };
        let (began, mut alone) = (Instant::now(), Vec::new());
        self.batch.clear();
        let added = self.add(index, piece.n_tokens, &mut alone);
        match added.and_then(|()| self.evaluate()) {
            Ok(()) => self.take_outputs(&alone, began),
            // The next batch has it again.
            Err(error) if is_full(&error) => {}
            Err(error) => self.finish(index, Err(error.into())),
        }
    }

    /// Evaluate the batch. Another thread computes the masks of grammars meanwhile, which only
    /// depend on the tokens before.
    fn evaluate(&mut self) -> Result<(), backstitch_models::Error> {
        let (ctx, batch) = (&mut self.ctx, &self.batch);
        let mut chains = self.running.iter_mut().map(|running| &mut running.task.request.chain);
        let Some(first) = chains.find(|chain| !chain.is_prepared()) else { return ctx.decode(batch) };
        std::thread::scope(|scope| {
            let masks = move || core::iter::once(first).chain(chains).for_each(Chain::prepare);
            // Without a thread the masks are computed when they are needed.
            drop(std::thread::Builder::new().name("masks".into()).spawn_scoped(scope, masks));
            ctx.decode(batch)
        })
    }

    /// Fill the batch. Return its pieces.
    fn fill(&mut self) -> Result<Vec<Piece>, backstitch_models::Error> {
        self.batch.clear();
        let (mut pieces, mut order) = (Vec::new(), Vec::new());
        let n_texts = self.running.iter().filter(|running| running.task.is_generating()).count();
        for i in 0..self.running.len() {
            let Some(Running { task, .. }) = self.running.get_mut(i) else { continue };
            task.draft.clear();
            match task.is_paused() {
                true => {}
                false if task.is_generating() => {
                    self.draft(i, n_texts);
                    self.add(i, 1, &mut pieces)?;
                }
                false => order.push(i),
            }
        }
        self.is_without_drafts = false;
        // Higher priorities first; among equals, those whose last piece is longest ago.
        order.sort_by_key(|&i| self.running.get(i).map(|running| (self.rank(running), running.served)));
        let mut n_free = self.pace.n_tokens().min(self.params.context.n_batch as usize);
        for (k, &i) in order.iter().enumerate() {
            if n_free == 0 {
                break;
            }
            let share = n_free.div_ceil(self.n_equals(&order, k));
            let pins = self.is_forgetful;
            let Some(running) = self.running.get_mut(i) else { continue };
            let n = running.task.piece(share, pins);
            running.served = self.n_steps;
            n_free -= n.min(n_free);
            self.add(i, n, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// Draft the next tokens of a running task, one of `n_texts` that are being generated.
    fn draft(&mut self, index: usize, n_texts: usize) {
        let (Some(drafters), Some(running)) = (&mut self.drafters, self.running.get_mut(index)) else {
            return;
        };
        let n = if self.is_without_drafts { 0 } else { drafters.n_most(n_texts) };
        let task = &mut running.task;
        let n = task.draft_limit(n, self.params.n_ctx as usize);
        drafters.draft(running.slot, task, n);
    }

    /// Return the number of running tasks of the same client that have a higher priority and whose
    /// prompts are evaluated. Priorities of different clients do not compete.
    fn rank(&self, running: &Running) -> usize {
        let is_before = |other: &&Running| {
            other.task.owner() == running.task.owner()
                && other.task.request.priority > running.task.request.priority
                && !other.task.is_generating()
        };
        self.running.iter().filter(is_before).count()
    }

    /// Return the number of tasks from the `k`th of `order` on that have its rank.
    fn n_equals(&self, order: &[usize], k: usize) -> usize {
        let rank = |i: &usize| self.running.get(*i).map(|running| self.rank(running));
        let rest = order.get(k..).unwrap_or_default();
        let first = rest.first().and_then(rank);
        rest.iter().take_while(|i| rank(i) == first).count().max(1)
    }

    /// Add the next `n` tokens of a running task to the batch.
    fn add(
        &mut self,
        index: usize,
        n: usize,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), backstitch_models::Error> {
        let Some(Running { task, seq, .. }) = self.running.get(index) else { return Ok(()) };
        let tokens = task.tokens.get(task.n_done..task.n_done + n).unwrap_or_default();
        let is_last = task.n_done + n == task.tokens.len();
        let wanted = match () {
            () if task.request.prompt_logprobs.is_some() && task.is_prompting() => Wanted::All,
            () if is_last => Wanted::Last,
            () => Wanted::None,
        };
        let pos = Pos(i32::try_from(task.n_done).unwrap_or(i32::MAX));
        let is_prompt = task.is_prompting();
        pieces.push(Piece { task: task.id, n_tokens: n, first: self.batch.len(), is_prompt });
        self.batch.extend(*seq, pos, tokens, wanted)?;
        let behind = Pos(pos.0.saturating_add(i32::try_from(n).unwrap_or(i32::MAX)));
        self.batch.extend(*seq, behind, &task.draft, Wanted::All)?;
        Ok(())
    }

    /// Hand out the outputs of a batch that was evaluated.
    fn take_outputs(&mut self, pieces: &[Piece], began: Instant) {
        let elapsed = began.elapsed();
        let n_prompt: usize = pieces.iter().filter(|piece| piece.is_prompt).map(|piece| piece.n_tokens).sum();
        self.pace.note(self.batch.len(), elapsed);
        self.counters.n_batches += 1;
        self.counters.n_slots_in_batches += pieces.len() as u64;
        if n_prompt > 0 {
            self.counters.n_prompt += n_prompt as u64;
            self.counters.prompt += elapsed;
        }
        for piece in pieces {
            let Some(index) = self.running.iter().position(|running| running.task.id == piece.task) else {
                continue;
            };
            match self.take_output(index, piece) {
                Ok(None) => {}
                Ok(Some(finish)) => self.finish(index, Ok(finish)),
                Err(error) => self.finish(index, Err(error)),
            }
        }
    }

    /// Hand out the outputs of one piece. Return the reason that its task ends, if it does.
    fn take_output(&mut self, index: usize, piece: &Piece) -> Result<Option<Finish>, Error> {
        let Some(Running { task, .. }) = self.running.get_mut(index) else { return Ok(None) };
        let (ctx, range) = (&self.ctx, piece.first..piece.first + piece.n_tokens);
        let from = task.n_done;
        if task.is_prompting() {
            task.score(from, range.clone().map(|i| ctx.output(i)));
        }
        task.evaluated(piece.n_tokens);
        let mut result = Ok(None);
        let is_pin = piece.n_tokens > 0 && task.is_pin();
        if task.n_done == task.tokens.len() {
            result = self.draw(index, range.end - 1);
        }
        if is_pin && self.is_forgetful {
            self.pin(index);
        }
        result
    }

    /// Draw a token from the output `first` of the batch, which is that of a task's last token, and
    /// go on with the outputs of its draft as long as what is drawn is what was drafted. Roll the
    /// rest of the draft back.
    fn draw(&mut self, index: usize, first: usize) -> Result<Option<Finish>, Error> {
        let Some(Running { task, seq, .. }) = self.running.get_mut(index) else { return Ok(None) };
        let (seq, n_ctx) = (*seq, self.params.n_ctx as usize);
        let mut n_right = 0;
        let result = loop {
            let Some(logits) = self.ctx.output(first + n_right) else {
                break Err(backstitch_models::Error::NoLogits { seq: seq.0 }.into());
            };
            let result = task.draw(logits, self.model.vocab(), n_ctx);
            if !matches!(result, Ok(None)) || task.draft.get(n_right) != task.tokens.last() {
                break result;
            }
            n_right += 1;
            task.n_done += 1;
        };
        let (n_drafted, end) = (task.draft.len(), task.n_done);
        task.drafted(n_drafted, n_right);
        if n_right < n_drafted {
            self.roll_back(seq, end, None)?;
        }
        result
    }

    /// Pin the end of a sequence. If pins use up the budget of checkpoints, others are given up.
    fn pin(&mut self, index: usize) {
        use backstitch_models::Error as E;
        use backstitch_models::backstitch_kv::Error as Memory;
        let Some(seq) = self.running.get(index).map(|running| running.seq) else { return };
        let Ok(end) = self.ctx.pos(seq) else { return };
        while let Err(error) = self.ctx.pin(seq) {
            let is_over = matches!(error, E::Memory(Memory::Pinned { .. }));
            let given_up = if is_over { self.conversations.give_up_pin(&self.ctx) } else { Ok(None) };
            // Without a pin a later rollback costs more; nothing else depends on it.
            let Ok(Some((of, pos))) = given_up else { return };
            if !self.ctx.unpin(of, pos).unwrap_or(false) {
                return;
            }
        }
        if let Some(held) = self.conversations.get_mut(seq) {
            held.pins.push(end);
        }
    }

    /// Remove tokens of sequences that are full and may be shifted.
    fn shift_full(&mut self) {
        let n_ctx = self.params.n_ctx as usize;
        let mut i = 0;
        while let Some(running) = self.running.get_mut(i) {
            let Some((from, n)) = running.task.shift(n_ctx) else {
                i += 1;
                continue;
            };
            let pos = |n: usize| Pos(i32::try_from(n).unwrap_or(i32::MAX));
            let removed = self.ctx.seq_rm(running.seq, pos(from)..pos(from + n));
            let delta = -i32::try_from(n).unwrap_or(i32::MAX);
            match removed.and_then(|()| self.ctx.seq_add(running.seq, pos(from + n)..Pos::MAX, delta)) {
                Ok(()) => {
                    running.task.shifted(from, n);
                    i += 1;
                }
                // What has no positions to shift ends instead.
                Err(_) => self.finish(i, Ok(Finish::ContextFull)),
            }
        }
    }

    /// Make room for a batch that did not fit: drop an idle sequence, or put the request that began
    /// last back into the queue, of the client that has the most. A request that does not fit alone
    /// ends.
    fn make_cells_free(&mut self, error: backstitch_models::Error) {
        match self.evict(None) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return self.fail_all(error),
        }
        let tasks = || self.running.iter().map(|running| &running.task).enumerate();
        // Priorities order the requests of one client, the one of whom most are evaluated.
        let busiest = tasks().max_by_key(|(_, task)| (self.n_running(task.owner()), task.id));
        let Some(owner) = busiest.map(|(_, task)| task.owner()) else { return };
        let of_owner = tasks().filter(|(_, task)| task.owner() == owner);
        let last = of_owner.min_by_key(|(_, task)| (task.request.priority, std::cmp::Reverse(task.id)));
        let Some((index, _)) = last else { return };
        if self.running.len() == 1 {
            let is_prompting = self.running.iter().any(|running| running.task.is_prompting());
            let result = if is_prompting { Err(error.into()) } else { Ok(Finish::ContextFull) };
            return self.finish(index, result);
        }
        let running = self.running.remove(index);
        self.note_slot(&running, false);
        if let Some(held) = self.conversations.get_mut(running.seq) {
            held.is_busy = false;
            held.is_reusable &= !running.task.is_shifted();
        }
        self.queue.enter_again(running.task.owner());
        self.waiting.insert(0, running.task);
        self.is_crowded = true;
    }

    /// End the tasks of a batch that failed. Their sequences are as they were before it.
    fn fail(&mut self, pieces: &[Piece], error: Error) {
        for piece in pieces {
            if let Some(index) = self.running.iter().position(|running| running.task.id == piece.task) {
                self.finish(index, Err(error.clone()));
            }
        }
    }

    fn fail_all(&mut self, error: Error) {
        while !self.running.is_empty() {
            self.finish(0, Err(error.clone()));
        }
    }
}
