//! Values as nested elements: `<item>1</item><item>2</item>`, with a mark before every tag.
//!
//! Objects and lists are written as elements within the element of a parameter: a key's name for
//! each value of an object, `item` for each value of a list. The schema says which texts are
//! strings.

use alloc::format;
use alloc::string::String;

use super::raw;
use super::scanner::write_text;
use super::schema::{self, Types};
use super::tools::{item, property};
use crate::chat::Value;

/// The deepest nesting of elements.
const MAX_DEPTH: u32 = 32;

/// Convert the elements of a value to JSON text.
pub(super) fn read(text: &str, namespace: &str, schema: Option<&Value>) -> Option<String> {
    let mut out = String::new();
    write_elements(text, namespace, schema, &mut out, 0)?;
    Some(out)
}

/// Split the first element off `text`: its name, its content, and the text behind it.
fn split<'t>(text: &'t str, namespace: &str) -> Option<(&'t str, &'t str, &'t str)> {
    let (name, rest) = text.strip_prefix(namespace)?.strip_prefix('<')?.split_once('>')?;
    if name.is_empty() || name.starts_with('/') {
        return None;
    }
    let open = format!("{}<{name}>", namespace);
    let close = format!("{}</{name}>", namespace);
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
    namespace: &str,
    schema: Option<&Value>,
    out: &mut String,
    depth: u32,
) -> Option<()> {
    let mut rest = text.trim();
    let mut is_list = None;
    while !rest.is_empty() && depth < MAX_DEPTH {
        let (name, content, behind) = split(rest, namespace)?;
        let is_item = name == "item" && property(schema, name).is_none();
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
            property(schema, name)
        };
        let types = schema::types(inner);
        let is_nested = content.trim_start().starts_with(namespace);
        if is_nested && types.meet(Types::LIST | Types::MAP) {
            write_elements(content, namespace, inner, out, depth + 1)?;
        } else if !raw::read(content, types, out) {
            return None;
        }
        rest = behind.trim();
    }
    if let Some(is_list) = is_list {
        out.push(if is_list { ']' } else { '}' });
    }
    rest.is_empty().then_some(())
}
