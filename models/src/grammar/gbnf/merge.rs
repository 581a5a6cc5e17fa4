//! Choosing terminals: single characters, or longer expressions where that changes nothing.
//!
//! The lexer reads the longest match of the terminals that are possible at a place. That is the
//! only match if no match of a possible terminal is the beginning of another one, which is checked
//! here: each terminal by itself (`automaton.rs`), and those that can be possible at the same place
//! together (`contexts.rs`). Terminals of one character pass by themselves. A longer one that does
//! not is split into its parts, until all pass. If a grammar is too large to be checked, all its
//! terminals are single characters.
//!
//! A whole grammar without recursion is a single terminal, where nothing can be confused.

use alloc::{boxed::Box, collections::BTreeSet, rc::Rc, vec::Vec};
use std::collections::HashMap;

use super::alphabet::Alphabet;
use super::automaton::Automaton;
use super::check::{Measures, regular, regular_rules};
use super::contexts::{Terminals, confused};
use super::{CharSet, Expr, Rules};

/// Steps spent on automata, and on looking for expressions to merge; about a fifth of a second.
const BUDGET: u64 = 20_000_000;
/// The depth of an expression that is merged, with the rules in it.
const MAX_DEPTH: usize = 100;
/// The number of parts of an expression that is merged, with those of the rules in it.
const MAX_SIZE: u64 = 8000;
/// The number of neighbours in a sequence that are merged.
const MAX_NEIGHBOURS: usize = 12;
/// The number of times that terminals are split before all become single characters.
const MAX_ROUNDS: usize = 40;

/// Put every character of a grammar into a terminal.
pub(super) fn choose_terminals(rules: &mut Rules) {
    let marked = Alphabet::new(rules).and_then(|alphabet| {
        let mut chooser = Chooser {
            rules,
            alphabet: &alphabet,
            measures: regular_rules(rules),
            known: HashMap::new(),
            budget: BUDGET,
        };
        chooser.choose()
    });
    let marked = marked.unwrap_or_else(|| rules.rules.iter().map(|rule| split_all(&rule.expr)).collect());
    rules.rules.iter_mut().zip(marked).for_each(|(rule, expr)| rule.expr = expr);
}

/// Return `expr` with each character as a terminal.
fn split_all(expr: &Expr) -> Expr {
    match expr {
        Expr::Chars(_) => Expr::Terminal(Box::new(expr.clone())),
        Expr::Literal(chars) => characters(chars),
        Expr::Terminal(inner) => split_all(inner),
        _ => with_children(expr, &mut split_all),
    }
}

/// Return a string with each character as a terminal.
fn characters(chars: &[char]) -> Expr {
    let terminal = |&c: &char| Expr::Terminal(Box::new(Expr::Chars(CharSet::single(c))));
    match chars {
        [c] => terminal(c),
        _ => Expr::Sequence(chars.iter().map(terminal).collect()),
    }
}

/// Return `expr` with `f` of each of its parts.
fn with_children(expr: &Expr, f: &mut impl FnMut(&Expr) -> Expr) -> Expr {
    match expr {
        Expr::Sequence(items) => Expr::Sequence(items.iter().map(f).collect()),
        Expr::Choice(items) => Expr::Choice(items.iter().map(f).collect()),
        Expr::Repeat(inner, min, max) => Expr::Repeat(Box::new(f(inner)), *min, *max),
        _ => expr.clone(),
    }
}

struct Chooser<'a> {
    rules: &'a Rules,
    alphabet: &'a Alphabet,
    /// The measures of the rules that are regular.
    measures: Vec<Option<Measures>>,
    /// The automata of expressions that were looked at, if they are small enough.
    known: HashMap<Expr, Option<Rc<Automaton>>>,
    budget: u64,
}

