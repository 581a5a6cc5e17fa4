//! Deterministic automata of regular expressions, to reason about terminals.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::alphabet::Alphabet;
use super::{CharSet, Expr, Rules};

/// A state that no text leaves or that no text can match from.
pub(super) const DEAD: u32 = u32::MAX;
/// The size of automata; larger expressions are not merged.
const MAX_STATES: usize = 2000;
const MAX_NODES: usize = 4000;

/// A deterministic automaton. It begins in state 0, and every state can reach an accepting one.
#[derive(Debug)]
pub(super) struct Automaton {
    /// The next state by state and letter.
    next: Vec<Vec<u32>>,
    accepts: Vec<bool>,
}

impl Automaton {
    /// Build the automaton of a regular expression; `None` if it is too large, or more than
    /// `budget` steps were spent on automata. The caller bounds the size of the expression with all
    /// that it repeats, since parts that match only the empty text make no nodes.
    pub(super) fn new(expr: &Expr, rules: &Rules, alphabet: &Alphabet, budget: &mut u64) -> Option<Self> {
        let mut graph = Graph { rules, nodes: vec![Node::End] };
        let start = graph.add(expr, 0)?;
        graph.determinized(start, alphabet, budget)?.trimmed()
    }

    pub(super) fn next(&self, state: u32, letter: u32) -> u32 {
        self.next.get(state as usize).and_then(|next| next.get(letter as usize)).copied().unwrap_or(DEAD)
    }

    /// Return true if a text that led to `state` matches.
    pub(super) fn accepts(&self, state: u32) -> bool {
        self.accepts.get(state as usize).copied().unwrap_or(false)
    }

    /// Return true if no match is the beginning of another one, and none is empty.
    pub(super) fn is_prefix_free(&self) -> bool {
        let is_final = |next: &Vec<u32>| next.iter().all(|&state| state == DEAD);
        !self.accepts(0)
            && self.next.iter().zip(&self.accepts).all(|(next, accepts)| !accepts || is_final(next))
    }

    /// Return the automaton without states from which nothing can match; `None` if nothing is left.
    fn trimmed(mut self) -> Option<Self> {
        let mut before = vec![Vec::new(); self.next.len()];
        for (state, next) in (0u32..).zip(&self.next) {
            for &target in next.iter().filter(|&&target| target != DEAD) {
                before.get_mut(target as usize)?.push(state);
            }
        }
        let mut is_live = self.accepts.clone();
        let mut todo: Vec<u32> =
            (0u32..).zip(&is_live).filter(|(_, live)| **live).map(|(state, _)| state).collect();
        while let Some(state) = todo.pop() {
            for &earlier in before.get(state as usize)? {
                let live = is_live.get_mut(earlier as usize)?;
                if !core::mem::replace(live, true) {
                    todo.push(earlier);
                }
            }
        }
        let is_dead = |state: u32| is_live.get(state as usize) != Some(&true);
        for next in &mut self.next {
            next.iter_mut().filter(|state| is_dead(**state)).for_each(|state| *state = DEAD);
        }
        is_live.first().copied().unwrap_or(false).then_some(self)
    }
}

/// A node of a nondeterministic automaton; node 0 is the end.
enum Node<'a> {
    End,
    /// Any of these nodes, without reading.
    Split(Vec<usize>),
    /// A character of the set, then the node.
    Chars(&'a CharSet, usize),
    /// One character, then the node.
    Char(CharSet, usize),
}

struct Graph<'a> {
    rules: &'a Rules,
    nodes: Vec<Node<'a>>,
}

impl<'a> Graph<'a> {
    fn push(&mut self, node: Node<'a>) -> Option<usize> {
        self.nodes.push(node);
        (self.nodes.len() <= MAX_NODES).then_some(self.nodes.len() - 1)
    }

