//! The GGUF reader, with arbitrary bytes and with almost valid files.
//!
//! Input that starts with `GGUF` or a zero byte (which is dropped) is parsed as it is. Any other
//! input is a recipe: a valid file of arbitrary keys and tensors, then a few changes to it. The
//! reader must refuse the file with an error that can be printed, or return a view whose every
//! shard can be read and whose copy reads the same. Either way it may allocate no more than a fixed
//! multiple of the input.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use backstitch_core::packed::packed_bytes;
use backstitch_core::{DType, PackedType};
use backstitch_models::Error;
use backstitch_models::gguf::{Gguf, Value, Writer};
use backstitch_testing::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The bytes of index per byte of file. The most expensive file has nothing but tensor descriptions
/// of 33 bytes each. For each of them the reader holds a description, a row of the table and two
/// entries to sort.
const INDEX_PER_BYTE: u64 = 10;
/// The bytes of error messages and the like.
const SLACK: u64 = 1 << 12;

fuzz_target!(|input: &[u8]| {
    match input {
        [b'G', ..] => check(&[input]),
        [0, rest @ ..] => check(&[rest]),
        _ => {
            let mut recipe = Unstructured::new(input);
            if let Ok(files) = almost_valid_shards(&mut recipe) {
                check(&files.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
        }
    }
});

fn check(shards: &[&[u8]]) {
    let (parsed, tally) = ALLOCATOR.during_here(|| Gguf::parse_shards(shards));
    let n_bytes: usize = shards.iter().map(|shard| shard.len()).sum();
    let limit = SLACK + INDEX_PER_BYTE * n_bytes as u64;
    assert!(tally.bytes <= limit, "{} bytes allocated for {n_bytes}", tally.bytes);
    match parsed {
        Ok(gguf) => check_view(&gguf, shards),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Read everything in the view.
fn check_view(gguf: &Gguf<'_>, shards: &[&[u8]]) {
    for entry in gguf.metadata() {
        assert_eq!(gguf.entry(entry.key).map(|found| found.offset), Some(entry.offset));
        let _ = gguf.u32(entry.key);
        let _ = gguf.f32(entry.key);
        let _ = gguf.str(entry.key);
        let _ = gguf.required::<Vec<i32>>(entry.key);
        if let Value::Array(array) = &entry.value {
            assert_eq!(array.iter().count(), array.len());
            assert!(array.get(array.len()).is_none());
        }
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(tensor.name()).map(|found| found.range()), Some(tensor.range()));
        assert_eq!(shards[tensor.shard()].get(tensor.range()), Some(gguf.tensor_data(tensor)));
        if tensor.is_packed() {
            assert!(tensor.range().start % 64 == 0 && tensor.n_bytes() % 64 == 0);
        } else {
            assert_eq!(tensor.dtype().row_bytes(tensor.n_elements()), Some(tensor.n_bytes()));
        }
        assert!(tensor.n_elements() > 0);
    }
    if shards.len() == 1 {
        check_copy(gguf);
    }
}

/// Check that a copy of the file has the same content.
fn check_copy(gguf: &Gguf<'_>) {
    let Ok(first) = copy(gguf) else { return };
    let again = Gguf::parse(&first).expect("what the writer wrote can be read");
    // Packed tensors bring their alignment with them.
    let is_stated =
        gguf.u32("general.alignment").is_ok() || !gguf.tensors().iter().any(|tensor| tensor.is_packed());
    assert_eq!(again.metadata().len(), gguf.metadata().len() + usize::from(!is_stated));
    let second = copy(&again).expect("what was copied once can be copied again");
    assert!(first == second);
}

fn copy(gguf: &Gguf<'_>) -> Result<Vec<u8>, Error> {
    // Data padded to a large alignment would grow beyond any bound.
    if gguf.u32("general.alignment").is_ok_and(|alignment| alignment > 1 << 12) {
        return Err(Error::Alignment { offset: 0, found: 0 });
    }
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone())?;
    }
    for tensor in gguf.tensors() {
        let (name, shape, dtype) = (tensor.name(), tensor.shape(), tensor.dtype());
        let data = gguf.tensor_data(tensor);
        if tensor.is_packed() {
            writer.packed_tensor(name, shape, dtype, data)?;
        } else {
            writer.tensor(name, shape, dtype, data)?;
        }
    }
    Ok(writer.to_bytes())
}

/// A change to a valid file.
#[derive(Arbitrary, Debug)]
enum Change {
    FlipBit { at: u16, bit: u8 },
    Byte { at: u16, value: u8 },
    Word { at: u16, value: Word },
    Long { at: u16, value: Word },
    Cut { at: u16 },
    Insert { at: u16, bytes: [u8; 4] },
}

/// A number at the edges of what readers accept.
#[derive(Arbitrary, Debug)]
enum Word {
    Small(u8),
    NearMax(u8),
    PowerOfTwo(u8),
    Any(u64),
}

impl Word {
    fn value(&self) -> u64 {
        match *self {
            Self::Small(n) => n.into(),
            Self::NearMax(n) => u64::MAX - u64::from(n),
            Self::PowerOfTwo(n) => 1 << (n % 64),
            Self::Any(n) => n,
        }
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        let len = file.len().max(1);
        let place = |at: u16| usize::from(at) % len;
        match *self {
            Self::FlipBit { at, bit } => overwrite_with(file, place(at), |byte| byte ^ (1 << (bit % 8))),
            Self::Byte { at, value } => overwrite(file, place(at), &[value]),
            Self::Word { at, ref value } => overwrite(file, place(at), &(value.value() as u32).to_le_bytes()),
            Self::Long { at, ref value } => overwrite(file, place(at), &value.value().to_le_bytes()),
            Self::Cut { at } => file.truncate(place(at)),
            Self::Insert { at, bytes } => {
                let at = place(at);
                file.splice(at..at, bytes);
            }
        }
    }
}

fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    file.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = *new);
}

