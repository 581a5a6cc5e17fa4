//! `backstitch doctor`: what this machine can do, and what to expect of a model on it.
//!
//! The limits are those that `bench` measures: the speed of reading memory, and of multiplying in
//! registers. A generated token reads all weights and its context once, so the first limit divided
//! by these bytes is the most that a machine can generate; a prompt is nearer the second.

use super::bench::{limits::Limits, processor, traffic};
use crate::args::{AdapterArgs, ContextArgs, DoctorArgs};
use crate::error::Error;
use crate::output::{Output, bytes};
use crate::{footprint, machine, memory, model};
use backstitch_core::KernelSet;
use backstitch_models::{Context, Model};
use serde_json::{Value, json};

/// A line of the report: its name, its text, and its value for programs.
struct Line {
    /// The name; with underscores for spaces it is the key in JSON.
    name: &'static str,
    /// The text for a person.
    text: String,
    /// The value in JSON.
    value: Value,
}

/// Make a line.
fn line(name: &'static str, text: impl Into<String>, value: Value) -> Line {
    Line { name, text: text.into(), value }
}

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the kernel set or the model cannot be used.
/// - [`Error::Refused`] if the context is too large for the memory.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &DoctorArgs) -> Result<(), Error> {
    let n_threads = model::n_threads(args.n_threads);
    let kernels = KernelSet::detect().map_err(backstitch_models::Error::from)?;
    let limits = Limits::measure(kernels, n_threads as usize);
    let mut lines = of_machine(args, kernels, n_threads, &limits);
    if args.model.model.is_some() {
        lines.extend(of_model(args, &limits)?);
    }
    let mut out = Output::new(args.json);
    if args.json {
        let pairs = lines.into_iter().map(|line| (line.name.replace(' ', "_"), line.value));
        out.value(&Value::Object(pairs.collect()))?;
    } else {
        for line in &lines {
            out.text(format_args!("{:<18}{}", line.name, line.text), 18)?;
        }
    }
    Ok(out.flush()?)
}

/// Return the lines about the machine.
fn of_machine(args: &DoctorArgs, kernels: &KernelSet, n_threads: u32, limits: &Limits) -> Vec<Line> {
    let cpu = processor::name();
    let mut lines = vec![line("processor", &cpu, json!(cpu))];
    let details = machine::lines(kernels.name(), args.n_threads, n_threads);
    let names = ["kernels", "threads"];
    for (at, text) in details.iter().enumerate() {
        let name = names.get(at).copied().unwrap_or("");
        if let Some(rest) = text.strip_prefix(name).filter(|_| !name.is_empty()) {
            lines.push(line(name, rest.trim(), json!(rest.trim())));
        }
    }
    let others: Vec<_> = details.iter().skip(names.len()).collect();
    lines.extend(others.first().map(|_| line("system", join(&others), json!(others))));
    if let Some(read) = limits.read {
        let text = format!("{read:.1} GB/s, with {n_threads} threads");
        lines.push(line("memory bandwidth", text, json!({ "gb_per_s": read })));
    }
    let (byte_ops, float_ops) = (limits.byte_ops, limits.float_ops);
    let text = format!("{byte_ops:.0} GOP/s with bytes, {float_ops:.0} with floats");
    lines.push(line("products", text, json!({ "bytes_gop_per_s": byte_ops, "floats_gop_per_s": float_ops })));
    let memory = memory::available();
    let text: Vec<_> = memory.iter().map(|(what, n)| format!("{what} {}", bytes(*n))).collect();
    if !memory.is_empty() {
        let values: Vec<_> = memory.iter().map(|(what, n)| json!({ "what": what, "bytes": n })).collect();
        lines.push(line("memory", text.join("; "), json!(values)));
    }
    lines
}

/// Join lines to a text.
fn join(lines: &[&String]) -> String {
    lines.iter().map(|line| line.as_str()).collect::<Vec<_>>().join("; ")
}

