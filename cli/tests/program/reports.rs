//! What `tokenize`, `inspect`, `graph`, `bench` and `verify` print.

use super::{arg, backstitch, piped, repository};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&backstitch(args).ok()).unwrap()
}

#[test]
fn tokens_come_as_table_numbers_or_json() {
    let table = backstitch(&["tokenize", "-p", "Once upon"]).ok();
    let lines: Vec<_> = table.lines().map(str::trim).collect();
    assert_eq!(lines, ["0  \"<|endoftext|>\"", "1057  \"Once\"", "613  \" upon\""]);
    assert_eq!(piped(&["tokenize", "--ids"], b"Once upon\n").ok(), "0 1057 613\n");
    assert_eq!(backstitch(&["tokenize", "--ids", "--no-bos", "-p", "Once upon"]).ok(), "1057 613\n");
    let plain =
        backstitch(&["tokenize", "--ids", "--no-bos", "--no-parse-special", "-p", "<|endoftext|>"]).ok();
    assert!(plain.split(' ').count() > 1, "{plain}");
    assert_eq!(
        json(&["tokenize", "--json", "-p", "Once"])[1],
        serde_json::json!({"id": 1057, "piece": "Once"})
    );
}

#[test]
fn a_file_is_inspected_whole() {
    let text = backstitch(&["inspect", "--tensors"]).ok();
    for part in ["falcon-h1", "general.name", "Q8_0", "blk.5.attn_q.weight", "Memory", "1024 "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let path = repository("demo/demo.gguf");
    let json = json(&["inspect", "--json", arg(&path)]);
    assert_eq!(json["architecture"], "falcon-h1");
    let fingerprint = json["fingerprint"].as_str().unwrap();
    assert!(fingerprint.len() == 64 && text.contains(fingerprint), "{text}");
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"].as_array().map(Vec::len), Some(2048));
    assert_eq!(json["tensors"].as_array().map(Vec::len), Some(98));
    assert_eq!(json["memory"]["caches"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["bytes"], std::fs::metadata(path).unwrap().len());
}

#[test]
fn a_graph_is_text_or_dot() {
    assert!(backstitch(&["graph"]).ok().contains("rms_norm"));
    let dot = backstitch(&["graph", "--dot"]).ok();
    assert!(dot.starts_with("digraph") && dot.trim_end().ends_with('}'));
}

#[test]
fn the_benchmark_says_the_same_on_one_line_each_time() {
    let bench = |threads: &str, seqs: &str| {
        json(&["bench", "--json", "-p", "9", "-n", "5", "-d", "7", "-r", "2", "-t", threads, "--seqs", seqs])
    };
    let one = bench("1", "1");
    let keys: Vec<_> = one.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = [
        "model",
        "threads",
        "n_prompt",
        "n_gen",
        "depth",
        "seqs",
        "prompt_tps",
        "gen_tps",
        "read_gb_s",
        "read_limit_gb_s",
        "load_s",
        "peak_rss_mib",
        "allocs_per_token",
        "kernel_set",
        "logits_hash",
    ];
    wanted.sort_unstable();
    assert_eq!(keys, wanted);
    assert_eq!(one["allocs_per_token"], 0.0);
    assert!(one["gen_tps"].as_f64() > Some(0.0) && one["peak_rss_mib"].as_f64() > Some(1.0));
    for other in [bench("2", "1"), bench("1", "3")] {
        assert_eq!(other["logits_hash"], one["logits_hash"]);
        assert_eq!(other["allocs_per_token"], 0.0);
    }
}

#[test]
fn conformance_files_are_replayed() {
    let file = repository("goldens/goldens/llama.txt");
    let text = backstitch(&["verify", arg(&file)]).ok();
    assert!(text.ends_with("17 passed, 0 failed, 0 not supported, 0 informational\n"), "{text}");
    assert!(text.contains("rollback"));
    let strict = backstitch(&["verify", "--tolerance", "0", arg(&file)]);
    assert!(strict.error(1).contains("17 cases failed") && strict.stdout.contains("FAILED"));
    let row: Value = backstitch(&["verify", "--json", arg(&file)])
        .ok()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .next()
        .unwrap();
    assert_eq!((&row["case"], &row["verdict"]), (&"whole".into(), &"passed".into()));
}

#[test]
fn the_goldens_of_the_repository_pass() {
    let text = backstitch(&["verify", arg(&repository("goldens"))]).ok();
    let passed: usize = text.lines().last().and_then(|line| line.split(' ').next()?.parse().ok()).unwrap();
    assert!(passed > 150 && text.contains(" 0 failed, "), "{text}");
}

#[test]
fn what_cannot_be_verified_never_passes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    assert!(backstitch(&["verify", arg(folder.path())]).error(1).contains("no conformance files"));
    assert!(backstitch(&["verify", arg(&path("missing"))]).error(1).contains("no such file"));

    let golden = "golden-1\nmodel models/none.gguf\ncase a\ncontext n_ctx=8\nencode 0\nend\n";
    std::fs::write(path("a.txt"), golden).unwrap();
    std::fs::write(path("a.bin"), "").unwrap();
    let text = backstitch(&["verify", arg(folder.path())]).ok();
    assert!(text.ends_with("0 passed, 0 failed, 1 not supported, 0 informational\n"), "{text}");

    std::fs::write(path("b.txt"), "golden-1\nnonsense\n").unwrap();
    backstitch(&["verify", arg(folder.path())]).error(1);
    std::fs::write(path("c.md"), "").unwrap();
    backstitch(&["verify", arg(&path("c.md"))]).error(1);
}
