//! Words divided by case: `McDonald` is `Mc` and `Donald`.

use super::class::{Class, Look, look, run_up_to};
use super::rules::{Step, contraction, lines_or_space, may_lead, signs_then};
use super::scripts::is_han;

/// `P?U*L+C?|P?U+L*C?|\p{N}{1,digits}| ?S+[closing]*|V`, in which P is `[^\r\n\p{L}\p{N}]`, U
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, L `[\p{Ll}\p{Lm}\p{Lo}\p{M}]` and C a contraction in any
/// case. `S` and `V` are those of [`Rule`](super::rules::Rule).
#[derive(Clone, Copy, Debug)]
pub(super) struct Cased {
    /// True if there is a `C?`.
    pub(super) contractions: bool,
    /// The longest number, in digits.
    pub(super) digits: usize,
    /// The characters that belong to the signs before them.
    pub(super) closing: &'static str,
    /// True if `\p{Han}+` comes first, and U and L are without Han.
    pub(super) han_apart: bool,
}

/// The characters U.
const UPPERS: Class = Class::UPPER.or(Class::CASELESS).or(Class::MARK);
/// The characters L.
const LOWERS: Class = Class::LOWER.or(Class::CASELESS).or(Class::MARK);

impl Cased {
    /// Apply this expression at byte `at` of `text`.
    pub(super) fn step(self, text: &str, at: usize) -> Step {
        let first = look(text, at);
        if self.han_apart && is_han(first.char) {
            return Step::Word(super::class::run_of(text, at, is_han));
        }
        if let Some(end) = self.word(text, at, first) {
            let contracted =
                if self.contractions { contraction(text, end, look(text, end), true) } else { None };
            return Step::Word(contracted.unwrap_or(end));
        }
        if first.is(Class::NUMBER) {
            return Step::Word(run_up_to(text, at, Class::NUMBER, self.digits));
        }
        match signs_then(text, at, first, Class::SIGN, self.closing) {
            Some(end) => Step::Word(end),
            None => lines_or_space(text, at),
        }
    }

    /// Match `P?U*L+|P?U+L*`: the first of the four readings that matches.
    fn word(self, text: &str, at: usize, first: Look) -> Option<usize> {
        let led = if may_lead(first) { at + first.len } else { at };
        self.lower_end(text, led)
            .or_else(|| self.lower_end(text, at))
            .or_else(|| self.upper_end(text, led))
            .or_else(|| self.upper_end(text, at))
    }

    /// Return the end of `U*L+` from `at` on. If no `L` follows the longest `U*`, the match ends
    /// after the last character that is both.
    fn lower_end(self, text: &str, at: usize) -> Option<usize> {
        let (mut uppers, mut last_both) = (at, None);
        loop {
            let next = look(text, uppers);
            if !self.has(next, UPPERS) {
                break;
            }
            uppers += next.len;
            if next.is(LOWERS) {
                last_both = Some(uppers);
            }
        }
        let end = self.run(text, uppers, LOWERS);
        if end > uppers { Some(end) } else { last_both }
    }

    /// Return the end of `U+L*` from `at` on, if [`lower_end`](Self::lower_end) found nothing.
    fn upper_end(self, text: &str, at: usize) -> Option<usize> {
        let end = self.run(text, at, UPPERS);
        (end > at).then_some(end)
    }

    /// Return the end of the characters of `class` that start at `at`.
    fn run(self, text: &str, mut at: usize, class: Class) -> usize {
        loop {
            let next = look(text, at);
            if !self.has(next, class) {
                return at;
            }
            at += next.len;
        }
    }

    /// Return true if the character is in `class`, which is U or L.
    fn has(self, next: Look, class: Class) -> bool {
        next.is(class) && !(self.han_apart && is_han(next.char))
    }
}
