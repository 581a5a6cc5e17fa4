//! Reading a state takes at most four times its bytes and 64 MiB, whatever it claims: every length
//! and checksum in these files is right.

use backstitch_core::cell::{BlockEntry, CellType};
use backstitch_kv::io::{self, ReadAt};
use backstitch_kv::snapshot::{
    Block, CellLayer, Cells, Checkpoint, CheckpointRef, Content, Group, Sees, Sequence, Shape, Snapshot,
    Source, State,
};
use backstitch_kv::storage::{
    CELLS, Container, Error, Fingerprint, Header, IMAGE, MAX_READ, SHAPE, Scope, StoredSnapshot, Tag, Writer,
    write_snapshot,
};
use backstitch_kv::{
    AttentionLayer, AttentionSpec, Fit, LayerSpec, Memory, Params, Pos, RollbackParams, SeqId, StateTensor,
    Window,
};
use backstitch_testing::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

const HEADER: Header = Header { fingerprint: Fingerprint([5; 32]), scope: Scope::Sequence };

/// A container of these descriptions and what else `rest` writes.
fn container(shape: &[u8], snapshot: &[u8], rest: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
    writer.section(SHAPE, 1, true, 0, &[shape]).unwrap();
    writer.section(IMAGE, 1, true, 0, &[snapshot]).unwrap();
    rest(&mut writer);
    writer.finish().unwrap();
    bytes
}

/// Bytes that are read piece by piece, as those of a file.
struct Device<'a>(&'a [u8]);

impl ReadAt for Device<'_> {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, io::Error> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// Opens what `bytes` hold as somebody does who reads a file, and gives the error and the most
/// memory that it took.
fn refused(bytes: &[u8]) -> (Error, u64) {
    let device = Device(bytes);
    let open = || StoredSnapshot::open(&Container::open(&device)?).map(drop);
    let (result, peak) = ALLOCATOR.peak_here(open);
    (result.unwrap_err(), peak)
}

fn expect_bounded(name: &str, bytes: &[u8]) {
    let (error, peak) = refused(bytes);
    let bound = 4 * bytes.len() as u64 + (64 << 20);
    assert!(peak <= bound, "{name}: {peak} bytes for {} of file: {error}", bytes.len());
}

/// A count and as many entries.
fn list(n: u32, entry: &[u8]) -> Vec<u8> {
    [&n.to_le_bytes()[..], &entry.repeat(n as usize)].concat()
}

/// No groups and no recurrent layers.
const NO_SHAPE: [u8; 8] = [0; 8];

#[test]
fn lists_of_the_smallest_entries_are_refused_before_they_are_made() {
    let group = [0; 11];
    let groups = [list(5_500_000, &group), vec![0; 4]].concat();
    let recurrent = [vec![0; 4], list(7_500_000, &[0; 8])].concat();
    let zeros = vec![0; 60 << 20];
    expect_bounded("groups", &container(&groups, &zeros, |_| ()));
    expect_bounded("recurrent layers", &container(&recurrent, &zeros, |_| ()));
    let before_checkpoints = [0; 16];
    let checkpoints = [&before_checkpoints[..], &list(6_000_000, &[0; 8])].concat();
    expect_bounded("checkpoints", &container(&NO_SHAPE, &checkpoints, |_| ()));
    let sequences = [&[0; 20][..], &list(4_500_000, &[0; 13])].concat();
    expect_bounded("sequences", &container(&NO_SHAPE, &sequences, |_| ()));
}

/// One group of one layer with a cell of two numbers.
fn one_group() -> Vec<u8> {
    let numbers = |list: &[u32]| list.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    [&numbers(&[1])[..], &[0], &numbers(&[0]), &[0, 0], &numbers(&[1, 0, 1, 1, 1, 0])].concat()
}

#[test]
fn blocks_cost_in_proportion_to_what_the_file_has_of_them() {
    // Live, not listed, at position 0; a piece of one cell for each.
    let block = [[1, 0, 0, 0].as_slice(), &[0], &[0; 4]].concat();
    let described = |n: u32| {
        let ends: Vec<u8> = (1..=n).flat_map(u32::to_le_bytes).collect();
        let (blocks, masks) = (list(n, &block), list(n, &[1, 0, 0, 0]));
        [list(1, &blocks), list(1, &masks), n.to_le_bytes().to_vec(), ends, vec![0; 16]].concat()
    };
    expect_bounded("blocks", &container(&one_group(), &described(3_500_000), |_| ()));
    let n = 120_000;
    let with_cells = container(&one_group(), &described(n), |writer| {
        (0..u64::from(n)).for_each(|index| writer.section(CELLS, 1, true, index, &[&[7; 8]]).unwrap());
    });
    let container = Container::parse(&with_cells).unwrap();
    let (stored, peak) = ALLOCATOR.peak_here(|| StoredSnapshot::open(&container).unwrap());
    assert_eq!(stored.snapshot().blocks[0].len(), n as usize, "as many as that are there");
    assert!(peak <= 4 * with_cells.len() as u64 + (64 << 20));
}

