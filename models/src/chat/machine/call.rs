//! Calls: the evaluation of arguments, macros, recursive loops, and the global functions.
//!
//! The global functions are those of Jinja's environment for chat templates: `range`, `namespace`,
//! `dict`, `cycler`, `joiner`, and the two that transformers adds, `raise_exception` and
//! `strftime_now`.

use alloc::format;
use alloc::vec::Vec;
use core::mem;

use super::super::arguments::Arguments;
use super::super::ast::{self, Arg, Args};
use super::super::error::{Eval, Fault};
use super::super::heap::{Closure, CycleState, Function, Ref, Val, View};
use super::super::text::{Buf, Str};
use super::super::{containers, date, methods};
use super::Machine;

/// The longest range, as in Jinja's sandbox.
const MAX_RANGE: u64 = 100_000;

impl<'t> Machine<'t, '_> {
    /// Evaluate arguments, in the order of the source.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the value behind `**` is not a dict with names as keys.
    pub(super) fn args(&mut self, args: &'t Args) -> Eval<Arguments> {
        let mut given = Arguments::default();
        for arg in &args.list {
            self.budget.pay(1)?;
            match arg {
                Arg::Value(expr) => given.list.push(self.eval(expr)?),
                Arg::Named(name, expr) => given.named.push((name.clone(), self.eval(expr)?)),
                Arg::Spread(expr) => {
                    let values = self.eval(expr)?;
                    given.list.extend(self.items_of(&values)?);
                }
                Arg::SpreadNamed(expr) => {
                    let Val::Dict(dict) = self.eval(expr)? else {
                        return Err(Fault::failed("** needs a dict"));
                    };
                    self.budget.values(self.heap.dict(dict).len())?;
                    for (key, value) in self.heap.dict(dict) {
                        let Val::Str(name) = key else { return Err(Fault::failed("** needs names as keys")) };
                        given.named.push((name.clone(), value.clone()));
                    }
                }
            }
        }
        Ok(given)
    }

    /// Call a value.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the value cannot be called; those of the callee.
    pub(super) fn call(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        match value {
            Val::Macro(number) => match self.heap.macros.get(*number as usize).copied() {
                Some(closure) => self.deeper(|machine| machine.call_macro(closure, given)),
                None => Ok(Val::Undefined),
            },
            Val::Function(function) => self.call_function(*function, given),
            Val::Method(number) => match self.heap.methods.get(*number as usize).cloned() {
                Some((value, name)) => self.call_method(&value, &name, given),
                None => Ok(Val::Undefined),
            },
            Val::Loop(number) => self.call_loop(*number, given),
            Val::Cycle(number) => self.next_in_cycle(*number),
            other => Err(Fault::failed(format!("{} cannot be called", other.kind()))),
        }
    }

    /// Call `value.name(…)`.
    pub(super) fn call_attribute(&mut self, value: &Val, name: &Str, given: Arguments) -> Eval<Val> {
        match (value, name.as_str()) {
            (Val::Loop(number), "cycle" | "changed") => self.loop_method(*number, name.as_str(), given),
            (Val::Cycle(number), "next") => self.next_in_cycle(*number),
            (Val::Cycle(number), "reset") => {
                if let Some(state) = self.heap.cycles.get_mut(*number as usize) {
                    state.position = 0;
                }
                Ok(Val::None)
            }
            (Val::Namespace(_) | Val::Loop(_) | Val::Macro(_), _) => {
                let callee = self.attribute(value, name)?;
                self.call_found(&callee, name, given)
            }
            (Val::Dict(_), method) if !containers::DICT.contains(&method) => {
                let callee = self.attribute(value, name)?;
                self.call_found(&callee, name, given)
            }
            _ => self.call_method(value, name, given),
        }
    }

    /// Call the value of the attribute `name`, which must be defined.
    fn call_found(&mut self, callee: &Val, name: &Str, given: Arguments) -> Eval<Val> {
        match callee {
            Val::Undefined => Err(Fault::failed(format!("{:?} is undefined", name.as_str()))),
            callee => self.call(callee, given),
        }
    }

    /// Call a method of a string, list, tuple or dict.
    fn call_method(&mut self, value: &Val, name: &Str, given: Arguments) -> Eval<Val> {
        self.budget.pay(super::STEP)?;
        match value {
            Val::Str(text) => methods::call(self, text, name.as_str(), given),
            Val::List(list) => containers::call_list(self, *list, name.as_str(), given),
            Val::Tuple(list) => containers::call_tuple(self, *list, name.as_str(), given),
            Val::Dict(dict) => containers::call_dict(self, *dict, name.as_str(), given),
            other => Err(Fault::failed(format!("{} has no method {:?}", other.kind(), name.as_str()))),
        }
    }

    /// Call a macro and return its output.
    fn call_macro(&mut self, closure: Closure<'t>, given: Arguments) -> Eval<Val> {
        let line = self.line;
        let (text, ()) = self.writing(|machine| {
            machine.scoped_in(closure.scope, |machine| {
                machine.bind(closure, given)?;
                machine.body(&closure.definition.body).map(|_| ())
            })
        })?;
        self.line = line;
        Ok(Val::Str(text))
    }

    /// Set the parameters of a macro to the arguments. Parameters without an argument get their
    /// default, or are undefined.
    ///
    /// # Errors
    /// [`Fault::Failed`] if an argument is passed twice.
    fn bind(&mut self, closure: Closure<'t>, given: Arguments) -> Eval<()> {
        let definition = closure.definition;
        let mut list = given.list.into_iter();
        let mut named = given.named;
        for (name, default) in &definition.params {
            self.budget.pay(1)?;
            let text = self.template.names.get(*name as usize);
            let found = text.and_then(|text| named.iter().position(|(given, _)| given == text));
            self.budget.pay(named.len() as u64)?;
            let value = match (list.next(), found, default) {
                (Some(value), None, _) => value,
                (None, Some(at), _) => named.swap_remove(at).1,
                (Some(_), Some(_), _) => {
                    return Err(Fault::failed("an argument of a macro is given twice"));
                }
                (None, None, Some(default)) => self.eval(default)?,
                (None, None, None) => Val::Undefined,
            };
            self.assign_name(*name, value);
        }
        self.bind_more(definition.takes_more, list.collect(), named, given.caller)
    }

    /// Bind the arguments beyond the parameters of a macro: to `varargs`, `kwargs` and `caller` if
    /// its body names one of them.
    ///
    /// # Errors
    /// [`Fault::Failed`] if there are such arguments and the body names none of these.
    fn bind_more(
        &mut self,
        takes_more: bool,
        list: Vec<Val>,
        named: Vec<(Str, Val)>,
        caller: Option<Val>,
    ) -> Eval<()> {
        if !takes_more {
            return match (list.len(), named.first(), caller) {
                (0, None, None) => Ok(()),
                (0, Some((name, _)), _) => {
                    Err(Fault::failed(format!("the macro has no parameter {:?}", name.as_str())))
                }
                (0, None, Some(_)) => Err(Fault::failed("the macro never calls its caller")),
                (n, ..) => Err(Fault::failed(format!("{n} arguments too many for the macro"))),
            };
        }
        let dict = self.new_dict()?;
        let mut caller = caller.unwrap_or(Val::Undefined);
        for (name, value) in named {
            if name.as_str() == "caller" {
                caller = value;
            } else {
                self.put(dict, Val::Str(name), value)?;
            }
        }
        let list = self.new_tuple(list)?;
        self.assign_name(ast::VARARGS, list);
        self.assign_name(ast::KWARGS, Val::Dict(dict));
        self.assign_name(ast::CALLER, caller);
        Ok(())
    }

    /// Call a global function.
    ///
    /// # Errors
    /// [`Fault::Raised`] from `raise_exception`; [`Fault::Failed`] if the arguments do not fit.
    fn call_function(&mut self, function: Function, given: Arguments) -> Eval<Val> {
        match function {
            Function::Range => self.range(given),
            Function::Namespace => self.dict_from(given).map(Val::Namespace),
            Function::Dict => self.dict_from(given).map(Val::Dict),
            Function::Raise => {
                let message = given.one("raise_exception")?;
                let message = self.plain(&message)?;
                Err(Fault::raised(&message))
            }
            Function::Now => {
                let format = given.one("strftime_now")?;
                let format = self.text_of(&format)?;
                self.budget.bytes(format.len().saturating_mul(16))?;
                let mut out = Buf::default();
                for (text, origin) in format.spans() {
                    out.push(&date::written(self.now, text), origin);
                }
                Ok(Val::Str(out.finish()))
            }
            Function::Cycler => {
                if given.list.is_empty() {
                    return Err(Fault::failed("cycler needs items"));
                }
                self.cycle(given.list, false)
            }
            Function::Joiner => {
                let [separator] = given.bind("joiner", ["sep"])?;
                let separator = separator.unwrap_or_else(|| Val::Str(Str::template(", ")));
                self.cycle(Vec::from([separator]), true)
            }
        }
    }

    /// Make a `cycler` or `joiner`.
    fn cycle(&mut self, items: Vec<Val>, joins: bool) -> Eval<Val> {
        self.budget.values(items.len() + 4)?;
        Ok(self.heap.new_cycle(CycleState { items, position: 0, joins }))
    }

    /// Return the next item of a `cycler` or `joiner`.
    fn next_in_cycle(&mut self, number: Ref) -> Eval<Val> {
        let Some(state) = self.heap.cycles.get_mut(number as usize) else { return Ok(Val::Undefined) };
        let turn = state.position;
        state.position += 1;
        if state.joins && turn == 0 {
            return Ok(Val::Str(Str::template("")));
        }
        Ok(state.items.get(turn % state.items.len().max(1)).cloned().unwrap_or(Val::Undefined))
    }

    /// Return the item that a `cycler` gives next.
    pub(super) fn current_in_cycle(&self, number: Ref) -> Val {
        let state = self.heap.cycles.get(number as usize);
        let item = state.and_then(|state| state.items.get(state.position % state.items.len().max(1)));
        item.cloned().unwrap_or(Val::Undefined)
    }

    /// Call `range`: `range(1, 6, 2)` is 1, 3, 5.
    ///
    /// # Errors
    /// [`Fault::Failed`] for a step of 0, and beyond [`MAX_RANGE`].
    fn range(&mut self, given: Arguments) -> Eval<Val> {
        let [first, second, third] = given.bind("range", ["start", "stop", "step"])?;
        let int = |value: Option<Val>, default: i64| match value {
            None => Ok(default),
            Some(value) => {
                value.as_int().ok_or_else(|| Fault::failed(format!("{} given to range", value.kind())))
            }
        };
        let only_stop = second.is_none();
        let (first, second, step) = (int(first, 0)?, int(second, 0)?, int(third, 1)?);
        let (start, stop) = if only_stop { (0, first) } else { (first, second) };
        if step == 0 {
            return Err(Fault::failed("range with step 0"));
        }
        let distance = if step > 0 {
            i128::from(stop) - i128::from(start)
        } else {
            i128::from(start) - i128::from(stop)
        };
        let step_size = i128::from(step.unsigned_abs());
        let n = u64::try_from((distance + step_size - 1) / step_size).unwrap_or(0);
        if n > MAX_RANGE {
            return Err(Fault::failed(format!("a range of {n}, longer than {MAX_RANGE}")));
        }
        self.budget.values(n as usize + 2)?;
        let items = (0..n as i64).map(|i| Val::Int(start.saturating_add(i.saturating_mul(step)))).collect();
        Ok(Val::View(View::Range, self.heap.new_list(items)))
    }

    /// Make a dict of the entries of another one or of pairs, and of named values.
    fn dict_from(&mut self, given: Arguments) -> Eval<Ref> {
        let dict = self.new_dict()?;
        for value in given.list {
            containers::update(self, dict, &value)?;
        }
        for (name, value) in given.named {
            self.put(dict, Val::Str(name), value)?;
        }
        Ok(dict)
    }

    /// Return an attribute of `loop`, such as `loop.index` or `loop.last`. Unknown ones are
    /// undefined.
    pub(super) fn loop_attribute(&mut self, number: Ref, name: &str) -> Eval<Val> {
        let Some(state) = self.heap.loops.get(number as usize) else { return Ok(Val::Undefined) };
        let (index, length) = (state.index, state.items.len());
        let int = |n: usize| Val::Int(n as i64);
        let at =
            |index: Option<usize>| index.and_then(|i| state.items.get(i)).cloned().unwrap_or(Val::Undefined);
        Ok(match name {
            "index" => int(index + 1),
            "index0" => int(index),
            "first" => Val::Bool(index == 0),
            "last" => Val::Bool(index + 1 >= length),
            "length" => int(length),
            "revindex" => int(length.saturating_sub(index)),
            "revindex0" => int(length.saturating_sub(index + 1)),
            "depth" => int(state.depth + 1),
            "depth0" => int(state.depth),
            "previtem" => at(index.checked_sub(1)),
            "nextitem" => at(Some(index + 1)),
            _ => Val::Undefined,
        })
    }

    /// Call `loop.cycle(…)`, which returns its arguments in turn, or `loop.changed(…)`, which
    /// returns true if its arguments differ from those of the last call.
    fn loop_method(&mut self, number: Ref, name: &str, given: Arguments) -> Eval<Val> {
        if name == "changed" {
            let last = self.heap.loops.get_mut(number as usize).and_then(|state| state.last.take());
            let mut same = last.as_ref().is_some_and(|last| last.len() == given.list.len());
            for (a, b) in last.iter().flatten().zip(&given.list) {
                same = same && self.equal(a, b)?;
            }
            self.budget.values(given.list.len())?;
            if let Some(state) = self.heap.loops.get_mut(number as usize) {
                state.last = Some(given.list);
            }
            return Ok(Val::Bool(!same));
        }
        let index = self.heap.loops.get(number as usize).map_or(0, |state| state.index);
        let n = given.list.len().max(1);
        given.list.into_iter().nth(index % n).ok_or_else(|| Fault::failed("loop.cycle needs items"))
    }

    /// Run a recursive loop over other items, and return its output.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the loop is not marked `recursive`.
    fn call_loop(&mut self, number: Ref, given: Arguments) -> Eval<Val> {
        let items = given.one("loop")?;
        let state = self.heap.loops.get(number as usize);
        let recursion = state.and_then(|state| Some((state.recursion?, state.depth)));
        let Some(((definition, scope), depth)) = recursion else {
            return Err(Fault::failed("only loops marked recursive can be called"));
        };
        let line = self.line;
        let (text, ()) = self.writing(|machine| {
            machine.deeper(|machine| {
                let outer = mem::replace(&mut machine.scope, scope);
                machine.run_loop(definition, &items, depth + 1)?;
                machine.scope = outer;
                Ok(())
            })
        })?;
        self.line = line;
        Ok(Val::Str(text))
    }

    /// Return an integer argument of a filter or method.
    ///
    /// # Errors
    /// [`Fault::Failed`], naming `what`, if it is not an integer.
    pub(in super::super) fn int_arg(&mut self, what: &str, value: Option<Val>, default: i64) -> Eval<i64> {
        match value {
            None => Ok(default),
            Some(value) => value
                .as_int()
                .ok_or_else(|| Fault::failed(format!("{what} needs an integer, not {}", value.kind()))),
        }
    }

    /// Return a text argument of a filter or method; `None` if it was not passed, or is none.
    ///
    /// # Errors
    /// [`Fault::Failed`], naming `what`, if it is not a text.
    pub(in super::super) fn str_arg(&mut self, what: &str, value: Option<Val>) -> Eval<Option<Str>> {
        match value {
            None | Some(Val::None) => Ok(None),
            Some(Val::Str(text)) => Ok(Some(text)),
            Some(other) => Err(Fault::failed(format!("{what} needs a string, not {}", other.kind()))),
        }
    }
}
