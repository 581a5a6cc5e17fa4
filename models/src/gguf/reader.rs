//! From bytes to a checked view.
//!
//! The order of checks is the order of the file: header, metadata, tensor descriptions, then (knowing the alignment) where
//! the data lies. Each count is held against the room left in the file before anything is allocated for it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use backstitch_core::packed::ALIGN;

use super::cursor::{Cursor, Subject};
use super::split;
use super::tensor::{MAX_RANK, PACKED_VERSION, Shape, TensorInfo, TensorType};
use super::value::{Array, Value, ValueType};
use crate::error::{Error, Place};

pub(super) const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: core::ops::RangeInclusive<u32> = 2..=3;
/// Where tensor data starts unless `general.alignment` says otherwise; from the format document.
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// The fewest bytes of a metadata entry: length of the key, one byte of it, type, a value of one byte.
const MIN_ENTRY: usize = 8 + 1 + 4 + 1;
/// The fewest bytes of a tensor description: length of the name, one byte of it, rank, one dimension, type, position.
const MIN_TENSOR: usize = 8 + 1 + 4 + 8 + 4 + 8;
/// The most metadata entries of a file; real ones have a few dozen. What is kept of an entry takes several times its least bytes.
const MAX_ENTRIES: usize = 1 << 16;
/// The most tensors of a file; real ones have up to some ten thousand.
const MAX_TENSORS: usize = 1 << 18;
/// The fewest bytes of a text: its length.
const MIN_TEXT: usize = 8;

/// A checked view of a GGUF file, or of all the files of a split model.
///
/// Everything in it was validated by [`Gguf::parse`]; it borrows the bytes and cannot be changed.
#[derive(Clone, Debug)]
pub struct Gguf<'a> {
    version: u32,
    entries: Vec<KeyValue<'a>>,
    tensors: Vec<TensorInfo<'a>>,
    by_key: Names<'a>,
    by_tensor: Names<'a>,
}

/// A metadata entry.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue<'a> {
    /// The key.
    pub key: &'a str,
    /// Its value.
    pub value: Value<'a>,
    /// Where the entry starts in the file.
    pub offset: u64,
}

