//! A model that writes anything that a grammar allows.

use super::super::grammars::FIRST;
use super::Random;
use backstitch_models::Token;
use backstitch_models::chat::reply::Format;
use backstitch_models::grammar::{Grammar, Matcher};

/// The tokens after which a text is brought to its end.
const LONG: usize = 120;
/// The tokens after which a text is given up.
const TOO_LONG: usize = 1000;
/// Texts that mean something somewhere.
const SNIPPETS: [&str; 26] = [
    "null", "true", "5", "-1.5e3", "\"", "'", "\\", "", " ", "\n", "\n\n", "{", "}", "[", "]", ",", ":", "=",
    "<", ">", "é", "🙂", "None", "\"null\"", "</", "]]>",
];
/// The characters that end something, in the order in which they are tried.
const CLOSERS: [&str; 10] = ["\"", "}", "]", ")", ">", "1", "e", "l", "\n", "a"];

/// A random model of a vocabulary of control tokens and bytes.
pub struct Walk<'w> {
    pub format: &'w Format,
    pub control: &'w [String],
}

impl Walk<'_> {
    /// Write a text of the grammar, and return true if it is whole.
    pub fn text(&self, grammar: &Grammar, random: &mut Random) -> Result<(String, bool), String> {
        let mut matcher = grammar.matcher();
        let markers = self.format.markers();
        while matcher.tokens().len() < TOO_LONG {
            let n = matcher.tokens().len();
            if matcher.is_accepting() && (matcher.is_stopped() || n > LONG || random.below(3) == 0) {
                return Ok((self.written(&matcher), true));
            }
            let is_long = n > LONG;
            let has_written = match random.below(12) {
                0..6 if is_long => {
                    let first = random.below(2) * random.below(CLOSERS.len());
                    let closers = CLOSERS.iter().cycle().skip(first).take(CLOSERS.len());
                    closers.into_iter().any(|text| self.write(text, &mut matcher, true))
                }
                0..2 | 6..9 if !markers.is_empty() && (is_long || random.below(4) == 0) => {
                    self.write(markers[random.below(markers.len())], &mut matcher, is_long)
                }
                2 if !is_long => self.write(SNIPPETS[random.below(SNIPPETS.len())], &mut matcher, false),
                _ => false,
            };
            if !has_written && !self.any(&mut matcher, random)? {
                return Ok((self.written(&matcher), true));
            }
        }
        Ok((self.written(&matcher), false))
    }

    /// Write a text, as far as it is allowed, or only as a whole. Return true if something was
    /// written.
    fn write(&self, text: &str, matcher: &mut Matcher, is_whole: bool) -> bool {
        let before = matcher.tokens().len();
        let control = self.control.iter().position(|control| control == text);
        if let Some(i) = control
            && matcher.accept(Token(FIRST + i as u32)).is_ok()
        {
            return true;
        }
        for byte in text.bytes() {
            if matcher.accept(self.byte(byte)).is_err() {
                if is_whole {
                    let n = matcher.tokens().len() - before;
                    matcher.rollback(n).unwrap();
                }
                break;
            }
        }
        matcher.tokens().len() > before
    }

    /// Write any token that is allowed, a letter with preference. Return false if that token ends
    /// the answer.
    fn any(&self, matcher: &mut Matcher, random: &mut Random) -> Result<bool, String> {
        for _ in 0..4 {
            let byte = b"abcdefghijklmnopqrstuvwxyz0123456789 _-.\"}/"[random.below(43)];
            if matcher.accept(self.byte(byte)).is_ok() {
                return Ok(true);
            }
        }
        let mask = matcher.mask().map_err(|error| error.to_string())?;
        let allowed: Vec<Token> = mask.iter().filter(|token| token.0 >= FIRST).collect();
        if allowed.is_empty() {
            return Err(format!("no token behind {:?}", self.written(matcher)));
        }
        let first = random.below(allowed.len());
        let mut tokens = allowed.iter().cycle().skip(first).take(allowed.len());
        match tokens.any(|token| matcher.accept(*token).is_ok()) {
            true => Ok(true),
            // Some markers end the answer in every vocabulary.
            false if allowed.iter().any(|token| matcher.grammar().compiler().vocab().is_eog(*token)) => {
                Ok(false)
            }
            false => Err(format!("every allowed token is refused behind {:?}", self.written(matcher))),
        }
    }

    fn byte(&self, byte: u8) -> Token {
        Token(FIRST + self.control.len() as u32 + u32::from(byte))
    }

    /// Return the text that was written.
    fn written(&self, matcher: &Matcher) -> String {
        let first = FIRST + self.control.len() as u32;
        let mut bytes = Vec::new();
        for token in matcher.tokens().iter().filter(|token| token.0 >= FIRST) {
            match token.0.checked_sub(first) {
                Some(byte) => bytes.push(byte as u8),
                None => bytes.extend(self.control[(token.0 - FIRST) as usize].bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
