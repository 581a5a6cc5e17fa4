//! Drawings of a memory that no model made, with one of everything.

use super::*;
use crate::picture::legend::Ink;
use backstitch_kv::survey::Extent;
use backstitch_kv::{Kind, Retention, SeqId, Window};
use backstitch_models::RollbackParams;

fn extent(number: i32, last: i32, sequences: u32) -> Extent {
    let first = Pos(number * 32);
    let n_cells = (last - first.0 + 1) as u32;
    let mut extent = Extent::default();
    (extent.block, extent.n_cells) = (number as u32, n_cells);
    (extent.first, extent.last) = (first, Pos(last));
    (extent.users, extent.sequences) = (sequences, sequences);
    extent
}

fn checkpoint(pos: i32, is_pinned: bool, is_scheduled: bool, n_rows: u32) -> Checkpoint {
    let mut checkpoint = Checkpoint::default();
    (checkpoint.pos, checkpoint.n_rows) = (Pos(pos), n_rows);
    (checkpoint.is_pinned, checkpoint.is_scheduled) = (is_pinned, is_scheduled);
    (checkpoint.state_bytes, checkpoint.n_blocks) = (2048, 1);
    checkpoint
}

fn costs(positions: Range<i32>, restored_from: i32, cost: RollbackCost) -> CostRange {
    let positions = Pos(positions.start)..Pos(positions.end);
    CostRange::new(positions, Pos(restored_from), cost)
}

/// Return the memory of 100 tokens in layers with a window, without one, and with a state. A fork
/// shares two of its blocks.
fn survey() -> Survey {
    let mut unwindowed = Layers::new(Kind::Kv(Retention::All), 2);
    unwindowed.extents = vec![extent(0, 31, 2), extent(1, 63, 2), extent(2, 95, 1), extent(3, 99, 1)];
    unwindowed.block_bytes = 1024;
    let mut windowed = Layers::new(Kind::Kv(Retention::Window), 1);
    (windowed.window, windowed.margin) = (Some(Window::Sliding(16)), 8);
    windowed.extents = vec![extent(2, 95, 1), extent(3, 99, 1)];
    (windowed.block_bytes, windowed.held_bytes) = (512, 512);
    let mut recurrent = Layers::new(Kind::Recurrent, 2);
    (recurrent.state_bytes, recurrent.state_users) = (2048, 1);
    (recurrent.row_bytes, recurrent.held_bytes) = (64, 8192);
    let mut survey = Survey::new(SeqId(0), Kind::Hybrid, Pos(100));
    survey.layers = vec![unwindowed, windowed, recurrent];
    survey.checkpoints = vec![
        checkpoint(20, true, false, 0),
        checkpoint(64, false, true, 0),
        checkpoint(88, false, false, 8),
        checkpoint(96, false, true, 4),
    ];
    survey.budget.params =
        RollbackParams::default().checkpoint_bytes(1 << 20).spacing(32).journal(8).margin(8);
    (survey.budget.n_paid, survey.budget.n_checkpoints) = (10, 4);
    survey
}

fn picture() -> Picture {
    let mut fork = Survey::new(SeqId(1), Kind::Hybrid, Pos(65));
    (fork.layers, fork.budget) = (survey().layers[..1].to_vec(), survey().budget);
    fork.layers[0].extents = vec![extent(0, 31, 2), extent(1, 63, 2), extent(2, 64, 1)];
    Picture {
        model: "a made-up model".into(),
        survey: survey(),
        costs: vec![
            costs(0..1, 0, RollbackCost::Held),
            costs(1..20, 0, RollbackCost::Reevaluated),
            costs(20..21, 20, RollbackCost::Held),
            costs(21..64, 20, RollbackCost::Reevaluated),
            costs(64..65, 64, RollbackCost::Held),
            costs(65..88, 64, RollbackCost::Reevaluated),
            costs(88..89, 88, RollbackCost::Held),
            costs(89..96, 88, RollbackCost::Replayed),
            costs(96..97, 96, RollbackCost::Held),
            costs(97..100, 96, RollbackCost::Replayed),
            costs(100..101, 100, RollbackCost::Held),
        ],
        forks: vec![fork],
        rollbacks: vec![(Pos(100), Rollback::new(Pos(96), 4, 0))],
    }
}

fn text(picture: &Picture) -> Vec<String> {
    let line = |line: &text::Line| line.iter().map(|span| span.text.as_str()).collect::<String>();
    text::draw(picture, 100).iter().map(|spans| line(spans).trim_end().to_owned()).collect()
}

