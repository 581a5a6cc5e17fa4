//! Embeddings of texts.

use crate::arguments::Prompt;
use crate::arrays::Embeddings;
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::errors::{Class, OrRaise, argument};
use crate::model::Model;
use backstitch_models::graph::Head;
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Batch, Context, Error, Norm, Params, Pooling, Pos, SeqId, Token, Wanted};
use pyo3::prelude::*;

/// The most tokens of a text, unless the caller says more.
const DEFAULT_N_CTX: u32 = 2048;

/// Makes embeddings of texts: rows of floats that are near each other where meanings are.
#[pyclass(frozen, module = "backstitch")]
pub struct Embedder {
    engine: Engine<Context>,
    is_normalized: bool,
    n_embd: usize,
    is_encoder: bool,
}

#[pymethods]
impl Embedder {
    /// Make an embedder of `model`: an encoder, or any model that generates text.
    ///
    /// `pooling` makes one embedding of those of all tokens: "mean", "cls" for that of the first
    /// token, "last"; by default what the model file says. `normalize` brings embeddings to length
    /// 1, so that the dot product of two is the cosine of their angle. `n_ctx` is the most tokens
    /// of a text.
    #[new]
    #[pyo3(signature = (model, *, pooling=None, normalize=true, n_ctx=None, n_threads=None))]
    fn new(
        py: Python<'_>,
        model: &Model,
        pooling: Option<&str>,
        normalize: bool,
        n_ctx: Option<u32>,
        n_threads: Option<u32>,
    ) -> PyResult<Self> {
        let hparams = model.inner.hparams();
        let n_ctx = n_ctx.unwrap_or_else(|| hparams.n_ctx_train.min(DEFAULT_N_CTX));
        let pooling = pooling.map_or(Ok(hparams.pooling), |name| named(py, name))?;
        if pooling == Pooling::None {
            let text = "this model has an embedding for each token; choose pooling=\"mean\"";
            return Err(Class::Unsupported.error(py, text));
        }
        // An encoder reads a text in one piece.
        let params = Params::default().n_ctx(n_ctx).n_ubatch(n_ctx).pooling(Some(pooling));
        let params = params.n_threads(n_threads.unwrap_or(params.n_threads));
        let ctx = py.detach(|| Context::new(&model.inner, params)).or_raise(py)?;
        Ok(Embedder {
            engine: Engine::new(ctx),
            is_normalized: normalize,
            n_embd: hparams.n_embd,
            is_encoder: model.inner.graph().head() == Head::Embeddings,
        })
    }

    /// Return the embeddings of a list of texts, each a string or its tokens.
    #[pyo3(signature = (texts, *, parse_special=false, cancel=None))]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<Prompt>,
        parse_special: bool,
        cancel: Option<&Cancel>,
    ) -> PyResult<Embeddings> {
        let parse = crate::arguments::parse_special(parse_special);
        let values = self.engine.run(py, cancel.map(|cancel| &cancel.inner), |ctx| {
            let mut values = Vec::new();
            for text in texts {
                let mut tokens = Vec::new();
                match text {
                    Prompt::Text(text) => {
                        ctx.model().vocab().tokenize(&text, AddSpecial::Yes, parse, &mut tokens);
                    }
                    Prompt::Tokens(given) => tokens = given.0,
                }
                let start = values.len();
                self.embed_one(ctx, &tokens, &mut values)?;
                let row = values.get_mut(start..).unwrap_or_default();
                if self.is_normalized {
                    backstitch_models::normalize(row, Norm::Euclidean);
                }
            }
            Ok(values)
        })?;
        Ok(Embeddings::new(values, self.n_embd))
    }
}

impl Embedder {
    /// Append the embedding of `tokens` to `values`.
    fn embed_one(&self, ctx: &mut Context, tokens: &[Token], values: &mut Vec<f32>) -> Result<(), Error> {
        let seq = ctx.sequence()?;
        let result = self.evaluate(ctx, seq, tokens);
        if result.is_ok() {
            values.extend_from_slice(ctx.pooled(seq).unwrap_or_default());
        }
        ctx.release(seq).and(result)
    }

    fn evaluate(&self, ctx: &mut Context, seq: SeqId, tokens: &[Token]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::NoLogits { seq: seq.0 });
        }
        if self.is_encoder {
            return ctx.encode(seq, tokens);
        }
        let mut batch = Batch::new();
        batch.extend(seq, Pos::ZERO, tokens, Wanted::All)?;
        ctx.decode_embeddings(&batch)
    }
}

/// Return the pooling that a caller names.
fn named(py: Python<'_>, name: &str) -> PyResult<Pooling> {
    match name {
        "mean" => Ok(Pooling::Mean),
        "cls" => Ok(Pooling::Cls),
        "last" => Ok(Pooling::Last),
        _ => Err(argument(py, format_args!("pooling is \"{name}\"; it can be mean, cls or last"))),
    }
}
