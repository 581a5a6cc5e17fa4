//! Tokens per second for a prompt and for generation, measured like `backstitch bench` does.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::llama::{Batch, Cells, Context, Flash, Model, N_BATCH, Shape};

/// The measurement to take. The names are those of `backstitch bench`.
pub struct Plan {
    /// GGUF file.
    pub model: PathBuf,
    /// Threads.
    pub threads: usize,
    /// Tokens of the prompt, evaluated in one batch; 0 skips it.
    pub n_prompt: usize,
    /// Tokens generated one after the other, for each sequence; 0 skips it.
    pub n_gen: usize,
    /// Tokens in each sequence before the prompt and before the generation.
    pub depth: usize,
    /// Sequences that generate together.
    pub seqs: usize,
    /// Kind of attention.
    pub flash: Flash,
    /// Type of the cache.
    pub cells: Cells,
    /// Timed runs, after an untimed one; the median counts.
    pub reps: usize,
}

/// Measure, and return one JSON line.
///
/// # Errors
/// The errors of llama.cpp.
pub fn run(plan: &Plan) -> Result<String, String> {
    let began = Instant::now();
    let model = Model::load(&plan.model)?;
    let room = plan.depth + plan.n_prompt.max(plan.n_gen);
    let n_ctx = room.next_multiple_of(256) * plan.seqs;
    let shape =
        Shape { threads: plan.threads, n_ctx, n_seqs: plan.seqs, flash: plan.flash, cells: plan.cells };
    let mut context = Context::new(&model, shape)?;
    let load_s = began.elapsed().as_secs_f64();

    let text = tokens(room, model.n_vocab());
    for seq in 0..plan.seqs {
        evaluate(&mut context, &text[..plan.depth], 0, seq)?;
    }
    let prompt = &text[plan.depth..plan.depth + plan.n_prompt];
    let prompt_s = median(plan, &mut context, |context| evaluate(context, prompt, plan.depth, 0))?;
    let gen_s = median(plan, &mut context, |context| generate(context, plan, &text))?;
    Ok(format!(
        r#"{{"model":"{}","threads":{},"n_prompt":{},"n_gen":{},"depth":{},"seqs":{},"flash":"{:?}","prompt_tps":{:.2},"gen_tps":{:.2},"load_s":{load_s:.3},"peak_rss_mib":{:.1}}}"#,
        file_name(&plan.model),
        plan.threads,
        plan.n_prompt,
        plan.n_gen,
        plan.depth,
        plan.seqs,
        plan.flash,
        plan.n_prompt as f64 / prompt_s,
        (plan.n_gen * plan.seqs) as f64 / gen_s,
        peak_rss_mib(),
    ))
}

/// Return arbitrary tokens, the same in every run: speed does not depend on them.
pub fn tokens(n: usize, n_vocab: usize) -> Vec<u32> {
    (0..n)
        .map(|i| ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32 % n_vocab as u32)
        .collect()
}

/// Evaluate `tokens` as a part of `seq` from `pos` on. Only the last one gets logits.
fn evaluate(context: &mut Context, tokens: &[u32], pos: usize, seq: usize) -> Result<(), String> {
    let mut done = 0;
    for part in tokens.chunks(N_BATCH) {
        let mut batch = Batch::default();
        for &token in part {
            done += 1;
            batch.push(token, pos + done - 1, seq, done == tokens.len());
        }
        context.decode(&mut batch)?;
    }
    Ok(())
}

fn generate(context: &mut Context, plan: &Plan, text: &[u32]) -> Result<(), String> {
    for pos in plan.depth..plan.depth + plan.n_gen {
        let mut batch = Batch::default();
        for seq in 0..plan.seqs {
            batch.push(text[pos], pos, seq, true);
        }
        context.decode(&mut batch)?;
    }
    Ok(())
}

/// Return the median seconds of `plan.reps` runs after a warm-up, each from `plan.depth` on.
fn median(
    plan: &Plan,
    context: &mut Context,
    mut work: impl FnMut(&mut Context) -> Result<(), String>,
) -> Result<f64, String> {
    let mut seconds = Vec::new();
    for _ in 0..=plan.reps {
        let began = Instant::now();
        work(context)?;
        seconds.push(began.elapsed().as_secs_f64());
        for seq in 0..plan.seqs {
            context.rewind(seq, plan.depth)?;
        }
    }
    seconds.remove(0);
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().ok_or_else(|| "--reps 0 measures nothing".into())
}

/// Return the peak resident memory of this process on Linux; 0 elsewhere.
fn peak_rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().replace(['"', '\\'], "_")
}
