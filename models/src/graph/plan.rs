//! Where values live: one arena, shared by values that never live at the same time.

use super::{Graph, Value};
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

impl Life {
    fn touches(self, other: Life) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The place of every value in the arena.
///
/// Offsets count `f32`s *a token*: with n tokens in a ubatch a value starts at n times its offset, so a single token
/// uses a small, dense piece of the arena and a whole ubatch all of it.
#[derive(Clone, Debug)]
pub struct Plan {
    offsets: Vec<usize>,
    width: usize,
    unshared: usize,
}

impl Plan {
    /// Places the values of `graph`, widest first, each at the lowest offset where nothing that lives at the same time
    /// lies.
    pub fn new(graph: &Graph) -> Self {
        let lives = lives(graph);
        let width = |v: usize| graph.values[v].width.next_multiple_of(ALIGN);
        let mut order: Vec<usize> = (0..lives.len()).filter(|&v| lives[v].is_some()).collect();
        order.sort_by_key(|&v| core::cmp::Reverse(width(v)));
        let mut offsets = vec![0; lives.len()];
        let mut placed: Vec<usize> = Vec::with_capacity(order.len());
        for v in order {
            let conflicts = placed.iter().filter(|&&u| match (lives[u], lives[v]) {
                (Some(a), Some(b)) => a.touches(b),
                _ => false,
            });
            offsets[v] =
                lowest_gap(width(v), conflicts.map(|&u| offsets[u]..offsets[u] + width(u)).collect());
            placed.push(v);
        }
        let arena = placed.iter().map(|&v| offsets[v] + width(v)).max().unwrap_or(0);
        Plan { offsets, width: arena, unshared: placed.iter().map(|&v| width(v)).sum() }
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
        step.op.each_value(|value, _| {
            lives[value.0 as usize].get_or_insert(Life { first: i, last: i }).last = i;
        });
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
    use super::super::{Op, Rows, Step, ValueInfo};
    use super::*;

    fn chain(n: usize) -> Graph {
        let values = (0..n).map(|_| ValueInfo { name: "x", width: 20, rows: Rows::Tokens }).collect();
        let step = |i: usize| Op::Outputs { x: Value(i as u32 - 1), out: Value(i as u32) };
        let steps = (1..n).map(|i| Step { op: step(i), layer: None }).collect();
        Graph { values, steps, weights: vec![], ropes: vec![], layers: vec![] }
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
        graph.steps.push(Step { op: Op::Add { x: Value(0), y: Value(5) }, layer: None });
        let (plan, lives) = (Plan::new(&graph), lives(&graph));
        for a in 0..12 {
            for b in 0..a {
                let (x, y) = (plan.offsets[a], plan.offsets[b]);
                let apart = x + 32 <= y || y + 32 <= x;
                assert!(apart || !lives[a].unwrap().touches(lives[b].unwrap()), "{a} and {b}");
            }
        }
    }
}
