//! Reading GBNF.

use alloc::{borrow::ToOwned, boxed::Box, collections::BTreeMap, format, string::String, vec::Vec};

use backstitch_kv::Token;

use super::super::error::{GrammarError, Language, place_of, shortened};
use super::{CharSet, Expr, Rule, Rules};
use crate::vocab::{AddSpecial, ParseSpecial, Vocab};

/// The depth to which groups may be nested.
const MAX_DEPTH: usize = 50;
/// The height of an expression: groups and repetitions around its innermost item. Everything that
/// reads expressions recurses over it, on stacks of any size.
const MAX_HEIGHT: usize = 2 * MAX_DEPTH;
/// The number of rules and groups of a grammar.
const MAX_RULES: usize = 8000;
/// The number of different sets of tokens in a grammar.
const MAX_TOKEN_SETS: usize = 64;
/// The largest lower bound of a repetition. An upper bound beyond it counts as none, as in
/// llama.cpp.
const MAX_REPEAT: u32 = 2000;

/// Parse a grammar that begins with the rule `root`.
pub(super) fn parse(text: &str, root: &str, vocab: &Vocab) -> Result<Rules, GrammarError> {
    let mut parser = Parser {
        text,
        pos: 0,
        depth: 0,
        height: 0,
        n_groups: 0,
        vocab,
        names: BTreeMap::new(),
        rules: Vec::new(),
        tokens: Vec::new(),
        token_sets: BTreeMap::new(),
    };
    parser.grammar()?;
    parser.finish(root)
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
    /// The number of groups around the current place.
    depth: usize,
    /// The height of what was read last: an item, a sequence, or a choice.
    height: usize,
    n_groups: usize,
    vocab: &'a Vocab,
    /// The indices of the rules by name.
    names: BTreeMap<&'a str, usize>,
    /// Each rule with the place of its first mention, and its definition if there is one so far.
    rules: Vec<Slot>,
    tokens: Vec<Vec<(u32, u32)>>,
    /// The indices of these sets by their token; true for all other tokens.
    token_sets: BTreeMap<(u32, bool), usize>,
}

struct Slot {
    name: String,
    mentioned: usize,
    defined: usize,
    expr: Option<Expr>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Step over `expected` if the text continues with it.
    fn eat(&mut self, expected: &str) -> bool {
        let is_next = self.rest().starts_with(expected);
        if is_next {
            self.pos += expected.len();
        }
        is_next
    }

    /// Return the next character and step over it.
    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn wrong<T>(&self, wanted: impl Into<String>) -> Result<T, GrammarError> {
        self.wrong_at(self.pos, wanted)
    }

    fn wrong_at<T>(&self, pos: usize, wanted: impl Into<String>) -> Result<T, GrammarError> {
        let rest = self.text.get(pos..).unwrap_or_default();
        Err(GrammarError::Syntax {
            language: Language::Gbnf,
            place: place_of(self.text, pos),
            found: shortened(rest.lines().next().unwrap_or_default(), 40),
            wanted: wanted.into(),
        })
    }

