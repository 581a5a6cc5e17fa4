//! The writer: from values and tensors to a GGUF file.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use backstitch_core::DType;
use backstitch_core::packed::ALIGN;

use super::cursor::MAX_NAME;
use super::reader::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, KeyValue, MAGIC, MAX_ENTRIES, MAX_TENSORS, is_alignment,
};
use super::tensor::{Shape, TensorType};
use super::value::{Value, encode_text};
use crate::error::{Error, Region};

const VERSION: u32 = 3;

/// A builder of GGUF files, version 3, little-endian.
///
/// Keys and tensors are checked when they are added, so [`Gguf::parse`](super::Gguf::parse) can
/// read every file that is built, unless its `split.*` keys make it a part of others. Tensor data
/// is borrowed and written from where it lies in memory.
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
    /// The index in `metadata` of each key.
    keys: BTreeMap<Cow<'a, str>, usize>,
    /// The names of the tensors.
    names: BTreeSet<Cow<'a, str>>,
    /// The alignment of tensor data, if a key states it.
    alignment: Option<u32>,
}

#[derive(Clone, Debug)]
struct Tensor<'a> {
    name: Cow<'a, str>,
    /// Dimensions, outermost first.
    shape: Vec<usize>,
    ty: TensorType,
    n_bytes: usize,
    /// The data; `None` if [`Writer::write_with`] asks for them.
    data: Option<&'a [u8]>,
}

impl<'a> Writer<'a> {
    /// Start a file without keys and tensors.
    pub const fn new() -> Self {
        Self {
            metadata: Vec::new(),
            tensors: Vec::new(),
            keys: BTreeMap::new(),
            names: BTreeSet::new(),
            alignment: None,
        }
    }

    /// Set a key. Keys are written in the order in which they were first set; a key that is there
    /// gets the new value at its old position.
    ///
    /// `general.alignment`, which is written as a `u32`, sets the alignment of tensor data, else 32
    /// bytes.
    ///
    /// # Errors
    /// [`Error::NameLength`] for a key that is empty or too long, [`Error::TooMany`] for one more
    /// than a file can have. [`Error::Alignment`], [`Error::WrongType`] or [`Error::OutOfRange`]
    /// for an alignment that is not a power of two up to 65,536.
    pub fn set(
        &mut self,
        key: impl Into<Cow<'a, str>>,
        value: impl Into<Value<'a>>,
    ) -> Result<&mut Self, Error> {
        let (key, mut value) = (key.into(), value.into());
        let n = self.metadata.len();
        check_name(&key, Region::Key, n)?;
        let stated = (key == ALIGNMENT_KEY).then(|| alignment_of(&value)).transpose()?;
        value = stated.map_or(value, Value::U32);
        match self.keys.get(&key).and_then(|&at| self.metadata.get_mut(at)) {
            Some(entry) => entry.1 = value,
            None => {
                check_count(n, MAX_ENTRIES, Region::Key)?;
                self.keys.insert(key.clone(), n);
                self.metadata.push((key, value));
            }
        }
        self.alignment = stated.or(self.alignment);
        Ok(self)
    }

    /// Add a tensor. `shape` is outermost first; `data` holds its rows one after the other.
    ///
    /// # Errors
    /// [`Error::NameLength`] for a name that is empty or too long, [`Error::Duplicate`] for one
    /// that is taken, [`Error::TooMany`] for one more than a file can have. [`Error::Rank`],
    /// [`Error::ZeroDim`], [`Error::PartialBlock`] or [`Error::TensorTooLarge`] for a shape that no
    /// tensor can have. [`Error::TensorBytes`] if `data` has another length than shape and type ask
    /// for. The offset in them is 0, because nothing is in a file yet.
    pub fn tensor(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        shape: &[usize],
        dtype: DType,
        data: &'a [u8],
    ) -> Result<&mut Self, Error> {
        self.add(name.into(), shape, TensorType::rows(dtype), Some(data))
    }

    /// Add a tensor whose data come later, in [`Writer::write_with`]: a file larger than the memory
    /// can be written. Other methods write zeros for it.
    ///
    /// # Errors
    /// Those of [`Writer::tensor`].
    pub fn planned_tensor(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        shape: &[usize],
        dtype: DType,
    ) -> Result<&mut Self, Error> {
        self.add(name.into(), shape, TensorType::rows(dtype), None)
    }

