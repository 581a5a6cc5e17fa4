//! A picture of characters, for terminals: a title, rows over a common scale of positions, a legend
//! of the characters that were used, and figures.
//!
//! A column stands for as many positions as it takes to fit the width, and shows the most important
//! of them: the costliest rollback, the checkpoint that stays longest. Colours repeat what the
//! characters say.

use super::legend::Ink;
use super::{Picture, Role, captions, in_window, n_reevaluated, retained, widest, with_cells};
use crate::output::{bytes, counted, wrap};
use backstitch_kv::survey::{Checkpoint, Extent, Layers, Survey};
use backstitch_models::{CostRange, Pos, Rollback, RollbackCost};
use std::ops::Range;

/// Columns of the widest picture. Wider ones would show more positions than the eye can follow.
const WIDEST: usize = 100;
/// Columns of the narrowest picture; narrower terminals break its lines.
const NARROWEST: usize = 30;
/// Columns before the drawing.
const LABEL: usize = 13;
/// Columns between the numbers of the ruler.
const TICK: usize = 10;
/// Forks that get a line of their own.
const MAX_FORKS: usize = 6;

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Meaning, which determines the colour.
    pub ink: Ink,
    /// Characters.
    pub text: String,
}

/// A line of a picture.
pub type Line = Vec<Span>;

/// Return the picture in lines of at most `columns` characters, and never more than 100.
pub fn draw(picture: &Picture, columns: usize) -> Vec<Line> {
    let width = columns.clamp(NARROWEST, WIDEST);
    let scale = Scale::new(picture.end(), width - LABEL);
    let rollback = |(pos, cost): &(Pos, Rollback)| wrapped(&captions::rollback(*pos, cost), width);
    let mut lines: Vec<Line> = picture.rollbacks.iter().flat_map(rollback).collect();
    let column = match scale.per_column {
        1 => "a column is a position".into(),
        n => format!("a column is {n} positions"),
    };
    lines.extend(heading(&captions::title(picture), &column, width));
    lines.push(Vec::new());
    lines.push(labelled("positions", vec![span(Ink::Faint, &scale.ruler())]));
    let rows = rows(picture, &scale);
    let legend = legend(&rows, width);
    lines.extend(rows.into_iter().map(|(label, glyphs)| labelled(&label, spans(&glyphs))));
    if let Some(n_more) = picture.forks.len().checked_sub(MAX_FORKS).filter(|n| *n > 0) {
        let text = format!("and {}", counted(n_more, "more fork"));
        lines.push(labelled("", vec![span(Ink::Faint, &text)]));
    }
    lines.push(Vec::new());
    lines.extend(legend);
    lines.push(Vec::new());
    lines.extend(wrapped(&captions::most_expensive(picture), width));
    for (what, n_bytes, explained) in captions::memory(picture) {
        let text = wrap(&format!("{:>10}  {explained}", bytes(n_bytes)), width - LABEL, 12);
        let labels = std::iter::once(what).chain(std::iter::repeat(""));
        lines.extend(labels.zip(&text).map(|(label, text)| labelled(label, vec![span(Ink::Plain, text)])));
    }
    lines
}

/// Return the title and the scale, on one line if they fit.
fn heading(title: &str, column: &str, width: usize) -> Vec<Line> {
    let (title, column) = (span(Ink::Heading, title), span(Ink::Faint, column));
    if title.text.chars().count() + 2 + column.text.chars().count() <= width {
        return vec![vec![title, span(Ink::Faint, "; "), column]];
    }
    let lines = wrap(&title.text, width, 2).into_iter().map(|line| vec![span(Ink::Heading, &line)]);
    lines.chain([vec![column]]).collect()
}

/// The scale of the drawing: the positions that each column stands for.
struct Scale {
    /// Positions of a column, at least 1.
    per_column: i32,
    /// Columns that have positions.
    n_columns: usize,
    /// Columns of the terminal beside the labels.
    width: usize,
    /// Last position that is drawn.
    end: i32,
}

impl Scale {
    /// Return the finest scale with which the positions up to `end` fit `width` columns.
    fn new(end: Pos, width: usize) -> Scale {
        let end = end.0.max(0);
        let per_column = end / width as i32 + 1;
        Scale { per_column, n_columns: (end / per_column) as usize + 1, width, end }
    }

    /// Return the positions of a column.
    fn positions(&self, column: usize) -> Range<i32> {
        let start = column as i32 * self.per_column;
        start..start.saturating_add(self.per_column)
    }

    /// Return the line of positions. A number that does not fit is left out, not cut.
    fn ruler(&self) -> String {
        let n_digits = self.end.max(1).ilog10() as usize + 1;
        let tick = if n_digits + 2 > TICK { 2 * TICK } else { TICK };
        let fits = |column: &usize| column + 1 + n_digits <= self.width;
        let number = |column| format!("{:<tick$}", format!("|{}", self.positions(column).start));
        (0..self.n_columns).step_by(tick).filter(fits).map(number).collect()
    }
}

