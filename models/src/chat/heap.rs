//! The values of a running template.
//!
//! Lists, dicts and namespaces can be changed and can hold themselves, as in Python. They live in a [`Heap`]
//! for as long as the template runs, and a [`Val`] holds their number, so dropping them neither recurses nor
//! leaks. Whoever walks from value to value bounds the depth (`walk.rs`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::ast::Macro;
use super::text::Str;

/// The number of something on the heap.
pub(super) type Ref = u32;

/// A value. Small and cheap to copy.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Str),
    List(Ref),
    Tuple(Ref),
    /// A list that cannot be changed or compared, as Python's views are.
    View(View, Ref),
    /// What a filter yields lazily in Python: it can be gone through once. The list is what is left of it.
    Iter(Ref),
    Dict(Ref),
    Namespace(Ref),
    Macro(Ref),
    Loop(Ref),
    /// A value's method, not called yet.
    Method(Ref),
    Function(Function),
    /// An object that gives its items in turn, or a separator from the second time on.
    Turns(Ref),
}

/// The kinds of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Keys,
    Values,
    Items,
    Range,
}

/// What templates can call by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Namespace,
    Dict,
    Raise,
    Now,
    Cycler,
    Joiner,
}

/// A dictionary in order of insertion.
#[derive(Debug, Default)]
pub(super) struct Dict {
    entries: Vec<(Val, Val)>,
    places: BTreeMap<Key, usize>,
}

/// What dictionaries tell their keys apart by. Equal numbers are one key whatever their type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    None,
    Int(i64),
    /// The bits of a number that is not an integer.
    Float(u64),
    Str(Str),
    Tuple(Vec<Key>),
}

impl Key {
    pub(super) fn float(x: f64) -> Self {
        // Exact for all integers that both types have.
        let n = x as i64;
        if n as f64 == x && n != i64::MAX { Self::Int(n) } else { Self::Float(x.to_bits()) }
    }
}

impl Dict {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> &[(Val, Val)] {
        &self.entries
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Val> {
        self.entries.get(*self.places.get(key)?).map(|(_, value)| value)
    }

    /// Puts `value` under `key`; `shown` is the key as a value, and an earlier one stays.
    pub(super) fn insert(&mut self, key: Key, shown: Val, value: Val) {
        let end = self.entries.len();
        let place = *self.places.entry(key).or_insert(end);
        match self.entries.get_mut(place) {
            Some((_, old)) => *old = value,
            None => self.entries.push((shown, value)),
        }
    }

    /// Takes out an entry; takes time linear in their number.
    pub(super) fn remove(&mut self, key: &Key) -> Option<(Val, Val)> {
        let place = self.places.remove(key)?;
        self.places.values_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
        (place < self.entries.len()).then(|| self.entries.remove(place))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The key of the last entry.
    pub(super) fn last_key(&self) -> Option<Key> {
        let last = self.len().checked_sub(1)?;
        self.places.iter().find(|(_, place)| **place == last).map(|(key, _)| key.clone())
    }
}

/// The variables of a body, within those of another.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) vars: BTreeMap<super::ast::Name, Val>,
    pub(super) parent: Option<Ref>,
    /// A macro holds on to it.
    pub(super) captured: bool,
}

/// A macro and the scope in which it was defined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closure<'t> {
    pub(super) definition: &'t Macro,
    pub(super) scope: Ref,
}

/// A loop that runs.
#[derive(Debug)]
pub(super) struct LoopState<'t> {
    pub(super) items: Vec<Val>,
    pub(super) index: usize,
    /// How many loops of the same recursion are around it.
    pub(super) depth: usize,
    /// The loop in the template, if it may call itself, and the scope in which it stands.
    pub(super) recursion: Option<(&'t super::ast::For, Ref)>,
    /// What `changed` was last given.
    pub(super) last: Option<Vec<Val>>,
}

/// `cycler` and `joiner`.
#[derive(Debug)]
pub(super) struct TurnState {
    pub(super) items: Vec<Val>,
    pub(super) turn: usize,
    pub(super) joins: bool,
}

/// Everything that has an identity.
#[derive(Debug, Default)]
pub(super) struct Heap<'t> {
    pub(super) lists: Vec<Vec<Val>>,
    pub(super) dicts: Vec<Dict>,
    pub(super) scopes: Vec<Scope>,
    pub(super) macros: Vec<Closure<'t>>,
    pub(super) loops: Vec<LoopState<'t>>,
    pub(super) methods: Vec<(Val, Str)>,
    pub(super) turns: Vec<TurnState>,
}

impl<'t> Heap<'t> {
    pub(super) fn new_list(&mut self, items: Vec<Val>) -> Ref {
        self.lists.push(items);
        self.lists.len() as Ref - 1
    }

    pub(super) fn new_dict(&mut self, dict: Dict) -> Ref {
        self.dicts.push(dict);
        self.dicts.len() as Ref - 1
    }

    pub(super) fn new_scope(&mut self, parent: Option<Ref>) -> Ref {
        self.scopes.push(Scope { parent, ..Scope::default() });
        self.scopes.len() as Ref - 1
    }

    pub(super) fn new_macro(&mut self, closure: Closure<'t>) -> Val {
        self.macros.push(closure);
        Val::Macro(self.macros.len() as Ref - 1)
    }

    pub(super) fn new_method(&mut self, value: Val, name: &Str) -> Val {
        self.methods.push((value, name.clone()));
        Val::Method(self.methods.len() as Ref - 1)
    }

    pub(super) fn new_turns(&mut self, state: TurnState) -> Val {
        self.turns.push(state);
        Val::Turns(self.turns.len() as Ref - 1)
    }

    pub(super) fn list(&self, list: Ref) -> &[Val] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn list_mut(&mut self, list: Ref) -> Option<&mut Vec<Val>> {
        self.lists.get_mut(list as usize)
    }

    pub(super) fn dict(&self, dict: Ref) -> &[(Val, Val)] {
        self.dicts.get(dict as usize).map_or(&[], Dict::entries)
    }

    pub(super) fn dict_mut(&mut self, dict: Ref) -> Option<&mut Dict> {
        self.dicts.get_mut(dict as usize)
    }

    /// Takes a scope away if nothing holds it: as a whole if it is the newest, else its variables.
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
    /// The value counts as true. Truth never depends on more than the value's own length.
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

    /// The type's name in messages.
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
            Self::Function(_) | Self::Turns(_) => "a function",
        }
    }

    /// Numbers and booleans, as a whole number.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Bool(truth) => Some(i64::from(*truth)),
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

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
