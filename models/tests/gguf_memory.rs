//! Reading a GGUF file never allocates more than a fixed multiple of the file's real length, whatever its header claims.

use backstitch_core::DType;
use backstitch_models::gguf::{Gguf, Writer};
use backstitch_testing::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Bytes of index a byte of file may cost; files of nothing but short keys or small tensors come close.
const INDEX_PER_BYTE: u64 = 10;

/// Bytes that reading `file` allocates, in all.
fn cost(file: &[u8]) -> u64 {
    ALLOCATOR.during_here(|| Gguf::parse(file).is_ok()).1.bytes
}

#[test]
fn a_count_the_file_has_no_room_for_is_refused_before_anything_is_allocated_for_it() {
    let mut writer = Writer::new();
    writer.set("texts", vec!["a"; 8]).unwrap().set("numbers", vec![1u64; 8]).unwrap();
    writer.tensor("t", &[4], DType::F32, &[0; 16]).unwrap();
    let file = writer.to_bytes();
    // Every eight bytes of the file in turn are a count of 2^40 or 2^64 - 1; some of them are counts.
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
