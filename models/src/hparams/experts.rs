//! Sizes and routing of a mixture of experts.

use super::reader::{MAX_LAYERS, MAX_WIDTH, Reader};
use super::{Hparams, LayerHparams};
use crate::{
    error::Error,
    gguf::PerLayer,
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
    /// Experts chosen for a token; where layers differ, the most.
    pub n_used: usize,
    /// Width of each expert; where layers differ, the largest.
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

const WIDTH: &str = "expert_feed_forward_length";
const USED: &str = "expert_used_count";

/// The numbers of experts that may differ from layer to layer.
#[derive(Clone, Debug)]
pub(super) struct ExpertLayers {
    n_used: PerLayer<u32>,
    n_ff: Option<PerLayer<u32>>,
}

impl Hparams {
    /// Return the mixture of experts of a layer, if the model has any there.
    pub fn experts_of(&self, layer: &LayerHparams) -> Option<Experts> {
        let (experts, own) = (self.experts?, self.expert_layers.as_ref()?);
        let n_ff = own.n_ff.as_ref().and_then(|all| all.at(layer.il)).map_or(experts.n_ff, |n| n as usize);
        let n_used = own.n_used.at(layer.il).filter(|&n| n > 0)? as usize;
        Some(Experts { n_used, n_ff, ..experts })
    }
}

impl Experts {
    /// Read the sizes, if the file has experts. Old files do not state their width: it is that of
    /// their matrices, or `n_ff`. Lists have an element for each of `n_block` layers, 0 for those
    /// without experts.
    pub(super) fn read(
        r: &Reader<'_, '_>,
        n_ff: usize,
        n_block: usize,
    ) -> Result<Option<(Self, ExpertLayers)>, Error> {
        let keys = r.gguf.keys()?;
        let Some(n_expert) = keys.optional::<u32>("expert_count")?.filter(|&n| n > 0) else {
            return Ok(None);
        };
        if n_expert > MAX_LAYERS {
            return Err(r.invalid("expert_count", n_expert, "at most 4096 experts"));
        }
        let layers = ExpertLayers {
            n_used: r.per_layer(USED, n_block)?.ok_or_else(|| r.missing(USED))?,
            n_ff: r.per_layer(WIDTH, n_block)?,
        };
        let (key, n_ff) = match widest(r, &layers, n_block)? {
            Some(n) => (WIDTH, n),
            None => match width_of_matrices(r) {
                Some(n) => (WIDTH, n),
                None => ("feed_forward_length", n_ff),
            },
        };
        r.product(key, n_expert as usize, n_ff)?;
        let most = (0..n_block).filter_map(|il| layers.n_used.at(il)).fold(0, u32::max);
        let n_used = r.of_all(USED, "expert_count", most, n_expert)?;
        let experts = Experts {
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
        };
        Ok(Some((experts, layers)))
    }
}

/// Return the largest width that the file states for experts, if it states any.
fn widest(r: &Reader<'_, '_>, layers: &ExpertLayers, n_block: usize) -> Result<Option<usize>, Error> {
    let zero = matches!(layers.n_ff, Some(PerLayer::Each(_)));
    let mut widest = None;
    for il in 0..n_block {
        widest = widest.max(r.count_of((WIDTH, MAX_WIDTH, zero), layers.n_ff.as_ref(), il)?);
    }
    Ok(widest)
}

/// Return the columns of the first stack of experts' down matrices.
fn width_of_matrices(r: &Reader<'_, '_>) -> Option<usize> {
    let mut tensors = r.gguf.tensors().iter();
    tensors.find(|tensor| tensor.name().ends_with(".ffn_down_exps.weight"))?.shape().last().copied()
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
