//! Expressions.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::ast::{CompareOp, Expr, MathOp, Suffix};
use super::super::error::Fault;
use super::super::heap::{Key, Val};
use super::super::operators;
use super::super::text::{Buf, Str};
use super::super::{containers, methods};
use super::{Eval, Machine};

impl<'t> Machine<'t, '_> {
    pub(super) fn eval(&mut self, expr: &'t Expr) -> Eval<Val> {
        match expr {
            Expr::None => Ok(Val::None),
            Expr::Bool(truth) => Ok(Val::Bool(*truth)),
            Expr::Int(n) => Ok(Val::Int(*n)),
            Expr::Float(x) => Ok(Val::Float(*x)),
            Expr::Text(text) => Ok(Val::Str(text.clone())),
            Expr::Name(name) => {
                self.budget.pay(1)?;
                self.lookup(*name)
            }
            nested => self.deeper(|machine| machine.eval_nested(nested)),
        }
    }

    fn eval_nested(&mut self, expr: &'t Expr) -> Eval<Val> {
        match expr {
            Expr::List(items) => {
                let items = self.all(items)?;
                self.new_list(items)
            }
            Expr::Tuple(items) => {
                let items = self.all(items)?;
                self.new_tuple(items)
            }
            Expr::Dict(entries) => self.dict(entries),
            Expr::Not(inner) => Ok(Val::Bool(!self.eval(inner)?.is_true(&self.heap))),
            Expr::Negative(inner) => {
                let value = self.eval(inner)?;
                operators::negative(&value)
            }
            Expr::Positive(inner) => {
                let value = self.eval(inner)?;
                operators::positive(value)
            }
            Expr::Math(first, rest) => self.math(first, rest),
            Expr::Concat(parts) => self.concat(parts),
            Expr::Compare(first, rest) => self.comparison(first, rest),
            Expr::And(list) => self.first_that_is(false, list),
            Expr::Or(list) => self.first_that_is(true, list),
            Expr::If(parts) => {
                let (condition, value, otherwise) = &**parts;
                if self.eval(condition)?.is_true(&self.heap) {
                    return self.eval(value);
                }
                otherwise.as_ref().map_or(Ok(Val::Undefined), |otherwise| self.eval(otherwise))
            }
            Expr::Chain(base, suffixes) => self.chain(base, suffixes, None),
            simple => self.eval(simple),
        }
    }

    fn all(&mut self, exprs: &'t [Expr]) -> Eval<Vec<Val>> {
        let mut values = Vec::new();
        for expr in exprs {
            values.push(self.eval(expr)?);
        }
        Ok(values)
    }

    fn dict(&mut self, entries: &'t [(Expr, Expr)]) -> Eval<Val> {
        let dict = self.new_dict()?;
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            self.put(dict, key, value)?;
        }
        Ok(Val::Dict(dict))
    }

    fn math(&mut self, first: &'t Expr, rest: &'t [(MathOp, Expr)]) -> Eval<Val> {
        let mut value = self.eval(first)?;
        for (op, expr) in rest {
            let other = self.eval(expr)?;
            self.defined(&value, first)?;
            self.defined(&other, expr)?;
            value = self.calculate(*op, &value, &other)?;
        }
        Ok(value)
    }

    fn concat(&mut self, parts: &'t [Expr]) -> Eval<Val> {
        let mut out = Buf::default();
        for part in parts {
            let value = self.eval(part)?;
            let text = self.text_of(&value)?;
            self.budget.bytes(text.len())?;
            out.push_str(&text);
        }
        Ok(Val::Str(out.finish()))
    }

    fn comparison(&mut self, first: &'t Expr, rest: &'t [(CompareOp, Expr)]) -> Eval<Val> {
        let mut left = self.eval(first)?;
        for (op, expr) in rest {
            let right = self.eval(expr)?;
            if !self.compare(*op, &left, &right)? {
                return Ok(Val::Bool(false));
            }
            left = right;
        }
        Ok(Val::Bool(true))
    }

    /// The first value whose truth is `truth`, or the last one.
    fn first_that_is(&mut self, truth: bool, exprs: &'t [Expr]) -> Eval<Val> {
        let mut value = Val::Undefined;
        for expr in exprs {
            value = self.eval(expr)?;
            if value.is_true(&self.heap) == truth {
                break;
            }
        }
        Ok(value)
    }

    /// An expression with what follows it; `caller` goes to the last call.
    pub(super) fn chain(&mut self, base: &'t Expr, suffixes: &'t [Suffix], caller: Option<Val>) -> Eval<Val> {
        let mut value = self.eval(base)?;
        let mut at = 0;
        while let Some(suffix) = suffixes.get(at) {
            self.budget.pay(1)?;
            if matches!(suffix, Suffix::Attr(_) | Suffix::Item(_) | Suffix::Slice(_) | Suffix::Call(_))
                && matches!(value, Val::Undefined)
            {
                return Err(self.undefined(base, suffixes.get(..at).unwrap_or(&[])));
            }
            let last = at + 1 == suffixes.len();
            value = match (suffix, suffixes.get(at + 1)) {
                (Suffix::Attr(name), Some(Suffix::Call(args))) => {
                    at += 1;
                    let mut given = self.args(args)?;
                    given.caller = caller.clone().filter(|_| at + 1 == suffixes.len());
                    self.call_attribute(&value, name, given)?
                }
                (Suffix::Call(args), _) => {
                    let mut given = self.args(args)?;
                    given.caller = caller.clone().filter(|_| last);
                    self.call(&value, given)?
                }
                _ => self.suffix(value, suffix)?,
            };
            at += 1;
        }
        Ok(value)
    }

    fn suffix(&mut self, value: Val, suffix: &'t Suffix) -> Eval<Val> {
        match suffix {
            Suffix::Attr(name) => self.attribute(&value, name),
            Suffix::Item(key) => {
                let key = self.eval(key)?;
                self.item(&value, &key)
            }
            Suffix::Slice(bounds) => {
                let mut numbers = [None; 3];
                for (number, bound) in numbers.iter_mut().zip(bounds.iter()) {
                    let Some(bound) = bound else { continue };
                    *number = match self.eval(bound)? {
                        Val::None => None,
                        value => Some(value.as_int().ok_or_else(|| {
                            Fault::failed(format!("{} as the bound of a slice", value.kind()))
                        })?),
                    };
                }
                self.sliced(&value, numbers)
            }
            Suffix::Filter(name, args) => {
                let given = self.args(args)?;
                self.filter(name, value, given)
            }
            Suffix::Test { name, args, negated } => {
                let given = self.args(args)?;
                Ok(Val::Bool(self.test(name, &value, given)? != *negated))
            }
            Suffix::Call(args) => {
                let given = self.args(args)?;
                self.call(&value, given)
            }
        }
    }

    fn defined(&self, value: &Val, expr: &Expr) -> Eval<()> {
        match (value, expr) {
            (Val::Undefined, Expr::Chain(base, suffixes)) => Err(self.undefined(base, suffixes)),
            (Val::Undefined, other) => Err(self.undefined(other, &[])),
            _ => Ok(()),
        }
    }

    /// The fault that an expression is undefined.
    fn undefined(&self, base: &Expr, suffixes: &[Suffix]) -> Fault {
        let name = match (suffixes.last(), base) {
            (Some(Suffix::Attr(name)), _) => Some(name),
            (Some(Suffix::Item(Expr::Text(name))), _) => Some(name),
            (None, Expr::Name(name)) => self.template.names.get(*name as usize),
            _ => None,
        };
        match name {
            Some(name) => Fault::failed(format!("{:?} is undefined", name.as_str())),
            None => Fault::failed("a value is undefined"),
        }
    }

    /// What stands behind `value.name`.
    pub(in super::super) fn attribute(&mut self, value: &Val, name: &Str) -> Eval<Val> {
        match value {
            Val::Loop(number) => self.loop_attribute(*number, name.as_str()),
            Val::Namespace(dict) => Ok(self.entry(*dict, name)?.unwrap_or(Val::Undefined)),
            Val::Macro(number) if name.as_str() == "name" => {
                let number = self.heap.macros.get(*number as usize).map(|closure| closure.definition.name);
                let name = number.and_then(|number| self.template.names.get(number as usize));
                Ok(name.map_or(Val::Undefined, |name| Val::Str(name.clone())))
            }
            _ if has_method(value, name.as_str()) => {
                self.budget.values(3)?;
                Ok(self.heap.new_method(value.clone(), name))
            }
            Val::Dict(dict) => Ok(self.entry(*dict, name)?.unwrap_or(Val::Undefined)),
            _ => Ok(Val::Undefined),
        }
    }

    /// What stands behind `value[key]`.
    pub(in super::super) fn item(&mut self, value: &Val, key: &Val) -> Eval<Val> {
        let found = match (value, key) {
            (Val::Dict(dict), _) => match self.key_of(key) {
                Ok(place) => self.get(*dict, &place)?,
                Err(Fault::Failed(_)) => None,
                Err(stop) => return Err(stop),
            },
            (Val::List(list) | Val::Tuple(list) | Val::View(super::super::heap::View::Range, list), _) => {
                let items = self.heap.list(*list);
                key.as_int().and_then(|n| items.get(place(n, items.len())?)).cloned()
            }
            (Val::Str(text), _) => match key.as_int() {
                Some(n) => self.char_at(text, n)?,
                None => None,
            },
            _ => None,
        };
        match (found, key) {
            (Some(found), _) => Ok(found),
            (None, Val::Str(name)) if !matches!(value, Val::Undefined) => {
                if let Val::Dict(_) = value
                    && !has_method(value, name.as_str())
                {
                    return Ok(Val::Undefined);
                }
                self.attribute(value, name)
            }
            _ => Ok(Val::Undefined),
        }
    }

    /// What a dict holds under a key.
    pub(in super::super) fn get(&mut self, dict: u32, key: &Key) -> Eval<Option<Val>> {
        self.budget.pay(super::STEP)?;
        Ok(self.heap.dicts.get(dict as usize).and_then(|dict| dict.get(key)).cloned())
    }

    /// The character number `n` of a text, counted from its end if negative.
    fn char_at(&mut self, text: &Str, n: i64) -> Eval<Option<Val>> {
        self.budget.scan(text.len())?;
        let string = text.as_str();
        let found = if n >= 0 {
            usize::try_from(n).ok().and_then(|n| string.char_indices().nth(n))
        } else {
            usize::try_from(-(n + 1)).ok().and_then(|n| string.char_indices().rev().nth(n))
        };
        Ok(found.map(|(at, c)| Val::Str(text.slice(at..at + c.len_utf8()))))
    }

    /// `value[start:stop:step]`
    pub(in super::super) fn sliced(
        &mut self,
        value: &Val,
        [start, stop, step]: [Option<i64>; 3],
    ) -> Eval<Val> {
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err(Fault::failed("a slice with step 0"));
        }
        match value {
            Val::Str(text) => self.sliced_text(text, start, stop, step).map(Val::Str),
            Val::List(list) | Val::Tuple(list) | Val::View(super::super::heap::View::Range, list) => {
                let items = self.heap.list(*list);
                let places = places(items.len(), start, stop, step);
                let found: Vec<Val> = {
                    self.budget.values(places.len())?;
                    places.filter_map(|at| items.get(at).cloned()).collect()
                };
                if let Val::Tuple(_) = value { self.new_tuple(found) } else { self.new_list(found) }
            }
            other => Err(Fault::failed(format!("{} cannot be sliced", other.kind()))),
        }
    }

    fn sliced_text(&mut self, text: &Str, start: Option<i64>, stop: Option<i64>, step: i64) -> Eval<Str> {
        self.budget.scan(text.len())?;
        let string = text.as_str();
        if step != 1 {
            self.budget.bytes(text.len().saturating_mul(16))?;
            let chars: Vec<_> = text.chars().collect();
            let mut out = Buf::default();
            places(chars.len(), start, stop, step)
                .filter_map(|at| chars.get(at))
                .for_each(|&(c, origin)| out.push_char(c, origin));
            return Ok(out.finish());
        }
        let n_chars = if string.is_ascii() { string.len() } else { string.chars().count() };
        let places = places(n_chars, start, stop, 1);
        let byte = |n: usize| match string.is_ascii() {
            true => n,
            false => string.char_indices().nth(n).map_or(string.len(), |(at, _)| at),
        };
        let range = byte(places.first)..byte(places.first + places.left);
        self.budget.bytes(range.len())?;
        Ok(text.slice(range))
    }

    /// The separate texts of values, for messages and joins.
    pub(in super::super) fn plain(&mut self, value: &Val) -> Eval<String> {
        Ok(self.text_of(value)?.as_str().into())
    }
}

