//! Files that llama.cpp wrote, read and written back; files made for the occasion; and files that
//! nobody should write.

mod damage;
mod made;

use super::*;
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::{CellLayer, Content, Group, Owned, Sees, Shape, StateLayer};
use backstitch_kv::{Pos, Token};
use backstitch_kv::{StateTensor, Window};
use std::string::String;
use std::vec::Vec;
use std::{format, fs, vec};

const CASES: [&str; 5] = ["f32", "f16", "two_seq_f32", "two_seq_unified_f32", "flash_f16"];

fn golden(name: &str) -> Option<Vec<u8>> {
    fs::read(format!("{}/../goldens/state/{name}", env!("CARGO_MANIFEST_DIR"))).ok()
}

fn cells(sees: Sees, layers: &[u32], d: u32) -> Group {
    let layer = |&layer: &u32| CellLayer { layer, n_head_kv: 2, d_k: d, d_v: d };
    let layers = layers.iter().map(layer).collect();
    Group { sees, k_type: CellType::F32, v_type: CellType::F32, layers }
}

fn attention(architecture: &str, groups: Vec<Group>, caches: Vec<Option<usize>>) -> Layout {
    let shape = Shape { groups, recurrent: Vec::new() };
    Layout { architecture: architecture.into(), shape, caches, recurrent: None, axes: false }
}

/// Two pieces in each of `n_layer` layers: a convolution of 192 channels over 4 tokens, and 2,048
/// numbers of a scan.
fn with_states(layout: Layout, n_layer: u32) -> Layout {
    let parts = vec![StateTensor { len: 576, input: 192 }, StateTensor { len: 2048, input: 200 }];
    let layer = |layer| StateLayer { layer, parts: parts.clone() };
    let conv = Piece { row: Row::R, order: Order::Transposed { rows: 3, cols: 192 } };
    let scan = Piece { row: Row::S, order: Order::Same };
    let recurrent = Recurrent { n_layer, pieces: vec![vec![conv, scan]; n_layer as usize] };
    let shape = Shape { recurrent: (0..n_layer).map(layer).collect(), ..layout.shape };
    Layout { shape, recurrent: Some(recurrent), ..layout }
}

fn llama() -> Layout {
    attention("llama", vec![cells(Sees::All, &[0, 1, 2, 3], 16)], vec![Some(0)])
}

/// Layers with the window come first in the model and last in a file.
fn gemma3() -> Layout {
    let windowed = cells(Sees::Window(Window::Sliding(8)), &[0, 1, 2, 3, 4, 6], 24);
    attention("gemma3", vec![windowed, cells(Sees::All, &[5], 24)], vec![Some(1), Some(0)])
}

fn mamba2() -> Layout {
    with_states(attention("mamba2", vec![], vec![]), 4)
}

fn falcon_h1() -> Layout {
    let groups = vec![cells(Sees::All, &[0, 1, 2, 3], 24)];
    with_states(attention("falcon-h1", groups, vec![Some(0)]), 4)
}

/// Name, layout and bytes of all files.
fn goldens() -> impl Iterator<Item = (String, Layout, Vec<u8>)> {
    let models = [("llama", llama()), ("gemma3", gemma3()), ("mamba2", mamba2()), ("falcon_h1", falcon_h1())];
    models.into_iter().flat_map(|(model, layout)| {
        CASES.into_iter().flat_map(move |case| {
            let layout = layout.clone();
            ["state", "seq"].into_iter().filter_map(move |kind| {
                let name = format!("{model}.{case}.{kind}");
                Some((name.clone(), layout.clone(), golden(&name)?))
            })
        })
    })
}

#[test]
fn files_of_llama_cpp_are_written_back_byte_for_byte() {
    let mut n = 0;
    for (name, layout, bytes) in goldens() {
        let file = File::parse(&bytes, &layout).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.snapshot().check(), Ok(()), "{name}");
        assert_eq!(file.form(), if name.ends_with("seq") { Form::Sequence } else { Form::Session });
        let owned = Owned::load(file.snapshot(), &file).unwrap();
        let written = export(&owned, file.tokens(), &layout, file.form(), &file.options());
        let written = written.unwrap_or_else(|error| panic!("{name}: {error}"));
        // Here the cells of one sequence stand behind those of the other; ours go by position.
        if name == "falcon_h1.two_seq_unified_f32.state" {
            let again = File::parse(&written, &layout).unwrap();
            assert!(Owned::load(again.snapshot(), &again).unwrap() == owned && written.len() == bytes.len());
        } else {
            assert!(written == bytes, "{name}");
        }
        n += 1;
    }
    assert_eq!(n, 34);
}

