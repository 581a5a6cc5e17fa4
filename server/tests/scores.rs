//! Log-likelihoods as lm-eval's `local-completions` asks for them, beside those of the library.

use backstitch_models::{Context, Model, Params, Token};
use backstitch_server::engine::{Engine, EngineParams};
use backstitch_server::http::{Adapters, Host, Loaded, Server};
use backstitch_server::params::ServerParams;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Send a body, and return the JSON of the answer.
fn post(address: SocketAddr, path: &str, body: &Value) -> Value {
    let (mut stream, body) = (TcpStream::connect(address).unwrap(), body.to_string());
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}");
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Return the log-probabilities of all tokens but the first one, token by token.
fn of_library(model: &Model, tokens: &[Token]) -> Vec<f64> {
    let mut ctx = Context::new(model, Params::default().n_ctx(256).n_threads(2)).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut scores = Vec::new();
    for pair in tokens.windows(2) {
        ctx.append(seq, &pair[..1]).unwrap();
        let logits = ctx.logits(seq).unwrap();
        let max = logits.iter().fold(f32::MIN, |a, &b| a.max(b));
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
        scores.push(f64::from(logits[pair[1].0 as usize] - max) - sum.ln());
    }
    scores
}

#[test]
fn scores_of_prompts_are_those_of_the_library() {
    let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
    let load = || {
        let model = Model::from_bytes(backstitch_demo::GGUF)?;
        let context = Params::default().n_threads(2);
        let params = EngineParams { context, n_ctx: 256, n_slots: 2, ..EngineParams::default() };
        Ok(Loaded { engine: Engine::start(&model, params)?, template: None, adapters: Adapters::default() })
    };
    let params = ServerParams { port: 0, ..ServerParams::default() };
    let server = Server::bind(Host::new(params, load).unwrap()).unwrap();
    let (address, stop) = (server.address().unwrap(), server.stopper());
    let thread = std::thread::spawn(move || server.run().unwrap());

    // vLLM's words for the same, which lm-eval uses to count the tokens of a context.
    let encode = |text: &str| {
        let body = json!({"prompt": text, "add_special_tokens": false});
        serde_json::from_value::<Vec<u32>>(post(address, "/tokenize", &body)["tokens"].clone()).unwrap()
    };
    let context = "Once upon a time there was a little girl who liked to";
    let prompts: Vec<Vec<u32>> = [" play", " sing in the garden", " big red ball dog"]
        .iter()
        .map(|continuation| encode(&format!("{context}{continuation}")))
        .collect();
    let body = json!({
        "model": "m", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": true,
    });
    // The second time the prompts are held, and re-evaluated for their scores.
    for _ in 0..2 {
        let answer = post(address, "/v1/completions", &body);
        for (prompt, choice) in prompts.iter().zip(answer["choices"].as_array().unwrap()) {
            let tokens: Vec<Token> = prompt.iter().map(|&id| Token(id)).collect();
            let scores = choice["logprobs"]["token_logprobs"].as_array().unwrap();
            assert!(scores[0].is_null() && scores.len() == prompt.len() + 1, "{choice}");
            let wanted = of_library(&model, &tokens);
            for (score, wanted) in scores[1..].iter().zip(&wanted) {
                assert!((score.as_f64().unwrap() - wanted).abs() < 1e-5, "{score} and {wanted}");
            }
            let lists = choice["logprobs"]["top_logprobs"].as_array().unwrap();
            let is_told =
                |i: usize| lists[i].as_object().unwrap().values().any(|likeliest| *likeliest == scores[i]);
            assert!((1..prompt.len()).all(is_told), "{choice}");
        }
    }
    stop.stop();
    thread.join().unwrap();
}
