//! The reader: from bytes to a checked view.
//!
//! The order of checks is the order of the file: header, metadata, tensor descriptions, then the
//! ranges of tensor data, which depend on the alignment in the metadata. Each count is compared
//! with the bytes left in the file before anything is allocated for it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use backstitch_core::packed::ALIGN;

use super::cursor::{Cursor, Subject};
use super::reads::Reads;
use super::tensor::{MAX_RANK, PACKED_VERSION, Shape, TensorInfo, TensorType};
use super::value::{Array, Value, ValueType};
use crate::error::{Error, Region};

pub(super) const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: core::ops::RangeInclusive<u32> = 2..=3;
/// The alignment of tensor data unless `general.alignment` sets another; from the format document.
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
/// The largest alignment: a large page of 64-bit ARM. With more, padding would let a small file ask
/// for a large one.
const MAX_ALIGNMENT: u32 = 1 << 16;

/// The fewest bytes of a metadata entry: length of the key, one byte of it, type, and a value of
/// one byte.
const MIN_ENTRY: usize = 8 + 1 + 4 + 1;
/// The fewest bytes of a tensor description: length of the name, one byte of it, rank, one
/// dimension, type, position.
const MIN_TENSOR: usize = 8 + 1 + 4 + 8 + 4 + 8;
/// The most metadata entries of a file; real ones have a few dozen. An entry in memory takes
/// several times the fewest bytes of one in the file, so the file's length alone would be a loose
/// bound.
pub(super) const MAX_ENTRIES: usize = 1 << 16;
/// The most tensors of a file; real ones have up to some ten thousand.
pub(super) const MAX_TENSORS: usize = 1 << 18;
/// The fewest bytes of a string: its length.
const MIN_TEXT: usize = 8;

/// A checked view of a GGUF file, or of all shards of a model.
///
/// [`Gguf::parse`] has validated everything in it, so its methods cannot fail on damaged bytes. It
/// borrows the bytes of the file and cannot be changed; a [`Writer`](super::Writer) makes another
/// file.
///
/// # Example
/// ```
/// use backstitch_models::gguf::Gguf;
///
/// let gguf = Gguf::parse(backstitch_demo::GGUF)?;
/// let embedding = gguf.tensor("token_embd.weight").unwrap();
/// assert_eq!(gguf.tensor_data(&embedding).len(), embedding.n_bytes());
/// let tokens: &[&str] = gguf.required("tokenizer.ggml.tokens")?;
/// assert_eq!(tokens.len(), embedding.shape()[0]);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gguf<'a> {
    version: u32,
    entries: Vec<KeyValue<'a>>,
    tensors: Vec<TensorInfo<'a>>,
    by_key: Names<'a>,
    by_tensor: Names<'a>,
    read_keys: Reads,
    read_tensors: Reads,
}

/// A metadata entry.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Gguf, Value};
///
/// let gguf = Gguf::parse(backstitch_demo::GGUF)?;
/// let entry = gguf.entry("general.architecture").unwrap();
/// assert_eq!(entry.value, Value::Str("falcon-h1"));
/// assert_eq!(entry.read::<&str>()?, "falcon-h1");
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: Value<'a>,
    /// The byte offset of the entry in the file.
    pub offset: u64,
}

impl<'a> Gguf<'a> {
    /// Read one file, which is shard `shard` of its model, without looking at other shards.
    pub(super) fn parse_shard(bytes: &'a [u8], shard: usize) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes);
        let version = read_version(&mut cursor)?;
        cursor.enter(Region::Tensor, Subject::None);
        let n_tensors = cursor.count_up_to(MIN_TENSOR, MAX_TENSORS)?;
        cursor.enter(Region::Key, Subject::None);
        let n_entries = cursor.count_up_to(MIN_ENTRY, MAX_ENTRIES)?;
        let entries = read_entries(&mut cursor, n_entries)?;
        let by_key = index(&entries, |entry| entry.key, KeyValue::duplicate)?;
        let mut gguf = Self {
            version,
            read_keys: Reads::new(entries.len())?,
            entries,
            tensors: Vec::new(),
            by_key,
            by_tensor: Box::default(),
            read_tensors: Reads::default(),
        };
        let alignment = alignment(gguf.entry(ALIGNMENT_KEY))?;
        let described = read_tensors(&mut cursor, n_tensors)?;
        let data =
            Data { bytes, base: cursor.offset().checked_next_multiple_of(alignment), alignment, shard };
        gguf.tensors = list("tensors", described.len())?;
        for tensor in described {
            gguf.tensors.push(data.locate(tensor)?);
        }
        gguf.by_tensor = index(&gguf.tensors, |tensor| tensor.name, |tensor| tensor.duplicate())?;
        gguf.read_tensors = Reads::new(gguf.tensors.len())?;
        check_overlaps(&gguf.tensors)?;
        Ok(gguf)
    }

