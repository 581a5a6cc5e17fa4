use super::*;
use crate::ids::Pos;
use crate::layer::{StateTensor, Window};
use crate::snapshot::{
    Block, CellLayer, Cells, Checkpoint, CheckpointRef, Group, Owned, Sees, Sequence, Shape, State,
    StateLayer,
};
use crate::storage::header::{Fingerprint, Header, Scope};
use backstitch_core::cell::CellLayout;
use backstitch_core::cell::{BlockEntry, CellType};
use std::string::{String, ToString};

const DOCUMENT: &str = include_str!("../../../../docs/state-format.md");

/// Return the fields of a record in the document: their names and bytes.
fn record(name: &str) -> Vec<(String, usize)> {
    let heading = std::format!("Record `{name}`");
    let (_, rest) = DOCUMENT.split_once(&heading).unwrap_or_else(|| panic!("{name} is not documented"));
    let table = rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_string(), cells[2].parse().unwrap())
    });
    rows.collect()
}

fn bytes_of(name: &str) -> usize {
    record(name).iter().map(|field| field.1).sum()
}

/// Return where a field lies in its record.
fn offset(name: &str, field: &str) -> usize {
    let fields = record(name);
    let n = fields.iter().position(|known| known.0 == field).unwrap();
    fields[..n].iter().map(|field| field.1).sum()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn layer() -> CellLayer {
    CellLayer { layer: 3, n_head_kv: 2, d_k: 4, d_v: 8 }
}

fn sample_shape() -> Shape {
    let group = |sees| Group { sees, k_type: CellType::F16, v_type: CellType::BF16, layers: vec![layer()] };
    let parts = vec![StateTensor { len: 5, input: 2 }];
    Shape {
        groups: vec![group(Sees::All), group(Sees::Window(Window::Sliding(40)))],
        recurrent: vec![StateLayer { layer: 7, parts }],
    }
}

/// Return a sequence of 40 tokens with one checkpoint.
fn sample() -> Snapshot {
    let block = |n: usize, live: u32| Block {
        live,
        pos: core::array::from_fn(|i| if live >> i & 1 == 1 { Pos((n * 32 + i) as i32) } else { Pos::ZERO }),
    };
    let blocks = vec![block(0, ALL), block(1, 0xff)];
    let extents = vec![BlockEntry { block: 0, live: ALL }, BlockEntry { block: 1, live: 0xff }];
    let cells = Cells { extents, ..Cells::default() };
    let state = Some(State { state: Some(0), first: Pos::ZERO });
    let at = Cells { extents: vec![BlockEntry { block: 0, live: ALL }], ..Cells::default() };
    let checkpoint = Checkpoint {
        pinned: true,
        floor: false,
        journal: Some(0),
        cells: vec![None, Some(at)],
        state: Some(State { state: Some(1), first: Pos::ZERO }),
    };
    let line = vec![CheckpointRef { checkpoint: 0, pos: Pos(32), n_rows: 3 }];
    Snapshot {
        shape: sample_shape(),
        blocks: vec![blocks.clone(), blocks],
        n_states: 2,
        journals: vec![3],
        checkpoints: vec![checkpoint],
        sequences: vec![Sequence {
            cells: vec![cells.clone(), cells],
            state,
            last: Pos(39),
            checkpoints: line,
        }],
    }
}

fn encoded(snapshot: &Snapshot) -> Vec<u8> {
    encode::snapshot(snapshot, &pieces::plan(snapshot, None)).unwrap()
}

#[test]
fn records_are_as_long_as_the_document_says() {
    let whole = encode_shape(&sample_shape()).len();
    assert_eq!(
        whole,
        8 + 2 * (bytes_of("group") + bytes_of("layer")) + bytes_of("recurrent") + bytes_of("part")
    );
    let without = |change: fn(&mut Snapshot)| {
        let mut snapshot = sample();
        change(&mut snapshot);
        encoded(&sample()).len() - encoded(&snapshot).len()
    };
    assert_eq!(without(|snapshot| _ = snapshot.sequences[0].checkpoints.pop()), bytes_of("mark"));
    assert_eq!(without(|snapshot| _ = snapshot.sequences[0].cells[0].extents.pop()), bytes_of("extent"));
    assert_eq!(without(|snapshot| snapshot.sequences[0].state = None), bytes_of("state"));
    assert_eq!(
        without(|snapshot| snapshot.checkpoints[0].cells[1] = None),
        bytes_of("cells") + bytes_of("extent")
    );
    // With its piece: the piece's cells, and where the block's pieces end.
    assert_eq!(without(|snapshot| _ = snapshot.blocks[0].pop()), bytes_of("block") + 8);
    let checkpoint = bytes_of("checkpoint") + bytes_of("state") + 2 + bytes_of("cells") + bytes_of("extent");
    assert_eq!(without(|snapshot| drop(snapshot.checkpoints.pop())), checkpoint);
    let sequence = bytes_of("sequence") + bytes_of("state") + bytes_of("mark");
    let cells = 2 * (bytes_of("cells") + 2 * bytes_of("extent"));
    assert_eq!(without(|snapshot| drop(snapshot.sequences.pop())), sequence + cells);
}

#[test]
fn fields_lie_where_the_document_says() {
    let shape = encode_shape(&sample_shape());
    let group = 4 + bytes_of("group") + bytes_of("layer");
    assert_eq!(shape[group + offset("group", "sees")], 1);
    assert_eq!(u32_at(&shape, group + offset("group", "window")), 40);
    assert_eq!(shape[group + offset("group", "k_type")..][..2], [1, 30]);
    let at = group + bytes_of("group");
    let numbers =
        ["layer", "n_head_kv", "d_k", "d_v"].map(|field| u32_at(&shape, at + offset("layer", field)));
    assert_eq!(numbers, [3, 2, 4, 8]);
    let snapshot = encoded(&sample());
    let block = 8 + bytes_of("block");
    assert_eq!(u32_at(&snapshot, block + offset("block", "live")), 0xff);
    assert_eq!(u32_at(&snapshot, block + offset("block", "base")), 32);
    let mark = snapshot.len() - bytes_of("mark");
    let numbers =
        ["checkpoint", "pos", "n_rows"].map(|field| u32_at(&snapshot, mark + offset("mark", field)));
    assert_eq!(numbers, [0, 32, 3]);
    // In front of the marks: the last position and their count.
    let last = mark - (bytes_of("sequence") - offset("sequence", "last"));
    assert_eq!(u32_at(&snapshot, last), 39);
}

#[test]
fn what_a_group_can_see_is_what_the_document_lists() {
    let row = DOCUMENT.lines().find(|line| line.starts_with("| sees |")).unwrap();
    let listed = row.rsplit('|').nth(1).unwrap().split(", ").map(|text| text.split_whitespace().next());
    let listed: Vec<u8> = listed.map(|number| number.unwrap().parse().unwrap()).collect();
    let mut shape = encode_shape(&sample_shape());
    let (sees, window) = (4 + offset("group", "sees"), 4 + offset("group", "window"));
    let mut is_read = |kind: u8| {
        [0, 1].into_iter().any(|size| {
            (shape[sees], shape[window]) = (kind, size);
            encode::read_shape(&shape).is_ok()
        })
    };
    assert_eq!((0..=u8::MAX).filter(|kind| is_read(*kind)).collect::<Vec<_>>(), listed);
}

#[test]
fn pieces_that_do_not_fit_are_an_error_at_the_description() {
    let mut pieces = pieces::plan(&sample(), None);
    pieces[1].masks[1] = 0x1ff;
    let (shape, description) = (encode_shape(&sample_shape()), encode::snapshot(&sample(), &pieces).unwrap());
    let mut bytes = Vec::new();
    let header = Header { fingerprint: Fingerprint([7; 32]), scope: Scope::Sequence };
    let mut writer = Writer::new(&mut bytes, header).unwrap();
    writer.section(SHAPE, SNAPSHOT_VERSION, true, 0, &[&shape]).unwrap();
    writer.section(IMAGE, SNAPSHOT_VERSION, true, 0, &[&description]).unwrap();
    writer.finish().unwrap();
    let container = Container::parse(&bytes).unwrap();
    let error = StoredSnapshot::open(&container).unwrap_err();
    let wanted = container.require(IMAGE, 0).unwrap().offset;
    assert!(
        matches!(error, Error::Malformed { offset, found: 0x1ff, wanted: 0xff, .. } if offset == wanted),
        "{error:?}"
    );
}

#[test]
fn tags_are_those_of_the_document() {
    for (tag, version) in IMAGE_TAGS {
        assert!(DOCUMENT.contains(&std::format!("| `{tag}` |")), "{tag} is not documented");
        assert_eq!(version, 2);
    }
}

#[test]
fn descriptions_come_back_and_bytes_too_many_or_too_few_are_errors() {
    let (snapshot, shape) = (sample(), encode_shape(&sample_shape()));
    let bytes = encoded(&snapshot);
    let read = |bytes: &[u8]| encode::read_snapshot(bytes, sample_shape(), Room::of(0));
    assert_eq!(read(&bytes).unwrap(), (snapshot.clone(), pieces::plan(&snapshot, None)));
    assert_eq!(snapshot.check(), Ok(()));
    for n in 0..bytes.len() {
        assert!(read(&bytes[..n]).is_err(), "{n}");
    }
    assert!(read(&[&bytes[..], &[0]].concat()).is_err());
    let read = |bytes: &[u8]| encode::read_shape(bytes);
    assert_eq!(read(&shape).unwrap(), sample_shape());
    for n in 0..shape.len() {
        assert!(read(&shape[..n]).is_err(), "{n}");
    }
}

/// Return the sample with numbers for bytes.
fn owned() -> Owned {
    let snapshot = sample();
    let layouts: Vec<CellLayout> = snapshot.shape.groups[0].layouts().collect();
    let block = |number: usize| -> Vec<Vec<u8>> {
        let bytes =
            |layout: &CellLayout| (0..layout.block_bytes()).map(|i| (i * 7 + number * 31) as u8).collect();
        layouts.iter().map(bytes).collect()
    };
    let blocks = snapshot.blocks.iter().map(|blocks| (0..blocks.len()).map(block).collect()).collect();
    let numbers = |n: usize, from: usize| (0..n).map(|i| (i + from) as f32).collect::<Vec<f32>>();
    let states = vec![vec![numbers(5, 1)], vec![numbers(5, 10)]];
    Owned { snapshot, blocks, states, journals: vec![vec![numbers(6, 100)]] }
}

fn file_of(content: &Owned) -> Vec<u8> {
    let header = Header { fingerprint: Fingerprint([7; 32]), scope: Scope::Sequence };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, header).unwrap();
    write_snapshot(&mut writer, content, None).unwrap();
    writer.finish().unwrap();
    bytes
}

