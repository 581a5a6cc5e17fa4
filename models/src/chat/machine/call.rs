//! Calls: their arguments, macros, loops, and what templates can call by name.

use alloc::format;
use alloc::vec::Vec;
use core::mem;

use super::super::ast::{self, Arg, Args};
use super::super::error::Fault;
use super::super::heap::{Closure, Function, Ref, TurnState, Val, View};
use super::super::text::{Buf, Str};
use super::super::{containers, date, methods};
use super::{Eval, Machine};

/// The longest range, as Jinja's sandbox has it.
const MAX_RANGE: u64 = 100_000;

/// The arguments of a call.
#[derive(Debug, Default)]
pub(in super::super) struct Given {
    pub(in super::super) list: Vec<Val>,
    pub(in super::super) named: Vec<(Str, Val)>,
    /// The body of a call block.
    pub(in super::super) caller: Option<Val>,
}

impl Given {
    /// The arguments in the order of `names`, however they were given. Others are a fault of calling `what`.
    pub(in super::super) fn bind<const N: usize>(
        self,
        what: &str,
        names: [&str; N],
    ) -> Eval<[Option<Val>; N]> {
        if self.list.len() > N {
            return Err(Fault::failed(format!(
                "{what} takes at most {N} arguments, {} given",
                self.list.len()
            )));
        }
        let mut list = self.list.into_iter();
        let mut bound = names.map(|_| list.next());
        for (name, value) in self.named {
            let slot = names.iter().zip(&mut bound).find(|(known, _)| **known == name.as_str());
            match slot {
                Some((_, slot @ None)) => *slot = Some(value),
                Some(_) => return Err(Fault::failed(format!("{what}: {:?} is given twice", name.as_str()))),
                None => return Err(Fault::failed(format!("{what} takes no argument {:?}", name.as_str()))),
            }
        }
        Ok(bound)
    }

    /// The only argument.
    pub(in super::super) fn one(self, what: &str) -> Eval<Val> {
        let [value] = self.bind(what, [""])?;
        value.ok_or_else(|| Fault::failed(format!("{what} needs an argument")))
    }

    pub(in super::super) fn none(self, what: &str) -> Eval<()> {
        self.bind(what, []).map(|_: [Option<Val>; 0]| ())
    }
}

/// What can be called by name in every template.
pub(super) fn function(name: &str) -> Option<Val> {
    Some(Val::Function(match name {
        "range" => Function::Range,
        "namespace" => Function::Namespace,
        "dict" => Function::Dict,
        "raise_exception" => Function::Raise,
        "strftime_now" => Function::Now,
        "cycler" => Function::Cycler,
        "joiner" => Function::Joiner,
        _ => return None,
    }))
}

impl<'t> Machine<'t, '_> {
    /// Evaluates arguments.
    pub(super) fn args(&mut self, args: &'t Args) -> Eval<Given> {
        let mut given = Given::default();
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

    /// Calls a value.
    pub(super) fn call(&mut self, value: &Val, given: Given) -> Eval<Val> {
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
            Val::Turns(number) => self.next_turn(*number),
            other => Err(Fault::failed(format!("{} cannot be called", other.kind()))),
        }
    }

    /// `value.name(…)`
    pub(super) fn call_attribute(&mut self, value: &Val, name: &Str, given: Given) -> Eval<Val> {
        match (value, name.as_str()) {
            (Val::Loop(number), "cycle" | "changed") => self.loop_method(*number, name.as_str(), given),
            (Val::Turns(number), "next") => self.next_turn(*number),
            (Val::Turns(number), "reset") => {
                if let Some(state) = self.heap.turns.get_mut(*number as usize) {
                    state.turn = 0;
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

    fn call_found(&mut self, callee: &Val, name: &Str, given: Given) -> Eval<Val> {
        match callee {
            Val::Undefined => Err(Fault::failed(format!("{:?} is undefined", name.as_str()))),
            callee => self.call(callee, given),
        }
    }

    fn call_method(&mut self, value: &Val, name: &Str, given: Given) -> Eval<Val> {
        self.budget.pay(super::STEP)?;
        match value {
            Val::Str(text) => methods::call(self, text, name.as_str(), given),
            Val::List(list) => containers::call_list(self, *list, name.as_str(), given),
            Val::Tuple(list) => containers::call_tuple(self, *list, name.as_str(), given),
            Val::Dict(dict) => containers::call_dict(self, *dict, name.as_str(), given),
            other => Err(Fault::failed(format!("{} has no method {:?}", other.kind(), name.as_str()))),
        }
    }

    fn call_macro(&mut self, closure: Closure<'t>, given: Given) -> Eval<Val> {
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

    /// Makes the arguments of a macro its variables.
    fn bind(&mut self, closure: Closure<'t>, given: Given) -> Eval<()> {
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

    /// What a macro is given beyond its parameters.
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

    fn call_function(&mut self, function: Function, given: Given) -> Eval<Val> {
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
                for (text, origin) in format.runs() {
                    out.push(&date::written(self.now, text), origin);
                }
                Ok(Val::Str(out.finish()))
            }
            Function::Cycler => {
                if given.list.is_empty() {
                    return Err(Fault::failed("cycler needs items"));
                }
                self.turns(given.list, false)
            }
            Function::Joiner => {
                let [separator] = given.bind("joiner", ["sep"])?;
                let separator = separator.unwrap_or_else(|| Val::Str(Str::template(", ")));
                self.turns(Vec::from([separator]), true)
            }
        }
    }

    fn turns(&mut self, items: Vec<Val>, joins: bool) -> Eval<Val> {
        self.budget.values(items.len() + 4)?;
        Ok(self.heap.new_turns(TurnState { items, turn: 0, joins }))
    }

    fn next_turn(&mut self, number: Ref) -> Eval<Val> {
        let Some(state) = self.heap.turns.get_mut(number as usize) else { return Ok(Val::Undefined) };
        let turn = state.turn;
        state.turn += 1;
        if state.joins && turn == 0 {
            return Ok(Val::Str(Str::template("")));
        }
        Ok(state.items.get(turn % state.items.len().max(1)).cloned().unwrap_or(Val::Undefined))
    }

    fn range(&mut self, given: Given) -> Eval<Val> {
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

    /// A dict of another's entries or of pairs, and of named values.
    fn dict_from(&mut self, given: Given) -> Eval<Ref> {
        let dict = self.new_dict()?;
        for value in given.list {
            containers::update(self, dict, &value)?;
        }
        for (name, value) in given.named {
            self.put(dict, Val::Str(name), value)?;
        }
        Ok(dict)
    }

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

    fn loop_method(&mut self, number: Ref, name: &str, given: Given) -> Eval<Val> {
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

    /// Runs a recursive loop over other items.
    fn call_loop(&mut self, number: Ref, given: Given) -> Eval<Val> {
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

    /// An integer, as the arguments of filters and methods want it.
    pub(in super::super) fn int_arg(&mut self, what: &str, value: Option<Val>, default: i64) -> Eval<i64> {
        match value {
            None => Ok(default),
            Some(value) => value
                .as_int()
                .ok_or_else(|| Fault::failed(format!("{what} needs an integer, not {}", value.kind()))),
        }
    }

    /// A text, as the arguments of filters and methods want it.
    pub(in super::super) fn str_arg(&mut self, what: &str, value: Option<Val>) -> Eval<Option<Str>> {
        match value {
            None | Some(Val::None) => Ok(None),
            Some(Val::Str(text)) => Ok(Some(text)),
            Some(other) => Err(Fault::failed(format!("{what} needs a string, not {}", other.kind()))),
        }
    }
}
