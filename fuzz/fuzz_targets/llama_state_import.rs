//! Fuzz the readers of llama.cpp's session and sequence files with bytes and with files that are
//! almost valid.
//!
//! If the first byte is zero, the second chooses a layout and the rest is the file. Any other input
//! is a recipe: a layout, a file of arbitrary cells and states for it, and a few changes. The
//! reader must refuse the file with an error that can be printed, or return a sound snapshot that
//! survives writing and reading. Either way it may allocate no more than a fixed multiple of the
//! input.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::{CellLayer, Group, Owned, Sees, Shape, Snapshot, StateLayer};
use backstitch_kv::{StateTensor, Window};
use backstitch_models::llama_files::{Error, File, Form, Layout, Order, Piece, Recurrent, Row, export};
use backstitch_testing::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Bytes of lists that reading may allocate for each byte of the file, growing lists counted each
/// time: a sequence of a cell takes 4 bytes of file and an entry in two lists.
const LISTS_PER_BYTE: u64 = 32;
/// Bytes allocated for the 256 sequences that a file may claim with one number, at two blocks each.
const SLACK: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    match input {
        [0, which, file @ ..] => check(file, &known(*which)),
        _ => {
            let mut recipe = Unstructured::new(input);
            if let Ok((layout, file)) = almost_valid(&mut recipe) {
                check(&file, &layout);
            }
        }
    }
});