#[test]
fn what_files_hold_is_what_llama_cpp_was_asked_to_save() {
    for (name, layout, bytes) in goldens() {
        let file = File::parse(&bytes, &layout).unwrap();
        let is_session = file.form() == Form::Session;
        let snapshot = file.snapshot();
        assert_eq!(
            snapshot.sequences.len(),
            if is_session && name.contains("two") { 2 } else { 1 },
            "{name}"
        );
        assert_eq!(file.tokens().len(), 24);
        let n_stream = if name.contains("two_seq_f32") && !layout.caches.is_empty() { 2 } else { 1 };
        assert_eq!(file.options().n_stream, n_stream, "{name}");
        for sequence in &snapshot.sequences {
            for (group, cells) in snapshot.shape.groups.iter().zip(&sequence.cells) {
                let from = if group.sees != Sees::All && !is_session { 16 } else { 0 };
                let index = snapshot.shape.groups.iter().position(|other| other == group).unwrap();
                let positions: Vec<i32> = cells.positions(&snapshot.blocks[index]).map(|pos| pos.0).collect();
                assert_eq!(positions, (from..24).collect::<Vec<i32>>(), "{name}");
                assert_eq!((cells.whole_from, cells.start), (Pos(from), Pos(0)));
                let kind = if name.contains("f16") { CellType::F16 } else { CellType::F32 };
                assert_eq!((group.k_type, group.v_type), (kind, kind), "{name}");
            }
            assert_eq!(sequence.state.is_some(), layout.recurrent.is_some());
            assert_eq!(sequence.last, Pos(if layout.recurrent.is_some() { 23 } else { 0 }));
        }
    }
}

/// llama.cpp wrote them so until it kept how caches are rotated.
#[test]
fn files_of_the_former_version_are_read_alike() {
    for (name, before_cells, version) in [("llama.f16.seq", 8, 3), ("llama.f16.state", 17, 10)] {
        let bytes = golden(name).unwrap();
        let rotations = 12 + 24 * 4 + before_cells + 24 * 12 + 8;
        let mut former = bytes.clone();
        assert_eq!(former.drain(rotations..rotations + 8).collect::<Vec<u8>>(), [0; 8]);
        former[4] = version;
        let (present, former) =
            (File::parse(&bytes, &llama()).unwrap(), File::parse(&former, &llama()).unwrap());
        assert_eq!(present.snapshot(), former.snapshot());
        assert_eq!(present.tokens(), former.tokens());
        let [present, former] = [&present, &former].map(|file| Owned::load(file.snapshot(), file).unwrap());
        assert!(present == former, "{name}");
    }
}

#[test]
fn keys_and_values_are_where_the_layout_says() {
    let bytes = golden("llama.f32.seq").unwrap();
    let layout = llama();
    let file = File::parse(&bytes, &layout).unwrap();
    let owned = Owned::load(file.snapshot(), &file).unwrap();
    let number = |at: usize| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    // Head, tokens, streams and number of cells, cells, four numbers; then type, size and rows of
    // each layer.
    let keys = 12 + 24 * 4 + 8 + 24 * 12 + 16;
    let values = keys + 4 * (12 + 24 * 128);
    let group = &file.snapshot().shape.groups[0];
    let (mut k, mut v) = ([0.0; 32], [0.0; 32]);
    for (layer, cell) in [(0, 0), (2, 17), (3, 23)] {
        let block = owned.block(0, 0)[layer];
        let cells = group.layout(&group.layers[layer]);
        cells.load_k(block, cell, &mut k);
        cells.load_v(block, cell, &mut v);
        for d in 0..32 {
            assert_eq!(k[d], number(keys + layer * (12 + 24 * 128) + 12 + (cell * 32 + d) * 4));
            assert_eq!(v[d], number(values + layer * (12 + 24 * 128) + 12 + (d * 24 + cell) * 4));
        }
    }
}

#[test]
fn convolutions_are_turned_and_scans_are_not() {
    let bytes = golden("mamba2.two_seq_f32.state").unwrap();
    let file = File::parse(&bytes, &mamba2()).unwrap();
    let owned = Owned::load(file.snapshot(), &file).unwrap();
    let number = |at: usize| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    // Head, tokens, name; number of states, states, two numbers.
    let r = 12 + 24 * 4 + 10 + 4 + 2 * 12 + 8;
    let s = r + 4 * (12 + 2 * 576 * 4);
    for (layer, state, tap, channel) in [(0, 0, 0, 0), (1, 1, 2, 191), (3, 1, 1, 50)] {
        let found = owned.state(state)[layer * 2][tap * 192 + channel];
        let at = r + layer * (12 + 2 * 576 * 4) + 12 + (state * 576 + channel * 3 + tap) * 4;
        assert_eq!(found, number(at));
        let found = owned.state(state)[layer * 2 + 1][channel];
        assert_eq!(found, number(s + layer * (12 + 2 * 2048 * 4) + 12 + (state * 2048 + channel) * 4));
    }
}
