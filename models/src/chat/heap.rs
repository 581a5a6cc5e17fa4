//! The values of a running template.
//!
//! Lists, dicts and namespaces can be changed, and can contain themselves, as in Python. They live
//! in a [`Heap`] for as long as the template runs, and a [`Val`] holds their index. Dropping values
//! therefore neither recurses nor leaks. Code that follows references bounds the depth (`walk.rs`).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::ast::Macro;
use super::text::Str;

/// The index of an object in its list of the heap.
pub(super) type Ref = u32;

/// A value of a template. It is small and cheap to copy.
#[derive(Clone, Debug)]
pub(super) enum Val {
    /// A variable or attribute that does not exist.
    Undefined,
    /// Python's `None`.
    None,
    /// A boolean, which also counts as an integer.
    Bool(bool),
    /// An integer. Results beyond 64 bits are faults.
    Int(i64),
    /// A float.
    Float(f64),
    /// A text with the origins of its bytes.
    Str(Str),
    /// A list, in [`Heap::lists`].
    List(Ref),
    /// A list that cannot be changed.
    Tuple(Ref),
    /// A list that cannot be changed or compared, like Python's views and ranges.
    View(View, Ref),
    /// The result of a filter that is lazy in Python: it can be iterated once. The list holds the
    /// items left.
    Iter(Ref),
    /// A dict, in [`Heap::dicts`].
    Dict(Ref),
    /// A `namespace`, whose attributes can be assigned in inner scopes.
    Namespace(Ref),
    /// A macro, in [`Heap::macros`].
    Macro(Ref),
    /// The variable `loop`, in [`Heap::loops`].
    Loop(Ref),
    /// A method of a value, not called yet.
    Method(Ref),
    /// A global function.
    Function(Function),
    /// A `cycler` or `joiner`.
    Cycle(Ref),
}

/// The kinds of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// `dict.keys()`
    Keys,
    /// `dict.values()`
    Values,
    /// `dict.items()`
    Items,
    /// `range(…)`
    Range,
}

/// The functions that templates can call by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// `range(start, stop, step)`
    Range,
    /// `namespace(…)`
    Namespace,
    /// `dict(…)`
    Dict,
    /// `raise_exception(message)`
    Raise,
    /// `strftime_now(format)`
    Now,
    /// `cycler(…)`
    Cycler,
    /// `joiner(separator)`
    Joiner,
}

impl Function {
    /// Return the function of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "range" => Self::Range,
            "namespace" => Self::Namespace,
            "dict" => Self::Dict,
            "raise_exception" => Self::Raise,
            "strftime_now" => Self::Now,
            "cycler" => Self::Cycler,
            "joiner" => Self::Joiner,
            _ => return None,
        })
    }
}

/// A dictionary in order of insertion: entries, and the index of each key's entry.
#[derive(Debug, Default)]
pub(super) struct Dict {
    /// Keys and values, in order of insertion.
    entries: Vec<(Val, Val)>,
    /// The index of each key's entry.
    indices: BTreeMap<Key, usize>,
}

/// The identity of a dictionary key. Equal numbers are one key whatever their type, so `{1:
/// 'a'}[True]` is `'a'`, as in Python.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// `None`
    None,
    /// A number that is an integer.
    Int(i64),
    /// The bits of a number that is not an integer.
    Float(u64),
    /// A text, whatever its origins.
    Str(Str),
    /// A tuple of keys.
    Tuple(Vec<Key>),
}

impl Key {
    /// Return the key of a float, which is that of the integer if it is equal to one.
    pub(super) fn float(x: f64) -> Self {
        // The conversion is exact for all integers that both types have.
        let n = x as i64;
        if n as f64 == x && n != i64::MAX { Self::Int(n) } else { Self::Float(x.to_bits()) }
    }
}

impl Dict {
    /// Return the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Return keys and values in order of insertion.
    pub(super) fn entries(&self) -> &[(Val, Val)] {
        &self.entries
    }

