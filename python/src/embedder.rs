//! Embeddings of texts.

use crate::arguments::{Prompt, number};
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
    model: backstitch_models::Model,
    is_normalized: bool,
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
        n_ctx: Option<i128>,
        n_threads: Option<i128>,
    ) -> PyResult<Self> {
        let hparams = model.inner.hparams();
        let n_ctx = match n_ctx {
            Some(n_ctx) => number(py, "n_ctx", n_ctx)?,
            None => hparams.n_ctx_train.min(DEFAULT_N_CTX),
        };
        let pooling = pooling.map_or(Ok(hparams.pooling), |name| named(py, name))?;
        if pooling == Pooling::None {
            let text = "this model has an embedding for each token; choose pooling=\"mean\"";
            return Err(Class::Unsupported.error(py, text));
        }
        // An encoder reads a text in one piece.
        let mut params = Params::default().n_ctx(n_ctx).n_ubatch(n_ctx).pooling(Some(pooling));
        if let Some(n_threads) = n_threads {
            params = params.n_threads(number(py, "n_threads", n_threads)?);
        }
        let ctx = py.detach(|| Context::new(&model.inner, params)).or_raise(py)?;
        Ok(Embedder { engine: Engine::new(ctx), model: model.inner.clone(), is_normalized: normalize })
    }

    /// Return the embeddings of a list of texts, each a string or its tokens, at least one.
    #[pyo3(signature = (texts, *, parse_special=false, cancel=None))]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<Prompt>,
        parse_special: bool,
        cancel: Option<&Cancel>,
    ) -> PyResult<Embeddings> {
        let parse = crate::arguments::parse_special(parse_special);
        let tokens = |text| match text {
            Prompt::Text(text) => {
                let mut tokens = Vec::new();
                self.model.vocab().tokenize(&text, AddSpecial::Yes, parse, &mut tokens);
                tokens
            }
            Prompt::Tokens(given) => given.0,
        };
        let texts: Vec<Vec<Token>> = py.detach(|| texts.into_iter().map(tokens).collect());
        if let Some(index) = texts.iter().position(Vec::is_empty) {
            let text = format_args!("the text at index {index} has no tokens; an embedding needs one");
            return Err(argument(py, text));
        }
        let values = self.engine.run(py, cancel.map(|cancel| &cancel.inner), |ctx| {
            let mut values = Vec::new();
            for tokens in texts {
                let start = values.len();
                self.embed_one(ctx, &tokens, &mut values)?;
                let row = values.get_mut(start..).unwrap_or_default();
                if self.is_normalized {
                    backstitch_models::normalize(row, Norm::Euclidean);
                }
            }
            Ok(values)
        })?;
        Ok(Embeddings::new(values, self.model.hparams().n_embd))
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
        if self.model.graph().head() == Head::Embeddings {
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
