//! Deterministic automata of regular expressions, over characters.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// The states of an automaton before it is made deterministic.
const MAX_NODES: usize = 500;
/// The states of an automaton, and the sets of characters that it tells apart.
const MAX_STATES: usize = 100;
const MAX_SETS: usize = 64;
/// The codes of characters.
const LAST: u32 = char::MAX as u32;

/// A step of a search for a regular expression.
enum Node {
    /// Read a character of these ranges.
    Read(Vec<(u32, u32)>, usize),
    /// Go on at each of these.
    Fork(Vec<usize>),
    /// Go on at the beginning of the text, or at its end.
    At(Look, usize),
    /// The text matches if it ends here.
    Match,
}

/// A deterministic automaton. It begins in state 0.
pub(super) struct Automaton {
    /// The first character of each set: one set ends where the next begins.
    pub(super) sets: Vec<u32>,
    /// For each state, the next one for each set of characters.
    pub(super) next: Vec<Vec<usize>>,
    /// For each state, true if the text matches that ends there.
    pub(super) matches: Vec<bool>,
}

impl Automaton {
    /// Build the automaton of all texts in which `pattern` is found. Return `None` if it is too
    /// large or has assertions within lines and words.
    pub(super) fn of(pattern: &Hir) -> Option<Self> {
        let mut nodes = Nodes(Vec::from([Node::Match]));
        let rest = nodes.anything(0)?;
        let found = nodes.add(pattern, rest)?;
        let start = nodes.anything(found)?;
        let sets = nodes.sets()?;
        let mut found = Self { sets, next: Vec::new(), matches: Vec::new() };
        let mut states = vec![nodes.reached(&[start], &[Look::Start])];
        // Nothing leads back to the first state, which alone is where the text begins.
        let mut known = BTreeMap::from([(vec![usize::MAX], 0)]);
        while let Some(state) = states.get(found.next.len()).cloned() {
            // A text without characters begins where it ends.
            let places: &[Look] =
                if found.next.is_empty() { &[Look::Start, Look::End] } else { &[Look::End] };
            found.matches.push(nodes.reached(&state, places).contains(&0));
            let mut row = Vec::new();
            for &first in &found.sets {
                let state = nodes.reached(&nodes.behind(&state, first), &[]);
                let n_known = known.len();
                row.push(*known.entry(state.clone()).or_insert_with(|| {
                    states.push(state);
                    n_known
                }));
            }
            found.next.push(row);
            if known.len() > MAX_STATES {
                return None;
            }
        }
        Some(found.smallest())
    }

    /// Return the automaton with the fewest states: those that no text tells apart become one.
    fn smallest(self) -> Self {
        let mut groups: Vec<usize> = self.matches.iter().map(|matches| usize::from(*matches)).collect();
        let mut n_groups = 0;
        loop {
            let mut known = BTreeMap::new();
            let mut regrouped = Vec::new();
            for (state, row) in self.next.iter().enumerate() {
                let group = |state: usize| groups.get(state).copied().unwrap_or_default();
                let view: Vec<usize> = [state].iter().chain(row).map(|state| group(*state)).collect();
                let n_known = known.len();
                regrouped.push(*known.entry(view).or_insert(n_known));
            }
            let is_stable = known.len() == n_groups;
            n_groups = known.len();
            groups = regrouped;
            if is_stable {
                return self.joined(&groups, n_groups);
            }
        }
    }

    /// Return the automaton whose states are groups of states.
    fn joined(&self, groups: &[usize], n_groups: usize) -> Self {
        let (mut next, mut matches) = (Vec::new(), Vec::new());
        for group in 0..n_groups {
            let state = groups.iter().position(|other| *other == group).unwrap_or_default();
            let row = self.next.get(state).into_iter().flatten();
            next.push(row.filter_map(|state| groups.get(*state).copied()).collect());
            matches.push(self.matches.get(state).copied().unwrap_or_default());
        }
        Self { sets: self.sets.clone(), next, matches }
    }
}

struct Nodes(Vec<Node>);

impl Nodes {
    fn push(&mut self, node: Node) -> Option<usize> {
        let place = self.0.len();
        self.0.push(node);
        (place < MAX_NODES).then_some(place)
    }

