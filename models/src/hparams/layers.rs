//! The numbers of each layer, which may differ from layer to layer.

use super::reader::{MAX_LAYERS, MAX_WIDTH, Reader};
use crate::{error::Error, gguf::PerLayer};
use alloc::vec::Vec;

/// The numbers of one layer.
///
/// They are the same in all layers of most models. They differ in files with arrays in place of
/// numbers, in hybrids, and where layers with a window have heads of their own.
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// let layer = hparams.layers().next().unwrap();
/// assert!(layer.attends() && layer.n_q() == layer.n_head * layer.d_k);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerHparams {
    /// Its number, from 0.
    pub il: usize,
    /// True for the last layer. Behind its mixing of tokens only those with a requested output go
    /// on.
    pub is_last: bool,
    /// Query heads; 0 if the layer does not attend.
    pub n_head: usize,
    /// Key and value heads; 0 if the layer does not attend, but has a recurrence in its place.
    pub n_head_kv: usize,
    /// Width of a query or key head.
    pub d_k: usize,
    /// Width of a value head.
    pub d_v: usize,
    /// Dimensions of a head that rotate.
    pub n_rot: usize,
    /// Base of the geometric series of the rotation's frequencies.
    pub freq_base: f32,
    /// Positions that a token sees, its own included; `None` for all of its sequence.
    pub window: Option<u32>,
    /// True if the layer attends to keys and values of an earlier layer, and has none of its own.
    pub shares_kv: bool,
    /// Width of the feed-forward network, or of each expert's; 0 if there is none.
    pub n_ff: usize,
}

impl LayerHparams {
    /// Return true if the layer attends.
    pub fn attends(&self) -> bool {
        self.n_head_kv > 0
    }

    /// Return the width of all queries together.
    pub fn n_q(&self) -> usize {
        self.n_head * self.d_k
    }

    /// Return the width of all keys together.
    pub fn n_k(&self) -> usize {
        self.n_head_kv * self.d_k
    }

    /// Return the width of all values together.
    pub fn n_v(&self) -> usize {
        self.n_head_kv * self.d_v
    }
}

const HEADS: &str = "attention.head_count";
const HEADS_KV: &str = "attention.head_count_kv";
const SHARED: &str = "attention.shared_kv_layers";

/// The keys of the sizes that layers with a window may have of their own.
struct Names {
    d_k: &'static str,
    d_v: &'static str,
    n_rot: &'static str,
    freq_base: &'static str,
}

const FULL: Names = Names {
    d_k: "attention.key_length",
    d_v: "attention.value_length",
    n_rot: "rope.dimension_count",
    freq_base: "rope.freq_base",
};

const WINDOWED: Names = Names {
    d_k: "attention.key_length_swa",
    d_v: "attention.value_length_swa",
    n_rot: "rope.dimension_count_swa",
    freq_base: "rope.freq_base_swa",
};

/// The sizes of heads, as the file states them.
struct HeadSizes {
    d_k: Option<PerLayer<u32>>,
    d_v: Option<PerLayer<u32>>,
    n_rot: Option<PerLayer<u32>>,
    freq_base: Option<PerLayer<f32>>,
    names: Names,
}

impl HeadSizes {
    fn read(r: &Reader<'_, '_>, n_block: usize, names: Names) -> Result<Self, Error> {
        Ok(HeadSizes {
            d_k: r.per_layer(names.d_k, n_block)?,
            d_v: r.per_layer(names.d_v, n_block)?,
            n_rot: r.per_layer(names.n_rot, n_block)?,
            freq_base: r.per_layer(names.freq_base, n_block)?,
            names,
        })
    }

