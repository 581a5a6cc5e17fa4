//! Counts and times of an answer while it is written.

use crate::engine::{Chunk, Event, Reuse, Timings};
use crate::http::{account_json, millis, timings_json};
use crate::params::Reading;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Counts and times of an answer so far.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    n_prompt: usize,
    n_done: usize,
    /// The number of tokens of the prompt that were done at the last report; `None` before one.
    n_reported: Option<usize>,
    n_generated: usize,
    prompt_time: Duration,
    first: Option<Instant>,
    /// The slot of the request.
    pub slot: usize,
    /// The part of the prompt that was reused.
    pub reuse: Option<Reuse>,
    /// The parts of the request that do nothing.
    ignored: Vec<String>,
}

impl Meter {
    /// Begin with a prompt of `n_prompt` tokens, in a request of which the `ignored` parts do
    /// nothing.
    pub fn new(n_prompt: usize, ignored: Vec<String>) -> Self {
        Meter {
            n_prompt,
            n_done: 0,
            n_reported: None,
            n_generated: 0,
            prompt_time: Duration::ZERO,
            first: None,
            slot: 0,
            reuse: None,
            ignored,
        }
    }

    /// Begin with the request of an answer.
    pub fn of(reading: &Reading) -> Self {
        Meter::new(reading.generate.prompt.len(), reading.ignored.clone())
    }

    /// Return the account of what was reused, and of what the request asks for in vain.
    pub fn account(&self, reuse: &Reuse) -> Value {
        account_json(reuse, &self.ignored)
    }

    /// Note what an event tells.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Began { slot, reuse } => {
                (self.slot, self.reuse, self.n_done) = (*slot, Some(*reuse), reuse.n_reused);
            }
            Event::Progress { n_done, elapsed } => (self.n_done, self.prompt_time) = (*n_done, *elapsed),
            Event::Chunk(Chunk { tokens, prompt_time, .. }) => {
                self.prompt_time = prompt_time.unwrap_or(self.prompt_time);
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

    /// Return the part of the prompt that is done, if it is time to report it: at the beginning,
    /// after every `n_batch` tokens, and at the end. The engine evaluates smaller pieces, to keep
    /// places to go back to and to let others in between.
    pub fn report(&mut self, n_batch: usize) -> Option<Value> {
        let is_due = self.n_reported.is_none_or(|before| {
            self.n_done > before && (self.n_done == self.n_prompt || self.n_done - before >= n_batch)
        });
        is_due.then(|| {
            self.n_reported = Some(self.n_done);
            self.progress()
        })
    }

    fn progress(&self) -> Value {
        json!({
            "total": self.n_prompt,
            "cache": self.n_cached(),
            "processed": self.n_done,
            "time_ms": millis(self.prompt_time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_by_batches() {
        let mut meter = Meter::new(150, Vec::new());
        let mut told = Vec::new();
        for n_done in [0, 30, 64, 94, 149, 150] {
            meter.note(&Event::Progress { n_done, elapsed: Duration::ZERO });
            told.extend(meter.report(64).map(|report| report["processed"].as_u64().unwrap()));
        }
        assert_eq!(told, [0, 64, 149, 150]);
    }

    #[test]
    fn the_first_token_tells_the_time_of_the_prompt() {
        let mut meter = Meter::new(10, Vec::new());
        let prompt_time = Some(Duration::from_millis(7));
        meter.note(&Event::Chunk(Chunk { prompt_time, ..Chunk::default() }));
        meter.note(&Event::Chunk(Chunk::default()));
        assert_eq!(meter.timings()["prompt_ms"], 7.0);
    }
}