    /// Add a tensor whose matrices (the last two dimensions) are packed into panels, and raise the
    /// alignment to what panels need.
    ///
    /// # Errors
    /// Those of [`Writer::tensor`], and [`Error::NotWeights`] for a type that cannot be packed.
    pub fn packed_tensor(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        shape: &[usize],
        dtype: DType,
        data: &'a [u8],
    ) -> Result<&mut Self, Error> {
        let name = name.into();
        let ty = TensorType::panels(dtype);
        let ty = ty.ok_or_else(|| Error::NotWeights { tensor: (*name).into(), found: dtype })?;
        if self.alignment() < ALIGN {
            self.set(ALIGNMENT_KEY, ALIGN as u32)?;
        }
        self.add(name, shape, ty, Some(data))
    }

    fn add(
        &mut self,
        name: Cow<'a, str>,
        shape: &[usize],
        ty: TensorType,
        data: Option<&'a [u8]>,
    ) -> Result<&mut Self, Error> {
        check_name(&name, Region::Tensor, self.tensors.len())?;
        check_count(self.tensors.len(), MAX_TENSORS, Region::Tensor)?;
        if self.names.contains(&name) {
            return Err(Error::Duplicate { region: Region::Tensor, name: (*name).into(), offset: 0 });
        }
        let found = u32::try_from(shape.len()).unwrap_or(u32::MAX);
        let checked =
            Shape::new(shape).ok_or_else(|| Error::Rank { tensor: (*name).into(), offset: 0, found })?;
        let n_bytes = checked.bytes(&name, ty, 0)?;
        if let Some(data) = data.filter(|data| data.len() != n_bytes) {
            let (found, wanted) = (data.len() as u64, n_bytes as u64);
            return Err(Error::TensorBytes { tensor: (*name).into(), found, wanted });
        }
        self.names.insert(name.clone());
        self.tensors.push(Tensor { name, shape: shape.into(), ty, n_bytes, data });
        Ok(self)
    }

    /// Return the whole file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = self.header();
        for tensor in &self.tensors {
            let data = tensor.data.unwrap_or_default();
            file.extend(data);
            file.resize(file.len() + tensor.n_bytes - data.len(), 0);
            file.resize(align(file.len(), self.alignment()), 0);
        }
        file
    }

    /// Write the whole file.
    ///
    /// # Errors
    /// Those of `out`. The beginning of the file may have been written then.
    #[cfg(feature = "std")]
    pub fn write_to(&self, out: impl std::io::Write) -> std::io::Result<()> {
        self.write_with(out, |_, n_bytes, out| zeros(n_bytes, out))
    }

    /// Write the whole file. `fill` is called for each planned tensor, in the order in which they
    /// were added, with its number among them and its number of bytes, which it has to write.
    ///
    /// # Errors
    /// Those of `out` and `fill`, and [`std::io::ErrorKind::InvalidData`] if `fill` writes another
    /// number of bytes. The beginning of the file may have been written then.
    #[cfg(feature = "std")]
    pub fn write_with<E: From<std::io::Error>>(
        &self,
        mut out: impl std::io::Write,
        mut fill: impl FnMut(usize, usize, &mut dyn std::io::Write) -> Result<(), E>,
    ) -> Result<(), E> {
        out.write_all(&self.header())?;
        let mut n_planned = 0;
        for tensor in &self.tensors {
            if let Some(data) = tensor.data {
                out.write_all(data)?;
            } else {
                let mut room = Room { out: &mut out, left: tensor.n_bytes };
                fill(n_planned, tensor.n_bytes, &mut room)?;
                room.expect_full()?;
                n_planned += 1;
            }
            zeros(align(tensor.n_bytes, self.alignment()) - tensor.n_bytes, &mut out)?;
        }
        Ok(out.flush()?)
    }

    /// Return everything before the data, padded to the start of the data.
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
            position += align(tensor.n_bytes, self.alignment());
        }
        out.resize(align(out.len(), self.alignment()), 0);
        out
    }

    fn alignment(&self) -> usize {
        self.alignment.unwrap_or(DEFAULT_ALIGNMENT) as usize
    }
}

