//! The error of a model whose outputs are not finite numbers.

use super::text::Quoted;
use alloc::boxed::Box;
use core::fmt;

/// A model computed outputs that are NaN or infinite, so they mean nothing.
///
/// Damaged weights do that, and numbers that overflow on the way. The batch was run once more to
/// find where the numbers stop being finite; the tensor there is mostly the one at fault.
///
/// # Example
/// ```
/// use backstitch_models::{Context, Error, Model, Params, Token};
///
/// let mut bytes = std::fs::read("../goldens/models/llama.gguf")?;
/// let end = bytes.len();
/// bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
/// let model = Model::from_bytes(&bytes)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let seq = ctx.sequence()?;
/// let Err(Error::NotFinite(error)) = ctx.append(seq, &[Token(5)]) else { panic!() };
/// assert_eq!(error.tensor.as_deref(), Some("blk.3.ffn_up.weight"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotFinite {
    /// The model: the name of its file, or else the name or architecture that the file states.
    pub model: Box<str>,
    /// The outputs: `logits` or `embeddings`.
    pub what: &'static str,
    /// The layer in which the numbers stop being finite; none before the first and after the last.
    pub layer: Option<usize>,
    /// The operation whose result is the first that is not finite, such as `matmul`.
    pub operation: &'static str,
    /// The tensor that the operation uses, if it uses any: of several, one that holds NaN or
    /// infinity, or else the first.
    pub tensor: Option<Box<str>>,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotFinite { model, what, layer, operation, tensor } = self;
        write!(
            f,
            "the model {} computes {what} that are NaN or infinite, first by {operation}",
            Quoted(model)
        )?;
        if let Some(tensor) = tensor {
            write!(f, " with tensor {}", Quoted(tensor))?;
        }
        if let Some(layer) = layer {
            write!(f, " in layer {layer}")?;
        }
        f.write_str("; get or convert the model again")
    }
}

impl core::error::Error for NotFinite {}