#[test]
fn bytes_come_back_but_those_of_cells_that_nobody_has() {
    let content = owned();
    let bytes = file_of(&content);
    let container = Container::parse(&bytes).unwrap();
    let stored = StoredSnapshot::open(&container).unwrap();
    let back = Owned::load(stored.snapshot(), &stored).unwrap();
    assert_eq!(
        (&back.snapshot, &back.states, &back.journals),
        (&content.snapshot, &content.states, &content.journals)
    );
    assert_eq!(back.blocks[0][0], content.blocks[0][0]);
    let layout = content.snapshot.shape.groups[0].layouts().next().unwrap();
    let (mut a, mut b) = (vec![0; layout.cell_bytes()], vec![0; layout.cell_bytes()]);
    for cell in 0..32 {
        layout.take_cell(&content.blocks[0][1][0], cell, &mut a);
        layout.take_cell(&back.blocks[0][1][0], cell, &mut b);
        assert_eq!(cell < 8, a == b, "{cell}");
        assert!(cell < 8 || b.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn sections_that_are_missing_or_have_other_lengths_are_named() {
    let mut content = owned();
    content.states[1][0].pop();
    let bytes = file_of(&content);
    let error = StoredSnapshot::open(&Container::parse(&bytes).unwrap()).unwrap_err();
    assert!(
        matches!(error, Error::Malformed { section: STATE, what: "length", found: 16, wanted: 20, .. }),
        "{error:?}"
    );
    let mut content = owned();
    content.snapshot.n_states = 3;
    content.states.push(Vec::new());
    let bytes = file_of(&content);
    let error = StoredSnapshot::open(&Container::parse(&bytes).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Malformed { section: STATE, found: 0, .. }), "{error:?}");
}
