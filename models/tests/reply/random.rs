//! Random texts of the grammars of calls, read back: every text of a grammar is calls that match
//! their schemas, no part of it is more calls than it closes, and pieces of it say the same.
//!
//! `CALLS_TEXTS` sets the number of texts, and `CALLS_SEED` the first seed.

mod schemas;
mod walk;

use self::schemas::{Random, matches, random_tools, writable};
use self::walk::Walk;
use super::cases::CASES;
use super::grammars::with_control;
use super::parse_in_pieces;
use backstitch_models::chat::Value;
use backstitch_models::chat::reply::{Format, Options, Reply, ToolCall, parse};
use backstitch_models::grammar::Compiler;
use backstitch_models::vocab::Vocab;
use std::collections::BTreeMap;

/// The texts of a run in CI.
const N_TEXTS: usize = 6000;
/// The prefixes of a text that are read, about.
const N_PREFIXES: usize = 10;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A format with a vocabulary in which its markers are control tokens, or none are.
struct Subject {
    name: &'static str,
    format: Format,
    compiler: Compiler,
    control: Vec<String>,
}

impl Subject {
    /// Return all formats, each with and without control tokens.
    fn all() -> Vec<Subject> {
        let mut templates: Vec<(&str, &str)> =
            CASES.iter().map(|case| (case.format, case.template)).collect();
        templates.extend(WITHOUT_CASE);
        templates.sort_unstable();
        templates.dedup_by_key(|(format, _)| *format);
        let known: Vec<&str> = templates.iter().map(|(format, _)| *format).collect();
        for format in Format::all().filter_map(|format| format.name()) {
            assert!(known.contains(&format), "{format} has no case");
        }
        templates
            .iter()
            .flat_map(|(name, template)| [false, true].map(|has| Subject::new(name, template, has)))
            .collect()
    }

    fn new(name: &'static str, template: &str, has_control: bool) -> Self {
        let format = Format::of_template(template);
        assert_eq!(format.name(), Some(name));
        let is_tag = |marker: &&str| {
            has_control
                && marker.starts_with(['<', '['])
                && marker.ends_with(['>', ']'])
                && !marker.contains(['\n', '=', '"'])
        };
        let mut control: Vec<&str> = format.markers().into_iter().filter(is_tag).collect();
        control.sort_unstable();
        control.dedup();
        let vocab: Vocab = with_control(&control).unwrap();
        let control = control.into_iter().map(ToString::to_string).collect();
        Subject { name, format, compiler: Compiler::new(&vocab).unwrap(), control }
    }

    /// Return the identifier of a control token.
    fn token(&self, text: &str) -> Option<u32> {
        self.control.iter().position(|token| token == text).map(|i| super::grammars::FIRST + i as u32)
    }
}

/// Formats without a case of their own.
const WITHOUT_CASE: [(&str, &str); 7] = [
    ("apriel", "<tool_calls>"),
    ("command-r-plus", "<|CHATBOT_TOKEN|> Action: tool_name"),
    ("deepseek-v3.2", "DSML function_calls"),
    ("gigachat-3", "<|message_sep|> <|role_sep|>"),
    ("gigachat-3.1", "<|function_call|>"),
    ("hunyuan-3", "<arg_key{}> <tool_sep{}> :opensource"),
    ("json", "tools tojson"),
];

