//! Architectures: a file each, and the table of all.
//!
//! An architecture file describes the layers of one family of models to a
//! [`Builder`]: loading, checking, memory and running follow from that description. Files share
//! pieces through `arch/blocks.rs` and `arch/rope.rs`; nothing below imports this table.

mod afmoe;
mod arcee;
mod arwkv7;
mod baichuan;
mod bailingmoe;
mod bert;
mod bitnet;
mod blocks;
mod bloom;
mod cohere2;
mod command_r;
mod dbrx;
mod decoder;
mod deepseek2;
mod delta_net;
mod dots1;
mod encoder;
mod eurobert;
mod exaone4;
mod exaone_moe;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma4;
mod glm4;
mod glm4moe;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod granitehybrid;
mod hunyuan;
mod jais;
mod jamba;
mod jina_bert_v2;
mod kimi_linear;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod mamba2;
mod mellum;
mod mimo2;
mod minicpm;
mod minicpm3;
mod minimax_m2;
mod mistral3;
mod mla;
mod modern_bert;
mod mpt;
mod nemotron;
mod nemotron_h;
mod neo_bert;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmoe;
mod orion;
mod phi2;
mod phi3;
mod plamo;
mod plamo2;
mod plamo3;
mod plm;
mod qwen;
mod qwen2;
mod qwen2moe;
mod qwen2vl;
mod qwen3;
mod qwen35;
mod qwen3next;
mod qwen3vl;
mod refact;
mod rope;
mod rwkv;
mod rwkv6;
mod rwkv6qwen2;
mod rwkv7;
mod seed_oss;
mod smallthinker;
mod smollm3;
mod stablelm;
mod starcoder2;
mod t5;

use crate::{error::Error, graph::Builder, hparams::Hparams};

/// An architecture: its name in GGUF files and the description of its graph.
#[derive(Debug)]
pub struct Arch {
    /// The value of `general.architecture`.
    pub name: &'static str,
    /// Describes the model to the builder.
    pub build: fn(&mut Builder<'_, '_>, &Hparams) -> Result<(), Error>,
}

