//! The terminals that can be possible at one place of a text, and those of them that the longest
//! match would confuse.
//!
//! Rules are taken for a finite automaton over terminals: entering a rule goes to its beginning,
//! and its end goes behind every mention of it. This automaton accepts every text that the grammar
//! accepts, and more. So terminals that it never expects at the same place are never possible at
//! the same place.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{rc::Rc, vec, vec::Vec};

use super::automaton::{Automaton, DEAD};
use super::{Expr, Rules};

/// The number of places, and of steps, up to which a grammar is explored.
const MAX_PLACES: usize = 3000;

/// A terminal: the index of one that is text, or of a set of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Text(usize),
    Token(usize),
}

/// The terminals of a grammar that are text: their numbers by expression, and their automata.
#[derive(Debug, Default)]
pub(super) struct Terminals<'a> {
    pub(super) indices: std::collections::HashMap<&'a Expr, usize>,
    pub(super) automata: Vec<Rc<Automaton>>,
}

/// Return the terminals that have to be split, because they can go on where another one ends.
/// `None` if exploring the grammar takes too long.
pub(super) fn confused(
    rules: &Rules,
    terminals: &Terminals<'_>,
    n_letters: usize,
    budget: &mut u64,
) -> Option<BTreeSet<usize>> {
    let network = Network::new(rules, terminals)?;
    let mut confused = BTreeSet::new();
    let mut known: BTreeMap<Vec<usize>, Vec<Vec<usize>>> = BTreeMap::new();
    let start = network.closure([network.start], budget)?;
    let mut places = BTreeSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(place) = todo.pop() {
        let steps = network.steps(&place);
        let texts: Vec<usize> = steps
            .keys()
            .filter_map(|step| if let Step::Text(index) = step { Some(*index) } else { None })
            .collect();
        if !known.contains_key(&texts) {
            let groups = matched_together(&texts, terminals, n_letters, &mut confused, budget)?;
            known.insert(texts.clone(), groups);
        }
        let texts = known.get(&texts)?.iter().map(|group| group.iter().map(|&i| Step::Text(i)).collect());
        let tokens = steps.keys().filter(|step| matches!(step, Step::Token(_))).map(|&step| vec![step]);
        let groups: Vec<Vec<Step>> = texts.chain(tokens).collect();
        for group in groups {
            let targets = group.iter().filter_map(|step| steps.get(step)).flatten().copied();
            let next = network.closure(targets, budget)?;
            if places.insert(next.clone()) {
                todo.push(next);
            }
            if places.len() > MAX_PLACES {
                return None;
            }
        }
    }
    Some(confused)
}

/// Return the sets of terminals among `texts` of which some text matches exactly those, and add
/// those that could go on at its end to `confused`.
fn matched_together(
    texts: &[usize],
    terminals: &Terminals<'_>,
    n_letters: usize,
    confused: &mut BTreeSet<usize>,
    budget: &mut u64,
) -> Option<Vec<Vec<usize>>> {
    let start: Vec<(usize, u32)> = texts.iter().map(|&index| (index, 0)).collect();
    let mut seen = BTreeSet::from([start.clone()]);
    let mut todo = vec![start];
    let mut groups = BTreeSet::new();
    while let Some(states) = todo.pop() {
        for letter in 0..n_letters as u32 {
            *budget = budget.checked_sub(states.len() as u64 + 1)?;
            let next = states.iter().filter_map(|&(index, state)| {
                let automaton = terminals.automata.get(index)?;
                Some((index, automaton.next(state, letter))).filter(|(_, state)| *state != DEAD)
            });
            let next: Vec<(usize, u32)> = next.collect();
            let ends = |&&(index, state): &&(usize, u32)| {
                terminals.automata.get(index).is_some_and(|automaton| automaton.accepts(state))
            };
            let group: Vec<usize> = next.iter().filter(ends).map(|(index, _)| *index).collect();
            if !group.is_empty() {
                // What matched is prefix-free, so the others are longer.
                confused.extend(next.iter().filter(|state| !ends(state)).map(|(index, _)| *index));
                groups.insert(group);
            }
            if !next.is_empty() && !seen.contains(&next) {
                seen.insert(next.clone());
                todo.push(next);
            }
        }
    }
    Some(groups.into_iter().collect())
}

