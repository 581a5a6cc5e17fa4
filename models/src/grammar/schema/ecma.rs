//! Regular expressions of ECMA-262, written in the dialect that the library reads.
//!
//! Schemas have the dialect of JavaScript; the library has that of the crate `regex`. Both agree on
//! most of it, and differ in classes (`[a&&b]`, `[]`, `[[]`), in what `.` and `\s` match, and in
//! letters behind a backslash. What is written here means the same in both, so that writing it once
//! more changes nothing. A few things of other dialects are read that cannot be mistaken: named
//! groups as Python writes them, and groups with the flags `i` and `s`.

mod automaton;
mod class;
mod complement;

use alloc::{format, string::String, vec::Vec};
use core::iter::Peekable;
use core::str::Chars;

use self::class::Class;
pub(super) use self::complement::{Others, except, without};

/// A regular expression that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It has a meaning that no automaton follows: look-around, word boundaries, references, halves
    /// of characters.
    Unfollowed,
    /// It has a mistake.
    Mistake,
}

/// Return `pattern` in the dialect that the library reads.
///
/// # Errors
/// [`Fault`]; a mistake takes precedence.
pub(super) fn translated(pattern: &str) -> Result<String, Fault> {
    let mut reader = Reader {
        rest: pattern.chars().peekable(),
        out: String::new(),
        groups: Vec::new(),
        flags: Flags::default(),
        is_followed: true,
    };
    reader.all()?;
    if reader.is_followed { Ok(reader.out) } else { Err(Fault::Unfollowed) }
}

/// Reads a regular expression, and writes it.
struct Reader<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    /// The open groups, each with the flags around it.
    groups: Vec<Flags>,
    flags: Flags,
    is_followed: bool,
}

/// The flags that hold at a place.
#[derive(Clone, Copy, Default)]
struct Flags {
    /// The dot matches line ends.
    dot_is_all: bool,
    /// Upper and lower case are alike.
    folds: bool,
}

