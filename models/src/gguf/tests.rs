//! The reader against real files, damaged files and hostile ones.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use std::path::{Path, PathBuf};

use backstitch_core::DType;

use super::*;
use crate::error::{Error, Region};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/models")
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(goldens().join(name)).unwrap()
}

#[test]
fn real_files_read_as_they_were_written() {
    let file = golden("llama.gguf");
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!((gguf.version(), gguf.metadata().len(), gguf.tensors().len()), (3, 22, 39));
    assert_eq!(gguf.architecture().unwrap(), "llama");
    assert_eq!(gguf.keys().unwrap().u32("block_count").unwrap(), 4);
    let tokens: &[&str] = gguf.required("tokenizer.ggml.tokens").unwrap();
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!(embedding.shape(), [tokens.len(), 64]);
    assert_eq!((embedding.dtype(), embedding.n_bytes()), (DType::F32, tokens.len() * 64 * 4));
    assert_eq!(gguf.tensor_data(&embedding).len(), embedding.n_bytes());
    assert!(gguf.tensor("token_embd").is_none());
}

#[test]
fn every_golden_is_read() {
    let mut n_files = 0;
    for entry in std::fs::read_dir(goldens()).unwrap() {
        let path = entry.unwrap().path();
        let file = std::fs::read(&path).unwrap();
        let gguf = Gguf::parse(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!gguf.tensors().is_empty(), "{}", path.display());
        n_files += 1;
    }
    assert!(n_files >= 3, "{n_files} files");
}

#[test]
fn real_files_survive_a_round_trip() {
    for name in ["llama.gguf", "falcon_h1.gguf", "quant_q4_0.gguf"] {
        let file = golden(name);
        let gguf = Gguf::parse(&file).unwrap();
        let mut writer = Writer::new();
        for entry in gguf.metadata() {
            writer.set(entry.key, entry.value.clone()).unwrap();
        }
        for tensor in gguf.tensors() {
            writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
        }
        assert!(writer.to_bytes() == file, "{name}");
    }
}

/// Return a file of one key of each kind, an array of each kind and two tensors.
fn small_file() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").unwrap().set("n", 7u32).unwrap().set("on", true).unwrap();
    writer.set("texts", Vec::from(["a", "", "é"])).unwrap().set("flags", Vec::from([true, false])).unwrap();
    writer.set("floats", Vec::from([1.5f32, -2.0])).unwrap();
    writer.tensor("a", &[2, 32], DType::Q4_0, &[0; 36]).unwrap();
    writer.tensor("b", &[5], DType::F32, &[0; 20]).unwrap();
    writer.to_bytes()
}

/// Read everything in the view; an error must have a message.
fn exercise(file: &[u8]) -> Result<(), Error> {
    let gguf = Gguf::parse(file).inspect_err(|error| assert!(!error.to_string().is_empty()))?;
    for entry in gguf.metadata() {
        assert_eq!(gguf.entry(entry.key).unwrap().offset, entry.offset);
        if let Value::Array(array) = &entry.value {
            assert_eq!(array.iter().count(), array.len());
        }
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(tensor.name()).unwrap().range(), tensor.range());
        assert_eq!(Some(gguf.tensor_data(tensor)), file.get(tensor.range()));
        assert_eq!(tensor.dtype().row_bytes(tensor.n_elements()), Some(tensor.n_bytes()));
    }
    Ok(())
}

/// Return the end of the data of the last tensor, behind which is padding.
fn end_of_data(file: &[u8]) -> usize {
    Gguf::parse(file).unwrap().tensors().iter().map(|tensor| tensor.range().end).max().unwrap()
}

#[test]
fn a_file_cut_at_any_byte_is_refused_as_truncated() {
    let small = small_file();
    let real = golden("quant_q4_0.gguf");
    let header = Gguf::parse(&real).unwrap().tensors()[0].range().start;
    let cuts = (0..end_of_data(&small)).map(|cut| &small[..cut]);
    let cuts = cuts.chain((0..header + 2).chain([real.len() / 2]).map(|cut| &real[..cut]));
    for file in cuts {
        let error = exercise(file).unwrap_err();
        match error {
            Error::Truncated { offset, need, have, .. } => {
                assert!(need > have, "{} bytes: {need} {have}", file.len());
                assert!(have == 0 || offset + have == file.len() as u64, "{} bytes: {error}", file.len());
            }
            Error::TooMany { found, limit, .. } => assert!(found > limit),
            other => panic!("{} bytes: {other}", file.len()),
        }
    }
    exercise(&small[..end_of_data(&small)]).unwrap();
}

