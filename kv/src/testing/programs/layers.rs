//! Layers of every kind of memory for programs, and the values that they would compute.

use super::*;

pub(super) fn attention(
    n_head_kv: usize,
    d_k: usize,
    d_v: usize,
    window: Option<Window>,
    pairs: Option<Pairs>,
) -> AttentionSpec {
    let rope = pairs.map(|pairs| Rotation {
        rope: Rope { n_rot: 4, pairs, freq_base: 1e4, freq_scale: 1.0, attn_factor: 1.0, yarn: None },
        frequencies: vec![1.0, 0.01],
    });
    AttentionSpec::Cached(AttentionLayer { n_head_kv, d_k, d_v, window, rope })
}

pub(super) fn layer(attention: AttentionSpec) -> LayerSpec {
    LayerSpec { attention, ..LayerSpec::default() }
}

/// Return layers of attention: shapes differ, one has a window, one shares the cells of another.
pub fn transformer() -> Vec<LayerSpec> {
    vec![
        layer(attention(2, 5, 3, None, Some(Pairs::Split))),
        layer(attention(1, 4, 2, Some(Window::Sliding(9)), Some(Pairs::Adjacent))),
        layer(AttentionSpec::SharedWith(0)),
        layer(attention(1, 2, 1, None, None)),
    ]
}

/// Return layers with windows only, so that no cell is retained for ever.
pub fn windowed() -> Vec<LayerSpec> {
    vec![
        layer(attention(2, 5, 3, Some(Window::Sliding(20)), Some(Pairs::Split))),
        layer(attention(1, 2, 1, Some(Window::Chunked(16)), None)),
    ]
}

/// Return layers with windows and with states; none retains all tokens.
pub fn windowed_and_recurrent() -> Vec<LayerSpec> {
    [windowed(), recurrent()].concat()
}

/// Return a layer with a recurrent state, and one without any memory.
pub fn recurrent() -> Vec<LayerSpec> {
    let recurrent = vec![StateTensor { len: 3, input: 1 }];
    vec![LayerSpec { attention: AttentionSpec::Absent, recurrent }, LayerSpec::default()]
}

/// Return layers of attention and recurrent ones.
pub fn hybrid() -> Vec<LayerSpec> {
    let mut layers = transformer();
    layers[1].recurrent = vec![StateTensor { len: 3, input: 1 }];
    layers.extend(recurrent());
    layers
}

/// Return the layers with heads wide enough for blocks of quants.
pub fn widened(mut layers: Vec<LayerSpec>, k_type: CellType, v_type: CellType) -> Vec<LayerSpec> {
    for spec in &mut layers {
        if let AttentionSpec::Cached(own) = &mut spec.attention {
            own.d_k = own.d_k.next_multiple_of(k_type.unit());
            own.d_v = own.d_v.next_multiple_of(v_type.unit());
        }
    }
    layers
}

/// Return the key and value of a token in a layer with a cache.
pub(super) fn rows(token: Token, layer: &AttentionLayer, i: usize) -> Rows {
    let value = |j: usize| ((token.0 * 37 + i as u32 * 11 + j as u32 * 7) % 1009) as f32 / 64.0 - 7.3;
    let keys = (0..layer.n_head_kv * layer.d_k).map(value).collect();
    (keys, (0..layer.n_head_kv * layer.d_v).map(|j| -value(j + 3)).collect())
}

/// Step a state by one token; the order of tokens matters.
pub(super) fn advance(state: &mut [f32], token: u64) {
    for (i, x) in state.iter_mut().enumerate() {
        *x = (*x * 31.0 + token as f32 + i as f32 + 1.0) % 4093.0;
    }
}