#[test]
fn a_directory_of_the_smallest_sections_is_bounded() {
    let many = container(&NO_SHAPE, &[0; 24], |writer| {
        (0..1_300_000).for_each(|index| writer.section(Tag(*b"NONE"), 1, false, index, &[]).unwrap());
    });
    let container = || Container::parse(&many).map(|container| container.sections().len());
    let (n, peak) = ALLOCATOR.peak_here(container);
    assert_eq!(n.unwrap(), 1_300_002);
    assert!(peak <= 4 * many.len() as u64 + (64 << 20), "{peak}");
}

#[test]
fn more_sections_than_a_reader_takes_are_not_written() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
    (0..1_400_000).for_each(|index| writer.section(Tag(*b"NONE"), 1, false, index, &[]).unwrap());
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "bytes of the directory", .. }), "{error}");
}

#[test]
fn a_section_that_is_too_long_to_be_read_at_once_is_refused_and_costs_nothing() {
    let long = vec![0; MAX_READ as usize + 1];
    let bytes = container(&NO_SHAPE, &[0; 24], |writer| {
        writer.section(Tag(*b"META"), 1, false, 0, &[&long]).unwrap();
    });
    drop(long);
    let device = Device(&bytes);
    let container = Container::open(&device).unwrap();
    let section = container.require(Tag(*b"META"), 0).unwrap();
    let (error, peak) = ALLOCATOR.peak_here(|| container.read(section).map(drop).unwrap_err());
    assert!(matches!(error, Error::TooLarge { limit: MAX_READ, .. }), "{error}");
    assert!(peak < 1000, "{peak}");
}

/// A snapshot of `n` forks of a sequence of `n_blocks` whole blocks.
struct Forks {
    snapshot: Snapshot,
    zeros: Vec<u8>,
}

impl Forks {
    fn new(n: usize, n_blocks: u32) -> Forks {
        let layer = CellLayer { layer: 0, n_head_kv: 1, d_k: 1, d_v: 1 };
        let (k_type, v_type) = (CellType::F32, CellType::F32);
        let group = Group { sees: Sees::All, k_type, v_type, layers: vec![layer] };
        let pos = |block: u32| core::array::from_fn(|cell| Pos((32 * block) as i32 + cell as i32));
        let blocks = (0..n_blocks).map(|block| Block { live: u32::MAX, pos: pos(block) }).collect();
        let extents = (0..n_blocks).map(|block| BlockEntry { block, live: u32::MAX }).collect();
        let sequence = Sequence { cells: vec![Cells { extents, ..Cells::default() }], ..Sequence::default() };
        let shape = Shape { groups: vec![group], recurrent: vec![] };
        let snapshot =
            Snapshot { shape, blocks: vec![blocks], sequences: vec![sequence; n], ..Snapshot::default() };
        Forks { snapshot, zeros: vec![0; 256] }
    }

    fn save(&self) -> (Result<(), Error>, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
        let saved = write_snapshot(&mut writer, self, None).and_then(|()| writer.finish().map(drop));
        (saved, bytes)
    }
}

impl Content for Forks {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn block(&self, _group: usize, _block: usize) -> Vec<&[u8]> {
        vec![&self.zeros]
    }

    fn state(&self, _state: usize) -> Vec<&[f32]> {
        Vec::new()
    }

    fn journal(&self, _journal: usize) -> Vec<&[f32]> {
        Vec::new()
    }
}

#[test]
fn as_many_forks_are_saved_as_can_be_restored() {
    let forks = Forks::new(4000, 2000);
    let (saved, bytes) = forks.save();
    saved.unwrap();
    let (stored, peak) = ALLOCATOR.peak_here(|| {
        let container = Container::parse(&bytes).unwrap();
        StoredSnapshot::open(&container).unwrap().snapshot() == forks.snapshot()
    });
    assert!(stored && peak <= 4 * bytes.len() as u64 + (64 << 20), "{peak} bytes");
    let (saved, bytes) = Forks::new(8000, 2000).save();
    assert!(matches!(saved, Err(Error::TooLarge { .. })), "{saved:?}");
    assert_eq!(bytes.len(), 1536, "nothing was written but the header");
}

