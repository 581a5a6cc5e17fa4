//! Shapes and text on a page. The page has a row that moves down; everything is placed relative to
//! its top, and text is escaped on the way in.

use super::super::legend::Ink;
use std::fmt::Write;

/// Left end of drawings, after their labels.
pub const LEFT: f64 = 130.0;
/// Width of drawings.
pub const WIDE: f64 = 790.0;
/// Width of the page.
const WIDTH: f64 = 960.0;
/// Height of the title.
const TOP: f64 = 44.0;

/// The scale of positions across the page.
#[derive(Clone, Copy)]
pub struct Across {
    /// The last position, at least 1.
    pub total: i32,
}

impl Across {
    /// Return the place of a position.
    pub fn x(self, pos: i32) -> f64 {
        LEFT + WIDE * f64::from(pos) / f64::from(self.total.max(1))
    }

    /// Return start and width of the positions `start..end`, never too thin to be visible.
    pub fn span(self, start: i32, end: i32) -> (f64, f64) {
        let width = self.x(end) - self.x(start);
        (self.x(start), if width > 3.0 { width - 1.0 } else { width.max(0.5) })
    }
}

/// Return a round number that divides `total` into at most `n` steps.
pub fn step(total: i32, n: i32) -> i32 {
    let least = total / n.max(1) + 1;
    let tenth = 10_i32.pow(least.max(1).ilog10());
    let round =
        [1, 2, 5, 10].into_iter().filter_map(|factor| tenth.checked_mul(factor)).find(|&step| step >= least);
    round.unwrap_or(least)
}

/// A page that is written from top to bottom.
pub struct Sheet {
    body: String,
    y: f64,
}

impl Sheet {
    /// Return a sheet without anything on it.
    pub fn new() -> Self {
        Self { body: String::new(), y: TOP }
    }

    /// Move the row down the page.
    pub fn down(&mut self, by: f64) {
        self.y += by;
    }

    /// Add an element.
    fn put(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(args);
        self.body.push('\n');
    }

    /// Add a shape, an element `tag`, with a title.
    fn shape(&mut self, tag: &str, shape: std::fmt::Arguments<'_>, name: &str) {
        self.put(format_args!("<{tag} {shape}><title>{}</title></{tag}>", escaped(name)));
    }

    /// Add text beside `x`; `anchor` says if its start, middle or end lies there.
    pub fn text(&mut self, x: f64, anchor: &str, ink: Ink, text: &str) {
        self.text_at((x, 0.0), anchor, ink, text);
    }

    /// Add text beside `x` and `dy` below the top of the row.
    pub fn text_at(&mut self, (x, dy): (f64, f64), anchor: &str, ink: Ink, text: &str) {
        let (y, colour, text) = (self.y + dy + 12.0, ink.colour(), escaped(text));
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{colour}">{text}</text>"#
        ));
    }

    /// Add the label of the row.
    pub fn label(&mut self, text: &str) {
        self.text(LEFT - 12.0, "end", Ink::Heading, text);
    }

    /// Add a line of text at the left edge.
    pub fn note(&mut self, text: &str) {
        self.text(20.0, "start", Ink::Plain, text);
    }

    /// Add a mark under a number of the ruler.
    pub fn tick(&mut self, x: f64) {
        let (top, end, colour) = (self.y + 15.0, self.y + 20.0, Ink::Faint.colour());
        self.put(format_args!(r#"<path d="M{x:.1} {top:.1}V{end:.1}" stroke="{colour}"/>"#));
    }

    /// Add a box: its place and width, its distance from the top of the row and height.
    pub fn box_at(&mut self, (x, w): (f64, f64), (dy, h): (f64, f64), ink: Ink, opacity: f64, name: &str) {
        let (y, colour) = (self.y + dy, ink.colour());
        let shape = format_args!(
            r#"x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" fill="{colour}" fill-opacity="{opacity}""#
        );
        self.shape("rect", shape, name);
    }

    /// Add a circle in the middle of the row.
    pub fn circle(&mut self, x: f64, ink: Ink, name: &str) {
        let (y, colour) = (self.y + 9.0, ink.colour());
        self.shape("circle", format_args!(r#"cx="{x:.1}" cy="{y:.1}" r="5" fill="{colour}""#), name);
    }

    /// Add a diamond in the middle of the row.
    pub fn diamond(&mut self, x: f64, ink: Ink, name: &str) {
        let (y, colour) = (self.y + 2.0, ink.colour());
        self.shape("path", format_args!(r#"d="M{x:.1} {y:.1}l7 7l-7 7l-7 -7z" fill="{colour}""#), name);
    }

    /// Add a shape that stands on a line `base` below the top of the row and rises or falls from
    /// one height to another.
    pub fn slope(&mut self, (x, w): (f64, f64), (from, to): (f64, f64), base: f64, ink: Ink, name: &str) {
        let (base, end, colour) = (self.y + base, x + w, ink.colour());
        let (from, to) = (base - from, base - to);
        let shape = format_args!(
            r#"d="M{x:.1} {base:.1}V{from:.1}L{end:.1} {to:.1}V{base:.1}z" fill="{colour}" fill-opacity="0.9""#
        );
        self.shape("path", shape, name);
    }

    /// Add a line through points: their places, and heights over a line `base` below the top of the
    /// row.
    pub fn line(&mut self, points: &[(f64, f64)], base: f64, ink: Ink, is_dashed: bool) {
        let base = self.y + base;
        let points: Vec<String> = points.iter().map(|(x, up)| format!("{x:.1},{:.1}", base - up)).collect();
        let (points, colour) = (points.join(" "), ink.colour());
        let dashes = if is_dashed { r#" stroke-dasharray="5 4""# } else { "" };
        self.put(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>"#
        ));
    }

    /// Return the file, with a title and the element `mark`.
    pub fn finish(self, title: &str, mark: &str) -> String {
        let height = self.y + 16.0;
        let body = &self.body;
        let title = escaped(title);
        let colour = Ink::Heading.colour();
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0}" viewBox="0 0 {WIDTH} {height:.0}" font-family="system-ui, sans-serif" font-size="13" role="img">
<title>{title}</title>
{mark}
<text x="20" y="26" font-size="15" font-weight="bold" fill="{colour}">{title}</text>
{body}</svg>
"#
        )
    }
}

/// Escape text for XML; characters that XML cannot have at all are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
