use super::*;
use crate::kernel_set::KernelSet;

#[target_feature(enable = "neon,dotprod,i8mm")]
fn products(w: &[Block], x: &[QBlock], stride: usize) -> [[f32; LANES]; TOKENS] {
    let (s, mut sums) = (Neon::<Mixed>::token(), NOTHING);
    s.add_blocks::<true>(w, x, stride, &mut sums);
    core::array::from_fn(|token| {
        let mut lanes = [0.0; LANES];
        s.store(s.lanes(&sums, token), &mut lanes);
        lanes
    })
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn block(bytes: &[[u8; 64]; 8], scale: &[f32; LANES], min: &[f32; LANES]) -> Block {
    let (s, mut block) = (Neon::<Mixed>::token(), Block::ZERO);
    s.store_block(bytes.each_ref().map(|x| s.bytes(x)), 128, s.load(scale), Some(s.load(min)), &mut block);
    block
}

#[test]
fn every_sum_is_that_of_its_row_and_token_at_the_ends_of_their_range() {
    if KernelSet::named("i8mm").is_err() {
        return;
    }
    // Row 0 has the lowest bytes, row 1 the highest.
    let byte = |row: usize, column: usize| match row {
        0 => 0,
        1 => 255,
        _ => (row * 37 + column * 11) as u8,
    };
    let bytes = core::array::from_fn(|g| core::array::from_fn(|i| byte(i / 4, 4 * g + i % 4)));
    let scale: [f32; LANES] = core::array::from_fn(|row| (row + 1) as f32);
    let min: [f32; LANES] = core::array::from_fn(|row| (row as f32 - 8.0) * 1024.0);
    // SAFETY: the set is there, so the processor has its features.
    let blocks = [unsafe { block(&bytes, &scale, &min) }; 2];
    let q = |token: usize| -> [i8; 32] {
        core::array::from_fn(|c| [-127, 127, (c * 7 + token) as i8, (c * 5) as i8][token % 4])
    };
    let x: [QBlock; 10] = core::array::from_fn(|i| QBlock {
        d: 0.5,
        q: bytemuck::cast(q(i % 5)),
        sum: (i % 5) as f32,
        ..QBlock::default()
    });
    // SAFETY: as above.
    let got = unsafe { products(&blocks, &x, 5) };
    for (token, got) in got.iter().enumerate() {
        for (row, got) in got.iter().enumerate() {
            let q = q(token);
            let dot: i32 = (0..32).map(|c| (i32::from(byte(row, c)) - 128) * i32::from(q[c])).sum();
            let wanted = 2.0 * (dot as f32 * scale[row] * 0.5 + min[row] * token as f32);
            assert_eq!(*got, wanted, "token {token}, row {row}");
        }
    }
}
