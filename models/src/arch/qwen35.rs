//! Qwen 3.5 (Qwen team, 2026, the Qwen 3.5 model cards): gated delta rule and gated attention,
//! with dense networks.
//!
//! Learning rate and decay of the delta rule have a matrix each (`ssm_beta`, `ssm_alpha`).
//! Positions have axes, time, height and width (`rope.dimension_sections`): text has the same
//! position on all three, and none on the fourth, so pairs of dimensions that the fourth turns stay
//! where they are.

use super::{
    decoder::Decoder,
    delta_net::{self, Gates},
    rope,
};
use crate::{
    error::Error,
    graph::{Builder, Linear, Sharing, Value},
    hparams::{Hparams, Ssm},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |b, h, layer, pairs| {
            let is_fixed = |pair| h.rope_sections.is_some_and(|sections| is_unclaimed(sections, pair));
            rope::declare(b, layer, pairs, h.rope.scaling, &is_fixed).map(Some)
        },
        mixer: |b, h, _, x| delta_net::mixer(b, h, x, Sharing::Strided, gates),
        ..delta_net::DECODER
    };
    decoder.build(b, h)
}

/// Return true if a pair of dimensions belongs to none of the three axes of position. The axes take
/// turns as long as their sections reach; other pairs turn by the fourth coordinate.
fn is_unclaimed(sections: [usize; 4], pair: usize) -> bool {
    let place = pair % sections.iter().sum::<usize>().max(1);
    place >= 3 * sections[place % 3]
}

fn gates(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<Gates, Error> {
    let linears = [Linear::new("ssm_beta", ssm.dt_rank), Linear::new("ssm_alpha", ssm.dt_rank)];
    let [beta, alpha] = b.linears(x, linears)?;
    Ok(Gates { beta, alpha })
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
