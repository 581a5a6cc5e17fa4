//! A request under way: its tokens, samplers, text and events.

use super::event::{Chunk, Ended, Event, Reuse, Timings};
use super::lines::Lines;
use super::queue::Owner;
use super::request::{Generate, WhenFull};
use crate::error::Error;
use backstitch_models::sampler::Logprob;
use backstitch_models::session::{Finish, OutputText, TokenLogprobs};
use backstitch_models::vocab::Vocab;
use backstitch_models::{Cancel, SeqId, Token};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// The number of free places for events below which a request pauses.
const EVENTS_FREE: usize = 4;

/// A request that waits or is evaluated.
pub(super) struct Task {
    pub id: u64,
    pub request: Generate,
    events: Sender<Event>,
    since: Instant,
    began: Option<Instant>,
    /// The time of the first token.
    first: Option<Instant>,
    /// The known tokens: the prompt's, and those generated.
    pub tokens: Vec<Token>,
    /// The encoder's input, once it took the prompt.
    input: Option<Vec<Token>>,
    /// The number of tokens of the prompt.
    pub n_prompt: usize,
    /// The number of known tokens that are evaluated.
    pub n_done: usize,
    pub timings: Timings,
    text: OutputText,
    lines: Lines,
    /// The log-probabilities of the last tokens, whose text may become a stop string.
    held: Vec<HeldLogprobs>,
    /// The bytes of the tokens of the text, and those of the text that was sent.
    n_bytes: usize,
    n_sent: usize,
    best: Vec<Logprob>,
    n_left: usize,
    is_shifted: bool,
    /// Tokens that may follow the known ones, in the batch behind them.
    pub draft: Vec<Token>,
    /// The number of tokens that the next draft may have: more after accepted drafts, fewer after
    /// rejected ones.
    n_draft: usize,
    /// Scores of the prompt exist up to this token.
    n_scored: usize,
}

/// The log-probabilities of a token whose text is held back.
struct HeldLogprobs {
    /// The bytes of the text up to its end.
    end: usize,
    logprobs: TokenLogprobs,
}

/// A task in a slot.
pub(super) struct Running {
    pub task: Task,
    pub seq: SeqId,
    pub slot: usize,
    /// The number of the step that last evaluated a piece of its prompt.
    pub served: u64,
}

impl Task {
    pub fn new(id: u64, mut request: Generate, events: Sender<Event>, since: Instant) -> Self {
        let tokens = std::mem::take(&mut request.prompt);
        let n_left = request.limit.unwrap_or(usize::MAX);
        Task {
            id,
            n_prompt: tokens.len(),
            request,
            events,
            since,
            began: None,
            first: None,
            tokens,
            input: None,
            n_done: 0,
            timings: Timings::default(),
            text: OutputText::default(),
            lines: Lines::default(),
            held: Vec::new(),
            n_bytes: 0,
            n_sent: 0,
            best: Vec::new(),
            n_left,
            is_shifted: false,
            draft: Vec::new(),
            n_draft: usize::MAX,
            n_scored: 0,
        }
    }

    /// Return the client whose request this is.
    pub fn owner(&self) -> Owner {
        self.request.tenant.owner()
    }

    /// Note that the evaluation begins, or goes on after the task was put back into the queue.
    /// Return true if it begins.
    pub fn begin(&mut self, slot: usize, reuse: Reuse) -> bool {
        self.n_done = reuse.n_reused;
        if self.began.is_some() {
            return false;
        }
        let now = Instant::now();
        self.began = Some(now);
        self.timings.queued = now - self.since;
        self.timings.n_cached = reuse.n_reused;
        self.tokens.iter().for_each(|&token| self.request.chain.accept(token));
        self.text.begin(self.tokens.len());
        self.send(Event::Began { slot, reuse });
        true
    }

    /// Return the input of the encoder.
    pub fn encoder_input(&self) -> &[Token] {
        self.input.as_deref().unwrap_or(&self.tokens)
    }

    /// Replace the prompt by the decoder's first token, because an encoder took the prompt. Nothing
    /// changes if that happened before.
    pub fn start_decoder(&mut self, token: Token) {
        if self.input.is_none() {
            self.input = Some(std::mem::replace(&mut self.tokens, vec![token]));
        }
    }

    /// Return true if the client went away.
    pub fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Return a request to cancel that the client makes by going away. The client waits for further
    /// events as long as this is held.
    pub fn cancel(&self) -> Cancel {
        let events = self.events.clone();
        Cancel::from_fn(move || events.is_closed())
    }

    /// Return true if the client reads too slowly for another step. One that never reads on goes
    /// away when its connection reaches its limit of time.
    pub fn is_paused(&self) -> bool {
        self.events.capacity() < EVENTS_FREE
    }

