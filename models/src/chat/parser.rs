//! The parser: from tokens to the tree. This file has the statements, `parser/expression.rs` the
//! expressions.
//!
//! It follows Jinja's own parser (`jinja2/parser.py`), so precedence and oddities are the same.
//! Nesting is bounded, and each token is visited a bounded number of times.

mod expression;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::ast::{self, Expr, For, Macro, Name, Stmt, StmtKind, Suffix, Target, Template};
use super::error::ChatError;
use super::lexer::{self, Kind, Token};
use super::text::Str;

/// The deepest nesting of statements and expressions together.
const MAX_NESTING: u32 = 100;

/// Parse a template, whose lines end in `\n`.
///
/// # Errors
/// [`ChatError::Syntax`].
pub(super) fn parse(source: &str) -> Result<Template, ChatError> {
    let tokens = lexer::tokens(source)?;
    let mut parser =
        Parser { tokens, at: 0, names: Names::default(), line: 1, nesting: 0, loops: 0, more: 0 };
    for name in ast::IMPLIED {
        parser.names.number(name);
    }
    let body = parser.body(&[])?;
    Ok(Template { body, names: parser.names.texts })
}

/// The names of variables, each with its index.
#[derive(Default)]
struct Names<'s> {
    /// The index of each name.
    numbers: BTreeMap<&'s str, Name>,
    /// The names, by index.
    texts: Vec<Str>,
}

impl<'s> Names<'s> {
    /// Return the index of a name, which is added if it is new.
    fn number(&mut self, name: &'s str) -> Name {
        *self.numbers.entry(name).or_insert_with(|| {
            self.texts.push(Str::template(name));
            self.texts.len() as Name - 1
        })
    }
}

/// The parser: the tokens, the position in them, and the context of the statement.
struct Parser<'s> {
    /// All tokens of the template.
    tokens: Vec<Token<'s>>,
    /// The index of the next token.
    at: usize,
    /// The variables named so far.
    names: Names<'s>,
    /// The line of the last token.
    line: u32,
    /// The nesting of statements and expressions now.
    nesting: u32,
    /// The number of loops around the statement, within the innermost macro.
    loops: u32,
    /// The number of times that `varargs`, `kwargs` or `caller` was named so far.
    more: u32,
}

impl<'s> Parser<'s> {
    /// Return the next token.
    fn peek(&self) -> Option<&Kind<'s>> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// Skip the next token.
    fn next(&mut self) {
        if let Some(token) = self.tokens.get(self.at) {
            (self.line, self.at) = (token.line, self.at + 1);
        }
    }

    /// Return the line of the next token.
    fn line(&self) -> u32 {
        self.tokens.get(self.at).map_or(self.line, |token| token.line)
    }

    /// Return a syntax error on the line of the next token.
    fn error<T>(&self, detail: &str) -> Result<T, ChatError> {
        Err(ChatError::syntax(self.line(), detail))
    }

    /// Return the error that the next token does not belong here.
    fn unexpected<T>(&self, wanted: &str) -> Result<T, ChatError> {
        let found = match self.peek() {
            None => "the end of the template".into(),
            Some(Kind::Data(_)) => "text".into(),
            Some(Kind::OutputBegin) => "{{".into(),
            Some(Kind::OutputEnd) => "}}".into(),
            Some(Kind::BlockBegin) => "{%".into(),
            Some(Kind::BlockEnd) => "%}".into(),
            Some(Kind::Name(name)) => format!("{name:?}"),
            Some(Kind::Text(_)) => "a text".into(),
            Some(Kind::Int(_) | Kind::Float(_)) => "a number".into(),
            Some(Kind::Operator(operator)) => format!("{operator:?}"),
        };
        self.error(&format!("{found} where {wanted} should be"))
    }

