//! Filters, which follow `|`. Those of single values are here, those of sequences in
//! `filters/sequence.rs`, and those of texts in `filters/text.rs`.
//!
//! The set is that of Jinja 3 and transformers, with llama.cpp's `from_json`, and without those
//! that make or remove HTML (`striptags`, `urlize`, `xmlattr`) and `random`, which would give
//! another prompt each time. Names, parameters and defaults are Jinja's.

mod sequence;
mod text;
mod wrap;

use alloc::format;
use alloc::vec::Vec;

use super::arguments::Arguments;
use super::error::{Eval, Fault};
use super::heap::Val;
use super::machine::Machine;
use super::text::Str;
use super::{containers, json, numbers};

/// The names of all filters.
pub(super) const NAMES: [&str; 51] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "from_json",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "wordwrap",
];

impl Machine<'_, '_> {
    /// Evaluate `value | name(…)`.
    ///
    /// # Errors
    /// [`Fault::Failed`] if there is no such filter, or value and arguments do not fit it.
    pub(super) fn filter(&mut self, name: &Str, value: Val, given: Arguments) -> Eval<Val> {
        self.budget.pay(super::budget::STEP)?;
        match name.as_str() {
            "length" | "count" => {
                given.none("length")?;
                self.length(&value)
            }
            "default" | "d" => {
                let [default, also_false] = given.bind("default", ["default_value", "boolean"])?;
                let also_false = also_false.is_some_and(|flag| flag.is_true(&self.heap));
                let missing = matches!(value, Val::Undefined) || (also_false && !value.is_true(&self.heap));
                Ok(if missing { default.unwrap_or_else(|| Val::Str(Str::template(""))) } else { value })
            }
            "string" => {
                given.none("string")?;
                self.text_of(&value).map(Val::Str)
            }
            "safe" => given.none("safe").map(|()| value),
            "tojson" => json::tojson(self, &value, given),
            "from_json" => {
                given.none("from_json")?;
                json::from_json(self, &value)
            }
            "items" => {
                given.none("items")?;
                match value {
                    Val::Dict(dict) => containers::view(self, dict, "items"),
                    Val::Undefined => self.new_list(Vec::new()),
                    other => Err(Fault::failed(format!("items needs a dict, not {}", other.kind()))),
                }
            }
            "abs" => {
                given.none("abs")?;
                absolute(&value)
            }
            "int" => self.integer(&value, given),
            "float" => self.floating(&value, given),
            "round" => self.rounded(&value, given),
            "filesizeformat" => self.file_size(&value, given),
            "attr" => {
                let name = given.one("attr")?;
                match name {
                    Val::Str(name) => self.attribute(&value, &name),
                    other => Err(Fault::failed(format!("attr needs a string, not {}", other.kind()))),
                }
            }
            _ => match self.sequence_filter(name.as_str(), value, given)? {
                Ok(value) => Ok(value),
                Err((value, given)) => self.text_filter(name.as_str(), &value, given),
            },
        }
    }

    /// Return the number of items or characters: `'abc' | length` is 3.
    fn length(&mut self, value: &Val) -> Eval<Val> {
        let n = match value {
            Val::Undefined => 0,
            Val::Str(text) => {
                self.budget.scan(text.len())?;
                text.as_str().chars().count()
            }
            Val::List(list) | Val::Tuple(list) | Val::View(_, list) | Val::Iter(list) => {
                self.heap.list(*list).len()
            }
            Val::Dict(dict) => self.heap.dict(*dict).len(),
            other => return Err(Fault::failed(format!("{} has no length", other.kind()))),
        };
        Ok(Val::Int(n as i64))
    }