/// A character of a row and its meaning.
type Glyph = (char, Ink);

/// The character of a column that has nothing to show.
const NOTHING: Glyph = (' ', Ink::Plain);

/// Return the rows under the ruler, each with its label. Rows that would be empty for every
/// sequence of the model are left out.
fn rows(picture: &Picture, scale: &Scale) -> Vec<(String, Vec<Glyph>)> {
    let survey = &picture.survey;
    let mut rows = Vec::new();
    for (layers, name) in with_cells(survey) {
        rows.push((name, blocks(survey, layers, scale)));
        if let Some(positions) = in_window(layers, survey.end) {
            rows.push(("  sees".into(), window(&positions, layers.margin, scale)));
        }
    }
    if picture.recurrent().is_some() {
        rows.push(("state".into(), state(survey, scale)));
    }
    if !survey.checkpoints.is_empty() {
        rows.push(("checkpoints".into(), each(scale, |range| checkpoint(&survey.checkpoints, range))));
    }
    if picture.recurrent().is_some() {
        rows.push(("journal".into(), each(scale, |range| journal(&survey.checkpoints, range))));
    }
    rows.push(("rollbacks".into(), rollback_costs(picture, scale)));
    for (number, fork) in picture.forks.iter().take(MAX_FORKS).enumerate() {
        let glyphs = match widest(fork) {
            Some(layers) => blocks(fork, layers, scale),
            None => state(fork, scale),
        };
        rows.push((format!("fork {}", number + 1), glyphs));
    }
    rows
}

/// Return a row in which `glyph` chooses the character of each column.
fn each(scale: &Scale, glyph: impl Fn(Range<i32>) -> Glyph) -> Vec<Glyph> {
    (0..scale.n_columns).map(|column| glyph(scale.positions(column))).collect()
}

/// Return true if the ranges have a position in common.
fn touches(range: &Range<i32>, other: &Range<Pos>) -> bool {
    !other.is_empty() && range.start < other.end.0 && other.start.0 < range.end
}

/// Return the row of the blocks of a sequence, in two characters by turns so that their ends show.
fn blocks(survey: &Survey, layers: &Layers, scale: &Scale) -> Vec<Glyph> {
    let is_retained =
        |range: &Range<i32>| survey.checkpoints.iter().any(|c| touches(range, &retained(layers, c)));
    let lies_in =
        |range: &Range<i32>, extent: &Extent| extent.first.0 < range.end && range.start <= extent.last.0;
    each(scale, |range| {
        let found = layers.extents.iter().enumerate().find(|(_, extent)| lies_in(&range, extent));
        match found {
            Some((number, extent)) if extent.sequences > 1 => (['▒', '░'][number % 2], Ink::Shared),
            Some((number, _)) => (['█', '▓'][number % 2], Ink::Own),
            None if is_retained(&range) => ('-', Ink::Scheduled),
            None if range.start < survey.end.0 => ('.', Ink::Faint),
            None => NOTHING,
        }
    })
}

/// Return the row of the window of the next token, and the margin before it.
fn window(positions: &Range<Pos>, margin: u32, scale: &Scale) -> Vec<Glyph> {
    let margin = Pos(positions.start.0.saturating_sub_unsigned(margin).max(0))..positions.start;
    each(scale, |range| {
        if touches(&range, positions) {
            ('━', Ink::Window)
        } else if touches(&range, &margin) {
            ('┄', Ink::Window)
        } else {
            NOTHING
        }
    })
}

/// Return the row of the recurrent state, which stands at the position of the next token.
fn state(survey: &Survey, scale: &Scale) -> Vec<Glyph> {
    let shared = survey.layers.iter().any(|layers| layers.state_users > 1);
    each(scale, |range| match range.contains(&survey.end.0) {
        true if survey.end > Pos::ZERO => ('◆', if shared { Ink::Shared } else { Ink::Own }),
        _ => NOTHING,
    })
}

/// Return the character of the checkpoint among these positions that stays longest.
fn checkpoint(checkpoints: &[Checkpoint], range: Range<i32>) -> Glyph {
    let here = |wanted| checkpoints.iter().any(|c| range.contains(&c.pos.0) && Role::of(c) == wanted);
    let glyphs = [
        (Role::Pinned, ('P', Ink::Pinned)),
        (Role::Scheduled, ('o', Ink::Scheduled)),
        (Role::Journal, ('j', Ink::Replayed)),
    ];
    glyphs.into_iter().find(|(role, _)| here(*role)).map_or(NOTHING, |(_, glyph)| glyph)
}

/// Return the character of positions in a journal.
fn journal(checkpoints: &[Checkpoint], range: Range<i32>) -> Glyph {
    let rows = |c: &Checkpoint| c.pos..Pos(c.pos.0.saturating_add_unsigned(c.n_rows));
    if checkpoints.iter().any(|c| touches(&range, &rows(c))) { ('=', Ink::Replayed) } else { NOTHING }
}