    /// Parse one level deeper.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] beyond [`MAX_NESTING`]; those of `read`.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ChatError>) -> Result<T, ChatError> {
        if self.nesting == MAX_NESTING {
            return self.error("nested too deep");
        }
        self.nesting += 1;
        let read = read(self);
        self.nesting -= 1;
        read
    }

    /// Skip `operator` if it comes next, and return true.
    fn operator(&mut self, operator: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Operator(found)) if *found == operator);
        if found {
            self.next();
        }
        found
    }

    /// Skip `operator`, which must come next.
    fn expect(&mut self, operator: &str) -> Result<(), ChatError> {
        if self.operator(operator) { Ok(()) } else { self.unexpected(operator) }
    }

    /// Return true if the word `word` comes next.
    fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Name(found)) if *found == word)
    }

    /// Skip the word `word` if it comes next, and return true.
    fn word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.next();
        }
        found
    }

    /// Read a name.
    fn name(&mut self) -> Result<&'s str, ChatError> {
        match self.peek() {
            Some(Kind::Name(name)) => {
                let name = *name;
                self.next();
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Skip `%}`, which must come next.
    fn block_end(&mut self) -> Result<(), ChatError> {
        match self.peek() {
            Some(Kind::BlockEnd) => {
                self.next();
                Ok(())
            }
            _ => self.unexpected("%}"),
        }
    }

    /// Parse statements up to one of the words `ends`, which is not skipped, behind its `{%`; or up
    /// to the end of the template if there are none.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] if the template ends before, or a statement cannot be parsed.
    fn body(&mut self, ends: &[&str]) -> Result<Vec<Stmt>, ChatError> {
        self.nested(|parser| {
            let mut body = Vec::new();
            loop {
                let line = parser.line();
                let kind = match parser.peek() {
                    None if ends.is_empty() => return Ok(body),
                    Some(Kind::Data(text)) => {
                        let text = Str::template(text);
                        parser.end(StmtKind::Text(text))
                    }
                    Some(Kind::OutputBegin) => parser.output()?,
                    Some(Kind::BlockBegin) => {
                        parser.next();
                        match parser.peek() {
                            Some(Kind::Name(name)) if ends.contains(name) => return Ok(body),
                            _ => parser.statement()?,
                        }
                    }
                    _ => return parser.unexpected(ends.last().copied().unwrap_or("text")),
                };
                body.push(Stmt { line, kind });
            }
        })
    }

    /// Parse a body up to `end`, and its closing tag.
    fn body_until(&mut self, end: &str) -> Result<Vec<Stmt>, ChatError> {
        self.block_end()?;
        let body = self.body(&[end])?;
        self.next();
        Ok(body)
    }

    /// Parse `{{ … }}`.
    fn output(&mut self) -> Result<StmtKind, ChatError> {
        self.next();
        let expr = self.tuple(true)?;
        match self.peek() {
            Some(Kind::OutputEnd) => {
                self.next();
                Ok(StmtKind::Output(expr))
            }
            _ => self.unexpected("}}"),
        }
    }

    /// Parse a statement behind its `{%`, with its closing tag. Jinja's statements that load other
    /// templates are refused; `block` is its body, and `autoescape` and `generation` have no
    /// effect.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] for unknown statements, and for `break` and `continue` outside of
    /// loops.
    fn statement(&mut self) -> Result<StmtKind, ChatError> {
        let word = self.name()?;
        let kind = match word {
            "for" => self.for_loop()?,
            "if" => self.condition()?,
            "set" => self.set()?,
            "macro" => self.macro_definition()?,
            "call" => self.call_block()?,
            "filter" => self.filter_block()?,
            "with" => self.with()?,
            "print" => StmtKind::Output(self.tuple(true)?),
            "generation" => StmtKind::Scope(self.body_until("endgeneration")?),
            "autoescape" => {
                self.expression()?;
                StmtKind::Scope(self.body_until("endautoescape")?)
            }
            "block" => {
                let name = self.name()?;
                while self.word("scoped") || self.word("required") {}
                let body = self.body_until("endblock")?;
                self.word(name);
                StmtKind::Scope(body)
            }
            "break" | "continue" if self.loops == 0 => return self.error("not in a loop"),
            "break" => StmtKind::Break,
            "continue" => StmtKind::Continue,
            "include" | "import" | "from" | "extends" => {
                return self.error("chat templates cannot load others");
            }
            other => return self.error(&format!("unknown statement {other:?}")),
        };
        self.block_end()?;
        Ok(kind)
    }

    /// Parse `for target in items if condition recursive`, with an optional `else`.
    fn for_loop(&mut self) -> Result<StmtKind, ChatError> {
        let target = self.targets(false)?;
        if !self.word("in") {
            return self.unexpected("in");
        }
        let items = self.tuple(false)?;
        let condition = if self.word("if") { Some(self.expression()?) } else { None };
        let recursive = self.word("recursive");
        self.block_end()?;
        self.loops += 1;
        let body = self.body(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = if self.word("else") { self.body_until("endfor")? } else { self.end(Vec::new()) };
        Ok(StmtKind::For(Box::new(For { target, items, condition, recursive, body, otherwise })))
    }

    /// Skip the next token and return `value`.
    fn end<T>(&mut self, value: T) -> T {
        self.next();
        value
    }

    /// Parse `if`, with any number of `elif` and an optional `else`.
    fn condition(&mut self) -> Result<StmtKind, ChatError> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple(false)?;
            self.block_end()?;
            branches.push((condition, self.body(&["elif", "else", "endif"])?));
            if self.word("elif") {
                continue;
            }
            let otherwise = if self.word("else") { self.body_until("endif")? } else { self.end(Vec::new()) };
            return Ok(StmtKind::If(branches, otherwise));
        }
    }

    /// Parse `set`, either of a value or of a body up to `endset`.
    fn set(&mut self) -> Result<StmtKind, ChatError> {
        let target = self.targets(true)?;
        if self.operator("=") {
            return Ok(StmtKind::Set(target, self.tuple(true)?));
        }
        let filters = self.filters()?;
        Ok(StmtKind::SetBlock(target, filters, self.body_until("endset")?))
    }

    /// Parse filters, each behind its bar.
    fn filters(&mut self) -> Result<Vec<Suffix>, ChatError> {
        let mut filters = Vec::new();
        while self.operator("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    /// Parse a target, or several separated by commas. `attributes` allows attributes of
    /// namespaces.
    fn targets(&mut self, attributes: bool) -> Result<Target, ChatError> {
        let first = self.target(attributes)?;
        if !matches!(self.peek(), Some(Kind::Operator(","))) {
            return Ok(first);
        }
        let mut targets = Vec::from([first]);
        while self.operator(",") {
            if matches!(self.peek(), Some(Kind::Name("in") | Kind::Operator("=" | ")"))) {
                break;
            }
            targets.push(self.target(attributes)?);
        }
        Ok(Target::Tuple(targets))
    }

    /// Parse a target: a name, an attribute of a namespace if `attributes`, or targets in
    /// parentheses.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] for constants, which cannot be assigned to.
    fn target(&mut self, attributes: bool) -> Result<Target, ChatError> {
        if self.operator("(") {
            let target = self.nested(|parser| parser.targets(attributes))?;
            self.expect(")")?;
            return Ok(target);
        }
        let name = self.name()?;
        if matches!(name, "true" | "false" | "none" | "True" | "False" | "None") {
            return self.error(&format!("{name} cannot be assigned to"));
        }
        let name = self.names.number(name);
        if attributes && self.operator(".") {
            return Ok(Target::Attr(name, Str::template(self.name()?)));
        }
        Ok(Target::Name(name))
    }

    /// Parse `macro`.
    fn macro_definition(&mut self) -> Result<StmtKind, ChatError> {
        let name = self.name()?;
        let name = self.names.number(name);
        let definition = self.macro_rest(name, "endmacro")?;
        Ok(StmtKind::Macro(definition))
    }

    /// Parse the parameters, if any, and the body of a macro.
    fn macro_rest(&mut self, name: Name, end: &str) -> Result<Box<Macro>, ChatError> {
        let params = if self.operator("(") { self.params()? } else { Vec::new() };
        self.macro_with(name, params, end)
    }

    /// Parse the body of a macro with the given parameters.
    fn macro_with(
        &mut self,
        name: Name,
        params: Vec<(Name, Option<Expr>)>,
        end: &str,
    ) -> Result<Box<Macro>, ChatError> {
        let (loops, more) = (core::mem::take(&mut self.loops), self.more);
        let body = self.body_until(end)?;
        self.loops = loops;
        let takes_more = self.more > more;
        Ok(Box::new(Macro { name, params, body, takes_more }))
    }

    /// Parse parameters up to the closing parenthesis.
    fn params(&mut self) -> Result<Vec<(Name, Option<Expr>)>, ChatError> {
        let mut params = Vec::new();
        while !self.operator(")") {
            if !params.is_empty() {
                self.expect(",")?;
                if self.operator(")") {
                    break;
                }
            }
            let name = self.name()?;
            let name = self.names.number(name);
            let default = if self.operator("=") { Some(self.expression()?) } else { None };
            params.push((name, default));
        }
        Ok(params)
    }

    /// Parse `call`, optionally with parameters of the body.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] if the expression behind it is not a call.
    fn call_block(&mut self) -> Result<StmtKind, ChatError> {
        let params = if self.operator("(") { self.params()? } else { Vec::new() };
        let call = self.unary(true)?;
        if !matches!(&call, Expr::Chain(_, suffixes) if matches!(suffixes.last(), Some(Suffix::Call(_)))) {
            return self.error("call without a call");
        }
        Ok(StmtKind::CallBlock(self.macro_with(ast::CALLER, params, "endcall")?, call))
    }

    /// Parse `filter`.
    fn filter_block(&mut self) -> Result<StmtKind, ChatError> {
        let mut filters = Vec::from([self.filter()?]);
        filters.extend(self.filters()?);
        Ok(StmtKind::FilterBlock(filters, self.body_until("endfilter")?))
    }

    /// Parse `with a = 1, b = 2`.
    fn with(&mut self) -> Result<StmtKind, ChatError> {
        let mut values = Vec::new();
        while !matches!(self.peek(), Some(Kind::BlockEnd)) {
            if !values.is_empty() {
                self.expect(",")?;
            }
            let target = self.target(false)?;
            self.expect("=")?;
            values.push((target, self.expression()?));
        }
        Ok(StmtKind::With(values, self.body_until("endwith")?))
    }
}