    /// Add the tensors of another shard, which are not found by name before
    /// [`Gguf::index_tensors`].
    pub(super) fn add_tensors(&mut self, shard: Self) {
        self.tensors.extend(shard.tensors);
    }

    /// Index the tensors of all shards by name. `in_shard` wraps the error of a name that occurs
    /// twice.
    pub(super) fn index_tensors(&mut self, in_shard: impl Fn(usize, Error) -> Error) -> Result<(), Error> {
        let duplicate = |tensor: &TensorInfo<'_>| in_shard(tensor.shard, tensor.duplicate());
        self.by_tensor = index(&self.tensors, |tensor| tensor.name, duplicate)?;
        self.read_tensors = Reads::new(self.tensors.len())?;
        Ok(())
    }

    /// Return the format version, 2 or 3. Of several shards it is that of the first.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Return the metadata in the order of the file. Of several shards it is that of the first.
    pub fn metadata(&self) -> &[KeyValue<'a>] {
        &self.entries
    }

    /// Return the tensors in the order of the file, shard by shard.
    pub fn tensors(&self) -> &[TensorInfo<'a>] {
        &self.tensors
    }

    /// Return the tensor of that name, in logarithmic time.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo<'a>> {
        let i = find(&self.by_tensor, name)?;
        self.read_tensors.mark(i);
        self.tensors.get(i).copied()
    }

    /// Return the data of a tensor: its rows (the innermost dimension) one after the other, each a
    /// whole number of blocks.
    pub const fn tensor_data(&self, tensor: &TensorInfo<'a>) -> &'a [u8] {
        tensor.data
    }

    /// Return the metadata entry of that key, in logarithmic time.
    pub fn entry(&self, key: &str) -> Option<&KeyValue<'a>> {
        let i = find(&self.by_key, key)?;
        self.read_keys.mark(i);
        self.entries.get(i)
    }

    /// Return the tensors that nobody has looked up by name, in the order of the file.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Model, arch, gguf::Gguf};
    ///
    /// let gguf = Gguf::parse(backstitch_demo::GGUF)?;
    /// assert_eq!(gguf.unread_tensors().count(), gguf.tensors().len());
    /// Model::describe(&gguf, arch::ALL)?;
    /// assert_eq!(gguf.unread_tensors().count(), 0);
    /// # Ok::<(), backstitch_models::Error>(())
    /// ```
    pub fn unread_tensors(&self) -> impl Iterator<Item = &TensorInfo<'a>> {
        self.read_tensors.unmarked(&self.tensors)
    }

    /// Return the metadata entries that nobody has looked up by key, in the order of the file.
    pub fn unread_entries(&self) -> impl Iterator<Item = &KeyValue<'a>> {
        self.read_keys.unmarked(&self.entries)
    }

    /// Forget what was looked up.
    pub(crate) fn forget_reads(&self) {
        self.read_keys.forget();
        self.read_tensors.forget();
    }
}

impl KeyValue<'_> {
    fn duplicate(&self) -> Error {
        Error::Duplicate { region: Region::Key, name: self.key.into(), offset: self.offset }
    }
}

/// An index of names: sorted, each with the index of the item that has it.
type Names<'a> = Box<[(&'a str, usize)]>;

/// Build the index of the names of `items`. The error of `duplicate` refuses a name that occurs
/// twice.
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

/// Return an empty list with capacity for `n` entries.
pub(super) fn list<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let n_bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { what, n_bytes })?;
    Ok(list)
}

/// Return the index of the item that is called `name`.
fn find(names: &Names<'_>, name: &str) -> Option<usize> {
    let found = names.binary_search_by_key(&name, |(name, _)| name).ok()?;
    names.get(found).map(|(_, i)| *i)
}

/// Read the magic and the version.
fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let found = cursor.magic()?;
    if found != MAGIC {
        return Err(Error::Magic { found });
    }
    let version = cursor.u32()?;
    if VERSIONS.contains(&version) {
        return Ok(version);
    }
    // Versions are small numbers, so a big-endian file shows its version in the high bytes.
    if version & 0xffff == 0 && version != 0 {
        return Err(Error::BigEndian { version: version.swap_bytes() });
    }
    Err(Error::Version { found: version })
}

