//! A picture of characters.

use super::legend::Ink;
use super::{Picture, Role, costs, count, kept, n_reevaluated, role, seen, title, told, widest, with_cells};
use crate::output::{bytes, wrap};
use backstitch_kv::survey::{Checkpoint, Extent, Layers, Survey};
use backstitch_models::{CostRange, Pos, Rollback, RollbackCost};
use std::ops::Range;

/// Columns of the widest and the narrowest picture.
const WIDEST: usize = 100;
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
    /// What it stands for.
    pub ink: Ink,
    /// What is written.
    pub text: String,
}

/// A line of a picture.
pub type Line = Vec<Span>;

/// The picture in lines of at most `columns`, and 100.
pub fn draw(picture: &Picture, columns: usize) -> Vec<Line> {
    let width = columns.clamp(NARROWEST, WIDEST);
    let scale = Scale::new(picture.end(), width - LABEL);
    let told = |(pos, took): &(Pos, Rollback)| wrapped(&told(*pos, took), width);
    let mut lines: Vec<Line> = picture.rollbacks.iter().flat_map(told).collect();
    let column = match scale.per_column {
        1 => "a column is a position".into(),
        n => format!("a column is {n} positions"),
    };
    lines.extend(heading(&title(picture), &column, width));
    lines.push(Vec::new());
    lines.push(labelled("positions", vec![span(Ink::Faint, &scale.ruler())]));
    let rows = rows(picture, &scale);
    let legend = legend(&rows, width);
    lines.extend(rows.into_iter().map(|(label, glyphs)| labelled(&label, spans(&glyphs))));
    if let Some(n_more) = picture.forks.len().checked_sub(MAX_FORKS).filter(|n| *n > 0) {
        lines.push(labelled(
            "",
            vec![span(Ink::Faint, &format!("and {}", count(n_more as u64, "more fork")))],
        ));
    }
    lines.push(Vec::new());
    lines.extend(legend);
    lines.push(Vec::new());
    lines.extend(wrapped(&most_expensive(picture), width));
    for (what, n_bytes, explained) in costs(picture) {
        let text = wrap(&format!("{:>10}  {explained}", bytes(n_bytes)), width - LABEL, 12);
        let labels = std::iter::once(what).chain(std::iter::repeat(""));
        lines.extend(labels.zip(&text).map(|(label, text)| labelled(label, vec![span(Ink::Plain, text)])));
    }
    lines
}

/// What is drawn, and how long a column is; on two lines where that is too long for one.
fn heading(title: &str, column: &str, width: usize) -> Vec<Line> {
    let (title, column) = (span(Ink::Heading, title), span(Ink::Faint, column));
    if title.text.chars().count() + 2 + column.text.chars().count() <= width {
        return vec![vec![title, span(Ink::Faint, "; "), column]];
    }
    let lines = wrap(&title.text, width, 2).into_iter().map(|line| vec![span(Ink::Heading, &line)]);
    lines.chain([vec![column]]).collect()
}

/// Which positions a column stands for.
struct Scale {
    per_column: i32,
    n_columns: usize,
    /// Columns that there are.
    room: usize,
    end: i32,
}

impl Scale {
    fn new(end: Pos, room: usize) -> Scale {
        let n_columns = room as i32;
        let per_column = end.0.max(0) / n_columns + 1;
        Scale { per_column, n_columns: (end.0.max(0) / per_column) as usize + 1, room, end: end.0.max(0) }
    }

    fn positions(&self, column: usize) -> Range<i32> {
        let start = column as i32 * self.per_column;
        start..start.saturating_add(self.per_column)
    }

    fn ruler(&self) -> String {
        // A number is not cut: where it has no room, there is none.
        let n_digits = self.end.max(1).ilog10() as usize + 1;
        let tick = if n_digits + 2 > TICK { 2 * TICK } else { TICK };
        let fits = |column: &usize| column + 1 + n_digits <= self.room;
        let number = |column| format!("{:<tick$}", format!("|{}", self.positions(column).start));
        (0..self.n_columns).step_by(tick).filter(fits).map(number).collect()
    }
}

