//! A template as a tree.
//!
//! The parser bounds its depth, so walking and dropping it cannot overflow the stack. What stands in a row in
//! the source (an `elif` chain, a sum, filters behind one another) is a list here, not a chain of nodes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::text::Str;

/// A variable, by its place in [`Template::names`].
pub(super) type Name = u32;

/// Variables that loops and macros set; they have the first numbers in this order.
pub(super) const IMPLIED: [&str; 4] = ["loop", "caller", "varargs", "kwargs"];
pub(super) const LOOP: Name = 0;
pub(super) const CALLER: Name = 1;
pub(super) const VARARGS: Name = 2;
pub(super) const KWARGS: Name = 3;

/// A whole template.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) body: Vec<Stmt>,
    /// The names of all variables.
    pub(super) names: Vec<Str>,
}

#[derive(Debug)]
pub(super) struct Stmt {
    pub(super) line: u32,
    pub(super) kind: StmtKind,
}

#[derive(Debug)]
pub(super) enum StmtKind {
    Text(Str),
    Output(Expr),
    For(Box<For>),
    /// Conditions with their bodies, and the body of `else`.
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    Set(Target, Expr),
    /// A body whose text, passed through the filters, becomes a variable's.
    SetBlock(Target, Vec<Suffix>, Vec<Stmt>),
    Macro(Box<Macro>),
    /// The macro that `caller` calls, and the call.
    CallBlock(Box<Macro>, Expr),
    FilterBlock(Vec<Suffix>, Vec<Stmt>),
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    /// A body with a scope of its own.
    Scope(Vec<Stmt>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Expr,
    pub(super) condition: Option<Expr>,
    pub(super) recursive: bool,
    pub(super) body: Vec<Stmt>,
    pub(super) otherwise: Vec<Stmt>,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Name,
    pub(super) params: Vec<(Name, Option<Expr>)>,
    pub(super) body: Vec<Stmt>,
    /// The body names `varargs`, `kwargs` or `caller`, so calls may give what these hold.
    pub(super) takes_more: bool,
}

/// What is assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Name),
    /// An attribute of a namespace.
    Attr(Name, Str),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(super) enum Expr {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Str),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    /// Operators of one precedence, from left to right.
    Math(Box<Expr>, Vec<(MathOp, Expr)>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// Condition, value, other value.
    If(Box<(Expr, Expr, Option<Expr>)>),
    Chain(Box<Expr>, Vec<Suffix>),
}

/// What follows an expression and works on it.
#[derive(Debug)]
pub(super) enum Suffix {
    Attr(Str),
    Item(Expr),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Args),
    Filter(Str, Args),
    Test { name: Str, args: Args, negated: bool },
}

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) list: Vec<Arg>,
}

#[derive(Debug)]
pub(super) enum Arg {
    Value(Expr),
    Named(Str, Expr),
    /// `*expression`
    Spread(Expr),
    /// `**expression`
    SpreadNamed(Expr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MathOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
