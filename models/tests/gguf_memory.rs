//! Reading a GGUF file never allocates more than a fixed multiple of the file's real length,
//! whatever its header claims.

use backstitch_core::DType;
use backstitch_core::packed::Line;
use backstitch_core::pool::Inline;
use backstitch_models::gguf::{Gguf, Writer};
use backstitch_models::vocab::{Vocab, VocabError, VocabSource};
use backstitch_models::{Context, Error, Model, PackedModel, Params, Token};
use backstitch_testing::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The bytes of index per byte of file. Files with nothing but short keys or small tensors come
/// close.
const INDEX_PER_BYTE: u64 = 10;

/// Return the bytes that reading `file` allocates in total.
fn cost(file: &[u8]) -> u64 {
    ALLOCATOR.during_here(|| Gguf::parse(file).is_ok()).1.bytes
}

#[test]
fn a_count_the_file_has_no_room_for_is_refused_before_anything_is_allocated_for_it() {
    let mut writer = Writer::new();
    writer.set("texts", vec!["a"; 8]).unwrap().set("numbers", vec![1u64; 8]).unwrap();
    writer.tensor("t", &[4], DType::F32, &[0; 16]).unwrap();
    let file = writer.to_bytes();
    // Every eight bytes of the file in turn are a count of 2^40 or 2^64 - 1; some of them are
    // counts.
    for at in 0..file.len() - 8 {
        for count in [1 << 40, u64::MAX] {
            let mut file = file.clone();
            file[at..at + 8].copy_from_slice(&u64::to_le_bytes(count));
            let (cost, limit) = (cost(&file), 4096 + INDEX_PER_BYTE * file.len() as u64);
            assert!(cost <= limit, "{count} at {at}: {cost} bytes, limit {limit}");
        }
    }
}

#[test]
fn the_dearest_files_stay_below_the_bound() {
    let names: Vec<String> = (0..2000).map(|i| format!("{i}")).collect();
    let mut keys = Writer::new();
    let mut tensors = Writer::new();
    tensors.set("general.alignment", 1u32).unwrap();
    for name in &names {
        keys.set(name.as_str(), 1u8).unwrap();
        tensors.tensor(name, &[1], DType::I8, &[0]).unwrap();
    }
    for file in [keys.to_bytes(), tensors.to_bytes()] {
        let (cost, limit) = (cost(&file), INDEX_PER_BYTE * file.len() as u64);
        assert!(cost <= limit, "{cost} bytes for {} bytes of file", file.len());
    }
}

/// Test counts and strings that the length of the file would allow.
#[test]
fn more_than_any_model_has_is_refused_before_anything_is_allocated_for_it() {
    let header = |n_tensors: u64, n_entries: u64| {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(n_tensors.to_le_bytes());
        file.extend(n_entries.to_le_bytes());
        file.resize(64 << 20, 0);
        file
    };
    for file in [header(1 << 20, 0), header(0, 1 << 20)] {
        let (error, peak) = ALLOCATOR.peak_here(|| Gguf::parse(&file).map(drop).unwrap_err());
        assert!(matches!(error, Error::TooMany { limit: 1..=0x4_0000, .. }), "{error}");
        assert!(peak < 1000, "{peak}");
    }
}

