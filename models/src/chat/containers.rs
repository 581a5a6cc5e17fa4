//! The methods of lists, tuples and dicts, as in Python.
//!
//! Methods that change a container change it for all variables that refer to it. Each method is
//! charged for the items that it visits or moves before it does so.

use alloc::format;
use alloc::vec::Vec;

use super::arguments::Arguments;
use super::error::{Eval, Fault};
use super::heap::{Dict, Ref, Val, View};
use super::indices::index;
use super::machine::Machine;

/// The names of the methods of lists.
pub(super) const LIST: [&str; 11] =
    ["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];
/// The names of the methods of dicts.
pub(super) const DICT: [&str; 10] =
    ["clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

/// Call `list.name(…)`.
///
/// # Errors
/// [`Fault::Failed`] if there is no such method, or the arguments do not fit it.
pub(super) fn call_list(machine: &mut Machine<'_, '_>, list: Ref, name: &str, given: Arguments) -> Eval<Val> {
    match name {
        "append" => {
            let item = given.one(name)?;
            extend(machine, list, [item].into())
        }
        "extend" => {
            let items = given.one(name)?;
            let items = machine.items_of(&items)?;
            extend(machine, list, items)
        }
        "insert" => insert(machine, list, given),
        "pop" => {
            let [at] = given.bind(name, ["index"])?;
            let at = machine.int_arg(name, at, -1)?;
            machine.budget.values(machine.heap.list(list).len())?;
            let items = machine.heap.list_mut(list);
            items
                .and_then(|items| Some(items.remove(index(at, items.len())?)))
                .ok_or_else(|| Fault::failed("pop from an empty list, or beyond its end"))
        }
        "remove" => {
            let wanted = given.one(name)?;
            let at =
                position(machine, list, &wanted)?.ok_or_else(|| Fault::failed("remove finds nothing"))?;
            machine.budget.values(machine.heap.list(list).len())?;
            if let Some(items) = machine.heap.list_mut(list).filter(|items| at < items.len()) {
                items.remove(at);
            }
            Ok(Val::None)
        }
        "clear" => {
            given.none(name)?;
            machine.heap.list_mut(list).into_iter().for_each(Vec::clear);
            Ok(Val::None)
        }
        "reverse" => {
            given.none(name)?;
            machine.budget.values(machine.heap.list(list).len())?;
            machine.heap.list_mut(list).into_iter().for_each(|items| items.reverse());
            Ok(Val::None)
        }
        "sort" => {
            let [reverse] = given.bind(name, ["reverse"])?;
            let reverse = reverse.is_some_and(|reverse| reverse.is_true(&machine.heap));
            let items = machine.items_of(&Val::List(list))?;
            let items =
                machine.sorted(items.into_iter().map(|item| (item.clone(), item)).collect(), reverse)?;
            machine.heap.list_mut(list).into_iter().for_each(|old| *old = items.clone());
            Ok(Val::None)
        }
        "copy" => {
            given.none(name)?;
            let items = machine.items_of(&Val::List(list))?;
            machine.new_list(items)
        }
        _ => call_tuple(machine, list, name, given),
    }
}

/// Call `tuple.name(…)`. Lists have these methods too.
///
/// # Errors
/// [`Fault::Failed`] if there is no such method, or `index` finds nothing.
pub(super) fn call_tuple(
    machine: &mut Machine<'_, '_>,
    list: Ref,
    name: &str,
    given: Arguments,
) -> Eval<Val> {
    match name {
        "count" => {
            let wanted = given.one(name)?;
            let mut n = 0;
            for item in machine.items_of(&Val::List(list))? {
                n += i64::from(machine.equal(&item, &wanted)?);
            }
            Ok(Val::Int(n))
        }
        "index" => {
            let wanted = given.one(name)?;
            let at = position(machine, list, &wanted)?;
            at.map(|at| Val::Int(at as i64)).ok_or_else(|| Fault::failed("index finds nothing"))
        }
        _ => Err(Fault::failed(format!("a list has no method {name:?}"))),
    }
}

/// Return the index of the first item equal to `wanted`.
fn position(machine: &mut Machine<'_, '_>, list: Ref, wanted: &Val) -> Eval<Option<usize>> {
    for (at, item) in machine.items_of(&Val::List(list))?.iter().enumerate() {
        if machine.equal(item, wanted)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Append `items` to a list.
fn extend(machine: &mut Machine<'_, '_>, list: Ref, items: Vec<Val>) -> Eval<Val> {
    // A vector that grows may have twice the capacity that it needs.
    machine.budget.values(items.len() * 2)?;
    machine.heap.list_mut(list).into_iter().for_each(|list| list.extend_from_slice(&items));
    Ok(Val::None)
}

/// Call `list.insert(index, item)`. Indices beyond the ends count as the ends.
fn insert(machine: &mut Machine<'_, '_>, list: Ref, given: Arguments) -> Eval<Val> {
    let [at, Some(item)] = given.bind("insert", ["index", "object"])? else {
        return Err(Fault::failed("insert needs an index and an item"));
    };
    let at = machine.int_arg("insert", at, 0)?;
    machine.budget.values(machine.heap.list(list).len() + 2)?;
    if let Some(items) = machine.heap.list_mut(list) {
        let len = items.len() as i64;
        let at = if at < 0 { at.saturating_add(len) } else { at }.clamp(0, len);
        items.insert(at as usize, item);
    }
    Ok(Val::None)
}

/// Call `dict.name(…)`.
///
/// # Errors
/// [`Fault::Failed`] if there is no such method, the arguments do not fit it, or a key is missing
/// that has no default.
pub(super) fn call_dict(machine: &mut Machine<'_, '_>, dict: Ref, name: &str, given: Arguments) -> Eval<Val> {
    match name {
        "get" => {
            let [key, default] = given.bind(name, ["key", "default"])?;
            let key = machine.key_of(&required(key, name)?)?;
            let found = machine.get(dict, &key)?;
            Ok(found.or(default).unwrap_or(Val::None))
        }
        "keys" | "values" | "items" => {
            given.none(name)?;
            view(machine, dict, name)
        }
        "pop" => {
            let [key, default] = given.bind(name, ["key", "default"])?;
            let key = machine.key_of(&required(key, name)?)?;
            machine.budget.values(machine.heap.dict(dict).len())?;
            let removed = machine.heap.dict_mut(dict).and_then(|dict| dict.remove(&key));
            let removed = removed.map(|(_, value)| value).or(default);
            removed.ok_or_else(|| Fault::failed("pop finds no such key"))
        }
        "popitem" => {
            given.none(name)?;
            machine.budget.values(machine.heap.dict(dict).len())?;
            let removed = machine.heap.dict_mut(dict).and_then(|dict| dict.remove(&dict.last_key()?));
            let (key, value) = removed.ok_or_else(|| Fault::failed("popitem from an empty dict"))?;
            machine.new_tuple([key, value].into())
        }
        "setdefault" => {
            let [key, default] = given.bind(name, ["key", "default"])?;
            let key = required(key, name)?;
            let known = machine.key_of(&key)?;
            if let Some(value) = machine.get(dict, &known)? {
                return Ok(value);
            }
            let default = default.unwrap_or(Val::None);
            machine.put(dict, key, default.clone())?;
            Ok(default)
        }
        "update" => {
            for other in given.list {
                update(machine, dict, &other)?;
            }
            for (name, value) in given.named {
                machine.put(dict, Val::Str(name), value)?;
            }
            Ok(Val::None)
        }
        "clear" => {
            given.none(name)?;
            machine.heap.dict_mut(dict).into_iter().for_each(Dict::clear);
            Ok(Val::None)
        }
        "copy" => {
            given.none(name)?;
            let copy = machine.new_dict()?;
            update(machine, copy, &Val::Dict(dict))?;
            Ok(Val::Dict(copy))
        }
        _ => Err(Fault::failed(format!("a dict has no method {name:?}"))),
    }
}

/// Return the key that was passed to method `name`.
///
/// # Errors
/// [`Fault::Failed`] if none was.
fn required(key: Option<Val>, name: &str) -> Eval<Val> {
    key.ok_or_else(|| Fault::failed(format!("{name} needs a key")))
}

/// Return the keys, values or items of a dict.
pub(super) fn view(machine: &mut Machine<'_, '_>, dict: Ref, what: &str) -> Eval<Val> {
    let n = machine.heap.dict(dict).len();
    machine.budget.values(n * 2 + 2)?;
    let entries = machine.heap.dict(dict).to_vec();
    let (kind, items) = match what {
        "keys" => (View::Keys, entries.into_iter().map(|(key, _)| key).collect()),
        "values" => (View::Values, entries.into_iter().map(|(_, value)| value).collect()),
        _ => (View::Items, pairs(machine, entries)?),
    };
    Ok(Val::View(kind, machine.heap.new_list(items)))
}

/// Return each key and its value as a tuple.
pub(super) fn pairs(machine: &mut Machine<'_, '_>, entries: Vec<(Val, Val)>) -> Eval<Vec<Val>> {
    let mut pairs = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        pairs.push(machine.new_tuple([key, value].into())?);
    }
    Ok(pairs)
}

/// Copy the entries of another dict, or pairs of keys and values, into a dict.
///
/// # Errors
/// [`Fault::Failed`] if `other` is neither a dict nor a sequence of pairs.
pub(super) fn update(machine: &mut Machine<'_, '_>, dict: Ref, other: &Val) -> Eval<()> {
    if let Val::Dict(other) | Val::Namespace(other) = other {
        machine.budget.values(machine.heap.dict(*other).len() * 2)?;
        for (key, value) in machine.heap.dict(*other).to_vec() {
            machine.put(dict, key, value)?;
        }
        return Ok(());
    }
    for pair in machine.items_of(other)? {
        match <[Val; 2]>::try_from(machine.items_of(&pair)?) {
            Ok([key, value]) => machine.put(dict, key, value)?,
            Err(_) => return Err(Fault::failed("a dict is made of pairs of keys and values")),
        }
    }
    Ok(())
}
