//! The interpreter. This file runs statements, `machine/expression.rs` evaluates expressions, and
//! `machine/call.rs` makes calls.
//!
//! Every step is charged to the [`Budget`] first, and every step that nests goes through
//! [`Machine::deeper`], which bounds the stack.

mod call;
mod expression;

use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::ast::{self, Expr, For, Macro, Name, Stmt, StmtKind, Suffix, Target, Template};
use super::budget::{Budget, STEP, VALUE};
use super::error::{ChatError, Eval, Fault};
use super::heap::{Closure, Dict, Function, Heap, Key, LoopState, Ref, Val};
use super::text::{Buf, Origin, Str};

/// The deepest nesting of evaluation: bodies in bodies, expressions in expressions, macros in
/// macros. A test measures the stack that one level takes.
const MAX_DEPTH: u32 = 300;

/// The price of a scope with a few variables that stays until the template has run: its bytes.
const SCOPE: u64 = 20 * VALUE;

/// The continuation after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The next statement runs.
    Next,
    /// The loop ends.
    Break,
    /// The loop goes to its next item.
    Continue,
}

/// A running template.
pub(super) struct Machine<'t, 'i> {
    /// The tree, which outlives the interpreter.
    template: &'t Template,
    /// The objects made so far.
    pub(super) heap: Heap<'t>,
    /// The units left.
    pub(super) budget: Budget<'i>,
    /// The time since 1970, for templates that write the date.
    pub(super) now: Duration,
    /// The output of the innermost body that is captured, or of the template.
    out: Buf,
    /// The current scope.
    scope: Ref,
    /// The nesting of evaluation now.
    depth: u32,
    /// The line of the current statement, for errors.
    line: u32,
}

impl<'t, 'i> Machine<'t, 'i> {
    /// Make an interpreter of `template` with an empty global scope.
    pub(super) fn new(template: &'t Template, budget: Budget<'i>, now: Duration) -> Self {
        let mut heap = Heap::default();
        let scope = heap.new_scope(None);
        Self { template, heap, budget, now, out: Buf::default(), scope, depth: 0, line: 1 }
    }

    /// Define a variable. Names that the template never uses are ignored.
    pub(super) fn set_global(&mut self, name: &str, value: Val) {
        let number = self.template.names.iter().position(|known| known.as_str() == name);
        if let Some(number) = number {
            self.assign_name(number as Name, value);
        }
    }

    /// Run the whole template and return its output.
    ///
    /// # Errors
    /// The [`ChatError`] of the first fault, with the line of its statement.
    pub(super) fn run(mut self) -> Result<Str, ChatError> {
        match self.body(&self.template.body) {
            Ok(_) => Ok(self.out.finish()),
            Err(fault) => Err(fault.at(self.line)),
        }
    }

    /// Run `work` one level deeper.
    ///
    /// # Errors
    /// [`Fault::Failed`] beyond [`MAX_DEPTH`]; those of `work`.
    pub(super) fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        if self.depth == MAX_DEPTH {
            return Err(Fault::failed("macros, loops or expressions nest too deep"));
        }
        self.depth += 1;
        self.budget.pay(STEP)?;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// Run the statements of a body, until one changes the flow.
    fn body(&mut self, body: &'t [Stmt]) -> Eval<Flow> {
        self.deeper(|machine| {
            let line = machine.line;
            let mut flow = Flow::Next;
            for stmt in body {
                machine.budget.pay(STEP)?;
                machine.line = stmt.line;
                flow = machine.statement(&stmt.kind)?;
                if flow != Flow::Next {
                    break;
                }
            }
            // What fails after the body belongs to the statement around it.
            machine.line = line;
            Ok(flow)
        })
    }