/// The faults that were found, by format and kind.
#[derive(Default)]
struct Faults(BTreeMap<(String, &'static str), (usize, String)>);

impl Faults {
    fn add(&mut self, subject: &Subject, kind: &'static str, example: impl FnOnce() -> String) {
        let entry = self.0.entry((subject.name.into(), kind)).or_insert_with(|| (0, example()));
        entry.0 += 1;
    }
}

/// Return true if each call matches the schema of its tool.
fn are_valid(reply: &Reply, tools: &[Value]) -> bool {
    reply.tool_calls.iter().all(|call| {
        let tool = tools.iter().find(|tool| tool.get("name").and_then(Value::as_str) == Some(&call.name));
        let arguments = Value::from_json(&call.arguments);
        let schema = tool.and_then(|tool| tool.get("parameters"));
        arguments.is_ok_and(|arguments| schema.is_none_or(|schema| matches(&arguments, schema)))
    })
}

/// Return the calls of a reply with their arguments as values.
fn values(calls: &[ToolCall]) -> Vec<(&str, Value)> {
    calls
        .iter()
        .map(|call| (call.name.as_str(), Value::from_json(&call.arguments).unwrap_or_default()))
        .collect()
}

/// Check a text of the grammar of these tools.
fn check(subject: &Subject, tools: &[Value], text: &str, random: &mut Random, faults: &mut Faults) {
    let options = Options::default().tools(tools);
    let whole = parse(text, &subject.format, &options);
    let example = |reply: &Reply, at: usize| format!("{tools:?}\n  text {text:?}\n  at {at}: {reply:?}");
    if whole.tool_calls.is_empty() || !whole.content.trim().is_empty() || whole.is_cut {
        faults.add(subject, "a text of the grammar is no call", || example(&whole, text.len()));
        return;
    }
    if !are_valid(&whole, tools) {
        faults.add(subject, "arguments do not match the schema", || example(&whole, text.len()));
    }
    let sizes = [random.below(7) + 1, random.below(30) + 1, random.below(3) + 1];
    if parse_in_pieces(text, &sizes, &subject.format, &options) != whole {
        faults.add(subject, "pieces say something else", || example(&whole, text.len()));
    }
    let wanted = values(&whole.tool_calls);
    if let Some(written) = subject.format.write_calls(&whole.tool_calls, tools) {
        let again = parse(&written, &subject.format, &options);
        if values(&again.tool_calls) != wanted {
            faults.add(subject, "calls are written as others", || {
                format!("{}\n  {written:?}", example(&again, 0))
            });
        }
    }
    let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    for _ in 0..N_PREFIXES.min(boundaries.len()) {
        let at = boundaries[random.below(boundaries.len())];
        let prefix = parse(&text[..at], &subject.format, &options);
        let found = values(&prefix.tool_calls);
        let is_begun = wanted.get(..found.len()) == Some(&found[..]);
        let closed = closed_calls(subject, &text[..at], whole.tool_calls.len());
        if !is_begun {
            faults.add(subject, "a prefix has another call", || example(&prefix, at));
        } else if found.len() > closed {
            faults.add(subject, "a prefix has a call that is not closed", || example(&prefix, at));
        }
        if parse_in_pieces(&text[..at], &sizes, &subject.format, &options) != prefix {
            faults.add(subject, "pieces of a prefix say something else", || example(&prefix, at));
        }
    }
}

/// The text that closes a call, for formats whose calls do not end with their JSON.
const ENDS: [(&str, &str); 28] = [
    ("apriel", "</tool_calls>"),
    ("command-r-plus", "```"),
    ("command-r7b", "<|END_ACTION|>"),
    ("deepseek-r1", "<｜tool▁call▁end｜>"),
    ("deepseek-v3.1", "<｜tool▁call▁end｜>"),
    ("deepseek-v3.2", "</｜DSML｜invoke>"),
    ("deepseek-v4", "</｜DSML｜invoke>"),
    ("deepseek-v4.1", "</｜DSML｜ invoke>"),
    ("functiongemma", "<end_function_call>"),
    ("functionary-v3.1", "</function>"),
    ("gemma-4", "<tool_call|>"),
    ("glm-4.5", "</tool_call>"),
    ("hermes", "</tool_call>"),
    ("hunyuan-3", "</tool_call:opensource>"),
    ("kimi-k2", "<|tool_call_end|>"),
    ("kimi-k3", "<|close|>call<|sep|>"),
    ("lfm2", "<|tool_call_end|>"),
    ("minicpm-5", "</function>"),
    ("minimax-m2", "</invoke>"),
    ("minimax-m3", "]<]minimax[>[</invoke>"),
    ("muse-glimmer", "</atem:function_calls>"),
    ("nemotron-nano-v2", "</TOOLCALL>"),
    ("olmo-3", ")"),
    ("phi-4-mini", "<|/tool_call|>"),
    ("qwen3-coder", "</function>"),
    ("seed-oss", "</function>"),
    ("solar-open", "<|tool_call:end|>"),
    ("functionary-v3.2", "}"),
];

/// Return the most calls that a prefix of a text may close: as many as it has ends of calls, or as
/// closing brackets where calls end with their JSON.
fn closed_calls(subject: &Subject, prefix: &str, n_calls: usize) -> usize {
    let end = ENDS.iter().find(|(name, _)| *name == subject.name).map_or("}", |(_, end)| end);
    match end {
        // Lists of calls close several at once.
        "</tool_calls>" | "</TOOLCALL>" | "<|/tool_call|>" | "<|END_ACTION|>" | "```"
        | "<|tool_call_end|>"
            if subject.name != "kimi-k2" =>
        {
            if prefix.contains(end) {
                n_calls
            } else {
                0
            }
        }
        end => prefix.matches(end).count(),
    }
}

/// Check this many texts, in all formats in turn.
fn check_texts(n_texts: usize) {
    let seed = setting("CALLS_SEED", 1);
    let (subjects, mut faults, mut n_done) = (Subject::all(), Faults::default(), 0);
    for i in 0.. {
        if n_done >= n_texts {
            break;
        }
        let subject = &subjects[i % subjects.len()];
        let mut random = Random::new((seed + i) as u64);
        let tools = writable(random_tools(&mut random), &subject.format);
        let lark = subject.format.grammar(&tools, random.below(3) == 0, &|text| subject.token(text)).unwrap();
        let grammar = match subject.compiler.lark(&lark) {
            Ok(grammar) => grammar,
            Err(error) => {
                n_done += 1;
                faults.add(subject, "the grammar is refused", || format!("{error}\n{tools:?}\n{lark}"));
                continue;
            }
        };
        for _ in 0..4 {
            n_done += 1;
            match (Walk { format: &subject.format, control: &subject.control }).text(&grammar, &mut random) {
                Ok((text, true)) => check(subject, &tools, &text, &mut random, &mut faults),
                // Open schemas need not end.
                Ok((_, false)) => n_done -= 1,
                Err(why) => faults.add(subject, "no text", || format!("{why}: {tools:?}\n{lark}")),
            }
        }
    }
    let n_faults: usize = faults.0.values().map(|(n, _)| n).sum();
    for ((format, kind), (n, example)) in &faults.0 {
        println!("{format}: {kind}, {n} times\n  {example}");
    }
    assert_eq!(n_faults, 0, "faults in {n_texts} texts from seed {seed} on");
}

#[test]
fn texts_of_grammars_are_calls() {
    check_texts(setting("CALLS_TEXTS", N_TEXTS));
}

#[test]
#[ignore = "takes minutes"]
fn twenty_thousand_texts_of_grammars_are_calls() {
    check_texts(setting("CALLS_TEXTS", 20_000));
}
