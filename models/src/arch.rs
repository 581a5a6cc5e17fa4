//! Architectures: a file each, and the table of all.
//!
//! An architecture file describes the layers of one family of models to a
//! [`Builder`]: loading, checking, memory and running follow from that description. Files share
//! pieces through `arch/blocks.rs` and `arch/rope.rs`; nothing below imports this table.

mod arwkv7;
mod bert;
mod blocks;
mod delta_net;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod granitehybrid;
mod jamba;
mod lfm2;
mod llama;
mod mamba;
mod mamba2;
mod nemotron_h;
mod phi3;
mod plamo2;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3next;
mod rope;
mod rwkv;
mod rwkv6;
mod rwkv6qwen2;
mod rwkv7;
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
    &Arch { name: "arwkv7", build: arwkv7::build },
    &Arch { name: "bert", build: bert::build },
    &Arch { name: "falcon-h1", build: falcon_h1::build },
    &Arch { name: "gemma2", build: gemma2::build },
    &Arch { name: "gemma3", build: gemma3::build },
    &Arch { name: "granitehybrid", build: granitehybrid::build },
    &Arch { name: "jamba", build: jamba::build },
    &Arch { name: "lfm2", build: lfm2::build },
    &Arch { name: "llama", build: llama::build },
    &Arch { name: "mamba2", build: mamba2::build },
    &Arch { name: "mamba", build: mamba::build },
    &Arch { name: "nemotron_h", build: nemotron_h::build },
    &Arch { name: "phi3", build: phi3::build },
    &Arch { name: "plamo2", build: plamo2::build },
    &Arch { name: "qwen2", build: qwen2::build },
    &Arch { name: "qwen3", build: qwen3::build },
    &Arch { name: "qwen35", build: qwen35::build },
    &Arch { name: "qwen3next", build: qwen3next::build },
    &Arch { name: "rwkv6", build: rwkv6::build },
    &Arch { name: "rwkv6qwen2", build: rwkv6qwen2::build },
    &Arch { name: "rwkv7", build: rwkv7::build },
    &Arch { name: "t5", build: t5::build },
];
