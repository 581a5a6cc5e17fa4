//! `backstitch inspect`: what a model file holds and how much memory it needs.

use crate::args::InspectArgs;
use crate::error::{Error, one_line};
use crate::output::{MAX_SHOWN, Output, bytes, cut, shorten};
use crate::{embedded, footprint, model};
use backstitch_core::cell::CellType;
use backstitch_models::gguf::{Gguf, TensorInfo, Value};
use backstitch_models::{Model, Params, arch, fingerprint};
use serde_json::{Map, Number, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// If the file cannot be read or is not a sound GGUF file, or the output fails.
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

/// What is inspected.
struct Subject<'a> {
    path: Option<&'a Path>,
    n_bytes: usize,
    gguf: &'a Gguf<'a>,
}

impl Subject<'_> {
    fn name(&self) -> String {
        self.path.map_or("the embedded model".into(), |path| one_line(&path.display().to_string()))
    }

    fn architecture(&self) -> String {
        self.gguf.architecture().map_or("unknown architecture".into(), one_line)
    }

    fn n_params(&self) -> u64 {
        self.gguf.tensors().iter().map(|tensor| tensor.n_elements() as u64).sum()
    }

    /// Number and bytes of the tensors of each type.
    fn types(&self) -> BTreeMap<String, (usize, u64)> {
        let mut types = BTreeMap::new();
        for tensor in self.gguf.tensors() {
            let (n, size) = types.entry(type_name(tensor)).or_insert((0, 0));
            *n += 1;
            *size += tensor.n_bytes() as u64;
        }
        types
    }
}

/// The name of a tensor's type, and whether it is packed.
fn type_name(tensor: &TensorInfo<'_>) -> String {
    let name = tensor.dtype().name();
    if tensor.is_packed() { format!("{name} packed") } else { name.into() }
}

/// Columns that a value has beside its key, or else it stands on a line of its own.
const LEAST_VALUE: usize = 24;

/// What a model needs in memory.
struct Needs {
    weights: u64,
    /// Context size, and bytes of its cache with elements of 2 and of 4 bytes.
    caches: Vec<(u32, u64, u64)>,
}

/// Context sizes to tell the memory of, as far as the model was trained for them.
const SIZES: [u32; 6] = [512, 2048, 8192, 32_768, 131_072, 1_048_576];

/// None if the engine does not know the architecture.
fn needs(gguf: &Gguf) -> Option<Needs> {
    let (hparams, graph) = Model::describe(gguf, arch::ALL).ok()?;
    let trained = hparams.n_ctx_train;
    let sizes = SIZES.into_iter().filter(|&size| size < trained).chain([trained]);
    let cache =
        |n_ctx, cell| footprint::cache(&hparams, &graph, n_ctx, &Params::default().type_k(cell).type_v(cell));
    let caches =
        sizes.map(|n_ctx| (n_ctx, cache(n_ctx, CellType::F16), cache(n_ctx, CellType::F32))).collect();
    Some(Needs { weights: footprint::weights(&graph), caches })
}

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
    list_memory(out, subject)
}

fn list_memory(out: &mut Output, subject: &Subject) -> Result<(), Error> {
    let Some(needs) = needs(subject.gguf) else {
        return Ok(out.line("unknown: this architecture is not supported")?);
    };
    let head = ["context", "F16 cache", "F32 cache", "weights and F16 cache"].map(String::from).to_vec();
    let row = |&(n_ctx, half, full): &(u32, u64, u64)| {
        vec![n_ctx.to_string(), bytes(half), bytes(full), bytes(needs.weights + half)]
    };
    let rows: Vec<_> = std::iter::once(head).chain(needs.caches.iter().map(row)).collect();
    Ok(out.table(&rows)?)
}

fn list_metadata(out: &mut Output, subject: &Subject) -> Result<(), Error> {
    let most = out.room();
    let keys: Vec<_> = subject
        .gguf
        .metadata()
        .iter()
        .map(|entry| cut(&one_line(entry.key), (most - 1).min(MAX_SHOWN)))
        .collect();
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0).min(most / 2 + 4);
    for (key, entry) in keys.iter().zip(subject.gguf.metadata()) {
        let value = |room: usize| cut(&shorten(&plain(&entry.value)), room - 1);
        if key.chars().count() <= width && most >= width + 2 + LEAST_VALUE {
            out.line(format_args!("{key:width$}  {}", value(most - width - 2)))?;
        } else {
            out.line(key)?;
            out.line(format_args!("    {}", value(most - 4)))?;
        }
    }
    Ok(())
}

fn list_tensors(out: &mut Output, subject: &Subject) -> Result<(), Error> {
    let row = |tensor: &TensorInfo| {
        let shape = format!("{:?}", tensor.shape());
        vec![shorten(&one_line(tensor.name())), type_name(tensor), shape, bytes(tensor.n_bytes() as u64)]
    };
    Ok(out.table(&subject.gguf.tensors().iter().map(row).collect::<Vec<_>>())?)
}

/// A number of parameters as people say it: "134.5 M".
fn count(n: u64) -> String {
    match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

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

fn as_json(subject: &Subject) -> serde_json::Value {
    let entries = subject.gguf.metadata().iter();
    let metadata: Map<_, _> = entries.map(|entry| (entry.key.to_owned(), as_value(&entry.value))).collect();
    let tensor = |tensor: &TensorInfo| {
        json!({
            "name": tensor.name(),
            "type": type_name(tensor),
            "shape": tensor.shape(),
            "bytes": tensor.n_bytes(),
            "part": tensor.part(),
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
        "memory": needs(subject.gguf).map(|needs| memory_as_json(&needs)),
    })
}

fn memory_as_json(needs: &Needs) -> serde_json::Value {
    let cache = |&(n_ctx, half, full): &(u32, u64, u64)| json!({ "n_ctx": n_ctx, "f16": half, "f32": full });
    json!({ "weights": needs.weights, "caches": needs.caches.iter().map(cache).collect::<Vec<_>>() })
}

fn as_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Str(text) => json!(text),
        Value::Array(array) => array.iter().map(|value| as_value(&value)).collect(),
        Value::Bool(truth) => json!(truth),
        Value::F32(x) => as_number(&x.to_string()),
        Value::F64(x) => as_number(&x.to_string()),
        integer => as_number(&integer.as_integer().unwrap_or_default().to_string()),
    }
}

/// The number with the same digits; null for what JSON cannot say.
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