    /// Evaluate `int`: `'12' | int` is 12, and `'x' | int(7)` is 7.
    fn integer(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        let [default, base] = given.bind("int", ["default", "base"])?;
        let base = self.int_arg("int", base, 10)?;
        let found = match value {
            Val::Str(text) => {
                self.budget.bytes(text.len().saturating_mul(2))?;
                let whole = numbers::parse_int(text.as_str(), u32::try_from(base).unwrap_or(0));
                whole.or_else(|| numbers::truncated(numbers::parse_float(text.as_str())?))
            }
            Val::Float(x) => numbers::truncated(*x),
            other => other.as_int(),
        };
        Ok(found.map(Val::Int).or(default).unwrap_or(Val::Int(0)))
    }

    /// Evaluate `float`: `'1.5' | float` is 1.5, and `'x' | float` is 0.0.
    fn floating(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        let [default] = given.bind("float", ["default"])?;
        let found = match value {
            Val::Str(text) => {
                self.budget.bytes(text.len().saturating_mul(2))?;
                numbers::parse_float(text.as_str())
            }
            other => other.as_float(),
        };
        Ok(found.map(Val::Float).or(default).unwrap_or(Val::Float(0.0)))
    }

    /// Evaluate `filesizeformat`: `13000 | filesizeformat` is `'13.0 kB'`.
    fn file_size(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        const PREFIXES: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
        let [binary] = given.bind("filesizeformat", ["binary"])?;
        let is_binary = binary.is_some_and(|binary| binary.is_true(&self.heap));
        let size = match value {
            Val::Str(text) => numbers::parse_float(text.as_str()),
            other => other.as_float(),
        };
        let size = size.ok_or_else(|| Fault::failed(format!("filesizeformat of {}", value.kind())))?;
        let base = if is_binary { 1024.0 } else { 1000.0 };
        if size < base {
            let unit = if size == 1.0 { "Byte" } else { "Bytes" };
            return Ok(Val::Str(Str::template(&format!("{} {unit}", size as i64))));
        }
        let (mut size, mut unit) = (size, "");
        for prefix in PREFIXES {
            if size < base && !unit.is_empty() {
                break;
            }
            (size, unit) = (size / base, prefix);
        }
        let unit = if is_binary { format!("{}i", unit.to_uppercase()) } else { unit.into() };
        Ok(Val::Str(Str::template(&format!("{size:.1} {unit}B"))))
    }

    /// Evaluate `round`: `2.46 | round(1)` is 2.5. The method is `common`, `ceil` or `floor`.
    fn rounded(&mut self, value: &Val, given: Arguments) -> Eval<Val> {
        let [precision, method] = given.bind("round", ["precision", "method"])?;
        let precision = self.int_arg("round", precision, 0)?;
        let method = self.str_arg("round", method)?;
        let x =
            value.as_float().ok_or_else(|| Fault::failed(format!("{} cannot be rounded", value.kind())))?;
        let scale = libm::pow(10.0, precision.clamp(-400, 400) as f64);
        let rounded = match method.as_ref().map_or("common", Str::as_str) {
            "common" if precision >= 0 && value.as_int().is_some() => return Ok(value.clone()),
            "common" if value.as_int().is_some() => {
                let rounded = numbers::truncated(numbers::round(x, precision));
                return rounded.map(Val::Int).ok_or_else(|| Fault::failed("a number beyond 64 bits"));
            }
            "common" => numbers::round(x, precision),
            "ceil" => libm::ceil(x * scale) / scale,
            "floor" => libm::floor(x * scale) / scale,
            _ => return Err(Fault::failed("round: the method is common, ceil or floor")),
        };
        Ok(Val::Float(rounded))
    }
}

/// Evaluate `abs`: `-3 | abs` is 3.
fn absolute(value: &Val) -> Eval<Val> {
    match (value, value.as_int()) {
        (Val::Float(x), _) => Ok(Val::Float(libm::fabs(*x))),
        (_, Some(n)) => n.checked_abs().map(Val::Int).ok_or_else(|| Fault::failed("a number beyond 64 bits")),
        _ => Err(Fault::failed(format!("{} has no absolute value", value.kind()))),
    }
}
