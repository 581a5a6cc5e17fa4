//! `backstitch inspect`: show what the file of a model or an adapter holds and how much memory it
//! needs.
//!
//! Everything comes from the header of the file, so that a large model is shown as fast as a small
//! one, also if its architecture is unknown.

use crate::args::InspectArgs;
use crate::error::{Error, of_engine};
use crate::output::{MAX_SHOWN, Output, bytes, cut, one_line, shorten};
use crate::{embedded, footprint, model};
use backstitch_core::PackedType;
use backstitch_core::cell::CellType;
use backstitch_models::gguf::{Gguf, TensorInfo, Value};
use backstitch_models::vocab::Vocab;
use backstitch_models::{Model, Params, arch, fingerprint};
use serde_json::{Map, Number, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the file cannot be read or is damaged.
/// - [`Error::Refused`] if the file is a state, not a model.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &InspectArgs) -> Result<(), Error> {
    let mut out = Output::new(args.json);
    match args.path.as_deref().or(args.model.model.as_deref()) {
        Some(path) => {
            let source = model::source(path, args.model.access())?;
            let gguf = &source.gguf().map_err(|error| Error::of_model(path, error))?;
            let subject = Subject { path: Some(path), n_bytes: source.n_bytes(), gguf };
            show(&mut out, &subject, args.tensors)?;
        }
        None => {
            let gguf = Gguf::parse(embedded::GGUF)?;
            show(
                &mut out,
                &Subject { path: None, n_bytes: embedded::GGUF.len(), gguf: &gguf },
                args.tensors,
            )?;
        }
    }
    Ok(out.flush()?)
}

/// The model that is inspected.
struct Subject<'a> {
    /// Path of the file; none for the model inside the program.
    path: Option<&'a Path>,
    /// Size of the file, or of all parts of a split model.
    n_bytes: usize,
    /// Header of the file.
    gguf: &'a Gguf<'a>,
}

impl Subject<'_> {
    /// Return the name for the heading.
    fn name(&self) -> String {
        self.path.map_or("the embedded model".into(), |path| one_line(&path.display().to_string()))
    }

    /// Return the name of the architecture.
    fn architecture(&self) -> String {
        self.gguf.architecture().map_or("unknown architecture".into(), one_line)
    }

    /// Return the number of parameters: the elements of all tensors.
    fn n_params(&self) -> u64 {
        self.gguf.tensors().iter().map(|tensor| tensor.n_elements() as u64).sum()
    }

    /// Return the number and the bytes of the tensors of each type.
    fn types(&self) -> BTreeMap<String, (usize, u64)> {
        let mut types = BTreeMap::new();
        for tensor in self.gguf.tensors() {
            let (n, size) = types.entry(described_type(tensor)).or_insert((0, 0));
            *n += 1;
            *size += tensor.n_bytes() as u64;
        }
        types
    }
}

/// Return the name of a tensor's type, with "packed" after it if it is packed.
fn type_name(tensor: &TensorInfo<'_>) -> String {
    let name = tensor.dtype().name();
    if tensor.is_packed() { format!("{name} packed") } else { name.into() }
}

/// Return the name of a tensor's type for people, with that of the type as which it is loaded where
/// that is another one of the same values.
fn described_type(tensor: &TensorInfo<'_>) -> String {
    let (name, dtype) = (type_name(tensor), tensor.dtype());
    match PackedType::of(dtype).map(PackedType::name) {
        Some(panels) if panels != dtype.name() => format!("{name}, loaded as {panels}"),
        _ => name,
    }
}

/// Least width for a value beside its key. In a narrower terminal it has a line of its own.
const LEAST_VALUE: usize = 24;

/// The memory that a model needs.
struct Needs {
    /// Bytes of the weights.
    weights: u64,
    /// Context sizes, each with the bytes of its caches in F16 and in F32.
    caches: Vec<(u32, u64, u64)>,
}

/// Context sizes in the report, up to the size that the model was trained for.
const SIZES: [u32; 6] = [512, 2048, 8192, 32_768, 131_072, 1_048_576];

/// Return the memory that a model needs.
///
/// # Errors
/// Those of [`Model::describe`], if the architecture is unknown or the file does not fit it.
fn needs(gguf: &Gguf) -> Result<Needs, backstitch_models::Error> {
    let (hparams, graph) = Model::describe(gguf, arch::ALL)?;
    let trained = hparams.n_ctx_train;
    let sizes = SIZES.into_iter().filter(|&size| size < trained).chain([trained]);
    let cache =
        |n_ctx, cell| footprint::cache(&hparams, &graph, n_ctx, &Params::default().type_k(cell).type_v(cell));
    let caches =
        sizes.map(|n_ctx| (n_ctx, cache(n_ctx, CellType::F16), cache(n_ctx, CellType::F32))).collect();
    Ok(Needs { weights: footprint::weights(&graph), caches })
}

