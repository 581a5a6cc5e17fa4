//! Names of tensors: the parts of a name, and tables from checkpoints' names to those of GGUF.
//!
//! A name such as `model.layers.3.self_attn.q_proj.weight` has a layer (3), a path
//! (`self_attn.q_proj`) and an ending (`.weight`). Tables hold paths. An architecture lists the
//! tables of the blocks that it is made of, so that each table stands here once.

/// A table from paths to names.
pub(crate) type Names = &'static [(&'static str, &'static str)];

/// A name in its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Number of the layer; `None` outside of layers.
    pub layer: Option<usize>,
    /// Name without layer and ending.
    pub path: String,
    /// `.weight`, `.bias`, `.scale` or nothing.
    pub ending: &'static str,
}

/// Words before the number of a layer. Anything else is not a layer of the text model.
const PREFIXES: &[&str] = &[
    "model.layers",
    "layers",
    "h",
    "transformer.h",
    "transformer.blocks",
    "transformer.layer",
    "gpt_neox.layers",
    "backbone.layers",
    "encoder.layer",
    "encoder.layers",
    "encoder.block",
    "decoder.block",
    "rwkv.blocks",
    "model.layers.layers",
    "blk",
];

impl Name {
    /// Take a name apart; `None` if a number stands where no layers are.
    pub fn parse(name: &str) -> Option<Self> {
        let ending =
            [".weight", ".bias", ".scale"].into_iter().find(|ending| name.ends_with(ending)).unwrap_or("");
        let stem = name.strip_suffix(ending).unwrap_or(name);
        let parts: Vec<&str> = stem.split('.').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let Some(at) = parts.iter().position(is_number) else {
            return Some(Self { layer: None, path: stem.into(), ending });
        };
        let prefix = parts.get(..at)?.join(".");
        if !PREFIXES.contains(&prefix.as_str()) {
            return None;
        }
        let layer = parts.get(at)?.parse().ok()?;
        let path = parts.get(at + 1..)?.join(".");
        // T5 has two stacks of layers.
        let stack = prefix.strip_suffix(".block").map_or(String::new(), |stack| format!("{stack}."));
        Some(Self { layer: Some(layer), path: format!("{stack}{path}"), ending })
    }

    /// Split `experts.7.w1` in a path into 7 and the path without it, also `x.norms.7` into 7 and
    /// `x`; `None` if nothing is numbered.
    pub fn expert(&self) -> Option<(usize, Self)> {
        if let Some((path, number)) = self.path.split_once(".norms.") {
            return Some((number.parse().ok()?, Self { path: path.into(), ..self.clone() }));
        }
        let (before, after) = self.path.split_once("experts.")?;
        let (number, rest) = after.split_once('.')?;
        let path = format!("{before}experts.{rest}");
        Some((number.parse().ok()?, Self { path, ..self.clone() }))
    }

    /// Return the name of the tensor in GGUF, by the first table that has it.
    pub fn mapped(&self, tables: &[Names]) -> Option<&'static str> {
        let find = |table: &Names| table.iter().find(|row| row.0 == self.path).map(|row| row.1);
        if self.layer.is_none() { find(&OUTSIDE) } else { tables.iter().find_map(find) }
    }

    /// Return the whole name of a tensor in GGUF.
    pub fn whole(layer: Option<usize>, name: &str, ending: &str) -> String {
        let dotted = if ending.is_empty() || ending.starts_with('.') { "" } else { "." };
        match layer {
            // T5 has two stacks of layers.
            Some(layer) => match name.split_once('.').filter(|parts| ["enc", "dec"].contains(&parts.0)) {
                Some((stack, name)) => format!("{stack}.blk.{layer}.{name}{dotted}{ending}"),
                None => format!("blk.{layer}.{name}{dotted}{ending}"),
            },
            None => format!("{name}{dotted}{ending}"),
        }
    }
}

/// Return the number of the layer in a name of `model.layers`; `None` if it has none.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("model.layers.")?.split_once('.')?.0.parse().ok()
}

