//! Files that are damaged, or were made to do damage.

use super::*;
use std::string::ToString;

fn refused(bytes: &[u8], layout: &Layout) -> Error {
    match File::parse(bytes, layout) {
        Ok(_) => panic!("a file of {} bytes was read", bytes.len()),
        Err(error) => error,
    }
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// llama.cpp aborts on such a file.
#[test]
fn two_states_in_a_file_of_one_sequence_are_refused() {
    let mut bytes = golden("mamba2.f32.seq").unwrap();
    put(&mut bytes, 12 + 24 * 4, 2);
    let error = refused(&bytes, &mamba2());
    let wanted = Wanted::Between(0, 2);
    let section = Section::States;
    let field = "number of states";
    assert_eq!(error, Error::Field { section, field, offset: 108, found: 2, wanted });
}

/// llama.cpp allocates what such a file claims before it looks for the tokens.
#[test]
fn sixteen_bytes_that_claim_three_gibibytes_of_tokens_are_refused() {
    let mut bytes = vec![];
    for number in [SESSION_MAGIC, SESSION_VERSION, 3 << 28, 0] {
        bytes.extend(number.to_le_bytes());
    }
    let error = refused(&bytes, &llama());
    let (section, field) = (Section::Tokens, "tokens");
    assert_eq!(error, Error::Truncated { section, field, offset: 12, need: 3 << 30, have: 4 });
}

/// llama.cpp takes them.
#[test]
fn negative_positions_are_refused() {
    let mut bytes = golden("llama.f32.seq").unwrap();
    let cell = 12 + 24 * 4 + 8 + 5 * 12;
    put(&mut bytes, cell, -3i32 as u32);
    let error = refused(&bytes, &llama());
    let wanted = Wanted::Between(0, i32::MAX as u64);
    let section = Section::Cells(0);
    assert_eq!(error, Error::Field { section, field: "position", offset: cell as u64, found: -3, wanted });
    assert_eq!(
        error.to_string(),
        "cells of cache 0: position at byte 176 is -3, wanted 0 or more and less than 2147483647"
    );
    let mut bytes = golden("mamba2.f32.state").unwrap();
    let state = 12 + 24 * 4 + 10 + 4;
    put(&mut bytes, state, i32::MAX as u32);
    assert!(matches!(refused(&bytes, &mamba2()), Error::Field { field: "position", .. }));
}

#[test]
fn positions_that_are_twice_there_or_missing_are_refused() {
    let mut bytes = golden("llama.f32.seq").unwrap();
    let cell = |index: usize| 12 + 24 * 4 + 8 + index * 12;
    put(&mut bytes, cell(5), 4);
    let hole = |found, wanted| Error::Hole { cache: 0, sequence: 0, found: Pos(found), wanted: Pos(wanted) };
    // The last place that is wrong is told.
    assert_eq!(refused(&bytes, &llama()), hole(6, 5));
    put(&mut bytes, cell(5), 5);
    put(&mut bytes, cell(23), 24);
    assert_eq!(refused(&bytes, &llama()), hole(24, 23));
    // Cells may come in any order.
    put(&mut bytes, cell(23), 23);
    put(&mut bytes, cell(2), 3);
    put(&mut bytes, cell(3), 2);
    assert!(File::parse(&bytes, &llama()).is_ok());
}

/// llama.cpp goes on from such a file, without the keys that are not there.
#[test]
fn a_window_that_lacks_cells_is_refused() {
    let layout = gemma3();
    let file = golden("gemma3.f32.state").unwrap();
    let file = File::parse(&file, &layout).unwrap();
    let mut owned = Owned::load(file.snapshot(), &file).unwrap();
    for (first, wrong) in [(16, false), (17, false), (18, true), (23, true)] {
        owned.snapshot.sequences[0].cells[0].extents[0].live = 0xff_ffff & !((1 << first) - 1);
        let bytes = export(&owned, &[], &layout, Form::Session, &Options::default()).unwrap();
        let wanted = Error::Window { cache: 1, sequence: 0, found: Pos(first), wanted: Pos(17) };
        assert_eq!(File::parse(&bytes, &layout).err(), wrong.then_some(wanted));
    }
}

#[test]
fn parts_that_end_at_different_positions_are_refused() {
    let mut bytes = golden("falcon_h1.f16.seq").unwrap();
    let end = bytes.len();
    // The state's position stands before two counts, and rows of four layers.
    let states = 16 + 4 * (12 + 576 * 4) + 4 * (12 + 2048 * 4);
    put(&mut bytes, end - states, 22);
    let (section, sequence) = (Section::States, 0);
    let (found, wanted) = (Some(Pos(22)), Some(Pos(23)));
    assert_eq!(refused(&bytes, &falcon_h1()), Error::Ends { section, sequence, found, wanted });
}

#[test]
fn other_models_versions_and_types_are_told_apart() {
    let bytes = golden("llama.f16.state").unwrap();
    let error = refused(&bytes, &Layout { architecture: "qwen3".into(), ..llama() });
    assert_eq!(
        error.to_string(),
        r#"header: the session at byte 112 is of architecture "llama", the model of "qwen3""#
    );
    let narrow = attention("llama", vec![cells(Sees::All, &[0, 1, 2, 3], 8)], vec![Some(0)]);
    assert!(matches!(refused(&bytes, &narrow), Error::Field { field: "bytes of a cell's keys", .. }));
    let short = attention("llama", vec![cells(Sees::All, &[0, 1, 2], 16)], vec![Some(0)]);
    let error = refused(&bytes, &short);
    assert!(matches!(error, Error::Field { field: "layers", found: 4, wanted: Wanted::Exactly(3), .. }));
    assert!(File::parse(&bytes, &falcon_h1()).is_err());
    let mut old = bytes.clone();
    for version in [9, 12] {
        put(&mut old, 4, version);
        let wanted = Wanted::Between(10, 12);
        let (section, found) = (Section::Header, version.into());
        assert_eq!(
            refused(&old, &llama()),
            Error::Field { section, field: "version", offset: 4, found, wanted }
        );
    }
    let data = 12 + 24 * 4 + 9 + 8 + 24 * 12;
    for (at, field, number) in [
        (data, "whether values are transposed", 2),
        (data + 8, "rotation of keys", 64),
        (data + 12, "rotation of values", 64),
        (data + 16, "type", 8),
    ] {
        let mut other = bytes.clone();
        put(&mut other, at, number);
        match refused(&other, &llama()) {
            Error::Field { field: found, offset, .. } => assert_eq!((found, offset), (field, at as u64)),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn every_cut_and_every_addition_is_refused() {
    let models = [
        ("llama.f16.seq", llama()),
        ("gemma3.flash_f16.seq", gemma3()),
        ("mamba2.f32.seq", mamba2()),
        ("llama.two_seq_unified_f32.state", llama()),
        ("falcon_h1.two_seq_f32.state", falcon_h1()),
    ];
    for (name, layout) in models {
        let mut bytes = golden(name).unwrap();
        // All of the small numbers, and some of the long rows between them.
        let step = |end: usize| if end < 2000 { 1 } else { 97 };
        let mut end = 0;
        while end < bytes.len() {
            let error = refused(&bytes[..end], &layout);
            assert!(matches!(error, Error::Truncated { .. }), "{name} cut at {end}: {error}");
            end += step(end);
        }
        bytes.push(0);
        let offset = bytes.len() as u64 - 1;
        assert_eq!(refused(&bytes, &layout), Error::Trailing { offset, n_bytes: 1 }, "{name}");
    }
}

/// Return a flipped bit among the numbers is an error, or a file that could have been written:
/// nothing says which tokens were meant, and rows have no checksum.
#[test]
fn every_flipped_bit_is_an_error_or_a_sound_snapshot() {
    for (name, layout) in
        [("llama.f16.seq", llama()), ("gemma3.f16.state", gemma3()), ("mamba2.f32.state", mamba2())]
    {
        let mut bytes = golden(name).unwrap();
        for bit in 0..8 * 1200 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(file) = File::parse(&bytes, &layout) {
                assert_eq!(file.snapshot().check(), Ok(()), "{name} bit {bit}");
                Owned::load(file.snapshot(), &file).unwrap();
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Each of many sequences claims its own choice of a few cells: as blocks they would be many times
/// the file.
#[test]
fn cells_shared_across_the_grain_are_refused() {
    let layout = attention("llama", vec![cells(Sees::All, &[0], 64)], vec![Some(0)]);
    let mut bytes = vec![];
    let mut put = |number: u32| bytes.extend(number.to_le_bytes());
    [SESSION_MAGIC, SESSION_VERSION, 0, 5].into_iter().for_each(&mut put);
    bytes.extend(b"llama");
    let mut put = |number: u32| bytes.extend(number.to_le_bytes());
    // Two cells at each of 320 positions; sequence n takes the second where bit p of n is set.
    let (n_pos, n_sequences) = (320u32, 64u32);
    [1, 2 * n_pos].into_iter().for_each(&mut put);
    for pos in 0..n_pos {
        for second in [0, 1] {
            let ids: Vec<u32> = (0..n_sequences).filter(|n| (n >> (pos % 6)) & 1 == second).collect();
            put(pos);
            put(ids.len() as u32);
            ids.into_iter().for_each(&mut put);
        }
    }
    [0, 1, 0, 0].into_iter().for_each(&mut put);
    for _ in 0..2 {
        [0, 512, 0].into_iter().for_each(&mut put);
        (0..2 * n_pos * 128).for_each(|_| put(0));
    }
    let error = refused(&bytes, &layout);
    assert!(matches!(error, Error::Scattered { limit: 148, .. }), "{error}");
}
