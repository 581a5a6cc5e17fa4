//! Embeddings of texts, and the similarity of their meanings.
//!
//! ```text
//! cargo run --release --example embeddings encoder.gguf ["a text" ...]
//! ```

use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Context, Model, Norm, Params, Token, normalize};
use std::error::Error;

const TEXTS: [&str; 3] = [
    "A cat sleeps on the warm stove.",
    "The kitten naps by the fire.",
    "Shares fell by two per cent on Monday.",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which model? give the GGUF file of an encoder, such as BERT")?;
    let given: Vec<String> = args.collect();
    let texts: Vec<&str> =
        if given.is_empty() { TEXTS.to_vec() } else { given.iter().map(String::as_str).collect() };

    let model = Model::open(path)?;
    let mut ctx = Context::new(&model, Params::default())?;
    let embeddings = texts.iter().map(|text| embed(&mut ctx, text)).collect::<Result<Vec<_>, _>>()?;
    for (text, embedding) in texts.iter().zip(&embeddings) {
        let nearness = embeddings.iter().map(|other| format!("{:6.3}", dot(embedding, other)));
        println!("{}  {text}", nearness.collect::<String>());
    }
    Ok(())
}

/// Return the embedding of a text, `[n_embd]`, of length 1, so that the dot product of two is the
/// cosine of their angle.
fn embed(ctx: &mut Context, text: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let mut tokens: Vec<Token> = Vec::new();
    ctx.model().vocab().tokenize(text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
    let seq = ctx.sequence()?;
    ctx.encode(seq, &tokens)?;
    let mut embedding = ctx.pooled(seq).ok_or("this model makes an embedding of each token only")?.to_vec();
    normalize(&mut embedding, Norm::Euclidean);
    ctx.release(seq)?;
    Ok(embedding)
}

fn dot(x: &[f32], y: &[f32]) -> f32 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}