impl<'a> Gguf<'a> {
    /// Reads the header of a file and checks all of it, in time linear in its size (times the logarithm of the number of keys
    /// and tensors). Tensor data is not touched, only its place is checked.
    ///
    /// # Errors
    /// A variant of [`Error`] that names the key or tensor, the offset, what was found and what was wanted, for the first thing that is
    /// wrong; [`Error::Parts`] if the file is one part of a split model.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::parse_parts(&[bytes])
    }

    /// Reads all the files of a split model, in order, and presents them as one: metadata of the first, tensors of all.
    ///
    /// # Errors
    /// As [`Gguf::parse`], wrapped in [`Error::Part`] if there are several parts; [`Error::Split`] and [`Error::Parts`] if they
    /// do not belong together.
    pub fn parse_parts(parts: &[&'a [u8]]) -> Result<Self, Error> {
        let (first, rest) = parts.split_first().ok_or(Error::Parts { found: 0, wanted: 1 })?;
        let in_part = |part, error: Error| match rest {
            [] => error,
            _ => Error::Part { part, source: Box::new(error) },
        };
        let parse = |part, bytes| {
            let gguf = Self::parse_part(bytes, part)?;
            split::check_part(&gguf, part, parts.len())?;
            Ok(gguf)
        };
        let mut gguf = parse(0, first).map_err(|error| in_part(0, error))?;
        for (part, bytes) in (1..).zip(rest) {
            gguf.tensors.extend(parse(part, bytes).map_err(|error| in_part(part, error))?.tensors);
        }
        if !rest.is_empty() {
            split::check_total(&gguf)?;
            gguf.by_tensor = index(
                &gguf.tensors,
                |tensor| tensor.name,
                |tensor| in_part(tensor.part, tensor.duplicate()),
            )?;
        }
        Ok(gguf)
    }

    fn parse_part(bytes: &'a [u8], part: usize) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes);
        let version = read_version(&mut cursor)?;
        cursor.enter(Place::Tensor, Subject::None);
        let n_tensors = cursor.count_up_to(MIN_TENSOR, MAX_TENSORS)?;
        cursor.enter(Place::Key, Subject::None);
        let n_entries = cursor.count_up_to(MIN_ENTRY, MAX_ENTRIES)?;
        let entries = read_entries(&mut cursor, n_entries)?;
        let by_key = index(&entries, |entry| entry.key, KeyValue::duplicate)?;
        let mut gguf = Self { version, entries, tensors: Vec::new(), by_key, by_tensor: Box::default() };
        let alignment = alignment(gguf.entry(ALIGNMENT_KEY))?;
        let described = read_tensors(&mut cursor, n_tensors)?;
        let data = Data { bytes, base: cursor.offset().checked_next_multiple_of(alignment), alignment, part };
        gguf.tensors = list("tensors", described.len())?;
        for tensor in described {
            gguf.tensors.push(data.locate(tensor)?);
        }
        gguf.by_tensor = index(&gguf.tensors, |tensor| tensor.name, |tensor| tensor.duplicate())?;
        check_overlaps(&gguf.tensors)?;
        Ok(gguf)
    }

    /// The format version, 2 or 3 (of the first file, if there are several).
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The metadata in the order of the file (of the first file, if there are several).
    pub fn metadata(&self) -> &[KeyValue<'a>] {
        &self.entries
    }

    /// The tensors in the order of the file or files.
    pub fn tensors(&self) -> &[TensorInfo<'a>] {
        &self.tensors
    }

    /// The tensor of that name, in logarithmic time.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo<'a>> {
        find(&self.by_tensor, name).and_then(|i| self.tensors.get(i)).copied()
    }

    /// The data of a tensor: rows of the innermost dimension, one after the other, each of whole blocks.
    pub const fn tensor_data(&self, tensor: &TensorInfo<'a>) -> &'a [u8] {
        tensor.data
    }

    /// The metadata entry of that key, in logarithmic time.
    pub fn entry(&self, key: &str) -> Option<&KeyValue<'a>> {
        find(&self.by_key, key).and_then(|i| self.entries.get(i))
    }
}

impl KeyValue<'_> {
    fn duplicate(&self) -> Error {
        Error::Duplicate { place: Place::Key, name: self.key.into(), offset: self.offset }
    }
}

/// Names in order, each with the place of what it names.
type Names<'a> = Box<[(&'a str, usize)]>;

/// Sorts the names of `items`, and refuses a name that occurs twice.
fn index<'a, T>(
    items: &[T],
    name: impl Fn(&T) -> &'a str,
    duplicate: impl Fn(&T) -> Error,
) -> Result<Names<'a>, Error> {
    let mut names = list("names", items.len())?;
    names.extend(items.iter().enumerate().map(|(i, item)| (name(item), i)));
    let mut names: Names<'a> = names.into();
    names.sort_unstable();
    for pair in names.windows(2) {
        if let [(first, _), (second, i)] = pair
            && first == second
            && let Some(item) = items.get(*i)
        {
            return Err(duplicate(item));
        }
    }
    Ok(names)
}

/// An empty list with room for `n` entries.
fn list<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let n_bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { what, n_bytes })?;
    Ok(list)
}

/// The place of what `name` names.
fn find(names: &Names<'_>, name: &str) -> Option<usize> {
    let found = names.binary_search_by_key(&name, |(name, _)| name).ok()?;
    names.get(found).map(|(_, i)| *i)
}

/// Reads magic and version.
fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let found = cursor.magic()?;
    if found != MAGIC {
        return Err(Error::Magic { found });
    }
    let version = cursor.u32()?;
    if VERSIONS.contains(&version) {
        return Ok(version);
    }
    // Versions are small numbers, so a big-endian file shows its version in the high byte.
    if version & 0xffff == 0 && version != 0 {
        return Err(Error::BigEndian { version: version.swap_bytes() });
    }
    Err(Error::Version { found: version })
}

