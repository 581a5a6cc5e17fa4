//! Small values that calls return.

use backstitch_models::{self as models, session};
use pyo3::prelude::*;

/// The work that a rollback took.
///
/// Attributes: `restored_from`, the position that was restored: the one asked for, or that of the
/// checkpoint before it; `replayed`, the number of tokens whose recurrences were stepped again,
/// without running the model; `reevaluated`, the number of tokens that the model evaluated.
#[pyclass(frozen, get_all, eq, module = "backstitch")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rollback {
    restored_from: i32,
    replayed: u32,
    reevaluated: u32,
}

impl From<models::Rollback> for Rollback {
    fn from(rollback: models::Rollback) -> Self {
        let models::Rollback { restored_from, replayed, reevaluated, .. } = rollback;
        Rollback { restored_from: restored_from.0, replayed, reevaluated }
    }
}

#[pymethods]
impl Rollback {
    fn __repr__(&self) -> String {
        let Rollback { restored_from, replayed, reevaluated } = self;
        format!("Rollback(restored_from={restored_from}, replayed={replayed}, reevaluated={reevaluated})")
    }
}

/// The outcome of setting the tokens of a session.
///
/// Attributes: `kept`, the number of tokens at the beginning that were there already; `evaluated`,
/// the number of tokens evaluated behind them; `rollback`, the work of going back to the end of the
/// former.
#[pyclass(frozen, get_all, eq, module = "backstitch")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrefixReuse {
    kept: usize,
    evaluated: usize,
    rollback: Rollback,
}

impl From<session::PrefixReuse> for PrefixReuse {
    fn from(reuse: session::PrefixReuse) -> Self {
        let session::PrefixReuse { kept, evaluated, rollback, .. } = reuse;
        PrefixReuse { kept, evaluated, rollback: rollback.into() }
    }
}

#[pymethods]
impl PrefixReuse {
    fn __repr__(&self) -> String {
        let PrefixReuse { kept, evaluated, rollback } = self;
        format!("PrefixReuse(kept={kept}, evaluated={evaluated}, rollback={})", rollback.__repr__())
    }
}

/// Positions with equal rollback cost.
///
/// Attributes: `start` and `stop`, the range of positions; `restored_from`, the position of the
/// checkpoint that a rollback starts from, or `start`; `cost`, the work behind it: "held" for none,
/// "replayed" for recurrences alone, "reevaluated" for the model.
#[pyclass(frozen, get_all, eq, module = "backstitch")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CostRange {
    start: i32,
    stop: i32,
    restored_from: i32,
    cost: &'static str,
}

impl From<models::CostRange> for CostRange {
    fn from(range: models::CostRange) -> Self {
        let cost = match range.cost {
            models::RollbackCost::Held => "held",
            models::RollbackCost::Replayed => "replayed",
            _ => "reevaluated",
        };
        let (start, stop) = (range.positions.start.0, range.positions.end.0);
        CostRange { start, stop, restored_from: range.restored_from.0, cost }
    }
}

#[pymethods]
impl CostRange {
    fn __repr__(&self) -> String {
        let CostRange { start, stop, restored_from, cost } = self;
        format!("CostRange(start={start}, stop={stop}, restored_from={restored_from}, cost='{cost}')")
    }
}

/// A token with the model's own log-probabilities at its position, before any sampler.
///
/// Attributes: `token`; `logprob`, `None` for the first token of a text, which nothing predicts;
/// `top`, the likeliest tokens with their log-probabilities, likeliest first.
#[pyclass(frozen, get_all, eq, module = "backstitch")]
#[derive(Clone, PartialEq)]
pub struct TokenLogprobs {
    token: u32,
    logprob: Option<f64>,
    top: Vec<(u32, f64)>,
}

impl From<session::TokenLogprobs> for TokenLogprobs {
    fn from(logprobs: session::TokenLogprobs) -> Self {
        TokenLogprobs {
            token: logprobs.token.0,
            logprob: logprobs.logprob,
            top: logprobs.top.iter().map(|entry| (entry.token.0, entry.logprob)).collect(),
        }
    }
}

#[pymethods]
impl TokenLogprobs {
    fn __repr__(&self) -> String {
        let TokenLogprobs { token, logprob, top } = self;
        let logprob = logprob.map_or("None".into(), |logprob| format!("{logprob:?}"));
        format!("TokenLogprobs(token={token}, logprob={logprob}, top={top:?})")
    }
}
