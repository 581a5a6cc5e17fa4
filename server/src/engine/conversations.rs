//! The sequences that are held: one for each conversation, and for each point at which one
//! branched. Together they form a prefix tree, because forks share their blocks.

use super::event::{Reuse, ReuseLimit};
use super::pins::{Pins, give_up};
use super::request::Tenant;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::backstitch_kv::RollbackCost;
use backstitch_models::{Context, Error, Pos, SeqId, Token};
use std::time::Instant;

/// A sequence of the context.
#[derive(Debug)]
pub(super) struct Held {
    pub seq: SeqId,
    pub tenant: Tenant,
    pub used: Instant,
    /// A request extends the sequence.
    pub is_busy: bool,
    /// The ends of messages at which it is pinned.
    pub pins: Pins,
    /// Later prompts may continue the sequence. False for sequences with an encoder's output, and
    /// for those whose tokens were moved.
    pub is_reusable: bool,
}

/// All sequences of the context.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    list: Vec<Held>,
}

/// A held sequence that begins like a prompt, and the place in it to continue from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub seq: SeqId,
    /// The most tokens that a held sequence, this one or another, shares with the prompt.
    pub n_common: usize,
    /// The position to roll this one back to: where it differs, or that of a checkpoint before.
    pub start: usize,
    /// The number of tokens replayed to get there.
    pub n_replayed: usize,
    /// The sequence is idle and ends at `start`, so that continuing it loses nothing.
    pub is_whole: bool,
}

impl Prefix {
    /// Return what continuing from here saves.
    pub fn reuse(&self, n_prompt: usize) -> Reuse {
        let limit = match () {
            () if self.start < self.n_common => ReuseLimit::Checkpoint,
            () if self.n_common + 1 == n_prompt => ReuseLimit::Complete,
            () => ReuseLimit::Differs,
        };
        Reuse {
            n_reused: self.start,
            n_replayed: self.n_replayed,
            n_reevaluated: self.n_common - self.start,
            first_difference: self.n_common,
            limit,
            ..Reuse::default()
        }
    }
}