#[test]
fn a_flipped_bit_in_the_header_never_breaks_the_reader() {
    for mut file in [small_file(), golden("quant_q4_0.gguf")] {
        let header = Gguf::parse(&file).unwrap().tensors()[0].range().start;
        for bit in 0..header * 8 {
            file[bit / 8] ^= 1 << (bit % 8);
            // Either outcome is right: a flipped bit in a text is another text.
            let _ = exercise(&file);
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn nothing_the_fuzzer_kept_breaks_the_reader() {
    let corpus = goldens().join("../../fuzz/corpus/gguf");
    let mut n_read = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        n_read += usize::from(exercise(&std::fs::read(entry.unwrap().path()).unwrap()).is_ok());
    }
    assert!(n_read >= 8, "{n_read} files were valid");
}

/// A file written byte by byte, so that it can be wrong.
struct Raw(Vec<u8>);

impl Raw {
    fn new(n_tensors: u64, n_entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_entries)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u32(self, x: u32) -> Self {
        self.bytes(&x.to_le_bytes())
    }

    fn u64(self, x: u64) -> Self {
        self.bytes(&x.to_le_bytes())
    }

    fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// Append a tensor description, with dimensions innermost first as in the file.
    fn tensor(self, name: &str, dims: &[u64], dtype: u32, position: u64) -> Self {
        let raw = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(raw, |raw, &dim| raw.u64(dim)).u32(dtype).u64(position)
    }

    /// Pad to a multiple of 32 and append `n` zero bytes.
    fn data(mut self, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }
}

#[test]
fn hostile_headers_get_a_precise_error() {
    let room = &[0; 64];
    let cases: Vec<(Raw, &str)> = Vec::from([
        (
            Raw(b"GGML".to_vec()).u32(3),
            "not a GGUF file: it starts with \"GGML\", not \"GGUF\"; give the path of a GGUF file",
        ),
        (
            Raw(b"GGU".to_vec()),
            "file is truncated in the header: 4 bytes needed at offset 0, 3 left; get the file again",
        ),
        (
            Raw(b"GGUF".to_vec()).u32(1),
            "GGUF version 1 is not supported; versions 2 and 3 are, convert the model again",
        ),
        (
            Raw(b"GGUF".to_vec()).u32(4).bytes(room),
            "GGUF version 4 is not supported; versions 2 and 3 are, convert the model again",
        ),
        (
            Raw(b"GGUF".to_vec()).u32(3 << 24).bytes(room),
            "the file is GGUF version 3 in big-endian order; convert it to little-endian",
        ),
        (
            Raw::new(1 << 60, 0).bytes(room),
            "1152921504606846976 tensors at offset 8 do not fit the file, the rest of it holds at most 2; get the file again",
        ),
        (
            Raw::new(0, u64::MAX).bytes(room),
            "18446744073709551615 keys at offset 16 do not fit the file, the rest of it holds at most 4; get the file again",
        ),
    ]);
    for (raw, text) in cases {
        assert_eq!(Gguf::parse(&raw.0).unwrap_err().to_string(), text);
    }
}

#[test]
fn hostile_metadata_gets_a_precise_error() {
    let key = || Raw::new(0, 1).text("k");
    let cases: Vec<(Raw, &str)> = Vec::from([
        (
            Raw::new(0, 1).u64(0).bytes(&[0; 6]),
            "the name of key #0 at offset 24 is 0 bytes long; 1 to 65535 are allowed",
        ),
        (
            Raw::new(0, 1).u64(1 << 40).bytes(&[0; 6]),
            "the name of key #0 at offset 24 is 1099511627776 bytes long; 1 to 65535 are allowed",
        ),
        (
            Raw::new(0, 1).u64(3).bytes(b"ab\xff").u32(0).bytes(&[1]),
            "key #0 is not valid UTF-8 at offset 34; convert the model again",
        ),
        (key().u32(13).bytes(&[0; 8]), "key \"k\" has unknown type 13 at offset 33; convert the model again"),
        (
            key().u32(7).bytes(&[2]),
            "key \"k\" holds the boolean 2 at offset 37, not 0 or 1; convert the model again",
        ),
        (
            key().u32(9).u32(7).u64(2).bytes(&[1, 9]),
            "key \"k\" holds the boolean 9 at offset 50, not 0 or 1; convert the model again",
        ),
        (
            key().u32(9).u32(9).u64(1).bytes(&[0; 16]),
            "key \"k\" holds an array of arrays at offset 37, which no model needs; convert the model again",
        ),
        (key().u32(9).u32(99).u64(1), "key \"k\" has unknown type 99 at offset 37; convert the model again"),
        (
            key().u32(9).u32(4).u64(1 << 62).bytes(&[0; 12]),
            "4611686018427387904 elements of key \"k\" at offset 41 do not fit the file, the rest of it holds at most 3; get the file again",
        ),
        (
            key().u32(9).u32(8).u64(4).bytes(&[0; 24]),
            "4 elements of key \"k\" at offset 41 do not fit the file, the rest of it holds at most 3; get the file again",
        ),
        (
            key().u32(8).u64(2).bytes(b"a\xc3"),
            "the value of key \"k\" is not valid UTF-8 at offset 46; convert the model again",
        ),
        (
            key().u32(8).u64(u64::MAX).bytes(b"abc"),
            "file is truncated in the value of key \"k\": 18446744073709551615 bytes needed at offset 45, 3 left; \
             get the file again",
        ),
        (
            Raw::new(0, 2).text("k").u32(0).bytes(&[1]).text("k").u32(4).u32(1),
            "key \"k\" appears a second time at offset 38; names must be unique",
        ),
        (
            Raw::new(0, 1).text("general.alignment").u32(4).u32(48),
            "\"general.alignment\" is 48 at offset 24, not a power of two up to 65536",
        ),
        (
            Raw::new(0, 1).text("general.alignment").u32(4).u32(0),
            "\"general.alignment\" is 0 at offset 24, not a power of two up to 65536",
        ),
        (
            Raw::new(0, 1).text("general.alignment").u32(4).u32(1 << 17),
            "\"general.alignment\" is 131072 at offset 24, not a power of two up to 65536",
        ),
        (
            Raw::new(0, 1).text("general.alignment").u32(8).text("32"),
            "key \"general.alignment\" at offset 24 is of type string, not an integer",
        ),
    ]);
    for (raw, text) in cases {
        assert_eq!(Gguf::parse(&raw.0).unwrap_err().to_string(), text);
    }
}

#[test]
fn hostile_tensors_get_a_precise_error() {
    let one = || Raw::new(1, 0);
    let huge = 1 << 40;
    let cases: Vec<(Raw, &str)> = Vec::from([
        (one().tensor("", &[4], 0, 0).data(32), "the name of tensor #0"),
        (one().tensor("t", &[], 0, 0).data(32), "tensor \"t\" has 0 dimensions at offset 33, not 1 to 4"),
        (one().tensor("t", &[1; 5], 0, 0).data(32), "tensor \"t\" has 5 dimensions at offset 33, not 1 to 4"),
        (
            one().text("t").u32(u32::MAX).data(64),
            "tensor \"t\" has 4294967295 dimensions at offset 33, not 1 to 4",
        ),
        (one().tensor("t", &[4, 0], 0, 0).data(32), "tensor \"t\" has a dimension of zero at offset 24"),
        (
            one().tensor("t", &[huge, huge], 0, 0).data(32),
            "tensor \"t\" at offset 24 is larger than memory can address",
        ),
        (
            one().tensor("t", &[1 << 62], 0, 0).data(32),
            "tensor \"t\" at offset 24 is larger than memory can address",
        ),
        (
            one().tensor("t", &[4], 4, 0).data(32),
            "tensor \"t\" has element type 4 at offset 45, which is not supported",
        ),
        (
            one().tensor("t", &[33, 2], 2, 0).data(64),
            "tensor \"t\" at offset 24 has rows of 33 elements, not a multiple of its block of 32",
        ),
        (
            one().tensor("t", &[4], 0, 8).data(32),
            "tensor \"t\" has its data at 8 (stored at offset 49), not a multiple of 32",
        ),
        (
            one().tensor("t", &[4], 0, 32).data(32),
            "file is truncated in the data of tensor \"t\": 16 bytes needed at offset 96, 0 left",
        ),
        (
            one().tensor("t", &[9], 0, 0).data(32),
            "file is truncated in the data of tensor \"t\": 36 bytes needed at offset 64, 32 left",
        ),
        (
            one().tensor("t", &[4], 0, u64::MAX - 31).data(32),
            "tensor \"t\" at offset 49 is larger than memory can address",
        ),
        (
            Raw::new(2, 0).tensor("t", &[4], 0, 0).tensor("t", &[4], 0, 32).data(64),
            "tensor \"t\" appears a second time at offset 57; names must be unique",
        ),
        (
            Raw::new(2, 0).tensor("t", &[4], 0, 0).tensor("u", &[4], 0, 0).data(64),
            "the data of tensor \"u\" at offset 96 overlaps that of \"t\"",
        ),
        (
            Raw::new(2, 0).tensor("t", &[4], 0, 32).tensor("u", &[9], 0, 0).data(96),
            "the data of tensor \"t\" at offset 128 overlaps that of \"u\"",
        ),
    ]);
    for (raw, text) in cases {
        let error = Gguf::parse(&raw.0).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}\nwanted: {text}");
    }
}

#[test]
fn an_unpadded_end_and_gaps_between_tensors_are_fine() {
    let raw = Raw::new(2, 0).tensor("t", &[4], 0, 0).tensor("u", &[1, 1, 1, 1], 0, 64).data(68);
    let gguf = Gguf::parse(&raw.0).unwrap();
    assert_eq!(gguf.tensor("u").unwrap().range(), 192..196);
    assert_eq!(gguf.tensor("u").unwrap().shape(), [1, 1, 1, 1]);
    assert_eq!(format!("{:?}", gguf.tensor("t").unwrap()), "t [4] F32 at 128");
}

#[test]
fn version_2_reads_like_version_3() {
    let mut file = small_file();
    file[4] = 2;
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!((gguf.version(), gguf.u32("n").unwrap()), (2, 7));
}

#[test]
fn an_empty_input_is_truncated() {
    let error = Gguf::parse(&[]).unwrap_err();
    assert!(matches!(error, Error::Truncated { region: Region::Header, offset: 0, need: 4, have: 0, .. }));
}