impl Chooser<'_> {
    /// Return the rules' expressions with terminals; `None` if that takes too long.
    fn choose(&mut self) -> Option<Vec<Expr>> {
        let root = &self.rules.rules.get(self.rules.root)?.expr;
        if self.automaton(root).is_some() {
            let mut marked: Vec<Expr> = self.rules.rules.iter().map(|rule| split_all(&rule.expr)).collect();
            *marked.get_mut(self.rules.root)? = Expr::Terminal(Box::new(root.clone()));
            return Some(marked);
        }
        let mut marked: Vec<Expr> = self.rules.rules.iter().map(|rule| self.marked(&rule.expr)).collect();
        for _ in 0..MAX_ROUNDS {
            let rules = self.with_expressions(&marked);
            let terminals = self.terminals(&rules)?;
            let to_split = confused(&rules, &terminals, self.alphabet.n_letters(), &mut self.budget)?;
            if to_split.is_empty() {
                return Some(marked);
            }
            marked = marked.iter().map(|expr| self.split(expr, &terminals, &to_split)).collect();
        }
        None
    }

    fn with_expressions(&self, exprs: &[Expr]) -> Rules {
        let mut rules = self.rules.clone();
        rules.rules.iter_mut().zip(exprs).for_each(|(rule, expr)| rule.expr = expr.clone());
        rules
    }

    fn terminals<'e>(&mut self, rules: &'e Rules) -> Option<Terminals<'e>> {
        let mut found = Vec::new();
        for rule in &rules.rules {
            rule.expr.walk(&mut |expr| {
                if let Expr::Terminal(inner) = expr {
                    found.push(&**inner);
                }
            });
        }
        let mut terminals = Terminals::default();
        for expr in found {
            if !terminals.indices.contains_key(expr) {
                terminals.indices.insert(expr, terminals.automata.len());
                terminals.automata.push(self.automaton(expr)?);
            }
        }
        Some(terminals)
    }

    /// Return the size of `expr` if it is regular and small enough to be merged.
    fn size(&self, expr: &Expr) -> Option<u64> {
        let Measures { depth, size } = regular(expr, &self.measures)?;
        (depth <= MAX_DEPTH && size <= MAX_SIZE).then_some(size)
    }

    /// Take `steps` from the budget. If it has fewer, none are left.
    fn spend(&mut self, steps: u64) -> Option<()> {
        let left = self.budget.checked_sub(steps);
        self.budget = left.unwrap_or(0);
        left.map(drop)
    }

    /// Return the automaton of `expr` if it is regular and small enough.
    fn automaton(&mut self, expr: &Expr) -> Option<Rc<Automaton>> {
        let size = self.size(expr)?;
        self.spend(size)?;
        if let Some(known) = self.known.get(expr) {
            return known.clone();
        }
        let automaton = Automaton::new(expr, self.rules, self.alphabet, &mut self.budget).map(Rc::new);
        self.known.insert(expr.clone(), automaton.clone());
        automaton
    }

    /// Return true if `expr` can be a terminal, as far as it is concerned alone.
    fn is_terminal(&mut self, expr: &Expr) -> bool {
        self.automaton(expr).is_some_and(|automaton| automaton.is_prefix_free())
    }

    /// Return `expr` with the largest terminals that are possible by themselves.
    fn marked(&mut self, expr: &Expr) -> Expr {
        match expr {
            Expr::Rule(_) | Expr::Token(_) | Expr::Terminal(_) => expr.clone(),
            _ if self.is_terminal(expr) => Expr::Terminal(Box::new(expr.clone())),
            Expr::Chars(_) | Expr::Literal(_) => split_all(expr),
            Expr::Sequence(items) => self.marked_sequence(items),
            _ => with_children(expr, &mut |child| self.marked(child)),
        }
    }

    /// Return a sequence in which neighbours are merged, as many at a time as possible.
    fn marked_sequence(&mut self, items: &[Expr]) -> Expr {
        let sizes: Vec<Option<u64>> = items.iter().map(|item| self.size(item)).collect();
        let mut marked = Vec::new();
        let mut rest = items;
        while let Some((first, others)) = rest.split_first() {
            let longest = match self.budget {
                0 => 0,
                _ => mergeable(sizes.get(items.len() - rest.len()..).unwrap_or_default()),
            };
            let merged = (2..=longest).rev().find_map(|n| {
                let expr = Expr::Sequence(rest.get(..n)?.to_vec());
                self.is_terminal(&expr).then_some((expr, n))
            });
            match merged {
                Some((expr, n)) => {
                    marked.push(Expr::Terminal(Box::new(expr)));
                    rest = rest.get(n..).unwrap_or_default();
                }
                None => {
                    marked.push(self.marked(first));
                    rest = others;
                }
            }
        }
        Expr::Sequence(marked)
    }

    /// Return `expr` with the terminals in `to_split` in parts.
    fn split(&mut self, expr: &Expr, terminals: &Terminals<'_>, to_split: &BTreeSet<usize>) -> Expr {
        match expr {
            Expr::Terminal(inner)
                if terminals.indices.get(&**inner).is_some_and(|i| to_split.contains(i)) =>
            {
                match &**inner {
                    Expr::Chars(_) | Expr::Literal(_) => split_all(inner),
                    other => with_children(other, &mut |child| self.marked(child)),
                }
            }
            Expr::Terminal(_) => expr.clone(),
            _ => with_children(expr, &mut |child| self.split(child, terminals, to_split)),
        }
    }
}

/// Return the number of neighbours of these sizes, from the first on, that are small enough to be
/// merged.
fn mergeable(sizes: &[Option<u64>]) -> usize {
    let sums = sizes.iter().take(MAX_NEIGHBOURS).scan(0_u64, |sum, size| {
        *sum = sum.saturating_add((*size)?);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= MAX_SIZE).count()
}
