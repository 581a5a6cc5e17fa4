//! The prompt cache of one run: `run --prompt-cache`.
//!
//! A cache is an accelerator, so nothing here fails: an error becomes a note on standard error, and
//! the run continues as if there were no cache. The text is the same either way. Entries are
//! written by a thread, while tokens are generated; only the end of the run waits for it.

use crate::args::PromptCacheArgs;
use crate::error::of_prompt_cache;
use crate::output::note;
use crate::session::Session;
use backstitch_kv::storage::prompt_cache::{self, Access, BLOCK_TOKENS, BackgroundWriter, Why, WriterStats};
use backstitch_models::{Model, Recalled, Token};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A prompt cache, with what was found in it and what was added to it.
pub struct PromptCache {
    /// Folder that the user named.
    folder: PathBuf,
    /// The cache; `None` if it cannot be opened.
    cache: Option<prompt_cache::PromptCache>,
    /// Thread that adds entries; `None` if nothing is to be added.
    writer: Option<BackgroundWriter>,
    /// True if generated text is added too.
    all: bool,
    /// Result of the look-up; `None` before it, and if it failed.
    recalled: Option<Recalled>,
    /// Counts of what was added, at the end.
    stored: WriterStats,
    /// Texts of all errors.
    trouble: Vec<String>,
}

impl PromptCache {
    /// Open the cache that the user named, if any.
    pub fn open(args: &PromptCacheArgs) -> Option<Self> {
        let mut cache = Self {
            folder: args.prompt_cache.clone()?,
            cache: None,
            writer: None,
            all: args.prompt_cache_all,
            recalled: None,
            stored: WriterStats::default(),
            trouble: Vec::new(),
        };
        if let Err(error) = cache.open_folder(args) {
            cache.fail(error);
        }
        Some(cache)
    }

    /// Open the folder, and start the thread that adds entries. Returns the text of an error.
    fn open_folder(&mut self, args: &PromptCacheArgs) -> Result<(), String> {
        if std::fs::metadata(&self.folder).is_ok_and(|metadata| metadata.is_file()) {
            let name = self.folder.display();
            return Err(format!(
                "{name} is a file; a prompt cache is a folder here; --save FILE and --restore FILE keep one text in a file"
            ));
        }
        let text = |error| of_prompt_cache(&error);
        let budget = args.prompt_cache_size;
        let access = if args.prompt_cache_ro { Access::ReadOnly } else { Access::ReadWrite { budget } };
        let cache = self.cache.insert(prompt_cache::PromptCache::open(&self.folder, access).map_err(text)?);
        if !args.prompt_cache_ro {
            self.writer = Some(BackgroundWriter::spawn(cache.clone(), budget).map_err(text)?);
        }
        Ok(())
    }

    /// Report a failure. The run goes on without what failed.
    fn fail(&mut self, error: impl Into<String>) {
        let error = error.into();
        note("note", format_args!("prompt cache: {error}"));
        self.trouble.push(error);
    }

    /// Restore the longest stored prefix of the prompt in an empty session.
    pub fn recall(&mut self, session: &mut Session, tokens: &[Token]) {
        let Some(cache) = &self.cache else { return };
        match session.recall(cache, tokens) {
            Ok(mut recalled) => {
                if let Some(trouble) = recalled.trouble.take() {
                    self.fail(of_prompt_cache(&trouble));
                }
                self.recalled = Some(recalled);
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Return the number of tokens of the prompt that were restored.
    pub fn reused(&self) -> usize {
        self.recalled.as_ref().map_or(0, |recalled| recalled.n_tokens)
    }

    /// Print how many tokens were reused, and why not more.
    pub fn report(&self, model: &Model, tokens: &[Token]) {
        let n = tokens.len();
        if self.recalled.is_none() {
            return;
        }
        let (reused, why) = (self.reused(), self.why(model, tokens));
        note(
            "note",
            format_args!(
                "prompt cache: {reused} of {n} tokens reused, {} evaluated: {why}",
                n - reused.min(n)
            ),
        );
    }

    /// Return the reason for which not more was reused.
    fn why(&self, model: &Model, tokens: &[Token]) -> String {
        let Some(recalled) = &self.recalled else { return "nothing was looked for".into() };
        if model.graph().encoder().is_some() {
            return "this model encodes the prompt, and encoder outputs are not stored".into();
        }
        let more = recalled.n_stored.saturating_sub(recalled.n_tokens);
        let states = match more {
            0 => String::new(),
            _ => format!("; {more} more are stored, but no state of this model after them"),
        };
        let why = match recalled.why {
            Why::AllStored => {
                format!(
                    "whole blocks of {BLOCK_TOKENS} tokens are stored, and the last token is evaluated for its logits"
                )
            }
            why => format!("{why}{}", text_at(why, model, tokens)),
        };
        why + &states
    }

    /// Hand the new blocks of the session to the thread that adds them. They are copied, so this
    /// never waits for the disk.
    pub fn remember(&mut self, session: &mut Session) {
        let (Some(cache), Some(writer)) = (&self.cache, &self.writer) else { return };
        match session.remember(cache) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                if !writer.put(entry.into_owned()) {
                    self.fail("the prompt is larger than --prompt-cache-size; it is not kept");
                }
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Add the generated text if that is wanted, and wait until everything is written.
    pub fn finish(&mut self, session: &mut Session) {
        if let Some(writer) = &self.writer {
            writer.flush();
        }
        if self.all {
            self.remember(session);
        }
        let Some(writer) = self.writer.take() else { return };
        writer.flush();
        self.stored = writer.stats();
        if let Some(error) = writer.take_error() {
            self.fail(of_prompt_cache(&error));
        }
    }

    /// Return the report for programs.
    pub fn as_json(&self, model: &Model, tokens: &[Token]) -> Value {
        let recalled = self.recalled.as_ref();
        let reused = self.reused();
        let at = recalled.and_then(|recalled| place(recalled.why));
        let token = at.and_then(|at| tokens.get(at));
        json!({
            "folder": self.folder.display().to_string(),
            "reused": reused,
            "evaluated": tokens.len().saturating_sub(reused),
            "stored": recalled.map_or(0, |recalled| recalled.n_stored),
            "why": self.why(model, tokens),
            "at": at,
            "token": token.map(|token| token.0),
            "text": token.map(|token| piece(model, *token)),
            "written_blocks": self.stored.stored.blocks,
            "written_bytes": self.stored.stored.bytes,
            "trouble": self.trouble,
        })
    }
}

/// Return the index of the first token of the prompt that is not stored, if the reason has one.
fn place(why: Why) -> Option<usize> {
    match why {
        Why::Differs { at } | Why::Ends { at } | Why::Gone { at } | Why::Unreadable { at } => Some(at),
        _ => None,
    }
}

/// Return the text of that token, in parentheses.
fn text_at(why: Why, model: &Model, tokens: &[Token]) -> String {
    let token = place(why).and_then(|at| tokens.get(at));
    token.map_or(String::new(), |token| format!(" ({:?} in the prompt)", piece(model, *token)))
}

/// Return the text of a token.
fn piece(model: &Model, token: Token) -> String {
    String::from_utf8_lossy(model.vocab().piece(token)).into_owned()
}
