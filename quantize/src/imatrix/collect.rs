//! Making an importance matrix: a model reads text, and the inputs of its matrices are added up.

use super::Imatrix;
use crate::Error;
use backstitch_models::judge::Windows;
use backstitch_models::{Batch, Context, Error as ModelError, Pos, ProductInput, Token, Wanted};
use core::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tokens of a batch. All of their logits are computed, which take the most room.
const PIECE: usize = 64;

/// Read the windows of a text, which is called `dataset`, and return the importance of the columns
/// of all matrices of layers, and with `with_output` of the output matrix. Each window is read from
/// an empty sequence; `done` is called behind each.
///
/// This needs the context's [observer](Context::set_observer): one that was set is replaced, and
/// none is set afterwards.
///
/// The numbers are those of llama.cpp's llama-imatrix, up to the rounding of sums.
///
/// ```
/// use backstitch_models::judge::Windows;
/// use backstitch_models::{Context, Model, Params, Token};
/// use backstitch_quantize::collect;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(16))?;
/// let tokens: Vec<Token> = (10..42).map(Token).collect();
/// let windows = Windows::new(&tokens, 16, None).unwrap();
/// let imatrix = collect(&mut ctx, windows, "numbers", false, &mut |_| {})?;
/// assert_eq!(imatrix.n_chunks(), Some(2));
/// assert!(imatrix.importance("blk.0.ffn_up.weight").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Model`] if the windows do not fit the context or the model cannot be evaluated,
/// [`Error::NotFinite`] if an input holds infinities or no numbers, or numbers whose squares are
/// too large to be added up. No window is read behind the first that has one.
pub fn collect(
    ctx: &mut Context,
    windows: Windows<'_>,
    dataset: &str,
    with_output: bool,
    done: &mut dyn FnMut(usize),
) -> Result<Imatrix, Error> {
    let imatrix = Imatrix::new(dataset, ctx.params().n_ctx);
    let collected = Arc::new(Mutex::new(Collected { imatrix, result: Ok(()) }));
    let shared = Arc::clone(&collected);
    ctx.set_observer(Some(Box::new(move |input| {
        let counts = input.tensor.starts_with("blk.") || with_output && input.tensor == "output.weight";
        if counts && !input.rows.is_empty() {
            lock(&shared).add(input);
        }
    })));
    let n_chunks = windows.len();
    let result = windows.zip(1..).try_for_each(|(window, n)| {
        let is_read = read(ctx, window.tokens);
        // An input that is too large says more than the outputs that come of it.
        replace(&mut lock(&collected).result, Ok(()))?;
        is_read?;
        done(n);
        Ok::<_, Error>(())
    });
    ctx.set_observer(None);
    result?;
    let mut imatrix = replace(&mut lock(&collected).imatrix, Imatrix::new(dataset, 0));
    imatrix.set_n_chunks(n_chunks as u32);
    Ok(imatrix)
}

/// The sums so far, and the first error of adding to them.
struct Collected {
    imatrix: Imatrix,
    result: Result<(), Error>,
}

impl Collected {
    /// Add the input of a product, unless one before could not be added.
    fn add(&mut self, input: &ProductInput<'_>) {
        if self.result.is_ok() {
            let ProductInput { tensor, matrix, n_matrices, rows, n_cols, .. } = *input;
            let added = self.imatrix.add(tensor, matrix, n_matrices, rows, n_cols);
            // Sums are not finite from the first input on that is not.
            self.result = added.and_then(|()| match self.imatrix.is_finite(tensor, matrix) {
                true => Ok(()),
                false => Err(Error::NotFinite { tensor: tensor.into() }),
            });
        }
    }
}

fn lock(collected: &Mutex<Collected>) -> MutexGuard<'_, Collected> {
    collected.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Evaluate tokens in a sequence of their own. If the vocabulary wants a beginning-of-sequence
/// token before every text, it takes the place of the first one.
fn read(ctx: &mut Context, tokens: &[Token]) -> Result<(), Error> {
    let vocab = ctx.model().vocab();
    let bos = vocab.bos().filter(|_| vocab.adds_bos());
    let seq = ctx.sequence()?;
    let mut batch = Batch::new();
    let mut evaluate = || {
        for (piece, i) in tokens.chunks(PIECE).zip(0..) {
            batch.clear();
            let (bos, rest) = match (bos, piece.split_first()) {
                (Some(bos), Some((_, rest))) if i == 0 => (Some(bos), rest),
                _ => (None, piece),
            };
            let start = Pos((i * PIECE) as i32);
            batch.extend(seq, start, bos.as_slice(), Wanted::All).map_err(ModelError::from)?;
            let behind = Pos(start.0 + bos.as_slice().len() as i32);
            batch.extend(seq, behind, rest, Wanted::All).map_err(ModelError::from)?;
            ctx.decode(&batch)?;
        }
        Ok::<_, Error>(())
    };
    let result = evaluate();
    ctx.release(seq)?;
    result
}
