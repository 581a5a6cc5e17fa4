//! The texts with which the grammar of calls begins.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec::Vec;

use super::formats::HARMONY;
use super::syntax::{CallSyntax, Part};
use super::tools::Tools;
use super::{Trigger, harmony};

/// Return the texts that begin calls of `tools` in a format.
pub(super) fn of(syntax: &CallSyntax, tools: &Tools) -> Vec<Trigger> {
    if syntax.name == HARMONY {
        return harmony::triggers();
    }
    let section = syntax.section.as_ref().map(|section| Trigger::Anywhere(section.begin.to_owned()));
    let is_whole = section.is_some() && !syntax.is_section_optional;
    let calls = if is_whole { Vec::new() } else { calls(syntax, tools) };
    section.into_iter().chain(calls).collect()
}

/// Return the texts that begin a call outside of a section. A marker that is no tag of its own also
/// stands in text, as `<function=` does, so that more of the call has to follow.
fn calls(syntax: &CallSyntax, tools: &Tools) -> Vec<Trigger> {
    let Some(begin) = syntax.begin() else {
        return Vec::new();
    };
    let is_tag = begin.starts_with(['<', '[']) && begin.ends_with(['>', ']']);
    let named = |behind: &str| {
        tools.iter().map(|tool| Trigger::Anywhere(format!("{begin}{}{behind}", tool.name))).collect()
    };
    match syntax.call.get(1..) {
        Some([Part::Name, Part::Literal(behind), ..]) if !is_tag => named(behind),
        Some([Part::NameLine, ..]) if !is_tag => named("\n"),
        Some([Part::Json, ..]) if !is_tag && syntax.is_list => {
            Vec::from([Trigger::Anywhere(format!("{begin}["))])
        }
        _ => Vec::from([Trigger::Anywhere(begin.to_owned())]),
    }
}
