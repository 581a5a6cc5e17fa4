//! Filters of sequences.
//!
//! Filters that are lazy in Python return a value that can be iterated once, so that templates see
//! the same behaviour. Their items are all computed at once here, because the budget is charged for
//! them in any case.

use alloc::format;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::super::arguments::Arguments;
use super::super::error::{Eval, Fault};
use super::super::heap::Val;
use super::super::machine::Machine;
use super::super::numbers;
use super::super::text::Str;

/// The result of a filter of sequences. For a filter of another kind it returns its input
/// unchanged.
type Found = Result<Val, (Val, Arguments)>;

/// The attribute of an item that a filter looks at, as a path of names and indices; empty for the
/// item itself.
type Path = Vec<Val>;

impl Machine<'_, '_> {
    /// Evaluate a filter of sequences.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the value cannot be iterated, or the arguments do not fit the filter.
    pub(super) fn sequence_filter(&mut self, name: &str, value: Val, given: Arguments) -> Eval<Found> {
        Ok(Ok(match name {
            "list" => {
                given.none(name)?;
                let items = self.items_of(&value)?;
                self.new_list(items)?
            }
            "first" | "last" => {
                given.none(name)?;
                self.end(&value, name == "last")?
            }
            "join" => {
                let [separator, attribute] = given.bind(name, ["d", "attribute"])?;
                let separator = separator.unwrap_or_else(|| Val::Str(Str::template("")));
                let separator = self.text_of(&separator)?;
                let path = self.path(attribute)?;
                let items = self.items_of(&value)?;
                let items = self.followed(items, &path)?;
                let items = self.new_list(items)?;
                self.join(&items, &separator, false)?
            }
            "reverse" => {
                given.none(name)?;
                match &value {
                    Val::Str(_) => self.sliced(&value, [None, None, Some(-1)])?,
                    _ => {
                        let mut items = self.items_of(&value)?;
                        items.reverse();
                        self.new_iter(items)?
                    }
                }
            }
            "map" => self.map(&value, given)?,
            "select" => self.select(&value, given, true, false)?,
            "reject" => self.select(&value, given, false, false)?,
            "selectattr" => self.select(&value, given, true, true)?,
            "rejectattr" => self.select(&value, given, false, true)?,
            "sort" => {
                let names = ["reverse", "case_sensitive", "attribute"];
                let [reverse, cased, attribute] = given.bind(name, names)?;
                self.sort(&value, [reverse, cased], attribute)?
            }
            "unique" => {
                let [cased, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
                self.unique(&value, cased, attribute)?
            }
            "min" | "max" => {
                let [cased, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
                let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
                self.extreme(&value, cased, attribute, wanted)?
            }
            "sum" => self.sum(&value, given)?,
            "dictsort" => self.dict_sort(&value, given)?,
            "groupby" => self.group(&value, given)?,
            "batch" | "slice" => self.chunks(&value, given, name == "batch")?,
            _ => return Ok(Err((value, given))),
        }))
    }

    /// Evaluate `first` or `last`: `[1, 2] | last` is 2. The end of an empty sequence is undefined.
    fn end(&mut self, value: &Val, last: bool) -> Eval<Val> {
        match value {
            Val::List(list) | Val::Tuple(list) | Val::View(_, list) => {
                let items = self.heap.list(*list);
                Ok(if last { items.last() } else { items.first() }.cloned().unwrap_or(Val::Undefined))
            }
            Val::Str(_) => self.item(value, &Val::Int(if last { -1 } else { 0 })),
            Val::Iter(list) if !last => {
                self.budget.values(self.heap.list(*list).len())?;
                let items = self.heap.list_mut(*list).filter(|items| !items.is_empty());
                Ok(items.map_or(Val::Undefined, |items| items.remove(0)))
            }
            _ => {
                let items = self.items_of(value)?;
                Ok(if last { items.last() } else { items.first() }.cloned().unwrap_or(Val::Undefined))
            }
        }
    }

    /// Parse an attribute argument: a number, or names and numbers joined by dots, such as
    /// `user.name` or `0.id`.
    ///
    /// # Errors
    /// [`Fault::Failed`] for a value of another type.
    fn path(&mut self, attribute: Option<Val>) -> Eval<Path> {
        match attribute {
            None | Some(Val::None) => Ok(Vec::new()),
            Some(Val::Str(text)) => {
                self.budget.values(text.len())?;
                let step = |part: &str| {
                    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                    let number = if digits { numbers::parse_int(part, 10) } else { None };
                    number.map_or_else(|| Val::Str(text.subslice(part)), Val::Int)
                };
                Ok(text.as_str().split('.').map(step).collect())
            }
            Some(other) if other.as_int().is_some() => Ok([other].into()),
            Some(other) => Err(Fault::failed(format!("{} as an attribute", other.kind()))),
        }
    }

    /// Return the value at the end of a path.
    ///
    /// # Errors
    /// [`Fault::Failed`] if an attribute of an undefined value is asked for.
    fn follow(&mut self, item: &Val, path: &[Val]) -> Eval<Val> {
        let mut value = item.clone();
        for step in path {
            self.budget.pay(super::super::budget::STEP)?;
            if let Val::Undefined = value {
                return Err(Fault::failed("an attribute of an undefined value"));
            }
            value = self.item(&value, step)?;
        }
        Ok(value)
    }

    /// Follow a path from each item.
    fn followed(&mut self, items: Vec<Val>, path: &[Val]) -> Eval<Vec<Val>> {
        if path.is_empty() {
            return Ok(items);
        }
        items.iter().map(|item| self.follow(item, path)).collect()
    }

    /// Return the items of `value`; none if the value counts as false, even if it cannot be
    /// iterated.
    fn items_if_any(&mut self, value: &Val) -> Eval<Vec<Val>> {
        if value.is_true(&self.heap) { self.items_of(value) } else { Ok(Vec::new()) }
    }

    /// Evaluate `map`: `['a'] | map('upper') | list` is `['A']`, and `users |
    /// map(attribute='name')` takes an attribute of each item.
    fn map(&mut self, value: &Val, mut given: Arguments) -> Eval<Val> {
        let items = self.items_if_any(value)?;
        let mut mapped = Vec::with_capacity(items.len());
        if given.list.is_empty() {
            let [attribute, default] = given.bind("map", ["attribute", "default"])?;
            let path = self.path(attribute)?;
            if path.is_empty() {
                return Err(Fault::failed("map needs a filter or an attribute"));
            }
            for item in items {
                let found = self.follow(&item, &path)?;
                mapped.push(match (&found, &default) {
                    (Val::Undefined, Some(default)) => default.clone(),
                    _ => found,
                });
            }
        } else {
            let Val::Str(filter) = given.list.remove(0) else {
                return Err(Fault::failed("map needs the name of a filter"));
            };
            for item in items {
                let given = self.again(&given)?;
                mapped.push(self.deeper(|machine| machine.filter(&filter, item, given))?);
            }
        }
        self.new_iter(mapped)
    }

    /// Return a copy of the arguments for another call.
    fn again(&mut self, given: &Arguments) -> Eval<Arguments> {
        self.budget.values(given.list.len() + 2 * given.named.len())?;
        Ok(Arguments { list: given.list.clone(), named: given.named.clone(), caller: None })
    }

    /// Return the items that pass a test (`wanted`) or fail it: `[1, 2] | select('odd') | list` is
    /// `[1]`. With `attr`, the test applies to an attribute.
    fn select(&mut self, value: &Val, mut given: Arguments, wanted: bool, attr: bool) -> Eval<Val> {
        let mut path = Vec::new();
        if attr {
            if given.list.is_empty() {
                return Err(Fault::failed("selectattr and rejectattr need an attribute"));
            }
            let attribute = given.list.remove(0);
            path = self.path(Some(attribute))?;
        }
        let test = match given.list.is_empty() {
            true => None,
            false => Some(given.list.remove(0)),
        };
        let mut kept = Vec::new();
        for item in self.items_if_any(value)? {
            let looked_at = self.follow(&item, &path)?;
            let passes = match &test {
                None => looked_at.is_true(&self.heap),
                Some(Val::Str(test)) => {
                    let given = self.again(&given)?;
                    self.deeper(|machine| machine.test(test, &looked_at, given))?
                }
                Some(other) => return Err(Fault::failed(format!("{} as the name of a test", other.kind()))),
            };
            if passes == wanted {
                kept.push(item);
            }
        }
        self.new_iter(kept)
    }

    /// Return the sort key of an item: in lower case unless `cased`.
    fn sort_key(&mut self, item: &Val, path: &[Val], cased: bool) -> Eval<Val> {
        match self.follow(item, path)? {
            Val::Str(text) if !cased => self.cased(&text, "lower"),
            other => Ok(other),
        }
    }

    /// Return the items with their sort keys.
    fn keyed(&mut self, value: &Val, cased: Option<Val>, attribute: Option<Val>) -> Eval<Vec<(Val, Val)>> {
        let cased = cased.is_some_and(|cased| cased.is_true(&self.heap));
        let path = self.path(attribute)?;
        let items = self.items_of(value)?;
        self.budget.values(items.len())?;
        let mut keyed = Vec::with_capacity(items.len());
        for item in items {
            keyed.push((self.sort_key(&item, &path, cased)?, item));
        }
        Ok(keyed)
    }

    /// Evaluate `sort`: `['b', 'A'] | sort` is `['A', 'b']`, because letter case is ignored by
    /// default.
    fn sort(&mut self, value: &Val, flags: [Option<Val>; 2], attribute: Option<Val>) -> Eval<Val> {
        let [reverse, cased] = flags;
        let reverse = reverse.is_some_and(|reverse| reverse.is_true(&self.heap));
        let cased = cased.is_some_and(|cased| cased.is_true(&self.heap));
        // Several attributes, separated by commas, are compared one after the other.
        let mut paths = Vec::new();
        match attribute {
            Some(Val::Str(text)) => {
                self.budget.values(text.len())?;
                for part in text.as_str().split(',') {
                    paths.push(self.path(Some(Val::Str(text.subslice(part))))?);
                }
            }
            other => paths.push(self.path(other)?),
        }
        let mut keyed = Vec::new();
        for item in self.items_of(value)? {
            let mut key = Vec::new();
            for path in &paths {
                key.push(self.sort_key(&item, path, cased)?);
            }
            let key = match key.len() {
                1 => key.remove(0),
                _ => self.new_tuple(key)?,
            };
            keyed.push((key, item));
        }
        let sorted = self.sorted(keyed, reverse)?;
        self.new_list(sorted)
    }

    /// Evaluate `unique`: `[1, 2, 1] | unique | list` is `[1, 2]`.
    fn unique(&mut self, value: &Val, cased: Option<Val>, attribute: Option<Val>) -> Eval<Val> {
        let seen = self.new_dict()?;
        let mut kept = Vec::new();
        for (key, item) in self.keyed(value, cased, attribute)? {
            let slot = self.key_of(&key)?;
            if self.get(seen, &slot)?.is_none() {
                self.put(seen, key, Val::None)?;
                kept.push(item);
            }
        }
        self.new_iter(kept)
    }

    /// Evaluate `min` or `max`: `[2, 1] | min` is 1. That of an empty sequence is undefined.
    fn extreme(
        &mut self,
        value: &Val,
        cased: Option<Val>,
        attribute: Option<Val>,
        wanted: Ordering,
    ) -> Eval<Val> {
        let mut best: Option<(Val, Val)> = None;
        for (key, item) in self.keyed(value, cased, attribute)? {
            let better = match &best {
                None => true,
                Some((best_key, _)) => self.order(&key, best_key)? == Some(wanted),
            };
            if better {
                best = Some((key, item));
            }
        }
        Ok(best.map_or(Val::Undefined, |(_, item)| item))
    }

    /// Evaluate `sum`: `[1, 2] | sum(start=4)` is 7.
    fn sum(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        let [attribute, start] = given.bind("sum", ["attribute", "start"])?;
        let path = self.path(attribute)?;
        let mut sum = start.unwrap_or(Val::Int(0));
        for item in self.items_of(value)? {
            let item = self.follow(&item, &path)?;
            sum = self.calculate(super::super::ast::MathOp::Add, &sum, &item)?;
        }
        Ok(sum)
    }

    /// Evaluate `dictsort`: `{'b': 1, 'a': 2} | dictsort` is `[('a', 2), ('b', 1)]`.
    fn dict_sort(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        let [cased, by, reverse] = given.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
        let Val::Dict(dict) = value else {
            return Err(Fault::failed(format!("dictsort needs a dict, not {}", value.kind())));
        };
        let cased = cased.is_some_and(|cased| cased.is_true(&self.heap));
        let reverse = reverse.is_some_and(|reverse| reverse.is_true(&self.heap));
        let by_value = match self.str_arg("dictsort", by)?.as_ref().map_or("key", Str::as_str) {
            "key" => false,
            "value" => true,
            _ => return Err(Fault::failed("dictsort goes by key or value")),
        };
        self.budget.values(self.heap.dict(*dict).len() * 2)?;
        let entries = self.heap.dict(*dict).to_vec();
        let mut keyed = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let by = self.sort_key(if by_value { &value } else { &key }, &[], cased)?;
            keyed.push((by, self.new_tuple([key, value].into())?));
        }
        let sorted = self.sorted(keyed, reverse)?;
        self.new_list(sorted)
    }

    /// Evaluate `groupby`: items with equal attributes, as pairs of the attribute and the list of
    /// items, sorted by the attribute. The two are also called `grouper` and `list`.
    fn group(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        let [attribute, default, cased] =
            given.bind("groupby", ["attribute", "default", "case_sensitive"])?;
        let cased = cased.is_some_and(|cased| cased.is_true(&self.heap));
        let path = self.path(attribute)?;
        let mut keyed = Vec::new();
        for item in self.items_of(value)? {
            let shown = match (self.follow(&item, &path)?, &default) {
                (Val::Undefined, Some(default)) => default.clone(),
                (found, _) => found,
            };
            let key = self.sort_key(&shown, &[], cased)?;
            let item = self.new_tuple([key.clone(), shown, item].into())?;
            keyed.push((key, item));
        }
        let mut groups: Vec<(Val, Val, Vec<Val>)> = Vec::new();
        for entry in self.sorted(keyed, false)? {
            let Ok([key, shown, item]) = <[Val; 3]>::try_from(self.items_of(&entry)?) else { continue };
            match groups.last_mut() {
                Some((last, _, items)) if self.equal(last, &key)? => items.push(item),
                _ => groups.push((key, shown, [item].into())),
            }
        }
        let mut pairs = Vec::with_capacity(groups.len());
        for (_, shown, items) in groups {
            let items = self.new_list(items)?;
            let pair = self.new_tuple([shown, items].into())?;
            if let Val::Tuple(number) = pair {
                self.budget.values(4)?;
                self.heap.groups.insert(number);
            }
            pairs.push(pair);
        }
        self.new_list(pairs)
    }

    /// Evaluate `batch`, which makes lists of so many items, or `slice`, which makes so many lists:
    /// `[1, 2, 3] | batch(2) | list` is `[[1, 2], [3]]`.
    fn chunks(&mut self, value: &Val, given: Arguments, batch: bool) -> Eval<Val> {
        let [n, fill] = given.bind("batch", ["count", "fill_with"])?;
        let n = usize::try_from(self.int_arg("batch", n, 0)?).ok().filter(|n| (1..=1 << 20).contains(n));
        let n = n.ok_or_else(|| Fault::failed("batch and slice need a positive number"))?;
        let items = self.items_of(value)?;
        let mut lists: Vec<Vec<Val>> = Vec::new();
        if batch {
            lists = items.chunks(n).map(<[Val]>::to_vec).collect();
        } else {
            let (short, n_long) = (items.len() / n, items.len() % n);
            let mut rest = items.as_slice();
            for i in 0..n {
                let (list, after) = rest.split_at(rest.len().min(short + usize::from(i < n_long)));
                lists.push(list.to_vec());
                rest = after;
            }
        }
        let longest = if batch { n } else { items.len().div_ceil(n) };
        let mut out = Vec::with_capacity(lists.len());
        for mut list in lists {
            if let Some(fill) = fill.as_ref().filter(|fill| !matches!(fill, Val::None)) {
                self.budget.values(longest)?;
                list.resize(longest.max(list.len()), fill.clone());
            }
            out.push(self.new_list(list)?);
        }
        self.new_iter(out)
    }
}
