//! Tests that options mean what their help says.

use super::run::RunArgs;
use super::*;
use clap::CommandFactory;
use std::ffi::OsString;

fn words(words: &str) -> impl Iterator<Item = OsString> {
    words.split_whitespace().map(OsString::from)
}

fn parse(text: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(expand(words(text), &no_variable).unwrap().words)
}

/// An environment without variables.
fn no_variable(_: &str) -> Option<OsString> {
    None
}

/// The error about an option that is refused.
fn refusal(text: &str) -> String {
    expand(words(text), &no_variable).expect_err(text)
}

fn run(words: &str) -> RunArgs {
    match parse(&format!("backstitch run {words}")).unwrap().command {
        Command::Run(args) => args,
        _ => unreachable!(),
    }
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn short_options_of_several_letters_work() {
    let args = run("-ub 16 -ctk f32 -ctv=bf16");
    assert_eq!(args.context.evaluation.n_ubatch, 16);
    assert_eq!(args.context.evaluation.type_k, CacheType::F32);
    assert_eq!(args.context.evaluation.type_v, CacheType::Bf16);
}

#[test]
fn draft_tokens_come_from_one_source() {
    let args = run("-md small.gguf").speculation;
    assert_eq!(args.draft_model, Some("small.gguf".into()));
    assert!(run("--lookup --draft-max 3").speculation.lookup);
    assert!(parse("backstitch run --lookup --draft-model small.gguf").is_err());
}

#[test]
fn nothing_is_spelled_out_after_two_dashes() {
    let done = expand(words("backstitch run -ub 4 -- -ub -hf"), &no_variable).unwrap();
    assert_eq!(done.words, ["backstitch", "run", "--ubatch-size", "4", "--", "-ub", "-hf"]);
}

#[test]
fn the_value_of_an_option_is_no_option() {
    let words = |text: &str| expand(words(text), &no_variable).unwrap().words;
    for value in ["--config", "--config=none.toml", "--restore"] {
        assert_eq!(run(&format!("-p {value}")).input.prompt.as_deref(), Some(value));
    }
    assert_eq!(words("backstitch run -p --config -n 2"), ["backstitch", "run", "-p", "--config", "-n", "2"]);
    assert_eq!(words("backstitch run -- --config none.toml")[2..], ["--", "--config", "none.toml"]);
    assert!(refusal("backstitch run --config").contains("needs the name of a file"));
    assert!(refusal("backstitch run -p a --config none.toml").starts_with("none.toml: "));
    // A prompt that looks like --restore excludes no default of the prompt cache.
    let variable = |name: &str| (name == "BACKSTITCH_PROMPT_CACHE").then(|| "folder".into());
    let kept = |text: &str| expand(super::tests::words(text), &variable).unwrap().words.len();
    assert_eq!((kept("backstitch run -p --restore"), kept("backstitch run --restore a")), (6, 4));
}

#[test]
fn a_typed_argument_excludes_defaults_that_it_conflicts_with() {
    let variable = |name: &str| match name {
        "BACKSTITCH_MODEL" => Some("a.gguf".into()),
        "BACKSTITCH_FILE" => Some("a.txt".into()),
        _ => None,
    };
    let expanded = |text: &str| expand(words(text), &variable).unwrap().words;
    let model = ["backstitch", "inspect", "--model", "a.gguf", "--json"];
    assert_eq!(expanded("backstitch inspect --json"), model);
    for line in ["backstitch inspect b.gguf", "backstitch inspect -- b.gguf"] {
        assert_eq!(expanded(line), words(line).collect::<Vec<_>>());
        assert!(Cli::try_parse_from(expanded(line)).is_ok(), "{line}");
    }
    // The model does not conflict with the text, the file of texts does.
    assert!(!expanded("backstitch embed text").contains(&"a.txt".into()));
    assert!(expanded("backstitch embed text").contains(&"a.gguf".into()));
    for line in ["backstitch embed", "backstitch embed --control-vector-layer-range 1 5"] {
        assert!(expanded(line).contains(&"a.txt".into()), "{line}");
    }
}

#[test]
fn a_configuration_file_may_be_named_before_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let (a, b) = (write("a.toml", "threads = 4"), write("b.toml", "threads = 5"));
    let expanded =
        |line: &[&str]| expand(line.iter().map(OsString::from), &no_variable).map(|done| done.words);
    let wanted = |threads: &str| ["backstitch", "run", "--threads", threads, "-p", "hi"].map(OsString::from);
    let before = format!("--config={a}");
    assert_eq!(expanded(&["backstitch", "--config", &a, "run", "-p", "hi"]).unwrap(), wanted("4"));
    assert_eq!(expanded(&["backstitch", &before, "run", "-p", "hi"]).unwrap(), wanted("4"));
    // The last one counts.
    let both = ["backstitch", &before, "run", "--config", &b, "-p", "hi"];
    assert_eq!(expanded(&both).unwrap(), wanted("5"));
    assert!(expanded(&["backstitch", "--config"]).unwrap_err().contains("needs the name of a file"));
    let missing = expanded(&["backstitch", "state", "--config", "none.toml", "inspect", "a.bst"]);
    assert!(missing.unwrap_err().starts_with("none.toml: "));
    assert!(
        expanded(&["backstitch", "--config", &a, "-p", "hi"]).unwrap_err().contains("must follow a command")
    );
}

