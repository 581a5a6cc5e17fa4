//! What fuzz targets share: small memories of every kind that are filled as a model would, and forged state files.

pub use backstitch_kv::oracle::{edit, forge, kept, live};
