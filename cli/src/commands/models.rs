//! `backstitch models`: list the models that `-m` finds by name.

use crate::args::ModelsArgs;
use crate::catalog;
use crate::error::Error;
use crate::output::{Output, bytes, one_line};
use serde_json::json;

/// Run the command.
///
/// # Errors
/// - [`Error::Read`] if the folder cannot be read.
/// - [`Error::Refused`] if no folder was named, and there is no cache of Hugging Face.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &ModelsArgs) -> Result<(), Error> {
    let folder = args.models.clone().or_else(|| catalog::hugging_face(|name| std::env::var_os(name)));
    let folder = folder.ok_or_else(|| {
        Error::Refused("there is no cache of Hugging Face; name a folder with --models DIR".into())
    })?;
    let models = catalog::list(&folder)?;
    let mut out = Output::new(args.json);
    if args.json {
        let entry = |entry: &catalog::Entry| json!({ "name": entry.name, "path": entry.path.display().to_string(), "bytes": entry.n_bytes });
        out.value(&models.iter().map(entry).collect())?;
    } else if models.is_empty() {
        out.text(format_args!("no GGUF files in {}", one_line(&folder.display().to_string())), 2)?;
    } else {
        let row = |entry: &catalog::Entry| vec![one_line(&entry.name), bytes(entry.n_bytes)];
        out.table(&models.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(out.flush()?)
}