/// Gives what it is asked for, at once.
struct Anything;

impl Source for Anything {
    type Error = Error;

    fn fill_block(&self, _group: usize, _block: usize, _layers: &mut [&mut [u8]]) -> Result<(), Error> {
        Ok(())
    }

    fn fill_state(&self, _state: usize, _pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        Ok(())
    }

    fn fill_journal(&self, _journal: usize, _pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        Ok(())
    }
}

/// Imports a snapshot into a memory of these layers, and returns the most bytes that this took.
fn imported(layers: &[LayerSpec], make: impl FnOnce(Shape) -> Snapshot) -> (Fit, u64) {
    let rollback = RollbackParams::default().checkpoint_bytes(1 << 16).spacing(8).journal(8).margin(8);
    let params = Params::default().n_ctx(1 << 17).n_seq_max(1).n_batch(64).rollback(rollback);
    let mut memory = Memory::new(layers, &params).unwrap();
    let snapshot = make(memory.shape());
    let (imported, peak) = ALLOCATOR
        .peak_here(|| memory.import(&snapshot, &Anything, &[SeqId(0)], false).map(|import| import.commit()));
    (imported.unwrap(), peak)
}

#[test]
fn checkpoints_that_there_is_no_room_for_get_no_tables() {
    let layer = AttentionLayer { n_head_kv: 1, d_k: 1, d_v: 1, ..AttentionLayer::default() };
    let windowed = AttentionLayer { window: Some(Window::Sliding(20)), ..layer.clone() };
    let layers = [layer, windowed]
        .map(|layer| LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() });
    let n = 4000;
    let (fit, peak) = imported(&layers, |shape| {
        let first = |pos| {
            let mut block = Block { live: 1, ..Block::default() };
            block.pos[0] = Pos(pos);
            block
        };
        let table = |n: u32| Cells {
            extents: (0..n).map(|block| BlockEntry { block, live: 1 }).collect(),
            ..Cells::default()
        };
        let is_all = |group: &Group| group.sees == Sees::All;
        let groups = || shape.groups.iter().map(is_all);
        let pick = |is_all: bool| if is_all { vec![first(n - 1)] } else { (0..n).map(first).collect() };
        let cells = |is_all: bool| table(if is_all { 1 } else { n as u32 });
        let mark = |i: i32| CheckpointRef { checkpoint: i as u32, pos: Pos(i), n_rows: 0 };
        let sequence = Sequence {
            cells: groups().map(cells).collect(),
            checkpoints: (0..n).map(mark).collect(),
            ..Sequence::default()
        };
        let checkpoint = Checkpoint { cells: vec![None; 2], ..Checkpoint::default() };
        let blocks = groups().map(pick).collect();
        let checkpoints = vec![checkpoint; n as usize];
        Snapshot { blocks, checkpoints, sequences: vec![sequence], shape, ..Snapshot::default() }
    });
    assert!((1..n as u32).contains(&fit.n_checkpoints_dropped), "{fit:?}");
    assert!(peak < 16 << 20, "{peak} bytes");
}

#[test]
fn a_huge_journal_of_which_few_rows_fit_is_left_out() {
    let recurrent = vec![StateTensor { len: 4, input: 4096 }];
    let n_rows = 1 << 16;
    let (fit, peak) = imported(&[LayerSpec { recurrent, ..LayerSpec::default() }], |shape| {
        let state = |state| Some(State { state: Some(state), first: Pos::ZERO });
        let checkpoint = Checkpoint { journal: Some(0), state: state(0), ..Checkpoint::default() };
        let mark = CheckpointRef { checkpoint: 0, pos: Pos(1), n_rows };
        let last = Pos(n_rows as i32);
        let sequence = Sequence { state: state(1), last, checkpoints: vec![mark], ..Sequence::default() };
        let (checkpoints, sequences) = (vec![checkpoint], vec![sequence]);
        Snapshot { shape, n_states: 2, journals: vec![n_rows], checkpoints, sequences, ..Snapshot::default() }
    });
    assert_eq!((fit.n_checkpoints_dropped, fit.n_rows_dropped), (0, n_rows));
    assert!(peak < 1 << 20, "{peak} bytes");
}
