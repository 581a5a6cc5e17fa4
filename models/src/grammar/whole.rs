//! Regular expressions of schemas as expressions of whole strings.

use alloc::{format, string::String, vec::Vec};
use std::panic::AssertUnwindSafe;

use llguidance::derivre::RegexBuilder;
use llguidance::{panic_utils, regex_to_lark};
use regex_syntax::ast::{self, AssertionKind, Ast};

use super::schema::translated_pattern;

/// The longest pattern that is followed, in bytes.
const MAX_PATTERN: usize = 1000;

/// Return a regular expression, as Lark has them between slashes, of the strings in which `pattern`
/// matches somewhere; `None` if the library cannot follow it.
pub(crate) fn whole_pattern(pattern: &str) -> Option<String> {
    if pattern.len() > MAX_PATTERN {
        return None;
    }
    let pattern = translated_pattern(pattern)?;
    let tree = ast::parse::Parser::new().parse(&pattern).ok()?;
    let branches = match &tree {
        Ast::Alternation(branches) => branches.asts.as_slice(),
        other => core::slice::from_ref(other),
    };
    let branches: Option<Vec<String>> =
        branches.iter().map(|branch| whole_branch(branch, &pattern)).collect();
    let whole = regex_to_lark(&format!("({})", branches?.join("|")), "dw");
    // The library panics at some expressions.
    panic_utils::catch_unwind(AssertUnwindSafe(|| RegexBuilder::new().mk_regex(&whole))).ok()?;
    Some(whole)
}

/// Return the expression of whole strings for an alternative of a pattern. `^` and `$` stand at its
/// ends or nowhere.
fn whole_branch(branch: &Ast, pattern: &str) -> Option<String> {
    let parts = match branch {
        Ast::Concat(parts) => parts.asts.as_slice(),
        other => core::slice::from_ref(other),
    };
    let is = |part: Option<&Ast>, kind: AssertionKind| match part {
        Some(Ast::Assertion(assertion)) => assertion.kind == kind,
        _ => false,
    };
    let (is_begun, is_ended) =
        (is(parts.first(), AssertionKind::StartLine), is(parts.last(), AssertionKind::EndLine));
    let inner = parts.get(usize::from(is_begun)..)?;
    let inner = inner.get(..inner.len().checked_sub(usize::from(is_ended))?)?;
    if inner.iter().any(has_assertion) {
        return None;
    }
    let text: String = inner
        .iter()
        .filter_map(|part| pattern.get(part.span().start.offset..part.span().end.offset))
        .collect();
    let any = |is_anchored: bool| if is_anchored { "" } else { "(?s:.*)" };
    Some(format!("{}(?:{text}){}", any(is_begun), any(is_ended)))
}

/// Return true if there is an assertion within a part of a pattern, or flags, which change what
/// stands behind them.
fn has_assertion(part: &Ast) -> bool {
    match part {
        Ast::Assertion(_) | Ast::Flags(_) => true,
        Ast::Repetition(repetition) => has_assertion(&repetition.ast),
        Ast::Group(group) => has_assertion(&group.ast),
        Ast::Alternation(branches) => branches.asts.iter().any(has_assertion),
        Ast::Concat(parts) => parts.asts.iter().any(has_assertion),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_bound_and_others_search() {
        let cases = [
            ("^a+$", Some("((?:a+))")),
            ("a", Some("((?s:.*)(?:a)(?s:.*))")),
            ("^a|b$", Some("((?:a)(?s:.*)|(?s:.*)(?:b))")),
            ("^[0-9]{2}/x$", Some("((?:[0-9]{2}\\/x))")),
            ("a$b", None),
            ("(?=a)b", None),
            ("\\bword", None),
        ];
        for (pattern, wanted) in cases {
            assert_eq!(whole_pattern(pattern).as_deref(), wanted, "{pattern}");
        }
    }
}
