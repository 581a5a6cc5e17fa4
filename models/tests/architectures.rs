//! Checks of each architecture, and the table of them in `docs/architectures.md`.
//!
//! Every cell is a check that runs here on a golden model of the architecture: the table that comes
//! out must be the one in the documentation. `WRITE_ARCHITECTURES=1` writes it anew.

use backstitch_core::DType;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::conformance::{Options, Verdict, find, verify};
use backstitch_models::gguf::Gguf;
use backstitch_models::graph::Head;
use backstitch_models::{Batch, Context, Model, Params, Pos, RestoreOptions, SaveOptions, SeqId, Token};
use converted::{model, tokens};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{available_parallelism, scope};

#[allow(dead_code, reason = "the tests of adapters use the rest")]
mod adapted;
mod converted;
mod speculate;

/// Tokens of a text: more than the windows of the goldens.
const N_TOKENS: usize = 90;
/// The types of weights that each model is tried in; those of super-blocks need wider rows.
const FORMATS: [DType; 5] = [DType::F16, DType::BF16, DType::Q8_0, DType::Q5_1, DType::Q4_0];

const HEAD: &str = "\
# Architectures

What every architecture was tested for, on the tiny models in `goldens/models`, which llama.cpp ran
too. A test makes this table (`models/tests/architectures.rs`) and fails where it is not true.

- **whole**: the largest difference of a logit, or of an element of an embedding, from what
  llama.cpp computed, in all cases of the model's goldens.
- **chunked**, **sequences**: the logits have the same bits when the text is evaluated in pieces,
  and when other sequences are evaluated in the same batches.
- **rollback**, **fork**: the same bits after other tokens were evaluated and rolled back, and in a
  fork of the sequence.
- **save**: the same bits after the sequence was saved and restored in another context.
- **speculation**: the same tokens with a draft model as without.
- **LoRA**: sequences without adapters, with one, with two and a control vector, and with another
  scale have in one batch the bits that each has alone, and these differ; scale 0 changes no bit.
- **formats**: types of weights, besides F32, in which all of this holds.

A dash stands where there is nothing to test: encoders compute a text at once and keep no memory.

";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn context(model: &Model) -> Context {
    Context::new(model, Params::default().n_ctx(512).n_seq_max(3).n_threads(1)).unwrap()
}

/// Evaluate tokens at the end of `seq` in pieces of `n`, and return all logits.
fn evaluate(ctx: &mut Context, seq: SeqId, tokens: &[Token], n: usize) -> Vec<u32> {
    let mut bits = Vec::new();
    for piece in tokens.chunks(n) {
        let mut batch = Batch::new();
        let start = ctx.pos(seq).unwrap().0;
        for (&token, i) in piece.iter().zip(start..) {
            batch.push(token, Pos(i), &[seq], true);
        }
        ctx.decode(&batch).unwrap();
        (0..piece.len()).for_each(|i| bits.extend(ctx.output(i).unwrap().iter().map(|x| x.to_bits())));
    }
    bits
}

/// Return the sequence in which texts are evaluated; an encoder-decoder reads another text first.
fn begin(ctx: &mut Context, model: &Model) -> SeqId {
    let seq = ctx.sequence().unwrap();
    if model.graph().encoder().is_some() {
        ctx.encode(seq, &tokens(model, 5, 20)).unwrap();
    }
    seq
}

/// A text, and the bits of its logits when it is evaluated at once and alone.
struct Text<'m> {
    model: &'m Model,
    tokens: Vec<Token>,
    bits: Vec<u32>,
}

impl<'m> Text<'m> {
    fn new(model: &'m Model) -> Self {
        let tokens = tokens(model, 1, N_TOKENS);
        let mut ctx = context(model);
        let seq = begin(&mut ctx, model);
        let bits = evaluate(&mut ctx, seq, &tokens, N_TOKENS);
        assert!(bits.iter().all(|&bits| f32::from_bits(bits).is_finite()));
        Text { model, tokens, bits }
    }

    /// Return true if `bits` are those of the text from token `from` on.
    fn ends_with(&self, bits: &[u32], from: usize) -> bool {
        self.bits[from * self.bits.len() / N_TOKENS..] == *bits
    }

    fn chunked(&self) -> bool {
        [1, 7, 32].into_iter().all(|n| {
            let mut ctx = context(self.model);
            let seq = begin(&mut ctx, self.model);
            self.ends_with(&evaluate(&mut ctx, seq, &self.tokens, n), 0)
        })
    }

