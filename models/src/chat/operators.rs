//! Operators, as in Python.
//!
//! Strings and lists can be added and multiplied by an integer. `%` on a string formats it.
//! Operations without a result in Python are faults here, and so are integers beyond 64 bits.

use alloc::format;
use alloc::vec::Vec;

use super::ast::{CompareOp, MathOp};
use super::error::{Eval, Fault};
use super::format as formatting;
use super::heap::Val;
use super::machine::Machine;
use super::text::{Buf, Str};

/// Evaluate `-value`.
pub(super) fn negative(value: &Val) -> Eval<Val> {
    match (value, value.as_int()) {
        (Val::Float(x), _) => Ok(Val::Float(-x)),
        (_, Some(n)) => n.checked_neg().map(Val::Int).ok_or_else(too_large),
        _ => Err(Fault::failed(format!("{} has no negative", value.kind()))),
    }
}

/// Evaluate `+value`.
pub(super) fn positive(value: Val) -> Eval<Val> {
    match (&value, value.as_int()) {
        (Val::Float(_), _) => Ok(value),
        (_, Some(n)) => Ok(Val::Int(n)),
        _ => Err(Fault::failed(format!("{} is no number", value.kind()))),
    }
}

/// Return the fault of a number beyond 64 bits.
fn too_large() -> Fault {
    Fault::failed("a number beyond 64 bits")
}

impl Machine<'_, '_> {
    /// Evaluate an arithmetic operator.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the operator is not defined for the values, divides by zero, or gives
    /// an integer beyond 64 bits.
    pub(super) fn calculate(&mut self, op: MathOp, a: &Val, b: &Val) -> Eval<Val> {
        self.budget.pay(1)?;
        match (op, a, b) {
            (MathOp::Add, Val::Str(a), Val::Str(b)) => {
                self.budget.bytes(a.len() + b.len())?;
                let mut out = Buf::default();
                out.push_str(a);
                out.push_str(b);
                Ok(Val::Str(out.finish()))
            }
            (MathOp::Add, Val::List(x), Val::List(y)) => {
                let items = self.joined(*x, *y)?;
                self.new_list(items)
            }
            (MathOp::Add, Val::Tuple(x), Val::Tuple(y)) => {
                let items = self.joined(*x, *y)?;
                self.new_tuple(items)
            }
            (MathOp::Mul, sequence @ (Val::Str(_) | Val::List(_) | Val::Tuple(_)), n)
            | (MathOp::Mul, n, sequence @ (Val::Str(_) | Val::List(_) | Val::Tuple(_))) => {
                let n = n.as_int().ok_or_else(|| unfit(op, a, b))?;
                self.repeated(sequence, n.max(0) as u64)
            }
            (MathOp::Rem, Val::Str(template), args) => {
                let args = match args {
                    Val::Tuple(items) => self.items_of(&Val::Tuple(*items))?,
                    other => Vec::from([other.clone()]),
                };
                formatting::percent(self, template, &args, &[]).map(Val::Str)
            }
            _ => numbers(op, a, b),
        }
    }

    /// Return the items of two lists.
    fn joined(&mut self, x: u32, y: u32) -> Eval<Vec<Val>> {
        self.budget.values(self.heap.list(x).len() + self.heap.list(y).len())?;
        Ok([self.heap.list(x), self.heap.list(y)].concat())
    }

    /// Evaluate `sequence * n`. The whole result is charged before it is made, so a large `n` costs
    /// nothing but the fault.
    fn repeated(&mut self, sequence: &Val, n: u64) -> Eval<Val> {
        match sequence {
            Val::Str(text) => {
                self.budget.pay((text.len() as u64).saturating_mul(n))?;
                let mut out = Buf::default();
                if !text.is_empty() {
                    (0..n).for_each(|_| out.push_str(text));
                }
                Ok(Val::Str(out.finish()))
            }
            Val::List(list) | Val::Tuple(list) => {
                let len = self.heap.list(*list).len();
                let total = (len as u64).saturating_mul(n);
                self.budget.pay(total.saturating_mul(super::budget::VALUE))?;
                let items = self.heap.list(*list).iter().cycle().take(total as usize).cloned().collect();
                if let Val::Tuple(_) = sequence { self.new_tuple(items) } else { self.new_list(items) }
            }
            other => Err(Fault::failed(format!("{} cannot be repeated", other.kind()))),
        }
    }

