//! Properties of rules: which can be empty, begin with themselves, or are regular.

use alloc::{vec, vec::Vec};

use super::super::error::{GrammarError, place_of, shortened};
use super::{Expr, Rules};

/// Check that no rule can begin with itself before a character was read, as llama.cpp demands.
///
/// # Errors
/// [`GrammarError::LeftRecursion`] for the first such rule.
pub(super) fn refuse_left_recursion(rules: &Rules, text: &str) -> Result<(), GrammarError> {
    let nullable = nullable(rules);
    let begins_with = rules.rules.iter().map(|rule| {
        let mut first = Vec::new();
        leftmost(&rule.expr, &nullable, &mut first);
        first
    });
    let begins_with: Vec<Vec<usize>> = begins_with.collect();
    let n = rules.rules.len();
    let mut begun_by = vec![Vec::new(); n];
    for (index, first) in begins_with.iter().enumerate() {
        first.iter().for_each(|&first| {
            begun_by.get_mut(first).into_iter().for_each(|begun_by: &mut Vec<usize>| begun_by.push(index))
        });
    }
    // A rule that leads to a cycle and to which one leads is in it, or between two.
    let is_before = membership(n, &sorted(&begins_with));
    let is_behind = membership(n, &sorted(&begun_by));
    let is_sorted = is_before.into_iter().zip(is_behind).map(|(before, behind)| before || behind);
    match rules.rules.iter().zip(is_sorted).find(|(_, is_sorted)| !is_sorted) {
        Some((rule, _)) => Err(GrammarError::LeftRecursion {
            place: place_of(text, rule.offset),
            name: shortened(&rule.name, 60),
        }),
        None => Ok(()),
    }
}

/// Return for each rule the depth of its expression with those of all rules that it uses, if it is
/// regular: it is not recursive and has no tokens.
pub(super) fn regular_depths(rules: &Rules) -> Vec<Option<usize>> {
    let uses = rules.rules.iter().map(|rule| {
        let mut uses = Vec::new();
        rule.expr
            .walk(&mut |expr| uses.extend(if let Expr::Rule(index) = expr { Some(*index) } else { None }));
        uses
    });
    let order = sorted(&uses.collect::<Vec<_>>());
    let mut depths = vec![None; rules.rules.len()];
    for index in order {
        let depth = rules.rules.get(index).and_then(|rule| regular_depth(&rule.expr, &depths));
        if let Some(slot) = depths.get_mut(index) {
            *slot = depth;
        }
    }
    depths
}

/// Return the depth of an expression if it is regular; `depths` has those of the rules.
pub(super) fn regular_depth(expr: &Expr, depths: &[Option<usize>]) -> Option<usize> {
    match expr {
        Expr::Token(_) => None,
        Expr::Rule(index) => depths.get(*index).copied().flatten().map(|depth| depth + 1),
        _ => expr
            .children()
            .iter()
            .try_fold(0, |max, child| Some(regular_depth(child, depths)?.max(max)))
            .map(|d| d + 1),
    }
}

/// Return for each rule whether it matches the empty text.
pub(super) fn nullable(rules: &Rules) -> Vec<bool> {
    let n = rules.rules.len();
    let mut users = vec![Vec::new(); n];
    for (user, rule) in rules.rules.iter().enumerate() {
        rule.expr.walk(&mut |expr| {
            if let Expr::Rule(index) = expr {
                users.get_mut(*index).into_iter().for_each(|users: &mut Vec<usize>| users.push(user));
            }
        });
    }
    let mut nullable = vec![false; n];
    // A rule is looked at again when one that it uses turns out to be nullable.
    let mut todo: Vec<usize> = (0..n).collect();
    while let Some(index) = todo.pop() {
        let is_known = nullable.get(index).copied().unwrap_or(true);
        let found =
            !is_known && rules.rules.get(index).is_some_and(|rule| is_nullable(&rule.expr, &nullable));
        if let Some(slot) = nullable.get_mut(index).filter(|_| found) {
            *slot = true;
            todo.extend(users.get(index).into_iter().flatten());
        }
    }
    nullable
}

pub(super) fn is_nullable(expr: &Expr, nullable: &[bool]) -> bool {
    match expr {
        Expr::Chars(_) | Expr::Literal(_) | Expr::Token(_) => false,
        Expr::Rule(index) => nullable.get(*index).copied().unwrap_or(false),
        Expr::Sequence(items) => items.iter().all(|item| is_nullable(item, nullable)),
        Expr::Choice(items) => items.iter().any(|item| is_nullable(item, nullable)),
        Expr::Repeat(inner, min, _) => *min == 0 || is_nullable(inner, nullable),
        Expr::Terminal(inner) => is_nullable(inner, nullable),
    }
}

/// Append the rules with which `expr` can begin.
fn leftmost(expr: &Expr, nullable: &[bool], out: &mut Vec<usize>) {
    match expr {
        Expr::Rule(index) => out.push(*index),
        Expr::Sequence(items) => {
            for item in items {
                leftmost(item, nullable, out);
                if !is_nullable(item, nullable) {
                    break;
                }
            }
        }
        _ => expr.children().iter().for_each(|child| leftmost(child, nullable, out)),
    }
}

/// Return the nodes of a graph in an order in which each comes behind those that it points to, and
/// without the nodes that reach a cycle.
fn sorted(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut users = vec![Vec::new(); edges.len()];
    let mut n_open: Vec<usize> = edges.iter().map(Vec::len).collect();
    for (user, targets) in edges.iter().enumerate() {
        for &target in targets {
            users.get_mut(target).into_iter().for_each(|users: &mut Vec<usize>| users.push(user));
        }
    }
    let mut order: Vec<usize> =
        (0..edges.len()).filter(|&node| edges.get(node).is_some_and(Vec::is_empty)).collect();
    let mut done = 0;
    while let Some(&node) = order.get(done) {
        done += 1;
        for &user in users.get(node).into_iter().flatten() {
            if let Some(n) = n_open.get_mut(user) {
                *n -= 1;
                if *n == 0 {
                    order.push(user);
                }
            }
        }
    }
    order
}

/// Return for each of `n` nodes whether `order` has it.
fn membership(n: usize, order: &[usize]) -> Vec<bool> {
    let mut has = vec![false; n];
    order.iter().for_each(|&node| has.get_mut(node).into_iter().for_each(|has| *has = true));
    has
}