/// Return the lines about a model.
fn of_model(args: &DoctorArgs, limits: &Limits) -> Result<Vec<Line>, Error> {
    let model = model::open(&args.model, model::n_threads(args.n_threads))?;
    let context = ContextArgs {
        n_threads: args.n_threads,
        evaluation: args.evaluation.clone(),
        adapters: AdapterArgs::default(),
    };
    let params = model::params(&context, &model);
    memory::check(&model, &params)?;
    let ctx = Context::new(&model, params)?;
    let n_ctx = ctx.params().n_ctx;
    let total = ctx.budget().total();
    let name = model.name().unwrap_or("without a name");
    let text =
        format!("{name}, {}, {} of weights", model.hparams().architecture, bytes(model.n_bytes() as u64));
    let value =
        json!({ "name": name, "architecture": model.hparams().architecture, "bytes": model.n_bytes() });
    let mut lines = vec![
        line("model", text, value),
        line(
            "needs",
            format!("{} with a context of {n_ctx} tokens", bytes(total)),
            json!({ "bytes": total, "n_ctx": n_ctx }),
        ),
        of_context(&model, &ctx),
    ];
    lines.extend(of_speed(&ctx, limits));
    Ok(lines)
}

/// Return the line about the bytes of a context: those that each token takes, and those that a
/// sequence takes whatever its length.
fn of_context(model: &Model, ctx: &Context) -> Line {
    let cache = |n_ctx| footprint::cache(model.hparams(), model.graph(), n_ctx, ctx.params());
    // Blocks of tokens make the cache grow in steps; a long stretch evens them out.
    const FEW: u32 = 1 << 10;
    const MANY: u32 = 1 << 11;
    let token = cache(MANY).saturating_sub(cache(FEW)) / u64::from(MANY - FEW);
    let fixed = cache(FEW).saturating_sub(token * u64::from(FEW));
    let text = format!("{} for each token, {} for each text", bytes(token), bytes(fixed));
    line("context", text, json!({ "bytes_per_token": token, "bytes_per_text": fixed }))
}

/// Return the lines about the speed: at most what the limits allow, in an empty context and in a
/// full one.
fn of_speed(ctx: &Context, limits: &Limits) -> Vec<Line> {
    // Long enough that products are as fast as they become, short enough for attention to cost
    // little.
    const PROMPT: u32 = 512;
    let n_ctx = ctx.params().n_ctx;
    let (empty, full) =
        (traffic::generation(ctx, 0, 1, 1), traffic::generation(ctx, n_ctx.saturating_sub(1), 1, 1));
    let text = format!("{} in an empty context, {} in a full one", bytes(empty.bytes), bytes(full.bytes));
    let mut lines =
        vec![line("a token reads", text, json!({ "empty_bytes": empty.bytes, "full_bytes": full.bytes }))];
    if let Some(read) = limits.read {
        let rate = |work: &traffic::Work| {
            let seconds = work.bytes as f64 / (read * 1e9);
            let seconds = seconds.max((work.byte_ops + work.float_ops) as f64 / (limits.ops(work) * 1e9));
            1.0 / seconds.max(f64::MIN_POSITIVE)
        };
        let (empty, full) = (rate(&empty), rate(&full));
        let text = format!("at most {empty:.1} tokens/s in an empty context, {full:.1} in a full one");
        lines.push(line("generation", text, json!({ "empty_per_s": empty, "full_per_s": full })));
        let n = PROMPT.min(n_ctx);
        let prompt = rate(&traffic::prompt(ctx, 0, n)) * f64::from(n);
        let text = format!("at most {prompt:.0} tokens/s; `backstitch bench` measures both");
        lines.push(line("prompts", text, json!({ "per_s": prompt })));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_models::Params;

    #[test]
    fn what_a_token_reads_grows_with_the_context() {
        let model = Model::from_bytes(crate::embedded::GGUF).unwrap();
        let ctx = Context::new(&model, Params::default().n_ctx(2048)).unwrap();
        let context = of_context(&model, &ctx).value;
        assert!(context["bytes_per_token"].as_u64().unwrap() > 0);
        let limits = Limits { read: Some(10.0), byte_ops: 100.0, float_ops: 50.0 };
        let lines = of_speed(&ctx, &limits);
        let reads = &lines[0].value;
        assert!(reads["empty_bytes"].as_u64() < reads["full_bytes"].as_u64(), "{reads}");
        let rate = &lines[1].value;
        assert!(rate["empty_per_s"].as_f64() > rate["full_per_s"].as_f64(), "{rate}");
    }
}
