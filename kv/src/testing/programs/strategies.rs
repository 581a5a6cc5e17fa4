//! Strategies of proptest for random programs.

use super::{End, Step};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn range() -> impl Strategy<Value = (u8, u8)> {
    // 255 is an open end; small numbers make prefixes.
    let start = prop_oneof![2 => Just(0u8), 3 => 0u8..90];
    let end = prop_oneof![3 => Just(255u8), 4 => 0u8..100];
    (start, end)
}

/// Return a strategy for a step. Most steps append, roll back or fork.
pub fn step() -> impl Strategy<Value = Step> {
    let seqs = prop_oneof![3 => (0u8..4).prop_map(|s| 1 << s), 1 => 1u8..16];
    let end = prop_oneof![6 => Just(End::Commit), 2 => (0u8..4).prop_map(End::Drop), 1 => Just(End::Leak)];
    let runs = prop::collection::vec((seqs.clone(), 1u8..40), 1..4);
    let restored = end.clone();
    let appended = prop::collection::vec((seqs.clone(), 1u8..40), 0..3);
    let back = prop::option::of((0u8..4, prop_oneof![0u8..8, 0u8..60]));
    prop_oneof![
        18 => (runs, any::<bool>(), 1u8..48, end)
            .prop_map(|(runs, woven, n_ubatch, end)| Step::Decode { runs, woven, n_ubatch, end }),
        1 => (seqs, -3i8..4).prop_map(|(seqs, offset)| Step::Misplaced { seqs, offset }),
        2 => (0u8..5, range()).prop_map(|(seq, range)| Step::Remove { seq, range }),
        3 => (0u8..4, 1u8..40).prop_map(|(seq, n)| Step::RemoveTail { seq, n }),
        10 => (0u8..5, prop_oneof![4 => 1u8..8, 2 => 0u8..90], 1u8..6, prop::option::weighted(0.2, 0u8..4))
            .prop_map(|(seq, n, n_ubatch, dropped)| Step::Rewind { seq, n, n_ubatch, dropped }),
        1 => (0u8..5).prop_map(|seq| Step::Pin { seq }),
        1 => (0u8..4, 0u8..40).prop_map(|(seq, n)| Step::Unpin { seq, n }),
        3 => (1u8..16, back, appended, any::<bool>(), any::<bool>())
            .prop_map(|(seqs, back, runs, room, committed)| Step::Savepoint { seqs, back, runs, room, committed }),
        4 => (0u8..5, 0u8..4, prop_oneof![range(), Just((0, 255))], prop::bool::weighted(0.8))
            .prop_map(|(src, dst, range, emptied)| Step::Copy { src, dst, range, emptied }),
        2 => (0u8..4, range(), -40i8..40).prop_map(|(seq, range, delta)| Step::Add { seq, range, delta }),
        1 => (0u8..4, range(), -1i8..5).prop_map(|(seq, range, divisor)| Step::Divide { seq, range, divisor }),
        2 => Just(Step::MoveOut),
        2 => (0u8..9, any::<bool>()).prop_map(|(journal, few)| Step::MoveElsewhere { journal, few }),
        3 => (0u8..4, 0u8..5, restored).prop_map(|(src, dst, end)| Step::Restore { src, dst, end }),
        1 => prop_oneof![2 => (0u8..5).prop_map(|seq| Step::Keep { seq }), 1 => Just(Step::Clear)],
    ]
}

/// Return a strategy for a program: the number of cells, and the steps.
pub fn program() -> impl Strategy<Value = (u32, Vec<Step>)> {
    // From a cache that two long sequences fill to one that is rarely full.
    (prop::sample::select(vec![33, 100, 132, 164, 192, 192, 224, 700]), prop::collection::vec(step(), 1..50))
}