/// Bars from the lowest to the highest rollback cost.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Return the row of rollback costs: that of the most expensive position of each column.
fn rollback_costs(picture: &Picture, scale: &Scale) -> Vec<Glyph> {
    let (most, _) = picture.most_expensive();
    each(scale, |range| {
        let here = picture.costs.iter().filter(|costs| touches(&range, &costs.positions));
        let last = |costs: &CostRange| (range.end.min(costs.positions.end.0) - 1).min(scale.end);
        let most_expensive = here.map(|costs| (rank(costs.cost), n_reevaluated(costs, last(costs)))).max();
        match most_expensive {
            Some((2, n)) => {
                let bar = (u64::from(n) * BARS.len() as u64).div_ceil(u64::from(most.max(1))) as usize;
                (BARS[bar.clamp(1, BARS.len()) - 1], Ink::Evaluated)
            }
            Some((1, _)) => ('~', Ink::Replayed),
            Some(_) => ('*', Ink::Held),
            None => NOTHING,
        }
    })
}

/// Return the place of a kind of cost among all, the cheapest first.
fn rank(cost: RollbackCost) -> u32 {
    match cost {
        RollbackCost::Held => 0,
        RollbackCost::Replayed => 1,
        _ => 2,
    }
}

/// Characters and their meanings, in the order of the legend.
const SIGNS: [(&str, Ink, &str); 14] = [
    ("█▓", Ink::Own, "own blocks by turns"),
    ("▒░", Ink::Shared, "shared blocks by turns"),
    ("-", Ink::Scheduled, "retained by checkpoints only"),
    (".", Ink::Faint, "no longer retained"),
    ("━", Ink::Window, "window of the next token"),
    ("┄", Ink::Window, "margin"),
    ("◆", Ink::Own, "recurrent state"),
    ("◆", Ink::Shared, "recurrent state, shared"),
    ("P", Ink::Pinned, "pinned"),
    ("o", Ink::Scheduled, "scheduled checkpoint"),
    ("j", Ink::Replayed, "start of a journal"),
    ("=", Ink::Replayed, "in a journal"),
    ("*", Ink::Held, "held"),
    ("~", Ink::Replayed, "replayed"),
];

/// Return the lines of the legend: the characters that occur in the rows.
fn legend(rows: &[(String, Vec<Glyph>)], width: usize) -> Vec<Line> {
    let used = |signs: &str, ink| {
        rows.iter().flat_map(|(_, glyphs)| glyphs).any(|glyph| glyph.1 == ink && signs.contains(glyph.0))
    };
    let mut entries: Vec<_> = SIGNS.into_iter().filter(|(signs, ink, _)| used(signs, *ink)).collect();
    if used(&BARS.iter().collect::<String>(), Ink::Evaluated) {
        entries.push(("▁█", Ink::Evaluated, "few to many re-evaluated"));
    }
    let mut lines: Vec<Line> = Vec::new();
    let mut left = 0;
    for (signs, ink, meaning) in entries {
        let text = format!(" {meaning}   ");
        let n_columns = signs.chars().count() + text.chars().count();
        // The spaces after the last entry may stand out.
        if n_columns > left + 3 {
            // Narrow pictures have no room to indent it.
            let indent = if width < 60 { 2 } else { LABEL };
            lines.push(vec![span(Ink::Heading, &" ".repeat(indent))]);
            left = width - indent;
        }
        left = left.saturating_sub(n_columns);
        lines
            .last_mut()
            .into_iter()
            .for_each(|line| line.extend([span(ink, signs), span(Ink::Faint, &text)]));
    }
    lines
}

/// Return a piece of a line.
fn span(ink: Ink, text: &str) -> Span {
    Span { ink, text: text.into() }
}

/// Return text in as many lines as it needs.
fn wrapped(text: &str, width: usize) -> Vec<Line> {
    wrap(text, width, 2).iter().map(|line| vec![span(Ink::Plain, line)]).collect()
}

/// Return a line after a label, which is cut if it is too long.
fn labelled(label: &str, spans: Vec<Span>) -> Line {
    let label = format!("{:<LABEL$}", label.chars().take(LABEL - 1).collect::<String>());
    let mut line = vec![span(Ink::Heading, &label)];
    line.extend(spans);
    line
}

/// Join neighbouring characters with the same meaning.
fn spans(glyphs: &[Glyph]) -> Vec<Span> {
    let same = |a: &Glyph, b: &Glyph| a.1 == b.1;
    let span = |group: &[Glyph]| {
        let ink = group.first().map_or(Ink::Plain, |glyph| glyph.1);
        Span { ink, text: group.iter().map(|glyph| glyph.0).collect() }
    };
    glyphs.chunk_by(same).map(span).collect()
}