#[test]
fn a_file_of_as_many_tensors_and_keys_as_are_read_stays_below_the_bound() {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    let (n_tensors, n_entries) = (1_u64 << 18, 1_u64 << 16);
    file.extend(n_tensors.to_le_bytes());
    file.extend(n_entries.to_le_bytes());
    for i in 0..n_entries {
        let key = format!("{i}");
        file.extend((key.len() as u64).to_le_bytes());
        file.extend(key.as_bytes());
        file.extend(0_u32.to_le_bytes());
        file.push(1);
    }
    for i in 0..n_tensors {
        let name = format!("{i}");
        file.extend((name.len() as u64).to_le_bytes());
        file.extend(name.as_bytes());
        file.extend(1_u32.to_le_bytes());
        file.extend(1_u64.to_le_bytes());
        file.extend(24_u32.to_le_bytes());
        file.extend((32 * i).to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(32) + 32 * n_tensors as usize, 0);
    let (n, peak) = ALLOCATOR.peak_here(|| Gguf::parse(&file).map(|gguf| gguf.tensors().len()));
    assert_eq!(n.unwrap() as u64, n_tensors);
    // Were the tensors empty, the file would have 8 MiB less.
    assert!(peak <= 4 * (file.len() as u64 - (8 << 20)) + (64 << 20), "{peak}");
}

#[test]
fn texts_longer_than_any_vocabulary_has_are_refused() {
    let long = "a".repeat(5 << 20);
    let source = VocabSource { tokens: &[long.as_str()], scores: vec![0.0], ..VocabSource::default() };
    for model in ["gpt2", "llama", "t5", "bert"] {
        let build = || Vocab::new(&VocabSource { model, ..source.clone() }).map(drop).unwrap_err();
        let (error, peak) = ALLOCATOR.peak_here(build);
        assert!(matches!(error, VocabError::TooLarge { .. }), "{model}: {error}");
        assert!(peak < 1000, "{model}: {peak}");
    }
}

#[test]
fn a_large_vocabulary_costs_two_words_a_text() {
    let texts: Vec<String> = (0..150_000).map(|i| format!("token {i}")).collect();
    let mut writer = Writer::new();
    writer.set("tokens", texts.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    writer.set("scores", vec![0f32; texts.len()]).unwrap();
    let file = writer.to_bytes();
    let (gguf, tally) = ALLOCATOR.during_here(|| Gguf::parse(&file).unwrap());
    assert_eq!(gguf.required::<&[&str]>("tokens").unwrap(), texts);
    assert!(tally.allocations < 10, "{tally:?}");
    assert!(tally.bytes < 16 * texts.len() as u64 + 1000, "{tally:?}");
}

/// Return `bytes` at a multiple of 64, for good.
fn aligned(bytes: &[u8]) -> &'static [u8] {
    let lines: &'static mut [Line] = vec![Line([0; 64]); bytes.len().div_ceil(64)].leak();
    let room: &mut [u8] = bytemuck::cast_slice_mut(lines);
    room[..bytes.len()].copy_from_slice(bytes);
    &room[..bytes.len()]
}

#[test]
fn packed_matrices_of_a_static_file_are_not_copied() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf");
    let original = std::fs::read(path).unwrap();
    let parsed = Gguf::parse(&original).unwrap();
    let packed = PackedModel::new(&parsed, &Inline, None, |_| {}).unwrap().writer().unwrap().to_bytes();
    let file = aligned(&packed);
    let gguf = Gguf::parse(file).unwrap();
    let n_packed: usize = gguf.tensors().iter().filter(|t| t.is_packed()).map(|t| t.n_bytes()).sum();
    let (model, used) = ALLOCATOR.during_here(|| Model::from_static(file).unwrap());
    let (copied, with_copy) = ALLOCATOR.during_here(|| Model::from_bytes(file).unwrap());
    assert!(used.bytes + n_packed as u64 <= with_copy.bytes, "{n_packed}: {used:?}, {with_copy:?}");
    // At other places the matrices are copied, and the bits are the same.
    let elsewhere = &aligned(&[&[0; 16], &packed[..]].concat())[16..];
    let logits = |model: &Model| {
        let mut ctx = Context::new(model, Params::default().n_ctx(64)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &[Token(5), Token(6), Token(7)]).unwrap();
        ctx.logits(seq).unwrap().to_vec()
    };
    let expected = logits(&copied);
    for model in [model, Model::from_static(elsewhere).unwrap()] {
        assert_eq!(logits(&model), expected);
    }
}
