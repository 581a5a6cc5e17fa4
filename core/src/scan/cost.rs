//! Costs of recurrences, by which their heads are shared out.

/// State elements times tokens that are worth a job.
pub(super) const LEAST: usize = 1 << 14;

/// Cost of a step of a state element, in multiply-adds: some steps take an exponential.
pub(super) const STEP: u64 = 16;
