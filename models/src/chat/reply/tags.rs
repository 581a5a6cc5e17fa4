//! Parameters between tags: `<parameter=a>1</parameter>`.
//!
//! Values are written without quotes, so the schema of the tool says which ones are strings.

use alloc::string::{String, ToString};

use super::cursor::{Cursor, Match, Step};
use super::scanner::write_text;
use super::syntax::Tags;
use super::tools::{Kind, Tool, write_value};

/// The longest name of a parameter, in bytes.
const MAX_NAME: usize = 256;
/// The longest attributes of a parameter, in bytes.
const MAX_ATTRIBUTES: usize = 128;
/// The text that begins a value in which tags mean nothing.
const CDATA: &str = "<![CDATA[";
/// The text that ends such a value.
const CDATA_END: &str = "]]>";

/// The reader of the parameters of a call.
#[derive(Debug)]
pub(super) struct TagReader {
    /// The position.
    place: Place,
    /// The offset at which a name, attributes or a value begins.
    start: usize,
    /// The offset up to which there is no end of it.
    searched: usize,
    /// The name of the parameter.
    name: String,
    /// The kind that attributes give to the value.
    kind: Option<Kind>,
    /// The arguments as JSON text, without the closing brace.
    arguments: String,
}

/// A position between or in parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a parameter or the end.
    Between,
    /// In a name.
    Name,
    /// Between name and value.
    Attributes,
    /// At the beginning of a value.
    BeforeValue,
    /// In a value.
    Value,
    /// In a value in which tags mean nothing.
    Cdata,
    /// Behind such a value.
    AfterCdata,
}

impl TagReader {
    /// Make a reader that begins before the first parameter.
    pub(super) fn new() -> Self {
        Self {
            place: Place::Between,
            start: 0,
            searched: 0,
            name: String::new(),
            kind: None,
            arguments: String::from("{"),
        }
    }

    /// Return the arguments as JSON text, once all were read.
    pub(super) fn arguments(&mut self) -> String {
        let mut arguments = core::mem::take(&mut self.arguments);
        arguments.push('}');
        arguments
    }

    /// Read as far as there is text.
    pub(super) fn advance(&mut self, cursor: &mut Cursor<'_>, tags: &Tags, tool: &Tool) -> Step {
        loop {
            let step = match self.place {
                Place::Between => {
                    cursor.skip_space();
                    match cursor.take(tags.begin) {
                        Match::Missing => return Step::Done,
                        Match::Partial => return Step::More,
                        Match::Found => self.go(Place::Name, cursor.at),
                    }
                }
                Place::Name => self.name(cursor, tags),
                Place::Attributes => self.attributes(cursor, tags),
                Place::BeforeValue => {
                    let start = cursor.at;
                    if tags.own_lines {
                        cursor.skip_space();
                    }
                    match cursor.take(CDATA) {
                        Match::Partial => {
                            cursor.at = start;
                            return Step::More;
                        }
                        Match::Found => self.go(Place::Cdata, cursor.at),
                        Match::Missing => self.go(Place::Value, start),
                    }
                }
                Place::Value => self.value(cursor, tags, tool),
                Place::Cdata => self.cdata(cursor, tool),
                Place::AfterCdata => {
                    cursor.skip_space();
                    match cursor.take(tags.end) {
                        Match::Found => self.go(Place::Between, cursor.at),
                        Match::Partial => Step::More,
                        Match::Missing => Step::Failed,
                    }
                }
            };
            if step != Step::Done {
                return step;
            }
        }
    }

    /// Set the position to `at`.
    fn go(&mut self, place: Place, at: usize) -> Step {
        (self.place, self.start, self.searched) = (place, at, at);
        Step::Done
    }

    /// Look for `end`, pass it, and return the text before it.
    fn until<'t>(&mut self, cursor: &mut Cursor<'t>, end: &str) -> Option<&'t str> {
        let found = cursor.text.get(self.searched..).unwrap_or("").find(end).map(|i| self.searched + i);
        match found {
            Some(found) => {
                cursor.at = found + end.len();
                cursor.text.get(self.start..found)
            }
            None => {
                // The end may have begun in the last bytes.
                let mut searched = cursor.text.len().saturating_sub(end.len()).max(self.searched);
                while !cursor.text.is_char_boundary(searched) {
                    searched -= 1;
                }
                self.searched = searched;
                cursor.at = cursor.text.len();
                None
            }
        }
    }

    /// Fail at the beginning of a name or of attributes, however much of it has come.
    fn fail(&self, cursor: &mut Cursor<'_>) -> Step {
        cursor.at = self.start;
        Step::Failed
    }

    /// Read a name.
    fn name(&mut self, cursor: &mut Cursor<'_>, tags: &Tags) -> Step {
        let name = self.until(cursor, tags.after_name);
        let len = name.map_or_else(|| self.len_before(tags.after_name, cursor), str::len);
        match name {
            _ if len > MAX_NAME => self.fail(cursor),
            None => cursor.more(),
            Some(name) if name.contains(['<', '\n']) => self.fail(cursor),
            Some(name) => {
                self.name = name.trim().to_string();
                self.kind = None;
                let next = if tags.before_value.is_empty() { Place::BeforeValue } else { Place::Attributes };
                self.go(next, cursor.at)
            }
        }
    }

    /// Return the least length of a text whose end may have begun.
    fn len_before(&self, end: &str, cursor: &Cursor<'_>) -> usize {
        (cursor.at - self.start).saturating_sub(end.len().saturating_sub(1))
    }

    /// Read the text between name and value.
    fn attributes(&mut self, cursor: &mut Cursor<'_>, tags: &Tags) -> Step {
        let attributes = self.until(cursor, tags.before_value);
        let len = attributes.map_or_else(|| self.len_before(tags.before_value, cursor), str::len);
        match attributes {
            _ if len > MAX_ATTRIBUTES => self.fail(cursor),
            None => cursor.more(),
            Some(attributes) => {
                self.kind = match attributes.trim() {
                    "string=\"true\"" => Some(Kind::Text),
                    "string=\"false\"" => Some(Kind::Json),
                    _ => None,
                };
                self.go(Place::BeforeValue, cursor.at)
            }
        }
    }

    /// Read a value.
    fn value(&mut self, cursor: &mut Cursor<'_>, tags: &Tags, tool: &Tool) -> Step {
        let Some(mut value) = self.until(cursor, tags.end) else {
            return cursor.more();
        };
        if tags.own_lines {
            value = value.strip_prefix('\n').unwrap_or(value);
            value = value.strip_suffix('\n').unwrap_or(value);
        }
        self.add(value, tool);
        self.go(Place::Between, cursor.at)
    }

    /// Read a value in which tags mean nothing.
    fn cdata(&mut self, cursor: &mut Cursor<'_>, tool: &Tool) -> Step {
        let Some(value) = self.until(cursor, CDATA_END) else {
            return cursor.more();
        };
        self.add(value, tool);
        self.go(Place::AfterCdata, cursor.at)
    }

    /// Add the parameter to the arguments.
    fn add(&mut self, value: &str, tool: &Tool) {
        if self.arguments.len() > 1 {
            self.arguments.push(',');
        }
        write_text(&self.name, &mut self.arguments);
        self.arguments.push(':');
        let kind = self.kind.unwrap_or_else(|| Kind::of(tool.parameter(&self.name)));
        write_value(value, kind, &mut self.arguments);
    }
}
