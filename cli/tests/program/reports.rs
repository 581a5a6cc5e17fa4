//! The output of `tokenize`, `inspect`, `graph`, `bench` and `verify`.

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
fn the_memory_of_adapters_is_what_they_take() {
    use backstitch_models::{Model, adapter};

    let model = Model::open(repository("goldens/models/qwen3moe.gguf")).unwrap();
    let lora = repository("goldens/lora/qwen3moe.lora.gguf");
    let n = adapter::Adapter::open(&lora, &model).unwrap().n_bytes();
    assert_eq!(json(&["inspect", "--json", arg(&lora)])["memory"]["adapter"], n);
    let control = repository("goldens/lora/qwen3moe.control.gguf");
    let n = adapter::ControlVector::open(&control, &model).unwrap().n_bytes();
    assert_eq!(json(&["inspect", "--json", arg(&control)])["memory"]["adapter"], n);
    let text = backstitch(&["inspect", arg(&lora)]).ok();
    assert!(text.contains(" beside that of its model and a context\n"), "{text}");
}

#[test]
fn what_nobody_reads_and_what_is_unknown_is_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let bytes = std::fs::read(repository("goldens/models/llama.gguf")).unwrap();
    let path = folder.path().join("model.gguf");
    let inspected = |from: &str, to: &str| {
        let mut bytes = bytes.clone();
        let at = |bytes: &[u8]| bytes.windows(from.len()).position(|name| name == from.as_bytes());
        while let Some(at) = at(&bytes) {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        std::fs::write(&path, bytes).unwrap();
        (backstitch(&["inspect", arg(&path)]).ok(), json(&["inspect", "--json", arg(&path)]))
    };
    let (text, value) = inspected("llama.rope.freq_base", "llama.rope.freq_bass");
    assert_eq!(value["unread"], serde_json::json!(["llama.rope.freq_bass"]), "{text}");
    assert!(text.ends_with("\nNot read\nllama.rope.freq_bass\n"), "{text}");
    let (text, value) = inspected("llama", "lhama");
    assert_eq!((&value["unread"], &value["memory"]), (&serde_json::json!([]), &Value::Null));
    assert!(text.contains("lhama") && text.contains("nearest") && text.contains("llama"), "{text}");
}

#[test]
fn a_graph_is_text_or_dot() {
    assert!(backstitch(&["graph"]).ok().contains("rms_norm"));
    let dot = backstitch(&["graph", "--dot"]).ok();
    assert!(dot.starts_with("digraph") && dot.trim_end().ends_with('}'));
    let t5 = repository("goldens/models/t5.gguf");
    let dot = backstitch(&["graph", "--dot", "-m", arg(&t5)]).ok();
    // One graph, in which the names of encoder and decoder differ.
    assert_eq!(dot.matches("digraph").count(), 1);
    assert_eq!(dot.matches(['{']).count(), dot.matches(['}']).count());
    let mut boxes: Vec<_> =
        dot.lines().filter_map(|line| Some(line.split_once(" [label")?.0.trim())).collect();
    boxes.retain(|name| !name.contains("->"));
    let n = boxes.len();
    boxes.sort_unstable();
    boxes.dedup();
    assert!(boxes.len() == n && boxes.contains(&"e0") && boxes.contains(&"s0"), "{dot}");
}

