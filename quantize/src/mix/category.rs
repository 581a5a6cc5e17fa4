//! Kinds of tensors by their names.

use backstitch_models::gguf::TensorInfo;

/// A kind of tensor that mixtures tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    TokenEmbedding,
    Output,
    AttentionQ,
    AttentionK,
    /// Attention values, also in one matrix with queries and keys, or compressed with keys.
    AttentionV,
    AttentionOutput,
    FfnUp,
    FfnGate,
    FfnDown,
    Other,
}

impl Category {
    /// Return the kind of the tensor of that name.
    pub fn of(name: &str) -> Self {
        const PARTS: [(&str, Category); 9] = [
            ("attn_qkv.weight", Category::AttentionV),
            ("attn_kv_b.weight", Category::AttentionV),
            ("attn_v.weight", Category::AttentionV),
            ("attn_k.weight", Category::AttentionK),
            ("attn_q.weight", Category::AttentionQ),
            ("attn_output.weight", Category::AttentionOutput),
            ("ffn_up", Category::FfnUp),
            ("ffn_gate", Category::FfnGate),
            ("ffn_down", Category::FfnDown),
        ];
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::TokenEmbedding,
            _ => PARTS.iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |(_, kind)| *kind),
        }
    }

    /// Return true for attention values and what holds them.
    pub fn is_attention_v(self) -> bool {
        self == Self::AttentionV
    }
}

/// Parts of the names of matrices that stay as they are: small ones, or ones that are no factors of
/// a product.
const KEPT: [&str; 36] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
    "token_types.weight",
];

/// Return true if quantising a model changes the type of this tensor.
pub fn is_quantised(tensor: &TensorInfo<'_>) -> bool {
    let name = tensor.name();
    let n_dims = tensor.shape().iter().skip_while(|&&dim| dim == 1).count();
    let is_kept = name == "position_embd.weight" || KEPT.iter().any(|part| name.contains(part));
    n_dims >= 2 && name.ends_with("weight") && !is_kept
}
