//! Sentences and figures that the text and the SVG file share, so that both say the same.
//!
//! Everything here is for people; programs get numbers from `json`.

use super::{Picture, Role};
use crate::output::{counted, one_line, shorten};
use backstitch_kv::survey::{Layers, Survey};
use backstitch_models::{Pos, Rollback};

/// Return the title: the model, the number of tokens and the kind of memory.
pub fn title(picture: &Picture) -> String {
    let model = shorten(&one_line(&picture.model));
    let n_tokens = counted(picture.survey.end.0.max(0) as usize, "token");
    format!("{model}: {n_tokens}, {} memory", picture.survey.kind)
}

/// Return the line about a rollback that was carried out, with its cost.
pub fn rollback(pos: Pos, cost: &Rollback) -> String {
    let from = cost.restored_from;
    match *cost {
        Rollback { reevaluated: n @ 1.., .. } => {
            format!("rollback to {pos}: restored from {from}, {} re-evaluated", counted(n as usize, "token"))
        }
        Rollback { replayed: n @ 1.., .. } => format!(
            "rollback to {pos}: restored from {from}, {} replayed, none evaluated",
            counted(n as usize, "token")
        ),
        _ => format!("rollback to {pos}: held, nothing replayed or evaluated"),
    }
}

/// Return the sentence about the most expensive rollback.
pub fn most_expensive(picture: &Picture) -> String {
    match picture.most_expensive() {
        (0, _) => "No rollback re-evaluates a token.".into(),
        (n, pos) => {
            format!("The most expensive rollback, to {pos}, re-evaluates {}.", counted(n as usize, "token"))
        }
    }
}

/// Return the kinds of memory that the sequence uses: name, bytes, and an explanation. Kinds that
/// its model does not have are left out.
pub fn memory(picture: &Picture) -> Vec<(&'static str, u64, String)> {
    let Survey { layers, checkpoints, budget, .. } = &picture.survey;
    let bytes = picture.survey.bytes();
    let mut lines = Vec::new();
    let in_layers = |has: fn(&Layers) -> bool| {
        let n: usize = layers.iter().filter(|layers| has(layers)).map(|layers| layers.n_layer).sum();
        counted(n, "layer")
    };
    if bytes.cells > 0 {
        let blocks = || layers.iter().flat_map(|layers| &layers.extents);
        let n_shared = blocks().filter(|block| block.sequences > 1).count();
        let shared =
            if n_shared > 0 { format!(", {n_shared} of them shared with forks") } else { String::new() };
        let n = counted(blocks().count(), "block");
        let layers = in_layers(|layers| layers.block_bytes > 0);
        lines.push(("cells", bytes.cells, format!("{n} in {layers}{shared}")));
    }
    if let Some(recurrent) = picture.recurrent().filter(|_| bytes.states > 0) {
        let shared = match recurrent.state_users.saturating_sub(1) {
            0 => String::new(),
            n => format!(", shared with {}", counted(n as usize, "other user")),
        };
        let layers = in_layers(|layers| layers.state_bytes > 0);
        lines.push(("state", bytes.states, format!("after the last token, in {layers}{shared}")));
    }
    if budget.n_paid > 0 || !checkpoints.is_empty() {
        let n = |role| checkpoints.iter().filter(|checkpoint| Role::of(checkpoint) == role).count();
        let (pinned, scheduled, journal) = (n(Role::Pinned), n(Role::Scheduled), n(Role::Journal));
        let roles = format!(
            "{}: {pinned} pinned, {scheduled} of the checkpoint schedule, {journal} for the journal",
            checkpoints.len()
        );
        lines.push(("checkpoints", bytes.checkpoints, roles));
        if picture.recurrent().is_some() {
            let n_rows: usize = checkpoints.iter().map(|checkpoint| checkpoint.n_rows as usize).sum();
            lines.push(("journal", bytes.journal, format!("inputs of {}", counted(n_rows, "token"))));
        }
        let most = counted(budget.n_paid as usize, "checkpoint");
        let limit = format!("at most, for up to {most} of all sequences");
        lines.push(("budget", budget.params.checkpoint_bytes, limit));
    }
    lines
}
