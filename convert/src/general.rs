//! Keys that do not depend on the architecture: the name, the size, how texts are sampled.

use std::path::Path;

use backstitch_core::DType;
use serde_json::Value;

use crate::error::Error;
use crate::json::{read_json, shown};
use crate::metadata::Metadata;
use crate::plan::Output;

/// Keys of `generation_config.json` with whole numbers.
const SAMPLING_NUMBERS: &[(&str, &str)] =
    &[("top_k", "top_k"), ("penalty_last_n", "penalty_last_n"), ("mirostat", "mirostat")];

/// Keys of `generation_config.json` with fractions.
const SAMPLING_FRACTIONS: &[(&str, &str)] = &[
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("xtc_probability", "xtc_probability"),
    ("xtc_threshold", "xtc_threshold"),
    ("temperature", "temp"),
    ("penalty_repeat", "penalty_repeat"),
    ("mirostat_tau", "mirostat_tau"),
    ("mirostat_eta", "mirostat_eta"),
];

/// Set the keys of a model in a folder.
///
/// # Errors
/// [`Error::Read`], [`Error::FileTooLarge`] or [`Error::Format`] for a file that is not as named.
pub(crate) fn set(folder: &Path, outputs: &[Output], meta: &mut Metadata) -> Result<(), Error> {
    meta.set("general.type", "model");
    let sampling = read_json(&folder.join("generation_config.json"))?.unwrap_or_default();
    for (key, name) in SAMPLING_NUMBERS {
        let number = sampling.get(key).and_then(Value::as_i64).and_then(|n| u32::try_from(n).ok());
        if let Some(number) = number {
            meta.set(&format!("general.sampling.{name}"), number.cast_signed());
        }
    }
    for (key, name) in SAMPLING_FRACTIONS {
        if let Some(x) = sampling.get(key).and_then(Value::as_f64) {
            meta.set(&format!("general.sampling.{name}"), x as f32);
        }
    }
    set_name(folder, meta);
    meta.set("general.size_label", size_label(outputs));
    Ok(())
}

/// Set the kind of pooling that the modules of a sentence encoder name, if there are some.
///
/// # Errors
/// [`Error::Key`] for a kind that engines do not know; the errors of reading JSON files.
pub(crate) fn set_pooling(folder: &Path, meta: &mut Metadata) -> Result<(), Error> {
    /// Names of kinds in either form of the file, and their numbers.
    const KINDS: [(&str, &str, u32); 3] = [
        ("pooling_mode_mean_tokens", "mean", 1),
        ("pooling_mode_cls_token", "cls", 2),
        ("pooling_mode_lasttoken", "lasttoken", 3),
    ];
    let modules = read_json(&folder.join("modules.json"))?.unwrap_or_default();
    let text = |module: &Value, key: &str| module.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_pooling = |module: &&Value| text(module, "type").is_some_and(|kind| kind.ends_with("Pooling"));
    let module = modules.as_array().and_then(|list| list.iter().find(is_pooling));
    let Some(name) = module.and_then(|module| text(module, "path")) else { return Ok(()) };
    // A folder inside of this one.
    let is_inside = !name.contains(['/', '\\']) && name != "..";
    let path = folder.join(&name).join("config.json");
    let pooling = if is_inside { read_json(&path)?.unwrap_or_default() } else { Value::Null };
    let is_set = |flag: &str| pooling.get(flag).and_then(Value::as_bool) == Some(true);
    let named = text(&pooling, "pooling_mode");
    let kind = KINDS
        .iter()
        .find(|kind| is_set(kind.0))
        .or_else(|| KINDS.iter().find(|kind| named.as_deref() == Some(kind.1)));
    let kind = kind.ok_or_else(|| Error::Key {
        path,
        key: "pooling_mode".into(),
        found: shown(&pooling),
        wanted: "mean, cls or lasttoken".into(),
    })?;
    meta.set_own("pooling_type", kind.2);
    Ok(())
}

/// Set the name of the model to that of its folder.
pub(crate) fn set_name(folder: &Path, meta: &mut Metadata) {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let name = whole.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned());
    meta.set("general.name", name.replace(['-', '_'], " "));
}

/// Set the numbers of the file type and of the version of block formats.
pub(crate) fn set_file_type(dtype: DType, outputs: &[Output], meta: &mut Metadata) {
    /// Number of files with MXFP4 experts, whatever the type of the rest.
    const MXFP4: u32 = 38;
    let number = match dtype {
        _ if outputs.iter().any(Output::is_mxfp4) => MXFP4,
        DType::F32 => 0,
        DType::Q8_0 => 7,
        DType::BF16 => 32,
        _ => 1,
    };
    meta.set("general.file_type", number);
    meta.set("general.quantization_version", 2u32);
}

/// Return the number of weights as people write it: "135M", "8x7B".
fn size_label(outputs: &[Output]) -> String {
    let (mut shared, mut of_expert) = (0u64, 0u64);
    let (mut n_experts, mut n_tensors) = (0, 0);
    for output in outputs {
        let n = output.tensor.n_elements() as u64;
        let shape = output.tensor.shape();
        let at = if output.name.contains(".bias") { 2 } else { 3 };
        let experts = shape.len().checked_sub(at).and_then(|axis| shape.get(axis)).copied();
        match experts.filter(|_| output.name.contains("_exps.") && shape.len() > 2) {
            Some(experts) => {
                of_expert += n / experts.max(1) as u64;
                n_experts += experts;
                n_tensors += 1;
            }
            None => shared += n,
        }
    }
    match n_experts.checked_div(n_tensors) {
        Some(n) => format!("{n}x{}", rounded(shared + of_expert)),
        None => rounded(shared),
    }
}

/// Round a number to at least two digits and a unit.
fn rounded(n: u64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M")];
    let unit = units.into_iter().find(|(unit, _)| n as f64 > *unit).unwrap_or((1e3, "K"));
    let scaled = n as f64 / unit.0;
    // Two digits in all, but none that the number does not have.
    let whole = scaled.round();
    let digits = 2usize.saturating_sub(if whole == 0.0 { 0 } else { format!("{whole}").len() });
    format!("{scaled:.digits$}{}", unit.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded() {
        let cases = [(134_515_008, "135M"), (1_711_376_384, "1.7B"), (22_713_216, "23M"), (900, "0.9K")];
        for (n, text) in cases {
            assert_eq!(rounded(n), text);
        }
    }
}