#[test]
fn sampling_defaults_are_those_of_the_library() {
    let args = run("").sampling;
    let library = backstitch_models::sampler::Settings::default();
    assert_eq!(args.temp, library.temp);
    assert_eq!(args.top_k as usize, library.top_k);
    assert_eq!(args.top_p, library.top_p);
    assert_eq!(args.min_p, library.min_p);
    assert_eq!(args.typical_p, library.typical_p);
    assert_eq!(args.repeat_last_n as usize, library.repeat_last_n);
    assert_eq!(args.repeat_penalty, library.repeat_penalty);
    assert_eq!(args.presence_penalty, library.presence_penalty);
    assert_eq!(args.frequency_penalty, library.frequency_penalty);
    assert_eq!(args.top_n_sigma, library.top_n_sigma);
    assert_eq!(args.xtc_probability, library.xtc_probability);
    assert_eq!(args.xtc_threshold, library.xtc_threshold);
    assert_eq!(args.dynatemp_range, library.dynamic_temp_range);
    assert_eq!(args.dynatemp_exp, library.dynamic_temp_exponent);
    assert_eq!((args.mirostat == 0, args.samplers.is_none()), (library.mirostat.is_none(), true));
    assert_eq!(args.mirostat_ent, library.mirostat_tau);
    assert_eq!(args.mirostat_lr, library.mirostat_eta);
    assert_eq!(args.adaptive_target, library.adaptive_target);
    assert_eq!(args.adaptive_decay, library.adaptive_decay);
    assert!(args.generator.is_none());
    assert_eq!(args.order(), library.order);
    assert_eq!(args.dry_multiplier, library.dry.multiplier);
    assert_eq!(args.dry_base, library.dry.base);
    assert_eq!(args.dry_allowed_length as usize, library.dry.allowed_length);
}

#[test]
fn an_order_of_samplers_comes_by_names_or_letters() {
    use backstitch_models::sampler::Kind;
    let order = |words: &str| run(words).sampling.order();
    assert_eq!(order("--samplers top-k;temperature"), [Kind::TopK, Kind::Temperature]);
    assert_eq!(order("--sampling-seq kt"), [Kind::TopK, Kind::Temperature]);
    assert_eq!(order("--samplers top_k --sampler-seq pt"), [Kind::TopP, Kind::Temperature]);
    assert_eq!(order("--adaptive-target 0.4").last(), Some(&Kind::AdaptiveP));
    assert_eq!(order("--adaptive-target 0.4 --sampler-seq k"), [Kind::TopK]);
    let wrong = |words: &str| parse(&format!("backstitch run {words}")).expect_err(words).to_string();
    assert!(wrong("--samplers top_k;best").contains("no sampler is named best"));
    assert!(wrong("--sampler-seq kq").contains("no sampler has the letter q"));
}

