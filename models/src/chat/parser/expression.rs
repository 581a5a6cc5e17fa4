//! The parser of expressions, from the weakest operator to the strongest.
//!
//! Each level of precedence is a function that parses operands with the next stronger level:
//!
//! | function | operators |
//! |---|---|
//! | `expression` | `a if b else c` |
//! | `or`, `and`, `not` | `or`, `and`, `not` |
//! | `compare` | `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in` |
//! | `sum` | `+`, `-` |
//! | `concat` | `~` |
//! | `product` | `*`, `/`, `//`, `%` |
//! | `power` | `**` |
//! | `unary` | signs, then attributes, subscripts, calls, filters and tests |
//!
//! These are the levels of Jinja, which differ from Python's: `~` lies between sums and products,
//! and a sign binds tighter than `**`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::ast::{Arg, Args, CompareOp, Expr, MathOp, Suffix};
use super::super::error::ChatError;
use super::super::lexer::Kind;
use super::super::text::Str;
use super::Parser;

/// The result of parsing.
type Read<T> = Result<T, ChatError>;

impl<'s> Parser<'s> {
    /// Parse an expression, or a tuple of expressions separated by commas. Without `conditional` a
    /// following `if` is not part of it, as in `for item in items if condition`.
    pub(super) fn tuple(&mut self, conditional: bool) -> Read<Expr> {
        let item = |parser: &mut Self| match conditional {
            true => parser.expression(),
            false => parser.nested(Self::or),
        };
        let first = item(self)?;
        if !self.operator(",") {
            return Ok(first);
        }
        let mut items = Vec::from([first]);
        while !self.at_tuple_end() {
            items.push(item(self)?);
            if !self.operator(",") {
                break;
            }
        }
        Ok(Expr::Tuple(items))
    }

    /// Return true if the next token cannot start an item.
    fn at_tuple_end(&self) -> bool {
        matches!(
            self.peek(),
            None | Some(
                Kind::OutputEnd
                    | Kind::BlockEnd
                    | Kind::Operator(")" | "]" | "}")
                    | Kind::Name("if" | "recursive")
            )
        )
    }

    /// Parse a whole expression, including conditions.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] if there is none, or it nests too deep.
    pub(super) fn expression(&mut self) -> Read<Expr> {
        self.nested(|parser| {
            let value = parser.or()?;
            // Conditions without another value are one list, so that long chains do not nest.
            let (mut conditions, mut otherwise) = (Vec::new(), None);
            while otherwise.is_none() && parser.word("if") {
                conditions.push(parser.or()?);
                otherwise = if parser.word("else") { Some(parser.expression()?) } else { None };
            }
            if conditions.is_empty() {
                return Ok(value);
            }
            Ok(Expr::If(Box::new((value, conditions, otherwise))))
        })
    }

    /// Parse `a or b`.
    fn or(&mut self) -> Read<Expr> {
        self.chain("or", Self::and, Expr::Or)
    }

    /// Parse `a and b`.
    fn and(&mut self) -> Read<Expr> {
        self.chain("and", Self::not, Expr::And)
    }

    /// Parse expressions of one kind with a word between them. They become one list, so that long
    /// chains do not nest.
    fn chain(
        &mut self,
        word: &str,
        read: fn(&mut Self) -> Read<Expr>,
        all: fn(Vec<Expr>) -> Expr,
    ) -> Read<Expr> {
        let first = read(self)?;
        if !self.at_word(word) {
            return Ok(first);
        }
        let mut list = Vec::from([first]);
        while self.word(word) {
            list.push(read(self)?);
        }
        Ok(all(list))
    }

    /// Parse `not a`.
    fn not(&mut self) -> Read<Expr> {
        if self.word("not") {
            return Ok(Expr::Not(Box::new(self.nested(Self::not)?)));
        }
        self.compare()
    }