fn read_entries<'a>(cursor: &mut Cursor<'a>, count: usize) -> Result<Vec<KeyValue<'a>>, Error> {
    let mut entries = list("metadata", count)?;
    for i in 0..count as u64 {
        cursor.enter(Region::Key, Subject::Number(i));
        let offset = cursor.offset();
        let key = cursor.name_text()?;
        cursor.enter(Region::Value, Subject::Name(key));
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

/// Read a value of fixed size.
fn read_fixed<'a>(cursor: &mut Cursor<'a>, key: &str, ty: ValueType) -> Result<Value<'a>, Error> {
    let offset = cursor.offset();
    debug_assert!(ty.bytes().is_some(), "a value of fixed size");
    let bytes = cursor.take(ty.bytes().unwrap_or(0))?;
    // All bytes of the value are there, so only a boolean can be invalid.
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

/// Read an array of strings. Each is checked here, once.
fn read_texts<'a>(cursor: &mut Cursor<'a>) -> Result<Array<'a>, Error> {
    let count = cursor.count(MIN_TEXT)?;
    let mut texts = list("an array of texts", count)?;
    for _ in 0..count {
        texts.push(cursor.text()?);
    }
    Ok(Array::of_texts(texts))
}

/// Read an array of values of fixed size as a slice of the file. Only booleans can be invalid.
fn read_fixed_array<'a>(cursor: &mut Cursor<'a>, key: &str, ty: ValueType) -> Result<Array<'a>, Error> {
    debug_assert!(ty.bytes().is_some(), "values of fixed size");
    let size = ty.bytes().unwrap_or(1);
    let count = cursor.count(size)?;
    let offset = cursor.offset();
    // `count` elements fit the bytes left, so the product does not overflow.
    let bytes = cursor.take(count * size)?;
    let wrong = (0u64..).zip(bytes).find(|(_, byte)| ty == ValueType::Bool && **byte > 1);
    match wrong {
        Some((i, &found)) => Err(Error::Bool { key: key.into(), offset: offset + i, found }),
        None => Ok(Array::fixed(ty, bytes)),
    }
}

/// Return true if tensor data may be aligned so.
pub(super) fn is_alignment(alignment: u32) -> bool {
    alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT
}

/// Return the alignment of tensor data.
fn alignment(entry: Option<&KeyValue<'_>>) -> Result<u64, Error> {
    let alignment: u32 = entry.map_or(Ok(DEFAULT_ALIGNMENT), KeyValue::read)?;
    if is_alignment(alignment) {
        return Ok(alignment.into());
    }
    let offset = entry.map_or(0, |entry| entry.offset);
    Err(Error::Alignment { offset, found: alignment.into() })
}

/// A tensor description, read before the start of the data section is known.
struct Described<'a> {
    name: &'a str,
    shape: Shape,
    ty: TensorType,
    n_bytes: usize,
    offset: u64,
    /// The start of the data, from the start of the data section, and the byte offset of that
    /// field.
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
    cursor.enter(Region::Tensor, Subject::Number(number));
    let offset = cursor.offset();
    let name = cursor.name_text()?;
    cursor.enter(Region::Tensor, Subject::Name(name));
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
    /// The byte offset of its start; `None` if that overflows.
    base: Option<u64>,
    alignment: u64,
    shard: usize,
}

impl<'a> Data<'a> {
    /// Find the data of a tensor and check its alignment and range.
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
            region: Region::Data,
            name: name.into(),
            offset: start,
            need: n_bytes as u64,
            have: (self.bytes.len() as u64).saturating_sub(start),
        })?;
        if ty.packed.is_some() && !start.is_multiple_of(ALIGN) {
            let (found, wanted) = (start as u64, ALIGN as u64);
            return Err(Error::Misaligned { tensor: name.into(), offset: position_at, found, wanted });
        }
        Ok(TensorInfo { name, shape, ty, shard: self.shard, start, data, described_at: offset })
    }

    fn slice(&self, start: u64, n_bytes: usize) -> Option<(usize, &'a [u8])> {
        let start = usize::try_from(start).ok()?;
        let data = self.bytes.get(start..)?.get(..n_bytes)?;
        Some((start, data))
    }
}

/// Refuse tensors of one file whose data share bytes.
fn check_overlaps(tensors: &[TensorInfo<'_>]) -> Result<(), Error> {
    let mut ranges = list("ranges of tensors", tensors.len())?;
    ranges.extend(tensors.iter().map(|tensor| (tensor.range(), tensor.name)));
    ranges.sort_unstable_by_key(|(range, _)| (range.start, range.end));
    for pair in ranges.windows(2) {
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