#[test]
fn timeline_defaults_are_those_of_the_library() {
    let Command::Timeline(args) = parse("backstitch timeline").unwrap().command else { unreachable!() };
    let library = backstitch_models::RollbackParams::default();
    assert_eq!(
        (args.context.evaluation.spacing, args.context.evaluation.journal),
        (library.spacing, library.journal)
    );
    assert_eq!(args.context.evaluation.checkpoint_mib, None);
}

#[test]
fn values_out_of_range_are_wrong_usage() {
    for wrong in
        ["--temp -1", "--temp nan", "--top-p 1.5", "-n -3", "-t x", "-ub 0", "--repeat-penalty 0", "-ctk q9"]
    {
        let error = parse(&format!("backstitch run {wrong}")).expect_err(wrong);
        assert_eq!(error.exit_code(), 2, "{wrong}");
    }
}

#[test]
fn minus_one_needs_no_equals_sign() {
    let args = run("-n -1 -s -1 --repeat-last-n -1");
    assert_eq!((args.n_predict, args.sampling.seed, args.sampling.repeat_last_n), (-1, -1, -1));
}

#[test]
fn what_llama_cpp_takes_below_zero_is_all_or_off() {
    let args = run("-t -1 --top-k -1 -n -2");
    assert_eq!((args.context.n_threads, args.sampling.top_k, args.n_predict), (Some(0), 0, -2));
    assert_eq!(run("-n-1 -t4").context.n_threads, Some(4));
}

#[test]
fn the_last_of_several_counts() {
    let args = run("-n 1 -t 2 --temp 0 -n 2 -t 3 --temp 1 --ignore-eos --ignore-eos -p a -p b");
    assert_eq!((args.n_predict, args.context.n_threads, args.sampling.temp), (2, Some(3), 1.0));
    assert_eq!(args.input.prompt.as_deref(), Some("b"));
    assert_eq!(run("-l 1+1 --logit-bias 2+1").sampling.logit_bias.len(), 2);
}

#[test]
fn texts_may_begin_with_a_dash() {
    assert_eq!(run("-p -hf").input.prompt.as_deref(), Some("-hf"));
    assert_eq!(run("--prompt -1").input.prompt.as_deref(), Some("-1"));
}

#[test]
fn options_of_llama_cpp_that_change_nothing_are_noted() {
    let line = "backstitch run -ngl 99 -fa -fa on --flash-attn=auto -no-cnv --mlock --keep -1 --numa distribute \
                --color -n 3 -tb 4";
    let done = expand(words(line), &no_variable).unwrap();
    assert_eq!(done.words, ["backstitch", "run", "-n", "3"]);
    let names =
        ["-ngl", "-fa", "-fa", "--flash-attn", "-no-cnv", "--mlock", "--keep", "--numa", "--color", "-tb"];
    assert_eq!(done.notes.len(), names.len(), "{:?}", done.notes);
    for (note, name) in done.notes.iter().zip(names) {
        assert!(note.starts_with(&format!("{name} is ignored: ")), "{note}");
    }
}

#[test]
fn options_of_llama_cpp_that_cannot_be_had_are_refused_with_a_way_out() {
    let cases = [
        ("run -hf x/y", "-hf: nothing is downloaded", "-m FILE"),
        ("run -cnv", "-cnv: ", "backstitch chat"),
        ("chat -no-cnv", "-no-cnv: ", "backstitch run"),
        ("run -sys hello", "-sys: ", "backstitch chat"),
        ("chat -f a.txt", "-f: ", "< FILE"),
        ("run --rope-freq-base 10000", "--rope-freq-base: ", "model file"),
        ("run -j {}", "-j: ", "--logit-bias"),
    ];
    for (line, beginning, way_out) in cases {
        let refused = refusal(&format!("backstitch {line}"));
        assert!(refused.contains(beginning), "{refused}");
        assert!(refused.contains(way_out), "{refused}");
    }
}

