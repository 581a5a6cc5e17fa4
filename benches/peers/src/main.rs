//! llama.cpp with the command line of `backstitch bench`, for comparisons on one machine.

mod bench;
mod llama;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use llama::{Batch, Cells, Context, Flash, Model, Shape};

const USAGE: &str = "\
peer bench -m FILE [-t 1] [-p 512] [-n 128] [--depth 0] [--seqs 1] [--fa auto|on|off] [--cache f16|q8_0] [--reps 3]
    one JSON line: tokens a second for a prompt and for generation
peer logits -m FILE --tokens FILE --out FILE [-t 1] [--fa auto|on|off] [--cache f16|q8_0]
    evaluates whitespace-separated token ids together; writes little-endian f32 [n_tokens, n_vocab]
peer quantize FROM TO FORMAT
    F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K_M Q5_K_M Q6_K";

/// The command line: words that stand alone, and options with their values.
struct Args {
    words: Vec<String>,
    flags: HashMap<String, String>,
}

impl Args {
    fn parse(mut from: impl Iterator<Item = String>) -> Result<Args, String> {
        let mut args = Args { words: Vec::new(), flags: HashMap::new() };
        while let Some(word) = from.next() {
            if word.starts_with('-') {
                let value = from.next().ok_or_else(|| format!("{word} needs a value"))?;
                args.flags.insert(word, value);
            } else {
                args.words.push(word);
            }
        }
        Ok(args)
    }

    fn path(&self, flag: &str) -> Result<PathBuf, String> {
        self.flags.get(flag).map(PathBuf::from).ok_or_else(|| format!("{flag} is missing\n{USAGE}"))
    }

    fn number(&self, flag: &str, otherwise: usize) -> Result<usize, String> {
        let Some(text) = self.flags.get(flag) else { return Ok(otherwise) };
        usize::from_str(text).map_err(|e| format!("{flag} {text}: {e}"))
    }

    fn flash(&self) -> Result<Flash, String> {
        match self.flags.get("--fa").map(String::as_str) {
            None | Some("auto") => Ok(Flash::Auto),
            Some("on") => Ok(Flash::On),
            Some("off") => Ok(Flash::Off),
            Some(other) => Err(format!("--fa {other}: not auto, on or off")),
        }
    }

    fn cells(&self) -> Result<Cells, String> {
        match self.flags.get("--cache").map(String::as_str) {
            None | Some("f16") => Ok(Cells::F16),
            Some("q8_0") => Ok(Cells::Q8),
            Some(other) => Err(format!("--cache {other}: not f16 or q8_0")),
        }
    }
}

fn bench(args: &Args) -> Result<(), String> {
    let plan = bench::Plan {
        model: args.path("-m")?,
        threads: args.number("-t", 1)?,
        n_prompt: args.number("-p", 512)?,
        n_gen: args.number("-n", 128)?,
        depth: args.number("--depth", 0)?,
        seqs: args.number("--seqs", 1)?.max(1),
        flash: args.flash()?,
        cells: args.cells()?,
        reps: args.number("--reps", 3)?,
    };
    println!("{}", bench::run(&plan)?);
    Ok(())
}

fn logits(args: &Args) -> Result<(), String> {
    let (from, to) = (args.path("--tokens")?, args.path("--out")?);
    let text = fs::read_to_string(&from).map_err(|e| format!("{}: {e}", from.display()))?;
    let tokens: Result<Vec<u32>, _> = text.split_whitespace().map(u32::from_str).collect();
    let tokens = tokens.map_err(|e| format!("{}: {e}", from.display()))?;
    let mut batch = Batch::default();
    tokens.iter().enumerate().for_each(|(pos, &token)| batch.push(token, pos, 0, true));

    let model = Model::load(&args.path("-m")?)?;
    let n_ctx = tokens.len().next_multiple_of(256);
    let shape = Shape {
        threads: args.number("-t", 1)?,
        n_ctx,
        n_seqs: 1,
        flash: args.flash()?,
        cells: args.cells()?,
    };
    let mut context = Context::new(&model, shape)?;
    context.decode(&mut batch)?;
    let rows = context.logits(tokens.len(), model.n_vocab());
    let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(&to, bytes).map_err(|e| format!("{}: {e}", to.display()))
}

fn run() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1))?;
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    llama::start();
    match words[..] {
        ["bench"] => bench(&args),
        ["logits"] => logits(&args),
        ["quantize", from, to, format] => llama::quantize(Path::new(from), Path::new(to), format),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
