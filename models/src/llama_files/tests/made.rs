//! Files made of snapshots.

use super::*;
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry};
use backstitch_kv::snapshot::{Block, Cells, Sequence, Snapshot};

/// Sequences of positions `first..end` each in one group of one layer, no two of which share
/// blocks.
fn sequences(layout: &Layout, ranges: &[(i32, i32)]) -> Owned {
    let mut snapshot = Snapshot { shape: layout.shape.clone(), ..Snapshot::default() };
    snapshot.blocks = vec![Vec::new(); snapshot.shape.groups.len()];
    for &(first, end) in ranges {
        let mut sequence = Sequence::default();
        for blocks in &mut snapshot.blocks {
            let mut cells = Cells::default();
            let positions: Vec<i32> = (first..end).collect();
            for chunk in positions.chunks(BLOCK_CELLS) {
                let mut pos = [Pos::ZERO; BLOCK_CELLS];
                pos.iter_mut().zip(chunk).for_each(|(pos, &of)| *pos = Pos(of));
                let live = u32::MAX >> (BLOCK_CELLS - chunk.len());
                cells.extents.push(BlockEntry { block: blocks.len() as u32, live });
                blocks.push(Block { live, pos });
            }
            sequence.cells.push(cells);
        }
        snapshot.sequences.push(sequence);
    }
    fill(snapshot)
}

/// Every byte of the cells is another, as far as bytes go.
fn fill(snapshot: Snapshot) -> Owned {
    let mut next = 0u8;
    let mut blocks = Vec::new();
    for (group, of_group) in snapshot.shape.groups.iter().zip(&snapshot.blocks) {
        let layers = || group.layouts().map(|layout| vec![0u8; layout.block_bytes()]).collect::<Vec<_>>();
        let mut list: Vec<Vec<Vec<u8>>> = of_group.iter().map(|_| layers()).collect();
        for byte in list.iter_mut().flatten().flatten() {
            next = next.wrapping_mul(61).wrapping_add(43);
            *byte = next;
        }
        blocks.push(list);
    }
    Owned { snapshot, blocks, ..Owned::default() }
}

fn written(content: &Owned, layout: &Layout, form: Form, options: &Options) -> Vec<u8> {
    export(content, &[Token(5), Token(6)], layout, form, options).unwrap()
}

fn one_layer() -> Layout {
    attention("llama", vec![cells(Sees::All, &[0], 8)], vec![Some(0)])
}

#[test]
fn buffers_are_read_like_files() {
    let layout = one_layer();
    let content = sequences(&layout, &[(3, 70)]);
    let options = Options { sequence: 7, ..Options::default() };
    let bytes = written(&content, &layout, Form::Buffer, &options);
    let file = File::parse(&bytes, &layout).unwrap();
    assert_eq!((file.form(), file.tokens(), file.options()), (Form::Buffer, &[][..], options));
    assert_eq!(file.snapshot(), &content.snapshot);
    let back = Owned::load(file.snapshot(), &file).unwrap();
    assert_eq!(export(&back, &[], &layout, Form::Buffer, &options).unwrap(), bytes);
    assert_eq!(written(&back, &layout, Form::Sequence, &options)[12..20], [5, 0, 0, 0, 6, 0, 0, 0]);
}

#[test]
fn forks_share_their_blocks_again() {
    let layout = one_layer();
    // Both have 40 positions in common; the second has copied the second block and goes on by
    // itself.
    let mut content = sequences(&layout, &[(0, 64), (32, 90)]);
    let first = content.snapshot.sequences[0].cells[0].extents[0];
    content.snapshot.sequences[1].cells[0].extents.insert(0, first);
    let bytes = written(&content, &layout, Form::Session, &Options::default());
    let file = File::parse(&bytes, &layout).unwrap();
    assert_eq!(file.snapshot(), &content.snapshot);
    let back = Owned::load(file.snapshot(), &file).unwrap();
    assert_eq!(written(&back, &layout, Form::Session, &Options::default()), bytes);
    // One stream a sequence has no sharing: each has its copy.
    let options = Options { n_stream: 2, v_trans: true, margin: true, ..Options::default() };
    let bytes = written(&content, &layout, Form::Session, &options);
    let file = File::parse(&bytes, &layout).unwrap();
    assert_eq!((file.snapshot().blocks[0].len(), file.options()), (5, options));
    let back = Owned::load(file.snapshot(), &file).unwrap();
    let of = |content: &Owned, sequence: usize| {
        let block = content.snapshot.sequences[sequence].cells[0].extents[0].block;
        content.block(0, block as usize)[0].to_vec()
    };
    assert!(of(&back, 0) == of(&back, 1) && of(&back, 0) == of(&content, 0));
}

#[test]
fn sequences_with_gaps_between_their_numbers_keep_them() {
    let layout = one_layer();
    let content = sequences(&layout, &[(0, 5), (0, 0), (2, 9)]);
    for n_stream in [1, 3] {
        let options = Options { n_stream, ..Options::default() };
        let bytes = written(&content, &layout, Form::Session, &options);
        let file = File::parse(&bytes, &layout).unwrap();
        let lens: Vec<u32> =
            file.snapshot().sequences.iter().map(|sequence| sequence.cells[0].len()).collect();
        assert_eq!(lens, [5, 0, 7]);
        let back = Owned::load(file.snapshot(), &file).unwrap();
        assert_eq!(written(&back, &layout, Form::Session, &options), bytes);
    }
}

