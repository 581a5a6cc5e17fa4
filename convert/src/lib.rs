//! lib
pub mod checkpoint;
pub mod error;
mod json;
pub mod safetensors;
mod tensor;
pub use error::Error;
