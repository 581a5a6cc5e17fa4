//! From values and tensors to a GGUF file.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use backstitch_core::DType;

use super::cursor::MAX_NAME;
use super::reader::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use super::tensor::Shape;
use super::value::{Value, encode_text};
use crate::error::{Error, Place};

const VERSION: u32 = 3;

/// Builds a GGUF file, version 3, little-endian.
///
/// Whatever goes in is checked at once, so that what comes out can be read by [`Gguf::parse`](super::Gguf::parse). Tensor data is
/// borrowed and written straight from where it lies.
///
/// # Example
/// ```
/// use backstitch_core::DType;
/// use backstitch_models::gguf::{Gguf, Writer};
///
/// let mut writer = Writer::new();
/// writer.set("general.architecture", "llama")?;
/// writer.set("llama.block_count", 2u32)?;
/// writer.tensor("output_norm.weight", &[4], DType::F32, &[0; 16])?;
/// let file = writer.to_bytes();
///
/// let gguf = Gguf::parse(&file)?;
/// assert_eq!(gguf.keys()?.u32("block_count")?, 2);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Writer<'a> {
    metadata: Vec<(Cow<'a, str>, Value<'a>)>,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Clone, Debug)]
struct Tensor<'a> {
    name: Cow<'a, str>,
    /// Outermost first.
    shape: Vec<usize>,
    dtype: DType,
    data: &'a [u8],
}

impl<'a> Writer<'a> {
    /// A file without keys and tensors.
    pub const fn new() -> Self {
        Self { metadata: Vec::new(), tensors: Vec::new() }
    }

    /// Sets a key, in the order of the calls; a key that is there gets the new value at its old place. Setting
    /// `general.alignment` to a `u32` aligns the data so; otherwise it is aligned to 32 bytes.
    ///
    /// # Errors
    /// [`Error::NameLength`] for an empty or overlong key, [`Error::Alignment`] and [`Error::WrongType`] for an alignment that
    /// is no power of two.
    pub fn set(
        &mut self,
        key: impl Into<Cow<'a, str>>,
        value: impl Into<Value<'a>>,
    ) -> Result<&mut Self, Error> {
        let (key, value) = (key.into(), value.into());
        check_name(&key, Place::Key, self.metadata.len())?;
        if key == ALIGNMENT_KEY {
            check_alignment(&value)?;
        }
        match self.metadata.iter_mut().find(|(known, _)| *known == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key, value)),
        }
        Ok(self)
    }

    /// Adds a tensor; `shape` is outermost first, `data` holds its rows one after the other.
    ///
    /// # Errors
    /// [`Error::NameLength`], [`Error::Duplicate`], [`Error::Rank`], [`Error::ZeroDim`], [`Error::PartialBlock`],
    /// [`Error::TensorTooLarge`], and [`Error::TensorBytes`] if `data` has another length than shape and type ask for. The offset in
    /// them is 0: nothing is in a file yet.
    pub fn tensor(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        shape: &[usize],
        dtype: DType,
        data: &'a [u8],
    ) -> Result<&mut Self, Error> {
        let name = name.into();
        check_name(&name, Place::Tensor, self.tensors.len())?;
        if self.tensors.iter().any(|tensor| tensor.name == name) {
            return Err(Error::Duplicate { place: Place::Tensor, name: (*name).into(), offset: 0 });
        }
        let found = u32::try_from(shape.len()).unwrap_or(u32::MAX);
        let checked =
            Shape::new(shape).ok_or_else(|| Error::Rank { tensor: (*name).into(), offset: 0, found })?;
        let wanted = checked.bytes(&name, dtype, 0)?;
        if data.len() != wanted {
            let (found, wanted) = (data.len() as u64, wanted as u64);
            return Err(Error::TensorBytes { tensor: (*name).into(), found, wanted });
        }
        self.tensors.push(Tensor { name, shape: shape.into(), dtype, data });
        Ok(self)
    }

    /// The whole file in memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = self.header();
        for tensor in &self.tensors {
            file.extend(tensor.data);
            file.resize(align(file.len(), self.alignment()), 0);
        }
        file
    }

    /// Writes the whole file.
    ///
    /// # Errors
    /// Those of `out`; a part of the file may have been written then.
    #[cfg(feature = "std")]
    pub fn write_to(&self, mut out: impl std::io::Write) -> std::io::Result<()> {
        out.write_all(&self.header())?;
        for tensor in &self.tensors {
            out.write_all(tensor.data)?;
            let padding = align(tensor.data.len(), self.alignment()) - tensor.data.len();
            std::io::copy(&mut std::io::Read::take(std::io::repeat(0), padding as u64), &mut out)?;
        }
        out.flush()
    }

    /// All that stands before the data, padded to where the data starts.
    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            encode_text(key, &mut out);
            out.extend(value.ty().id().to_le_bytes());
            value.encode(&mut out);
        }
        let mut position = 0;
        for tensor in &self.tensors {
            tensor.describe(position, &mut out);
            position += align(tensor.data.len(), self.alignment());
        }
        out.resize(align(out.len(), self.alignment()), 0);
        out
    }

    fn alignment(&self) -> usize {
        let stated = self.metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY);
        let alignment = match stated {
            Some((_, Value::U32(alignment))) => *alignment,
            _ => DEFAULT_ALIGNMENT,
        };
        alignment as usize
    }
}

impl Tensor<'_> {
    /// Appends the description of the tensor; its data lies at `position` of the data section.
    fn describe(&self, position: usize, out: &mut Vec<u8>) {
        encode_text(&self.name, out);
        out.extend((self.shape.len() as u32).to_le_bytes());
        for &dim in self.shape.iter().rev() {
            out.extend((dim as u64).to_le_bytes());
        }
        out.extend(self.dtype.gguf_id().to_le_bytes());
        out.extend((position as u64).to_le_bytes());
    }
}

/// `n` rounded up to a multiple of `alignment`, a power of two. The data of all tensors lies in memory at once, so
/// rounding its length up can overflow only for alignments near the size of the address space.
const fn align(n: usize, alignment: usize) -> usize {
    n.next_multiple_of(alignment)
}

fn check_name(name: &str, place: Place, number: usize) -> Result<(), Error> {
    if (1..=MAX_NAME).contains(&name.len()) {
        return Ok(());
    }
    let (found, limit) = (name.len() as u64, MAX_NAME as u64);
    Err(Error::NameLength { place, name: alloc::format!("#{number}").into(), offset: 0, found, limit })
}

fn check_alignment(value: &Value<'_>) -> Result<(), Error> {
    match *value {
        Value::U32(alignment) if alignment.is_power_of_two() => Ok(()),
        Value::U32(alignment) => Err(Error::Alignment { offset: 0, found: alignment.into() }),
        _ => {
            Err(Error::WrongType { key: ALIGNMENT_KEY.into(), offset: 0, found: value.ty(), wanted: "a u32" })
        }
    }
}