fn overwrite_with(file: &mut [u8], at: usize, change: impl Fn(u8) -> u8) {
    file.iter_mut().skip(at).take(1).for_each(|byte| *byte = change(*byte));
}

/// A tensor of a recipe.
#[derive(Arbitrary, Debug)]
struct Tensor<'a> {
    name: &'a str,
    dims: [u8; 3],
    dtype: u8,
}

/// The data of tensors.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];

/// Return one file, or sometimes a model in two or three shards.
fn almost_valid_shards(recipe: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Vec<u8>>> {
    if recipe.ratio(7, 8)? {
        return Ok(vec![almost_valid(recipe, Writer::new())?]);
    }
    let count = recipe.int_in_range(2..=3u16)?;
    let total = recipe.int_in_range(0..=6i32)?;
    let shard = |no| {
        let mut writer = Writer::new();
        let _ = writer.set("split.no", no).and_then(|writer| writer.set("split.count", count));
        let _ = writer.set("split.tensors.count", total);
        almost_valid(recipe, writer)
    };
    (0..count).map(shard).collect()
}

/// Return a valid file that starts with the content of `writer`, then a few changes.
fn almost_valid<'a>(recipe: &mut Unstructured<'a>, mut writer: Writer<'a>) -> arbitrary::Result<Vec<u8>> {
    for _ in 0..recipe.int_in_range(0..=8)? {
        let key: &str = recipe.arbitrary()?;
        let _ = writer.set(key, value(recipe)?);
    }
    if recipe.ratio(1, 4)? {
        let _ = writer.set("general.alignment", 1u32 << recipe.int_in_range(0..=8)?);
    }
    let tensors: Vec<Tensor<'a>> = recipe.arbitrary()?;
    for Tensor { name, dims, dtype } in tensors.iter().take(8) {
        let info = &DType::table()[usize::from(*dtype) % DType::table().len()];
        let row = info.block_len * (1 + usize::from(dims[0] % 4));
        let shape = [1 + usize::from(dims[2] % 3), 1 + usize::from(dims[1] % 3), row];
        let shape = &shape[usize::from(dims[1] % 3)..];
        let n_bytes = info.dtype.row_bytes(shape.iter().product()).unwrap_or(0);
        let packed = PackedType::of(info.dtype).filter(|_| dims[0] >= 128);
        let (n_rows, n_cols) = (shape.iter().rev().nth(1).copied().unwrap_or(1), row);
        let n_matrices = shape.iter().product::<usize>() / n_rows / n_cols;
        let panels = packed.and_then(|kind| packed_bytes(kind, n_rows, n_cols).ok());
        match panels.and_then(|n| ZEROS.get(..n * n_matrices)) {
            Some(data) => drop(writer.packed_tensor(*name, shape, info.dtype, data)),
            None => drop(writer.tensor(*name, shape, info.dtype, &ZEROS[..n_bytes])),
        }
    }
    let mut file = writer.to_bytes();
    let changes: Vec<Change> = recipe.arbitrary()?;
    changes.iter().take(6).for_each(|change| change.apply(&mut file));
    Ok(file)
}

fn value<'a>(recipe: &mut Unstructured<'a>) -> arbitrary::Result<Value<'a>> {
    Ok(match recipe.int_in_range(0..=13)? {
        0 => recipe.arbitrary::<u8>()?.into(),
        1 => recipe.arbitrary::<i8>()?.into(),
        2 => recipe.arbitrary::<u16>()?.into(),
        3 => recipe.arbitrary::<i16>()?.into(),
        4 => recipe.arbitrary::<u32>()?.into(),
        5 => recipe.arbitrary::<i32>()?.into(),
        6 => recipe.arbitrary::<f32>()?.into(),
        7 => recipe.arbitrary::<bool>()?.into(),
        8 => recipe.arbitrary::<&str>()?.into(),
        9 => recipe.arbitrary::<u64>()?.into(),
        10 => recipe.arbitrary::<f64>()?.into(),
        11 => recipe.arbitrary::<Vec<&str>>()?.into(),
        12 => recipe.arbitrary::<Vec<i32>>()?.into(),
        _ => recipe.arbitrary::<Vec<bool>>()?.into(),
    })
}
