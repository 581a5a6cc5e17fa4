use super::*;
use std::vec::Vec;

#[test]
fn a_system_is_asked_only_for_what_the_processor_has() {
    assert_eq!(Permission::of(false, || panic!("there is nothing to ask for")), Permission::Absent);
    assert_eq!(Permission::of(true, || false), Permission::Refused);
    assert_eq!(Permission::of(true, || true), Permission::Granted);
}

/// Return a product with small numbers and scales of one, by the definition.
fn naive(w: &[Block], x: &[QBlock], stride: usize, out: usize, token: usize) -> f32 {
    let mut sum = 0;
    for (k, w) in w.iter().enumerate() {
        let q: [i8; 32] = bytemuck::cast(x[k * stride + token].q);
        sum += (0..32)
            .map(|c| i32::from(q[c]) * i32::from(w.q[c / 4][4 * out + c % 4].cast_signed()))
            .sum::<i32>();
    }
    sum as f32
}

#[test]
fn tiles_hold_exact_sums_at_the_ends_of_their_range() {
    let Some(mut tiles) = Tiles::configure() else { return };
    for n in [0, 1, 2, 3, 8, 9] {
        let mut w = vec![Block::ZERO; 2 * n];
        for (i, w) in w.iter_mut().enumerate() {
            // Rows of the lowest bytes, of the highest, and of others.
            let q = |j: usize| {
                if j < 4 {
                    0x80
                } else if j < 8 {
                    127
                } else {
                    (i * 37 + j * 11) as u8
                }
            };
            w.q = core::array::from_fn(|_| core::array::from_fn(q));
            w.scales = [1.0; LANES];
        }
        let x: Vec<_> = (0..n * 32)
            .map(|i| {
                let q = |j: usize| [-127, 127, (i * 7 + j * 5) as u8 as i8][i % 3];
                let q: [i8; 32] = core::array::from_fn(q);
                QBlock { d: 1.0, q: bytemuck::cast(q), ..QBlock::default() }
            })
            .collect();
        let mut sums = [[[0.0; LANES]; TOKENS]; 4];
        let product = Product {
            w: [&w[..n], &w[n..]],
            x: [&x, x.get(16..).unwrap_or(&[])],
            strides: [32; 2],
            minima: false,
        };
        tiles.multiply(product, &mut sums);
        for (unit, sums) in sums.iter().enumerate() {
            for (token, sums) in sums.iter().enumerate() {
                for (out, sum) in sums.iter().enumerate() {
                    let wanted = naive(product.w[unit % 2], product.x[unit / 2], 32, out, token);
                    assert_eq!(*sum, wanted, "{n} blocks, tile {unit}, token {token}, output {out}");
                }
            }
        }
    }
}

#[test]
fn threads_that_never_used_tiles_configure_their_own() {
    let used = || Tiles::configure().is_some();
    let here = used();
    let there = std::thread::scope(|scope| [(); 3].map(|()| scope.spawn(used)).map(|t| t.join().unwrap()));
    assert_eq!(there, [here; 3]);
    // Again after a release, and after a panic that dropped them.
    let _ = std::panic::catch_unwind(|| {
        let _tiles = Tiles::configure();
        panic!("with tiles configured");
    });
    assert_eq!(used(), here);
}
