//! A picture as an SVG file: rows of blocks, checkpoints and rollback costs over a common scale of
//! positions, a legend, and below a curve of the cost against the distance.
//!
//! The file stands alone: it has no scripts, fonts or references, and its colours stand out from
//! white and from black. Every shape has a title, which browsers show under the pointer.

mod curve;
mod sheet;

use super::legend::Ink;
use super::{Picture, Role, captions, in_window, n_reevaluated, retained, widest, with_cells};
use crate::output::bytes;
use backstitch_kv::survey::{Checkpoint, Extent, Layers, Survey};
use backstitch_models::{CostRange, Pos, RollbackCost};
use sheet::{Across, LEFT, Sheet, WIDE, step};

/// The element that tells drawings of this program from other SVG files, so that `--svg` replaces
/// none of those.
pub const MARK: &str = "<metadata>drawn by backstitch timeline</metadata>";

/// Height of a row of blocks.
const ROW: f64 = 18.0;
/// Distance from one row to the next.
const NEXT: f64 = 28.0;
/// Distance from one line of text to the next.
const LINE: f64 = 20.0;

/// Return the content of the file.
pub fn draw(picture: &Picture) -> String {
    let mut sheet = Sheet::new();
    let across = Across { total: picture.end().0.max(1) };
    for (pos, cost) in &picture.rollbacks {
        sheet.note(&captions::rollback(*pos, cost));
        sheet.down(LINE);
    }
    ruler(&mut sheet, across);
    rows(&mut sheet, across, picture);
    legend(&mut sheet);
    for (what, n_bytes, explained) in captions::memory(picture) {
        sheet.label(what);
        sheet.text(LEFT + 80.0, "end", Ink::Plain, &bytes(n_bytes));
        sheet.text(LEFT + 92.0, "start", Ink::Plain, &explained);
        sheet.down(LINE);
    }
    curve::draw(&mut sheet, picture);
    sheet.finish(&captions::title(picture), MARK)
}

/// Draw the scale of positions.
fn ruler(sheet: &mut Sheet, across: Across) {
    for pos in (0..=across.total).step_by(step(across.total, 10) as usize) {
        sheet.text(across.x(pos), "middle", Ink::Plain, &pos.to_string());
        sheet.tick(across.x(pos));
    }
    sheet.down(NEXT - 4.0);
}

/// Draw the rows under the scale, each after its label. Rows that would be empty for every
/// sequence of the model are left out.
fn rows(sheet: &mut Sheet, across: Across, picture: &Picture) {
    let survey = &picture.survey;
    for (layers, name) in with_cells(survey) {
        sheet.label(&name);
        blocks(sheet, across, survey, layers);
        window(sheet, across, layers, survey.end);
        sheet.down(NEXT);
    }
    if picture.recurrent().is_some() {
        sheet.label("state");
        state(sheet, across, survey);
        sheet.down(NEXT);
    }
    if !survey.checkpoints.is_empty() {
        sheet.label("checkpoints");
        survey.checkpoints.iter().for_each(|one| checkpoint(sheet, across, one));
        sheet.down(NEXT);
    }
    if picture.recurrent().is_some() {
        sheet.label("journal");
        survey.checkpoints.iter().for_each(|checkpoint| journal(sheet, across, checkpoint));
        sheet.down(NEXT);
    }
    sheet.label("rollbacks");
    rollback_costs(sheet, across, picture);
    sheet.down(NEXT);
    for (number, fork) in picture.forks.iter().enumerate() {
        sheet.label(&format!("fork {}", number + 1));
        match widest(fork) {
            Some(layers) => blocks(sheet, across, fork, layers),
            None => state(sheet, across, fork),
        }
        sheet.down(NEXT);
    }
}

/// Draw the blocks of a sequence, and under them the cells that only checkpoints retain.
fn blocks(sheet: &mut Sheet, across: Across, survey: &Survey, layers: &Layers) {
    for checkpoint in &survey.checkpoints {
        let range = retained(layers, checkpoint);
        if !range.is_empty() {
            let name = format!("retained by the checkpoint at {}", checkpoint.pos);
            let span = across.span(range.start.0, range.end.0);
            sheet.box_at(span, (ROW - 4.0, 4.0), Ink::Scheduled, 0.5, &name);
        }
    }
    for extent in &layers.extents {
        let Extent { block, n_cells, first, last, users, sequences, .. } = *extent;
        let name = format!(
            "block {block}: {n_cells} cells, {first} to {last}, {users} users, {sequences} of them sequences"
        );
        let ink = if sequences > 1 { Ink::Shared } else { Ink::Own };
        sheet.box_at(across.span(first.0, last.0.saturating_add(1)), (0.0, ROW), ink, 0.8, &name);
    }
}