    /// Evaluate a comparison.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the values have no order, or `in` is asked of a value that has no
    /// items.
    pub(super) fn compare(&mut self, op: CompareOp, a: &Val, b: &Val) -> Eval<bool> {
        use core::cmp::Ordering::{Greater, Less};
        self.budget.pay(1)?;
        Ok(match op {
            CompareOp::Eq => self.equal(a, b)?,
            CompareOp::Ne => !self.equal(a, b)?,
            CompareOp::Lt => self.order(a, b)? == Some(Less),
            CompareOp::Le => matches!(self.order(a, b)?, Some(order) if order != Greater),
            CompareOp::Gt => self.order(a, b)? == Some(Greater),
            CompareOp::Ge => matches!(self.order(a, b)?, Some(order) if order != Less),
            CompareOp::In => self.contains(b, a)?,
            CompareOp::NotIn => !self.contains(b, a)?,
        })
    }

    /// Evaluate `item in container`: a substring of a string, a key of a dict, or an item of a
    /// sequence.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the container has no items, or is a string and the item is not.
    pub(super) fn contains(&mut self, container: &Val, item: &Val) -> Eval<bool> {
        match (container, item) {
            (Val::Str(text), Val::Str(part)) => self.find(text, part).map(|at| at.is_some()),
            (Val::Str(_), other) => {
                Err(Fault::failed(format!("in a string only strings are found, not {}", other.kind())))
            }
            (Val::Dict(dict), _) => {
                let key = self.key_of(item)?;
                Ok(self.get(*dict, &key)?.is_some())
            }
            _ => {
                for other in self.items_of(container)? {
                    if self.equal(&other, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Return the byte offset of the first `part` in `text`.
    pub(super) fn find(&mut self, text: &Str, part: &Str) -> Eval<Option<usize>> {
        self.budget.bytes(text.len() + part.len())?;
        Ok(text.as_str().find(part.as_str()))
    }
}

/// Return the fault of an operator that is not defined for these values.
fn unfit(op: MathOp, a: &Val, b: &Val) -> Fault {
    let op = match op {
        MathOp::Add => "+",
        MathOp::Sub => "-",
        MathOp::Mul => "*",
        MathOp::Div => "/",
        MathOp::FloorDiv => "//",
        MathOp::Rem => "%",
        MathOp::Pow => "**",
    };
    Fault::failed(format!("{} {op} {} has no meaning", a.kind(), b.kind()))
}

/// Evaluate an operator on two numbers.
fn numbers(op: MathOp, a: &Val, b: &Val) -> Eval<Val> {
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int())
        && op != MathOp::Div
    {
        return integers(op, x, y);
    }
    let (Some(x), Some(y)) = (a.as_float(), b.as_float()) else { return Err(unfit(op, a, b)) };
    if y == 0.0 && matches!(op, MathOp::Div | MathOp::FloorDiv | MathOp::Rem) {
        return Err(Fault::failed("division by zero"));
    }
    Ok(Val::Float(match op {
        MathOp::Add => x + y,
        MathOp::Sub => x - y,
        MathOp::Mul => x * y,
        MathOp::Div => x / y,
        MathOp::FloorDiv => libm::floor((x - remainder(x, y)) / y + 0.5),
        MathOp::Rem => remainder(x, y),
        MathOp::Pow if x == 0.0 && y < 0.0 => return Err(Fault::failed("zero to a negative power")),
        MathOp::Pow if x < 0.0 && libm::floor(y) != y => {
            return Err(Fault::failed("a negative number to a power that is no integer"));
        }
        MathOp::Pow => libm::pow(x, y),
    }))
}

/// Return the remainder with the sign of the divisor.
fn remainder(x: f64, y: f64) -> f64 {
    let rest = libm::fmod(x, y);
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

/// Evaluate an operator on two integers. Division rounds towards minus infinity, as in Python.
fn integers(op: MathOp, x: i64, y: i64) -> Eval<Val> {
    if y == 0 && matches!(op, MathOp::FloorDiv | MathOp::Rem) {
        return Err(Fault::failed("division by zero"));
    }
    let result = match op {
        MathOp::Add => x.checked_add(y),
        MathOp::Sub => x.checked_sub(y),
        MathOp::Mul => x.checked_mul(y),
        MathOp::Rem => {
            x.checked_rem(y).map(|rest| if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest })
        }
        MathOp::FloorDiv => {
            let inexact = x.checked_rem(y).is_some_and(|rest| rest != 0);
            x.checked_div(y).map(|quotient| quotient - i64::from(inexact && (x < 0) != (y < 0)))
        }
        MathOp::Pow if y < 0 => return numbers(op, &Val::Float(x as f64), &Val::Float(y as f64)),
        MathOp::Pow => match (x, u32::try_from(y)) {
            (0 | 1, _) => Some(if y == 0 { 1 } else { x }),
            (-1, _) => Some(if y % 2 == 0 { 1 } else { -1 }),
            (x, Ok(y)) => x.checked_pow(y),
            (_, Err(_)) => None,
        },
        MathOp::Div => None,
    };
    result.map(Val::Int).ok_or_else(too_large)
}