    /// Evaluate two other texts in the same batches.
    fn sequences(&self) -> bool {
        let mut ctx = context(self.model);
        let seqs = [0, 1, 2].map(|_| begin(&mut ctx, self.model));
        let [left, right] = [2, 3].map(|seed| tokens(self.model, seed, N_TOKENS));
        let texts: Vec<[Token; 3]> = (0..N_TOKENS).map(|i| [left[i], self.tokens[i], right[i]]).collect();
        let mut bits = Vec::new();
        for (tokens, first) in texts.chunks(9).zip((0..).step_by(9)) {
            let mut batch = Batch::new();
            for (tokens, pos) in tokens.iter().zip(first..) {
                for (&token, seq) in tokens.iter().zip(seqs) {
                    batch.push(token, Pos(pos), &[seq], true);
                }
            }
            ctx.decode(&batch).unwrap();
            for i in (1..batch.len()).step_by(3) {
                bits.extend(ctx.output(i).unwrap().iter().map(|x| x.to_bits()));
            }
        }
        self.ends_with(&bits, 0)
    }

    fn rollback(&self) -> bool {
        [3, 40, 77].into_iter().all(|keep| {
            let mut ctx = context(self.model);
            let seq = begin(&mut ctx, self.model);
            evaluate(&mut ctx, seq, &self.tokens[..keep], 16);
            evaluate(&mut ctx, seq, &tokens(self.model, 4, 30), 16);
            ctx.rollback(seq, Pos(keep as i32)).unwrap();
            self.ends_with(&evaluate(&mut ctx, seq, &self.tokens[keep..], 16), keep)
        })
    }

    fn fork(&self) -> bool {
        let mut ctx = context(self.model);
        let seq = begin(&mut ctx, self.model);
        evaluate(&mut ctx, seq, &self.tokens[..50], 16);
        let fork = ctx.fork(seq).unwrap();
        evaluate(&mut ctx, seq, &tokens(self.model, 4, 20), 16);
        self.ends_with(&evaluate(&mut ctx, fork, &self.tokens[50..], 16), 50)
    }

    fn save(&self) -> bool {
        let mut ctx = context(self.model);
        let seq = begin(&mut ctx, self.model);
        evaluate(&mut ctx, seq, &self.tokens[..50], 16);
        let mut state = Vec::new();
        ctx.seq_state_write(seq, &mut state, &SaveOptions::default()).unwrap();
        let mut ctx = context(self.model);
        let seq = ctx.sequence().unwrap();
        ctx.seq_state_read(seq, &mut state.as_slice(), &RestoreOptions::default()).unwrap();
        self.ends_with(&evaluate(&mut ctx, seq, &self.tokens[50..], 16), 50)
    }

    fn all(&self) -> [bool; 6] {
        [
            self.chunked(),
            self.sequences(),
            self.rollback(),
            self.fork(),
            self.save(),
            speculate::agrees(self.model, &self.tokens[..20]),
        ]
    }
}

