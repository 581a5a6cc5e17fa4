//! Times of a context.

use crate::border::exports;
use crate::context::context;
use crate::handles::Handle;
use crate::layouts::PerfContext;
use crate::log::{self, Level};
use std::sync::OnceLock;
use std::time::Instant;

/// Return microseconds of a clock that never goes back.
pub fn now_us() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    i64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(i64::MAX)
}

/// Times and counts since the context was made, or since they were reset.
#[derive(Clone, Copy, Debug)]
pub struct Perf(PerfContext);

impl Perf {
    /// Start to measure, after loading took `load_ms` milliseconds.
    pub fn new(load_ms: f64) -> Self {
        let t_start_ms = now_us() as f64 / 1e3;
        Perf(PerfContext { t_start_ms, t_load_ms: load_ms, ..PerfContext::default() })
    }

    /// Add a batch of `n` tokens that took from `start` until now.
    pub fn add(&mut self, n: usize, start: Instant) {
        let (ms, n_tokens) = (start.elapsed().as_secs_f64() * 1e3, i32::try_from(n).unwrap_or(i32::MAX));
        match n {
            1 => {
                self.0.t_eval_ms += ms;
                self.0.n_eval += 1;
            }
            _ => {
                self.0.t_p_eval_ms += ms;
                self.0.n_p_eval = self.0.n_p_eval.saturating_add(n_tokens);
            }
        }
    }

    /// Start anew.
    pub fn reset(&mut self) {
        *self = Perf::new(self.0.t_load_ms);
    }
}

exports! {
    /// Return the times of a context.
    fn llama_perf_context(handle: Handle) -> PerfContext = [PerfContext::default()] {
        Ok(context(handle)?.live()?.perf.0)
    }

    /// Write the times of a context to the log.
    fn llama_perf_context_print(handle: Handle) {
        let perf = context(handle)?.live()?.perf.0;
        let rate = |n: i32, ms: f64| if ms > 0.0 { f64::from(n) * 1e3 / ms } else { 0.0 };
        log::write(Level::Info, &format!(
            "load {:.2} ms; prompts {:.2} ms for {} tokens ({:.2} tokens/s); \
             single tokens {:.2} ms for {} ({:.2} tokens/s)",
            perf.t_load_ms, perf.t_p_eval_ms, perf.n_p_eval, rate(perf.n_p_eval, perf.t_p_eval_ms),
            perf.t_eval_ms, perf.n_eval, rate(perf.n_eval, perf.t_eval_ms),
        ));
        Ok(())
    }

    /// Set the times of a context to zero.
    fn llama_perf_context_reset(handle: Handle) {
        context(handle)?.live()?.perf.reset();
        Ok(())
    }

    /// Return microseconds of a clock.
    fn llama_time_us() -> i64 = [0] {
        Ok(now_us())
    }
}
