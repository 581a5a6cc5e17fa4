//! The effect of quantised caches on logits, compared with a cache of F16: none where nothing is
//! rounded, a small one where it is.

mod converted;

use backstitch_core::{DType, cell::CellType};
use backstitch_models::{Batch, Context, Model, Params, Pos};
use converted::{model, tokens};

fn logits(model: &Model, cells: CellType) -> Vec<f32> {
    let params = Params::default().n_ctx(512).type_k(cells).type_v(cells);
    let mut ctx = Context::new(model, params).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut batch = Batch::new();
    let tokens = tokens(model, 1, 300);
    for (i, &token) in tokens.iter().enumerate() {
        batch.push(token, Pos(i as i32), &[seq], true);
    }
    ctx.decode(&batch).unwrap();
    (0..tokens.len()).flat_map(|i| ctx.output(i).unwrap().to_vec()).collect()
}

/// Return the root mean square of the difference, in units of the logits' own deviation.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let mean = a.iter().map(|&a| f64::from(a)).sum::<f64>() / a.len() as f64;
    let spread: f64 = a.iter().map(|&a| (f64::from(a) - mean).powi(2)).sum();
    let apart: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    (apart / spread).sqrt()
}

#[test]
fn quantised_caches_are_as_near_as_their_bits_allow() {
    // Heads of a multiple of 32 dimensions; a hundredth of half a step of 8 bits, and sixteen times
    // as much for 4.
    for name in ["quant_f16", "qwen35"] {
        let model = model(name, DType::F16);
        let halves = logits(&model, CellType::F16);
        let floats = distance(&halves, &logits(&model, CellType::F32));
        let eight = distance(&halves, &logits(&model, CellType::Q8_0));
        let four = distance(&halves, &logits(&model, CellType::Q4_0));
        println!("{name}: F32 {floats:.1e}, Q8_0 {eight:.1e}, Q4_0 {four:.1e}");
        assert!(floats < 0.002 && eight < 0.02 && four < 0.3, "{floats} {eight} {four}");
        assert!(floats < eight && eight < four, "{floats} {eight} {four}");
    }
}
