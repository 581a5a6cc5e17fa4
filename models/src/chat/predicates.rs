//! Tests, which follow `is`: `value is defined`, `n is divisibleby 3`.
//!
//! The set is that of Jinja 3. Comparisons have names too, for filters such as `select('gt', 2)`.

use alloc::format;

use super::arguments::Arguments;
use super::ast::CompareOp;
use super::error::{Eval, Fault};
use super::filters;
use super::heap::{Val, View};
use super::machine::Machine;
use super::text::Str;

/// The names of all tests.
const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

impl Machine<'_, '_> {
    /// Evaluate `value is name(…)`.
    ///
    /// # Errors
    /// [`Fault::Failed`] if there is no such test, or value and arguments do not fit it.
    pub(super) fn test(&mut self, name: &Str, value: &Val, given: Arguments) -> Eval<bool> {
        self.budget.pay(super::budget::STEP)?;
        let op = match name.as_str() {
            "eq" | "equalto" | "==" => CompareOp::Eq,
            "ne" | "!=" => CompareOp::Ne,
            "lt" | "lessthan" | "<" => CompareOp::Lt,
            "le" | "<=" => CompareOp::Le,
            "gt" | "greaterthan" | ">" => CompareOp::Gt,
            "ge" | ">=" => CompareOp::Ge,
            "in" => CompareOp::In,
            "divisibleby" => {
                let by = given.one("divisibleby")?;
                let rest = self.calculate(super::ast::MathOp::Rem, value, &by)?;
                return Ok(!rest.is_true(&self.heap));
            }
            "sameas" => {
                let other = given.one("sameas")?;
                return self.same(value, &other);
            }
            other => {
                given.none(other)?;
                return self.test_alone(other, value);
            }
        };
        let other = given.one(name.as_str())?;
        self.compare(op, value, &other)
    }

    /// Return true if both are the same object. Texts and numbers, which have no identity here, are
    /// the same if they are equal and of one type.
    fn same(&mut self, a: &Val, b: &Val) -> Eval<bool> {
        Ok(match (a, b) {
            (Val::List(x), Val::List(y)) | (Val::Tuple(x), Val::Tuple(y)) | (Val::Dict(x), Val::Dict(y)) => {
                x == y
            }
            (Val::Undefined, Val::Undefined) => false,
            (a, b) => core::mem::discriminant(a) == core::mem::discriminant(b) && self.equal(a, b)?,
        })
    }

    /// Evaluate a test without arguments.
    fn test_alone(&mut self, name: &str, value: &Val) -> Eval<bool> {
        Ok(match name {
            "defined" => !matches!(value, Val::Undefined),
            "undefined" => matches!(value, Val::Undefined),
            "none" => matches!(value, Val::None),
            "boolean" => matches!(value, Val::Bool(_)),
            "true" => matches!(value, Val::Bool(true)),
            "false" => matches!(value, Val::Bool(false)),
            "integer" => matches!(value, Val::Int(_)),
            "float" => matches!(value, Val::Float(_)),
            "number" => value.as_float().is_some(),
            "string" => matches!(value, Val::Str(_)),
            "mapping" => matches!(value, Val::Dict(_)),
            "sequence" => matches!(
                value,
                Val::Str(_)
                    | Val::List(_)
                    | Val::Tuple(_)
                    | Val::Dict(_)
                    | Val::Undefined
                    | Val::View(View::Range, _)
            ),
            "iterable" => !matches!(
                value,
                Val::None
                    | Val::Bool(_)
                    | Val::Int(_)
                    | Val::Float(_)
                    | Val::Namespace(_)
                    | Val::Macro(_)
                    | Val::Method(_)
                    | Val::Function(_)
                    | Val::Cycle(_)
            ),
            "callable" => {
                matches!(
                    value,
                    Val::Macro(_) | Val::Method(_) | Val::Function(_) | Val::Cycle(_) | Val::Loop(_)
                )
            }
            "escaped" => false,
            "odd" | "even" => {
                let rest = self.calculate(super::ast::MathOp::Rem, value, &Val::Int(2))?;
                (name == "odd") == rest.is_true(&self.heap)
            }
            "lower" | "upper" => {
                let text = self.text_of(value)?;
                self.budget.bytes(text.len())?;
                let (has_lower, has_upper) = (
                    text.as_str().chars().any(char::is_lowercase),
                    text.as_str().chars().any(char::is_uppercase),
                );
                if name == "lower" { has_lower && !has_upper } else { has_upper && !has_lower }
            }
            "filter" => matches!(value, Val::Str(name) if filters::NAMES.contains(&name.as_str())),
            "test" => matches!(value, Val::Str(name) if NAMES.contains(&name.as_str())),
            other => return Err(Fault::failed(format!("there is no test {other:?}"))),
        })
    }
}
