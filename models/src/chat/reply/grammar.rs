//! Calls as a grammar.
use super::syntax::CallSyntax;
use super::tools::Tools;
use alloc::string::String;
pub(super) fn write(_: &CallSyntax, _: &Tools, _: bool, _: &dyn Fn(&str) -> Option<u32>) -> Option<String> {
    None
}
