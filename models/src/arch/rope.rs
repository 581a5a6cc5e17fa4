//! The rotation of a layer's queries and keys, from the numbers of the file.

use crate::{
    error::Error,
    graph::{Builder, RopeFactors, RopeId, RopeSpec},
    hparams::{Hparams, LayerHparams, RopeScaling},
};
use backstitch_core::rope::{Pairs, Rope, Yarn};

/// Declare the rotation of a layer, scaled as the file says. Layers that rotate alike get the same.
pub(super) fn of_layer(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<RopeId, Error> {
    declare(b, layer, pairs, h.rope.scaling, &|_| false)
}

/// Declare the rotation of a layer without scaling or divisors of frequencies.
pub(super) fn unstretched(
    b: &mut Builder<'_, '_>,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<RopeId, Error> {
    b.rope(RopeSpec { rope: plain(layer, pairs), factors: RopeFactors::None, is_fixed: &|_| false })
}

/// Declare the rotation of a layer with a scaling of the caller's; pairs of dimensions for which
/// `is_fixed` holds do not turn.
pub(super) fn declare(
    b: &mut Builder<'_, '_>,
    layer: &LayerHparams,
    pairs: Pairs,
    scaling: RopeScaling,
    is_fixed: &dyn Fn(usize) -> bool,
) -> Result<RopeId, Error> {
    let plain = plain(layer, pairs);
    let mut factors = RopeFactors::Optional("rope_freqs.weight");
    let rope = match scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => Rope { freq_scale: 1.0 / factor, ..plain },
        RopeScaling::Yarn { factor, n_ctx_orig, attn_factor } => {
            let yarn = Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, n_ctx_orig };
            Rope { freq_scale: 1.0 / factor, attn_factor, yarn: Some(yarn), ..plain }
        }
        RopeScaling::Long { n_ctx_orig, attn_factor } => {
            let (short, long) = ("rope_factors_short.weight", "rope_factors_long.weight");
            factors = RopeFactors::ByLength { short, long, n_ctx_orig };
            Rope { attn_factor, ..plain }
        }
    };
    b.rope(RopeSpec { rope, factors, is_fixed })
}

fn plain(layer: &LayerHparams, pairs: Pairs) -> Rope {
    let LayerHparams { n_rot, freq_base, .. } = *layer;
    Rope { n_rot, pairs, freq_base, freq_scale: 1.0, attn_factor: 1.0, yarn: None }
}
