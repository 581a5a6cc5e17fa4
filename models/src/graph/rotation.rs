//! Rotations of queries and keys by position, and the choice between two by the context's length.

use backstitch_kv::Rotation;

/// A rotation, by its index in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeId(pub(crate) u32);

/// A rotation of a graph: one for every context, or two of which the context's length picks one.
///
/// LongRoPE (Ding et al., 2024, arXiv 2402.13753) has factors of frequencies for contexts of the
/// trained length and others for longer ones. The length of the *context* decides, not that of the
/// text, so the keys of one context are all rotated alike.
#[derive(Clone, Debug)]
pub struct RotationChoice {
    /// The rotation, unless the context is long.
    pub usual: Rotation,
    /// The rotation of long contexts, where it differs.
    pub long: Option<LongRotation>,
}

/// The rotation of contexts of more than `beyond` tokens.
#[derive(Clone, Debug)]
pub struct LongRotation {
    /// The longest context that still has the usual rotation.
    pub beyond: u32,
    /// The rotation of longer ones.
    pub rotation: Rotation,
}

impl RotationChoice {
    /// Return true if a context of `n_ctx` tokens has the rotation of long ones.
    pub fn is_long(&self, n_ctx: u32) -> bool {
        self.long.as_ref().is_some_and(|long| n_ctx > long.beyond)
    }

    /// Return the rotation of a context of `n_ctx` tokens.
    pub fn of_context(&self, n_ctx: u32) -> &Rotation {
        match &self.long {
            Some(long) if n_ctx > long.beyond => &long.rotation,
            _ => &self.usual,
        }
    }
}
