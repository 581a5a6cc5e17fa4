//! Blocks that many architectures share: embeddings, attention, feed-forward networks.

use super::decoder::{AttentionSpec, Branch};
use crate::{
    error::Error,
    graph::{
        Activation, Builder, Cells, EmbedTable, ExpertNetwork, Gating, Linear, Mixture, Norm, Qkv, RopeId,
        Routing, RowOf, Value,
    },
    hparams::{Experts, Hparams, LayerHparams},
};
use alloc::format;
use backstitch_kv::Window;

/// Return the embeddings of the tokens.
pub(super) fn embed(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<Value, Error> {
    embed_scaled(b, h, 1.0)
}

/// Return the embeddings of the tokens, times `scale`.
pub(super) fn embed_scaled(b: &mut Builder<'_, '_>, h: &Hparams, scale: f32) -> Result<Value, Error> {
    let (name, by) = ("token_embd.weight", RowOf::Token);
    b.embed(EmbedTable { name, n_rows: h.n_vocab, width: h.n_embd, by, scale })
}

/// Add the row of the table `name` that `by` picks, if the file has it.
pub(super) fn add_rows(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Value,
    by: RowOf,
    name: &str,
) -> Result<(), Error> {
    if let Some(n_rows) = b.n_rows(name) {
        let y = b.embed(EmbedTable { name, n_rows, width: h.n_embd, by, scale: 1.0 })?;
        b.add(x, y);
    }
    Ok(())
}

/// The root-mean-square norm of the residual stream.
pub(super) fn rms_norm(h: &Hparams, name: &'static str) -> Norm {
    Norm::rms(name, h.norm_rms_eps)
}

/// The layer norm of the residual stream.
pub(super) fn layer_norm(h: &Hparams, name: &'static str) -> Norm {
    Norm::layer(name, h.norm_eps)
}

/// Return the shape of the keys and values of a layer, rotated by `rope`.
pub(super) fn cells(layer: &LayerHparams, rope: Option<RopeId>) -> Cells {
    let LayerHparams { n_head_kv, d_k, d_v, .. } = *layer;
    Cells { n_head_kv, d_k, d_v, window: layer.window.map(Window::Sliding), rope }
}

/// Return queries, keys and values: products with `attn_qkv` where the file has them in one tensor,
/// else with `attn_q`, `attn_k` and `attn_v`. Biases are used where the file has them, and so are
/// limits.
pub(super) fn qkv(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
) -> Result<Qkv, Error> {
    let (n_q, n_k, n_v) = (layer.n_q(), layer.n_k(), layer.n_v());
    let linears = match b.has("attn_qkv.weight") {
        true => Linear::fused("attn_qkv", [("q", n_q), ("k", n_k), ("v", n_v)]),
        false => [Linear::new("attn_q", n_q), Linear::new("attn_k", n_k), Linear::new("attn_v", n_v)],
    };
    let [q, k, v] = b.linears(x, linears)?;
    if let Some(limit) = h.clamp_kqv {
        [q, k, v].into_iter().for_each(|x| b.clamp(x, limit));
    }
    Ok(Qkv { q, k, v })
}

/// Return self-attention up to, not including, the output projection. Norms of queries and keys,
/// the growth of queries with their position, and sinks are used where the file has them.
pub(super) fn attention(b: &mut Builder<'_, '_>, spec: AttentionSpec<'_>, x: Value) -> Result<Value, Error> {
    let AttentionSpec { h, layer, choices, rope } = spec;
    let qkv = qkv(b, h, layer, x)?;
    let (before, behind) = if choices.rotates_first { (rope, None) } else { (None, rope) };
    rotate(b, layer, qkv, before);
    b.norm_if_there(qkv.q, (choices.head_norm)(h, layer, "attn_q_norm"))?;
    b.norm_if_there(qkv.k, (choices.head_norm)(h, layer, "attn_k_norm"))?;
    rotate(b, layer, qkv, behind);
    grow(b, h, qkv.q);
    let sinks = b.sinks("attn_sinks.weight", layer.n_head)?;
    Ok(b.attend_with(qkv, (choices.scores)(h, layer), sinks))
}

/// Let queries grow with their position, where the file says so.
pub(super) fn grow(b: &mut Builder<'_, '_>, h: &Hparams, q: Value) {
    if let Some(temperature) = h.temperature {
        b.scale_by_position(q, temperature);
    }
}

/// Rotate queries and keys, if the layer has a rotation.
pub(super) fn rotate(b: &mut Builder<'_, '_>, layer: &LayerHparams, qkv: Qkv, rope: Option<RopeId>) {
    if let Some(rope) = rope {
        b.rotate(qkv.q, rope, layer.n_head);
        b.rotate(qkv.k, rope, layer.n_head_kv);
    }
}

/// The tensors of a feed-forward network with a gate.
#[derive(Clone, Copy)]
pub(super) struct Ffn {
    /// Name of the gate matrix. Files that have both matrices in one tensor lack it; the tensor of
    /// the up matrix has the gate's rows first then.
    pub(super) gate: &'static str,
    /// Name of the up matrix.
    pub(super) up: &'static str,
    /// Name of the down matrix.
    pub(super) down: &'static str,
    /// Rows of the gate and up matrices.
    pub(super) n_ff: usize,
    /// The function of the gate.
    pub(super) activation: Activation,
}

impl Ffn {
    /// The network of a layer, with the usual names and SiLU.
    pub(super) const fn of_layer(layer: &LayerHparams) -> Self {
        let (gate, up, down) = ("ffn_gate", "ffn_up", "ffn_down");
        Ffn { gate, up, down, n_ff: layer.n_ff, activation: Activation::Silu }
    }

    /// The network that all tokens go through beside a mixture of experts.
    pub(super) const fn shared(n_ff: usize) -> Self {
        let (gate, up, down) = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp");
        Ffn { gate, up, down, n_ff, activation: Activation::Silu }
    }

    /// Return `activation(gate(x)) * up(x)`.
    pub(super) fn product(self, b: &mut Builder<'_, '_>, x: Value) -> Result<Value, Error> {
        let is_fused = !b.has(&format!("{}.weight", self.gate));
        let linears = match is_fused {
            true => Linear::fused(self.up, [("gate", self.n_ff), ("up", self.n_ff)]),
            false => [Linear::new(self.gate, self.n_ff), Linear::new(self.up, self.n_ff)],
        };
        let [gate, up] = b.linears(x, linears)?;
        Ok(b.gate(self.activation, gate, up))
    }

    /// Return `down(activation(gate(x)) * up(x))`.
    pub(super) fn result(self, b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
        let product = self.product(b, x)?;
        b.linear(product, Linear::new(self.down, h.n_embd))
    }

    /// Add `down(activation(gate(x)) * up(x))` to the residual stream.
    pub(super) fn add(
        self,
        b: &mut Builder<'_, '_>,
        h: &Hparams,
        x: Value,
        branch: Branch,
    ) -> Result<(), Error> {
        let product = self.product(b, x)?;
        branch.add_linear(b, h, product, self.down)
    }
}

/// Add a layer's network with a gate, by SiLU; a mixture of such where the layer has a router.
pub(super) fn gated_network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    network_or_experts(b, h, layer, x, branch, Routing::RENORMALISED)
}

