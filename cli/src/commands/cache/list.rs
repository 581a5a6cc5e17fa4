//! `backstitch cache list`: list the files of a prompt cache, the least recently used first.
//!
//! Entries hold tokens, not text. With a model, those that it evaluated are shown with the
//! beginning of their text; entries of other models keep their numbers only.

use super::open;
use crate::args::{ListArgs, ModelArgs};
use crate::error::Error;
use crate::model;
use crate::output::{Output, bytes, counted, one_line};
use backstitch_core::cell::CellType;
use backstitch_kv::storage::prompt_cache::{Access, EntryInfo, Key};
use backstitch_models::adapter::AdapterSet;
use backstitch_models::{Context, Model, Params, Token};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of characters that are shown of a text.
const PREVIEW: usize = 48;

/// Run the command.
///
/// # Errors
/// - [`Error::Refused`] if the folder is no prompt cache.
/// - [`Error::Read`] or [`Error::PromptCache`] if it cannot be read.
/// - [`Error::Engine`] if the model cannot be loaded.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &ListArgs) -> Result<(), Error> {
    let entries = open(&args.folder, Access::ReadOnly)?.list()?;
    let reader = Reader::new(&args.model)?;
    let mut out = Output::new(args.json);
    if out.is_json() {
        let entry = |entry: &EntryInfo| as_json(entry, reader.as_ref());
        out.value(&entries.iter().map(entry).collect())?;
        return Ok(out.flush()?);
    }
    let head = ["model and cache", "tokens", "states", "size", "used", ""].map(String::from).to_vec();
    let rows = entries.iter().map(|entry| row(entry, reader.as_ref()));
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if !entries.is_empty() {
        out.table(&rows)?;
    }
    let size = entries.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    out.line(format_args!("{}, {}", counted(entries.len(), "file"), bytes(size)))?;
    Ok(out.flush()?)
}

/// Return the cells of a file's row.
fn row(entry: &EntryInfo, reader: Option<&Reader>) -> Vec<String> {
    let first = first_token(entry);
    let root: String = entry.root.to_string().chars().take(16).collect();
    let text = reader.and_then(|reader| reader.text(entry));
    // The text is the last column, where wide characters cannot shift others.
    let text = text.map_or(String::new(), |text| format!("{:PREVIEW$}", one_line(&text)));
    let tokens = match entry.tokens.len() {
        0 => format!("up to {first}"),
        n => format!("{first} to {}", first + n - 1),
    };
    vec![root, tokens, entry.n_resumes.to_string(), bytes(entry.bytes), ago(entry.used), text]
}

/// Return the position of an entry's first token in its prompt.
fn first_token(entry: &EntryInfo) -> usize {
    entry.n_before as usize * backstitch_kv::storage::prompt_cache::BLOCK_TOKENS
}

/// Return an entry as JSON.
fn as_json(entry: &EntryInfo, reader: Option<&Reader>) -> Value {
    let used = entry.used.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    json!({
        "name": entry.name,
        "root": entry.root.to_string(),
        "first_token": first_token(entry),
        "tokens": entry.tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
        "resume_points": entry.n_resumes,
        "bytes": entry.bytes,
        "used": used,
        "text": reader.and_then(|reader| reader.text(entry)),
    })
}

/// Format the time since `time` in the largest unit that fits: "3 days ago".
fn ago(time: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(time).map_or(0, |age| age.as_secs());
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{} ago", counted((seconds / unit) as usize, name)),
        None => "now".into(),
    }
}

/// A model that turns the tokens of its files back into text.
struct Reader {
    model: Model,
    /// Roots of the model's files in prompt caches, one for each data type of the KV cache.
    roots: Vec<Key>,
}

impl Reader {
    /// Load the model that was named, or return none without one.
    fn new(args: &ModelArgs) -> Result<Option<Self>, Error> {
        if args.model.is_none() {
            return Ok(None);
        }
        let model = model::open(args, model::n_threads(None))?;
        let root = |(k, v)| {
            let small = Params::default().n_ctx(32).n_batch(1).n_ubatch(1).n_threads(1);
            let context = Context::new(&model, small.type_k(k).type_v(v)).ok()?;
            Some(context.prompt_cache_root(&AdapterSet::default()))
        };
        // Some data types do not fit the dimensions of some models.
        let pairs = CellType::ALL.into_iter().flat_map(|k| CellType::ALL.map(|v| (k, v)));
        let roots = pairs.filter_map(root).collect();
        Ok(Some(Self { model, roots }))
    }

    /// Return the beginning of the text in a file, or none if it belongs to another model.
    fn text(&self, entry: &EntryInfo) -> Option<String> {
        if !self.roots.contains(&entry.root) {
            return None;
        }
        let piece = |token: &Token| self.model.vocab().piece(*token).iter().copied();
        let shown = entry.tokens.iter().take(PREVIEW).flat_map(piece).collect::<Vec<u8>>();
        Some(String::from_utf8_lossy(&shown).chars().take(PREVIEW).collect())
    }
}
