//! Rollbacks that the reference refused.
//!
//! llama.cpp cannot remove the end of a recurrent state. The goldens record the refusal, and a case
//! `rollback_fresh` that never had the removed tokens. Together they make cases that say what a
//! successful rollback must give.

use super::golden::{Case, Golden, Step};
use alloc::format;
use alloc::vec::Vec;

/// Return a case for each one in which the reference refused to remove an end. It has the steps up
/// to there, the removal, and the next step of `rollback_fresh` with its expected numbers.
pub(super) fn cases(golden: &Golden) -> Vec<Case> {
    let fresh = golden.cases.iter().find(|case| case.name == "rollback_fresh");
    let next = fresh.and_then(|case| case.steps.iter().rfind(|step| matches!(step, Step::Decode(_))));
    let Some(Step::Decode(next)) = next else { return Vec::new() };
    let starts_at = next.pos.first().copied();
    let done = |case: &Case| {
        let is_refused =
            |step: &Step| matches!(step, Step::SeqRm { ok: false, p0, p1: -1, .. } if Some(*p0) == starts_at);
        let at = case.steps.iter().position(is_refused)?;
        let mut steps: Vec<Step> = case.steps[..at].to_vec();
        if let Step::SeqRm { seq, p0, p1, .. } = case.steps[at] {
            steps.push(Step::SeqRm { seq, p0, p1, ok: true });
        }
        steps.push(Step::Decode(next.clone()));
        Some(Case { name: format!("{} done", case.name), steps, flags: Vec::new(), ..case.clone() })
    };
    golden.cases.iter().filter_map(done).collect()
}