    /// Return the value of a key.
    pub(super) fn get(&self, key: &Key) -> Option<&Val> {
        self.entries.get(*self.indices.get(key)?).map(|(_, value)| value)
    }

    /// Set the value of `key`. `shown` is the key as a value; if the key is there already, the
    /// earlier one stays.
    pub(super) fn insert(&mut self, key: Key, shown: Val, value: Val) {
        let end = self.entries.len();
        let index = *self.indices.entry(key).or_insert(end);
        match self.entries.get_mut(index) {
            Some((_, old)) => *old = value,
            None => self.entries.push((shown, value)),
        }
    }

    /// Remove an entry, in time linear in their number.
    pub(super) fn remove(&mut self, key: &Key) -> Option<(Val, Val)> {
        let index = self.indices.remove(key)?;
        self.indices.values_mut().filter(|other| **other > index).for_each(|other| *other -= 1);
        (index < self.entries.len()).then(|| self.entries.remove(index))
    }

    /// Remove all entries.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Return the key of the last entry.
    pub(super) fn last_key(&self) -> Option<Key> {
        let last = self.len().checked_sub(1)?;
        self.indices.iter().find(|(_, index)| **index == last).map(|(key, _)| key.clone())
    }
}

/// The variables of a body, and the scope around it.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// The variables set in the body.
    pub(super) vars: BTreeMap<super::ast::Name, Val>,
    /// The scope around it; `None` for the global scope.
    pub(super) parent: Option<Ref>,
    /// True if a macro refers to the scope, which then stays.
    pub(super) captured: bool,
}

/// A macro and the scope in which it was defined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closure<'t> {
    /// The macro in the tree.
    pub(super) definition: &'t Macro,
    /// The scope around the definition.
    pub(super) scope: Ref,
}

/// A running loop.
#[derive(Debug)]
pub(super) struct LoopState<'t> {
    /// The items of the loop, all evaluated before the first iteration.
    pub(super) items: Vec<Val>,
    /// The index of the current item.
    pub(super) index: usize,
    /// The number of loops of the same recursion around it.
    pub(super) depth: usize,
    /// The loop in the template and the scope around it, if the loop may call itself.
    pub(super) recursion: Option<(&'t super::ast::For, Ref)>,
    /// The arguments of the last call of `loop.changed`.
    pub(super) last: Option<Vec<Val>>,
}

/// The state of a `cycler`, or of a `joiner`, which gives an empty text the first time.
#[derive(Debug)]
pub(super) struct CycleState {
    /// The items, or the one separator.
    pub(super) items: Vec<Val>,
    /// The number of items given so far.
    pub(super) position: usize,
    /// True for a `joiner`.
    pub(super) joins: bool,
}

/// The names of the two items of what `groupby` gives.
pub(super) const GROUP: [&str; 2] = ["grouper", "list"];

/// All objects of a running template, by kind.
#[derive(Debug, Default)]
pub(super) struct Heap<'t> {
    /// Lists, tuples, views and iterators.
    pub(super) lists: Vec<Vec<Val>>,
    /// The tuples that `groupby` made, whose items have the names [`GROUP`].
    pub(super) groups: BTreeSet<Ref>,
    /// Dicts and namespaces.
    pub(super) dicts: Vec<Dict>,
    /// Scopes, the global one first.
    pub(super) scopes: Vec<Scope>,
    /// Macros with their scopes.
    pub(super) macros: Vec<Closure<'t>>,
    /// Loops that were started.
    pub(super) loops: Vec<LoopState<'t>>,
    /// Methods that were looked up but not called yet: the value and the name.
    pub(super) methods: Vec<(Val, Str)>,
    /// `cycler`s and `joiner`s.
    pub(super) cycles: Vec<CycleState>,
}

impl<'t> Heap<'t> {
    /// Add a list.
    pub(super) fn new_list(&mut self, items: Vec<Val>) -> Ref {
        self.lists.push(items);
        self.lists.len() as Ref - 1
    }