#[test]
fn an_unknown_option_names_the_nearest() {
    let cases = [
        ("run --tempo 1", "--temp;"),
        ("run --gpu-layer 9", "--gpu-layers of llama.cpp;"),
        ("run -ngk 9", "-ngl of llama.cpp;"),
        ("run -ctx 9", "--ctx-size;"),
        ("run --threads-batc 9", "--threads;"),
        ("run -ctkk f32", "-ctk;"),
        ("state trim a --too 1", "--to;"),
        ("run -mmodel.gguf", "--model;"),
    ];
    for (line, nearest) in cases {
        let refused = refusal(&format!("backstitch {line}"));
        assert!(refused.contains(&format!("the nearest is {nearest}")), "{refused}");
    }
    assert!(refusal("backstitch -m model.gguf").contains("`backstitch run -m …`"));
}

#[test]
fn options_of_llama_cpp_have_names_of_their_own() {
    let mut root = Cli::command();
    root.build();
    let run = root.find_subcommand("run").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for flag in llama::FLAGS.iter().filter(|flag| !flag.is_about_some()) {
        for name in flag.names {
            assert!(name.starts_with('-') && seen.insert(*name), "{name} stands there twice");
            let long = name.strip_prefix("--");
            assert!(
                long.is_none_or(|long| run.get_arguments().all(|arg| arg.get_long() != Some(long))),
                "{name}"
            );
        }
    }
}

/// The help texts of a command and of all commands below it, on a terminal of that width.
fn helps(command: &clap::Command, n_columns: usize) -> Vec<String> {
    let own = command.clone().term_width(n_columns).render_long_help().to_string();
    let below = command.get_subcommands().flat_map(|command| helps(command, n_columns));
    std::iter::once(own).chain(below).collect()
}

#[test]
fn help_fits_80_columns_and_40() {
    let mut root = Cli::command();
    root.build();
    for n_columns in [80, 40] {
        let helps = helps(&root, n_columns);
        assert!(helps.len() > 20);
        for line in helps.iter().flat_map(|help| help.lines()) {
            // Words are not broken, and clap keeps usage on one line, and an option with the names
            // of its values.
            let is_kept = line.contains("Usage:") || line.trim_start().starts_with("--");
            let may_stand_out = line.trim().split(' ').count() == 1 || (n_columns < 80 && is_kept);
            assert!(line.chars().count() <= n_columns || may_stand_out, "{n_columns}: {line:?}");
        }
    }
}

#[test]
fn examples_stand_as_they_were_written_on_80_columns() {
    fn check(command: &clap::Command) {
        // clap's own command, which repeats the names of the others.
        if command.get_name() == "help" {
            return;
        }
        let help = command.clone().term_width(80).render_long_help().to_string();
        let written = command.get_after_help().expect("every command has examples").to_string();
        assert!(help.contains(&written), "{}: a line is wrapped: {help}", command.get_name());
        command.get_subcommands().for_each(check);
    }
    let mut root = Cli::command();
    root.build();
    check(&root);
}

#[test]
fn wrong_usage_is_one_line_that_says_where_to_look() {
    let cases = [
        ("run --temp hot", "invalid value 'hot' for '--temp <X>': ", "; try `backstitch run --help`"),
        ("run -ctk q9", "[possible values: f32, f16, bf16, q8_0, q4_0]", "; try `backstitch run --help`"),
        (
            "state trim a.bst",
            "not provided: --to <POS> --output <FILE>",
            "; try `backstitch state trim --help`",
        ),
        ("sing", "unrecognized subcommand 'sing'", "; try `backstitch --help`"),
    ];
    for (line, told, end) in cases {
        let expanded = expand(words(&format!("backstitch {line}")), &no_variable).unwrap();
        let error = Cli::try_parse_from(expanded.words).expect_err(line);
        let text = usage_line(&error, &expanded.command);
        assert!(text.contains(told) && text.ends_with(end) && !text.contains('\n'), "{text}");
        assert!(!text.contains("Usage:") && !text.starts_with("error"), "{text}");
    }
}