    /// Step over blanks and comments, and over line breaks if these do not end the rule.
    fn space(&mut self, over_lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.pos += 1,
                '\n' | '\r' if over_lines => self.pos += 1,
                '#' => self.pos += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len()),
                _ => break,
            }
        }
    }

    fn grammar(&mut self) -> Result<(), GrammarError> {
        self.space(true);
        while self.peek().is_some() {
            self.rule()?;
            self.space(true);
        }
        Ok(())
    }

    fn rule(&mut self) -> Result<(), GrammarError> {
        let start = self.pos;
        let index = self.name()?;
        self.space(false);
        if !self.eat("::=") {
            return self.wrong("`::=` after the name of a rule");
        }
        self.space(true);
        let expr = self.choice(false)?;
        if !matches!(self.peek(), None | Some('\n' | '\r')) {
            return self.wrong("an expression, `|`, or the end of the line");
        }
        // A second definition replaces the first.
        if let Some(slot) = self.rules.get_mut(index) {
            (slot.defined, slot.expr) = (start, Some(expr));
        }
        Ok(())
    }

    /// Read a rule's name and return its index.
    fn name(&mut self) -> Result<usize, GrammarError> {
        let rest = self.rest();
        let len = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let name = rest.get(..len).unwrap_or_default();
        if name.is_empty() {
            return self.wrong("the name of a rule: letters, digits and `-`");
        }
        let mentioned = self.pos;
        self.pos += len;
        if let Some(&index) = self.names.get(name) {
            return Ok(index);
        }
        let index = self.rules.len();
        self.check_size()?;
        self.names.insert(name, index);
        self.rules.push(Slot { name: name.to_owned(), mentioned, defined: mentioned, expr: None });
        Ok(index)
    }

    fn check_size(&self) -> Result<(), GrammarError> {
        match self.rules.len() + self.n_groups {
            found if found >= MAX_RULES => {
                Err(GrammarError::TooLarge { what: "rules and groups", found: found + 1, limit: MAX_RULES })
            }
            _ => Ok(()),
        }
    }

    fn choice(&mut self, is_nested: bool) -> Result<Expr, GrammarError> {
        let first = self.sequence(is_nested)?;
        let mut highest = self.height;
        let mut options = Vec::from([first]);
        while self.eat("|") {
            self.space(true);
            options.push(self.sequence(is_nested)?);
            highest = highest.max(self.height);
        }
        self.height = highest;
        Ok(one_or(options, Expr::Choice))
    }

    fn sequence(&mut self, is_nested: bool) -> Result<Expr, GrammarError> {
        let mut items = Vec::new();
        let mut highest = 0;
        self.height = 0;
        while let Some(c) = self.peek() {
            if matches!(c, '*' | '+' | '?' | '{') {
                let repeated = self.repetition(items.pop(), is_nested)?;
                items.push(repeated);
            } else if let Some(item) = self.item(c)? {
                items.push(item);
            } else {
                break;
            }
            highest = highest.max(self.height);
            self.space(is_nested);
        }
        self.height = highest;
        Ok(one_or(items, Expr::Sequence))
    }

    /// Read an item that begins with `c`; `None` if no item does.
    fn item(&mut self, c: char) -> Result<Option<Expr>, GrammarError> {
        self.height = 0;
        Ok(Some(match c {
            '"' => self.literal()?,
            '[' => self.class()?,
            '.' => {
                self.pos += 1;
                Expr::Chars(CharSet::new(Vec::new()).negated())
            }
            '<' | '!' => self.token()?,
            '(' => self.group()?,
            c if is_word(c) => Expr::Rule(self.name()?),
            _ => return Ok(None),
        }))
    }

    fn group(&mut self) -> Result<Expr, GrammarError> {
        let start = self.pos;
        self.depth += 1;
        self.n_groups += 1;
        self.check_size()?;
        if self.depth > MAX_DEPTH {
            let (found, limit) = (self.depth, MAX_DEPTH);
            return Err(GrammarError::TooLarge { what: "groups inside each other", found, limit });
        }
        self.pos += 1;
        self.space(true);
        let inner = self.choice(true)?;
        if !self.eat(")") {
            let place = place_of(self.text, start);
            return self.wrong(format!("`)` for the group that begins at {place}"));
        }
        self.depth -= 1;
        self.grow()?;
        Ok(inner)
    }

    /// Count a group or a repetition around what was read last.
    fn grow(&mut self) -> Result<(), GrammarError> {
        self.height += 1;
        match self.height {
            found if found > MAX_HEIGHT => {
                let what = "groups and repetitions inside each other";
                Err(GrammarError::TooLarge { what, found, limit: MAX_HEIGHT })
            }
            _ => Ok(()),
        }
    }

    fn literal(&mut self) -> Result<Expr, GrammarError> {
        let start = self.pos;
        self.pos += 1;
        let mut chars = Vec::new();
        while !self.eat("\"") {
            if self.peek().is_none() {
                return self.wrong_at(start, "a `\"` at the end of the string");
            }
            let start = self.pos;
            match char::from_u32(self.character()?) {
                Some(c) => chars.push(c),
                None => return self.wrong_at(start, "hexadecimal digits of a character"),
            }
        }
        Ok(if chars.is_empty() { Expr::Sequence(Vec::new()) } else { Expr::Literal(chars) })
    }

    fn class(&mut self) -> Result<Expr, GrammarError> {
        let start = self.pos;
        self.pos += 1;
        let is_negated = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            if self.peek().is_none() {
                return self.wrong_at(start, "a `]` at the end of the class");
            }
            let first = self.character()?;
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let last = if is_range {
                self.pos += 1;
                let at = self.pos;
                let last = self.character()?;
                if last < first {
                    let first = char::from_u32(first).map_or(format!("U+{first:X}"), |c| format!("{c:?}"));
                    return self.wrong_at(at, format!("a character not before {first}"));
                }
                last
            } else {
                first
            };
            ranges.push((first, last));
        }
        if ranges.is_empty() && !is_negated {
            return self.wrong_at(start, "a class with at least one character");
        }
        let set = CharSet::new(ranges);
        let set = if is_negated { set.negated() } else { set };
        Ok(Expr::Chars(set))
    }

    /// Read the code point of a character of a string or a class, which may be escaped. Escapes can
    /// be of code points that are no characters, such as surrogates.
    fn character(&mut self) -> Result<u32, GrammarError> {
        let start = self.pos;
        match self.next() {
            Some('\\') => {}
            Some(c) => return Ok(c.into()),
            None => return self.wrong("a character"),
        }
        let n_digits = match self.next() {
            Some('n') => return Ok('\n'.into()),
            Some('r') => return Ok('\r'.into()),
            Some('t') => return Ok('\t'.into()),
            Some(c @ ('\\' | '"' | '[' | ']' | '-')) => return Ok(c.into()),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => {
                return self.wrong_at(
                    start,
                    "an escape: \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\xHH \\uHHHH \\UHHHHHHHH",
                );
            }
        };
        let digits = self.rest().get(..n_digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                self.pos += n_digits;
                Ok(code)
            }
            None => self.wrong_at(start, format!("{n_digits} hexadecimal digits")),
        }
    }

    fn repetition(&mut self, item: Option<Expr>, is_nested: bool) -> Result<Expr, GrammarError> {
        let start = self.pos;
        let Some(item) = item else {
            return self.wrong("something to repeat before it");
        };
        self.grow()?;
        let (min, max) = match self.next() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            _ => self.bounds(is_nested)?,
        };
        if max.is_some_and(|max| max < min) {
            return self.wrong_at(start, format!("an upper bound of at least {min}"));
        }
        if min > MAX_REPEAT {
            let (found, limit) = (min as usize, MAX_REPEAT as usize);
            return Err(GrammarError::TooLarge { what: "repetitions of one item", found, limit });
        }
        Ok(match (item, max.filter(|&max| max <= MAX_REPEAT)) {
            (_, Some(0)) => Expr::Sequence(Vec::new()),
            (item, max) => Expr::Repeat(Box::new(item), min, max),
        })
    }

    /// Read the bounds of a repetition, behind the opening brace.
    fn bounds(&mut self, is_nested: bool) -> Result<(u32, Option<u32>), GrammarError> {
        self.space(is_nested);
        let min = self.number()?;
        self.space(is_nested);
        let mut max = Some(min);
        if self.eat(",") {
            self.space(is_nested);
            let has_max = self.peek().is_some_and(|c| c.is_ascii_digit());
            max = if has_max { Some(self.number()?) } else { None };
            self.space(is_nested);
        }
        if !self.eat("}") {
            return self.wrong("`}` or `,` in the bounds of a repetition");
        }
        Ok((min, max))
    }

    /// Read a number. One that is too large for any use becomes the largest.
    fn number(&mut self) -> Result<u32, GrammarError> {
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if len == 0 {
            return self.wrong("a number");
        }
        self.pos += len;
        Ok(rest.get(..len).unwrap_or_default().parse().unwrap_or(u32::MAX))
    }

    /// Read a token match: `<[ID]>` or `<TEXT>`, with `!` before it for every other token.
    fn token(&mut self) -> Result<Expr, GrammarError> {
        let start = self.pos;
        let is_negated = self.eat("!");
        let rest = self.rest();
        let len = match rest.find('>') {
            Some(end) if rest.starts_with('<') => end + 1,
            _ => return self.wrong_at(start, "a token: `<[ID]>` or `<TEXT>`"),
        };
        let text = rest.get(..len).unwrap_or_default();
        self.pos += len;
        let Some(token) = self.find_token(text) else {
            return Err(GrammarError::UnknownToken {
                place: place_of(self.text, start),
                text: shortened(text, 60),
            });
        };
        if self.vocab.is_eog(token) && !is_negated {
            return self.wrong_at(start, "a token that does not end the generation");
        }
        if let Some(&index) = self.token_sets.get(&(token.0, is_negated)) {
            return Ok(Expr::Token(index));
        }
        let set = self.token_set(token, is_negated);
        if set.is_empty() {
            return self.wrong_at(start, "a set with at least one token");
        }
        let found = self.tokens.len() + 1;
        if found > MAX_TOKEN_SETS {
            return Err(GrammarError::TooLarge { what: "different tokens", found, limit: MAX_TOKEN_SETS });
        }
        self.tokens.push(set);
        self.token_sets.insert((token.0, is_negated), found - 1);
        Ok(Expr::Token(found - 1))
    }

    fn find_token(&self, text: &str) -> Option<Token> {
        if let Some(id) = text.strip_prefix("<[").and_then(|rest| rest.strip_suffix("]>")) {
            let id = id.parse().ok().filter(|&id| (id as usize) < self.vocab.n_vocab());
            return id.map(Token);
        }
        let mut tokens = Vec::new();
        self.vocab.tokenize(text, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
        match tokens[..] {
            [token] => Some(token),
            _ => None,
        }
    }

    /// Return the ranges of ids of `token`, or of all tokens but `token` that a text can have.
    fn token_set(&self, token: Token, is_negated: bool) -> Vec<(u32, u32)> {
        if !is_negated {
            return Vec::from([(token.0, token.0)]);
        }
        let is_text = |token: Token| !self.vocab.is_eog(token) && !self.vocab.piece(token).is_empty();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let ids = 0..self.vocab.n_vocab() as u32;
        for id in ids.filter(|&id| id != token.0 && is_text(Token(id))) {
            match ranges.last_mut() {
                Some(range) if range.1 + 1 == id => range.1 = id,
                _ => ranges.push((id, id)),
            }
        }
        ranges
    }

    /// Return the rules if all are defined.
    fn finish(self, root: &str) -> Result<Rules, GrammarError> {
        let Some(&root) = self.names.get(root) else {
            return self.wrong(format!("a rule `{}`", shortened(root, 60)));
        };
        let mut rules = Vec::with_capacity(self.rules.len());
        for slot in self.rules {
            let Some(expr) = slot.expr else {
                let place = place_of(self.text, slot.mentioned);
                return Err(GrammarError::UnknownRule { place, name: shortened(&slot.name, 60) });
            };
            rules.push(Rule { name: slot.name, offset: slot.defined, expr });
        }
        Ok(Rules { rules, root, tokens: self.tokens })
    }
}

/// Return the only item of `items`, or all of them together.
fn one_or(mut items: Vec<Expr>, make: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match items.len() {
        1 => items.swap_remove(0),
        _ => make(items),
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}
