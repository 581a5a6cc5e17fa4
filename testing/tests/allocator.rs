//! The allocator's promises, in a binary of their own because it is installed globally. There is
//! one test, because counts over all threads would include other tests.

use std::hint::black_box;

use backstitch_testing::{Counting, Tally};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

fn reserve(n: usize) -> bool {
    black_box(Vec::<u8>::new()).try_reserve_exact(n).is_ok()
}

#[test]
fn requests_are_counted_and_refused_where_promised() {
    nothing_counts_as_nothing();
    every_kind_of_request_counts();
    other_threads_count_in_during_alone();
    refusal_begins_after_the_granted_requests_and_ends_with_the_closure();
    refusal_ends_when_the_closure_panics();
}

fn nothing_counts_as_nothing() {
    let mut room = Vec::with_capacity(8);
    let ((), tally) = ALLOCATOR.during_here(|| room.extend([1u8; 8]));
    assert_eq!(tally, Tally::default());
    let ((), tally) = ALLOCATOR.during_here(|| drop(room));
    assert_eq!(tally, Tally::default());
}

fn every_kind_of_request_counts() {
    let (mut bytes, fresh) = ALLOCATOR.during_here(|| black_box(Vec::<u8>::with_capacity(100)));
    assert_eq!(fresh, Tally { allocations: 1, bytes: 100 });
    let (zeroes, zeroed) = ALLOCATOR.during_here(|| black_box(vec![0u8; 50]));
    assert_eq!(zeroed, Tally { allocations: 1, bytes: 50 });
    bytes.extend(&zeroes);
    let ((), grown) = ALLOCATOR.during_here(|| bytes.reserve_exact(250));
    assert_eq!(grown, Tally { allocations: 1, bytes: 200 });
    let ((), shrunk) = ALLOCATOR.during_here(|| bytes.shrink_to_fit());
    assert_eq!(shrunk, Tally::default());
}

fn other_threads_count_in_during_alone() {
    let elsewhere = || std::thread::scope(|s| s.spawn(|| reserve(1 << 20)).join().unwrap());
    let (_, everywhere) = ALLOCATOR.during(elsewhere);
    assert!(everywhere.bytes >= 1 << 20, "{everywhere:?}");
    let (_, here) = ALLOCATOR.during_here(elsewhere);
    assert!(here.bytes < 1 << 20, "{here:?}");
}

fn refusal_begins_after_the_granted_requests_and_ends_with_the_closure() {
    let granted = ALLOCATOR.refusing_after(2, || [reserve(1), reserve(1), reserve(1), reserve(1)]);
    assert_eq!(granted, [true, true, false, false]);
    assert!(reserve(1));
    let mut bytes = vec![1u8; 10];
    let grown = ALLOCATOR.refusing_after(0, || bytes.try_reserve_exact(100).is_ok());
    assert!(!grown);
    assert_eq!(bytes, [1; 10]);
}

fn refusal_ends_when_the_closure_panics() {
    // `resume_unwind` would allocate its payload under refusal, so the box is made before.
    let payload: Box<dyn std::any::Any + Send> = Box::new(());
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ALLOCATOR.refusing_after(8, || std::panic::resume_unwind(payload))
    }));
    assert!(unwound.is_err());
    assert!((0..20).all(|_| reserve(1)));
}