#[test]
fn a_made_up_memory_looks_like_this() {
    let expected = "\
rollback to 100: restored from 96, 4 tokens replayed, none evaluated
a made-up model: 100 tokens, hybrid memory; a column is 2 positions

positions    |0        |20       |40       |60       |80       |100
blocks       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░░░░████████████████▓▓
window 16    ..--------..............--------████████████████▓▓
  sees                                             ┄┄┄┄━━━━━━━━
state                                                          ◆
checkpoints            P                     o           j   o
journal                                                  ======
rollbacks    ▁▁▁▂▂▃▃▃▄▄▁▁▁▂▂▃▃▃▄▄▄▅▅▆▆▆▇▇▇███▁▁▁▂▂▃▃▃▄▄▄▅~~~~~~*
fork 1       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░░░░█

             █▓ own blocks by turns   ▒░ shared blocks by turns   - retained by checkpoints only
             . no longer retained   ━ window of the next token   ┄ margin   ◆ recurrent state
             P pinned   o scheduled checkpoint   j start of a journal   = in a journal   * held
             ~ replayed   ▁█ few to many re-evaluated

The most expensive rollback, to 63, re-evaluates 43 tokens.
cells           5.0 KiB  6 blocks in 3 layers, 2 of them shared with forks
state           2.0 KiB  after the last token, in 2 layers
checkpoints     8.5 KiB  4: 1 pinned, 2 of the checkpoint schedule, 1 for the journal
journal           768 B  inputs of 12 tokens
budget          1.0 MiB  at most, for up to 10 checkpoints of all sequences";
    let drawn = text(&picture()).join("\n");
    assert_eq!(drawn, expected, "\n{drawn}\n");
}

#[test]
fn a_memory_that_holds_everything_needs_few_lines() {
    let mut picture = picture();
    picture.survey.layers.truncate(1);
    picture.survey.checkpoints.clear();
    picture.survey.budget.n_paid = 0;
    picture.survey.kind = Kind::Kv(Retention::All);
    picture.costs = vec![costs(0..101, 0, RollbackCost::Held)];
    (picture.forks, picture.rollbacks) = (Vec::new(), Vec::new());
    let drawn = text(&picture);
    assert!(drawn.iter().any(|line| line.starts_with("rollbacks    **********")), "{drawn:#?}");
    assert!(drawn.contains(&"No rollback re-evaluates a token.".to_owned()), "{drawn:#?}");
    for absent in ["journal", "checkpoints", "state", "budget"] {
        assert!(!drawn.iter().any(|line| line.starts_with(absent)), "{absent}: {drawn:#?}");
    }
}

#[test]
fn no_line_is_wider_than_a_hundred_columns() {
    let mut picture = picture();
    picture.model = "a name without end ".repeat(50);
    picture.forks = vec![picture.forks[0].clone(); 64];
    picture.rollbacks[0].1 = Rollback::new(Pos(i32::MAX), 0, u32::MAX);
    picture.survey.budget.params.checkpoint_bytes = u64::MAX;
    picture.survey.layers[0].block_bytes = 1 << 60;
    for end in [0, 1, 85, 86, 87, 88, 1000, 131_072, i32::MAX - 1] {
        picture.survey.end = Pos(end);
        let drawn = text(&picture);
        let wide: Vec<_> = drawn.iter().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{end}: {wide:#?}");
        assert!(drawn.iter().any(|line| line.trim() == "and 58 more forks"), "{drawn:#?}");
    }
}

#[test]
fn an_empty_sequence_is_drawn_too() {
    let mut picture = picture();
    let Survey { layers, checkpoints, end, .. } = &mut picture.survey;
    *end = Pos::ZERO;
    checkpoints.clear();
    layers.iter_mut().for_each(|layers| layers.extents.clear());
    layers[2].state_users = 0;
    picture.costs = vec![costs(0..1, 0, RollbackCost::Held)];
    picture.forks.clear();
    assert!(text(&picture).iter().any(|line| line.contains("0 tokens, hybrid memory")));
    check_xml(&svg::draw(&picture)).unwrap();
}

/// Check that a file is XML: elements close, attributes have quotes, characters are those of XML.
/// Return the number of elements.
fn check_xml(file: &str) -> Result<usize, String> {
    let (mut open, mut rest, mut n): (Vec<&str>, &str, usize) = (Vec::new(), file, 0);
    while let Some((text, after)) = rest.split_once('<') {
        check_text(text)?;
        let (tag, after) = after.split_once('>').ok_or_else(|| format!("a tag without end: {after}"))?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Err(format!("{name} closes {last:?}"));
            }
            continue;
        }
        n += 1;
        let (body, is_empty) = tag.strip_suffix('/').map_or((tag, false), |body| (body, true));
        let (name, attributes) = body.split_once(' ').unwrap_or((body, ""));
        let quoted: Vec<&str> = attributes.split('"').collect();
        let names = quoted.iter().step_by(2).take(quoted.len() / 2);
        if quoted.last() != Some(&"") || !names.clone().all(|name| name.ends_with('=')) || tag.contains('<') {
            return Err(format!("attributes of <{tag}>"));
        }
        quoted.iter().try_for_each(|value| check_text(value))?;
        if !is_empty {
            open.push(name);
        }
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(n) } else { Err(format!("left open: {open:?}{rest}")) }
}

