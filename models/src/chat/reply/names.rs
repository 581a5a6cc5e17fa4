//! Names of tools and parameters that a format can write.

use alloc::string::{String, ToString};

use super::cursor::is_name;
use super::literal;
use super::syntax::{Attribute, CallSyntax, Part};
use super::tools::{MAX_NAME, Tools};
use crate::chat::Value;

/// Return the first name of a described tool that a format cannot write: that of a parameter, or
/// `None` within for that of the tool itself.
pub(super) fn unwritable(syntax: &CallSyntax, described: &Value) -> Option<Option<String>> {
    let tools = Tools::new(core::slice::from_ref(described));
    let Some(tool) = tools.iter().next() else { return Some(None) };
    if !can_name_tool(syntax, &tool.name) {
        return Some(None);
    }
    let mut parameters = tool.parameters().map(|(name, _)| name);
    parameters.find(|name| !can_name_parameter(syntax, name)).map(|name| Some(name.to_string()))
}

/// Return true if calls can have this name of a tool.
fn can_name_tool(syntax: &CallSyntax, name: &str) -> bool {
    let is_json = matches!(syntax.call, [.., Part::Json | Part::JsonOrPython]) && !syntax.is_python;
    !name.is_empty() && name.len() <= MAX_NAME && (is_json || name.chars().all(is_name))
}

/// Return true if calls can have this name of a parameter.
fn can_name_parameter(syntax: &CallSyntax, name: &str) -> bool {
    syntax.call.iter().all(|part| match part {
        Part::Tags(tags) if !tags.namespace.is_empty() => {
            !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('/') && !name.contains(['<', '>'])
        }
        // Quotes in attributes of this kind are escaped.
        Part::Tags(tags) if tags.attribute == Attribute::Type => {
            name.len() <= MAX_NAME && !name.contains(['"', '&'])
        }
        Part::Tags(_) => name.len() <= MAX_NAME,
        Part::Map(quote) => !name.contains(quote),
        Part::Keywords => literal::is_keyword(name),
        Part::JsonOrPython if syntax.is_python => literal::is_keyword(name),
        _ => true,
    })
}