fn read_entries<'a>(cursor: &mut Cursor<'a>, count: usize) -> Result<Vec<KeyValue<'a>>, Error> {
    let mut entries = list("metadata", count)?;
    for i in 0..count as u64 {
        cursor.enter(Place::Key, Subject::Number(i));
        let offset = cursor.offset();
        let key = cursor.name_text()?;
        cursor.enter(Place::Value, Subject::Name(key));
        let ty = read_type(cursor, key)?;
        let value = match ty {
            ValueType::Str => Value::Str(cursor.text()?),
            ValueType::Array => Value::Array(read_array(cursor, key)?),
            fixed => read_fixed(cursor, key, fixed)?,
        };
        entries.push(KeyValue { key, value, offset });
    }
    Ok(entries)
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, Error> {
    let offset = cursor.offset();
    let found = cursor.u32()?;
    ValueType::from_id(found).ok_or_else(|| Error::ValueType { key: key.into(), offset, found })
}

/// Reads a value of fixed size.
fn read_fixed<'a>(cursor: &mut Cursor<'a>, key: &str, ty: ValueType) -> Result<Value<'a>, Error> {
    let offset = cursor.offset();
    let bytes = cursor.take(ty.bytes().unwrap_or(0))?;
    // The bytes are all there, so only a boolean can be wrong.
    let found = bytes.first().copied().unwrap_or(0);
    Value::decode(ty, bytes).ok_or_else(|| Error::Bool { key: key.into(), offset, found })
}

fn read_array<'a>(cursor: &mut Cursor<'a>, key: &str) -> Result<Array<'a>, Error> {
    let offset = cursor.offset();
    let ty = read_type(cursor, key)?;
    match ty {
        ValueType::Array => Err(Error::NestedArray { key: key.into(), offset }),
        ValueType::Str => read_texts(cursor),
        fixed => read_fixed_array(cursor, key, fixed),
    }
}

/// Reads the elements of an array of texts, each checked once, here.
fn read_texts<'a>(cursor: &mut Cursor<'a>) -> Result<Array<'a>, Error> {
    let count = cursor.count(MIN_TEXT)?;
    let mut texts = list("an array of texts", count)?;
    for _ in 0..count {
        texts.push(cursor.text()?);
    }
    Ok(Array::of_texts(texts))
}

/// Takes the elements of an array of values of fixed size as they are; only booleans can be wrong.
fn read_fixed_array<'a>(cursor: &mut Cursor<'a>, key: &str, ty: ValueType) -> Result<Array<'a>, Error> {
    let size = ty.bytes().unwrap_or(1);
    let count = cursor.count(size)?;
    let offset = cursor.offset();
    // `count` elements fit what is left, so the product does not overflow.
    let bytes = cursor.take(count * size)?;
    let wrong = (0u64..).zip(bytes).find(|(_, byte)| ty == ValueType::Bool && **byte > 1);
    match wrong {
        Some((i, &found)) => Err(Error::Bool { key: key.into(), offset: offset + i, found }),
        None => Ok(Array::fixed(ty, bytes)),
    }
}

/// The alignment of tensor data that the file states.
fn alignment(entry: Option<&KeyValue<'_>>) -> Result<u64, Error> {
    let alignment: u32 = entry.map_or(Ok(DEFAULT_ALIGNMENT), KeyValue::read)?;
    if alignment.is_power_of_two() {
        return Ok(alignment.into());
    }
    let offset = entry.map_or(0, |entry| entry.offset);
    Err(Error::Alignment { offset, found: alignment.into() })
}

/// A tensor description, before it is known where data starts.
struct Described<'a> {
    name: &'a str,
    shape: Shape,
    ty: TensorType,
    n_bytes: usize,
    offset: u64,
    /// Where the data lies, from the start of the data section, and where that is stored.
    position: u64,
    position_at: u64,
}

fn read_tensors<'a>(cursor: &mut Cursor<'a>, count: usize) -> Result<Vec<Described<'a>>, Error> {
    let mut described = list("descriptions of tensors", count)?;
    for i in 0..count as u64 {
        described.push(read_tensor(cursor, i)?);
    }
    Ok(described)
}

