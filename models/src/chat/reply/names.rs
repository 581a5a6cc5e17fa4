//! Names of tools and parameters that a format can write.

use alloc::format;
use alloc::string::{String, ToString};

use super::cursor::is_name;
use super::formats::HARMONY;
use super::literal;
use super::syntax::{CallSyntax, Part, ReasoningSyntax};
use super::tools::{MAX_NAME, Tools};
use crate::chat::Value;

/// Return the first name of a described tool that a format cannot write: `Some(None)` if that is
/// the tool's own, else the name of a parameter.
pub(super) fn unwritable(
    syntax: &CallSyntax,
    reasoning: Option<&ReasoningSyntax>,
    described: &Value,
) -> Option<Option<String>> {
    let tools = Tools::new(core::slice::from_ref(described));
    let Some(tool) = tools.iter().next() else { return Some(None) };
    let is_taken = reasoning.is_some_and(|reasoning| is_reserved(syntax, &tool.name, reasoning.open));
    if is_taken || !can_name_tool(syntax, &tool.name) {
        return Some(None);
    }
    tool.names().find(|name| !can_name_parameter(syntax, name)).map(|name| Some(name.to_string()))
}

/// Return true if calls can have this name of a tool.
fn can_name_tool(syntax: &CallSyntax, name: &str) -> bool {
    let is_json = matches!(syntax.call, [.., Part::Json | Part::JsonOrPython]) && !syntax.is_python;
    let is_free = (is_json && syntax.name != HARMONY) || name.chars().all(is_name);
    // What stands around a name in an identifier is read as a part of it.
    let has_id = syntax.call.iter().any(|part| matches!(part, Part::NameInId));
    let most = MAX_NAME - if has_id { "functions.:999".len() } else { 0 };
    let is_taken = syntax.wrappers.iter().any(|wrapper| is_reserved(syntax, name, wrapper));
    !name.is_empty() && name.len() <= most && is_free && !is_taken
}

/// Return true if the beginning of a call of this tool is a marker that means something else.
fn is_reserved(syntax: &CallSyntax, name: &str, marker: &str) -> bool {
    let [Part::Literal(begin), kind, rest @ ..] = syntax.call else { return false };
    let behind = match (kind, rest.first()) {
        (Part::NameLine, _) => "\n",
        (Part::Name, Some(Part::Literal(behind))) => behind,
        _ => return false,
    };
    marker.contains(&format!("{begin}{name}{behind}"))
}

/// Return true if calls can have this name of a parameter.
fn can_name_parameter(syntax: &CallSyntax, name: &str) -> bool {
    syntax.call.iter().all(|part| match part {
        Part::Tags(tags) if !tags.namespace.is_empty() => {
            !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('/') && !name.contains(['<', '>'])
        }
        Part::Tags(tags) => tags.written_name(name).len() <= MAX_NAME,
        Part::Map(quote) => !name.contains(quote),
        Part::Keywords => literal::is_keyword(name),
        Part::JsonOrPython if syntax.is_python => literal::is_keyword(name),
        _ => true,
    })
}
