//! That options mean what their help says.

use super::*;
use clap::CommandFactory;

fn parse(words: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(expand(words.split_whitespace().map(OsString::from)))
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
    assert_eq!(args.context.n_ubatch, 16);
    assert_eq!(args.context.type_k, CacheType::F32);
    assert_eq!(args.context.type_v, CacheType::Bf16);
}

#[test]
fn guesses_come_from_one_source() {
    let args = run("-md small.gguf").speculation;
    assert_eq!(args.draft_model, Some("small.gguf".into()));
    assert!(run("--lookup --draft-max 3").speculation.lookup);
    assert!(parse("backstitch run --lookup --draft-model small.gguf").is_err());
}

#[test]
fn nothing_is_spelled_out_after_two_dashes() {
    let words = ["run", "-ub", "--", "-ub"].map(OsString::from);
    assert_eq!(expand(words), ["run", "--ubatch-size", "--", "-ub"]);
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
}

#[test]
fn timeline_defaults_are_those_of_the_library() {
    let Command::Timeline(args) = parse("backstitch timeline").unwrap().command else { unreachable!() };
    let library = backstitch_models::TimelineParams::default();
    assert_eq!((args.context.spacing, args.context.journal), (library.spacing, library.journal));
    assert_eq!(u64::from(args.context.checkpoint_mib) << 20, library.checkpoint_bytes);
}

#[test]
fn biases_are_a_token_and_a_signed_number() {
    assert_eq!(bias("15043+1"), Ok((15043, 1.0)));
    assert_eq!(bias("15043-1.5"), Ok((15043, -1.5)));
    assert_eq!(bias("2-inf"), Ok((2, f32::NEG_INFINITY)));
    for wrong in ["", "7", "+1", "a+1", "1+", "1+nan", "-1+1"] {
        assert!(bias(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn values_out_of_range_are_wrong_usage() {
    for wrong in
        ["--temp -1", "--temp nan", "--top-p 1.5", "-n -2", "-t x", "-ub 0", "--repeat-penalty 0", "-ctk q9"]
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