fn check_text(text: &str) -> Result<(), String> {
    let entities = ["amp;", "lt;", "gt;", "quot;", "apos;"];
    let bare = text.split('&').skip(1).find(|after| !entities.iter().any(|entity| after.starts_with(entity)));
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    match (bare, control) {
        (Some(after), _) => Err(format!("a bare & before {after}")),
        (_, Some(c)) => Err(format!("character {c:?}")),
        _ => Ok(()),
    }
}

#[test]
fn an_svg_is_well_formed_whatever_the_model_is_called() {
    let mut picture = picture();
    picture.model = "</title><script>alert('&\"')</script>\u{0}\u{1b}[31m\u{ffff}".into();
    let drawn = svg::draw(&picture);
    let n = check_xml(&drawn).unwrap();
    assert!(n > 60, "{n} elements");
    assert!(drawn.contains("&lt;script&gt;") && !drawn.contains("<script"), "{drawn}");
    // The checker sees what it should.
    for broken in ["<a><b></a></b>", "<a>", "<a b=c/>", "<a>&b;</a>", "<a", "</a>", "<a>\u{1}</a>"] {
        assert!(check_xml(broken).is_err(), "{broken}");
    }
}

#[test]
fn an_svg_stands_alone() {
    let drawn = svg::draw(&picture());
    assert_eq!(drawn.matches("http").count(), 1, "the name space");
    for word in ["href", "<script", "<style", "@import", "url(", "<image", "<foreignObject"] {
        assert!(!drawn.contains(word), "{word}");
    }
    for part in ["checkpoint at 20, pinned", "block 3: 4 cells, 96 to 99", "fork 1", "for tokens rolled back"]
    {
        assert!(drawn.contains(part), "{part}");
    }
}

/// Relative luminance as the guidelines for accessible web pages define it.
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

#[test]
fn colours_stand_out_from_white_and_from_black() {
    let inks = [
        Ink::Plain,
        Ink::Heading,
        Ink::Faint,
        Ink::Own,
        Ink::Shared,
        Ink::Window,
        Ink::Pinned,
        Ink::Scheduled,
        Ink::Replayed,
        Ink::Held,
        Ink::Evaluated,
    ];
    for ink in inks {
        let is_text = matches!(ink, Ink::Plain | Ink::Heading);
        for background in ["#ffffff", "#0d1117"] {
            let (a, b) = (luminance(ink.colour()) + 0.05, luminance(background) + 0.05);
            let contrast = a.max(b) / a.min(b);
            assert!(contrast > if is_text { 4.0 } else { 3.0 }, "{ink:?} on {background}: {contrast:.2}");
        }
    }
}

#[test]
fn the_curve_bends_where_the_costs_do() {
    let drawn = svg::draw(&picture());
    let line = drawn.lines().rfind(|line| line.contains("<polyline")).unwrap();
    let points = line.split('"').nth(1).unwrap().split(' ');
    let heights: Vec<f64> = points.map(|point| point.split_once(',').unwrap().1.parse().unwrap()).collect();
    let (low, high) = heights.iter().fold((f64::MAX, f64::MIN), |(l, h), y| (l.min(*y), h.max(*y)));
    // Downwards is cheap: the end is held, the most expensive of all positions is 63.
    assert_eq!((heights.len(), heights[0]), (22, high));
    assert_eq!(heights.iter().position(|y| *y == low), Some(14));
}

#[test]
fn numbers_are_the_same_for_programs() {
    let value = json::value(&picture());
    assert_eq!(value["bytes"]["cells"], 4 * 1024 + 2 * 512);
    assert_eq!(value["bytes"]["cells_shared"], 2 * 1024);
    assert_eq!(value["bytes"]["journal"], 12 * 64);
    assert_eq!(value["checkpoints"][0]["role"], "pinned");
    assert_eq!(value["layers"][1]["window"], 16);
    assert_eq!(value["layers"][0]["blocks"][1]["sequences"], 2);
    assert_eq!(value["positions"][3]["to"], 63);
    assert_eq!(value["positions"][3]["cost"], "reevaluated");
    assert_eq!(value["forks"][0]["n_tokens"], 65);
    assert_eq!(value["rollbacks"][0]["replayed"], 4);
}

#[test]
fn a_picture_fits_the_columns_that_there_are() {
    let picture =
        Picture { model: "A model with a name that is longer than a line of 40".into(), ..picture() };
    for columns in [40, 60, 80, 100] {
        for line in text::draw(&picture, columns) {
            let line: String = line.iter().map(|span| span.text.as_str()).collect();
            assert!(line.trim_end().chars().count() <= columns, "{columns}: {line:?}");
        }
    }
    assert!(text::draw(&picture, 40).len() > text::draw(&picture, 100).len());
}