/// All architectures of this crate. Firmware can pass a shorter list to
/// [`Model::from_gguf`](crate::Model::from_gguf) and the linker drops the rest.
pub static ALL: &[&Arch] = &[
    &Arch { name: "afmoe", build: afmoe::build },
    &Arch { name: "arcee", build: arcee::build },
    &Arch { name: "arwkv7", build: arwkv7::build },
    &Arch { name: "baichuan", build: baichuan::build },
    &Arch { name: "bailingmoe", build: bailingmoe::build },
    &Arch { name: "bailingmoe2", build: dots1::build },
    &Arch { name: "bert", build: bert::build },
    &Arch { name: "bitnet", build: bitnet::build },
    &Arch { name: "bloom", build: bloom::build },
    &Arch { name: "chatglm", build: llama::build },
    &Arch { name: "codeshell", build: starcoder2::build },
    &Arch { name: "cohere2", build: cohere2::build },
    &Arch { name: "command-r", build: command_r::build },
    &Arch { name: "dbrx", build: dbrx::build },
    &Arch { name: "deepseek", build: bailingmoe::build },
    &Arch { name: "deepseek2", build: deepseek2::build },
    &Arch { name: "dots1", build: dots1::build },
    &Arch { name: "ernie4_5", build: llama::build },
    &Arch { name: "ernie4_5-moe", build: llama::build },
    &Arch { name: "eurobert", build: eurobert::build },
    &Arch { name: "exaone", build: qwen2::build },
    &Arch { name: "exaone-moe", build: exaone_moe::build },
    &Arch { name: "exaone4", build: exaone4::build },
    &Arch { name: "falcon", build: falcon::build },
    &Arch { name: "falcon-h1", build: falcon_h1::build },
    &Arch { name: "gemma", build: gemma::build },
    &Arch { name: "gemma-embedding", build: gemma3::build_encoder },
    &Arch { name: "gemma2", build: gemma2::build },
    &Arch { name: "gemma3", build: gemma3::build },
    &Arch { name: "gemma4", build: gemma4::build },
    &Arch { name: "glm4", build: glm4::build },
    &Arch { name: "glm4moe", build: glm4moe::build },
    &Arch { name: "gpt-oss", build: gpt_oss::build },
    &Arch { name: "gpt2", build: gpt2::build },
    &Arch { name: "gptneox", build: gptneox::build },
    &Arch { name: "granite", build: granite::build },
    &Arch { name: "granite_swa", build: granite::build_windowed },
    &Arch { name: "granitehybrid", build: granitehybrid::build },
    &Arch { name: "granitemoe", build: granite::build },
    &Arch { name: "hunyuan-dense", build: hunyuan::build },
    &Arch { name: "hunyuan-moe", build: hunyuan::build },
    &Arch { name: "hy_v3", build: dots1::build },
    &Arch { name: "internlm2", build: llama::build },
    &Arch { name: "jais", build: jais::build },
    &Arch { name: "jais2", build: nemotron::build },
    &Arch { name: "jamba", build: jamba::build },
    &Arch { name: "jina-bert-v2", build: jina_bert_v2::build },
    &Arch { name: "jina-bert-v3", build: nomic_bert::build_plain },
    &Arch { name: "kimi-linear", build: kimi_linear::build },
    &Arch { name: "lfm2", build: lfm2::build },
    &Arch { name: "lfm2moe", build: lfm2::build },
    &Arch { name: "llama", build: llama::build },
    &Arch { name: "llama-embed", build: eurobert::build_llama },
    &Arch { name: "llama4", build: llama4::build },
    &Arch { name: "maincoder", build: hunyuan::build_maincoder },
    &Arch { name: "mamba", build: mamba::build },
    &Arch { name: "mamba2", build: mamba2::build },
    &Arch { name: "mellum", build: mellum::build },
    &Arch { name: "mimo2", build: mimo2::build },
    &Arch { name: "minicpm", build: minicpm::build },
    &Arch { name: "minicpm3", build: minicpm3::build },
    &Arch { name: "minimax-m2", build: minimax_m2::build },
    &Arch { name: "mistral3", build: mistral3::build },
    &Arch { name: "modern-bert", build: modern_bert::build },
    &Arch { name: "mpt", build: mpt::build },
    &Arch { name: "nemotron", build: nemotron::build },
    &Arch { name: "nemotron_h", build: nemotron_h::build },
    &Arch { name: "nemotron_h_moe", build: nemotron_h::build },
    &Arch { name: "neo-bert", build: neo_bert::build },
    &Arch { name: "nomic-bert", build: nomic_bert::build },
    &Arch { name: "nomic-bert-moe", build: nomic_bert::build_experts },
    &Arch { name: "olmo", build: olmo::build },
    &Arch { name: "olmo2", build: olmo2::build },
    &Arch { name: "olmoe", build: olmoe::build },
    &Arch { name: "openelm", build: qwen3::build },
    &Arch { name: "orion", build: orion::build },
    &Arch { name: "pangu-embedded", build: qwen2::build },
    &Arch { name: "phi2", build: phi2::build },
    &Arch { name: "phi3", build: phi3::build },
    &Arch { name: "phimoe", build: phi3::build_experts },
    &Arch { name: "plamo", build: plamo::build },
    &Arch { name: "plamo2", build: plamo2::build },
    &Arch { name: "plamo3", build: plamo3::build },
    &Arch { name: "plm", build: plm::build },
    &Arch { name: "qwen", build: qwen::build },
    &Arch { name: "qwen2", build: qwen2::build },
    &Arch { name: "qwen2moe", build: qwen2moe::build },
    &Arch { name: "qwen2vl", build: qwen2vl::build },
    &Arch { name: "qwen3", build: qwen3::build },
    &Arch { name: "qwen35", build: qwen35::build },
    &Arch { name: "qwen35moe", build: qwen35::build },
    &Arch { name: "qwen3moe", build: qwen3::build },
    &Arch { name: "qwen3next", build: qwen3next::build },
    &Arch { name: "qwen3vl", build: qwen3vl::build },
    &Arch { name: "qwen3vlmoe", build: qwen3vl::build },
    &Arch { name: "refact", build: refact::build },
    &Arch { name: "rwkv6", build: rwkv6::build },
    &Arch { name: "rwkv6qwen2", build: rwkv6qwen2::build },
    &Arch { name: "rwkv7", build: rwkv7::build },
    &Arch { name: "seed_oss", build: seed_oss::build },
    &Arch { name: "smallthinker", build: smallthinker::build },
    &Arch { name: "smollm3", build: smollm3::build },
    &Arch { name: "stablelm", build: stablelm::build },
    &Arch { name: "starcoder", build: gpt2::build },
    &Arch { name: "starcoder2", build: starcoder2::build },
    &Arch { name: "t5", build: t5::build },
    &Arch { name: "xverse", build: llama::build },
];