    /// Return true if tokens of the prompt remain to be evaluated, besides a last one that goes
    /// with those that are being generated.
    pub fn is_prompting(&self) -> bool {
        self.first.is_none()
    }

    /// Return true if the prompt is evaluated, and all of the text but its last token.
    pub fn is_generating(&self) -> bool {
        !self.is_prompting() && self.tokens.len() == self.n_done + 1
    }

    /// Return the number of tokens that the next piece may have, of at most `n`: to the next place
    /// that is to be pinned, if there is one.
    pub fn piece(&self, n: usize, pins: bool) -> usize {
        let left = self.tokens.len() - self.n_done;
        let end = self.n_done + left.min(n.max(1));
        let next = if pins { self.next_pin() } else { None };
        next.map_or(end, |pin| pin.min(end)) - self.n_done
    }

    /// Return the next number of tokens behind which the sequence is pinned: the end of a message,
    /// or the place before the last token of the prompt, from which the answer can be generated
    /// again.
    pub fn next_pin(&self) -> Option<usize> {
        let last = self.n_prompt.saturating_sub(1);
        let ends = self.request.message_ends.iter().copied().filter(|&end| end < last);
        ends.chain([last]).find(|&end| end > self.n_done)
    }

    /// Return true if the sequence is to be pinned where it is.
    pub fn is_pin(&self) -> bool {
        let last = self.n_prompt.saturating_sub(1);
        self.n_done > 0 && (self.n_done == last || self.request.message_ends.contains(&self.n_done))
    }

    /// Return the most tokens that a draft may have, of at most `n`: as many as the text may become
    /// longer, and as there are places for events.
    pub fn draft_limit(&self, n: usize, n_ctx: usize) -> usize {
        if self.is_shifted {
            // Where tokens were removed, a rollback may find nothing to re-evaluate from.
            return 0;
        }
        let n_places = self.events.capacity().saturating_sub(EVENTS_FREE);
        let n_free = n_ctx.saturating_sub(self.tokens.len());
        let wanted = self.n_draft.min(self.request.n_draft).min(n);
        wanted.min(self.n_left.saturating_sub(1)).min(n_places).min(n_free)
    }

    /// Note a draft of `n` tokens of which `n_right` became part of the text.
    pub fn drafted(&mut self, n: usize, n_right: usize) {
        self.timings.n_drafts += usize::from(n > 0);
        self.timings.n_drafted += n;
        self.timings.n_accepted += n_right;
        if n_right < n {
            self.n_draft = n_right + 1;
        } else if n > 0 {
            self.n_draft = self.n_draft.saturating_mul(2);
        }
    }

    /// Send an event; it is dropped if the client went away. Paused tasks evaluate nothing, so
    /// there is always a place.
    pub fn send(&self, event: Event) {
        drop(self.events.try_send(event));
    }

    /// Count tokens of the prompt that were evaluated.
    pub fn evaluated(&mut self, n: usize) {
        self.n_done += n;
        if self.is_prompting() {
            self.timings.n_prompt += n;
            if self.request.progress {
                let elapsed = self.began.map_or(Duration::ZERO, |began| began.elapsed());
                self.send(Event::Progress { n_done: self.n_done, elapsed });
            }
        }
    }