fn check(bytes: &[u8], layout: &Layout) {
    let (parsed, tally) = ALLOCATOR.during_here(|| File::parse(bytes, layout));
    let limit = SLACK + LISTS_PER_BYTE * bytes.len() as u64;
    assert!(tally.bytes <= limit, "{} bytes allocated for {}", tally.bytes, bytes.len());
    match parsed {
        Ok(file) => check_file(&file, layout),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Assert that the snapshot is sound and that writing and reading it returns the same.
fn check_file(file: &File<'_>, layout: &Layout) {
    assert_eq!(file.snapshot().check(), Ok(()));
    let owned = Owned::load(file.snapshot(), file).expect("a file that was read has all its bytes");
    let written = match export(&owned, file.tokens(), layout, file.form(), &file.options()) {
        // A cache without layers would list more positions than there is room for.
        Err(Error::Unsupported { .. }) => return,
        written => written.expect("what was read can be written"),
    };
    let again = File::parse(&written, layout).expect("what was written can be read");
    // A file of one sequence may list more of a window than is seen; writing leaves that out.
    // States are numbered in the order in which they come.
    if file.form() == Form::Session {
        let held = |snapshot: &Snapshot| -> Vec<_> {
            snapshot.sequences.iter().map(|sequence| (sequence.cells.clone(), sequence.last)).collect()
        };
        assert_eq!(held(again.snapshot()), held(file.snapshot()));
        assert_eq!(
            (&again.snapshot().blocks, again.snapshot().n_states),
            (&file.snapshot().blocks, file.snapshot().n_states)
        );
    }
    let owned = Owned::load(again.snapshot(), &again).expect("as before");
    let twice = export(&owned, again.tokens(), layout, again.form(), &again.options());
    assert!(twice.as_ref() == Ok(&written));
}

/// Return the layout of one of the models whose files are in the corpus.
fn known(which: u8) -> Layout {
    let cells = |sees, layers: &[u32], d_k| {
        let layers = layers.iter().map(|&layer| CellLayer { layer, n_head_kv: 2, d_k, d_v: d_k }).collect();
        Group { sees, k_type: CellType::F16, v_type: CellType::F16, layers }
    };
    let window = Sees::Window(Window::Sliding(8));
    let (architecture, groups, caches, lens) = match which % 4 {
        0 => ("llama", vec![cells(Sees::All, &[0, 1, 2, 3], 16)], vec![Some(0)], vec![]),
        1 => {
            let groups = vec![cells(window, &[0, 1, 2, 3, 4, 6], 24), cells(Sees::All, &[5], 24)];
            ("gemma3", groups, vec![Some(1), Some(0)], vec![])
        }
        2 => ("mamba2", vec![], vec![], vec![[576, 2048]; 4]),
        _ => ("falcon-h1", vec![cells(Sees::All, &[0, 1, 2, 3], 24)], vec![Some(0)], vec![[576, 2048]; 4]),
    };
    let piece = [
        Piece { row: Row::R, order: Order::Transposed { rows: 3, cols: 192 } },
        Piece { row: Row::S, order: Order::Same },
    ];
    let layers = lens.iter().zip(0..).map(|(lens, layer)| StateLayer {
        layer,
        parts: lens.iter().map(|&len| StateTensor { len, input: 1 }).collect(),
    });
    let shape = Shape { groups, recurrent: layers.collect() };
    let pieces = lens.iter().map(|_| piece.to_vec()).collect();
    let recurrent = (!lens.is_empty()).then_some(Recurrent { n_layer: 4, pieces });
    Layout { architecture: architecture.into(), shape, caches, recurrent, axes: false }
}

/// The part of a recipe that describes a layout.
#[derive(Arbitrary, Debug)]
struct Sizes {
    full_layers: u8,
    window_layers: u8,
    window: u8,
    chunked: bool,
    states: u8,
    heads: u8,
    d: u8,
    axes: bool,
}

impl Sizes {
    fn layout(&self) -> Layout {
        let layer = |layer: u8| CellLayer {
            layer: layer.into(),
            n_head_kv: 1 + u32::from(self.heads % 2),
            d_k: 1 + u32::from(self.d % 3),
            d_v: 1 + u32::from(self.d / 16 % 3),
        };
        let types = (CellType::F32, CellType::F32);
        let group = |sees, layers: Vec<CellLayer>| Group { sees, k_type: types.0, v_type: types.1, layers };
        let (n_full, n_window) = (self.full_layers % 3, self.window_layers % 3);
        let size = 1 + u32::from(self.window % 48);
        let window = if self.chunked { Window::Chunked(size) } else { Window::Sliding(size) };
        let mut shape = Shape::default();
        let mut caches = Vec::new();
        if n_window > 0 {
            shape.groups.push(group(Sees::Window(window), (0..n_window).map(layer).collect()));
            caches.push(Some(0));
        }
        if n_full > 0 {
            caches.insert(0, Some(shape.groups.len()));
            shape.groups.push(group(Sees::All, (3..3 + n_full).map(layer).collect()));
        } else if n_window > 0 {
            caches.insert(0, None);
        }
        let mut recurrent = None;
        if self.states % 4 > 0 {
            let n = self.states % 4;
            let parts = vec![StateTensor { len: 6, input: 1 }, StateTensor { len: 4, input: 1 }];
            let parts = &parts[..1 + usize::from(self.states / 4 % 2)];
            let pieces = [
                Piece { row: Row::R, order: Order::Transposed { rows: 2, cols: 2 } },
                Piece { row: Row::S, order: Order::Same },
            ];
            shape.recurrent =
                (0..n).map(|layer| StateLayer { layer: layer.into(), parts: parts.to_vec() }).collect();
            let pieces = (0..n).map(|_| pieces[..parts.len()].to_vec()).collect();
            recurrent = Some(Recurrent { n_layer: 6, pieces });
        }
        Layout { architecture: "arch".into(), shape, caches, recurrent, axes: self.axes }
    }
}

/// The part of a recipe that describes a file.
#[derive(Arbitrary, Debug)]
struct Content {
    form: u8,
    n_tokens: u8,
    server: bool,
    streams: u8,
    v_trans: bool,
    kinds: [u8; 2],
    /// Sequences, as (first position, number of positions, other sequence, number of positions
    /// shared with the other).
    sequences: Vec<(u8, u8, u8, u8)>,
    changes: Vec<Change>,
}

/// A change to a valid file.
#[derive(Arbitrary, Debug)]
enum Change {
    Bit { at: u16, bit: u8 },
    Word { at: u16, value: Word },
    Cut { at: u16 },
    Append { value: u8 },
}

/// A number that readers stumble over.
#[derive(Arbitrary, Debug)]
enum Word {
    Small(u8),
    NearMax(u8),
    PowerOfTwo(u8),
    Any(u32),
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        let len = file.len().max(1);
        match *self {
            Change::Bit { at, bit } => {
                file.iter_mut().skip(usize::from(at) % len).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            Change::Word { at, ref value } => {
                let value = match *value {
                    Word::Small(n) => n.into(),
                    Word::NearMax(n) => u32::MAX - u32::from(n),
                    Word::PowerOfTwo(n) => 1 << (n % 32),
                    Word::Any(n) => n,
                };
                // Numbers stand at multiples of four, except behind an odd number of 2-byte rows.
                let at = usize::from(at) % len / 4 * 4;
                file.iter_mut().skip(at).zip(value.to_le_bytes()).for_each(|(old, new)| *old = new);
            }
            Change::Cut { at } => file.truncate(usize::from(at) % len),
            Change::Append { value } => file.push(value),
        }
    }
}

/// A cell: its position and the sequences it belongs to.
type Cell = (u32, Vec<u32>);

fn almost_valid(recipe: &mut Unstructured<'_>) -> arbitrary::Result<(Layout, Vec<u8>)> {
    let layout = recipe.arbitrary::<Sizes>()?.layout();
    let content: Content = recipe.arbitrary()?;
    let mut file = Vec::new();
    let is_session = content.form % 3 == 0;
    head(&content, &mut file);
    let n_sequences = if is_session { content.sequences.len().min(6) } else { 1 };
    let sequences = &content.sequences[..n_sequences.min(content.sequences.len())];
    for &group in &layout.caches {
        cache(&layout, group, &content, sequences, &mut file);
    }
    if let Some(recurrent) = &layout.recurrent {
        states(&layout, recurrent.n_layer, sequences, is_session, &mut file);
    }
    content.changes.iter().take(4).for_each(|change| change.apply(&mut file));
    Ok((layout, file))
}

fn put(file: &mut Vec<u8>, number: u32) {
    file.extend(number.to_le_bytes());
}

fn head(content: &Content, file: &mut Vec<u8>) {
    let form = content.form % 3;
    match form {
        0 => [0x6767_736e, 11].iter().for_each(|&number| put(file, number)),
        1 => [0x6767_7371, 4].iter().for_each(|&number| put(file, number)),
        _ => [0xaf14_3cd8, 0].iter().for_each(|&number| put(file, number)),
    }
    if form < 2 {
        let n = u32::from(content.n_tokens % 32);
        let mut words: Vec<u32> = (0..n).collect();
        if content.server {
            words.splice(0..0, [u32::MAX, 1, n]);
            words.push(0);
        }
        put(file, words.len() as u32);
        words.iter().for_each(|&word| put(file, word));
    }
    if form == 0 {
        // Four letters, so that all numbers after them stand at multiples of four.
        put(file, 4);
        file.extend(b"arch");
    }
}

/// Return the cells of all sequences: each sequence has its own, except for the first cells of
/// some, which belong to another sequence as well.
fn cells(sequences: &[(u8, u8, u8, u8)]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (number, &(first, n, of, shared)) in (0u32..).zip(sequences) {
        let (first, n) = (u32::from(first % 40), u32::from(n % 80));
        for pos in first..first + n {
            let is_shared = pos < first + u32::from(shared % 80);
            let known = cells.iter_mut().find(|cell| {
                is_shared && cell.0 == pos && cell.1.contains(&u32::from(of)) && !cell.1.contains(&number)
            });
            match known {
                Some(cell) => cell.1.push(number),
                None => cells.push((pos, vec![number])),
            }
        }
    }
    cells
}

fn cache(
    layout: &Layout,
    group: Option<usize>,
    content: &Content,
    sequences: &[(u8, u8, u8, u8)],
    file: &mut Vec<u8>,
) {
    let n_stream = if content.streams % 4 == 0 { 6 } else { 1 };
    put(file, n_stream);
    let all = cells(sequences);
    for stream in 0..n_stream {
        let of_stream = |cell: &Cell| -> Option<Cell> {
            let is_own = n_stream == 1 || cell.1.contains(&stream);
            is_own.then(|| (cell.0, if n_stream == 1 { cell.1.clone() } else { vec![stream] }))
        };
        let cells: Vec<Cell> = all.iter().filter_map(of_stream).collect();
        put(file, cells.len() as u32);
        if cells.is_empty() {
            continue;
        }
        for (pos, ids) in &cells {
            put(file, *pos);
            put(file, ids.len() as u32);
            if layout.axes {
                [*pos, *pos, 7].iter().for_each(|&number| put(file, number));
            }
            ids.iter().for_each(|&id| put(file, id));
        }
        rows(group.and_then(|group| layout.shape.groups.get(group)), content, cells.len(), file);
    }
}

fn rows(group: Option<&Group>, content: &Content, n_cells: usize, file: &mut Vec<u8>) {
    let layers = group.map_or(&[][..], |group| &group.layers);
    [content.v_trans.into(), layers.len() as u32, 0, 0].iter().for_each(|&number| put(file, number));
    let kind = |which: usize| [(0, 4), (1, 2), (30, 2)][usize::from(content.kinds[which] % 3)];
    for (which, layer) in layers.iter().map(|layer| (0, layer)).chain(layers.iter().map(|layer| (1, layer))) {
        let (number, bytes) = kind(which);
        let width = layer.n_head_kv * if which == 0 { layer.d_k } else { layer.d_v };
        put(file, number);
        if which == 1 && content.v_trans {
            put(file, bytes);
            put(file, width);
        } else {
            file.extend(u64::from(width * bytes).to_le_bytes());
        }
        let n_bytes = n_cells * (width * bytes) as usize;
        file.extend((0..n_bytes).map(|index| index as u8));
    }
}

fn states(
    layout: &Layout,
    n_layer: u32,
    sequences: &[(u8, u8, u8, u8)],
    is_session: bool,
    file: &mut Vec<u8>,
) {
    let ends = sequences.iter().zip(0u32..).filter(|(sequence, _)| sequence.1 % 80 > 0);
    let ends: Vec<(u32, u32)> =
        ends.map(|(&(first, n, ..), id)| (u32::from(first % 40) + u32::from(n % 80) - 1, id)).collect();
    put(file, ends.len() as u32);
    for &(pos, id) in &ends {
        put(file, pos);
        put(file, is_session.into());
        if is_session {
            put(file, id);
        }
    }
    [0, n_layer].iter().for_each(|&number| put(file, number));
    for row in [0, 1] {
        for layer in &layout.shape.recurrent {
            let len = layer.parts.get(row).map_or(0, |part| part.len);
            put(file, 0);
            file.extend((4 * len as u64).to_le_bytes());
            file.extend((0..4 * len * ends.len()).map(|index| index as u8));
        }
    }
}