    /// Add a dict.
    pub(super) fn new_dict(&mut self, dict: Dict) -> Ref {
        self.dicts.push(dict);
        self.dicts.len() as Ref - 1
    }

    /// Add a scope within `parent`.
    pub(super) fn new_scope(&mut self, parent: Option<Ref>) -> Ref {
        self.scopes.push(Scope { parent, ..Scope::default() });
        self.scopes.len() as Ref - 1
    }

    /// Add a macro.
    pub(super) fn new_macro(&mut self, closure: Closure<'t>) -> Val {
        self.macros.push(closure);
        Val::Macro(self.macros.len() as Ref - 1)
    }

    /// Add a method of `value`.
    pub(super) fn new_method(&mut self, value: Val, name: &Str) -> Val {
        self.methods.push((value, name.clone()));
        Val::Method(self.methods.len() as Ref - 1)
    }

    /// Add a `cycler` or `joiner`.
    pub(super) fn new_cycle(&mut self, state: CycleState) -> Val {
        self.cycles.push(state);
        Val::Cycle(self.cycles.len() as Ref - 1)
    }

    /// Return the items of a list.
    pub(super) fn list(&self, list: Ref) -> &[Val] {
        debug_assert!((list as usize) < self.lists.len(), "a list of this heap");
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    /// Return a list, to be changed.
    pub(super) fn list_mut(&mut self, list: Ref) -> Option<&mut Vec<Val>> {
        debug_assert!((list as usize) < self.lists.len(), "a list of this heap");
        self.lists.get_mut(list as usize)
    }

    /// Return the entries of a dict.
    pub(super) fn dict(&self, dict: Ref) -> &[(Val, Val)] {
        debug_assert!((dict as usize) < self.dicts.len(), "a dict of this heap");
        self.dicts.get(dict as usize).map_or(&[], Dict::entries)
    }

    /// Return a dict, to be changed.
    pub(super) fn dict_mut(&mut self, dict: Ref) -> Option<&mut Dict> {
        debug_assert!((dict as usize) < self.dicts.len(), "a dict of this heap");
        self.dicts.get_mut(dict as usize)
    }

    /// Remove a scope unless a macro refers to it: the whole scope if it is the newest, else its
    /// variables.
    pub(super) fn drop_scope(&mut self, scope: Ref) {
        let newest = self.scopes.len() == scope as usize + 1;
        let Some(state) = self.scopes.get_mut(scope as usize).filter(|scope| !scope.captured) else { return };
        state.vars = BTreeMap::new();
        if newest {
            self.scopes.pop();
        }
    }
}

impl Val {
    /// Return true if the value counts as true. This depends on nothing but the value's own length.
    pub(super) fn is_true(&self, heap: &Heap<'_>) -> bool {
        match self {
            Self::Undefined | Self::None => false,
            Self::Bool(truth) => *truth,
            Self::Int(n) => *n != 0,
            Self::Float(x) => *x != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(list) | Self::Tuple(list) | Self::View(_, list) => !heap.list(*list).is_empty(),
            Self::Dict(dict) => !heap.dict(*dict).is_empty(),
            _ => true,
        }
    }

    /// Return the name of the type in messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "an undefined value",
            Self::None => "none",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::View(View::Range, _) => "a range",
            Self::View(..) => "a view of a dict",
            Self::Iter(_) => "a generator",
            Self::Dict(_) => "a dict",
            Self::Namespace(_) => "a namespace",
            Self::Macro(_) => "a macro",
            Self::Loop(_) => "a loop",
            Self::Method(_) => "a method",
            Self::Function(_) | Self::Cycle(_) => "a function",
        }
    }

    /// Return a number or boolean as an integer.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Bool(truth) => Some(i64::from(*truth)),
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Return a number or boolean as a float.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(x) => Some(*x),
            _ => self.as_int().map(|n| n as f64),
        }
    }
}

impl From<Str> for Val {
    fn from(text: Str) -> Self {
        Self::Str(text)
    }
}