/// Return the number of tokens that two texts begin with.
pub(super) fn common(a: &[Token], b: &[Token]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Conversations {
    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.list.iter()
    }

    pub fn get(&self, seq: SeqId) -> Option<&Held> {
        self.list.iter().find(|held| held.seq == seq)
    }

    pub fn get_mut(&mut self, seq: SeqId) -> Option<&mut Held> {
        self.list.iter_mut().find(|held| held.seq == seq)
    }

    /// Add a sequence that a request extends.
    pub fn add(&mut self, seq: SeqId, tenant: Tenant) {
        let (used, pins) = (Instant::now(), Pins::default());
        self.list.push(Held { seq, tenant, used, is_busy: true, pins, is_reusable: true });
    }

    /// Add a fork of `parent` at `pos` that a request extends.
    pub fn add_fork(&mut self, fork: SeqId, tenant: Tenant, parent: SeqId, pos: Pos) {
        let pins = self.get(parent).map(|held| held.pins.up_to(pos)).unwrap_or_default();
        self.add(fork, tenant);
        if let Some(held) = self.get_mut(fork) {
            held.pins = pins;
        }
    }

    pub fn remove(&mut self, seq: SeqId) {
        self.list.retain(|held| held.seq != seq);
    }

    /// Return the sequence from which a prompt of `tenant`, evaluated with `adapters`, needs the
    /// fewest evaluations. The last token of the prompt is never reused, because its logits come
    /// from evaluating it. The result may start at 0, if no checkpoint is nearer.
    ///
    /// # Errors
    /// Those of [`Context::positions`].
    pub fn longest(
        &self,
        ctx: &Context,
        tenant: Tenant,
        adapters: &AdapterSet,
        prompt: &[Token],
    ) -> Result<Option<Prefix>, Error> {
        let prompt = prompt.get(..prompt.len().saturating_sub(1)).unwrap_or_default();
        let mut best: Option<Prefix> = None;
        let mut n_longest = 0;
        for held in self.list.iter().filter(|held| held.is_reusable && held.tenant == tenant) {
            if ctx.adapters(held.seq)? != adapters {
                continue;
            }
            let tokens = ctx.tokens(held.seq)?;
            let n_common = common(tokens, prompt);
            n_longest = n_longest.max(n_common);
            let is_better = |start: usize, is_whole: bool| match &best {
                None => true,
                Some(best) => (start, is_whole) > (best.start, best.is_whole),
            };
            if n_common == 0 || !is_better(n_common, true) {
                continue;
            }
            let (start, n_replayed) = reach(ctx, held.seq, n_common, tokens.len())?;
            let is_whole = start == tokens.len() && !held.is_busy;
            if is_better(start, is_whole) {
                best = Some(Prefix { seq: held.seq, n_common, start, n_replayed, is_whole });
            }
        }
        // Another sequence can hold more than the one that needs the fewest evaluations.
        Ok(best.map(|best| Prefix { n_common: n_longest, ..best }))
    }

    /// Return the idle sequence that was used last before all others, except `spared`.
    pub fn oldest_idle(&self, spared: Option<SeqId>) -> Option<SeqId> {
        let idle = self.list.iter().filter(|held| !held.is_busy && Some(held.seq) != spared);
        idle.min_by_key(|held| held.used).map(|held| held.seq)
    }

    /// Return the number of sequences that no request extends.
    pub fn n_idle(&self) -> usize {
        self.list.iter().filter(|held| !held.is_busy).count()
    }

    /// Return the idle sequences whose tokens are a prefix of `seq`, which therefore hold nothing
    /// more than it, and those with the same tokens.
    ///
    /// # Errors
    /// Those of [`Context::tokens`].
    pub fn prefixes_of(&self, ctx: &Context, seq: SeqId) -> Result<Vec<SeqId>, Error> {
        let (Some(of), tokens) = (self.get(seq), ctx.tokens(seq)?) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for held in self.list.iter().filter(|held| held.seq != seq && !held.is_busy) {
            let is_alike = held.tenant == of.tenant && ctx.adapters(held.seq)? == ctx.adapters(seq)?;
            let is_prefix = is_alike && tokens.starts_with(ctx.tokens(held.seq)?);
            if is_prefix && held.is_reusable {
                found.push(held.seq);
            }
        }
        Ok(found)
    }

    /// Choose a pin to give up, so that the budget of checkpoints pays for another one. Return its
    /// sequence and position.
    ///
    /// # Errors
    /// Those of [`Context::pins`].
    pub fn give_up_pin(&mut self, ctx: &Context) -> Result<Option<(SeqId, Pos)>, Error> {
        // Requests under way are the latest use.
        self.list.sort_by_key(|held| std::cmp::Reverse((held.is_busy, held.used)));
        let mut pinned = Vec::new();
        for held in &mut self.list {
            pinned.clear();
            pinned.extend(ctx.pins(held.seq)?);
            held.pins.follow(&pinned);
        }
        let mut all: Vec<&mut Pins> = self.list.iter_mut().map(|held| &mut held.pins).collect();
        let given_up = give_up(&mut all);
        Ok(given_up.and_then(|(of, pos)| Some((self.list.get(of)?.seq, pos))))
    }
}

/// Return the position from which `seq`, of `n_tokens` tokens, reaches `pos` without re-evaluation
/// by the rollback itself, and the number of tokens replayed.
fn reach(ctx: &Context, seq: SeqId, pos: usize, n_tokens: usize) -> Result<(usize, usize), Error> {
    if pos >= n_tokens {
        return Ok((n_tokens, 0));
    }
    let at = Pos(i32::try_from(pos).unwrap_or(i32::MAX));
    let ranges = ctx.positions(seq)?;
    let Some(range) = ranges.iter().find(|range| range.positions.contains(&at)) else { return Ok((0, 0)) };
    let from = usize::try_from(range.restored_from.0).unwrap_or(0);
    Ok(match range.cost {
        RollbackCost::Held => (pos, 0),
        RollbackCost::Replayed => (pos, pos.saturating_sub(from)),
        _ => (from.min(pos), 0),
    })
}
