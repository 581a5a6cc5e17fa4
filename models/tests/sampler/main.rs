//! Tokens drawn with llama.cpp's random numbers, compared with those of a llama-server.
//!
//! `tokens.txt` was written by `reference.py` and llama-server b10434, which ran
//! `goldens/models/llama.gguf` with its tokens' texts replaced by ASCII words, because that server
//! fails on text that is not UTF-8. So no breakers of DRY and no infill are in the file. Caches
//! were F32 (`-ctk f32 -ctv f32 -fa off`): with others, the logits of two engines differ enough
//! to change a token now and then.

use backstitch_models::sampler::{Chain, DryParams, Generator, Kind, MirostatVersion, Settings};
use backstitch_models::session::{GenerateOptions, Session};
use backstitch_models::{CellType, Context, Model, Params, Token};

/// The prompt of `reference.py`.
const PROMPT: [u32; 9] = [1, 30, 31, 32, 30, 31, 40, 30, 31];
/// The most tokens that the server was asked for.
const N: usize = 40;

/// Return the samplers that a request names, or whose letters it gives.
fn order(text: &str) -> Vec<Kind> {
    let letters = text.chars().map(Kind::from_letter).collect::<Option<Vec<_>>>();
    letters.unwrap_or_else(|| text.split(';').map(|name| Kind::from_name(name).unwrap()).collect())
}

/// Apply a field of a request to `settings`.
fn set(settings: Settings, name: &str, text: &str) -> Settings {
    let number = || text.parse::<f32>().unwrap();
    let count = || text.parse::<usize>().unwrap();
    let dry = settings.dry.clone();
    match name {
        "seed" => settings.seed(text.parse().unwrap()),
        "temperature" => settings.temp(number()),
        "top_k" => settings.top_k(count()),
        "top_p" => settings.top_p(number()),
        "min_p" => settings.min_p(number()),
        "min_keep" => settings.min_keep(count()),
        "typical_p" => settings.typical_p(number()),
        "repeat_penalty" => settings.repeat_penalty(number()),
        "repeat_last_n" => settings.repeat_last_n(count()),
        "frequency_penalty" => settings.frequency_penalty(number()),
        "presence_penalty" => settings.presence_penalty(number()),
        "dry_multiplier" => settings.dry(DryParams { multiplier: number(), ..dry }),
        "dry_base" => settings.dry(DryParams { base: number(), ..dry }),
        "dry_allowed_length" => settings.dry(DryParams { allowed_length: count(), ..dry }),
        "dry_penalty_last_n" => settings.dry(DryParams { last_n: count(), ..dry }),
        "top_n_sigma" => settings.top_n_sigma(number()),
        "xtc_probability" => settings.xtc_probability(number()),
        "xtc_threshold" => settings.xtc_threshold(number()),
        "dynatemp_range" => settings.dynamic_temp_range(number()),
        "dynatemp_exponent" => settings.dynamic_temp_exponent(number()),
        "mirostat" if text == "1" => settings.mirostat(Some(MirostatVersion::One)),
        "mirostat" => settings.mirostat(Some(MirostatVersion::Two)),
        "mirostat_tau" => settings.mirostat_tau(number()),
        "mirostat_eta" => settings.mirostat_eta(number()),
        "adaptive_target" => settings.adaptive_target(number()),
        "adaptive_decay" => settings.adaptive_decay(number()),
        "samplers" => settings.order(order(text)),
        _ => panic!("{name} is no field of a request"),
    }
}

fn settings(request: &str) -> Settings {
    let fields = request.split_whitespace().map(|field| field.split_once('=').unwrap());
    let settings = Settings::default().generator(Generator::Llama);
    fields.fold(settings, |settings, (name, text)| set(settings, name, text))
}

/// Return the tokens that come after the prompt; the one that ends the text included.
fn drawn(model: &Model, settings: &Settings) -> Vec<u32> {
    let ctx =
        Context::new(model, Params::default().n_ctx(64).type_k(CellType::F32).type_v(CellType::F32)).unwrap();
    let mut session = Session::new(ctx, settings).unwrap();
    session.feed(&PROMPT.map(Token)).unwrap();
    let mut generation = session.generate(GenerateOptions::default().limit(N));
    let mut tokens: Vec<u32> =
        generation.by_ref().flat_map(|chunk| chunk.unwrap().tokens).map(|t| t.0).collect();
    if let Some(backstitch_models::session::Finish::End(token)) = generation.finish() {
        tokens.push(token.0);
    }
    tokens
}

#[test]
fn tokens_are_those_of_llama_server() {
    let path = format!("{}/../goldens/models/llama.gguf", env!("CARGO_MANIFEST_DIR"));
    let model = Model::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for line in include_str!("tokens.txt").lines() {
        let (request, tokens) = line.split_once(" : ").unwrap();
        let expected: Vec<u32> = tokens.split_whitespace().map(|token| token.parse().unwrap()).collect();
        let settings = settings(request);
        settings.check(model.vocab().n_vocab()).unwrap();
        let found = drawn(&model, &settings);
        if found != expected {
            wrong.push(format!("{request}\nwanted {expected:?}\nfound  {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_chain_that_was_reset_draws_the_same_again() {
    let logits: Vec<f32> = (0..50).map(|i| ((i * 37) % 17) as f32 * 0.25).collect();
    for line in include_str!("tokens.txt").lines() {
        let request = line.split_once(" : ").unwrap().0;
        let mut chain = Chain::new(50, &settings(request));
        let mut draw = || {
            let token = chain.sample(&logits).unwrap();
            chain.accept(token);
            token
        };
        let first: Vec<Token> = (0..20).map(|_| draw()).collect();
        chain.reset();
        let mut draw = || {
            let token = chain.sample(&logits).unwrap();
            chain.accept(token);
            token
        };
        assert_eq!((0..20).map(|_| draw()).collect::<Vec<_>>(), first, "{request}");
    }
}