/// Return true if each of two texts of an encoder has the bits that it has alone when both are
/// computed in one batch.
fn encoder_keeps_texts_apart(model: &Model) -> bool {
    let texts = [1, 2].map(|seed| tokens(model, seed, 40));
    let embed = |texts: &[&[Token]]| {
        let mut ctx = context(model);
        let seqs: Vec<SeqId> = texts.iter().map(|_| ctx.sequence().unwrap()).collect();
        let mut batch = Batch::new();
        for i in 0..40 {
            for (&seq, text) in seqs.iter().zip(texts) {
                batch.push(text[i], Pos(i as i32), &[seq], true);
            }
        }
        ctx.encode_batch(&batch).unwrap();
        let rows = (0..batch.len()).step_by(texts.len());
        rows.flat_map(|i| ctx.embedding(i).unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    embed(&[&texts[0], &texts[1]]) == embed(&[&texts[0]])
}

/// Evaluate a text in sequences with these sets in one batch, and return the bits of each.
fn with_sets(model: &Model, sets: &[AdapterSet], text: &[Token]) -> Vec<Vec<u32>> {
    let mut ctx = Context::new(model, Params::default().n_ctx(512).n_seq_max(4).n_threads(1)).unwrap();
    let seqs: Vec<SeqId> = sets.iter().map(|set| ctx.sequence_with(set).unwrap()).collect();
    if model.graph().encoder().is_some() {
        let source = tokens(model, 5, 12);
        seqs.iter().for_each(|&seq| ctx.encode(seq, &source).unwrap());
    }
    let mut batch = Batch::new();
    for (pos, &token) in (0..).zip(text) {
        seqs.iter().for_each(|&seq| _ = batch.push(token, Pos(pos), &[seq], true));
    }
    let is_encoder = model.graph().head() != Head::Logits;
    match is_encoder {
        true => ctx.encode_batch(&batch).unwrap(),
        false => ctx.decode(&batch).unwrap(),
    }
    let row = |i: usize| if is_encoder { ctx.embedding(i) } else { ctx.output(i) };
    let bits = |i: usize| row(i).unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    (0..sets.len()).map(|i| (i..batch.len()).step_by(sets.len()).flat_map(bits).collect()).collect()
}

/// Return true if sequences with different adapters have in one batch the bits that each has alone,
/// all of them others, and if a scale of 0 changes no bit.
fn adapters_keep_apart(model: &Model) -> bool {
    let (sets, text) = (adapted::sets(model), tokens(model, 1, 9));
    let zero = AdapterSet::default().with(&adapted::lora(model, 1, 3), 0.0).unwrap();
    let found = with_sets(model, &sets, &text);
    let alone = |set: &AdapterSet| with_sets(model, core::slice::from_ref(set), &text).concat();
    sets.iter().zip(&found).all(|(set, bits)| alone(set) == *bits)
        && found.iter().enumerate().all(|(i, bits)| !found[..i].contains(bits))
        && alone(&zero) == found[0]
}

/// Return the largest difference from llama.cpp in all cases of a golden. Cases that are only shown
/// do not count.
fn largest_difference(name: &str) -> f32 {
    let path = root().join(format!("goldens/goldens/{name}.txt"));
    let mut largest = 0.0f32;
    verify(&path, &Options::default(), &mut |row| {
        assert!(
            matches!(row.verdict, Verdict::Passed | Verdict::Informational),
            "{name} {}: {}",
            row.case,
            row.note
        );
        if row.verdict == Verdict::Passed {
            largest = row.max_diff.map_or(largest, |diff| largest.max(diff));
        }
    });
    assert!(largest > 0.0, "{name}: nothing was compared");
    largest
}

/// Return the row of a golden model.
fn row(name: &str) -> String {
    let base = model(name, DType::F32);
    let is_encoder = base.graph().head() != Head::Logits;
    let mut formats = Vec::new();
    let mut cells = Vec::new();
    for dtype in [DType::F32].into_iter().chain(FORMATS) {
        let model = if dtype == DType::F32 { base.clone() } else { model(name, dtype) };
        let found = if is_encoder {
            vec![encoder_keeps_texts_apart(&model)]
        } else {
            Text::new(&model).all().to_vec()
        };
        if dtype == DType::F32 {
            cells = found;
        } else if found.iter().all(|&holds| holds) {
            formats.push(dtype.name());
        }
    }
    let mark = |holds: &bool| if *holds { "yes" } else { "**no**" };
    let mut marks: Vec<&str> = cells.iter().map(mark).collect();
    if is_encoder {
        marks = vec!["–", marks[0], "–", "–", "–", "–"];
    }
    marks.push(mark(&adapters_keep_apart(&base)));
    let difference = largest_difference(name);
    format!("| {name} | {difference:.0e} | {} | {} |", marks.join(" | "), formats.join(" "))
}

/// Return the names of the golden models by architecture.
fn names() -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in find(&root().join("goldens/goldens")).unwrap() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("quant_") {
            let bytes = std::fs::read(root().join(format!("goldens/models/{name}.gguf"))).unwrap();
            let architecture = Gguf::parse(&bytes).unwrap().architecture().unwrap().to_owned();
            names.entry(architecture).or_default().push(name);
        }
    }
    names
}

/// Return all rows, computed on all processors.
fn rows() -> Vec<String> {
    let models: Vec<(String, String)> = names()
        .into_iter()
        .flat_map(|(architecture, names)| names.into_iter().map(move |name| (architecture.clone(), name)))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)))
            .map_while(|i| Some((i, models.get(i)?)))
            .map(|(i, (architecture, name))| (i, format!("| {architecture} {}", row(name))))
            .collect::<Vec<_>>()
    };
    let n_threads = available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<(usize, String)> = scope(|threads| {
        let workers: Vec<_> = (0..n_threads).map(|_| threads.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    rows.sort();
    rows.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn the_table_of_architectures_is_true() {
    let mut page = HEAD.to_owned();
    let columns = "| architecture | model | whole | chunked | sequences | rollback | fork | save | speculation | LoRA | formats |";
    writeln!(page, "{columns}\n|---|---|---|---|---|---|---|---|---|---|---|").unwrap();
    for row in rows() {
        writeln!(page, "{row}").unwrap();
    }
    assert!(!page.contains("**no**"), "{page}");
    let path = root().join("docs/architectures.md");
    if std::env::var_os("WRITE_ARCHITECTURES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
}
