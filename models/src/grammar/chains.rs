//! Chains of definitions that refer to each other, over which the library recurses.

use alloc::{vec, vec::Vec};

/// Return the largest weight of a chain of definitions, each of which refers to the next one.
/// `edges` has for each definition those that it refers to.
///
/// A definition is in a chain once at most. How many of those that lead to each other a chain can
/// have is hard to tell, so all of them count.
pub(super) fn heaviest(weights: &[usize], edges: &[Vec<usize>]) -> usize {
    let mut users = vec![Vec::new(); weights.len()];
    for (user, targets) in edges.iter().enumerate() {
        for &target in targets {
            users.get_mut(target).into_iter().for_each(|users: &mut Vec<usize>| users.push(user));
        }
    }
    // The groups of definitions that lead to each other, those first that are not referred to; and
    // the heaviest chain that ends in each.
    let mut groups: Vec<Option<usize>> = vec![None; weights.len()];
    let mut chains: Vec<usize> = Vec::new();
    for &first in finished(edges).iter().rev() {
        let (mut todo, mut own, mut before) = (vec![first], 0_usize, 0);
        while let Some(node) = todo.pop() {
            let Some(group) = groups.get_mut(node) else { continue };
            match *group {
                None => {
                    *group = Some(chains.len());
                    own = own.saturating_add(weights.get(node).copied().unwrap_or(0));
                    todo.extend(users.get(node).into_iter().flatten());
                }
                Some(earlier) => before = before.max(chains.get(earlier).copied().unwrap_or(0)),
            }
        }
        chains.push(own.saturating_add(before));
    }
    chains.into_iter().max().unwrap_or(0)
}

/// Return the definitions in an order in which each comes behind those to which it leads, unless
/// these lead back to it.
fn finished(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(edges.len());
    let mut is_seen = vec![false; edges.len()];
    for start in 0..edges.len() {
        // The definitions of the current chain, and the number of references of each that are done.
        let mut chain = vec![(start, 0)];
        while let Some((node, n_done)) = chain.last_mut() {
            let (index, done) = (*node, *n_done);
            *n_done += 1;
            if done == 0 && is_seen.get_mut(index).is_none_or(|seen| core::mem::replace(seen, true)) {
                chain.pop();
                continue;
            }
            match edges.get(index).and_then(|targets| targets.get(done)) {
                Some(&target) => chain.push((target, 0)),
                None => {
                    order.push(index);
                    chain.pop();
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Return the weight of the heaviest chain from `node` on, by going all ways.
    fn from(node: usize, weights: &[usize], edges: &[Vec<usize>], chain: &mut Vec<usize>) -> usize {
        if chain.contains(&node) {
            return 0;
        }
        chain.push(node);
        let rest = edges[node].iter().map(|&next| from(next, weights, edges, chain)).max();
        chain.pop();
        weights[node] + rest.unwrap_or(0)
    }

    #[test]
    fn definitions_that_lead_to_each_other_all_count() {
        assert_eq!(heaviest(&[1, 10, 100], &[vec![1], vec![2], vec![]]), 111);
        assert_eq!(heaviest(&[1, 10, 100, 1000], &[vec![1, 2], vec![0], vec![], vec![0]]), 1111);
        assert_eq!(heaviest(&[5, 7], &[vec![0], vec![1]]), 7);
        assert_eq!(heaviest(&[], &[]), 0);
        let n = 200_000;
        let edges: Vec<Vec<usize>> = (0..n).map(|i| vec![(i + 1) % n]).collect();
        assert_eq!(heaviest(&vec![1; n], &edges), n);
    }

    proptest! {
        #[test]
        fn no_chain_is_heavier(
            weights in prop::collection::vec(0_usize..9, 6),
            links in prop::collection::vec((0_usize..6, 0_usize..6), 0..9),
        ) {
            let mut edges = vec![Vec::new(); 6];
            links.iter().for_each(|&(from, to)| edges[from].push(to));
            let found = heaviest(&weights, &edges);
            let expected = (0..6).map(|node| from(node, &weights, &edges, &mut vec![])).max();
            prop_assert!(found >= expected.unwrap());
            if links.iter().all(|(from, to)| from < to) {
                prop_assert_eq!(Some(found), expected);
            }
        }
    }
}
