//! Sizes and routing of a mixture of experts.

use super::reader::{MAX_LAYERS, MAX_WIDTH, Reader};
use crate::{
    error::Error,
    graph::{ExpertGroups, Gating},
};

/// Sizes of a mixture of experts, and what the file says of the choice of experts.
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert!(hparams.experts.is_none()); // one feed-forward network in each layer
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Experts of a layer.
    pub n_expert: usize,
    /// Experts chosen for a token.
    pub n_used: usize,
    /// Width of each expert.
    pub n_ff: usize,
    /// The function of the router's logits; none: the architecture knows.
    pub gating: Option<Gating>,
    /// True if the weights of the chosen experts are divided by their sum; none: the architecture
    /// knows.
    pub is_renormalised: Option<bool>,
    /// Factor of all weights.
    pub scale: f32,
    /// Groups of experts, of which the best are chosen first.
    pub groups: Option<ExpertGroups>,
}

impl Experts {
    /// Read the sizes, if the file has experts, which are `n_ff` wide unless it states a width of
    /// their own.
    pub(super) fn read(r: &Reader<'_, '_>, n_ff: usize) -> Result<Option<Self>, Error> {
        const WIDTH: &str = "expert_feed_forward_length";
        let keys = r.gguf.keys()?;
        let Some(n_expert) = keys.optional::<u32>("expert_count")?.filter(|&n| n > 0) else {
            return Ok(None);
        };
        if n_expert > MAX_LAYERS {
            return Err(r.invalid("expert_count", n_expert, "at most 4096 experts"));
        }
        let (key, n_ff) = match r.optional_count(WIDTH, MAX_WIDTH)? {
            Some(n) => (WIDTH, n),
            None => ("feed_forward_length", n_ff),
        };
        r.product(key, n_expert as usize, n_ff)?;
        let n_used = r.count_of_all("expert_used_count", "expert_count", n_expert)?;
        Ok(Some(Experts {
            n_expert: n_expert as usize,
            n_used,
            n_ff,
            gating: gating(r)?,
            is_renormalised: keys.optional("expert_weights_norm")?,
            scale: match r.optional_f32("expert_weights_scale")? {
                // Writers of files without a factor store 0.
                None | Some(0.0) => 1.0,
                Some(scale) => scale,
            },
            groups: groups(r, n_expert, n_used)?,
        }))
    }
}

fn gating(r: &Reader<'_, '_>) -> Result<Option<Gating>, Error> {
    const KEY: &str = "expert_gating_func";
    match r.gguf.keys()?.optional::<u32>(KEY)? {
        None | Some(0) => Ok(None),
        Some(1) => Ok(Some(Gating::Softmax)),
        Some(2) => Ok(Some(Gating::Sigmoid)),
        Some(3) => Ok(Some(Gating::SoftmaxOfChosen)),
        Some(n) => Err(r.invalid(KEY, n, "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)")),
    }
}

fn groups(r: &Reader<'_, '_>, n_expert: u32, n_used: usize) -> Result<Option<ExpertGroups>, Error> {
    const GROUPS: &str = "expert_group_count";
    const USED: &str = "expert_group_used_count";
    let Some(n_group) = r.gguf.keys()?.optional::<u32>(GROUPS)?.filter(|&n| n > 1) else { return Ok(None) };
    if n_group > 64 || !n_expert.is_multiple_of(n_group) {
        return Err(r.invalid(GROUPS, n_group, "a divisor of expert_count, at most 64"));
    }
    let n_used_groups = r.count_of_all(USED, GROUPS, n_group)?;
    let n_reachable = n_used_groups * (n_expert / n_group) as usize;
    if n_reachable < n_used {
        return Err(r.invalid(USED, n_used_groups, "groups with expert_used_count experts together"));
    }
    Ok(Some(ExpertGroups { n_group: n_group as usize, n_used: n_used_groups }))
}
