//! Eight texts at once: one batch has the next token of each, so the weights are read once for all
//! of them.
//!
//! ```text
//! cargo run --release --example batch [model.gguf]
//! ```

use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::vocab::{AddSpecial, ParseSpecial, TextStream};
use backstitch_models::{Batch, Context, Model, Params, Pos, SeqId, Token, Wanted};
use std::error::Error;

const N: usize = 8;
const N_TOKENS: usize = 24;

/// One of the texts that grow at the same time.
struct Text {
    seq: SeqId,
    chain: Chain,
    tokens: Vec<Token>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = match std::env::args_os().nth(1) {
        Some(path) => Model::open(path)?,
        None => Model::from_bytes(backstitch_demo::GGUF)?,
    };
    let mut prompt = Vec::new();
    model.vocab().tokenize("Once upon a time", AddSpecial::Start, ParseSpecial::No, &mut prompt);

    let together = generate(&model, &prompt, 0..N as u64)?;
    for tokens in &together {
        println!("Once upon a time{}", text(&model, tokens));
    }
    // Other sequences in a batch do not change a bit: alone, the fifth text is the same.
    assert_eq!(generate(&model, &prompt, 4..5)?[0], together[4]);
    Ok(())
}

/// Continue `prompt` once for each seed, all in one context.
fn generate(
    model: &Model,
    prompt: &[Token],
    seeds: std::ops::Range<u64>,
) -> Result<Vec<Vec<Token>>, Box<dyn Error>> {
    let mut ctx = Context::new(model, Params::default().n_ctx(1024).n_seq_max(N as u32))?;
    let first = ctx.sequence()?;
    ctx.append(first, prompt)?;
    let mut texts = Vec::new();
    for seed in seeds {
        // Forks share the cells of the prompt.
        let seq = if texts.is_empty() { first } else { ctx.fork(first)? };
        let settings = Settings::default().seed(seed);
        texts.push(Text { seq, chain: Chain::new(model.hparams().n_vocab, &settings), tokens: Vec::new() });
    }

    let mut batch = Batch::new();
    for step in 0..N_TOKENS {
        batch.clear();
        for text in &mut texts {
            let token = text.chain.sample(ctx.logits(text.seq)?).ok_or("every token is banned")?;
            text.chain.accept(token);
            text.tokens.push(token);
            let pos = Pos((prompt.len() + step) as i32);
            batch.extend(text.seq, pos, &[token], Wanted::Last)?;
        }
        ctx.decode(&batch)?;
    }
    Ok(texts.into_iter().map(|text| text.tokens).collect())
}

fn text(model: &Model, tokens: &[Token]) -> String {
    let (mut stream, mut text) = (TextStream::default(), String::new());
    tokens.iter().for_each(|&token| stream.push(model.vocab().piece(token), &mut text));
    text
}
