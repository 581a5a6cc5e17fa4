//! Sizes of state-space layers.

use super::reader::{MAX_TAPS, MAX_WIDTH, Reader};
use crate::error::Error;

/// Sizes of state-space layers: Mamba, Mamba-2, and the gated delta rule, which reuses the keys.
///
/// # Example
/// ```
/// use backstitch_models::Ssm;
///
/// let (d_inner, d_state) = (128, 16);
/// let ssm = Ssm { d_conv: 4, d_inner, d_state, dt_rank: 8, n_group: 1, dt_b_c_rms: false };
/// assert_eq!(ssm.n_channels(), d_inner + 2 * d_state);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssm {
    /// Taps of the convolution.
    pub d_conv: usize,
    /// Width of the recurrence.
    pub d_inner: usize,
    /// State size a channel.
    pub d_state: usize,
    /// `ssm.time_step_rank`: the heads of Mamba-2; the columns of Mamba-1's time steps before their
    /// projection.
    pub dt_rank: usize,
    /// Groups of heads that share B and C; 1 also where the file says 0: all heads share them.
    pub n_group: usize,
    /// True if time steps, B and C are normalised, without weights.
    pub dt_b_c_rms: bool,
}

impl Ssm {
    /// Return the channels that go through the convolution of Mamba-2: x, B and C.
    pub fn n_channels(&self) -> usize {
        self.d_inner + 2 * self.n_group * self.d_state
    }

    /// Read the sizes, if the file has any.
    pub(super) fn read(r: &Reader<'_, '_>) -> Result<Option<Self>, Error> {
        let Some(d_inner) = r.optional_count("ssm.inner_size", MAX_WIDTH)? else { return Ok(None) };
        let ssm = Ssm {
            d_conv: r.count("ssm.conv_kernel", MAX_TAPS)?,
            d_inner,
            d_state: r.count("ssm.state_size", 1 << 16)?,
            dt_rank: r.count("ssm.time_step_rank", MAX_WIDTH)?,
            n_group: n_group(r)?,
            dt_b_c_rms: r.gguf.keys()?.optional("ssm.dt_b_c_rms")?.unwrap_or(false),
        };
        // u64: the product may not fit a 32-bit usize.
        if ssm.d_inner as u64 * ssm.d_state as u64 > 1 << 28
            || ssm.n_group as u64 * ssm.d_state as u64 > u64::from(MAX_WIDTH)
        {
            return Err(r.invalid("ssm.state_size", ssm.d_state, "a state of at most 2^28 numbers"));
        }
        Ok(Some(ssm))
    }
}

/// Return the groups of heads. Mamba-1 has none, and files of it lack the key; PLaMo-2 states 0.
fn n_group(r: &Reader<'_, '_>) -> Result<usize, Error> {
    const GROUPS: &str = "ssm.group_count";
    match r.gguf.keys()?.optional::<u32>(GROUPS)? {
        None | Some(0) => Ok(1),
        Some(_) => r.count(GROUPS, MAX_WIDTH),
    }
}