impl Tensor<'_> {
    /// Append the description of the tensor; `position` is the start of its data in the data
    /// section.
    fn describe(&self, position: usize, out: &mut Vec<u8>) {
        encode_text(&self.name, out);
        out.extend((self.shape.len() as u32).to_le_bytes());
        for &dim in self.shape.iter().rev() {
            out.extend((dim as u64).to_le_bytes());
        }
        out.extend(self.ty.id().to_le_bytes());
        out.extend((position as u64).to_le_bytes());
    }
}

/// The part of a file that belongs to a planned tensor.
#[cfg(feature = "std")]
struct Room<W> {
    out: W,
    /// Bytes that are still to be written.
    left: usize,
}

#[cfg(feature = "std")]
impl<W> Room<W> {
    /// Check that all bytes were written.
    fn expect_full(&self) -> std::io::Result<()> {
        if self.left == 0 { Ok(()) } else { Err(misfit("the data of a planned tensor are too short")) }
    }
}

#[cfg(feature = "std")]
impl<W: std::io::Write> std::io::Write for Room<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.left {
            return Err(misfit("the data of a planned tensor are too long"));
        }
        let n = self.out.write(bytes)?;
        self.left -= n;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(feature = "std")]
fn misfit(text: &'static str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, text)
}

/// Write `n` zeros.
#[cfg(feature = "std")]
fn zeros(n: usize, out: &mut (impl std::io::Write + ?Sized)) -> std::io::Result<()> {
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), n as u64), out).map(drop)
}

/// Round `n` up to a multiple of `alignment`, a power of two.
///
/// The sizes of tensors fit, so this can overflow only for alignments near the size of the address
/// space.
const fn align(n: usize, alignment: usize) -> usize {
    n.next_multiple_of(alignment)
}

fn check_name(name: &str, region: Region, number: usize) -> Result<(), Error> {
    if (1..=MAX_NAME).contains(&name.len()) {
        return Ok(());
    }
    let (found, limit) = (name.len() as u64, MAX_NAME as u64);
    Err(Error::NameLength { region, name: alloc::format!("#{number}").into(), offset: 0, found, limit })
}

/// Check that a file with `n` things of a kind may have one more.
fn check_count(n: usize, limit: usize, region: Region) -> Result<(), Error> {
    if n < limit {
        return Ok(());
    }
    Err(Error::TooMany { region, name: "".into(), offset: 0, found: n as u64 + 1, limit: limit as u64 })
}

