//! Operations that visit values recursively: equality, order, keys, their texts as Python prints
//! them, and sorting.
//!
//! Values can share and even contain each other, so every step is charged, and the depth is
//! bounded.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::budget::STEP;
use super::error::{Eval, Fault};
use super::heap::{Function, Key, Val, View};
use super::machine::Machine;
use super::numbers;
use super::text::{Buf, Origin, Str};

/// The deepest nesting of values that are visited.
pub(super) const MAX_DEPTH: u32 = 100;

/// The number of keys that a long text is assumed to be compared with in full when a dict looks it
/// up. Keys with a common beginning make such comparisons.
const COMPARISONS: usize = 16;

/// Return the next depth.
///
/// # Errors
/// [`Fault::Failed`] beyond [`MAX_DEPTH`].
fn down(depth: u32) -> Eval<u32> {
    if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(Fault::failed("values nest too deep")) }
}

impl Machine<'_, '_> {
    /// Evaluate `a == b`. Values of different types differ, except that equal numbers are equal.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the values nest too deep.
    pub(super) fn equal(&mut self, a: &Val, b: &Val) -> Eval<bool> {
        self.equal_at(a, b, 0)
    }

    /// Compare values at this depth.
    fn equal_at(&mut self, a: &Val, b: &Val, depth: u32) -> Eval<bool> {
        self.budget.pay(STEP)?;
        Ok(match (a, b) {
            (Val::Str(a), Val::Str(b)) => {
                if a.len() == b.len() {
                    self.budget.scan(a.len())?;
                }
                a == b
            }
            (Val::List(x), Val::List(y)) | (Val::Tuple(x), Val::Tuple(y)) => {
                let depth = down(depth)?;
                let n = self.heap.list(*x).len();
                if x == y {
                    return Ok(true);
                }
                if n != self.heap.list(*y).len() {
                    return Ok(false);
                }
                for i in 0..n {
                    let pair = (self.heap.list(*x).get(i).cloned(), self.heap.list(*y).get(i).cloned());
                    let (Some(p), Some(q)) = pair else { break };
                    if !self.equal_at(&p, &q, depth)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Val::Dict(x), Val::Dict(y)) => return self.equal_dicts(*x, *y, down(depth)?),
            (Val::Undefined, Val::Undefined) | (Val::None, Val::None) => true,
            (Val::Function(x), Val::Function(y)) => x == y,
            (Val::View(k, x), Val::View(l, y)) => k == l && x == y,
            (Val::Iter(x), Val::Iter(y))
            | (Val::Namespace(x), Val::Namespace(y))
            | (Val::Macro(x), Val::Macro(y))
            | (Val::Loop(x), Val::Loop(y))
            | (Val::Method(x), Val::Method(y))
            | (Val::Cycle(x), Val::Cycle(y)) => x == y,
            _ => compare_numbers(a, b) == Some(Ordering::Equal),
        })
    }

    /// Compare dicts at this depth.
    fn equal_dicts(&mut self, x: u32, y: u32, depth: u32) -> Eval<bool> {
        if x == y {
            return Ok(true);
        }
        let n = self.heap.dict(x).len();
        if n != self.heap.dict(y).len() {
            return Ok(false);
        }
        for i in 0..n {
            let Some((key, value)) = self.heap.dict(x).get(i).cloned() else { break };
            let key = self.key_of(&key)?;
            let Some(other) = self.get(y, &key)? else { return Ok(false) };
            if !self.equal_at(&value, &other, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Return the order of two values; `None` if one of two numbers is NaN.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the types have no order, or the values nest too deep.
    pub(super) fn order(&mut self, a: &Val, b: &Val) -> Eval<Option<Ordering>> {
        self.order_at(a, b, 0)
    }

    /// Order values at this depth.
    fn order_at(&mut self, a: &Val, b: &Val, depth: u32) -> Eval<Option<Ordering>> {
        self.budget.pay(STEP)?;
        match (a, b) {
            (Val::Str(a), Val::Str(b)) => {
                self.budget.scan(a.len().min(b.len()))?;
                Ok(Some(a.cmp(b)))
            }
            (Val::List(x), Val::List(y)) | (Val::Tuple(x), Val::Tuple(y)) => {
                let depth = down(depth)?;
                for i in 0.. {
                    let pair = (self.heap.list(*x).get(i).cloned(), self.heap.list(*y).get(i).cloned());
                    let (p, q) = match pair {
                        (Some(p), Some(q)) => (p, q),
                        (p, q) => return Ok(Some(p.is_some().cmp(&q.is_some()))),
                    };
                    if !self.equal_at(&p, &q, depth)? {
                        return self.order_at(&p, &q, depth);
                    }
                }
                Ok(None)
            }
            _ if a.as_float().is_some() && b.as_float().is_some() => Ok(compare_numbers(a, b)),
            _ => Err(Fault::failed(format!("{} and {} have no order", a.kind(), b.kind()))),
        }
    }

    /// Return the identity of `value` as a dict key.
    ///
    /// # Errors
    /// [`Fault::Failed`] if it cannot be a key: lists and dicts cannot.
    pub(super) fn key_of(&mut self, value: &Val) -> Eval<Key> {
        self.key_at(value, 0)
    }

    /// Return the key of a value at this depth.
    fn key_at(&mut self, value: &Val, depth: u32) -> Eval<Key> {
        self.budget.pay(STEP)?;
        match value {
            Val::None => Ok(Key::None),
            Val::Float(x) => Ok(Key::float(*x)),
            Val::Str(text) => {
                // The dict will compare it with other keys.
                if text.len() > 32 {
                    self.budget.bytes(text.len().saturating_mul(COMPARISONS))?;
                }
                Ok(Key::Str(text.clone()))
            }
            Val::Tuple(list) => {
                let depth = down(depth)?;
                let mut keys = Vec::new();
                for i in 0..self.heap.list(*list).len() {
                    self.budget.values(6)?;
                    let Some(item) = self.heap.list(*list).get(i).cloned() else { break };
                    keys.push(self.key_at(&item, depth)?);
                }
                Ok(Key::Tuple(keys))
            }
            _ => match value.as_int() {
                Some(n) => Ok(Key::Int(n)),
                None => Err(Fault::failed(format!("{} cannot be a key", value.kind()))),
            },
        }
    }

    /// Return the text of a value as printing writes it: a text as it is, nothing for an undefined
    /// value, the `repr` of any other.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the values nest too deep.
    pub(super) fn text_of(&mut self, value: &Val) -> Eval<Str> {
        match value {
            Val::Str(text) => Ok(text.clone()),
            Val::Undefined => Ok(Str::template("")),
            other => {
                let mut out = Buf::default();
                self.write_repr(other, &mut out, 0)?;
                Ok(out.finish())
            }
        }
    }

    /// Return the text of a value as Python's `repr` writes it: texts are in quotes, and items are
    /// separated by a comma and a space.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the values nest too deep.
    pub(super) fn repr_of(&mut self, value: &Val) -> Eval<Str> {
        let mut out = Buf::default();
        self.write_repr(value, &mut out, 0)?;
        Ok(out.finish())
    }

    /// Append words of the interpreter's own.
    fn own(&mut self, text: &str, out: &mut Buf) -> Eval<()> {
        self.budget.bytes(text.len())?;
        out.push(text, Origin::Template);
        Ok(())
    }

    /// Append the `repr` of a value at this depth. Values without a literal form, such as macros,
    /// are written in angle brackets.
    fn write_repr(&mut self, value: &Val, out: &mut Buf, depth: u32) -> Eval<()> {
        self.budget.pay(STEP)?;
        match value {
            Val::Undefined => self.own("Undefined", out),
            Val::None => self.own("None", out),
            Val::Bool(true) => self.own("True", out),
            Val::Bool(false) => self.own("False", out),
            Val::Int(n) => self.own(&format!("{n}"), out),
            Val::Float(x) => self.own(&numbers::repr(*x), out),
            Val::Str(text) => {
                self.budget.bytes(text.len().saturating_mul(2))?;
                quote(text, out);
                Ok(())
            }
            Val::List(list) => self.write_items(*list, ["[", "]"], out, down(depth)?),
            Val::Tuple(list) => {
                let close = if self.heap.list(*list).len() == 1 { ",)" } else { ")" };
                self.write_items(*list, ["(", close], out, down(depth)?)
            }
            Val::View(View::Range, list) => {
                let (first, last) = match self.heap.list(*list) {
                    [Val::Int(first), .., Val::Int(last)] => (*first, last.saturating_add(1)),
                    [Val::Int(first)] => (*first, first.saturating_add(1)),
                    _ => (0, 0),
                };
                self.own(&format!("range({first}, {last})"), out)
            }
            Val::View(kind, list) => {
                let name = match kind {
                    View::Keys => "dict_keys([",
                    View::Values => "dict_values([",
                    _ => "dict_items([",
                };
                self.write_items(*list, [name, "])"], out, down(depth)?)
            }
            Val::Dict(dict) => {
                self.own("{", out)?;
                self.write_entries(*dict, out, down(depth)?)?;
                self.own("}", out)
            }
            Val::Namespace(dict) => {
                self.own("<Namespace {", out)?;
                self.write_entries(*dict, out, down(depth)?)?;
                self.own("}>", out)
            }
            Val::Iter(_) => self.own("<generator>", out),
            Val::Macro(_) => self.own("<macro>", out),
            Val::Loop(_) => self.own("<loop>", out),
            Val::Method(_) => self.own("<method>", out),
            Val::Cycle(_) => self.own("<object>", out),
            Val::Function(Function::Namespace | Function::Dict | Function::Range) => self.own("<class>", out),
            Val::Function(_) => self.own("<function>", out),
        }
    }

    /// Append the items of a list between brackets.
    fn write_items(&mut self, list: u32, [open, close]: [&str; 2], out: &mut Buf, depth: u32) -> Eval<()> {
        self.own(open, out)?;
        let mut i = 0;
        while let Some(item) = self.heap.list(list).get(i).cloned() {
            if i > 0 {
                self.own(", ", out)?;
            }
            self.write_repr(&item, out, depth)?;
            i += 1;
        }
        self.own(close, out)
    }

    /// Append the entries of a dict.
    fn write_entries(&mut self, dict: u32, out: &mut Buf, depth: u32) -> Eval<()> {
        let mut i = 0;
        while let Some((key, value)) = self.heap.dict(dict).get(i).cloned() {
            if i > 0 {
                self.own(", ", out)?;
            }
            self.write_repr(&key, out, depth)?;
            self.own(": ", out)?;
            self.write_repr(&value, out, depth)?;
            i += 1;
        }
        Ok(())
    }

    /// Sort `items` by their keys in ascending order, or descending; equal ones keep their order.
    /// This is a merge sort, because a comparison may fail, which the sorts of the standard library
    /// do not allow for.
    ///
    /// # Errors
    /// Those of [`Machine::order`].
    pub(super) fn sorted(&mut self, items: Vec<(Val, Val)>, reverse: bool) -> Eval<Vec<Val>> {
        self.budget.values(items.len() * 4)?;
        let mut runs: Vec<Vec<(Val, Val)>> = items.into_iter().map(|item| Vec::from([item])).collect();
        while runs.len() > 1 {
            let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
            let mut runs_left = runs.into_iter();
            while let Some(first) = runs_left.next() {
                merged.push(match runs_left.next() {
                    Some(second) => self.merged(first, second, reverse)?,
                    None => first,
                });
            }
            runs = merged;
        }
        Ok(runs.into_iter().flatten().map(|(_, value)| value).collect())
    }

    /// Merge two sorted lists. Of equal items, that of the first list comes first.
    fn merged(
        &mut self,
        first: Vec<(Val, Val)>,
        second: Vec<(Val, Val)>,
        reverse: bool,
    ) -> Eval<Vec<(Val, Val)>> {
        let wanted = if reverse { Ordering::Greater } else { Ordering::Less };
        self.budget.values((first.len() + second.len()) * 2)?;
        let mut merged = Vec::with_capacity(first.len() + second.len());
        let mut first = first.into_iter().peekable();
        for item in second {
            while let Some(earlier) = first.peek() {
                if self.order(&item.0, &earlier.0)? == Some(wanted) {
                    break;
                }
                merged.extend(first.next());
            }
            merged.push(item);
        }
        merged.extend(first);
        Ok(merged)
    }
}

/// Return the order of two numbers.
fn compare_numbers(a: &Val, b: &Val) -> Option<Ordering> {
    match (a.as_int(), b.as_int()) {
        (Some(x), Some(y)) => Some(x.cmp(&y)),
        _ => a.as_float()?.partial_cmp(&b.as_float()?),
    }
}

/// Append a text in quotes, as Python does: in single quotes unless only those occur in it.
fn quote(text: &Str, out: &mut Buf) {
    let quote = if text.as_str().contains('\'') && !text.as_str().contains('"') { '"' } else { '\'' };
    out.push_char(quote, Origin::Template);
    for (c, origin) in text.chars() {
        match c {
            '\n' => out.push("\\n", origin),
            '\r' => out.push("\\r", origin),
            '\t' => out.push("\\t", origin),
            '\\' => out.push("\\\\", origin),
            c if c == quote => {
                out.push("\\", origin);
                out.push_char(c, origin);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c == '\u{ad}' => {
                out.push(&format!("\\x{:02x}", c as u32), origin);
            }
            c if is_unprintable(c) => out.push(&hex(c), origin),
            c => out.push_char(c, origin),
        }
    }
    out.push_char(quote, Origin::Template);
}

/// Return true for separators, format and private characters, which Python escapes.
pub(super) fn is_unprintable(c: char) -> bool {
    use unicode_general_category::{GeneralCategory as G, get_general_category};
    if c.is_ascii() {
        return false;
    }
    matches!(
        get_general_category(c),
        G::Control
            | G::Format
            | G::Surrogate
            | G::PrivateUse
            | G::Unassigned
            | G::LineSeparator
            | G::ParagraphSeparator
            | G::SpaceSeparator
    )
}

/// Return the escape of a character.
fn hex(c: char) -> String {
    if (c as u32) < 0x10000 { format!("\\u{:04x}", c as u32) } else { format!("\\U{:08x}", c as u32) }
}
