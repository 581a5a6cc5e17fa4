//! Regular expressions in schemas.

use alloc::{borrow::ToOwned, rc::Rc, string::String};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use llguidance::api::ParserLimits;
use llguidance::derivre::RegexBuilder;
use llguidance::{GrammarBuilder, JsonCompileOptions, panic_utils, regex_to_lark};
use serde_json::{Value, json};

use super::ecma::{self, Fault, Others};
use super::keywords::Keywords;
use super::lost::Lost;

/// The values that 64 bytes of a regular expression count as, since reading one takes longer.
const COST: usize = 64;

/// The use that can be made of a regular expression.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Use {
    /// The library can follow it, in this form.
    Followed(Rc<str>),
    /// It may mean something, but not to the library: look-around, word boundaries, references.
    Ignored,
    /// It is no regular expression in any dialect.
    Broken,
}

/// The regular expressions of one schema. Each is read once, however often its place is visited.
pub(super) struct Patterns {
    uses: HashMap<String, Use>,
    /// Pairs of patterns and formats, with true where some text has both.
    fitting: HashMap<(String, String), bool>,
    /// The texts that patterns do not match, where they can be written.
    others: HashMap<String, Option<Others>>,
    /// The cost of reading since it was last taken, in values.
    cost: usize,
    /// The cost beyond which nothing more is read.
    limit: usize,
}

impl Patterns {
    /// Begin without any. Whoever takes a cost above `limit` has to give up.
    pub(super) fn new(limit: usize) -> Self {
        Self { uses: HashMap::new(), fitting: HashMap::new(), others: HashMap::new(), cost: 0, limit }
    }

    /// Return the cost of what was read since the last call, in values.
    pub(super) fn take_cost(&mut self) -> usize {
        core::mem::take(&mut self.cost)
    }

    /// Count work that costs as much as `n` values; `None` if it is too much together.
    pub(super) fn charge(&mut self, n: usize) -> Option<()> {
        self.cost = self.cost.saturating_add(n);
        (self.cost <= self.limit).then_some(())
    }

    /// Return the use that can be made of `pattern`.
    pub(super) fn usable(&mut self, pattern: &str) -> Use {
        let n_chunks = 1 + pattern.len() / 64;
        self.cost = self.cost.saturating_add(n_chunks);
        if let Some(known) = self.uses.get(pattern) {
            return known.clone();
        }
        self.cost = self.cost.saturating_add(COST * n_chunks);
        if self.cost > self.limit {
            return Use::Ignored;
        }
        let found = usable(pattern);
        self.uses.insert(pattern.to_owned(), found.clone());
        found
    }

    /// Return the texts that `pattern` does not match; `None` if they cannot be written.
    pub(super) fn others(&mut self, pattern: &str) -> Option<Others> {
        let Use::Followed(written) = self.usable(pattern) else { return None };
        if let Some(known) = self.others.get(pattern) {
            return known.clone();
        }
        self.cost = self.cost.saturating_add(COST * COST);
        let found = if self.cost > self.limit { None } else { ecma::without(&written) };
        self.others.insert(pattern.to_owned(), found.clone());
        found
    }

    /// Return true if the library finds a text that matches a pattern and has a format. There can
    /// be none: a time without a zone has no place in the format `time`, but zod writes it so.
    fn fits(&mut self, pattern: &str, format: &str) -> bool {
        let n_chunks = 1 + (pattern.len() + format.len()) / 64;
        let pair = (pattern.to_owned(), format.to_owned());
        self.cost = self.cost.saturating_add(n_chunks);
        if let Some(&known) = self.fitting.get(&pair) {
            return known;
        }
        self.cost = self.cost.saturating_add(COST * n_chunks);
        let found = self.cost <= self.limit && fits(pattern, format);
        self.fitting.insert(pair, found);
        found
    }

    /// Write a pattern in the form that the library can follow, or remove it, or a format that
    /// excludes all texts that match it. Return the keyword that was removed.
    ///
    /// # Errors
    /// Return the keyword if nobody could follow the pattern.
    pub(super) fn check(&mut self, keywords: &mut Keywords<'_>) -> Result<Option<&'static str>, Lost> {
        let Some(pattern) = keywords.get("pattern").and_then(Value::as_str) else { return Ok(None) };
        match self.usable(pattern) {
            Use::Followed(written) => {
                let format = keywords.get("format").and_then(Value::as_str);
                // llama.cpp follows only the pattern.
                let is_alone = format.is_some_and(|format| !self.fits(&written, format));
                keywords.set("pattern", written.as_ref());
                let removed = is_alone.then(|| keywords.remove("format")).flatten();
                Ok(removed.map(|_| "format"))
            }
            Use::Ignored => {
                keywords.remove("pattern");
                Ok(Some("pattern"))
            }
            Use::Broken => {
                keywords.remove("pattern");
                Err(Lost::broken("pattern"))
            }
        }
    }
}

fn usable(pattern: &str) -> Use {
    let text = match ecma::translated(pattern) {
        Ok(text) => text,
        Err(Fault::Unfollowed) => return Use::Ignored,
        Err(Fault::Mistake) => return Use::Broken,
    };
    // As the library reads it.
    let read = regex_to_lark(&text, "dw");
    let parse = || RegexBuilder::new().mk_regex_for_serach(&read);
    match panic_utils::catch_unwind(AssertUnwindSafe(parse)) {
        Ok(_) => Use::Followed(text.into()),
        Err(_) => Use::Ignored,
    }
}

fn fits(pattern: &str, format: &str) -> bool {
    let schema = json!({"type": "string", "pattern": pattern, "format": format});
    let options = JsonCompileOptions { lenient: true, ..JsonCompileOptions::default() };
    let builder = GrammarBuilder::new(None, ParserLimits::default());
    panic_utils::catch_unwind(AssertUnwindSafe(|| options.json_to_llg(builder, schema))).is_ok()
}
