//! safetensors files: a header in JSON, then the data of the tensors.
//!
//! Everything that the header says is checked against the length of the file before any of it is
//! believed: lengths do not overflow, shapes and types give the length of the data, and the data of
//! the tensors fill the rest of the file without overlaps and gaps, as the format demands.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::json::{self, Entries, shown};

/// Longest header that is read, as in other readers of the format.
const MAX_HEADER: u64 = 100_000_000;
/// Most dimensions of a tensor.
const MAX_RANK: usize = 8;

/// The type of a stored tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// IEEE double precision.
    F64,
    /// Floats of 8 bits, 4 of them for the exponent.
    F8E4M3,
    /// Bytes, among others of packed blocks.
    U8,
    /// Signed integers of 8 bits.
    I8,
    /// Signed integers of 32 bits.
    I32,
    /// Signed integers of 64 bits.
    I64,
    /// A byte that is 0 or 1.
    Bool,
}

impl StoredType {
    /// Names in the header, with the number of bytes of an element.
    const TABLE: [(Self, &'static str, usize); 10] = [
        (Self::F32, "F32", 4),
        (Self::F16, "F16", 2),
        (Self::BF16, "BF16", 2),
        (Self::F64, "F64", 8),
        (Self::F8E4M3, "F8_E4M3", 1),
        (Self::U8, "U8", 1),
        (Self::I8, "I8", 1),
        (Self::I32, "I32", 4),
        (Self::I64, "I64", 8),
        (Self::Bool, "BOOL", 1),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Return the number of bytes of an element.
    pub fn n_bytes(self) -> usize {
        Self::TABLE.iter().find(|row| row.0 == self).map_or(1, |row| row.2)
    }
}

/// A tensor of a safetensors file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name of the tensor.
    pub name: String,
    /// Type of its elements.
    pub ty: StoredType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Byte offset of the data in the file.
    pub start: u64,
}

/// Read the header of a safetensors file. The tensors come in the order of their data.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read, [`Error::Format`] if it is no safetensors file, and
/// [`Error::Tensor`] if the header lies about a tensor.
pub fn read_header(path: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    let mut file = File::open(path).map_err(failed)?;
    let n_bytes = file.metadata().map_err(failed)?.len();
    let mut length = [0; 8];
    let too_short = || format(path, format!("{n_bytes} bytes"), "a header");
    file.read_exact(&mut length).map_err(|_| too_short())?;
    let length = u64::from_le_bytes(length);
    let room = n_bytes.saturating_sub(8).min(MAX_HEADER);
    if length > room {
        let found = format!("a header of {length} bytes");
        return Err(format(path, found, &format!("at most {room} bytes in a file of {n_bytes}")));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).map_err(failed)?;
    if header.len() as u64 != length {
        return Err(too_short());
    }
    parse_header(path, &header, n_bytes)
}

/// Check the header of a file of `n_bytes` bytes; `path` is for errors.
///
/// # Errors
/// [`Error::Format`] and [`Error::Tensor`], as in [`read_header`].
pub fn parse_header(path: &Path, header: &[u8], n_bytes: u64) -> Result<Vec<Entry>, Error> {
    let data = header.len() as u64 + 8;
    let table: Entries<Value> = json::parse(path, header)?;
    let mut ends = HashMap::new();
    let mut entries = Vec::new();
    for (name, value) in table.0.into_iter().filter(|(name, _)| name != "__metadata__") {
        let (ty, shape, [start, end]) = entry(&name, &value)?;
        let wanted = shape.iter().try_fold(ty.n_bytes(), |n, &dim| n.checked_mul(dim));
        let found = end.checked_sub(start);
        if found.is_none() || wanted.map(|n| n as u64) != found {
            let wanted = wanted.map_or("a size that can be".into(), |n| format!("{n} bytes"));
            let found = format!("data from {start} to {end}");
            return Err(Error::Tensor { tensor: name, found, wanted });
        }
        ends.insert(name.clone(), end);
        entries.push(Entry { name, ty, shape, start });
    }
    // Tensors without elements lie between the others.
    entries.sort_by_key(|entry| (entry.start, ends.get(&entry.name).copied()));
    let mut position = 0;
    for entry in &mut entries {
        if entry.start != position {
            let found = format!("data at {}", entry.start);
            let wanted = format!("{position}, where the data of the tensor before it end");
            return Err(Error::Tensor { tensor: entry.name.clone(), found, wanted });
        }
        position = ends.get(&entry.name).copied().unwrap_or(position);
        entry.start = entry.start.saturating_add(data);
    }
    if data.checked_add(position) != Some(n_bytes) {
        let found = format!("{} bytes of data", n_bytes.saturating_sub(data));
        return Err(format(path, found, &format!("{position}, as the header says")));
    }
    Ok(entries)
}

/// Read type, shape and offsets of a tensor.
fn entry(name: &str, value: &Value) -> Result<(StoredType, Vec<usize>, [u64; 2]), Error> {
    let wrong = |field: &str, wanted: &str| Error::Tensor {
        tensor: name.into(),
        found: format!("{field} {}", value.get(field).map_or("nothing".into(), shown)),
        wanted: wanted.into(),
    };
    let ty = value.get("dtype").and_then(Value::as_str).and_then(StoredType::from_name);
    let ty =
        ty.ok_or_else(|| wrong("dtype", "one of F32, F16, BF16, F64, F8_E4M3, U8, I8, I32, I64, BOOL"))?;
    let numbers = |field: &str| -> Option<Vec<u64>> {
        value.get(field)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let shape = numbers("shape").and_then(|dims| dims.into_iter().map(|n| usize::try_from(n).ok()).collect());
    let shape: Vec<usize> = shape.ok_or_else(|| wrong("shape", "a list of dimensions"))?;
    if shape.len() > MAX_RANK {
        return Err(wrong("shape", "at most 8 dimensions"));
    }
    let offsets = numbers("data_offsets").and_then(|offsets| offsets.try_into().ok());
    Ok((ty, shape, offsets.ok_or_else(|| wrong("data_offsets", "a beginning and an end"))?))
}

fn format(path: &Path, found: String, wanted: &str) -> Error {
    Error::Format { path: path.into(), found, wanted: wanted.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str, n_data: u64) -> Result<Vec<Entry>, Error> {
        parse_header(Path::new("m.safetensors"), header.as_bytes(), header.len() as u64 + 8 + n_data)
    }

    #[test]
    fn tensors_come_in_the_order_of_their_data() {
        let header = r#"{"__metadata__": {"format": "pt"},
            "b": {"dtype": "F16", "shape": [2, 3], "data_offsets": [4, 16]},
            "none": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]},
            "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}"#;
        let entries = parse(header, 16).unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "none", "b"]);
        assert_eq!(entries[2].start, header.len() as u64 + 8 + 4);
        assert_eq!(entries[2].shape, [2, 3]);
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let entry = |text: &str| format!(r#"{{"a": {text}}}"#);
        let max = u64::MAX;
        let cases = [
            (entry(r#"{"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}"#), 4, "data from 0 to 4"),
            (entry(r#"{"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}"#), 4, "data from 4 to 0"),
            (entry(r#"{"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}"#), 8, "data at 4"),
            (entry(r#"{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}"#), 8, "8 bytes of data"),
            (entry(r#"{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}"#), 0, "0 bytes of data"),
            (entry(r#"{"dtype": "X", "shape": [1], "data_offsets": [0, 4]}"#), 4, "dtype \"X\""),
            (entry(r#"{"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}"#), 4, "shape [-1]"),
            (entry(r#"{"dtype": "F32", "shape": [1]}"#), 4, "data_offsets nothing"),
            (
                entry(&format!(r#"{{"dtype": "F32", "shape": [{max}, {max}], "data_offsets": [0, 4]}}"#)),
                4,
                "a size that can be",
            ),
            (
                r#"{"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                    "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}"#
                    .into(),
                3,
                "\"b\" has data at 1, wanted 2",
            ),
            (r#"{"a": 1, "a": 2}"#.into(), 0, "appears twice"),
            ("[]".into(), 0, "expected an object"),
        ];
        for (header, n_data, text) in cases {
            let error = parse(&header, n_data).unwrap_err().to_string();
            assert!(error.contains(text), "{error}\nwanted: {text}");
        }
    }

    #[test]
    fn a_header_longer_than_the_file_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
        let error = read_header(&path).unwrap_err().to_string();
        assert!(error.contains("a header of 18446744073709551615 bytes"), "{error}");
        std::fs::write(&path, [1, 2]).unwrap();
        assert!(read_header(&path).unwrap_err().to_string().contains("2 bytes"));
    }
}