/// Underline the window of the next token, and the margin before it thinly.
fn window(sheet: &mut Sheet, across: Across, layers: &Layers, end: Pos) {
    let Some(window) = in_window(layers, end) else { return };
    let margin = window.start.0.saturating_sub_unsigned(layers.margin).max(0);
    sheet.box_at(
        across.span(window.start.0, window.end.0),
        (ROW + 2.0, 4.0),
        Ink::Window,
        1.0,
        "window of the next token",
    );
    sheet.box_at(across.span(margin, window.start.0), (ROW + 3.0, 2.0), Ink::Window, 0.7, "margin");
}

/// Draw the recurrent state at the position of the next token.
fn state(sheet: &mut Sheet, across: Across, survey: &Survey) {
    if survey.end > Pos::ZERO {
        let users = survey.layers.iter().map(|layers| layers.state_users).max().unwrap_or(0);
        let ink = if users > 1 { Ink::Shared } else { Ink::Own };
        let name = format!("state before position {}, {users} users", survey.end);
        sheet.diamond(across.x(survey.end.0), ink, &name);
    }
}

/// Draw a checkpoint as a circle in the colour of its role.
fn checkpoint(sheet: &mut Sheet, across: Across, checkpoint: &Checkpoint) {
    let (ink, why) = match Role::of(checkpoint) {
        Role::Pinned => (Ink::Pinned, "pinned"),
        Role::Scheduled => (Ink::Scheduled, "scheduled checkpoint"),
        Role::Journal => (Ink::Replayed, "start of a journal"),
    };
    let Checkpoint { pos, n_rows, n_blocks, n_blocks_alone, state_bytes, .. } = *checkpoint;
    let name = format!(
        "checkpoint at {pos}, {why}: state of {}, {n_blocks} blocks ({n_blocks_alone} its own), \
         {n_rows} journaled tokens after it",
        bytes(state_bytes)
    );
    sheet.circle(across.x(pos.0), ink, &name);
}

/// Draw the tokens whose inputs a journal holds.
fn journal(sheet: &mut Sheet, across: Across, checkpoint: &Checkpoint) {
    if checkpoint.n_rows > 0 {
        let end = checkpoint.pos.0.saturating_add_unsigned(checkpoint.n_rows);
        let name = format!("{} to {}", checkpoint.pos, end - 1);
        sheet.box_at(across.span(checkpoint.pos.0, end), (5.0, 8.0), Ink::Replayed, 0.9, &name);
    }
}

/// Draw the rollback cost of each position: low boxes where nothing is re-evaluated, elsewhere
/// slopes as high as the number of tokens.
fn rollback_costs(sheet: &mut Sheet, across: Across, picture: &Picture) {
    let most = f64::from(picture.most_expensive().0.max(1));
    for range in &picture.costs {
        let CostRange { positions, restored_from, cost, .. } = range;
        let (start, end) = (positions.start.0, positions.end.0);
        let span = across.span(start, end);
        match cost {
            RollbackCost::Held => {
                sheet.box_at(
                    span,
                    (ROW - 4.0, 4.0),
                    Ink::Held,
                    1.0,
                    &format!("{start} to {}: held", end - 1),
                );
            }
            RollbackCost::Replayed => {
                let name = format!("{start} to {}: replayed from {restored_from}", end - 1);
                sheet.box_at(span, (ROW - 7.0, 7.0), Ink::Replayed, 0.9, &name);
            }
            _ => {
                let name = format!("{start} to {}: re-evaluated from {restored_from}", end - 1);
                let height = |pos| ROW * f64::from(n_reevaluated(range, pos)) / most;
                sheet.slope(span, (height(start), height(end - 1)), ROW, Ink::Evaluated, &name);
            }
        }
    }
}

/// Colours and their meanings, in the order of the legend.
const LEGEND: [(Ink, &str); 8] = [
    (Ink::Own, "own block or state"),
    (Ink::Shared, "shared"),
    (Ink::Window, "window"),
    (Ink::Pinned, "pinned"),
    (Ink::Scheduled, "scheduled checkpoint"),
    (Ink::Replayed, "journal, replayed"),
    (Ink::Held, "held"),
    (Ink::Evaluated, "re-evaluated"),
];

/// Draw the legend, in as many lines as it needs.
fn legend(sheet: &mut Sheet) {
    sheet.down(6.0);
    let mut x = LEFT;
    for (ink, meaning) in LEGEND {
        let width = 28.0 + 7.6 * meaning.len() as f64;
        if x + width > LEFT + WIDE {
            x = LEFT;
            sheet.down(LINE);
        }
        sheet.box_at((x, 10.0), (2.0, 10.0), ink, 0.9, meaning);
        sheet.text(x + 15.0, "start", Ink::Plain, meaning);
        x += width;
    }
    sheet.down(LINE + 10.0);
}
