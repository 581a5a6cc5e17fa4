//! Arguments as nested elements: `<city>Oslo</city>`, with a mark before every tag.
//!
//! The name of a parameter is the name of its element. Objects and lists are written as elements
//! within: a key's name for each value of an object, `item` for each value of a list. The schema
//! says which texts are strings.

use alloc::format;
use alloc::string::String;

use super::cursor::{Cursor, Step};
use super::scanner::write_text;
use super::syntax::Elements;
use super::tools::{Kind, Tool, write_value};
use crate::chat::Value;

/// The deepest nesting of elements.
const MAX_DEPTH: u32 = 32;

/// The search for the end of the arguments.
#[derive(Debug)]
pub(super) struct ElementReader {
    /// The offset of the first element.
    start: usize,
    /// The offset up to which there is no end.
    searched: usize,
}

impl ElementReader {
    /// Make a reader of arguments that begin at `start`.
    pub(super) fn new(start: usize) -> Self {
        Self { start, searched: start }
    }

    /// Go before the end of the arguments, or as far as there is text.
    pub(super) fn advance(&mut self, cursor: &mut Cursor<'_>, elements: &Elements) -> Step {
        let found = cursor.text.get(self.searched..).unwrap_or("").find(elements.end);
        if let Some(i) = found {
            cursor.at = self.searched + i;
            return Step::Done;
        }
        // The end may have begun in the last bytes.
        let mut searched = cursor.text.len().saturating_sub(elements.end.len()).max(self.searched);
        while !cursor.text.is_char_boundary(searched) {
            searched -= 1;
        }
        (self.searched, cursor.at) = (searched, cursor.text.len());
        cursor.more()
    }

    /// Convert the arguments before the position to JSON text.
    pub(super) fn arguments(&self, cursor: &Cursor<'_>, elements: &Elements, tool: &Tool) -> Option<String> {
        let text = cursor.text.get(self.start..cursor.at)?;
        let mut out = String::new();
        write_elements(text, elements, Some(&tool.parameters), &mut out, 0)?;
        Some(if out.is_empty() { "{}".into() } else { out })
    }
}

/// Split the first element off `text`: its name, its content, and the text behind it.
fn split<'t>(text: &'t str, elements: &Elements) -> Option<(&'t str, &'t str, &'t str)> {
    let (name, rest) = text.strip_prefix(elements.namespace)?.strip_prefix('<')?.split_once('>')?;
    if name.is_empty() || name.starts_with('/') {
        return None;
    }
    let open = format!("{}<{name}>", elements.namespace);
    let close = format!("{}</{name}>", elements.namespace);
    // An element may contain others of its name.
    let (mut depth, mut from) = (0_u32, 0);
    loop {
        let end = from + rest.get(from..)?.find(&close)?;
        depth += u32::try_from(rest.get(from..end)?.matches(&open).count()).ok()?;
        from = end + close.len();
        match depth.checked_sub(1) {
            None => return Some((name, rest.get(..end)?, rest.get(from..)?)),
            Some(less) => depth = less,
        }
    }
}

/// Convert elements to a JSON object, or to a list if they are items.
fn write_elements(
    text: &str,
    elements: &Elements,
    schema: Option<&Value>,
    out: &mut String,
    depth: u32,
) -> Option<()> {
    let mut rest = text.trim();
    let mut is_list = None;
    while !rest.is_empty() && depth < MAX_DEPTH {
        let (name, content, behind) = split(rest, elements)?;
        let is_item = depth > 0 && name == "item" && property(schema, name, 0).is_none();
        match is_list {
            None => out.push(if is_item { '[' } else { '{' }),
            Some(before) if before != is_item => return None,
            Some(_) => out.push(','),
        }
        is_list = Some(is_item);
        let inner = if is_item {
            item(schema, 0)
        } else {
            write_text(name, out);
            out.push(':');
            property(schema, name, 0)
        };
        let is_nested = content.trim_start().starts_with(elements.namespace);
        if is_nested && Kind::of(inner) != Kind::Text {
            write_elements(content, elements, inner, out, depth + 1)?;
        } else {
            write_value(content, Kind::of(inner), out);
        }
        rest = behind.trim();
    }
    if let Some(is_list) = is_list {
        out.push(if is_list { ']' } else { '}' });
    }
    rest.is_empty().then_some(())
}

/// Return the schema of a property, of any alternative that has it.
fn property<'s>(schema: Option<&'s Value>, name: &str, depth: u32) -> Option<&'s Value> {
    let schema = schema?;
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| alternatives(schema, depth).find_map(|choice| property(Some(choice), name, depth + 1)))
}

/// Return the schema of the items of a list, of any alternative that has items.
fn item(schema: Option<&Value>, depth: u32) -> Option<&Value> {
    let schema = schema?;
    let own = schema.get("items");
    own.or_else(|| alternatives(schema, depth).find_map(|choice| item(Some(choice), depth + 1)))
}

/// Return the alternatives of a schema within `depth` others.
fn alternatives(schema: &Value, depth: u32) -> impl Iterator<Item = &Value> {
    let list = |key: &str| schema.get(key).and_then(Value::as_list).unwrap_or(&[]).iter();
    list("anyOf").chain(list("oneOf")).filter(move |_| depth < 8)
}