type Glyph = (char, Ink);

const NOTHING: Glyph = (' ', Ink::Plain);

/// What is drawn under the ruler: the name of each line and its characters.
fn rows(picture: &Picture, scale: &Scale) -> Vec<(String, Vec<Glyph>)> {
    let survey = &picture.survey;
    let mut rows = Vec::new();
    for (layers, name) in with_cells(survey) {
        rows.push((name, blocks(survey, layers, scale)));
        if let Some(seen) = seen(layers, survey.end) {
            rows.push(("  sees".into(), window(&seen, layers.margin, scale)));
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
    rows.push(("going back".into(), going_back(picture, scale)));
    for (number, fork) in picture.forks.iter().take(MAX_FORKS).enumerate() {
        let glyphs = match widest(fork) {
            Some(layers) => blocks(fork, layers, scale),
            None => state(fork, scale),
        };
        rows.push((format!("fork {}", number + 1), glyphs));
    }
    rows
}

fn each(scale: &Scale, glyph: impl Fn(Range<i32>) -> Glyph) -> Vec<Glyph> {
    (0..scale.n_columns).map(|column| glyph(scale.positions(column))).collect()
}

fn touches(range: &Range<i32>, other: &Range<Pos>) -> bool {
    !other.is_empty() && range.start < other.end.0 && other.start.0 < range.end
}

/// The blocks of a sequence, two characters by turns so that their ends show.
fn blocks(survey: &Survey, layers: &Layers, scale: &Scale) -> Vec<Glyph> {
    let is_kept = |range: &Range<i32>| survey.checkpoints.iter().any(|c| touches(range, &kept(layers, c)));
    let lies_in =
        |range: &Range<i32>, extent: &Extent| extent.first.0 < range.end && range.start <= extent.last.0;
    each(scale, |range| {
        let found = layers.extents.iter().enumerate().find(|(_, extent)| lies_in(&range, extent));
        match found {
            Some((number, extent)) if extent.sequences > 1 => (['▒', '░'][number % 2], Ink::Shared),
            Some((number, _)) => (['█', '▓'][number % 2], Ink::Own),
            None if is_kept(&range) => ('-', Ink::Scheduled),
            None if range.start < survey.end.0 => ('.', Ink::Faint),
            None => NOTHING,
        }
    })
}

fn window(seen: &Range<Pos>, margin: u32, scale: &Scale) -> Vec<Glyph> {
    let margin = Pos(seen.start.0.saturating_sub_unsigned(margin).max(0))..seen.start;
    each(scale, |range| {
        if touches(&range, seen) {
            ('━', Ink::Window)
        } else if touches(&range, &margin) {
            ('┄', Ink::Window)
        } else {
            NOTHING
        }
    })
}

/// The state stands where the next token will.
fn state(survey: &Survey, scale: &Scale) -> Vec<Glyph> {
    let shared = survey.layers.iter().any(|layers| layers.state_users > 1);
    each(scale, |range| match range.contains(&survey.end.0) {
        true if survey.end > Pos::ZERO => ('◆', if shared { Ink::Shared } else { Ink::Own }),
        _ => NOTHING,
    })
}

fn checkpoint(checkpoints: &[Checkpoint], range: Range<i32>) -> Glyph {
    let here = |wanted| checkpoints.iter().any(|c| range.contains(&c.pos.0) && role(c) == wanted);
    let glyphs = [
        (Role::Pinned, ('P', Ink::Pinned)),
        (Role::Scheduled, ('o', Ink::Scheduled)),
        (Role::Journal, ('j', Ink::Replayed)),
    ];
    glyphs.into_iter().find(|(role, _)| here(*role)).map_or(NOTHING, |(_, glyph)| glyph)
}

fn journal(checkpoints: &[Checkpoint], range: Range<i32>) -> Glyph {
    let rows = |c: &Checkpoint| c.pos..Pos(c.pos.0.saturating_add_unsigned(c.n_rows));
    if checkpoints.iter().any(|c| touches(&range, &rows(c))) { ('=', Ink::Replayed) } else { NOTHING }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What going back to the most expensive position of each column takes.
fn going_back(picture: &Picture, scale: &Scale) -> Vec<Glyph> {
    let (most, _) = picture.most_expensive();
    each(scale, |range| {
        let ways = picture.ways.iter().filter(|way| touches(&range, &way.positions));
        let last = |way: &CostRange| (range.end.min(way.positions.end.0) - 1).min(scale.end);
        let most_expensive = ways.map(|way| (rank(way.cost), n_reevaluated(way, last(way)))).max();
        match most_expensive {
            Some((2, cost)) => {
                let bar = (u64::from(cost) * BARS.len() as u64).div_ceil(u64::from(most.max(1))) as usize;
                (BARS[bar.clamp(1, BARS.len()) - 1], Ink::Evaluated)
            }
            Some((1, _)) => ('~', Ink::Replayed),
            Some(_) => ('*', Ink::Held),
            None => NOTHING,
        }
    })
}

fn rank(cost: RollbackCost) -> u32 {
    match cost {
        RollbackCost::Held => 0,
        RollbackCost::Replayed => 1,
        _ => 2,
    }
}

/// The most expensive rollback in words.
fn most_expensive(picture: &Picture) -> String {
    match picture.most_expensive() {
        (0, _) => "No rollback re-evaluates a token.".into(),
        (n, pos) => format!("The most expensive rollback, to {pos}, re-evaluates {}.", count(n, "token")),
    }
}

/// Signs and their meaning; only those that were used are shown.
const SIGNS: [(&str, Ink, &str); 14] = [
    ("█▓", Ink::Own, "own blocks by turns"),
    ("▒░", Ink::Shared, "shared blocks by turns"),
    ("-", Ink::Scheduled, "kept by checkpoints only"),
    (".", Ink::Faint, "no longer kept"),
    ("━", Ink::Window, "seen by the next token"),
    ("┄", Ink::Window, "margin"),
    ("◆", Ink::Own, "recurrent state"),
    ("◆", Ink::Shared, "recurrent state, shared"),
    ("P", Ink::Pinned, "pinned"),
    ("o", Ink::Scheduled, "scheduled checkpoint"),
    ("j", Ink::Replayed, "beginning of a journal"),
    ("=", Ink::Replayed, "in a journal"),
    ("*", Ink::Held, "held"),
    ("~", Ink::Replayed, "replayed"),
];

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
        // The spaces behind the last entry may stand out.
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

fn span(ink: Ink, text: &str) -> Span {
    Span { ink, text: text.into() }
}

fn wrapped(text: &str, width: usize) -> Vec<Line> {
    wrap(text, width, 2).iter().map(|line| vec![span(Ink::Plain, line)]).collect()
}

fn labelled(label: &str, spans: Vec<Span>) -> Line {
    let label = format!("{:<LABEL$}", clip(label, LABEL - 1));
    let mut line = vec![span(Ink::Heading, &label)];
    line.extend(spans);
    line
}

fn clip(text: &str, n_columns: usize) -> String {
    text.chars().take(n_columns).collect()
}

/// Characters with the same ink together.
fn spans(glyphs: &[Glyph]) -> Vec<Span> {
    let same = |a: &Glyph, b: &Glyph| a.1 == b.1;
    let span = |run: &[Glyph]| {
        let ink = run.first().map_or(Ink::Plain, |glyph| glyph.1);
        Span { ink, text: run.iter().map(|glyph| glyph.0).collect() }
    };
    glyphs.chunk_by(same).map(span).collect()
}