#[test]
fn the_benchmark_says_the_same_on_one_line_each_time() {
    let bench = |threads: &str, seqs: &str| {
        json(&["bench", "--json", "-p", "9", "-n", "5", "-d", "7", "-r", "2", "-t", threads, "--seqs", seqs])
    };
    let one = bench("1", "1");
    let mut keys: Vec<_> = one.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut wanted = [
        "model",
        "threads",
        "n_prompt",
        "n_gen",
        "depth",
        "seqs",
        "cpu",
        "repetitions",
        "foreign",
        "spread",
        "gop_s",
        "gop_limit_s",
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
    let [low, high] = [0, 1].map(|i| one["spread"]["gen_tps"][i].as_f64().unwrap());
    let median = one["gen_tps"].as_f64().unwrap();
    assert!(0.0 < low && low <= median && median <= high, "{one}");
    assert!(one["gop_s"].as_f64() > Some(0.0) && one["gop_limit_s"].as_f64() > Some(0.0));
    assert!(!one["cpu"].as_str().unwrap().is_empty());
}

#[test]
fn the_hash_of_a_benchmark_covers_the_logits_of_the_prompt() {
    // Both generate the same tokens from the same place.
    let hash = |n: &str| json(&["bench", "--json", "-p", n, "-n", "3", "-r", "1"])["logits_hash"].clone();
    assert_ne!(hash("8"), hash("9"));
    assert_eq!(hash("8"), hash("8"));
}

#[test]
fn lists_are_measured_in_every_combination() {
    let lists = ["-p", "5,9", "-n", "2,3", "-d", "0,40", "-t", "1,2", "-r", "1"];
    let lines = backstitch(&[&["bench", "--json"][..], &lists].concat()).ok();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut wanted = Vec::new();
    for threads in [1, 2] {
        for depth in [0, 40] {
            wanted.extend([[5, 2], [5, 3], [9, 2], [9, 3]].map(|[p, n]| [threads, depth, p, n]));
        }
    }
    let keys = ["threads", "depth", "n_prompt", "n_gen"];
    let found: Vec<_> = lines.iter().map(|line| keys.map(|key| line[key].as_i64().unwrap())).collect();
    assert_eq!(found, wanted);
    let (one, two) = lines.split_at(8);
    for (one, two) in one.iter().zip(two) {
        assert_eq!(one["logits_hash"], two["logits_hash"]);
    }

    let table = backstitch(&[&["bench"][..], &lists].concat()).ok();
    let rows = table.lines().skip_while(|line| !line.starts_with("test")).skip(1);
    let names: Vec<_> = rows.map(|row| row.split("  ").next().unwrap()).collect();
    let each = ["pp5", "pp9", "tg2", "tg3", "pp5 @ d40", "pp9 @ d40", "tg2 @ d40", "tg3 @ d40"];
    assert_eq!(names, [each, each].concat());
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
fn conformance_files_with_adapters_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lora")).unwrap();
    std::fs::create_dir(folder.path().join("models")).unwrap();
    let copy =
        |name: &str| std::fs::copy(repository(&format!("goldens/{name}")), folder.path().join(name)).unwrap();
    copy("models/llama.gguf");
    for ending in ["bin", "lora.gguf", "second.gguf", "control.gguf"] {
        copy(&format!("lora/llama.{ending}"));
    }
    let (file, text) = (folder.path().join("lora/llama.txt"), repository("goldens/lora/llama.txt"));
    let text = std::fs::read_to_string(text).unwrap();
    let ends = |changed: &str| {
        std::fs::write(&file, changed).unwrap();
        let found = backstitch(&["verify", arg(&file)]);
        found.stdout.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(ends(&text), "5 passed, 0 failed, 0 not supported, 0 informational");
    let other_scale = text.replace("llama.lora.gguf 1\n", "llama.lora.gguf 0.5\n");
    assert_eq!(ends(&other_scale), "3 passed, 2 failed, 0 not supported, 0 informational");
    let missing = text.replace("llama.second.gguf", "none.gguf");
    assert_eq!(ends(&missing), "4 passed, 1 failed, 0 not supported, 0 informational");
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
    let nothing = backstitch(&["verify", arg(folder.path())]);
    assert!(nothing.error(1).contains("no case could be checked"), "{}", nothing.stderr);
    assert!(
        nothing.stdout.ends_with("0 passed, 0 failed, 1 not supported, 0 informational\n"),
        "{}",
        nothing.stdout
    );

    let sound = repository("goldens/goldens/llama.txt");
    let some = ["verify", arg(&sound), arg(folder.path())];
    assert!(backstitch(&some).ok().ends_with("17 passed, 0 failed, 1 not supported, 0 informational\n"));
    let strict = backstitch(&[&some[..], &["--strict"]].concat());
    assert!(strict.error(1).contains("1 case not supported"), "{}", strict.stderr);
    backstitch(&["verify", arg(&sound), "--strict"]).ok();

    std::fs::write(path("b.txt"), "golden-1\nnonsense\n").unwrap();
    backstitch(&["verify", arg(folder.path())]).error(1);
    std::fs::write(path("c.md"), "").unwrap();
    backstitch(&["verify", arg(&path("c.md"))]).error(1);
}