#[test]
fn caches_without_layers_list_all_positions() {
    let window = cells(Sees::Window(Window::Sliding(4)), &[0, 1], 8);
    let layout = attention("lfm2", vec![window], vec![None, Some(0)]);
    let mut content = sequences(&layout, &[(6, 20)]);
    content.snapshot.sequences[0].cells[0].whole_from = Pos(6);
    content.snapshot.sequences[0].cells[0].start = Pos(2);
    let bytes = written(&content, &layout, Form::Sequence, &Options::default());
    let file = File::parse(&bytes, &layout).unwrap();
    // The file has what the window shows; where the sequence began is known from the other cache.
    let cells = &file.snapshot().sequences[0].cells[0];
    assert_eq!((cells.len(), cells.whole_from, cells.start), (4, Pos(16), Pos(2)));
    assert_eq!(file.caches[0].cells.len(), 18);
}

#[test]
fn text_positions_with_axes_are_read_and_others_refused() {
    let layout = Layout { axes: true, ..one_layer() };
    let content = sequences(&layout, &[(0, 3)]);
    let mut bytes = written(&content, &layout, Form::Sequence, &Options::default());
    let file = File::parse(&bytes, &layout).unwrap();
    assert_eq!(file.snapshot(), &content.snapshot);
    // Magic, version, tokens, streams, number of cells, then position, number of sequences, two
    // coordinates, a token.
    let cell = 12 + 8 + 8;
    assert_eq!(bytes[cell + 16..cell + 20], [5, 0, 0, 0]);
    assert_eq!(bytes[cell + 2 * 24 + 16..][..4], [255; 4]);
    bytes[cell + 8] = 9;
    let error = File::parse(&bytes, &layout).err().unwrap();
    assert!(matches!(error, Error::Field { field: "coordinate", found: 9, .. }), "{error}");
}

#[test]
fn lists_of_the_server_are_unpacked_and_pictures_refused() {
    let layout = one_layer();
    let list = |words: &[i32]| -> Result<Vec<u32>, Error> {
        let content = sequences(&layout, &[(0, 3)]);
        let file = written(&content, &layout, Form::Sequence, &Options::default());
        let mut bytes = file[..8].to_vec();
        bytes.extend((words.len() as u32).to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(&file[20..]);
        Ok(File::parse(&bytes, &layout)?.tokens().iter().map(|token| token.0).collect())
    };
    assert_eq!(list(&[]), Ok(vec![]));
    assert_eq!(list(&[8, 9]), Ok(vec![8, 9]));
    assert_eq!(list(&[-1, 1, 2, 8, 9, 0]), Ok(vec![8, 9]));
    assert_eq!(list(&[-1, 1, 0, 0]), Ok(vec![]));
    let wrong: [&[i32]; 8] = [
        &[-1],
        &[-1, 1, 0],
        &[-1, 2, 0, 0],
        &[-1, 1, 1, 8, 1],
        &[-1, 1, 1, 8, 1, 0, 7],
        &[-1, 1, 3, 8, 9, 0],
        &[-1, 1, 2, 8, -1, 0],
        &[3, -1],
    ];
    for words in wrong {
        assert!(list(words).is_err(), "{words:?}");
    }
}

#[test]
fn what_does_not_fit_the_layout_is_not_written() {
    let layout = one_layer();
    let content = sequences(&layout, &[(0, 3), (0, 4)]);
    let options = Options::default();
    let try_it = |layout: &Layout, form, options: &Options| export(&content, &[], layout, form, options);
    assert!(try_it(&layout, Form::Session, &options).is_ok());
    let cases = [
        (llama(), Form::Session, options),
        (falcon_h1(), Form::Session, options),
        (layout.clone(), Form::Sequence, options),
        (layout.clone(), Form::Session, Options { n_stream: 0, ..options }),
        (layout.clone(), Form::Session, Options { n_stream: 257, ..options }),
        (Layout { caches: vec![], ..layout.clone() }, Form::Session, options),
        (Layout { caches: vec![Some(0), Some(0)], ..layout.clone() }, Form::Session, options),
        (Layout { caches: vec![Some(1)], ..layout.clone() }, Form::Session, options),
    ];
    for (number, (layout, form, options)) in cases.iter().enumerate() {
        assert!(try_it(layout, *form, options).is_err(), "case {number}");
    }
    let mut quantised = sequences(&layout, &[(0, 3)]);
    quantised.snapshot.shape.groups[0].k_type = CellType::Q8_0;
    let error = export(&quantised, &[], &layout, Form::Sequence, &options).unwrap_err();
    assert_eq!(error, Error::Unsupported { what: "quantised caches" });
    let mut holed = sequences(&layout, &[(0, 9)]);
    holed.snapshot.sequences[0].cells[0].extents[0].live &= !8;
    let error = export(&holed, &[], &layout, Form::Sequence, &options).unwrap_err();
    assert_eq!(error, Error::Hole { cache: 0, sequence: 0, found: Pos(4), wanted: Pos(3) });
}
