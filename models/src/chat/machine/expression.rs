//! The evaluation of expressions: operators, suffixes, attributes, items and slices.
//!
//! Undefined values follow Jinja's default: they print as nothing and count as false, but an
//! attribute, an item or a call of one is a fault that names it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::ast::{CompareOp, Expr, MathOp, Suffix};
use super::super::error::{Eval, Fault};
use super::super::heap::{GROUP, Key, Val};
use super::super::indices::{index, indices};
use super::super::operators;
use super::super::text::{Buf, Str};
use super::super::{containers, methods};
use super::Machine;

impl<'t> Machine<'t, '_> {
    /// Evaluate an expression.
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

    /// Evaluate an expression that contains others.
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
                let (value, conditions, otherwise) = &**parts;
                let mut otherwise = otherwise.as_ref();
                for condition in conditions.iter().rev() {
                    if !self.eval(condition)?.is_true(&self.heap) {
                        return otherwise.map_or(Ok(Val::Undefined), |otherwise| self.eval(otherwise));
                    }
                    otherwise = None;
                }
                self.eval(value)
            }
            Expr::Chain(base, suffixes) => self.chain(base, suffixes, None),
            simple => self.eval(simple),
        }
    }

    /// Evaluate expressions in order.
    fn all(&mut self, exprs: &'t [Expr]) -> Eval<Vec<Val>> {
        let mut values = Vec::new();
        for expr in exprs {
            values.push(self.eval(expr)?);
        }
        Ok(values)
    }

    /// Evaluate a dict.
    fn dict(&mut self, entries: &'t [(Expr, Expr)]) -> Eval<Val> {
        let dict = self.new_dict()?;
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            self.put(dict, key, value)?;
        }
        Ok(Val::Dict(dict))
    }

    /// Evaluate operators of one precedence. Undefined operands are faults that name them.
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

    /// Evaluate `a ~ b`.
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

    /// Evaluate comparisons, each with its neighbour, until one is false.
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

    /// Return the first value whose truth is `truth`, or the last one.
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

    /// Evaluate an expression with its suffixes. `caller` is passed to the last call.
    ///
    /// # Errors
    /// [`Fault::Failed`] if a suffix other than a filter or test applies to an undefined value;
    /// those of the suffixes.
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

    /// Apply a suffix to a value.
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

    /// Check that the value of an expression is defined.
    fn defined(&self, value: &Val, expr: &Expr) -> Eval<()> {
        match (value, expr) {
            (Val::Undefined, Expr::Chain(base, suffixes)) => Err(self.undefined(base, suffixes)),
            (Val::Undefined, other) => Err(self.undefined(other, &[])),
            _ => Ok(()),
        }
    }

    /// Return the fault that an expression is undefined.
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

    /// Return `value.name`. Methods come before the entries of a dict, as in Jinja. A missing
    /// attribute is undefined.
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
            Val::Tuple(list) if self.heap.groups.contains(list) => {
                let at = GROUP.iter().position(|known| *known == name.as_str());
                let item = at.and_then(|at| self.heap.list(*list).get(at));
                Ok(item.cloned().unwrap_or(Val::Undefined))
            }
            Val::Cycle(number) if name.as_str() == "current" => Ok(self.current_in_cycle(*number)),
            _ => Ok(Val::Undefined),
        }
    }

    /// Return `value[key]`. Entries of a dict come before attributes, as in Jinja. A missing item
    /// is undefined.
    pub(in super::super) fn item(&mut self, value: &Val, key: &Val) -> Eval<Val> {
        let found = match (value, key) {
            (Val::Dict(dict), _) => match self.key_of(key) {
                Ok(index) => self.get(*dict, &index)?,
                Err(Fault::Failed(_)) => None,
                Err(stop) => return Err(stop),
            },
            (Val::List(list) | Val::Tuple(list) | Val::View(super::super::heap::View::Range, list), _) => {
                let items = self.heap.list(*list);
                key.as_int().and_then(|n| items.get(index(n, items.len())?)).cloned()
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

    /// Return the value of a dict under a key.
    pub(in super::super) fn get(&mut self, dict: u32, key: &Key) -> Eval<Option<Val>> {
        self.budget.pay(super::STEP)?;
        Ok(self.heap.dicts.get(dict as usize).and_then(|dict| dict.get(key)).cloned())
    }

    /// Return character `n` of a text, counted from its end if negative.
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

    /// Return `value[start:stop:step]`.
    ///
    /// # Errors
    /// [`Fault::Failed`] for a step of 0, or a value that cannot be sliced.
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
                let indices = indices(items.len(), start, stop, step);
                let found: Vec<Val> = {
                    self.budget.values(indices.len())?;
                    indices.filter_map(|at| items.get(at).cloned()).collect()
                };
                if let Val::Tuple(_) = value { self.new_tuple(found) } else { self.new_list(found) }
            }
            other => Err(Fault::failed(format!("{} cannot be sliced", other.kind()))),
        }
    }

    /// Return a slice of a text, in characters.
    fn sliced_text(&mut self, text: &Str, start: Option<i64>, stop: Option<i64>, step: i64) -> Eval<Str> {
        self.budget.scan(text.len())?;
        let string = text.as_str();
        if step != 1 {
            self.budget.bytes(text.len().saturating_mul(16))?;
            let chars: Vec<_> = text.chars().collect();
            let mut out = Buf::default();
            indices(chars.len(), start, stop, step)
                .filter_map(|at| chars.get(at))
                .for_each(|&(c, origin)| out.push_char(c, origin));
            return Ok(out.finish());
        }
        let n_chars = if string.is_ascii() { string.len() } else { string.chars().count() };
        let indices = indices(n_chars, start, stop, 1);
        let byte = |n: usize| match string.is_ascii() {
            true => n,
            false => string.char_indices().nth(n).map_or(string.len(), |(at, _)| at),
        };
        let range = byte(indices.first)..byte(indices.first + indices.left);
        self.budget.bytes(range.len())?;
        Ok(text.slice(range))
    }

    /// Return the text of a value without origins, for messages.
    pub(in super::super) fn plain(&mut self, value: &Val) -> Eval<String> {
        Ok(self.text_of(value)?.as_str().into())
    }
}

/// Return true if `value` has a method of this name.
fn has_method(value: &Val, name: &str) -> bool {
    match value {
        Val::Str(_) => methods::NAMES.contains(&name),
        Val::List(_) => containers::LIST.contains(&name),
        Val::Tuple(_) => matches!(name, "count" | "index"),
        Val::Dict(_) => containers::DICT.contains(&name),
        Val::Cycle(_) => matches!(name, "next" | "reset"),
        _ => false,
    }
}
