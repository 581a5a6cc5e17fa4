//! Kinds of caches and operations on sequences, as errors and surveys name them.

use core::fmt;

/// Retention of the cells of a KV cache: how long they outlive their batch.
///
/// The [`AttentionSpec`](crate::AttentionSpec) of a layer and the size of the context decide it.
/// Layers of one retention and window share a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// Cells of all tokens stay until they are removed.
    All,
    /// Cells stay while a window shows them, with a margin behind it and the cells that checkpoints
    /// need.
    Window,
    /// Cells last for the batch that is being computed, as encoders need it.
    Batch,
}

/// Kind of a cache, or of a memory that is made of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Keys and values of attention layers.
    Kv(Retention),
    /// Recurrent state of fixed size after the last token of each sequence.
    Recurrent,
    /// Keys and values of the encoder output that a decoder attends to.
    Cross,
    /// Caches of several kinds, chosen by layer.
    Hybrid,
}

impl Kind {
    /// Return the reason for which an operation can be impossible on this kind, as a clause for
    /// error texts.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Kind::Recurrent => "it cannot drop single tokens",
            Kind::Kv(Retention::Window) => "cells that tokens see from there are gone",
            Kind::Kv(Retention::Batch) => "its cells last for one batch",
            Kind::Kv(Retention::All) | Kind::Cross | Kind::Hybrid => "its cells do not allow it",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Kv(Retention::All) => "KV cache",
            Kind::Kv(Retention::Window) => "windowed KV cache",
            Kind::Kv(Retention::Batch) => "KV cache of one batch",
            Kind::Recurrent => "recurrent state",
            Kind::Cross => "cross-attention KV",
            Kind::Hybrid => "hybrid",
        })
    }
}

/// Operation on sequences, as errors name it. It displays as the name of the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `seq_rm`.
    Remove,
    /// `seq_cp`.
    Copy,
    /// `seq_add`.
    Add,
    /// `seq_div`.
    Divide,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Remove => "seq_rm",
            Operation::Copy => "seq_cp",
            Operation::Add => "seq_add",
            Operation::Divide => "seq_div",
        })
    }
}