/// Names outside of layers, of all architectures.
const OUTSIDE: Names = &[
    ("model.embed_tokens", "token_embd"),
    ("embed_tokens", "token_embd"),
    ("gpt_neox.embed_in", "token_embd"),
    ("transformer.wte", "token_embd"),
    ("wte", "token_embd"),
    ("transformer.word_embeddings", "token_embd"),
    ("word_embeddings", "token_embd"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.tok_embeddings", "token_embd"),
    ("transformer.embd.wte", "token_embd"),
    ("backbone.embedding", "token_embd"),
    ("backbone.embeddings", "token_embd"),
    ("rwkv.embeddings", "token_embd"),
    ("model.embeddings", "token_embd"),
    ("shared", "token_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("word_embeddings_layernorm", "token_embd_norm"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("embeddings.norm", "token_embd_norm"),
    ("emb_ln", "token_embd_norm"),
    ("rwkv.blocks.0.pre_ln", "token_embd_norm"),
    ("model.pre_ln", "token_embd_norm"),
    ("model.embedding_norm", "token_embd_norm"),
    ("transformer.wpe", "position_embd"),
    ("wpe", "position_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embed_out", "output"),
    ("lm_head", "output"),
    ("lm_head.linear", "output"),
    ("output", "output"),
    ("head", "output"),
    ("gpt_neox.final_layer_norm", "output_norm"),
    ("transformer.ln_f", "output_norm"),
    ("ln_f", "output_norm"),
    ("model.norm", "output_norm"),
    ("norm", "output_norm"),
    ("model.final_layernorm", "output_norm"),
    ("transformer.norm_f", "output_norm"),
    ("lm_head.ln", "output_norm"),
    ("backbone.norm_f", "output_norm"),
    ("rwkv.ln_out", "output_norm"),
    ("model.ln_out", "output_norm"),
    ("final_norm", "output_norm"),
    ("encoder.final_layer_norm", "enc.output_norm"),
    ("decoder.final_layer_norm", "dec.output_norm"),
    ("classifier.dense", "cls"),
    ("pre_classifier", "cls"),
    ("head.dense", "cls"),
    ("classifier", "cls"),
    ("classifier.out_proj", "cls.output"),
    ("head.norm", "cls.norm"),
    ("model.embed_tokens_per_layer", "per_layer_token_embd"),
    ("model.per_layer_model_projection", "per_layer_model_proj"),
    ("model.per_layer_projection_norm", "per_layer_proj_norm"),
];

/// Attention with separate projections.
pub(crate) const ATTENTION: Names = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
];

/// Norms of queries and keys.
pub(crate) const QK_NORM: Names = &[
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
];

/// Norms before attention and before the feed-forward network.
pub(crate) const PRE_NORMS: Names =
    &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")];

/// Norms before and after both.
pub(crate) const SANDWICH_NORMS: Names = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// The gated feed-forward network.
pub(crate) const GATED: Names =
    &[("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")];

/// The router and stacked experts.
pub(crate) const EXPERTS: Names = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
];

/// Experts as Mixtral names them.
pub(crate) const MIXTRAL_EXPERTS: Names = &[
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
    ("block_sparse_moe.experts.w2", "ffn_down_exps"),
    ("block_sparse_moe.experts.w3", "ffn_up_exps"),
];

/// The expert that every token uses, with a gate of its own.
pub(crate) const SHARED_EXPERT: Names = &[
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
];

/// The experts that every token uses, as one.
pub(crate) const SHARED_EXPERTS: Names = &[
    ("mlp.gate.e_score_correction", "exp_probs_b"),
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
];

/// Attention with compressed keys and values.
pub(crate) const LATENT_ATTENTION: Names = &[
    ("self_attn.q_a_proj", "attn_q_a"),
    ("self_attn.q_b_proj", "attn_q_b"),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    ("self_attn.kv_b_proj", "attn_kv_b"),
    ("self_attn.q_a_layernorm", "attn_q_a_norm"),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
];

/// Mixers of state spaces. Their prefixes (`mixer.`, `mamba.`, `linear_attn.`) are dropped first.
pub(crate) const STATE_SPACE: Names = &[
    ("ssm.in_proj", "ssm_in"),
    ("ssm.conv1d", "ssm_conv1d"),
    ("ssm.x_proj", "ssm_x"),
    ("ssm.dt_proj", "ssm_dt"),
    ("ssm.A_log", "ssm_a"),
    ("ssm.D", "ssm_d"),
    ("ssm.norm", "ssm_norm"),
    ("ssm.out_proj", "ssm_out"),
];

/// GPT-2's block.
pub(crate) const GPT2: Names = &[
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// The block of GPT-NeoX, Bloom and Falcon.
pub(crate) const FUSED: Names = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("attention.query_key_value", "attn_qkv"),
    ("attention.dense", "attn_output"),
    ("self_attention.query_key_value", "attn_qkv"),
    ("self_attention.dense", "attn_output"),
    ("mlp.dense_h_to_4h", "ffn_up"),
    ("mlp.dense_4h_to_h", "ffn_down"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart() {
        let name = Name::parse("model.layers.12.mlp.experts.3.up_proj.weight").unwrap();
        assert_eq!(
            (name.layer, name.path.as_str(), name.ending),
            (Some(12), "mlp.experts.3.up_proj", ".weight")
        );
        let (expert, rest) = name.expert().unwrap();
        assert_eq!((expert, rest.path.as_str()), (3, "mlp.experts.up_proj"));
        assert_eq!(rest.mapped(&[EXPERTS]), Some("ffn_up_exps"));
        assert_eq!(Name::parse("backbone.layers.0.mixer.A_log").unwrap().ending, "");
        assert_eq!(Name::parse("vision.blocks.0.q.weight"), None);
        assert_eq!(Name::parse("lm_head.weight").unwrap().mapped(&[]), Some("output"));
        assert_eq!(Name::parse("decoder.block.1.layer.0.x.weight").unwrap().path, "decoder.layer.0.x");
    }
}