fn read_tensor<'a>(cursor: &mut Cursor<'a>, number: u64) -> Result<Described<'a>, Error> {
    cursor.enter(Place::Tensor, Subject::Number(number));
    let offset = cursor.offset();
    let name = cursor.name_text()?;
    cursor.enter(Place::Tensor, Subject::Name(name));
    let shape = read_shape(cursor, name)?;
    let type_at = cursor.offset();
    let found = cursor.u32()?;
    let ty = TensorType::from_id(found).ok_or_else(|| {
        let (tensor, offset) = (name.into(), type_at);
        match TensorType::packed_version(found) {
            Some(version) if version != PACKED_VERSION => {
                Error::PackedVersion { tensor, offset, found: version, wanted: PACKED_VERSION }
            }
            _ => Error::TensorType { tensor, offset, found },
        }
    })?;
    let n_bytes = shape.bytes(name, ty, offset)?;
    let position_at = cursor.offset();
    Ok(Described { name, shape, ty, n_bytes, offset, position: cursor.u64()?, position_at })
}

fn read_shape(cursor: &mut Cursor<'_>, name: &str) -> Result<Shape, Error> {
    let offset = cursor.offset();
    let found = cursor.u32()?;
    let rank = || Error::Rank { tensor: name.into(), offset, found };
    let n_dims = usize::try_from(found).map_err(|_| rank())?;
    let mut dims = [0; MAX_RANK];
    let dims = dims.get_mut(..n_dims).ok_or_else(rank)?;
    for dim in dims.iter_mut().rev() {
        let offset = cursor.offset();
        *dim = usize::try_from(cursor.u64()?)
            .map_err(|_| Error::TensorTooLarge { tensor: name.into(), offset })?;
    }
    Shape::new(dims).ok_or_else(rank)
}

/// The data section of a file.
struct Data<'a> {
    bytes: &'a [u8],
    /// Where it starts; none if that overflows.
    base: Option<u64>,
    alignment: u64,
    part: usize,
}

impl<'a> Data<'a> {
    /// Finds the data of a tensor.
    fn locate(&self, tensor: Described<'a>) -> Result<TensorInfo<'a>, Error> {
        let Described { name, shape, ty, n_bytes, offset, position, position_at } = tensor;
        if !position.is_multiple_of(self.alignment) {
            return Err(Error::Misaligned {
                tensor: name.into(),
                offset: position_at,
                found: position,
                wanted: self.alignment,
            });
        }
        let start = self.base.and_then(|base| base.checked_add(position));
        let start =
            start.ok_or_else(|| Error::TensorTooLarge { tensor: name.into(), offset: position_at })?;
        let (start, data) = self.slice(start, n_bytes).ok_or_else(|| Error::Truncated {
            place: Place::Data,
            name: name.into(),
            offset: start,
            need: n_bytes as u64,
            have: (self.bytes.len() as u64).saturating_sub(start),
        })?;
        if ty.packed.is_some() && !start.is_multiple_of(ALIGN) {
            let (found, wanted) = (start as u64, ALIGN as u64);
            return Err(Error::Misaligned { tensor: name.into(), offset: position_at, found, wanted });
        }
        Ok(TensorInfo { name, shape, ty, part: self.part, start, data, described_at: offset })
    }

    fn slice(&self, start: u64, n_bytes: usize) -> Option<(usize, &'a [u8])> {
        let start = usize::try_from(start).ok()?;
        let data = self.bytes.get(start..)?.get(..n_bytes)?;
        Some((start, data))
    }
}

/// Refuses tensors of one file that share bytes.
fn check_overlaps(tensors: &[TensorInfo<'_>]) -> Result<(), Error> {
    let mut places = list("places of tensors", tensors.len())?;
    places.extend(tensors.iter().map(|tensor| (tensor.range(), tensor.name)));
    places.sort_unstable_by_key(|(range, _)| (range.start, range.end));
    for pair in places.windows(2) {
        if let [(first, other), (second, tensor)] = pair
            && second.start < first.end
        {
            return Err(Error::Overlap {
                tensor: (*tensor).into(),
                other: (*other).into(),
                offset: second.start as u64,
            });
        }
    }
    Ok(())
}