/// Return the alignment that `value` states, an integer of any type.
fn alignment_of(value: &Value<'_>) -> Result<u32, Error> {
    let entry = KeyValue { key: ALIGNMENT_KEY, value: value.clone(), offset: 0 };
    let found: u32 = entry.read()?;
    if is_alignment(found) { Ok(found) } else { Err(Error::Alignment { offset: 0, found: found.into() }) }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use proptest::prelude::*;

    use super::*;
    use crate::gguf::Gguf;

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        let mut writer = Writer::new();
        let long = "x".repeat(MAX_NAME + 1);
        writer.tensor("t", &[2], DType::F32, &[0; 8]).unwrap();
        let refused = [
            (writer.set("", 1u32).unwrap_err(), "the name of key #0 at offset 0 is 0 bytes long"),
            (
                writer.set(long.as_str(), 1u32).unwrap_err(),
                "the name of key #0 at offset 0 is 65536 bytes long",
            ),
            (writer.set("general.alignment", 3u32).unwrap_err(), "\"general.alignment\" is 3"),
            (
                writer.set("general.alignment", "64").unwrap_err(),
                "key \"general.alignment\" at offset 0 is of type string",
            ),
            (writer.tensor("", &[2], DType::F32, &[0; 8]).unwrap_err(), "the name of tensor #1"),
            (writer.tensor("t", &[2], DType::F32, &[0; 8]).unwrap_err(), "tensor \"t\" appears a second"),
            (writer.tensor("u", &[], DType::F32, &[]).unwrap_err(), "tensor \"u\" has 0 dimensions"),
            (writer.tensor("u", &[1; 5], DType::F32, &[0; 4]).unwrap_err(), "tensor \"u\" has 5 dimensions"),
            (
                writer.tensor("u", &[2, 0], DType::F32, &[]).unwrap_err(),
                "tensor \"u\" has a dimension of zero",
            ),
            (
                writer.tensor("u", &[31], DType::Q8_0, &[0; 34]).unwrap_err(),
                "tensor \"u\" at offset 0 has rows of 31",
            ),
            (
                writer.tensor("u", &[usize::MAX, 2], DType::I8, &[]).unwrap_err(),
                "tensor \"u\" at offset 0 is larger",
            ),
            (
                writer.tensor("u", &[32], DType::Q8_0, &[0; 33]).unwrap_err(),
                "tensor \"u\" needs 34 bytes of data, not 33",
            ),
        ];
        for (error, text) in refused {
            assert!(error.to_string().starts_with(text), "{error}\nwanted: {text}");
        }
        let mut only_one = Writer::new();
        only_one.tensor("t", &[2], DType::F32, &[0; 8]).unwrap();
        assert_eq!(writer.to_bytes(), only_one.to_bytes());
    }

    #[test]
    fn an_alignment_of_any_integer_type_is_taken() {
        for value in [Value::U64(64), Value::I32(64), Value::U8(64)] {
            let mut writer = Writer::new();
            writer.set("general.alignment", value).unwrap();
            writer.tensor("t", &[1], DType::F32, &[0; 4]).unwrap();
            assert_eq!(writer.to_bytes().len() % 64, 0);
            let file = writer.to_bytes();
            assert_eq!(Gguf::parse(&file).unwrap().required::<u32>("general.alignment").unwrap(), 64);
        }
    }

    #[test]
    fn more_keys_and_tensors_than_can_be_read_are_refused() {
        let mut writer = Writer::new();
        (0..MAX_ENTRIES).for_each(|i| assert!(writer.set(i.to_string(), 0u8).is_ok()));
        for key in ["more", ALIGNMENT_KEY] {
            assert!(matches!(writer.set(key, 64u8), Err(Error::TooMany { region: Region::Key, .. })));
        }
        assert_eq!(writer.alignment(), DEFAULT_ALIGNMENT as usize);
        assert!(writer.set("0", 1u8).is_ok());
        (0..MAX_TENSORS).for_each(|i| assert!(writer.tensor(i.to_string(), &[1], DType::I8, &[0]).is_ok()));
        let more = writer.tensor("more", &[1], DType::I8, &[0]);
        assert!(matches!(more, Err(Error::TooMany { region: Region::Tensor, .. })));
        assert_eq!(Gguf::parse(&writer.to_bytes()).unwrap().tensors().len(), MAX_TENSORS);
    }

    #[test]
    fn a_key_set_again_keeps_its_place() {
        let mut writer = Writer::new();
        writer.set("a", 1u32).unwrap().set("b", 2u32).unwrap().set("a", "x").unwrap();
        let file = writer.to_bytes();
        let gguf = Gguf::parse(&file).unwrap();
        let entries: Vec<_> = gguf.metadata().iter().map(|entry| (entry.key, entry.value.clone())).collect();
        assert_eq!(entries, [("a", Value::Str("x")), ("b", Value::U32(2))]);
    }

    #[test]
    fn planned_tensors_are_written_where_they_belong() {
        let data: [u8; 8] = core::array::from_fn(|i| i as u8);
        let mut whole = Writer::new();
        whole.tensor("a", &[1], DType::F32, &data[..4]).unwrap();
        whole.tensor("b", &[2], DType::F32, &data).unwrap();
        let mut planned = Writer::new();
        planned.planned_tensor("a", &[1], DType::F32).unwrap();
        planned.planned_tensor("b", &[2], DType::F32).unwrap();
        let mut file = Vec::new();
        planned.write_with(&mut file, |_, n, out| out.write_all(&data[..n])).unwrap();
        assert_eq!(file, whole.to_bytes());
        assert_eq!(planned.to_bytes().len(), file.len());
        for wrong in [0, 3, 9] {
            let fill = |_, _, out: &mut dyn std::io::Write| out.write_all(&[0; 9][..wrong]);
            let error = planned.write_with(Vec::new(), fill).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        }
    }

    /// A tensor with its own bytes.
    #[derive(Clone, Debug)]
    struct Owned {
        name: String,
        shape: Vec<usize>,
        dtype: DType,
        data: Vec<u8>,
    }

    fn tensors() -> impl Strategy<Value = Vec<Owned>> {
        let tensor = (
            "[a-z.0-9]{1,20}",
            proptest::collection::vec(1usize..4, 1..=4),
            0..DType::table().len(),
            any::<u8>(),
        );
        proptest::collection::vec(tensor.prop_map(owned), 0..6)
    }

    fn owned((name, mut shape, format, byte): (String, Vec<usize>, usize, u8)) -> Owned {
        let dtype = DType::table()[format].dtype;
        *shape.last_mut().unwrap() *= dtype.block_len();
        let n_bytes = dtype.row_bytes(shape.iter().product()).unwrap();
        let data = (0..n_bytes).map(|i| byte.wrapping_add(i as u8)).collect();
        Owned { name, shape, dtype, data }
    }

    /// A value that owns its texts.
    #[derive(Clone, Debug)]
    enum Meta {
        Plain(Value<'static>),
        Text(String),
        Texts(Vec<String>),
    }

    impl Meta {
        fn value(&self) -> Value<'_> {
            match self {
                Self::Plain(value) => value.clone(),
                Self::Text(text) => text.as_str().into(),
                Self::Texts(texts) => texts.iter().map(String::as_str).collect::<Vec<_>>().into(),
            }
        }
    }

    fn meta() -> impl Strategy<Value = Meta> {
        prop_oneof![
            any::<u8>().prop_map(|x| Meta::Plain(x.into())),
            any::<i8>().prop_map(|x| Meta::Plain(x.into())),
            any::<u16>().prop_map(|x| Meta::Plain(x.into())),
            any::<i16>().prop_map(|x| Meta::Plain(x.into())),
            any::<u32>().prop_map(|x| Meta::Plain(x.into())),
            any::<i32>().prop_map(|x| Meta::Plain(x.into())),
            any::<u64>().prop_map(|x| Meta::Plain(x.into())),
            any::<i64>().prop_map(|x| Meta::Plain(x.into())),
            any::<f32>().prop_map(|x| Meta::Plain(x.into())),
            any::<f64>().prop_map(|x| Meta::Plain(x.into())),
            any::<bool>().prop_map(|x| Meta::Plain(x.into())),
            any::<Vec<bool>>().prop_map(|x| Meta::Plain(x.into())),
            any::<Vec<f32>>().prop_map(|x| Meta::Plain(x.into())),
            any::<Vec<i64>>().prop_map(|x| Meta::Plain(x.into())),
            any::<String>().prop_map(Meta::Text),
            any::<Vec<String>>().prop_map(Meta::Texts),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            metadata in proptest::collection::vec((".{1,30}", meta()), 0..8),
            tensors in tensors(),
            alignment in prop_oneof![Just(None), (0u32..10).prop_map(Some)],
        ) {
            let mut writer = Writer::new();
            for (key, value) in &metadata {
                writer.set(key, value.value()).unwrap();
            }
            if let Some(power) = alignment {
                writer.set(ALIGNMENT_KEY, 1u32 << power).unwrap();
            }
            for Owned { name, shape, dtype, data } in &tensors {
                // Names may collide; the first one stays.
                let _ = writer.tensor(name, shape, *dtype, data);
            }
            let file = writer.to_bytes();
            let mut streamed = Vec::new();
            writer.write_to(&mut streamed).unwrap();
            prop_assert_eq!(&streamed, &file);

            let gguf = Gguf::parse(&file).unwrap();
            for (read, (key, value)) in gguf.metadata().iter().zip(&writer.metadata) {
                prop_assert_eq!(read.key, key);
                prop_assert_eq!(read.value.ty(), value.ty());
                let (mut read_bytes, mut bytes) = (Vec::new(), Vec::new());
                read.value.encode(&mut read_bytes);
                value.encode(&mut bytes);
                prop_assert_eq!(read_bytes, bytes);
            }
            prop_assert_eq!(gguf.metadata().len(), writer.metadata.len());
            prop_assert_eq!(gguf.tensors().len(), writer.tensors.len());
            for tensor in &writer.tensors {
                let read = gguf.tensor(&tensor.name).unwrap();
                prop_assert_eq!(read.shape(), &tensor.shape);
                prop_assert_eq!(read.dtype(), tensor.ty.dtype);
                prop_assert_eq!(Some(gguf.tensor_data(&read)), tensor.data);
                prop_assert_eq!(read.range().start % writer.alignment(), 0);
            }
        }
    }
}