/// The finite automaton over terminals.
struct Network {
    /// The nodes behind each node: without reading, and by terminal.
    free: Vec<Vec<usize>>,
    steps: Vec<Option<(Step, usize)>>,
    /// The first and the last node of each rule.
    ends: Vec<(usize, usize)>,
    start: usize,
}

impl Network {
    fn new(rules: &Rules, terminals: &Terminals<'_>) -> Option<Self> {
        let mut network = Network { free: Vec::new(), steps: Vec::new(), ends: Vec::new(), start: 0 };
        for _ in &rules.rules {
            let (first, last) = (network.node(), network.node());
            network.ends.push((first, last));
        }
        for (index, rule) in rules.rules.iter().enumerate() {
            let (first, last) = *network.ends.get(index)?;
            network.add(&rule.expr, first, last, terminals)?;
        }
        network.start = network.ends.get(rules.root)?.0;
        Some(network)
    }

    fn node(&mut self) -> usize {
        self.free.push(Vec::new());
        self.steps.push(None);
        self.free.len() - 1
    }

    fn link(&mut self, from: usize, to: usize) {
        self.free.get_mut(from).into_iter().for_each(|free| free.push(to));
    }

    /// Add the nodes of `expr` between two nodes.
    fn add(&mut self, expr: &Expr, from: usize, to: usize, terminals: &Terminals<'_>) -> Option<()> {
        let step = match expr {
            Expr::Terminal(inner) => Some(Step::Text(*terminals.indices.get(&**inner)?)),
            Expr::Token(index) => Some(Step::Token(*index)),
            _ => None,
        };
        match expr {
            Expr::Terminal(_) | Expr::Token(_) => {
                let own = self.node();
                self.link(from, own);
                *self.steps.get_mut(own)? = step.map(|step| (step, to));
            }
            Expr::Rule(index) => {
                let (first, last) = *self.ends.get(*index)?;
                self.link(from, first);
                self.link(last, to);
            }
            Expr::Sequence(items) => {
                let mut at = from;
                for item in items {
                    let next = self.node();
                    self.add(item, at, next, terminals)?;
                    at = next;
                }
                self.link(at, to);
            }
            Expr::Choice(items) => {
                items.iter().try_for_each(|item| self.add(item, from, to, terminals).map(drop))?;
            }
            // Counting is left out: any number of times is more than the grammar accepts.
            Expr::Repeat(inner, min, _) => {
                let (first, last) = (self.node(), self.node());
                self.add(inner, first, last, terminals)?;
                self.link(from, first);
                self.link(last, first);
                self.link(last, to);
                if *min == 0 {
                    self.link(from, to);
                }
            }
            Expr::Chars(_) | Expr::Literal(_) => return None,
        }
        Some(())
    }

    /// Return `nodes` and all that they reach without reading, as far as they have steps.
    fn closure(&self, nodes: impl IntoIterator<Item = usize>, budget: &mut u64) -> Option<Vec<usize>> {
        let mut todo: Vec<usize> = nodes.into_iter().collect();
        let mut seen: BTreeSet<usize> = todo.iter().copied().collect();
        while let Some(node) = todo.pop() {
            for &next in self.free.get(node)? {
                *budget = budget.checked_sub(1)?;
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        Some(seen.into_iter().filter(|&node| matches!(self.steps.get(node), Some(Some(_)))).collect())
    }

    /// Return the nodes behind `place` by terminal.
    fn steps(&self, place: &[usize]) -> BTreeMap<Step, Vec<usize>> {
        let mut steps: BTreeMap<Step, Vec<usize>> = BTreeMap::new();
        for (step, to) in place.iter().filter_map(|&node| *self.steps.get(node)?) {
            steps.entry(step).or_default().push(to);
        }
        steps
    }
}
