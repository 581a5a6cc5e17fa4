//! Conformance files: what another engine computed, and whether this one agrees.

pub mod compare;
pub mod golden;
pub mod tokens;
