//! Tools that fuzz targets share: small memories of every kind with realistic contents, and forged
//! state files.

pub use backstitch_kv::testing::{edit, forge, kept, live};