    /// Run one statement.
    fn statement(&mut self, stmt: &'t StmtKind) -> Eval<Flow> {
        match stmt {
            StmtKind::Text(text) => self.write(text)?,
            StmtKind::Output(expr) => self.output(expr)?,
            StmtKind::For(definition) => return self.for_loop(definition),
            StmtKind::If(branches, otherwise) => return self.branch(branches, otherwise),
            StmtKind::Set(target, expr) => {
                let value = self.eval(expr)?;
                self.assign(target, value)?;
            }
            StmtKind::SetBlock(target, filters, body) => {
                let (text, flow) = self.captured(filters, body)?;
                self.assign(target, text)?;
                return Ok(flow);
            }
            StmtKind::Macro(definition) => {
                let closure = self.closure(definition)?;
                self.assign_name(definition.name, closure);
            }
            StmtKind::CallBlock(definition, call) => self.call_block(definition, call)?,
            StmtKind::FilterBlock(filters, body) => {
                let (text, flow) = self.captured(filters, body)?;
                let text = self.text_of(&text)?;
                self.write(&text)?;
                return Ok(flow);
            }
            StmtKind::With(values, body) => return self.with(values, body),
            StmtKind::Scope(body) => return self.scoped(|machine| machine.body(body)),
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Append to the output.
    fn write(&mut self, text: &Str) -> Eval<()> {
        self.budget.bytes(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    /// Run `{{ expression }}`.
    fn output(&mut self, expr: &'t Expr) -> Eval<()> {
        let value = self.eval(expr)?;
        let text = self.text_of(&value)?;
        self.write(&text)
    }

    /// Run the body of the first condition that is true, or that of `else`.
    fn branch(&mut self, branches: &'t [(Expr, Vec<Stmt>)], otherwise: &'t [Stmt]) -> Eval<Flow> {
        for (condition, body) in branches {
            if self.eval(condition)?.is_true(&self.heap) {
                return self.body(body);
            }
        }
        self.body(otherwise)
    }

    /// Run `work` in its own scope.
    fn scoped<T>(&mut self, work: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        self.scoped_in(self.scope, work)
    }

    /// Run `work` in a new scope within `parent`.
    fn scoped_in<T>(&mut self, parent: Ref, work: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        let scope = self.heap.new_scope(Some(parent));
        let outer = mem::replace(&mut self.scope, scope);
        let result = work(self)?;
        self.scope = outer;
        self.heap.drop_scope(scope);
        Ok(result)
    }

    /// Run `work` with its own output, and return that output.
    fn writing<T>(&mut self, work: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<(Str, T)> {
        let outer = mem::take(&mut self.out);
        let result = work(self)?;
        Ok((mem::replace(&mut self.out, outer).finish(), result))
    }

    /// Return the text of a body, passed through filters.
    fn captured(&mut self, filters: &'t [Suffix], body: &'t [Stmt]) -> Eval<(Val, Flow)> {
        let (text, flow) = self.writing(|machine| machine.scoped(|machine| machine.body(body)))?;
        let mut value = Val::Str(text);
        for suffix in filters {
            if let Suffix::Filter(name, args) = suffix {
                let given = self.args(args)?;
                value = self.filter(name, value, given)?;
            }
        }
        Ok((value, flow))
    }

    /// Run `with`. All values are evaluated before the variables are set.
    fn with(&mut self, values: &'t [(Target, Expr)], body: &'t [Stmt]) -> Eval<Flow> {
        let mut given = Vec::with_capacity(values.len());
        for (_, expr) in values {
            given.push(self.eval(expr)?);
        }
        self.scoped(|machine| {
            for ((target, _), value) in values.iter().zip(given) {
                machine.assign(target, value)?;
            }
            machine.body(body)
        })
    }

    /// Return a macro with the scope around it. All scopes around it stay from now on, because the
    /// macro may be called after their bodies have ended.
    fn closure(&mut self, definition: &'t Macro) -> Eval<Val> {
        self.budget.pay(VALUE)?;
        let mut scope = Some(self.scope);
        while let Some(state) = scope.and_then(|scope| self.heap.scopes.get_mut(scope as usize)) {
            self.budget.pay(if state.captured { STEP } else { SCOPE })?;
            state.captured = true;
            scope = state.parent;
        }
        Ok(self.heap.new_macro(Closure { definition, scope: self.scope }))
    }

    /// Run `call`.
    fn call_block(&mut self, definition: &'t Macro, call: &'t Expr) -> Eval<()> {
        let caller = self.closure(definition)?;
        let value = match call {
            Expr::Chain(base, suffixes) => self.chain(base, suffixes, Some(caller))?,
            other => self.eval(other)?,
        };
        let text = self.text_of(&value)?;
        self.write(&text)
    }

    /// Run `for`.
    fn for_loop(&mut self, definition: &'t For) -> Eval<Flow> {
        let items = self.eval(&definition.items)?;
        self.run_loop(definition, &items, 0)
    }

    /// Run a loop over `items` in the current scope. Each iteration has its own scope, as in Jinja:
    /// assignments are gone afterwards, except those to a namespace.
    ///
    /// Returns [`Flow::Next`], or what the body of `else` says to the loop around this one.
    fn run_loop(&mut self, definition: &'t For, items: &Val, depth: usize) -> Eval<Flow> {
        let mut items = self.items_of(items)?;
        if let Some(condition) = &definition.condition {
            items = self.kept(definition, condition, items)?;
        }
        if items.is_empty() {
            return self.scoped(|machine| machine.body(&definition.otherwise));
        }
        self.budget.values(5)?;
        let recursion = definition.recursive.then_some((definition, self.scope));
        let state = LoopState { items, index: 0, depth, recursion, last: None };
        self.heap.loops.push(state);
        let number = self.heap.loops.len() - 1;
        self.iterations(definition, number)?;
        if let Some(state) = self.heap.loops.get_mut(number) {
            state.items = Vec::new();
        }
        Ok(Flow::Next)
    }

    /// Return the items for which the loop's condition is true.
    fn kept(&mut self, definition: &'t For, condition: &'t Expr, items: Vec<Val>) -> Eval<Vec<Val>> {
        let mut kept = Vec::new();
        for item in items {
            let keep = self.scoped(|machine| {
                machine.assign(&definition.target, item.clone())?;
                Ok(machine.eval(condition)?.is_true(&machine.heap))
            })?;
            if keep {
                kept.push(item);
            }
        }
        Ok(kept)
    }

    /// Run the iterations of the loop at index `number`.
    fn iterations(&mut self, definition: &'t For, number: usize) -> Eval<()> {
        let parent = self.scope;
        let mut flow = Flow::Next;
        while flow != Flow::Break
            && let Some(state) = self.heap.loops.get(number)
            && let Some(item) = state.items.get(state.index).cloned()
        {
            flow = self.scoped_in(parent, |machine| {
                machine.assign_name(ast::LOOP, Val::Loop(number as Ref));
                machine.assign(&definition.target, item)?;
                machine.body(&definition.body)
            })?;
            if let Some(state) = self.heap.loops.get_mut(number) {
                state.index += 1;
            }
        }
        Ok(())
    }

    /// Return the value of a variable in the current scope, or the global function of that name.
    fn lookup(&mut self, name: Name) -> Eval<Val> {
        let mut scope = Some(self.scope);
        while let Some(state) = scope.and_then(|scope| self.heap.scopes.get(scope as usize)) {
            if let Some(value) = state.vars.get(&name) {
                return Ok(value.clone());
            }
            self.budget.pay(1)?;
            scope = state.parent;
        }
        Ok(self
            .template
            .names
            .get(name as usize)
            .and_then(|name| Function::named(name.as_str()))
            .map_or(Val::Undefined, Val::Function))
    }

    /// Set a variable in the current scope.
    fn assign_name(&mut self, name: Name, value: Val) {
        if let Some(scope) = self.heap.scopes.get_mut(self.scope as usize) {
            scope.vars.insert(name, value);
        }
    }

    /// Assign a value to a target.
    ///
    /// # Errors
    /// [`Fault::Failed`] for an attribute of a value that is not a namespace, or for another number
    /// of values than names.
    fn assign(&mut self, target: &'t Target, value: Val) -> Eval<()> {
        self.budget.pay(STEP)?;
        match target {
            Target::Name(name) => self.assign_name(*name, value),
            Target::Attr(name, attr) => {
                let Val::Namespace(namespace) = self.lookup(*name)? else {
                    return Err(Fault::failed("only a namespace's attributes can be set"));
                };
                self.put(namespace, Val::Str(attr.clone()), value)?;
            }
            Target::Tuple(targets) => {
                let values = self.items_of(&value)?;
                if values.len() != targets.len() {
                    return Err(Fault::failed(alloc::format!(
                        "{} values for {} names",
                        values.len(),
                        targets.len()
                    )));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
            }
        }
        Ok(())
    }

    /// Set an entry of a dict or namespace.
    ///
    /// # Errors
    /// [`Fault::Failed`] if `key` cannot be a key: lists and dicts cannot.
    pub(super) fn put(&mut self, dict: Ref, key: Val, value: Val) -> Eval<()> {
        let slot = self.key_of(&key)?;
        self.budget.values(6)?;
        if let Some(dict) = self.heap.dict_mut(dict) {
            dict.insert(slot, key, value);
        }
        Ok(())
    }

    /// Return the value of a dict or namespace under a text.
    pub(super) fn entry(&mut self, dict: Ref, name: &Str) -> Eval<Option<Val>> {
        let Some(dict) = self.heap.dicts.get(dict as usize) else { return Ok(None) };
        self.budget.pay(STEP)?;
        if name.len() > 64 {
            self.budget.scan(name.len().saturating_mul(1 + log2(dict.len())))?;
        }
        Ok(dict.get(&Key::Str(name.clone())).cloned())
    }

    /// Make a list.
    pub(super) fn new_list(&mut self, items: Vec<Val>) -> Eval<Val> {
        self.budget.values(items.len() + 2)?;
        Ok(Val::List(self.heap.new_list(items)))
    }

    /// Make a tuple.
    pub(super) fn new_tuple(&mut self, items: Vec<Val>) -> Eval<Val> {
        self.budget.values(items.len() + 2)?;
        Ok(Val::Tuple(self.heap.new_list(items)))
    }

    /// Make a sequence that can be iterated once.
    pub(super) fn new_iter(&mut self, items: Vec<Val>) -> Eval<Val> {
        self.budget.values(items.len() + 2)?;
        Ok(Val::Iter(self.heap.new_list(items)))
    }

    /// Make an empty dict.
    pub(super) fn new_dict(&mut self) -> Eval<Ref> {
        self.budget.values(4)?;
        Ok(self.heap.new_dict(Dict::default()))
    }

    /// Make a text of the interpreter's own.
    pub(super) fn new_text(&mut self, text: &str) -> Eval<Val> {
        self.budget.bytes(text.len() + 64)?;
        Ok(Val::Str(Str::new(text, Origin::Template)))
    }

    /// Return the items of an iterable value, in order.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the value cannot be iterated.
    pub(super) fn items_of(&mut self, value: &Val) -> Eval<Vec<Val>> {
        match value {
            Val::Undefined => Ok(Vec::new()),
            Val::List(list) | Val::Tuple(list) | Val::View(_, list) => {
                self.budget.values(self.heap.list(*list).len())?;
                Ok(self.heap.list(*list).to_vec())
            }
            Val::Iter(list) => Ok(self.heap.list_mut(*list).map(mem::take).unwrap_or_default()),
            Val::Dict(dict) => {
                self.budget.values(self.heap.dict(*dict).len())?;
                Ok(self.heap.dict(*dict).iter().map(|(key, _)| key.clone()).collect())
            }
            Val::Str(text) => {
                self.budget.values(text.len().saturating_mul(6))?;
                Ok(text
                    .chars()
                    .map(|(c, origin)| Val::Str(Str::new(c.encode_utf8(&mut [0; 4]) as &str, origin)))
                    .collect())
            }
            other => Err(Fault::failed(alloc::format!("{} cannot be iterated", other.kind()))),
        }
    }
}

/// Return the number of binary digits of `n`.
fn log2(n: usize) -> usize {
    (usize::BITS - n.leading_zeros()) as usize
}
