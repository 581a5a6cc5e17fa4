//! Tools that fuzz targets share: small memories of every kind with realistic contents, forged
//! state files, and a server in this process.

pub mod request;
pub mod server;

pub use backstitch_kv::testing::{edit, forge, kept, live};
