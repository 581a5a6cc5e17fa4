//! Qwen 3.5: gated delta rule and gated attention, dense networks, positions with axes.

use super::{
    Arch, blocks,
    delta_net::{self, Member},
};
use crate::{
    error::Error,
    graph::{Builder, Sharing, Value},
    hparams::{Hparams, Ssm},
};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "qwen35", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let rope = h.rope(b, Pairs::Split)?;
    if let Some(sections) = h.rope_sections {
        b.hold_still(rope, |pair| is_unclaimed(sections, pair));
    }
    let member = Member { rope, sharing: Sharing::Strided, gates, feed_forward: blocks::feed_forward };
    delta_net::transformer(b, h, &member)
}

/// Whether a pair of dimensions belongs to none of the three axes of position, which take turns as long as their sections
/// reach: such a pair turns by a fourth coordinate, which text does not have.
fn is_unclaimed(sections: [usize; 4], pair: usize) -> bool {
    let place = pair % sections.iter().sum::<usize>().max(1);
    place >= 3 * sections[place % 3]
}

fn gates(b: &mut Builder<'_, '_>, h: &Hparams, ssm: &Ssm, x: Value) -> Result<[Value; 2], Error> {
    let matrices =
        [b.linear("ssm_beta", ssm.dt_rank, h.n_embd)?, b.linear("ssm_alpha", ssm.dt_rank, h.n_embd)?];
    Ok(b.linears(x, matrices, ["beta", "alpha"]))
}

#[cfg(test)]
mod tests {
    use super::is_unclaimed;

    #[test]
    fn axes_take_turns_as_far_as_their_sections_reach() {
        let unclaimed =
            |sections| -> Vec<usize> { (0..12).filter(|&pair| is_unclaimed(sections, pair)).collect() };
        assert_eq!(unclaimed([4, 4, 4, 0]), [0; 0]);
        // The second axis ends at 1, the third at 2; the fourth section is all unclaimed but for what the first reaches.
        assert_eq!(unclaimed([4, 1, 1, 6]), [4, 5, 7, 8, 10, 11]);
        assert_eq!(unclaimed([3, 3, 2, 0]), [0; 0]);
        assert_eq!(unclaimed([0; 4]), (0..12).collect::<Vec<_>>());
    }
}
