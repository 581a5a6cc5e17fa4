//! A check that drafts, right and wrong ones, change no token of a text.

use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::speculative::{Drafter, Speculative};
use backstitch_models::{Context, Error, Model, Params, SeqId, Token};

const N_TOKENS: usize = 60;

/// Drafts the tokens that will come, but for every third.
struct MostlyRight {
    text: Vec<Token>,
}

impl Drafter for MostlyRight {
    fn draft(&mut self, held: &[Token], _: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        for (i, token) in self.text.iter().enumerate().skip(held.len() + 1).take(n) {
            draft.push(if i % 3 == 0 { Token(token.0 ^ 1) } else { *token });
        }
        Ok(())
    }
}

/// Return a context with a prompt, and the prompt's sequence.
fn prompted(model: &Model, prompt: &[Token]) -> (Context, SeqId) {
    let mut ctx = Context::new(model, Params::default().n_ctx(256).n_threads(1)).unwrap();
    let seq = ctx.sequence().unwrap();
    if model.graph().encoder().is_some() {
        ctx.encode(seq, prompt).unwrap();
    }
    ctx.append(seq, prompt).unwrap();
    (ctx, seq)
}

/// Return true if `model` continues `prompt` with the same tokens with drafts as without, and some
/// drafts are accepted and some are not.
pub fn agrees(model: &Model, prompt: &[Token]) -> bool {
    let chain = || Chain::new(model.hparams().n_vocab, &Settings::default().temp(0.0));
    let (mut ctx, seq) = prompted(model, prompt);
    let (mut plain, mut text) = (chain(), prompt.to_vec());
    for _ in 0..N_TOKENS {
        let token = plain.sample(ctx.logits(seq).unwrap()).unwrap();
        plain.accept(token);
        text.push(token);
        ctx.append(seq, &[token]).unwrap();
    }
    let (mut ctx, seq) = prompted(model, prompt);
    let mut speculative = Speculative::new(MostlyRight { text: text.clone() }, seq, 5);
    let (mut chain, mut told) = (chain(), prompt.to_vec());
    while told.len() < text.len() {
        let n = text.len() - told.len();
        told.extend_from_slice(speculative.step(&mut ctx, &mut chain, n, |_| false).unwrap().tokens);
    }
    let stats = speculative.stats();
    told == text && stats.n_accepted > 0 && stats.n_accepted < stats.n_drafted
}