impl Reader<'_> {
    fn all(&mut self) -> Result<(), Fault> {
        let mut can_repeat = false;
        while let Some(c) = self.rest.next() {
            let could_repeat = core::mem::replace(&mut can_repeat, true);
            match c {
                '(' => {
                    self.groups.push(self.flags);
                    self.open()?;
                    can_repeat = false;
                }
                ')' => {
                    self.flags = self.groups.pop().ok_or(Fault::Mistake)?;
                    self.out.push(')');
                }
                '|' | '^' => {
                    self.out.push(c);
                    can_repeat = false;
                }
                '$' => self.out.push(c),
                '*' | '+' | '?' if could_repeat => {
                    self.out.push(c);
                    self.out.extend(self.rest.next_if_eq(&'?'));
                    can_repeat = false;
                }
                '*' | '+' | '?' => return Err(Fault::Mistake),
                '{' => can_repeat = !self.brace(could_repeat)?,
                '.' if self.flags.dot_is_all => self.out.push_str("(?s:.)"),
                '.' => self.out.push_str(&Class::line_ends().negated().text()),
                '[' => {
                    let class = self.class()?;
                    self.out.push_str(&class.text());
                }
                '\\' => self.escape()?,
                c => self.out.push_str(&literal(c)),
            }
        }
        if self.groups.is_empty() { Ok(()) } else { Err(Fault::Mistake) }
    }

    /// Read what stands behind the bracket that opens a group.
    fn open(&mut self) -> Result<(), Fault> {
        if self.rest.next_if_eq(&'?').is_none() {
            self.out.push('(');
            return Ok(());
        }
        match self.rest.next().ok_or(Fault::Mistake)? {
            ':' => self.out.push_str("(?:"),
            '=' | '!' | '>' => self.unfollowed("(?:"),
            '<' if self.rest.next_if(|c| matches!(c, '=' | '!')).is_some() => self.unfollowed("(?:"),
            '<' => self.name()?,
            'P' => match self.rest.next().ok_or(Fault::Mistake)? {
                '<' => self.name()?,
                '=' | '>' => self.unfollowed("(?:"),
                _ => return Err(Fault::Mistake),
            },
            first => self.group_flags(first)?,
        }
        Ok(())
    }

    /// Read the name of a group. Nothing refers to it.
    fn name(&mut self) -> Result<(), Fault> {
        let mut n = 0;
        for c in self.rest.by_ref() {
            match c {
                '>' if n > 0 => {
                    self.out.push('(');
                    return Ok(());
                }
                c if c.is_alphanumeric() || matches!(c, '_' | '$') => n += 1,
                _ => return Err(Fault::Mistake),
            }
        }
        Err(Fault::Mistake)
    }

    /// Read flags, which hold for a group, or up to the end of the one around them.
    fn group_flags(&mut self, first: char) -> Result<(), Fault> {
        let (mut next, mut is_on, mut text) = (Some(first), true, String::new());
        loop {
            match next.ok_or(Fault::Mistake)? {
                'i' => {
                    self.flags.folds = is_on;
                    text.push('i');
                }
                's' => self.flags.dot_is_all = is_on,
                '-' if is_on => {
                    is_on = false;
                    text.push('-');
                }
                end @ (':' | ')') => {
                    let text = text.strip_suffix('-').unwrap_or(&text);
                    if end == ':' {
                        self.out.push_str(&format!("(?{text}:"));
                    } else {
                        // The group is over, and what it sets is not.
                        self.groups.pop();
                        self.out.push_str(&if text.is_empty() {
                            String::new()
                        } else {
                            format!("(?{text})")
                        });
                    }
                    return Ok(());
                }
                _ => return Err(Fault::Mistake),
            }
            next = self.rest.next();
        }
    }

    fn unfollowed(&mut self, text: &str) {
        self.is_followed = false;
        self.out.push_str(text);
    }

    /// Read a brace. Return true for a number of repetitions, false for a brace that stands for
    /// itself.
    fn brace(&mut self, can_repeat: bool) -> Result<bool, Fault> {
        let rest: String = self.rest.clone().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        let has_end = self.rest.clone().nth(rest.len()) == Some('}');
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (min, max) = rest.split_once(',').unwrap_or((&rest, &rest));
        if !has_end || !number(min) || !(number(max) || max.is_empty() && rest.contains(',')) {
            self.out.push_str(r"\{");
            return Ok(false);
        }
        // A number that has only digits and does not fit is a large one.
        let large = |text: &str| text.parse().unwrap_or(u64::MAX);
        if !can_repeat || !max.is_empty() && large(min) > large(max) {
            return Err(Fault::Mistake);
        }
        self.out.push_str(&format!("{{{rest}}}"));
        self.rest.by_ref().take(rest.len() + 1).for_each(drop);
        self.out.extend(self.rest.next_if_eq(&'?'));
        Ok(true)
    }

    /// Read up to the brace that closes.
    fn braced(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        loop {
            match self.rest.next().ok_or(Fault::Mistake)? {
                '}' => return Ok(text),
                c => text.push(c),
            }
        }
    }

    /// Return the characters that are not in a class. Those of the other case are in it where case
    /// means nothing.
    fn others(&self, class: Class) -> Class {
        if self.flags.folds { class.folded().negated() } else { class.negated() }
    }

    /// Read what stands behind a backslash outside of a class.
    fn escape(&mut self) -> Result<(), Fault> {
        match self.rest.peek().copied().ok_or(Fault::Mistake)? {
            'b' | 'B' => {
                self.rest.next();
                self.unfollowed("");
            }
            '1'..='9' | 'k' => {
                self.rest.next();
                self.unfollowed("(?:)");
            }
            'd' | 'w' => {
                // The library has those of JavaScript.
                self.out.push('\\');
                self.out.extend(self.rest.next());
            }
            'D' | 'W' | 's' | 'S' | 'p' | 'P' => {
                let class = self.escaped_class()?.unwrap_or_default();
                self.out.push_str(&class.text());
            }
            _ => match self.escaped_char()? {
                Some(c) => self.out.push_str(&literal(c)),
                None => self.unfollowed("(?:)"),
            },
        }
        Ok(())
    }

    /// Read the letter of a class behind a backslash; `None` if it is none.
    fn escaped_class(&mut self) -> Result<Option<Class>, Fault> {
        let Some(c) = self.rest.next_if(|c| "dDwWsSpP".contains(*c)) else { return Ok(None) };
        let class = match c.to_ascii_lowercase() {
            'd' => Class::digits(),
            'w' => Class::word(),
            's' => Class::space(),
            _ => self.property()?,
        };
        Ok(Some(if c.is_ascii_uppercase() { self.others(class) } else { class }))
    }

    /// Read the name of a property of characters.
    fn property(&mut self) -> Result<Class, Fault> {
        let name: String = match self.rest.next().ok_or(Fault::Mistake)? {
            '{' => self.braced()?,
            letter => letter.into(),
        };
        Class::property(&name).ok_or(Fault::Mistake)
    }

    /// Read a character behind a backslash; `None` for half of a character.
    fn escaped_char(&mut self) -> Result<Option<char>, Fault> {
        let c = self.rest.next().ok_or(Fault::Mistake)?;
        Ok(Some(match c {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'v' => '\x0b',
            'f' => '\x0c',
            '0' => '\0',
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic).ok_or(Fault::Mistake)?;
                char::from(letter as u8 % 32)
            }
            'x' => return self.code(2),
            'u' if self.rest.next_if_eq(&'{').is_some() => {
                let digits = self.braced()?;
                return self.found(&digits);
            }
            'u' => return self.code(4),
            // JavaScript has no such letters: `\A` and `\z` of other dialects are no letters there.
            c if c.is_alphanumeric() => return Err(Fault::Mistake),
            c => c,
        }))
    }

    /// Read the code of a character of `n` digits.
    fn code(&mut self, n: usize) -> Result<Option<char>, Fault> {
        let digits: String = self.rest.by_ref().take(n).collect();
        if digits.len() == n { self.found(&digits) } else { Err(Fault::Mistake) }
    }

    /// Return the character with a code, with the second half of it if the code is a first half.
    fn found(&mut self, digits: &str) -> Result<Option<char>, Fault> {
        let code = |digits: &str| u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        let first = code(digits).ok_or(Fault::Mistake)?;
        if !(0xd800..0xdc00).contains(&first) {
            return match char::from_u32(first) {
                None if first > 0xffff => Err(Fault::Mistake),
                found => Ok(found),
            };
        }
        let behind: String = self.rest.clone().take(6).collect();
        let second = behind.strip_prefix("\\u").and_then(code).filter(|code| (0xdc00..0xe000).contains(code));
        let Some(second) = second else { return Ok(None) };
        self.rest.by_ref().take(6).for_each(drop);
        Ok(char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)))
    }

    /// Read a class behind its bracket.
    fn class(&mut self) -> Result<Class, Fault> {
        let is_negated = self.rest.next_if_eq(&'^').is_some();
        let mut class = Class::default();
        loop {
            let first = match self.rest.peek().ok_or(Fault::Mistake)? {
                ']' => break,
                _ => self.atom()?,
            };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']');
            if !is_range {
                class.add(&first);
                continue;
            }
            self.rest.next();
            let last = self.atom()?;
            match (first.single(), last.single()) {
                (Some(first), Some(last)) if first <= last => class.add_range(first, last),
                (Some(_), Some(_)) => return Err(Fault::Mistake),
                // A class is no end of a range, and the dash one of the characters.
                _ => [first, Class::of('-'), last].iter().for_each(|part| class.add(part)),
            }
        }
        self.rest.next();
        Ok(if is_negated { self.others(class) } else { class })
    }

    /// Read one character, or the letter of a class, within a class.
    fn atom(&mut self) -> Result<Class, Fault> {
        match self.rest.next().ok_or(Fault::Mistake)? {
            '\\' => {}
            c => return Ok(Class::of(c)),
        }
        if let Some(class) = self.escaped_class()? {
            return Ok(class);
        }
        if self.rest.next_if_eq(&'b').is_some() {
            return Ok(Class::of('\x08'));
        }
        match self.escaped_char()? {
            Some(c) => Ok(Class::of(c)),
            None => {
                self.is_followed = false;
                Ok(Class::default())
            }
        }
    }
}

/// Return a character that stands for itself.
fn literal(c: char) -> String {
    match c {
        '\\' | '^' | '$' | '.' | '|' | '?' | '*' | '+' | '(' | ')' | '[' | ']' | '{' | '}' | '/' => {
            format!("\\{c}")
        }
        c if c.is_ascii_control() => format!("\\x{:02X}", u32::from(c)),
        c => c.into(),
    }
}

#[cfg(test)]
mod tests;