/// `value` has a method of this name.
fn has_method(value: &Val, name: &str) -> bool {
    match value {
        Val::Str(_) => methods::NAMES.contains(&name),
        Val::List(_) => containers::LIST.contains(&name),
        Val::Tuple(_) => matches!(name, "count" | "index"),
        Val::Dict(_) => containers::DICT.contains(&name),
        Val::Turns(_) => matches!(name, "next" | "reset" | "current"),
        _ => false,
    }
}

/// The place of element `n`, counted from the end if negative.
pub(in super::super) fn place(n: i64, len: usize) -> Option<usize> {
    let n = if n < 0 { n.checked_add(i64::try_from(len).ok()?)? } else { n };
    usize::try_from(n).ok().filter(|n| *n < len)
}

/// Places that a slice takes, in order.
pub(in super::super) struct Places {
    first: usize,
    step: i64,
    left: usize,
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = self.first;
        self.first = place.saturating_add_signed(self.step as isize);
        Some(place)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Places {}

/// The places that Python's `[start:stop:step]` takes of `len` elements.
pub(in super::super) fn places(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> Places {
    let len = len as i64;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(n) if n < 0 => n.saturating_add(len).clamp(lowest, highest),
        Some(n) => n.clamp(lowest, highest),
    };
    let (start, stop) =
        if step > 0 { (bound(start, 0), bound(stop, len)) } else { (bound(start, len - 1), bound(stop, -1)) };
    let distance = if step > 0 { stop - start } else { start - stop };
    let step = step.max(-i64::MAX);
    let left = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    Places { first: start.max(0) as usize, step, left: left as usize }
}