    /// Score the tokens of the prompt that follow those whose logits are given.
    pub fn score<'l>(&mut self, from: usize, rows: impl Iterator<Item = Option<&'l [f32]>>) {
        let Some(n) = self.request.prompt_logprobs else { return };
        let mut scores = Vec::new();
        if self.n_scored == 0 {
            scores.extend(self.tokens.first().map(|&token| TokenLogprobs::unpredicted(token)));
            self.n_scored = 1;
        }
        for (i, row) in (from + 1..self.n_prompt).zip(rows) {
            let (Some(row), Some(&token)) = (row, self.tokens.get(i)) else { continue };
            if i >= self.n_scored {
                scores.push(TokenLogprobs::of(row, token, n, &mut self.best));
                self.n_scored = i + 1;
            }
        }
        if !scores.is_empty() {
            self.send(Event::PromptLogprobs(scores));
        }
    }

    /// Draw a token from the logits of the last one. Return the reason that the text ends, if it
    /// does.
    ///
    /// # Errors
    /// [`Error::NoToken`] if the samplers ban every token, [`Error::Grammar`] if the grammar does.
    pub fn draw(&mut self, logits: &[f32], vocab: &Vocab, n_ctx: usize) -> Result<Option<Finish>, Error> {
        let now = Instant::now();
        let is_first = self.first.is_none();
        if is_first {
            self.first = Some(now);
            self.timings.prompt = self.began.map_or(Duration::ZERO, |began| now - began);
        }
        if self.n_left == 0 {
            return Ok(Some(Finish::Limit));
        }
        let token = self.request.chain.sample(logits);
        let token =
            token.ok_or_else(|| self.request.chain.failure().map_or(Error::NoToken, Error::Grammar))?;
        self.timings.n_generated += 1;
        self.timings.generation = self.first.map_or(Duration::ZERO, |first| first.elapsed());
        let mut chunk = Chunk { tokens: vec![token], ..Chunk::default() };
        if is_first {
            chunk.prompt_time = Some(self.timings.prompt);
        }
        let logprobs = self.request.logprobs.map(|n| match self.request.probs_after_sampling {
            true => TokenLogprobs::after_samplers(&self.request.chain, token, n),
            false => TokenLogprobs::of(logits, token, n, &mut self.best),
        });
        if vocab.is_eog(token) && !self.request.ignore_eos {
            self.text.show_all(&mut chunk.text);
            self.lines.end(&mut chunk.text, &self.request, Duration::ZERO);
            chunk.logprobs = self.release(usize::MAX);
            // The end counts as a token, without text.
            chunk.logprobs.extend(logprobs);
            chunk.tokens.clear();
            self.send(Event::Chunk(chunk));
            return Ok(Some(Finish::End(token)));
        }
        self.request.chain.accept(token);
        self.tokens.push(token);
        self.n_left -= 1;
        let finish = self.write(token, logprobs, vocab, n_ctx, &mut chunk);
        self.send(Event::Chunk(chunk));
        Ok(finish)
    }

    /// Add the text of a token, and its log-probabilities, to what the client sees.
    fn write(
        &mut self,
        token: Token,
        logprobs: Option<TokenLogprobs>,
        vocab: &Vocab,
        n_ctx: usize,
        chunk: &mut Chunk,
    ) -> Option<Finish> {
        let is_text = !vocab.is_hidden(token) || self.request.shown.contains(&token);
        let bytes = if is_text { vocab.piece(token) } else { &[] };
        self.n_bytes += bytes.len();
        self.held.extend(logprobs.map(|logprobs| HeldLogprobs { end: self.n_bytes, logprobs }));
        let stops = &self.request.stops;
        let stop = self.text.push(bytes, self.tokens.len(), stops);
        let finish = match &stop {
            Some(stop) => Some(Finish::Stop { index: stop.index }),
            None if self.n_left == 0 => Some(Finish::Limit),
            None if self.tokens.len() >= n_ctx && self.request.when_full == WhenFull::End => {
                Some(Finish::ContextFull)
            }
            None => None,
        };
        match finish {
            None => self.text.show(stops, &mut chunk.text),
            Some(_) => self.text.show_all(&mut chunk.text),
        }
        self.n_sent += chunk.text.len();
        chunk.logprobs = match &stop {
            // What is left belongs to the stop string.
            Some(stop) => self.release((self.held.len() + stop.n_tokens).saturating_sub(self.tokens.len())),
            None if finish.is_some() || stops.is_empty() => self.release(usize::MAX),
            None => self.release(self.held.iter().take_while(|held| held.end <= self.n_sent).count()),
        };
        let elapsed = self.first.map_or(Duration::ZERO, |first| first.elapsed());
        let has_ended = self.lines.end(&mut chunk.text, &self.request, elapsed);
        finish.or(has_ended.then_some(Finish::Limit))
    }

    /// Take the log-probabilities of the first `n` tokens that are held back.
    fn release(&mut self, n: usize) -> Vec<TokenLogprobs> {
        self.held.drain(..n.min(self.held.len())).map(|held| held.logprobs).collect()
    }

    /// Return the tokens to remove when the context is full: the first of them, and their number.
    pub fn shift(&self, n_ctx: usize) -> Option<(usize, usize)> {
        let WhenFull::Shift { n_keep, n_discard } = self.request.when_full else { return None };
        if self.tokens.len() < n_ctx || self.is_prompting() {
            return None;
        }
        let n_keep = n_keep.min(n_ctx.saturating_sub(4)).min(self.n_done);
        let n_left = self.n_done - n_keep;
        let n = if n_discard == 0 { n_left / 2 } else { n_discard.min(n_left) };
        (n > 0).then_some((n_keep, n))
    }

    /// Note that tokens were removed.
    pub fn shifted(&mut self, from: usize, n: usize) {
        self.tokens.drain(from..from + n);
        self.n_done -= n;
        self.is_shifted = true;
    }

    /// Return true if the positions of some tokens were changed.
    pub fn is_shifted(&self) -> bool {
        self.is_shifted
    }

    /// Return the number of tokens that may still be generated.
    pub fn n_left(&self) -> Option<usize> {
        self.request.limit.map(|_| self.n_left)
    }

    /// Send the end of the generation.
    pub fn end(&mut self, finish: Finish) {
        let (timings, n_prompt, n_held) = (self.timings, self.n_prompt, self.n_done);
        self.send(Event::Ended(Ended { finish, timings, n_prompt, n_held, is_shifted: self.is_shifted }));
    }
}
