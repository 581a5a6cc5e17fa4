//! Expressions that group digits from the right, as people write large numbers.
//!
//! The place of a group depends on the length of the whole run of digits. A run is measured once
//! or twice and then cut at once, so that long ones take linear time.

use unicode_general_category::{GeneralCategory as Category, get_general_category};

use super::class::{Class, look, run, run_of};
use super::rules::Step;

/// Match `\p{N}{1,3}`, in each run of numbers from the right.
pub(super) fn numbers_from_right(text: &str, at: usize) -> Step {
    let end = run(text, at, Class::NUMBER);
    if end == at { Step::Between(at + look(text, at).len) } else { from_right(text, at, end) }
}

/// Match `\d{1,3}(?=(?:\d{3})*\b)`: digits from the right, in runs that do not continue as a word.
pub(super) fn digits_before_end(text: &str, at: usize) -> Step {
    let end = run_of(text, at, is_digit);
    let continues = text.get(end..).and_then(|rest| rest.chars().next()).is_some_and(is_word);
    if end == at {
        Step::Between(at + look(text, at).len)
    } else if continues {
        Step::Between(end)
    } else {
        from_right(text, at, end)
    }
}

/// Match the empty word before each group of three digits, counted from the right. The digits that
/// are left over stay with what is before them.
pub(super) fn digit_groups(text: &str, at: usize) -> Step {
    let end = run_of(text, at, is_digit);
    let left_over = text.get(at..end).map_or(0, |digits| digits.chars().count() % 3);
    if end == at {
        Step::Between(at + look(text, at).len)
    } else if left_over > 0 {
        Step::Between(after_chars(text, at, left_over))
    } else {
        Step::Words { end, next: three }
    }
}

/// Cut the digits from `at` to `end` into the one or two that are left over, and groups of three.
fn from_right(text: &str, at: usize, end: usize) -> Step {
    let left_over = text.get(at..end).map_or(0, |digits| digits.chars().count() % 3);
    if left_over > 0 {
        Step::Word(after_chars(text, at, left_over))
    } else {
        Step::Words { end, next: three }
    }
}

/// Return the offset after three characters.
fn three(text: &str, at: usize, end: usize) -> usize {
    after_chars(text, at, 3).min(end)
}

/// Return the offset after `n` characters from `at` on.
fn after_chars(text: &str, at: usize, n: usize) -> usize {
    at + text.get(at..).unwrap_or("").chars().take(n).map(char::len_utf8).sum::<usize>()
}

/// Return true for `\d`.
fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && get_general_category(c) == Category::DecimalNumber
}

/// Return true for `\w`: letters and what Unicode counts as alphabetic, marks, digits, and
/// punctuation that joins words.
fn is_word(c: char) -> bool {
    c.is_alphabetic()
        || is_digit(c)
        || Class::of(c).meets(Class::MARK)
        || get_general_category(c) == Category::ConnectorPunctuation
}
