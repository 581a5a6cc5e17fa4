//! Architectures: a file each, and the table of all.
//!
//! An architecture reads its numbers from the file's metadata and describes its layers to a
//! [`Builder`]; weights, checks, memory and the running of it follow from that description.

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
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3next;
mod rwkv;
mod rwkv6;
mod rwkv7;
mod t5;

use crate::{error::Error, graph::Builder, hparams::Hparams};

/// An architecture: its name in GGUF files and how to build its graph.
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
    &bert::ARCH,
    &falcon_h1::ARCH,
    &gemma2::ARCH,
    &gemma3::ARCH,
    &granitehybrid::ARCH,
    &jamba::ARCH,
    &lfm2::ARCH,
    &llama::ARCH,
    &mamba2::ARCH,
    &mamba::ARCH,
    &qwen2::ARCH,
    &qwen3::ARCH,
    &qwen35::ARCH,
    &qwen3next::ARCH,
    &rwkv6::ARCH,
    &rwkv7::ARCH,
    &t5::ARCH,
];
