//! Tables of cases: one check, many inputs, and a report of every input that fails instead of the
//! first.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Run `check` on each case, and fail the test afterwards with a list of all cases that panicked.
///
/// ```
/// backstitch_testing::each([(0, 1), (1, 2), (41, 42)], |&(x, wanted)| assert_eq!(x + 1, wanted));
/// ```
///
/// A table without cases fails too. It proves nothing, and usually comes from a wrong filter or
/// folder.
#[track_caller]
pub fn each<C: Debug>(cases: impl IntoIterator<Item = C>, check: impl Fn(&C)) {
    let mut n = 0;
    let mut failures = Vec::new();
    for case in cases {
        n += 1;
        // A check that fails leaves nothing behind that the next case could see: it owns no state.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&case))) {
            failures.push(format!("{case:?}: {}", message(&*panic)));
        }
    }
    assert!(n > 0, "the table holds no cases");
    assert!(failures.is_empty(), "{} of {n} cases failed:\n{}", failures.len(), failures.join("\n"));
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panicked without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(run: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a failing table must fail the test");
        message(&*panic).to_string()
    }

    #[test]
    fn all_cases_run_and_every_failing_one_is_named() {
        let seen = std::cell::RefCell::new(Vec::new());
        let text = report(|| {
            each([1, 2, 3, 4], |&x| {
                seen.borrow_mut().push(x);
                assert!(x % 2 == 1, "{x} is even");
            });
        });
        assert_eq!(*seen.borrow(), [1, 2, 3, 4]);
        assert_eq!(text, "2 of 4 cases failed:\n2: 2 is even\n4: 4 is even");
    }

    #[test]
    fn constant_messages_and_foreign_payloads_are_reported() {
        assert_eq!(report(|| each([()], |()| panic!("plain"))), "1 of 1 cases failed:\n(): plain");
        let foreign = report(|| each([()], |()| std::panic::panic_any(7)));
        assert_eq!(foreign, "1 of 1 cases failed:\n(): panicked without a message");
    }

    #[test]
    fn an_empty_table_fails() {
        assert_eq!(report(|| each([(); 0], |()| ())), "the table holds no cases");
    }
}