/// Add a layer's network as [`gated_network`] does, but with weights of experts that are not
/// divided by their sum, unless the file says otherwise.
pub(super) fn gated_network_plain(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    network_or_experts(b, h, layer, x, branch, Routing::PLAIN)
}

/// Add a layer's network as [`gated_network_plain`] does, but with experts that are chosen by
/// sigmoids, unless the file says otherwise.
pub(super) fn gated_network_by_sigmoid(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    let routing = Routing { gating: Gating::Sigmoid, ..Routing::PLAIN };
    network_or_experts(b, h, layer, x, branch, routing)
}

/// Add a layer's network with a gate; where the layer has a router, a mixture of such and the
/// network beside it, if the file has one.
pub(super) fn network_or_experts(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
    routing: Routing,
) -> Result<(), Error> {
    let Some(experts) = h.experts_of(layer).filter(|_| b.has("ffn_gate_inp.weight")) else {
        return Ffn::of_layer(layer).add(b, h, x, branch);
    };
    let mixture = mixture(&experts, routing);
    if branch.norm.is_none() {
        branch.add_mixture(b, x, mixture)?;
        return add_shared_network(b, h, x, branch);
    }
    // The norm is that of the sum.
    let y = b.mixture(x, Mixture { logits: branch.logits, ..mixture })?;
    add_shared_network(b, h, x, Branch::to(y))?;
    branch.add(b, y)
}

/// Add the network that all tokens go through beside a mixture of experts, if the file has one.
fn add_shared_network(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, branch: Branch) -> Result<(), Error> {
    let Some(n_rows) = b.n_rows("ffn_up_shexp.weight") else { return Ok(()) };
    let is_fused = !b.has("ffn_gate_shexp.weight");
    let shared = Ffn::shared(if is_fused { n_rows / 2 } else { n_rows });
    if !b.has("ffn_gate_inp_shexp.weight") {
        return shared.add(b, h, x, branch);
    }
    let y = shared.result(b, h, x)?;
    let gate = b.linear(x, Linear::new("ffn_gate_inp_shexp", 1))?;
    b.gate(Activation::Sigmoid, gate, y);
    branch.add(b, y)
}

/// Return the mixture of a layer's experts, gated by SiLU, with `routing` as far as the file does
/// not say otherwise.
pub(super) fn mixture(experts: &Experts, routing: Routing) -> Mixture {
    let Experts { n_expert, n_used, n_ff, gating, is_renormalised, scale, groups, .. } = *experts;
    let routing = Routing {
        gating: gating.unwrap_or(routing.gating),
        is_renormalised: is_renormalised.unwrap_or(routing.is_renormalised),
        scale: scale * routing.scale,
        groups,
        ..routing
    };
    let network = ExpertNetwork::Gated(Activation::Silu);
    Mixture { n_expert, n_used, n_ff, routing, network, logits: None }
}

/// Add a layer's network with a gate, by GELU.
pub(super) fn gelu_gated_network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    Ffn { activation: Activation::Gelu, ..Ffn::of_layer(layer) }.add(b, h, x, branch)
}

/// Add a layer's network without a gate, by GELU.
pub(super) fn gelu_network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    plain_network(b, h, layer, x, branch, Activation::Gelu)
}

/// Add a layer's network without a gate, by squared rectifiers.
pub(super) fn squared_relu_network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    plain_network(b, h, layer, x, branch, Activation::SquaredRelu)
}

/// Add a layer's network without a gate: `down(activation(up(x)))`.
pub(super) fn plain_network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
    activation: Activation,
) -> Result<(), Error> {
    let up = b.linear(x, Linear::new("ffn_up", layer.n_ff))?;
    b.activate(activation, up);
    branch.add_linear(b, h, up, "ffn_down")
}

/// Describe the final norm and the scores of the vocabulary.
pub(super) fn head(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<(), Error> {
    b.head();
    let x = b.norm(x, rms_norm(h, "output_norm"))?;
    b.logits(x, h.n_vocab, None)
}
