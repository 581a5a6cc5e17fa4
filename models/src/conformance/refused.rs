//! Rollbacks that the reference refused: cases made of its own, which say what must come out where one succeeds.

use super::golden::{Case, Golden, Step};
use alloc::format;
use alloc::vec::Vec;

/// For each case in which the reference refused to take off an end: the case up to there, the end taken off, and what
/// the case `rollback_fresh`, which never had those tokens, evaluates next and expects.
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
