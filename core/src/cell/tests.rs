use super::*;
use crate::block::{q4_0, q8_0};
use half::{bf16, f16};

fn layout(k_type: CellType, v_type: CellType) -> CellLayout {
    CellLayout { n_head_kv: 3, d_k: 5, d_v: 7, k_type, v_type }
}

/// Return a layout with dimensions that any type takes.
fn wide(k_type: CellType, v_type: CellType) -> CellLayout {
    CellLayout { n_head_kv: 2, d_k: 64, d_v: 96, k_type, v_type }
}

#[test]
fn parts_tile_a_block_and_start_at_multiples_of_64() {
    for k_type in CellType::ALL {
        for v_type in CellType::ALL {
            let layout = wide(k_type, v_type);
            assert_eq!(layout.check(), Ok(()));
            let mut end = 0;
            for part in (0..layout.n_head_kv).flat_map(|head| [layout.k_range(head), layout.v_range(head)]) {
                assert_eq!((part.start, part.start % 64), (end, 0));
                end = part.end;
            }
            assert_eq!(layout.block_bytes(), end);
        }
    }
}

#[test]
fn a_cell_taken_out_and_put_elsewhere_is_the_same_bit_for_bit() {
    for (k_type, v_type) in [(CellType::F32, CellType::F16), (CellType::BF16, CellType::F32)] {
        let layout = layout(k_type, v_type);
        let (mut from, mut to) = ([0u8; 3 * 12 * 32 * 4], [0u8; 3 * 12 * 32 * 4]);
        // Not-a-numbers of all sorts among them.
        from.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 151 % 256) as u8);
        let (from, to) = (&from[..layout.block_bytes()], &mut to[..layout.block_bytes()]);
        let mut cell = [0; 3 * 12 * 4];
        let cell = &mut cell[..layout.cell_bytes()];
        for i in 0..BLOCK_CELLS {
            layout.take_cell(from, i, cell);
            layout.put_cell(to, i, cell);
        }
        assert_eq!(from, to);
        let (mut a, mut b) = ([0.0; 15], [0.0; 15]);
        layout.take_cell(from, 3, cell);
        layout.put_cell(to, 9, cell);
        layout.load_k(from, 3, &mut a);
        layout.load_k(to, 9, &mut b);
        assert_eq!(a.map(f32::to_bits), b.map(f32::to_bits));
    }
}

#[test]
fn rows_come_back_rounded_to_nearest_even_and_leave_other_cells_alone() {
    type Rounded = fn(f32) -> f32;
    let cases: [(CellType, Rounded); 3] = [
        (CellType::F32, |x| x),
        (CellType::F16, |x| f16::from_f32(x).to_f32()),
        (CellType::BF16, |x| bf16::from_f32(x).to_f32()),
    ];
    for (ty, round) in cases {
        let layout = layout(ty, ty);
        let mut storage = [0xa5u8; 2 * 3 * 12 * 32 * 4];
        let (before, block) = storage[..2 * layout.block_bytes()].split_at_mut(layout.block_bytes());
        let value = |cell: usize, i: usize| 1.0 + (cell * 100 + i) as f32 / 7.0;
        for cell in 0..BLOCK_CELLS {
            let k: [f32; 15] = core::array::from_fn(|i| value(cell, i));
            let v: [f32; 21] = core::array::from_fn(|i| -value(cell, i));
            layout.store_k(block, cell, &k);
            layout.store_v(block, cell, &v);
        }
        for cell in 0..BLOCK_CELLS {
            let (mut k, mut v) = ([0.0; 15], [0.0; 21]);
            layout.load_k(block, cell, &mut k);
            layout.load_v(block, cell, &mut v);
            for (i, k) in k.iter().enumerate() {
                assert_eq!(k.to_bits(), round(value(cell, i)).to_bits());
            }
            for (i, v) in v.iter().enumerate() {
                assert_eq!(v.to_bits(), round(-value(cell, i)).to_bits());
            }
        }
        assert!(before.iter().all(|&byte| byte == 0xa5));
    }
}

