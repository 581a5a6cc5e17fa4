//! Places of values: one arena, shared by values that never live at the same time.
//!
//! A value lives from the first step that names it to the last, whatever those steps do.

use super::{computation::Graph, value::Value};
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// Rows of every value start at a multiple of this many `f32`s: a cache line.
const ALIGN: usize = 16;

/// The steps between which a value must keep its bytes.
#[derive(Clone, Copy, Debug)]
struct Life {
    first: usize,
    last: usize,
}

/// The values placed so far, at each step where they live: the step where the life of each began,
/// and its bytes.
///
/// Few values live at a step, so a value is compared with few others however many layers there are.
struct Placed(Vec<Vec<(usize, Range<usize>)>>);

impl Placed {
    /// Return the bytes of all that lives when `life` begins, or begins to live before it ends;
    /// each once.
    fn touching(&self, life: Life) -> Vec<Range<usize>> {
        let at = |step: usize| {
            let begun = self.0[step].iter().filter(move |(first, _)| step == life.first || step == *first);
            begun.map(|(_, bytes)| bytes.clone())
        };
        (life.first..=life.last).flat_map(at).collect()
    }

    fn add(&mut self, life: Life, bytes: Range<usize>) {
        for step in life.first..=life.last {
            self.0[step].push((life.first, bytes.clone()));
        }
    }
}

/// The place of every value in the arena.
///
/// Offsets count `f32`s *a token*: with n tokens in a ubatch a value starts at n times its offset,
/// so a single token uses a small, dense piece of the arena and a whole ubatch all of it.
///
/// # Example
/// ```
/// use backstitch_models::{Model, arch, gguf::Gguf, graph::Plan};
///
/// let (_, graph) = Model::describe(&Gguf::parse(backstitch_demo::GGUF)?, arch::ALL)?;
/// let plan = Plan::new(&graph);
/// assert!(plan.width() < plan.unshared_width() / 10);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    offsets: Vec<usize>,
    width: usize,
    unshared: usize,
}

impl Plan {
    /// Place the values of `graph`, widest first, each at the lowest offset where nothing lies that
    /// lives at the same time.
    pub fn new(graph: &Graph) -> Self {
        let lives = lives(graph);
        let width = |v: usize| graph.values[v].width.next_multiple_of(ALIGN);
        let mut order: Vec<(usize, Life)> =
            lives.iter().enumerate().filter_map(|(v, life)| life.map(|life| (v, life))).collect();
        order.sort_by_key(|&(v, _)| core::cmp::Reverse(width(v)));
        let mut plan = Plan { offsets: vec![0; lives.len()], width: 0, unshared: 0 };
        let mut placed = Placed(vec![vec![]; graph.steps.len()]);
        for (v, life) in order {
            let start = lowest_gap(width(v), placed.touching(life));
            let end = start + width(v);
            placed.add(life, start..end);
            plan.offsets[v] = start;
            plan.width = plan.width.max(end);
            plan.unshared += width(v);
        }
        plan
    }

    /// `f32`s of the arena a token.
    pub fn width(&self) -> usize {
        self.width
    }

    /// `f32`s a token that all values would take without sharing.
    pub fn unshared_width(&self) -> usize {
        self.unshared
    }

    /// Offset of a value, in `f32`s a token.
    pub fn offset(&self, value: Value) -> usize {
        self.offsets[value.0 as usize]
    }
}

fn lives(graph: &Graph) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; graph.values.len()];
    for (i, step) in graph.steps.iter().enumerate() {
        for value in step.reads.iter().chain(&step.writes) {
            lives[value.0 as usize].get_or_insert(Life { first: i, last: i }).last = i;
        }
    }
    lives
}

fn lowest_gap(width: usize, mut taken: Vec<Range<usize>>) -> usize {
    taken.sort_by_key(|r| r.start);
    let mut at = 0;
    for range in taken {
        if at + width <= range.start {
            break;
        }
        at = at.max(range.end);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{
        kind::Kind,
        step::Step,
        value::{Rows, ValueInfo},
    };

    fn step(x: usize, out: usize) -> Step {
        Step::new("add", Kind::Add).reading([Value(x as u32)]).writing([Value(out as u32)])
    }

    fn chain(n: usize) -> Graph {
        let mut graph = Graph::empty();
        graph.values = (0..n).map(|_| ValueInfo { name: "x", width: 20, rows: Rows::Tokens }).collect();
        graph.steps = (1..n).map(|i| step(i - 1, i)).collect();
        graph
    }

    #[test]
    fn a_chain_of_any_length_needs_two_places() {
        for n in 2..40 {
            let plan = Plan::new(&chain(n));
            assert_eq!(plan.width(), 64);
            assert_eq!(plan.unshared_width(), 32 * n);
        }
    }

    #[test]
    fn values_that_live_together_never_overlap() {
        let mut graph = chain(12);
        for (x, y) in [(0, 5), (3, 11), (7, 8)] {
            graph.steps.push(step(x, y));
        }
        let touch = |a: Life, b: Life| a.first <= b.last && b.first <= a.last;
        let (plan, lives) = (Plan::new(&graph), lives(&graph));
        for a in 0..12 {
            for b in 0..a {
                let (x, y) = (plan.offsets[a], plan.offsets[b]);
                let apart = x + 32 <= y || y + 32 <= x;
                assert!(apart || !touch(lives[a].unwrap(), lives[b].unwrap()), "{a} and {b}");
            }
        }
    }
}