/// Print the report, with a list of all tensors if that is wanted.
fn show(out: &mut Output, subject: &Subject, tensors: bool) -> Result<(), Error> {
    if out.is_json() {
        return Ok(out.value(&as_json(subject))?);
    }
    let heading = out.heading();
    let (name, architecture) = (subject.name(), subject.architecture());
    let (size, params) = (bytes(subject.n_bytes as u64), count(subject.n_params()));
    out.text(format_args!("{heading}{name}{heading:#}: {architecture}, {size}, {params} parameters"), 2)?;
    out.text(format_args!("fingerprint {}", fingerprint(subject.gguf)), 2)?;
    out.line(format_args!("\n{heading}Metadata{heading:#}"))?;
    list_metadata(out, subject)?;
    out.line(format_args!("\n{heading}Tensors{heading:#}"))?;
    let row = |(name, (n, size)): (String, (usize, u64))| vec![name, n.to_string(), bytes(size)];
    out.table(&subject.types().into_iter().map(row).collect::<Vec<_>>())?;
    if tensors {
        out.line("")?;
        list_tensors(out, subject)?;
    }
    out.line(format_args!("\n{heading}Memory{heading:#}"))?;
    list_memory(out, subject)?;
    let unread = unread(subject.gguf);
    if !unread.is_empty() {
        out.line(format_args!("\n{heading}Not read{heading:#}"))?;
        unread.iter().try_for_each(|name| out.text(shorten(&one_line(name)), 2))?;
    }
    Ok(())
}

/// Return the names of the tensors and the keys of the architecture that have no effect, because
/// nothing reads them; none if the architecture is unknown.
///
/// Keys of other prefixes are left out: those of the tokenizer and about the file are many, and
/// most say nothing that a computation could use.
fn unread(gguf: &Gguf) -> Vec<String> {
    if Model::describe(gguf, arch::ALL).is_err() || Vocab::from_gguf(gguf).is_err() {
        return Vec::new();
    }
    let prefix = format!("{}.", gguf.architecture().unwrap_or_default());
    let keys = gguf.unread_entries().map(|entry| entry.key).filter(|key| key.starts_with(&prefix));
    gguf.unread_tensors().map(|tensor| tensor.name()).chain(keys).map(String::from).collect()
}

/// Print the memory of weights and caches for several context sizes, or that of an adapter.
fn list_memory(out: &mut Output, subject: &Subject) -> Result<(), Error> {
    if let Some(n) = footprint::adapter(subject.gguf) {
        return Ok(out.text(format_args!("{} beside that of its model and a context", bytes(n)), 2)?);
    }
    let needs = match needs(subject.gguf) {
        Ok(needs) => needs,
        Err(error) => return Ok(out.text(format_args!("unknown: {}", of_engine(&error)), 2)?),
    };
    let head = ["context", "F16 cache", "F32 cache", "weights and F16 cache"].map(String::from).to_vec();
    let row = |&(n_ctx, half, full): &(u32, u64, u64)| {
        vec![n_ctx.to_string(), bytes(half), bytes(full), bytes(needs.weights + half)]
    };
    let rows: Vec<_> = std::iter::once(head).chain(needs.caches.iter().map(row)).collect();
    Ok(out.table(&rows)?)
}

/// Print the metadata: keys and values side by side, or below each other if there is little room.
/// Long keys and values are cut.
fn list_metadata(out: &mut Output, subject: &Subject) -> Result<(), Error> {
    let most = out.width();
    let keys: Vec<_> = subject
        .gguf
        .metadata()
        .iter()
        .map(|entry| cut(&one_line(entry.key), (most - 1).min(MAX_SHOWN)))
        .collect();
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0).min(most / 2 + 4);
    for (key, entry) in keys.iter().zip(subject.gguf.metadata()) {
        // One column less, for the ellipsis of a value that is cut.
        let value = |columns: usize| cut(&shorten(&plain(&entry.value)), columns - 1);
        if key.chars().count() <= width && most >= width + 2 + LEAST_VALUE {
            out.line(format_args!("{key:width$}  {}", value(most - width - 2)))?;
        } else {
            out.line(key)?;
            out.line(format_args!("    {}", value(most - 4)))?;
        }
    }
    Ok(())
}