    /// Parse comparisons. `a < b < c` is one expression that compares each neighbour, as in Python.
    fn compare(&mut self) -> Read<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(op) = self.compare_op()? {
            rest.push((op, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    /// Read a comparison operator, if one comes next.
    fn compare_op(&mut self) -> Read<Option<CompareOp>> {
        let op = match self.peek() {
            Some(Kind::Operator("==")) => CompareOp::Eq,
            Some(Kind::Operator("!=")) => CompareOp::Ne,
            Some(Kind::Operator("<")) => CompareOp::Lt,
            Some(Kind::Operator("<=")) => CompareOp::Le,
            Some(Kind::Operator(">")) => CompareOp::Gt,
            Some(Kind::Operator(">=")) => CompareOp::Ge,
            Some(Kind::Name("in")) => CompareOp::In,
            Some(Kind::Name("not")) => {
                self.next();
                if !self.at_word("in") {
                    return self.unexpected("in");
                }
                CompareOp::NotIn
            }
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(op))
    }

    /// Parse `a + b` and `a - b`.
    fn sum(&mut self) -> Read<Expr> {
        self.math(Self::concat, |operator| match operator {
            "+" => Some(MathOp::Add),
            "-" => Some(MathOp::Sub),
            _ => None,
        })
    }

    /// Parse `a ~ b`.
    fn concat(&mut self) -> Read<Expr> {
        let first = self.product()?;
        if !matches!(self.peek(), Some(Kind::Operator("~"))) {
            return Ok(first);
        }
        let mut list = Vec::from([first]);
        while self.operator("~") {
            list.push(self.product()?);
        }
        Ok(Expr::Concat(list))
    }

    /// Parse `a * b`, `a / b`, `a // b` and `a % b`.
    fn product(&mut self) -> Read<Expr> {
        self.math(Self::power, |operator| match operator {
            "*" => Some(MathOp::Mul),
            "/" => Some(MathOp::Div),
            "//" => Some(MathOp::FloorDiv),
            "%" => Some(MathOp::Rem),
            _ => None,
        })
    }

    /// Parse `a ** b`.
    fn power(&mut self) -> Read<Expr> {
        self.math(|parser| parser.unary(true), |operator| (operator == "**").then_some(MathOp::Pow))
    }

    /// Parse expressions of one kind with operators of one precedence between them. They become one
    /// list, which is evaluated from left to right.
    fn math(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Read<Expr>,
        op: impl Fn(&str) -> Option<MathOp>,
    ) -> Read<Expr> {
        let first = read(self)?;
        let mut rest = Vec::new();
        while let Some(Kind::Operator(operator)) = self.peek()
            && let Some(op) = op(operator)
        {
            self.next();
            rest.push((op, read(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Math(Box::new(first), rest) })
    }

    /// Parse a sign, or a primary expression with its suffixes; filters and tests only with
    /// `with_filters`.
    ///
    /// Without filters, a sign applies to the value before any filter: `-1 | abs` is 1.
    pub(super) fn unary(&mut self, with_filters: bool) -> Read<Expr> {
        let base = if self.operator("-") {
            Expr::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.operator("+") {
            Expr::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let mut suffixes = Vec::new();
        while let Some(suffix) = self.postfix()? {
            suffixes.push(suffix);
        }
        while with_filters && let Some(suffix) = self.filter_or_test()? {
            suffixes.push(suffix);
        }
        Ok(if suffixes.is_empty() { base } else { Expr::Chain(Box::new(base), suffixes) })
    }

    /// Parse a name, a literal, or an expression in brackets.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] for any other token.
    fn primary(&mut self) -> Read<Expr> {
        match self.peek() {
            Some(Kind::Name(_)) => self.name().map(|name| self.named(name)),
            Some(Kind::Text(_)) => Ok(Expr::Text(self.texts())),
            Some(&Kind::Int(n)) => Ok(self.end(Expr::Int(n))),
            Some(&Kind::Float(x)) => Ok(self.end(Expr::Float(x))),
            Some(Kind::Operator("(")) => self.parenthesis(),
            Some(Kind::Operator("[")) => self.list(),
            Some(Kind::Operator("{")) => self.dict(),
            _ => self.unexpected("an expression"),
        }
    }

    /// Return the constant or the variable of this name.
    fn named(&mut self, name: &'s str) -> Expr {
        match name {
            "true" | "True" => Expr::Bool(true),
            "false" | "False" => Expr::Bool(false),
            "none" | "None" => Expr::None,
            _ => {
                self.more += u32::from(matches!(name, "varargs" | "kwargs" | "caller"));
                Expr::Name(self.names.number(name))
            }
        }
    }

    /// Read a string literal and those that follow it directly, joined.
    fn texts(&mut self) -> Str {
        let mut text = String::new();
        while let Some(Kind::Text(more)) = self.peek() {
            text.push_str(more);
            self.next();
        }
        Str::template(&text)
    }

    /// Parse an expression or a tuple in parentheses.
    fn parenthesis(&mut self) -> Read<Expr> {
        self.next();
        if self.operator(")") {
            return Ok(Expr::Tuple(Vec::new()));
        }
        let expr = self.tuple(true)?;
        self.expect(")")?;
        Ok(expr)
    }

    /// Parse a list.
    fn list(&mut self) -> Read<Expr> {
        self.next();
        let mut items = Vec::new();
        while !self.operator("]") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.operator("]") {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        Ok(Expr::List(items))
    }

    /// Parse a dict.
    fn dict(&mut self) -> Read<Expr> {
        self.next();
        let mut items = Vec::new();
        while !self.operator("}") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.operator("}") {
                    break;
                }
            }
            let key = self.expression()?;
            self.expect(":")?;
            items.push((key, self.expression()?));
        }
        Ok(Expr::Dict(items))
    }

    /// Parse an attribute, a subscript or a call, if one comes next.
    fn postfix(&mut self) -> Read<Option<Suffix>> {
        if self.operator(".") {
            return Ok(Some(match self.peek() {
                Some(&Kind::Int(n)) => self.end(Suffix::Item(Expr::Int(n))),
                _ => Suffix::Attr(Str::template(self.name()?)),
            }));
        }
        if self.operator("[") {
            return self.subscript().map(Some);
        }
        if matches!(self.peek(), Some(Kind::Operator("("))) {
            return Ok(Some(Suffix::Call(self.args()?)));
        }
        Ok(None)
    }

    /// Parse a filter, a test or a call, if one comes next.
    fn filter_or_test(&mut self) -> Read<Option<Suffix>> {
        if self.operator("|") {
            return self.filter().map(Some);
        }
        if self.word("is") {
            return self.test().map(Some);
        }
        if matches!(self.peek(), Some(Kind::Operator("("))) {
            return Ok(Some(Suffix::Call(self.args()?)));
        }
        Ok(None)
    }

    /// Parse an index or a slice behind its bracket. Several indices are a tuple, which serves as a
    /// key of a dict.
    fn subscript(&mut self) -> Read<Suffix> {
        if self.operator("]") {
            return Ok(Suffix::Item(Expr::Tuple(Vec::new())));
        }
        let first =
            if matches!(self.peek(), Some(Kind::Operator(":"))) { None } else { Some(self.expression()?) };
        if matches!(self.peek(), Some(Kind::Operator(":"))) {
            return self.slice(first);
        }
        let mut items = Vec::from_iter(first);
        let several = matches!(self.peek(), Some(Kind::Operator(",")));
        while self.operator(",") {
            items.push(self.expression()?);
        }
        self.expect("]")?;
        Ok(Suffix::Item(match items.pop() {
            Some(item) if !several => item,
            last => {
                items.extend(last);
                Expr::Tuple(items)
            }
        }))
    }

    /// Parse a slice behind its start.
    fn slice(&mut self, start: Option<Expr>) -> Read<Suffix> {
        let mut bounds = [start, None, None];
        for bound in &mut bounds[1..] {
            if !self.operator(":") {
                break;
            }
            if !matches!(self.peek(), Some(Kind::Operator(":" | "]"))) {
                *bound = Some(self.expression()?);
            }
        }
        self.expect("]")?;
        Ok(Suffix::Slice(Box::new(bounds)))
    }

    /// Read names joined by dots, as filters and tests may have them.
    fn dotted(&mut self) -> Read<Str> {
        let mut name = String::from(self.name()?);
        while self.operator(".") {
            name.push('.');
            name.push_str(self.name()?);
        }
        Ok(Str::template(&name))
    }

    /// Parse a filter behind its bar.
    pub(super) fn filter(&mut self) -> Read<Suffix> {
        let name = self.dotted()?;
        let has_args = matches!(self.peek(), Some(Kind::Operator("(")));
        Ok(Suffix::Filter(name, if has_args { self.args()? } else { Args::default() }))
    }

    /// Parse a test behind its `is`. One argument may follow without parentheses, as in `n is
    /// divisibleby 3`.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] for a test behind another one.
    fn test(&mut self) -> Read<Suffix> {
        let negated = self.word("not");
        let name = self.dotted()?;
        let args = match self.peek() {
            Some(Kind::Operator("(")) => self.args()?,
            Some(Kind::Name("else" | "or" | "and" | "if" | "in" | "not")) => Args::default(),
            Some(Kind::Name("is")) => return self.error("one test behind another"),
            Some(
                Kind::Name(_) | Kind::Text(_) | Kind::Int(_) | Kind::Float(_) | Kind::Operator("[" | "{"),
            ) => {
                let arg = self.nested(Self::test_arg)?;
                Args { list: Vec::from([Arg::Value(arg)]) }
            }
            _ => Args::default(),
        };
        Ok(Suffix::Test { name, args, negated })
    }

    /// Parse the argument of a test without parentheses.
    fn test_arg(&mut self) -> Read<Expr> {
        let base = self.primary()?;
        let mut suffixes = Vec::new();
        while let Some(suffix) = self.postfix()? {
            suffixes.push(suffix);
        }
        Ok(if suffixes.is_empty() { base } else { Expr::Chain(Box::new(base), suffixes) })
    }

    /// Parse arguments in parentheses.
    fn args(&mut self) -> Read<Args> {
        self.expect("(")?;
        let mut list = Vec::new();
        while !self.operator(")") {
            if !list.is_empty() {
                self.expect(",")?;
                if self.operator(")") {
                    break;
                }
            }
            list.push(self.arg()?);
        }
        Ok(Args { list })
    }

    /// Parse one argument: `value`, `name=value`, `*list` or `**dict`.
    fn arg(&mut self) -> Read<Arg> {
        if self.operator("*") {
            return self.expression().map(Arg::Spread);
        }
        if self.operator("**") {
            return self.expression().map(Arg::SpreadNamed);
        }
        if let Some(&Kind::Name(name)) = self.peek()
            && self.tokens.get(self.at + 1).is_some_and(|token| token.kind == Kind::Operator("="))
        {
            self.at += 2;
            return Ok(Arg::Named(Str::template(name), self.expression()?));
        }
        self.expression().map(Arg::Value)
    }
}