    /// Add the nodes of `expr` before the node `next`, and return the first of them.
    fn add(&mut self, expr: &'a Expr, next: usize) -> Option<usize> {
        match expr {
            Expr::Chars(set) => self.push(Node::Chars(set, next)),
            Expr::Literal(chars) => {
                chars.iter().rev().try_fold(next, |next, &c| self.push(Node::Char(CharSet::single(c), next)))
            }
            Expr::Sequence(items) => items.iter().rev().try_fold(next, |next, item| self.add(item, next)),
            Expr::Choice(items) => {
                let options: Option<Vec<usize>> = items.iter().map(|item| self.add(item, next)).collect();
                self.push(Node::Split(options?))
            }
            Expr::Repeat(inner, min, max) => self.add_repeat(inner, *min, *max, next),
            Expr::Rule(index) => self.add(&self.rules.rules.get(*index)?.expr, next),
            Expr::Terminal(inner) => self.add(inner, next),
            Expr::Token(_) => None,
        }
    }

    fn add_repeat(&mut self, inner: &'a Expr, min: u32, max: Option<u32>, next: usize) -> Option<usize> {
        let mut start = match max {
            None => {
                let again = self.push(Node::Split(vec![next]))?;
                let first = self.add(inner, again)?;
                if let Some(Node::Split(options)) = self.nodes.get_mut(again) {
                    options.push(first);
                }
                again
            }
            Some(max) => (min..max).try_fold(next, |after, _| {
                let first = self.add(inner, after)?;
                self.push(Node::Split(vec![first, next]))
            })?,
        };
        for _ in 0..min {
            start = self.add(inner, start)?;
        }
        Some(start)
    }

    /// Return `nodes` and all that they reach without reading, without those that only split.
    fn closure(&self, nodes: impl IntoIterator<Item = usize>, seen: &mut [bool]) -> Vec<usize> {
        let mut todo: Vec<usize> = nodes.into_iter().collect();
        let mut visited = Vec::new();
        while let Some(node) = todo.pop() {
            let Some(is_seen) = seen.get_mut(node).filter(|is_seen| !**is_seen) else { continue };
            *is_seen = true;
            visited.push(node);
            if let Some(Node::Split(options)) = self.nodes.get(node) {
                todo.extend(options);
            }
        }
        visited.iter().for_each(|&node| seen.get_mut(node).into_iter().for_each(|seen| *seen = false));
        visited.retain(|&node| !matches!(self.nodes.get(node), Some(Node::Split(_))));
        visited.sort_unstable();
        visited
    }

    fn determinized(&self, start: usize, alphabet: &Alphabet, budget: &mut u64) -> Option<Automaton> {
        let mut seen = vec![false; self.nodes.len()];
        let mut sets = vec![self.closure([start], &mut seen)];
        let mut states: BTreeMap<Vec<usize>, u32> =
            sets.first().map(|set| (set.clone(), 0)).into_iter().collect();
        let mut automaton = Automaton { next: Vec::new(), accepts: Vec::new() };
        while let Some(set) = sets.get(automaton.next.len()).cloned() {
            let mut targets = vec![Vec::new(); alphabet.n_letters()];
            for &node in &set {
                let (letters, next) = match self.nodes.get(node)? {
                    Node::Chars(set, next) => (alphabet.letters(set), *next),
                    Node::Char(set, next) => (alphabet.letters(set), *next),
                    Node::End | Node::Split(_) => continue,
                };
                *budget = budget.checked_sub(letters.len() as u64 + 1)?;
                for &letter in letters {
                    targets.get_mut(letter as usize)?.push(next);
                }
            }
            let mut next = Vec::with_capacity(targets.len());
            for target in targets {
                *budget = budget.checked_sub(target.len() as u64 + 1)?;
                if target.is_empty() {
                    next.push(DEAD);
                    continue;
                }
                let target = self.closure(target, &mut seen);
                *budget = budget.checked_sub(target.len() as u64)?;
                let n = sets.len() as u32;
                let state = *states.entry(target.clone()).or_insert(n);
                if state == n {
                    sets.push(target);
                }
                next.push(state);
            }
            automaton.accepts.push(set.contains(&0));
            automaton.next.push(next);
            if sets.len() > MAX_STATES {
                return None;
            }
        }
        Some(automaton)
    }
}