/// Print name, type, shape and bytes of every tensor.
fn list_tensors(out: &mut Output, subject: &Subject) -> Result<(), Error> {
    let row = |tensor: &TensorInfo| {
        let shape = format!("{:?}", tensor.shape());
        vec![shorten(&one_line(tensor.name())), described_type(tensor), shape, bytes(tensor.n_bytes() as u64)]
    };
    Ok(out.table(&subject.gguf.tensors().iter().map(row).collect::<Vec<_>>())?)
}

/// Format a number of parameters: "134.5 M".
fn count(n: u64) -> String {
    match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

/// Format a value on one line. Of an array, the first elements are shown.
fn plain(value: &Value) -> String {
    match value {
        Value::Str(text) => text.chars().take(MAX_SHOWN + 1).collect::<String>().escape_debug().to_string(),
        Value::Array(array) => {
            let some: Vec<_> = array.iter().take(8).map(|value| plain(&value)).collect();
            let more = if array.len() > some.len() { ", …" } else { "" };
            format!("{}[{}] {}{more}", array.ty(), array.len(), some.join(", "))
        }
        other => as_value(other).to_string(),
    }
}

/// Return the report as JSON.
fn as_json(subject: &Subject) -> serde_json::Value {
    let entries = subject.gguf.metadata().iter();
    let metadata: Map<_, _> = entries.map(|entry| (entry.key.to_owned(), as_value(&entry.value))).collect();
    let tensor = |tensor: &TensorInfo| {
        json!({
            "name": tensor.name(),
            "type": type_name(tensor),
            "shape": tensor.shape(),
            "bytes": tensor.n_bytes(),
            "part": tensor.shard(),
            "offset": tensor.range().start,
        })
    };
    json!({
        "path": subject.path.map(|path| path.display().to_string()),
        "bytes": subject.n_bytes,
        "architecture": subject.gguf.architecture().ok(),
        "fingerprint": fingerprint(subject.gguf).to_string(),
        "n_params": subject.n_params(),
        "metadata": metadata,
        "tensors": subject.gguf.tensors().iter().map(tensor).collect::<Vec<_>>(),
        "memory": memory_as_json(subject.gguf),
        "unread": unread(subject.gguf),
    })
}

/// Return the memory of weights and caches, or that of an adapter, as JSON; null if it is unknown.
fn memory_as_json(gguf: &Gguf) -> serde_json::Value {
    if let Some(n) = footprint::adapter(gguf) {
        return json!({ "adapter": n });
    }
    let Ok(needs) = needs(gguf) else { return serde_json::Value::Null };
    let cache = |&(n_ctx, half, full): &(u32, u64, u64)| json!({ "n_ctx": n_ctx, "f16": half, "f32": full });
    json!({ "weights": needs.weights, "caches": needs.caches.iter().map(cache).collect::<Vec<_>>() })
}

/// Convert a value of the metadata to JSON.
fn as_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Str(text) => json!(text),
        Value::Array(array) => array.iter().map(|value| as_value(&value)).collect(),
        Value::Bool(truth) => json!(truth),
        // By their digits: as an f64, 0.1f32 would be 0.10000000149011612.
        Value::F32(x) => as_number(&x.to_string()),
        Value::F64(x) => as_number(&x.to_string()),
        integer => integer.as_integer().map_or(serde_json::Value::Null, |n| as_number(&n.to_string())),
    }
}

/// Return the number with these digits as JSON, or null for infinities and NaN, which JSON lacks.
fn as_number(text: &str) -> serde_json::Value {
    let integer = text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from));
    let number = integer.ok().or_else(|| Number::from_f64(text.parse().ok()?));
    number.map_or(serde_json::Value::Null, serde_json::Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(as_value(&Value::F32(0.1)).to_string(), "0.1");
        assert_eq!(as_value(&Value::U64(u64::MAX)).to_string(), "18446744073709551615");
        assert_eq!(as_value(&Value::I8(-1)).to_string(), "-1");
        assert_eq!(as_value(&Value::F32(f32::NAN)), serde_json::Value::Null);
    }

    #[test]
    fn long_texts_are_cut_and_escaped() {
        let text = "\x1b[31m".repeat(100);
        let shown = shorten(&plain(&Value::Str(&text)));
        assert_eq!(shown.chars().count(), MAX_SHOWN + 1);
        assert!(shown.starts_with("\\u{1b}[31m") && shown.ends_with('…'));
    }

    #[test]
    fn counts_read_naturally() {
        assert_eq!([999, 134_515_008, 7_000_000_000].map(count), ["999", "134.5 M", "7.00 G"]);
    }
}
