//! Counts and times of an answer while it is written.

use crate::engine::{Chunk, Event, Reuse, Timings};
use crate::http::{millis, timings_json};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Counts and times of an answer so far.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    n_prompt: usize,
    n_done: usize,
    n_generated: usize,
    prompt_time: Duration,
    first: Option<Instant>,
    /// The slot of the request.
    pub slot: usize,
    /// The part of the prompt that was reused.
    pub reuse: Option<Reuse>,
}

impl Meter {
    /// Begin with a prompt of `n_prompt` tokens.
    pub fn new(n_prompt: usize) -> Self {
        let (n_done, n_generated, slot) = (0, 0, 0);
        Meter { n_prompt, n_done, n_generated, prompt_time: Duration::ZERO, first: None, slot, reuse: None }
    }

    /// Note what an event tells.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Began { slot, reuse } => {
                (self.slot, self.reuse, self.n_done) = (*slot, Some(*reuse), reuse.n_reused);
            }
            Event::Progress { n_done, elapsed } => (self.n_done, self.prompt_time) = (*n_done, *elapsed),
            Event::Chunk(Chunk { tokens, .. }) => {
                self.n_done = self.n_prompt;
                self.n_generated += tokens.len();
                self.first.get_or_insert_with(Instant::now);
            }
            _ => {}
        }
    }

    /// Return the number of tokens of the prompt.
    pub fn n_prompt(&self) -> usize {
        self.n_prompt
    }

    /// Return the number of reused tokens of the prompt.
    pub fn n_cached(&self) -> usize {
        self.reuse.map_or(0, |reuse| reuse.n_reused)
    }

    /// Return the times so far.
    pub fn timings(&self) -> Value {
        let mut timings = Timings::default();
        timings.n_cached = self.n_cached();
        timings.n_prompt = self.n_done.saturating_sub(timings.n_cached);
        timings.prompt = self.prompt_time;
        timings.n_generated = self.n_generated;
        timings.generation = self.first.map_or(Duration::ZERO, |first| first.elapsed());
        timings_json(&timings)
    }

    /// Return the part of the prompt that is done.
    pub fn progress(&self) -> Value {
        json!({
            "total": self.n_prompt,
            "cache": self.n_cached(),
            "processed": self.n_done,
            "time_ms": millis(self.prompt_time),
        })
    }
}
