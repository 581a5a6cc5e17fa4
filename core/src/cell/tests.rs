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
fn parts_tile_the_buffer_and_start_at_multiples_of_64() {
    for k_type in CellType::ALL {
        for v_type in CellType::ALL {
            let layout = wide(k_type, v_type);
            assert_eq!(layout.check(), Ok(()));
            let mut end = 0;
            for block in 0..3 {
                assert_eq!(layout.block_range(block).start, end);
                for head in 0..layout.n_head_kv {
                    for part in [layout.k_range(block, head), layout.v_range(block, head)] {
                        assert_eq!((part.start, part.start % 64), (end, 0));
                        end = part.end;
                    }
                }
                assert_eq!(layout.block_range(block).end, end);
            }
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
        let storage = &mut storage[..2 * layout.block_bytes()];
        let value = |cell: usize, i: usize| 1.0 + (cell * 100 + i) as f32 / 7.0;
        for cell in 0..BLOCK_CELLS {
            let k: [f32; 15] = core::array::from_fn(|i| value(cell, i));
            let v: [f32; 21] = core::array::from_fn(|i| -value(cell, i));
            let block = &mut storage[layout.block_range(1)];
            layout.store_k(block, cell, &k);
            layout.store_v(block, cell, &v);
        }
        for cell in 0..BLOCK_CELLS {
            let (mut k, mut v) = ([0.0; 15], [0.0; 21]);
            let block = &storage[layout.block_range(1)];
            layout.load_k(block, cell, &mut k);
            layout.load_v(block, cell, &mut v);
            for (i, k) in k.iter().enumerate() {
                assert_eq!(k.to_bits(), round(value(cell, i)).to_bits());
            }
            for (i, v) in v.iter().enumerate() {
                assert_eq!(v.to_bits(), round(-value(cell, i)).to_bits());
            }
        }
        assert!(storage[layout.block_range(0)].iter().all(|&byte| byte == 0xa5));
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
    assert_eq!(at(layout.k_range(0, 1).start + (2 * 32 + 9) * 4), 7.0);
    assert_eq!(at(layout.v_range(0, 2).start + (9 * 7 + 6) * 4), 20.0);
}
