//! `backstitch embed`: turn texts into embeddings, or compare them.
//!
//! Each text is evaluated in a sequence of its own. Encoders see a whole text at once, so a ubatch
//! holds the longest; decoders read it in pieces, and their last norm's output is the embedding of
//! a token. Pooling makes one embedding of those of all tokens; without it, each is printed.
//! Embeddings are scaled to length 1 unless `--normalize` says otherwise, so that the product of
//! two is their similarity.

use crate::args::{EmbedArgs, NormArg, PoolingArg};
use crate::error::Error;
use crate::output::{Output, cut};
use crate::progress::Progress;
use crate::{adapters, memory, model, prompt};
use backstitch_models::graph::Head;
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Batch, Context, Model, Norm, Params, Pooling, Pos, Token, Wanted, normalize};
use serde_json::json;

/// Characters of a text that stand before its similarities.
const SHOWN: usize = 24;

/// Run the command.
///
/// # Errors
/// - [`Error::Refused`] if there is no text, or one does not fit the model.
/// - [`Error::Engine`] if the model cannot be loaded or evaluated.
/// - [`Error::Read`] if the texts cannot be read.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &EmbedArgs) -> Result<(), Error> {
    let texts = texts(args)?;
    let model = model::open(&args.model, model::n_threads(args.n_threads))?;
    let pooling = pooling(args, &model);
    if pooling == Pooling::None && args.similarity {
        return Err(Error::Refused(
            "--similarity compares whole texts; give --pooling mean, cls or last".into(),
        ));
    }
    let inputs = tokens(&model, &texts)?;
    let mut embedder = Embedder::new(args, &model, pooling, &inputs)?;
    let progress = Progress::counted("embedding", "texts");
    let mut rows = Vec::new();
    for (i, tokens) in inputs.iter().enumerate() {
        let mut found = embedder.embed(tokens)?;
        for embedding in &mut found {
            if let Some(norm) = norm(args) {
                normalize(embedding, norm);
            }
        }
        rows.push(found);
        progress.set(i as u64 + 1, inputs.len() as u64);
    }
    drop(progress);
    let mut out = Output::new(args.json);
    if args.similarity {
        compare(&mut out, &texts, &rows)?
    } else {
        list(&mut out, &texts, &rows)?
    }
    Ok(out.flush()?)
}

/// Return the texts: those of the command line, or the lines of a file or of standard input.
fn texts(args: &EmbedArgs) -> Result<Vec<String>, Error> {
    if !args.texts.is_empty() {
        return Ok(args.texts.clone());
    }
    let input = crate::args::PromptArgs { prompt: None, file: args.file.clone(), escape: false };
    let lines = prompt::read(&input)?.unwrap_or_default();
    let texts: Vec<String> = lines.lines().map(String::from).collect();
    if texts.is_empty() {
        return Err(Error::Refused("no text; give one, -f or a pipe".into()));
    }
    Ok(texts)
}

/// Return the pooling: the wanted one, the model's, or the mean.
fn pooling(args: &EmbedArgs, model: &Model) -> Pooling {
    match args.pooling {
        Some(PoolingArg::None) => Pooling::None,
        Some(PoolingArg::Mean | PoolingArg::Rank) => Pooling::Mean,
        Some(PoolingArg::Cls) => Pooling::Cls,
        Some(PoolingArg::Last) => Pooling::Last,
        None if model.hparams().pooling == Pooling::None => Pooling::Mean,
        None => model.hparams().pooling,
    }
}

/// Return the norm that embeddings are divided by.
fn norm(args: &EmbedArgs) -> Option<Norm> {
    match args.normalize {
        NormArg::None => None,
        NormArg::Max => Some(Norm::MaxAbs),
        NormArg::L1 => Some(Norm::Taxicab),
        NormArg::L2 => Some(Norm::Euclidean),
    }
}

/// Return the tokens of each text.
fn tokens(model: &Model, texts: &[String]) -> Result<Vec<Vec<Token>>, Error> {
    let most = model.hparams().n_ctx_train as usize;
    let tokens = |(text, n): (&String, usize)| {
        let mut tokens = Vec::new();
        model.vocab().tokenize(text, AddSpecial::Yes, ParseSpecial::Yes, &mut tokens);
        match tokens.len() {
            0 => Err(Error::Refused(format!("text {n} has no tokens; leave it out"))),
            found if found > most => Err(Error::Refused(format!(
                "text {n} has {found} tokens, and this model takes {most}; shorten it"
            ))),
            _ => Ok(tokens),
        }
    };
    texts.iter().zip(1..).map(tokens).collect()
}

