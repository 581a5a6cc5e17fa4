//! The syntax tree of a template.
//!
//! The parser builds it once, and the interpreter borrows it for every rendering. It holds texts as
//! [`Str`]s of the template's own origin, so that evaluating a literal copies nothing, and
//! variables as numbers, so that scopes compare integers.
//!
//! The parser bounds its depth, so walking and dropping it cannot overflow the stack. Sequences in
//! the source (an `elif` chain, a sum, filters behind one another) are lists here, not chains of
//! nodes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::text::Str;

/// A variable, as an index into [`Template::names`].
pub(super) type Name = u32;

/// The variables that loops and macros set. They have the first indices, in this order.
pub(super) const IMPLIED: [&str; 4] = ["loop", "caller", "varargs", "kwargs"];
/// The index of `loop`.
pub(super) const LOOP: Name = 0;
/// The index of `caller`.
pub(super) const CALLER: Name = 1;
/// The index of `varargs`.
pub(super) const VARARGS: Name = 2;
/// The index of `kwargs`.
pub(super) const KWARGS: Name = 3;

/// A whole template.
#[derive(Debug)]
pub(super) struct Template {
    /// The statements, in order.
    pub(super) body: Vec<Stmt>,
    /// The names of all variables.
    pub(super) names: Vec<Str>,
}

/// A statement and the line on which it starts.
#[derive(Debug)]
pub(super) struct Stmt {
    /// The line, from 1, for errors.
    pub(super) line: u32,
    /// The statement.
    pub(super) kind: StmtKind,
}

/// The kinds of statements.
#[derive(Debug)]
pub(super) enum StmtKind {
    /// Text outside of tags.
    Text(Str),
    /// `{{ expression }}`
    Output(Expr),
    /// `{% for %}`
    For(Box<For>),
    /// `{% if %}`: conditions with their bodies, and the body of `else`.
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    /// `{% set target = expression %}`
    Set(Target, Expr),
    /// `{% set target | filters %}body{% endset %}`: the text of the body, passed through the
    /// filters, becomes the value.
    SetBlock(Target, Vec<Suffix>, Vec<Stmt>),
    /// `{% macro %}`
    Macro(Box<Macro>),
    /// `{% call %}`: the macro that `caller` calls, and the call.
    CallBlock(Box<Macro>, Expr),
    /// `{% filter %}`: the text of the body, passed through the filters.
    FilterBlock(Vec<Suffix>, Vec<Stmt>),
    /// `{% with %}`: variables of a body.
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    /// A body with its own scope.
    Scope(Vec<Stmt>),
    /// `{% break %}`
    Break,
    /// `{% continue %}`
    Continue,
}

/// A loop.
#[derive(Debug)]
pub(super) struct For {
    /// The variables of an iteration.
    pub(super) target: Target,
    /// The value to iterate over.
    pub(super) items: Expr,
    /// The condition behind `if`, which items have to meet.
    pub(super) condition: Option<Expr>,
    /// True if `loop(…)` runs the loop over other items.
    pub(super) recursive: bool,
    /// The statements of an iteration.
    pub(super) body: Vec<Stmt>,
    /// The body of `else`, which runs if there are no items.
    pub(super) otherwise: Vec<Stmt>,
}

/// A macro: parameters with their defaults, and a body.
#[derive(Debug)]
pub(super) struct Macro {
    /// The variable that the macro becomes.
    pub(super) name: Name,
    /// The parameters with their defaults.
    pub(super) params: Vec<(Name, Option<Expr>)>,
    /// The statements that write the result of a call.
    pub(super) body: Vec<Stmt>,
    /// True if the body names `varargs`, `kwargs` or `caller`, so that calls may pass more than the
    /// parameters.
    pub(super) takes_more: bool,
}

/// The target of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    /// A variable of the current scope.
    Name(Name),
    /// An attribute of a namespace.
    Attr(Name, Str),
    /// Several targets, for as many values.
    Tuple(Vec<Target>),
}

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    /// `none`
    None,
    /// `true` or `false`
    Bool(bool),
    /// An integer literal.
    Int(i64),
    /// A float literal.
    Float(f64),
    /// A string literal.
    Text(Str),
    /// A variable.
    Name(Name),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `(a, b)` or `a, b`
    Tuple(Vec<Expr>),
    /// `{key: value}`
    Dict(Vec<(Expr, Expr)>),
    /// `not a`
    Not(Box<Expr>),
    /// `-a`
    Negative(Box<Expr>),
    /// `+a`
    Positive(Box<Expr>),
    /// Operators of one precedence, from left to right.
    Math(Box<Expr>, Vec<(MathOp, Expr)>),
    /// `a ~ b ~ c`: the texts of the values, joined.
    Concat(Vec<Expr>),
    /// `a < b <= c`: each comparison with its neighbour.
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// `a and b`: the first value that is false, or the last.
    And(Vec<Expr>),
    /// `a or b`: the first value that is true, or the last.
    Or(Vec<Expr>),
    /// `value if condition else other`: value, conditions, and the other value, which belongs to
    /// the last condition. `value if a if b` has two conditions, and the last is asked first.
    If(Box<(Expr, Vec<Expr>, Option<Expr>)>),
    /// An expression with the suffixes that apply to it, in order.
    Chain(Box<Expr>, Vec<Suffix>),
}

/// A suffix of an expression, which applies to its value.
#[derive(Debug)]
pub(super) enum Suffix {
    /// `.name`
    Attr(Str),
    /// `[key]`
    Item(Expr),
    /// `[start:stop:step]`
    Slice(Box<[Option<Expr>; 3]>),
    /// `(…)`
    Call(Args),
    /// `| name(…)`
    Filter(Str, Args),
    /// `is name(…)` or `is not name(…)`
    Test { name: Str, args: Args, negated: bool },
}

/// The arguments of a call in the source.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) list: Vec<Arg>,
}

/// One argument of a call in the source.
#[derive(Debug)]
pub(super) enum Arg {
    /// `expression`
    Value(Expr),
    /// `name=expression`
    Named(Str, Expr),
    /// `*expression`
    Spread(Expr),
    /// `**expression`
    SpreadNamed(Expr),
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MathOp {
    /// `+`, which also joins strings and lists.
    Add,
    /// `-`
    Sub,
    /// `*`, which also repeats strings and lists.
    Mul,
    /// `/`, which always gives a float.
    Div,
    /// `//`, rounded towards minus infinity.
    FloorDiv,
    /// `%`, with the sign of the divisor; also formats strings.
    Rem,
    /// `**`
    Pow,
}

/// `==`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareOp {
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `in`
    In,
    /// `not in`
    NotIn,
}
