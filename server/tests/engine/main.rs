//! The engine: whatever runs beside a request, it answers as if it were alone, and reuses what is
//! held.

mod disk;
mod drafts;
mod limits;
mod reuse;
mod slots;
mod together;

use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::session::GenerateOptions;
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Context, Model, Params, Session, Token};
use backstitch_server::engine::{Ended, EngineParams, Event, Generate, Reuse};
use tokio::sync::mpsc::Receiver;

/// Models of every kind of memory: all cells, windows, recurrent states, and mixtures of them.
const KINDS: [&str; 5] = ["llama", "gemma3", "mamba2", "falcon_h1", "qwen35"];

fn demo() -> Model {
    Model::from_bytes(backstitch_demo::GGUF).unwrap()
}

fn golden(name: &str) -> Model {
    Model::open(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn params() -> EngineParams {
    let context = Params::default().n_threads(2);
    EngineParams { context, n_ctx: 512, n_slots: 4, n_held: 8, ..EngineParams::default() }
}

fn tokens(model: &Model, text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    model.vocab().tokenize(text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
    tokens
}

/// Return some tokens of a model, the same for the same seed.
fn some_tokens(model: &Model, n: usize, seed: u32) -> Vec<Token> {
    let n_vocab = model.vocab().n_vocab() as u32;
    (0..n as u32).map(|i| Token((i * 7919 + seed * 104_729 + i * i % 31) % (n_vocab - 8) + 4)).collect()
}

fn settings(seed: u64) -> Settings {
    Settings::default().temp(0.9).seed(seed)
}

fn request(model: &Model, prompt: &[Token], n: usize, seed: u64) -> Generate {
    let chain = Chain::new(model.vocab().n_vocab(), &settings(seed));
    let mut request = Generate::new(prompt.to_vec(), chain);
    request.limit = Some(n);
    request.ignore_eos = true;
    request
}

fn greedy(model: &Model, prompt: &[Token], n: usize, seed: u64) -> Generate {
    let mut request = request(model, prompt, n, seed);
    request.chain = Chain::new(model.vocab().n_vocab(), &Settings::default().temp(0.0));
    request
}

struct Answer {
    tokens: Vec<Token>,
    text: String,
    reuse: Reuse,
    ended: Ended,
}

fn answer(mut events: Receiver<Event>) -> Answer {
    let (mut tokens, mut text, mut reuse) = (Vec::new(), String::new(), None);
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Began { reuse: new, .. } => reuse = Some(new),
            Event::Chunk(chunk) => {
                tokens.extend(chunk.tokens);
                text += &chunk.text;
            }
            Event::Ended(ended) => return Answer { tokens, text, reuse: reuse.unwrap(), ended },
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    panic!("no end");
}

/// Return what a session alone generates.
fn alone(model: &Model, prompt: &[Token], n: usize, seed: u64) -> Vec<Token> {
    alone_with(model, prompt, n, &settings(seed))
}

fn alone_with(model: &Model, prompt: &[Token], n: usize, settings: &Settings) -> Vec<Token> {
    let ctx = Context::new(model, Params::default().n_ctx(512)).unwrap();
    let mut session = Session::new(ctx, settings).unwrap();
    session.feed(prompt).unwrap();
    let options = GenerateOptions::default().limit(n).ignore_eos();
    session.generate(options).for_each(|chunk| drop(chunk.unwrap()));
    session.tokens()[prompt.len()..].to_vec()
}