    /// Add a node for any text, behind which comes `next`.
    fn anything(&mut self, next: usize) -> Option<usize> {
        let place = self.0.len();
        self.push(Node::Fork(Vec::from([place + 1, next])))?;
        self.push(Node::Read(Vec::from([(0, LAST)]), place))?;
        Some(place)
    }

    /// Add the nodes of `pattern`, behind which comes `next`. Return the first of them.
    fn add(&mut self, pattern: &Hir, next: usize) -> Option<usize> {
        match pattern.kind() {
            HirKind::Empty => Some(next),
            HirKind::Literal(literal) => {
                let text = core::str::from_utf8(&literal.0).ok()?;
                text.chars()
                    .rev()
                    .try_fold(next, |next, c| self.push(Node::Read(Vec::from([(c.into(), c.into())]), next)))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = class.ranges().iter();
                let ranges = ranges.map(|range| (range.start().into(), range.end().into())).collect();
                self.push(Node::Read(ranges, next))
            }
            HirKind::Class(Class::Bytes(_)) => None,
            HirKind::Look(look @ (Look::Start | Look::End)) => self.push(Node::At(*look, next)),
            HirKind::Look(_) => None,
            HirKind::Repetition(repetition) => self.repeat(repetition, next),
            HirKind::Capture(capture) => self.add(&capture.sub, next),
            HirKind::Concat(parts) => parts.iter().rev().try_fold(next, |next, part| self.add(part, next)),
            HirKind::Alternation(parts) => {
                let options: Option<Vec<usize>> = parts.iter().map(|part| self.add(part, next)).collect();
                self.push(Node::Fork(options?))
            }
        }
    }

    fn repeat(&mut self, repetition: &Repetition, next: usize) -> Option<usize> {
        let mut first = next;
        match repetition.max {
            None => {
                first = self.push(Node::Fork(Vec::new()))?;
                let again = self.add(&repetition.sub, first)?;
                *self.0.get_mut(first)? = Node::Fork(Vec::from([again, next]));
            }
            Some(max) => {
                for _ in repetition.min..max {
                    let once = self.add(&repetition.sub, first)?;
                    first = self.push(Node::Fork(Vec::from([once, next])))?;
                }
            }
        }
        for _ in 0..repetition.min {
            // An empty part adds no nodes, so that only the number of rounds could be large.
            let before = self.0.len();
            first = self.add(&repetition.sub, first)?;
            if self.0.len() == before {
                break;
            }
        }
        Some(first)
    }

    /// Return the first characters of the sets that the nodes tell apart.
    fn sets(&self) -> Option<Vec<u32>> {
        let mut sets = vec![0];
        for node in &self.0 {
            if let Node::Read(ranges, _) = node {
                sets.extend(ranges.iter().map(|(first, _)| *first));
                sets.extend(ranges.iter().map(|(_, last)| last + 1).filter(|first| *first <= LAST));
            }
        }
        sets.sort_unstable();
        sets.dedup();
        (sets.len() <= MAX_SETS).then_some(sets)
    }

    /// Return the nodes that are reached from `from` without reading, in order, at `places` of the
    /// text, which are the same one. Those that wait for another place are among them.
    fn reached(&self, from: &[usize], places: &[Look]) -> Vec<usize> {
        let (mut todo, mut found) = (from.to_vec(), vec![false; self.0.len()]);
        while let Some(node) = todo.pop() {
            match found.get_mut(node) {
                Some(found) if !*found => *found = true,
                _ => continue,
            }
            match self.0.get(node) {
                Some(Node::Fork(options)) => todo.extend(options),
                Some(Node::At(look, next)) if places.contains(look) => todo.push(*next),
                _ => {}
            }
        }
        let is_kept = |node: &usize| {
            found.get(*node) == Some(&true) && !matches!(self.0.get(*node), Some(Node::Fork(_)))
        };
        (0..self.0.len()).filter(is_kept).collect()
    }

    /// Return the nodes behind those of `state` that read a character.
    fn behind(&self, state: &[usize], c: u32) -> Vec<usize> {
        let read = |node: &usize| match self.0.get(*node) {
            Some(Node::Read(ranges, next)) => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)).then_some(*next)
            }
            _ => None,
        };
        state.iter().filter_map(read).collect()
    }
}
