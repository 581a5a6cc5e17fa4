//! Encoders: BERT, DistilBERT, RoBERTa, XLM-RoBERTa, Nomic's BERT, ModernBERT.

use super::standard::{self, need_numbers};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::Names;
use crate::tensor::Tensor;
use crate::vocab::Style;

/// The block of BERT and RoBERTa.
const BERT: Names = &[
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// The block of DistilBERT.
const DISTILBERT: Names = &[
    ("attention.q_lin", "attn_q"),
    ("attention.k_lin", "attn_k"),
    ("attention.v_lin", "attn_v"),
    ("attention.out_lin", "attn_output"),
    ("sa_layer_norm", "attn_output_norm"),
    ("ffn.lin1", "ffn_up"),
    ("ffn.lin2", "ffn_down"),
    ("output_layer_norm", "layer_output_norm"),
];

/// The block of Nomic's BERT, with a gate or with experts.
const NOMIC: Names = &[
    ("attn.Wqkv", "attn_qkv"),
    ("attn.out_proj", "attn_output"),
    ("norm1", "attn_output_norm"),
    ("mlp.fc11", "ffn_up"),
    ("mlp.fc12", "ffn_gate"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
    ("norm2", "layer_output_norm"),
    ("mlp.router.layer", "ffn_gate_inp"),
    ("mlp.experts.mlp.w1", "ffn_up_exps"),
    ("mlp.experts.mlp.w2", "ffn_down_exps"),
];

/// The block of ModernBERT.
const MODERN: Names = &[
    ("attn_norm", "attn_norm"),
    ("attn.Wqkv", "attn_qkv"),
    ("attn.Wo", "attn_output"),
    ("mlp_norm", "ffn_norm"),
    ("mlp.Wi", "ffn_up"),
    ("mlp.Wo", "ffn_down"),
];

const ENCODER: Family = Family {
    architecture: "bert",
    metadata,
    rename: |_, name| text_encoder(&name, "bert."),
    names: &[BERT],
    vocabulary: &[Style::WordPiece],
    pools: true,
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["BertModel", "BertForMaskedLM", "CamembertModel", "BertForSequenceClassification"],
        ..ENCODER
    },
    Family {
        classes: &["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"],
        metadata: |config, meta| {
            metadata(config, meta)?;
            // The files do not say.
            meta.set_own("attention.layer_norm_epsilon", 1e-12);
            Ok(())
        },
        rename: |_, name| if name.starts_with("vocab_") { None } else { text_encoder(&name, "distilbert.") },
        names: &[DISTILBERT],
        ..ENCODER
    },
    Family {
        classes: &["RobertaModel", "RobertaForSequenceClassification"],
        prepare: skip_padding,
        rename: |_, name| text_encoder(&name, "roberta."),
        edits: &[("position_embd", Edit::Each(behind_padding))],
        vocabulary: &[Style::Bpe],
        after_vocabulary: |config, meta| {
            let n_types = config.number(&["type_vocab_size"])?.unwrap_or(1);
            meta.set("tokenizer.ggml.token_type_count", n_types);
            Ok(())
        },
        ..ENCODER
    },
    Family {
        classes: &["XLMRobertaModel", "XLMRobertaForSequenceClassification"],
        prepare: skip_padding,
        rename: |_, name| text_encoder(&name, "roberta."),
        edits: &[("position_embd", Edit::Each(behind_padding))],
        vocabulary: &[Style::XlmRoberta],
        ..ENCODER
    },
    Family {
        classes: &["NomicBertModel"],
        architecture: "nomic-bert-moe",
        when: |config| config.number(&["moe_every_n_layers"]).is_ok_and(|n| n.is_some_and(|n| n > 0)),
        prepare: |config| {
            skip_padding(config)?;
            trained_positions(config)
        },
        metadata: |config, meta| {
            metadata(config, meta)?;
            need_numbers(
                config,
                meta,
                &[("moe_every_n_layers", &["moe_every_n_layers"]), ("expert_used_count", &["moe_top_k"])],
            )
        },
        rename: |_, name| {
            let is_weight = name.ends_with("experts.mlp.w1") || name.ends_with("experts.mlp.w2");
            let name = if is_weight { format!("{name}.weight") } else { name };
            if name.contains("mlp.experts.bias") { None } else { text_encoder(&name, "bert.") }
        },
        names: &[NOMIC],
        edits: &[("ffn_up_exps", Edit::Each(experts)), ("ffn_down_exps", Edit::Each(experts_down))],
        vocabulary: &[Style::XlmRoberta],
        ..ENCODER
    },
    Family {
        classes: &["NomicBertModel"],
        architecture: "nomic-bert",
        prepare: trained_positions,
        names: &[NOMIC],
        ..ENCODER
    },
    Family {
        classes: &["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
        architecture: "modern-bert",
        metadata: modern,
        rename: |_, name| text_encoder(&name, "model."),
        names: &[MODERN],
        vocabulary: &[Style::Bpe],
        after_vocabulary: |_, meta| {
            for role in ["bos", "eos", "sep"] {
                let key = format!("tokenizer.ggml.add_{role}_token");
                let known = meta.get(&key).is_some();
                if !known {
                    meta.set(&key, true);
                }
            }
            Ok(())
        },
        ..ENCODER
    },
];

/// Set the usual keys, and that tokens see those behind them.
fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    meta.set_own("attention.causal", false);
    let labels = config.get(&["id2label"]).and_then(serde_json::Value::as_object);
    let labels: Vec<String> =
        labels.into_iter().flatten().filter_map(|(_, label)| label.as_str().map(str::to_owned)).collect();
    if labels.len() == 1 || labels.len() > 1 && labels.first().is_some_and(|label| label != "LABEL_0") {
        meta.set_own("classifier.output_labels", labels);
    }
    Ok(())
}

/// Set the keys of ModernBERT.
fn modern(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    metadata(config, meta)?;
    need_numbers(
        config,
        meta,
        &[("attention.sliding_window", &["local_attention"]), ("vocab_size", &["vocab_size"])],
    )?;
    meta.set_some("attention.sliding_window_pattern", config.number(&["global_attn_every_n_layers"])?);
    meta.set_own("rope.scaling.type", "none");
    meta.set_some("hidden_activation", config.text(&["hidden_activation"]));
    Ok(())
}

/// Return the name of a tensor without a prefix; `None` if it belongs to no text encoder.
fn text_encoder(name: &str, prefix: &str) -> Option<String> {
    let name = name.strip_prefix(prefix).unwrap_or(name);
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let other = ["embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"].contains(&name)
        || name.starts_with("cls.predictions")
        || name.starts_with("cls.seq_relationship");
    let renamed = match (name.strip_suffix(".gamma"), name.strip_suffix(".beta")) {
        (Some(path), _) => format!("{path}.weight"),
        (_, Some(path)) => format!("{path}.bias"),
        _ => name.into(),
    };
    (!other).then_some(renamed)
}

/// Count positions from behind the padding token, where RoBERTa's begin.
fn skip_padding(config: &mut Config) -> Result<(), Error> {
    const POSITIONS: &[&str] = &["max_position_embeddings"];
    if let (Some(padding), Some(n)) = (config.number(&["pad_token_id"])?, config.number(POSITIONS)?) {
        let left = n.checked_sub(padding + 1).ok_or_else(|| config.wrong(POSITIONS, "more than padding"))?;
        config.set("max_position_embeddings", left);
        config.set("position_offset", padding + 1);
    }
    Ok(())
}

/// Drop the embeddings of positions that no token has.
fn behind_padding(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let offset = at.config.number(&["position_offset"])?.unwrap_or(0) as usize;
    tensor.slice(0, offset, tensor.dim(0).saturating_sub(offset))
}

/// Set the number of positions for which Nomic's models are trained.
fn trained_positions(config: &mut Config) -> Result<(), Error> {
    let trained = config.number(&["max_trained_positions"])?.unwrap_or(2048);
    let n = match (config.need(&["n_positions"])?, trained) {
        (8192, 2048) => 2048,
        (2048, 2048) => 512,
        _ => return Err(config.wrong(&["n_positions"], "8192 or 2048, of models trained for 2048")),
    };
    config.set("n_positions", n);
    Ok(())
}

/// Give joined experts a dimension of their own.
fn experts(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let n = at.config.size(&["num_local_experts", "num_experts"])?;
    tensor.split_axis(0, n)
}

/// Give joined experts a dimension of their own, and transpose each.
fn experts_down(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    experts(at, tensor)?.transpose()
}
