//! Times of the masks of grammars: for each token of a text, the mask of the tokens allowed there.
//!
//! The vocabulary is that of the GGUF file that `BACKSTITCH_VOCAB` names; a file with a vocabulary
//! alone is enough. Without it, the demo model's small one is measured, which says little.
//!
//! Criterion measures the mean. A mask that takes long delays its token, so the 99th percentile and
//! the maximum are printed too: once for automata that are made while they are used, as in the
//! first request with a grammar, and once for automata that an earlier text made. A token's time is
//! the median of several rounds, so that other programs do not count.

use backstitch_models::Token;
use backstitch_models::gguf::Gguf;
use backstitch_models::grammar::{Compiler, Grammar, Matcher};
use backstitch_models::vocab::{ParseSpecial, Vocab};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The number of times that a text is followed for the percentiles.
const ROUNDS: usize = 30;

const SCHEMA: &str = r##"{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},
    "age":{"type":"integer","minimum":0},"tags":{"type":"array","items":{"type":"string"}},
    "address":{"$ref":"#/$defs/address"},"kind":{"enum":["person","company"]}},"required":["name","age"]},
    "$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},
    "code":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street"]}}}"##;
const VALUE: &str = r#"[{"name": "Greta of the Northern Hills", "age": 42, "tags": ["first",
    "a longer text, with \"quotes\" and a line\n", "third"], "address": {"street": "Harbour street 7, second floor",
    "code": "12345"}, "kind": "company"}, {"name": "Øyvind & Söhne — 東京", "age": 7}, {"name": "", "age": 1900,
    "tags": [], "kind": "person"}, {"name": "A name that takes a few more words than others do, because some do",
    "age": 3, "address": {"street": "Path", "code": "00000"}}, {"name": "x", "age": 15, "tags": ["one", "two",
    "three", "four", "the words of this list are short", "as those of lists are"], "address": {"street":
    "Long Avenue of the Old Lime Trees 1145"}, "kind": "person"}]"#;
const GBNF: &str =
    "root ::= \"Answer: \" (word \" \")+ number \".\"\nword ::= [a-z]+\nnumber ::= [1-9] [0-9]*";
const SENTENCE: &str = "Answer: the sum of all the numbers that were written on the wall of the old \
    lighthouse by people who visited it in the long winter before the great storm and which nobody has counted \
    since then because most of them are hidden behind ivy and the remaining ones were painted over twice when \
    the keeper moved away with his family and all of their belongings is 1729.";

fn vocab() -> Vocab {
    let path = std::env::var("BACKSTITCH_VOCAB");
    let bytes = match &path {
        Ok(path) => std::fs::read(path).expect("the file can be read"),
        Err(_) => {
            println!("BACKSTITCH_VOCAB names no file: the demo model's small vocabulary is measured");
            backstitch_demo::GGUF.to_vec()
        }
    };
    Vocab::from_gguf(&Gguf::parse(&bytes).expect("it is a GGUF file")).expect("it has a vocabulary")
}

/// Follow `tokens`, and return the times of the masks.
fn follow(mut matcher: Matcher, tokens: &[Token]) -> Vec<Duration> {
    let time = |&token: &Token| {
        let start = Instant::now();
        assert!(black_box(matcher.mask()).is_ok_and(|mask| mask.contains(token)));
        let time = start.elapsed();
        matcher.accept(token).expect("the mask has the token");
        time
    };
    tokens.iter().map(time).collect()
}

/// Print the mean, the 99th percentile and the maximum of the tokens' medians.
fn print(name: &str, rounds: &[Vec<Duration>]) {
    let n = rounds.first().map_or(0, Vec::len);
    let median = |i: usize| {
        let mut times: Vec<Duration> = rounds.iter().map(|times| times[i]).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let mut times: Vec<Duration> = (0..n).map(median).collect();
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mean = us(times.iter().sum::<Duration>()) / n as f64;
    let (percentile, max) = (us(times[n * 99 / 100]), us(times[n - 1]));
    println!("{name}: {n} masks, mean {mean:.1} us, 99th percentile {percentile:.1} us, at most {max:.1} us");
}

fn measure(c: &mut Criterion, name: &str, grammar: &Grammar, tokens: &[Token]) {
    let rounds: Vec<_> = (0..ROUNDS).map(|_| follow(grammar.matcher(), tokens)).collect();
    print(&format!("{name}, new automata"), &rounds);
    // Clones share the automata.
    let shared = grammar.matcher();
    follow(shared.clone(), tokens);
    let rounds: Vec<_> = (0..ROUNDS).map(|_| follow(shared.clone(), tokens)).collect();
    print(&format!("{name}, known automata"), &rounds);
    c.bench_function(&format!("mask of {name}"), |bencher| {
        bencher.iter_custom(|n| {
            let times = (0..n).map(|_| follow(shared.clone(), tokens).iter().sum::<Duration>());
            times.sum::<Duration>() / tokens.len() as u32
        });
    });
}

fn masks(c: &mut Criterion) {
    let vocab = vocab();
    println!("{} tokens in the vocabulary", vocab.n_vocab());
    let compiler = Compiler::new(&vocab).expect("the vocabulary fits into the index");
    let schema = compiler.json_schema(SCHEMA).expect("the schema is well-formed");
    let any = compiler.json_schema("{}").expect("the schema is well-formed");
    let gbnf = compiler.gbnf(GBNF).expect("the grammar is well-formed");
    for (name, grammar, text) in
        [("a schema", &schema, VALUE), ("any value", &any, VALUE), ("GBNF", &gbnf, SENTENCE)]
    {
        let mut tokens = Vec::new();
        vocab.tokenize_behind(text, ParseSpecial::No, &mut tokens);
        measure(c, name, grammar, &tokens);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3));
    targets = masks
}
criterion_main!(benches);