    /// Return `layer` with the sizes that the file states for it.
    fn over(&self, r: &Reader<'_, '_>, n_embd: usize, layer: LayerHparams) -> Result<LayerHparams, Error> {
        let LayerHparams { il, n_head, .. } = layer;
        let width = |key, all: &Option<PerLayer<u32>>, usual: usize| {
            let width = r.count_of((key, MAX_WIDTH, false), all.as_ref(), il)?;
            width.map_or(Ok(usual), |width| r.product(key, n_head, width).map(|()| width))
        };
        let d_k = width(self.names.d_k, &self.d_k, layer.d_k)?;
        let d_v = width(self.names.d_v, &self.d_v, layer.d_v)?;
        if n_head > 0 && (d_k == 0 || d_v == 0) {
            debug_assert!(!n_embd.is_multiple_of(n_head), "heads have a width otherwise");
            return Err(r.invalid(HEADS, n_head, "a divisor of embedding_length"));
        }
        let key = self.names.n_rot;
        let n_rot = match r.count_of((key, MAX_WIDTH, false), self.n_rot.as_ref(), il)? {
            // Without heads there is nothing to rotate, whatever the file says.
            Some(n) if d_k > 0 => n,
            // A whole head, unless the file says otherwise for layers of both kinds.
            _ if layer.n_rot == layer.d_k => d_k,
            _ => layer.n_rot,
        };
        if n_rot > d_k || n_rot % 2 != 0 {
            return Err(r.invalid(key, n_rot, "an even number up to the width of a key"));
        }
        let freq_base = match self.freq_base.as_ref().and_then(|all| all.at(il)) {
            Some(base) if !base.is_finite() => {
                return Err(r.invalid(self.names.freq_base, base, "a finite number"));
            }
            Some(base) if base <= 0.0 => {
                return Err(r.invalid(self.names.freq_base, base, "a number above 0"));
            }
            Some(base) => base,
            None => layer.freq_base,
        };
        Ok(LayerHparams { d_k, d_v, n_rot, freq_base, ..layer })
    }
}

/// The layers of a model: for each its numbers if it sees everything, and if it has a window.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    pub(super) full: Vec<LayerHparams>,
    pub(super) windowed: Vec<LayerHparams>,
}

impl Layers {
    /// Read the numbers of the first `n_layer` of `n_block` layers.
    pub(super) fn read(
        r: &Reader<'_, '_>,
        n_embd: usize,
        n_layer: usize,
        n_block: usize,
    ) -> Result<Self, Error> {
        const N_FF: &str = "feed_forward_length";
        let heads = r.per_layer::<u32>(HEADS, n_block)?.ok_or_else(|| r.missing(HEADS))?;
        let heads_kv = r.per_layer::<u32>(HEADS_KV, n_block)?;
        let n_ff = match r.per_layer::<u32>(N_FF, n_block)? {
            Some(n_ff) => n_ff,
            // Files of models whose layers all have experts may lack the key.
            None if r.gguf.keys()?.entry("expert_count").is_some() => PerLayer::Same(0),
            None => return Err(r.missing(N_FF)),
        };
        let n_shared = match r.gguf.keys()?.optional::<u32>(SHARED)? {
            Some(n) if n >= n_layer as u32 => return Err(r.invalid(SHARED, n, "less than block_count")),
            // Only some families have the key.
            n => n.unwrap_or(0) as usize,
        };
        let (full_sizes, windowed_sizes) =
            (HeadSizes::read(r, n_block, FULL)?, HeadSizes::read(r, n_block, WINDOWED)?);
        let (mut full, mut windowed) = (Vec::with_capacity(n_layer), Vec::with_capacity(n_layer));
        for il in 0..n_layer {
            let of = |key, all| r.count_of((key, MAX_WIDTH, true), Some(all), il);
            let missing = |key| move || r.missing(key);
            let n_head = of(HEADS, &heads)?.ok_or_else(missing(HEADS))?;
            // Files state KV heads where they are fewer.
            let n_head_kv =
                of(HEADS_KV, heads_kv.as_ref().unwrap_or(&heads))?.ok_or_else(missing(HEADS_KV))?;
            if n_head_kv > 0 && n_head % n_head_kv != 0 {
                return Err(r.invalid(HEADS_KV, n_head_kv, "a divisor of attention.head_count"));
            }
            // 0 if that is no width; an error, unless the file states one.
            let even = if n_head > 0 && n_embd.is_multiple_of(n_head) { n_embd / n_head } else { 0 };
            let layer = LayerHparams {
                il,
                is_last: il + 1 == n_layer,
                n_head,
                n_head_kv,
                d_k: even,
                d_v: even,
                n_rot: even,
                freq_base: 10_000.0,
                window: None,
                shares_kv: il >= n_layer - n_shared,
                n_ff: of(N_FF, &n_ff)?.ok_or_else(missing(N_FF))?,
            };
            let layer = full_sizes.over(r, n_embd, layer)?;
            full.push(layer);
            windowed.push(windowed_sizes.over(r, n_embd, layer)?);
        }
        debug_assert!(n_layer <= MAX_LAYERS as usize, "block_count was held to its limit");
        Ok(Layers { full, windowed })
    }
}
