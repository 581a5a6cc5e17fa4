//! The commands around a model: defaults, models by name, completions, manual pages, the doctor.

use super::{arg, backstitch, program, repository};
use std::fs;
use tempfile::TempDir;

#[test]
fn defaults_come_from_a_file_and_from_variables() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("config.toml");
    fs::write(&config, "temp = 0\nseed = 3\n[run]\npredict = 4\nno-display-prompt = true\n").unwrap();
    let wanted = backstitch(&["run", "--temp", "0", "-n", "4", "--no-display-prompt", "-p", "The cat"]).ok();
    assert_eq!(backstitch(&["run", "--config", arg(&config), "-p", "The cat"]).ok(), wanted);
    let named = |name: &str, value: &str, args: &[&str]| {
        super::Outcome::from(program(args).env(name, value).output().unwrap())
    };
    assert_eq!(named("BACKSTITCH_CONFIG", arg(&config), &["run", "-p", "The cat"]).ok(), wanted);
    let shorter = ["run", "--config", arg(&config), "-p", "The cat"];
    assert!(named("BACKSTITCH_PREDICT", "2", &shorter).ok().len() < wanted.len());
    assert_eq!(named("BACKSTITCH_PREDICT", "2", &[&shorter[..], &["-n", "4"]].concat()).ok(), wanted);
    fs::write(&config, "temperatur = 0").unwrap();
    assert!(backstitch(&["run", "--config", arg(&config)]).error(2).contains("no command has the option"));
    assert!(backstitch(&["run", "--config", "none.toml"]).error(2).contains("none.toml"));
}

#[test]
fn models_are_found_by_name() {
    let folder = TempDir::new().unwrap();
    let snapshot = folder.path().join("models--tiny--stories/snapshots/0");
    fs::create_dir_all(&snapshot).unwrap();
    fs::copy(repository("demo/demo.gguf"), snapshot.join("demo-F16.gguf")).unwrap();
    let models = ["--models", arg(folder.path())];
    assert!(backstitch(&[&["models"], &models[..]].concat()).ok().starts_with("tiny/stories/demo-F16  "));
    let wanted = backstitch(&["run", "--temp", "0", "-n", "4", "-p", "The cat"]).ok();
    let run = ["run", "--temp", "0", "-n", "4", "-p", "The cat", "-m"];
    for name in ["tiny/stories", "demo-f16", "demo-F16.gguf", "tiny/stories/demo-F16"] {
        assert_eq!(backstitch(&[&run[..], &[name], &models[..]].concat()).ok(), wanted, "{name}");
    }
    let error = backstitch(&[&run[..], &["large"], &models[..]].concat());
    assert!(error.error(1).contains("there is no model large"), "{}", error.stderr);
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = backstitch(&["completions", shell]).ok();
        assert!(
            ["doctor", "timeline", "chat-template", "convert"].iter().all(|word| script.contains(word)),
            "{shell}"
        );
    }
    let folder = TempDir::new().unwrap();
    backstitch(&["man", arg(folder.path())]).ok();
    let page = fs::read_to_string(folder.path().join("backstitch-state-trim.1")).unwrap();
    assert!(
        page.contains(".TH backstitch-state-trim 1") && page.contains("Roll a saved state back"),
        "{page}"
    );
    let page = fs::read_to_string(folder.path().join("backstitch-convert.1")).unwrap();
    assert!(page.contains("outtype") && page.contains("Hugging Face folder"), "{page}");
    assert!(folder.path().join("backstitch.1").exists() && folder.path().join("backstitch-chat.1").exists());
}

#[test]
fn the_doctor_tells_limits_and_what_to_expect() {
    let demo = repository("demo/demo.gguf");
    let told: serde_json::Value =
        serde_json::from_str(&backstitch(&["doctor", "-t", "1", "-m", arg(&demo), "--json"]).ok()).unwrap();
    assert!(told["memory_bandwidth"]["gb_per_s"].as_f64().unwrap() > 0.0, "{told}");
    let (read, rate) = (&told["a_token_reads"]["empty_bytes"], &told["generation"]["empty_per_s"]);
    let expected = told["memory_bandwidth"]["gb_per_s"].as_f64().unwrap() * 1e9 / read.as_f64().unwrap();
    assert!(rate.as_f64().unwrap() <= expected * 1.001, "{told}");
    assert!(told["context"]["bytes_per_token"].as_u64().unwrap() > 0, "{told}");
}

/// Runs the program on a terminal that `script` makes; nothing where there is no such tool.
#[cfg(target_os = "linux")]
fn on_a_terminal(line: &str, keys: &[u8]) -> Option<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut script = Command::new("script");
    script.args(["-qec", &line.replace("backstitch", env!("CARGO_BIN_EXE_backstitch")), "/dev/null"]);
    script.env("BACKSTITCH_CONFIG", "").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    std::thread::sleep(std::time::Duration::from_millis(700));
    stdin.write_all(keys).ok()?;
    let output = child.wait_with_output().ok()?;
    drop(stdin);
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
#[cfg(target_os = "linux")]
fn a_model_and_nothing_to_continue_opens_the_chat_on_a_terminal() {
    let demo = repository("demo/demo.gguf");
    let line = format!("backstitch run -m {} --temp 0 -n 4", arg(&demo));
    let Some(shown) = on_a_terminal(&line, b"The cat sat\r/exit\r") else { return };
    assert!(shown.contains("type a message, or /help"), "{shown}");
    assert!(shown.contains("generated 4 tokens at ") && shown.contains(" of memory"), "{shown}");
}
