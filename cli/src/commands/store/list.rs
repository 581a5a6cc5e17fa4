//! `backstitch store list`: the files of a prompt cache.

use super::open;
use crate::args::{ListArgs, ModelArgs};
use crate::error::{Error, one_line};
use crate::model;
use crate::output::{Output, bytes, counted};
use backstitch_core::cell::CellType;
use backstitch_kv::store::{Access, Key, Listed};
use backstitch_models::{Context, Model, Params, Token};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of a text that are shown.
const PREVIEW: usize = 48;

/// Runs the command.
///
/// # Errors
/// If the folder cannot be listed or the model not be loaded.
pub fn run(args: &ListArgs) -> Result<(), Error> {
    let packs = open(&args.folder, Access::ReadOnly)?.list()?;
    let reader = Reader::new(&args.model)?;
    let mut out = Output::new(args.json);
    if out.is_json() {
        let pack = |pack: &Listed| as_json(pack, reader.as_ref());
        out.value(&packs.iter().map(pack).collect())?;
        return Ok(out.flush()?);
    }
    let head = ["model and cache", "tokens", "states", "size", "used", ""].map(String::from).to_vec();
    let rows = packs.iter().map(|pack| row(pack, reader.as_ref()));
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if !packs.is_empty() {
        out.table(&rows)?;
    }
    let size = packs.iter().map(|pack| pack.bytes).fold(0, u64::saturating_add);
    out.line(format_args!("{}, {}", counted(packs.len(), "file"), bytes(size)))?;
    Ok(out.flush()?)
}

fn row(pack: &Listed, reader: Option<&Reader>) -> Vec<String> {
    let first = first_token(pack);
    let root: String = pack.root.to_string().chars().take(16).collect();
    let text = reader.and_then(|reader| reader.text(pack));
    // On the right, where the width of its characters moves nothing.
    let text = text.map_or(String::new(), |text| format!("{:PREVIEW$}", one_line(&text)));
    let tokens = match pack.tokens.len() {
        0 => format!("up to {first}"),
        n => format!("{first} to {}", first + n - 1),
    };
    vec![root, tokens, pack.n_resumes.to_string(), bytes(pack.bytes), ago(pack.used), text]
}

fn first_token(pack: &Listed) -> usize {
    pack.n_before as usize * backstitch_kv::store::BLOCK_TOKENS
}

fn as_json(pack: &Listed, reader: Option<&Reader>) -> Value {
    let used = pack.used.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    json!({
        "name": pack.name,
        "root": pack.root.to_string(),
        "first_token": first_token(pack),
        "tokens": pack.tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
        "resume_points": pack.n_resumes,
        "bytes": pack.bytes,
        "used": used,
        "text": reader.and_then(|reader| reader.text(pack)),
    })
}

/// How long ago, in the largest unit that fits.
fn ago(time: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(time).map_or(0, |age| age.as_secs());
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{} ago", counted((seconds / unit) as usize, name)),
        None => "now".into(),
    }
}

/// What makes texts of tokens, for the files of one model.
struct Reader {
    model: Model,
    /// The roots of its caches of each type.
    roots: Vec<Key>,
}

impl Reader {
    /// None without a model.
    fn new(args: &ModelArgs) -> Result<Option<Self>, Error> {
        if args.model.is_none() {
            return Ok(None);
        }
        let model = model::open(args, model::n_threads(None))?;
        let root = |cell| {
            let small = Params::default().n_ctx(32).n_batch(1).n_ubatch(1).n_threads(1);
            Some(Context::new(&model, small.type_k(cell).type_v(cell)).ok()?.store_root())
        };
        // Not every type suits every model.
        let roots = CellType::ALL.into_iter().filter_map(root).collect();
        Ok(Some(Self { model, roots }))
    }

    /// The beginning of the text in a file of this model.
    fn text(&self, pack: &Listed) -> Option<String> {
        if !self.roots.contains(&pack.root) {
            return None;
        }
        let piece = |token: &Token| self.model.vocab().piece(*token).iter().copied();
        let shown = pack.tokens.iter().take(PREVIEW).flat_map(piece).collect::<Vec<u8>>();
        Some(String::from_utf8_lossy(&shown).chars().take(PREVIEW).collect())
    }
}