/// A context that embeds one text after the other.
struct Embedder {
    /// The context that texts are evaluated in, one after the other.
    ctx: Context,
    /// True if the model is an encoder.
    encodes: bool,
    /// The way from the embeddings of tokens to that of their text.
    pooling: Pooling,
    /// The tokens of one text; its memory is used again.
    batch: Batch,
}

impl Embedder {
    /// Make a context for the longest of `inputs`.
    fn new(args: &EmbedArgs, model: &Model, pooling: Pooling, inputs: &[Vec<Token>]) -> Result<Self, Error> {
        let encodes = model.graph().head() == Head::Embeddings || model.graph().encoder().is_some();
        let longest = inputs.iter().map(Vec::len).max().unwrap_or(0);
        let n_ctx = u32::try_from(longest.next_multiple_of(32)).unwrap_or(u32::MAX);
        let params = Params::default()
            .n_ctx(n_ctx)
            .n_threads(model::n_threads(args.n_threads))
            .pooling(Some(pooling))
            // An encoder computes a text at once: all of its tokens see each other.
            .n_ubatch(if encodes { n_ctx.min(1 << 16) } else { n_ctx.min(512) });
        memory::check(model, &params)?;
        let mut ctx = Context::new(model, params)?;
        adapters::apply(&args.adapters, &mut ctx)?;
        Ok(Self { ctx, encodes, pooling, batch: Batch::new() })
    }

    /// Return the embedding of a text, or those of its tokens without pooling.
    fn embed(&mut self, tokens: &[Token]) -> Result<Vec<Vec<f32>>, Error> {
        let Self { ctx, batch, .. } = self;
        let seq = ctx.sequence()?;
        if self.encodes {
            ctx.encode(seq, tokens)?;
        } else {
            batch.clear();
            batch.extend(seq, Pos(0), tokens, Wanted::All).map_err(backstitch_models::Error::from)?;
            ctx.decode_embeddings(batch)?;
        }
        let found = if self.pooling == Pooling::None {
            (0..tokens.len()).filter_map(|i| ctx.embedding(i)).map(<[f32]>::to_vec).collect()
        } else {
            ctx.pooled(seq).map(<[f32]>::to_vec).into_iter().collect()
        };
        ctx.release(seq)?;
        Ok(found)
    }
}

/// Print the embeddings: an embedding a line, or a text a line with `--json`.
fn list(out: &mut Output, texts: &[String], rows: &[Vec<Vec<f32>>]) -> Result<(), Error> {
    for ((index, text), found) in texts.iter().enumerate().zip(rows) {
        if out.is_json() {
            let embedding = match found.as_slice() {
                [one] => json!(one),
                all => json!(all),
            };
            out.value(&json!({ "index": index, "text": text, "embedding": embedding }))?;
        } else {
            for embedding in found {
                out.line(embedding.iter().map(f32::to_string).collect::<Vec<_>>().join(" "))?;
            }
        }
    }
    Ok(())
}

/// Print the cosine similarities of all pairs of texts.
fn compare(out: &mut Output, texts: &[String], rows: &[Vec<Vec<f32>>]) -> Result<(), Error> {
    let rows: Vec<&[f32]> = rows.iter().flatten().map(Vec::as_slice).collect();
    let similarities: Vec<Vec<f64>> =
        rows.iter().map(|a| rows.iter().map(|b| cosine(a, b)).collect()).collect();
    if out.is_json() {
        return Ok(out.value(&json!({ "texts": texts, "similarity": similarities }))?);
    }
    let row = |(text, values): (&String, &Vec<f64>)| {
        let values = values.iter().map(|value| format!("{value:.4}"));
        std::iter::once(cut(text, SHOWN)).chain(values).collect::<Vec<_>>()
    };
    Ok(out.table(&texts.iter().zip(&similarities).map(row).collect::<Vec<_>>())?)
}

/// Return the cosine of the angle between two embeddings; 0 if one of them is zero.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let size = (product(a, a) * product(b, b)).sqrt();
    if size > 0.0 { product(a, b) / size } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cosine_is_one_along_a_line_and_zero_across() {
        assert!((cosine(&[1.0, 2.0], &[2.0, 4.0]) - 1.0).abs() < 1e-12);
        assert!((cosine(&[1.0, 2.0], &[-2.0, 1.0])).abs() < 1e-12);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
    }
}
