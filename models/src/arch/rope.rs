//! The rotation of a layer's queries and keys, from the numbers of the file.

use super::decoder;
use crate::{
    error::Error,
    graph::{Builder, RopeFactors, RopeId, RopeSpec},
    hparams::{Hparams, LayerHparams, RopeParams, RopeScaling},
};
use backstitch_core::rope::{Pairs, Rope, Yarn};

/// Declare the rotation of a layer, scaled as the file says. Layers that rotate alike get the same.
pub(super) fn of_layer(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<RopeId, Error> {
    declare(b, layer, pairs, h.rope, &|_| false)
}

/// Divisors of frequencies in contexts of the original length.
const SHORT: &str = "rope_factors_short.weight";
/// Divisors of frequencies in longer contexts.
const LONG: &str = "rope_factors_long.weight";

/// Return the rotation of an architecture whose files need not name a scaling: where they have
/// divisors for short and for long contexts, these are used. To be called in front of the layers.
pub(super) fn long_if_there(b: &Builder<'_, '_>) -> decoder::Rope {
    if !b.has(SHORT) {
        return |b, h, layer, pairs| of_layer(b, h, layer, pairs).map(Some);
    }
    |b, h, layer, pairs| {
        let scaling = RopeScaling::Long { n_ctx_orig: h.rope.n_ctx_orig };
        declare(b, layer, pairs, RopeParams { scaling, ..h.rope }, &|_| false).map(Some)
    }
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
    let usual = RopeParams { scaling: RopeScaling::None, attn_factor: 1.0, ..h.rope };
    let params = if layer.window.is_some() { usual } else { h.rope };
    declare(b, layer, pairs, params, &|_| false).map(Some)
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

/// Declare the rotation of a layer whose positions have axes, time, height and width, each of which
/// turns the pairs of a section. Text has the same position on all three, and none on the fourth,
/// so pairs of dimensions that the fourth turns stay where they are.
pub(super) fn sections(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    pairs: Pairs,
) -> Result<Option<RopeId>, Error> {
    // Sections follow one another, and begin anew behind the last.
    let is_fixed = |pair| {
        h.rope_sections.is_some_and(|sections| {
            let own: usize = sections[..3].iter().sum();
            pair % (own + sections[3]).max(1) >= own
        })
    };
    declare(b, layer, pairs, h.rope, &is_fixed).map(Some)
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
    declare(b, layer, pairs, h.rope, &is_fixed).map(Some)
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

/// Declare the rotation of a layer with parameters of the caller's; pairs of dimensions for which
/// `is_fixed` holds do not turn.
pub(super) fn declare(
    b: &mut Builder<'_, '_>,
    layer: &LayerHparams,
    pairs: Pairs,
    params: RopeParams,
    is_fixed: &dyn Fn(usize) -> bool,
) -> Result<RopeId, Error> {
    let plain = Rope { attn_factor: params.attn_factor, ..plain(layer, pairs) };
    let mut factors = RopeFactors::Optional("rope_freqs.weight");
    let rope = match params.scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => Rope { freq_scale: 1.0 / factor, ..plain },
        RopeScaling::Yarn { factor, n_ctx_orig, beta_fast, beta_slow } => {
            let yarn = Yarn { ext_factor: 1.0, beta_fast, beta_slow, n_ctx_orig };
            Rope { freq_scale: 1.0 / factor, yarn: Some(yarn), ..plain }
        }
        RopeScaling::Long { n_ctx_orig } => {
            factors = RopeFactors::ByLength { short: SHORT, long: LONG, n_ctx_orig };
            plain
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
