//! Logits that outlive the batch that they were computed in, without being copied.

use super::{FEW_ROWS, Logits, Outputs, copied};
use crate::error::Error;
use alloc::sync::Arc;
use backstitch_kv::SeqId;
use core::fmt;
use core::ops::{Deref, Range};

/// The logits `[n_vocab]` of one token, shared with the context that computed them.
///
/// Nothing that happens to the context changes them. As long as they are held, the context computes
/// its next logits in other memory; once they are dropped, theirs is free again.
/// [`Context::shared_logits`](crate::Context::shared_logits) returns them.
///
/// # Example
/// ```
/// use backstitch_models::{Context, Model, Params, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let seq = ctx.sequence()?;
/// ctx.append(seq, &[Token(5)])?;
/// let (held, copy) = (ctx.shared_logits(seq)?, ctx.logits(seq)?.to_vec());
/// ctx.append(seq, &[Token(6)])?; // other logits, elsewhere
/// assert_eq!(held[..], copy);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedLogits {
    values: Logits,
    range: Range<usize>,
}

impl Deref for SharedLogits {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.values.get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for SharedLogits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLogits").field("n_vocab", &self.len()).finish_non_exhaustive()
    }
}

impl From<Logits> for SharedLogits {
    fn from(values: Logits) -> Self {
        SharedLogits { range: 0..values.len(), values }
    }
}

impl Outputs {
    /// Return the logits of the last token of `seq`; `None` if they are not available.
    ///
    /// A row among many is copied, so that it does not keep all of them in memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses the copy.
    pub(crate) fn shared(&self, seq: SeqId) -> Result<Option<SharedLogits>, Error> {
        if let Some(Some(logits)) = self.own.get(seq.index()) {
            return Ok(Some(logits.clone().into()));
        }
        let row = self.row_of_seq.get(seq.index()).copied().flatten();
        let (Some(row), Some(logits)) = (row, self.of_sequence(seq)) else { return Ok(None) };
        let start = row as usize * self.shown.width;
        Ok(Some(match self.shown.values.len() <= FEW_ROWS * self.shown.width {
            true => SharedLogits {
                values: Arc::clone(&self.shown.values),
                range: start..start + self.shown.width,
            },
            false => copied(logits)?.into(),
        }))
    }
}
