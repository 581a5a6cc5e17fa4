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

/// Declare the rotation of a layer that has a window, or of any layer of a model without windows.
/// The others know no positions.
pub(super) fn of_windowed(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<Option<RopeId>, Error> {
    let turns = layer.window.is_some() || h.windows.n_swa.is_none();
    turns.then(|| of_layer(b, h, layer, pairs)).transpose()
}

/// Declare the rotation of a layer, stretched as the file says unless the layer has a window.
pub(super) fn stretched_where_full(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<Option<RopeId>, Error> {
    let scaling = if layer.window.is_some() { RopeScaling::None } else { h.rope.scaling };
    declare(b, layer, pairs, scaling, &|_| false).map(Some)
}

/// Declare the rotation of three layers, but none of each fourth.
pub(super) fn three_of_four(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<Option<RopeId>, Error> {
    let turns = !(layer.il + 1).is_multiple_of(4);
    turns.then(|| of_layer(b, h, layer, pairs)).transpose()
}

/// Declare the rotation of a layer whose positions have axes, time, height and width, that take
/// turns as long as their sections reach. Text has the same position on all three, and none on the
/// fourth, so pairs of dimensions that the fourth turns stay where they are.
pub(super) fn interleaved(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<Option<RopeId>, Error> {
    let is_fixed = |pair| h.rope_sections.is_some_and(|sections| is_unclaimed(sections, pair));
    declare(b, layer, pairs, h.rope.scaling, &is_fixed).map(Some)
}

/// Return true if a pair of dimensions belongs to none of the three axes of position. The axes take
/// turns as long as their sections reach; other pairs turn by the fourth coordinate.
fn is_unclaimed(sections: [usize; 4], pair: usize) -> bool {
    let place = pair % sections.iter().sum::<usize>().max(1);
    place >= 3 * sections[place % 3]
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

#[cfg(test)]
mod tests {
    use super::is_unclaimed;

    #[test]
    fn axes_take_turns_as_far_as_their_sections_reach() {
        let unclaimed =
            |sections| -> Vec<usize> { (0..12).filter(|&pair| is_unclaimed(sections, pair)).collect() };
        assert_eq!(unclaimed([4, 4, 4, 0]), [0; 0]);
        // The second axis ends at 1, the third at 2; the fourth section is all unclaimed but for
        // what the first reaches.
        assert_eq!(unclaimed([4, 1, 1, 6]), [4, 5, 7, 8, 10, 11]);
        assert_eq!(unclaimed([3, 3, 2, 0]), [0; 0]);
        assert_eq!(unclaimed([0; 4]), (0..12).collect::<Vec<_>>());
    }
}
