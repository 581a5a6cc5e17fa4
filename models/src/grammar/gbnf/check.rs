//! Properties of rules: which can be empty, begin with themselves, are regular, or make long
//! chains.

use alloc::{vec, vec::Vec};

use super::super::chains;
use super::super::error::{GrammarError, place_of, shortened};
use super::{Expr, Rules};

/// The levels of rules, choices, sequences and repetitions that lead to each other. Each can become
/// a rule of the library's, which recurses over them.
const MAX_CHAIN: usize = 16_000;

/// Check that compiling cannot recurse too deeply.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn refuse_long_chains(rules: &Rules) -> Result<(), GrammarError> {
    let weights: Vec<usize> = rules.rules.iter().map(|rule| height(&rule.expr).max(1)).collect();
    let (found, limit) = (chains::heaviest(&weights, &uses(rules)), MAX_CHAIN);
    if found > limit {
        let what = "levels of rules that lead to each other";
        return Err(GrammarError::TooLarge { what, found, limit });
    }
    Ok(())
}

/// Return the levels of an expression above its innermost parts.
fn height(expr: &Expr) -> usize {
    expr.children().iter().map(|child| height(child) + 1).max().unwrap_or(0)
}

/// Return the rules that each rule mentions.
fn uses(rules: &Rules) -> Vec<Vec<usize>> {
    let uses = rules.rules.iter().map(|rule| {
        let mut uses = Vec::new();
        rule.expr
            .walk(&mut |expr| uses.extend(if let Expr::Rule(index) = expr { Some(*index) } else { None }));
        uses
    });
    uses.collect()
}

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

/// The measures of a regular expression, with those of all rules that it uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measures {
    /// The depth to which it is nested.
    pub(super) depth: usize,
    /// The number of its parts, where each that is repeated counts as often as it may have to be.
    pub(super) size: u64,
}

/// Return for each rule the measures of its expression, if it is regular: it is not recursive and
/// has no tokens.
pub(super) fn regular_rules(rules: &Rules) -> Vec<Option<Measures>> {
    let mut known = vec![None; rules.rules.len()];
    for index in sorted(&uses(rules)) {
        let found = rules.rules.get(index).and_then(|rule| regular(&rule.expr, &known));
        if let Some(slot) = known.get_mut(index) {
            *slot = found;
        }
    }
    known
}

/// Return the measures of an expression if it is regular; `rules` has those of the rules.
pub(super) fn regular(expr: &Expr, rules: &[Option<Measures>]) -> Option<Measures> {
    let inside = match expr {
        Expr::Token(_) => return None,
        Expr::Rule(index) => rules.get(*index).copied().flatten()?,
        Expr::Literal(chars) => Measures { depth: 0, size: chars.len() as u64 },
        _ => expr.children().iter().try_fold(Measures { depth: 0, size: 0 }, |all, child| {
            let Measures { depth, size } = regular(child, rules)?;
            Some(Measures { depth: depth.max(all.depth), size: size.saturating_add(all.size) })
        })?,
    };
    let n_times = match expr {
        Expr::Repeat(_, min, None) => u64::from(*min) + 1,
        Expr::Repeat(_, _, Some(max)) => u64::from(*max),
        _ => 1,
    };
    let size = inside.size.saturating_mul(n_times).saturating_add(1);
    Some(Measures { depth: inside.depth + 1, size })
}

/// Return for each rule whether it matches the empty text.
pub(super) fn nullable(rules: &Rules) -> Vec<bool> {
    let n = rules.rules.len();
    let mut users = vec![Vec::new(); n];
    for (user, rule) in rules.rules.iter().enumerate() {
        rule.expr.walk(&mut |expr| {
            if let Expr::Rule(index) = expr
                && let Some(users) =
                    users.get_mut(*index).filter(|users: &&mut Vec<usize>| users.last() != Some(&user))
            {
                users.push(user);
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
