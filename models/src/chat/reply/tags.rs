//! Parameters between tags: `<parameter=a>1</parameter>`.
//!
//! Strings are written without quotes, so the schema of the tool says which values are strings
//! (`raw.rs`). A name of the schema is read by the letter, whatever characters it has. A list or
//! object is read as JSON, so that its strings may contain the tag behind it.

use alloc::string::{String, ToString};

use super::cursor::{Cursor, Match, Step};
use super::entries::Entries;
use super::scanner::Scanner;
use super::schema::Types;
use super::syntax::Tags;
use super::tools::{MAX_NAME, Tool};
use super::{elements, raw};

/// The longest attributes of a parameter, in bytes.
const MAX_ATTRIBUTES: usize = 128;
/// The text that begins a value in which tags mean nothing.
pub(super) const CDATA: &str = "<![CDATA[";
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
    /// The text behind the value.
    end: String,
    /// The types that the value may have.
    types: Types,
    /// The value as JSON as far as it was read, and its reader.
    json: (String, Scanner),
    /// The number of tags of the parameter's name within the value that are not closed yet.
    n_inner: usize,
    /// The names and the JSON texts of the parameters.
    entries: Entries,
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
    /// In a value as JSON.
    Json,
    /// Behind a value as JSON.
    AfterJson,
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
            end: String::new(),
            types: Types::ALL,
            json: (String::new(), Scanner::new()),
            n_inner: 0,
            entries: Entries::default(),
        }
    }

    /// Return the arguments as JSON text, once all were read.
    pub(super) fn arguments(&self) -> String {
        let mut out = String::new();
        self.entries.write(&mut out);
        out
    }

    /// Read as far as there is text.
    pub(super) fn advance(&mut self, cursor: &mut Cursor<'_>, tags: &Tags, tool: &Tool) -> Step {
        loop {
            let step = match self.place {
                Place::Between => match self.between(cursor, tags) {
                    Match::Missing => return Step::Done,
                    Match::Partial => return Step::More,
                    Match::Found => self.go(Place::Name, cursor.at),
                },
                Place::Name => self.name(cursor, tags, tool),
                Place::Attributes => self.attributes(cursor, tags),
                Place::BeforeValue => self.before_value(cursor, tags),
                Place::Json => match self.json.1.advance(cursor, &mut self.json.0) {
                    Step::Done => self.go_on(Place::AfterJson),
                    Step::More => Step::More,
                    // The text ended within the value.
                    Step::Failed if cursor.rest().is_empty() => Step::Failed,
                    // A string may begin as JSON does.
                    Step::Failed => self.back(cursor),
                },
                Place::AfterJson => self.after_json(cursor, tags),
                Place::Value => self.value(cursor, tags, tool),
                Place::Cdata => self.cdata(cursor),
                Place::AfterCdata => {
                    cursor.skip_space();
                    match cursor.take(&self.end) {
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

    /// Go on at a place without another beginning.
    fn go_on(&mut self, place: Place) -> Step {
        self.place = place;
        Step::Done
    }

    /// Go back to the beginning of a value that is no JSON.
    fn back(&mut self, cursor: &mut Cursor<'_>) -> Step {
        cursor.at = self.start;
        self.go(Place::Value, self.start)
    }

    /// Look for the tag of another parameter. Where tags have the names of parameters, a slash
    /// tells that of the end.
    fn between(&self, cursor: &mut Cursor<'_>, tags: &Tags) -> Match {
        cursor.skip_space();
        let start = cursor.at;
        let found = cursor.take(tags.begin);
        if found != Match::Found || tags.namespace.is_empty() {
            return found;
        }
        let found = match cursor.peek() {
            Some('/') => Match::Missing,
            None if cursor.ended => Match::Missing,
            None => Match::Partial,
            Some(_) => return Match::Found,
        };
        cursor.at = start;
        found
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
                let searched = cursor.text.len().saturating_sub(end.len()).max(self.searched);
                self.searched = cursor.text.floor_char_boundary(searched);
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

    /// Read a name: the longest one of the schema that stands here, or any other.
    fn name(&mut self, cursor: &mut Cursor<'_>, tags: &Tags, tool: &Tool) -> Step {
        let at = self.start;
        let here = Cursor { at, ..*cursor };
        match known_name(&here, tool, tags) {
            Some((_, Match::Partial)) => {
                cursor.at = cursor.text.len();
                return Step::More;
            }
            Some((name, _)) => {
                self.name = name.to_string();
                cursor.at = at + tags.written_name(name).len() + tags.after_name.len();
            }
            None => match self.any_name(cursor, tags) {
                Step::Done => {}
                step => return step,
            },
        }
        self.end = tags.end_of(&self.name);
        self.types = tool.types(&self.name);
        let next = if tags.before_value.is_empty() { Place::BeforeValue } else { Place::Attributes };
        self.go(next, cursor.at)
    }

    /// Read a name that the schema does not have.
    fn any_name(&mut self, cursor: &mut Cursor<'_>, tags: &Tags) -> Step {
        let name = self.until(cursor, tags.after_name);
        let len = name.map_or_else(|| self.len_before(tags.after_name, cursor), str::len);
        match name {
            _ if len > MAX_NAME => self.fail(cursor),
            None => cursor.more(),
            Some(name) if name.contains(['<', '\n']) => self.fail(cursor),
            Some(name) => {
                self.name = tags.read_name(name.trim());
                Step::Done
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
        match attributes.map(str::trim) {
            _ if len > MAX_ATTRIBUTES => self.fail(cursor),
            None => cursor.more(),
            Some(attributes) => {
                if let Some(types) = tags.attribute.types(attributes) {
                    self.types = types;
                }
                self.go(Place::BeforeValue, cursor.at)
            }
        }
    }

    /// See by the first characters of a value how it is written.
    fn before_value(&mut self, cursor: &mut Cursor<'_>, tags: &Tags) -> Step {
        let start = cursor.at;
        let mut ahead = Cursor { ..*cursor };
        if tags.own_lines || self.types.meet(Types::LIST | Types::MAP) {
            ahead.skip_space();
        }
        if tags.has_cdata {
            match ahead.look(CDATA) {
                Match::Partial => return Step::More,
                Match::Found => {
                    cursor.at = ahead.at + CDATA.len();
                    return self.go(Place::Cdata, cursor.at);
                }
                Match::Missing => {}
            }
        }
        self.n_inner = 0;
        match ahead.peek() {
            None if !cursor.ended => Step::More,
            Some('[') if self.types.meet(Types::LIST) => self.begin_json(start, ahead.at, cursor),
            Some('{') if self.types.meet(Types::MAP) => self.begin_json(start, ahead.at, cursor),
            _ => self.go(Place::Value, start),
        }
    }

    /// Begin a value as JSON at `at`, which goes on from `start` if it turns out to be none.
    fn begin_json(&mut self, start: usize, at: usize, cursor: &mut Cursor<'_>) -> Step {
        self.json = (String::new(), Scanner::new());
        cursor.at = at;
        self.go(Place::Json, start)
    }

    /// Read the tag behind a value as JSON.
    fn after_json(&mut self, cursor: &mut Cursor<'_>, tags: &Tags) -> Step {
        cursor.skip_space();
        let mut found = cursor.take(tags.end);
        if found == Match::Found && !tags.namespace.is_empty() {
            // The tag of the value closes here, whatever name it has.
            let tag = cursor.rest();
            match tag.find('>') {
                Some(length) => cursor.at += length + 1,
                None if cursor.ended => found = Match::Missing,
                None => {
                    cursor.at -= tags.end.len();
                    found = Match::Partial;
                }
            }
        }
        match found {
            Match::Found => {
                let json = core::mem::take(&mut self.json.0);
                self.add(json);
                self.go(Place::Between, cursor.at)
            }
            Match::Partial => Step::More,
            Match::Missing if cursor.ended && tags.end.starts_with(cursor.rest()) => Step::Failed,
            Match::Missing => self.back(cursor),
        }
    }

    /// Read a value. One that lacks its end goes up to the next parameter.
    fn value(&mut self, cursor: &mut Cursor<'_>, tags: &Tags, tool: &Tool) -> Step {
        let end = core::mem::take(&mut self.end);
        let value = self.closing(cursor, tags, &end);
        self.end = end;
        let Some(mut value) = value else {
            return cursor.more();
        };
        if tags.namespace.is_empty()
            && let Some(next) = next_parameter(value, tags, tool)
        {
            value = value.get(..next).unwrap_or("");
            cursor.at = self.start + next;
            value = value.trim_end();
        }
        if tags.own_lines {
            value = value.strip_prefix('\n').unwrap_or(value);
            value = value.strip_suffix('\n').unwrap_or(value);
        }
        let is_nested = !tags.namespace.is_empty()
            && self.types.meet(Types::LIST | Types::MAP)
            && value.trim_start().starts_with(tags.namespace);
        if is_nested {
            let Some(json) = elements::read(value, tags.namespace, tool.value_schema(&self.name)) else {
                return Step::Failed;
            };
            self.add(json);
        } else {
            self.add_text(value);
        }
        self.go(Place::Between, cursor.at)
    }

    /// Look for the end of a value. Where values may be nested tags, it is the tag that closes one
    /// more than were opened.
    fn closing<'t>(&mut self, cursor: &mut Cursor<'t>, tags: &Tags, end: &str) -> Option<&'t str> {
        if tags.namespace.is_empty() {
            return self.until(cursor, end);
        }
        loop {
            let before = self.until(cursor, tags.begin)?;
            let tag = cursor.rest();
            let Some(length) = tag.find('>') else {
                self.searched = cursor.at - tags.begin.len();
                cursor.at = cursor.text.len();
                return None;
            };
            let is_end = tag.starts_with('/');
            if is_end && self.n_inner == 0 {
                cursor.at += length + 1;
                return Some(before);
            }
            self.n_inner = if is_end { self.n_inner - 1 } else { self.n_inner + 1 };
            self.searched = cursor.at;
        }
    }

    /// Read a value in which tags mean nothing.
    fn cdata(&mut self, cursor: &mut Cursor<'_>) -> Step {
        let Some(value) = self.until(cursor, CDATA_END) else {
            return cursor.more();
        };
        self.add_text(value);
        self.go(Place::AfterCdata, cursor.at)
    }

    /// Add a parameter with the value that a text means.
    fn add_text(&mut self, text: &str) {
        let mut json = String::new();
        if raw::read(text, self.types, &mut json) {
            self.add(json);
        }
    }

    /// Add a parameter. Of several with one name the last counts.
    fn add(&mut self, json: String) {
        self.entries.set(&self.name, json);
    }
}

/// Return the longest name of a parameter of `tool` that stands in a tag at the cursor, or one that
/// may stand there once more text comes.
fn known_name<'a>(cursor: &Cursor<'_>, tool: &'a Tool, tags: &Tags) -> Option<(&'a str, Match)> {
    let mut found: Option<(&str, Match)> = None;
    for name in tool.names().filter(|name| name.len() <= MAX_NAME) {
        let written = tags.written_name(name);
        let whole = match cursor.look(&written) {
            Match::Found => Cursor { at: cursor.at + written.len(), ..*cursor }.look(tags.after_name),
            other => other,
        };
        let is_better = match whole {
            Match::Missing => false,
            Match::Partial => return Some((name, whole)),
            Match::Found => found.is_none_or(|(known, _)| known.len() < name.len()),
        };
        if is_better {
            found = Some((name, whole));
        }
    }
    found
}

/// Return the offset at which the tag of a parameter of `tool` begins in a value.
fn next_parameter(value: &str, tags: &Tags, tool: &Tool) -> Option<usize> {
    value.match_indices(tags.begin).map(|(at, _)| at).find(|at| {
        let cursor = Cursor { text: value, at: at + tags.begin.len(), ended: true };
        known_name(&cursor, tool, tags).is_some()
    })
}