#[test]
fn quantised_rows_come_back_as_ggufs_blocks_say_and_move_bit_for_bit() {
    use crate::block::codec::Codec;
    for ty in [CellType::Q8_0, CellType::Q4_0] {
        let layout = wide(ty, ty);
        let mut storage = [0xa5u8; 2 * 2 * 160 * 34];
        let (from, to) = storage.split_at_mut(2 * 160 * 34);
        let (from, to) = (&mut from[..layout.block_bytes()], &mut to[..layout.block_bytes()]);
        let value = |cell: usize, i: usize| ((cell * 31 + i * 7) % 101) as f32 - 50.0;
        for cell in 0..BLOCK_CELLS {
            let k: [f32; 128] = core::array::from_fn(|i| value(cell, i));
            let v: [f32; 192] = core::array::from_fn(|i| -value(cell, i));
            layout.store_k(from, cell, &k);
            layout.store_v(from, cell, &v);
        }
        let mut apart = [0; 320 * 34 / 32];
        let apart = &mut apart[..layout.cell_bytes()];
        for cell in 0..BLOCK_CELLS {
            layout.take_cell(from, cell, apart);
            layout.put_cell(to, cell, apart);
            let (mut k, mut v, mut blocks) = ([0.0; 128], [0.0; 192], [0.0; 320]);
            layout.load_k(from, cell, &mut k);
            layout.load_v(from, cell, &mut v);
            match ty {
                CellType::Q8_0 => q8_0::Block::decode(apart, &mut blocks).unwrap(),
                _ => q4_0::Block::decode(apart, &mut blocks).unwrap(),
            }
            assert_eq!((&k[..], &v[..]), blocks.split_at(128));
            let error = if ty == CellType::Q8_0 { 0.21 } else { 6.3 };
            assert!((0..128).all(|i| (k[i] - value(cell, i)).abs() < error), "{ty:?} {cell}");
            assert!((0..192).all(|i| (v[i] + value(cell, i)).abs() < error), "{ty:?} {cell}");
        }
        assert!(from == to);
    }
    assert!(layout(CellType::F32, CellType::Q4_0).check().is_err());
}

#[test]
fn keys_are_dimension_major_and_values_cell_major() {
    let layout = layout(CellType::F32, CellType::F32);
    let mut block = [0u8; 3 * 12 * 32 * 4];
    let k: [f32; 15] = core::array::from_fn(|i| i as f32);
    let v: [f32; 21] = core::array::from_fn(|i| i as f32);
    layout.store_k(&mut block, 9, &k);
    layout.store_v(&mut block, 9, &v);
    let at =
        |byte: usize| f32::from_le_bytes([block[byte], block[byte + 1], block[byte + 2], block[byte + 3]]);
    // Head 1, dimension 2 of K; head 2, dimension 6 of V.
    assert_eq!(at(layout.k_range(1).start + (2 * 32 + 9) * 4), 7.0);
    assert_eq!(at(layout.v_range(2).start + (9 * 7 + 6) * 4), 20.0);
}

#[test]
fn blocks_lie_at_equal_distances_and_end_with_the_buffer() {
    let layout = CellLayout { n_head_kv: 1, d_k: 1, d_v: 1, ..layout(CellType::F16, CellType::F16) };
    assert_eq!(layout.block_bytes(), 128);
    // Bytes of the buffer, distance of blocks, and their number.
    let cases = [(640, 128, 5), (640, 192, 3), (512, 192, 3), (511, 192, 2), (127, 128, 0), (0, 128, 0)];
    for (n_bytes, stride, n_blocks) in cases {
        let mut buffer: std::vec::Vec<u8> = (0..n_bytes).map(|i| (i / 64) as u8).collect();
        let mut blocks = CellBlocksMut::new(&mut buffer, &layout, stride);
        assert_eq!((blocks.as_ref().len(), blocks.as_ref().is_empty()), (n_blocks, n_blocks == 0));
        for number in 0..n_blocks {
            let first = (number * stride / 64) as u8;
            let block = blocks.as_ref().get(number as u32).unwrap();
            assert_eq!((block[0], block[127], block.len()), (first, first + 1, 128));
            assert_eq!(blocks.get_mut(number as u32).unwrap()[0], first);
        }
        for beyond in [n_blocks as u32, u32::MAX] {
            assert_eq!(blocks.as_ref().get(beyond), None);
            assert_eq!(blocks.get_mut(beyond), None);
        }
    }
}
