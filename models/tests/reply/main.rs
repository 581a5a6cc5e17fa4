//! Replies of chat models in every format, whole and in pieces.
#![cfg(feature = "chat")]

mod cases;
#[cfg(feature = "grammar")]
mod grammars;
#[cfg(feature = "grammar")]
mod random;

use std::error::Error;

use self::cases::{CASES, OSLO};
use backstitch_models::chat::Value;
use backstitch_models::chat::reply::{
    Delta, Format, Options, Parser, ReasoningFormat, Reply, ToolCall, Trigger, parse,
};
use proptest::prelude::*;

/// Return the tools that all cases offer.
fn tools() -> Vec<Value> {
    let tools = r#"[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties":
        {"city": {"type": "string"}, "days": {"type": "integer"}}}}}, {"name": "time"}]"#;
    Value::from_json(tools).ok().and_then(|list| list.as_list().map(<[Value]>::to_vec)).unwrap_or_default()
}

/// Parse `text` in pieces that end behind these numbers of characters, in turn.
fn parse_in_pieces(text: &str, sizes: &[usize], format: &Format, options: &Options) -> Reply {
    let mut parser = Parser::new(format, options);
    let (mut deltas, mut reply, mut rest) = (Vec::new(), Reply::default(), text);
    for size in sizes.iter().cycle() {
        let end = rest.char_indices().nth(*size).map_or(rest.len(), |(i, _)| i);
        parser.push(&rest[..end], &mut deltas);
        rest = &rest[end..];
        if rest.is_empty() {
            break;
        }
    }
    parser.finish(&mut deltas);
    deltas.iter().for_each(|delta| reply.add(delta));
    reply
}

#[test]
fn every_format_is_recognised_and_parsed() {
    for case in CASES {
        let format = Format::of_template(case.template);
        assert_eq!(format.name(), Some(case.format));
        let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
            id: Some(id.to_string()).filter(|id| !id.is_empty()),
            name: name.to_string(),
            arguments: arguments.to_string(),
        };
        let wanted = Reply {
            content: case.content.into(),
            reasoning: case.reasoning.into(),
            tool_calls: case.calls.iter().map(call).collect(),
            is_cut: false,
        };
        let options = Options::default().tools(&tools());
        assert_eq!(parse(case.text, &format, &options), wanted, "{}", case.format);
        for size in 1..9 {
            assert_eq!(parse_in_pieces(case.text, &[size], &format, &options), wanted, "{}", case.format);
        }
    }
}

#[test]
fn without_tools_no_text_is_a_call() {
    for case in CASES {
        let reply = parse(case.text, &Format::of_template(case.template), &Options::default());
        assert!(reply.tool_calls.is_empty(), "{}", case.format);
        for (_, name, _) in case.calls {
            let shown = reply.content.contains(name) || reply.reasoning.contains(name);
            // The header of a message is no text; its body, the arguments, is.
            assert!(shown || case.format == "harmony" && reply.content == OSLO, "{}: {reply:?}", case.format);
        }
    }
}

#[test]
fn text_that_is_no_call_is_content() {
    let cases = [
        ("<tool_call>", "I write <tool_call> tags."),
        ("<tool_call>", "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>"),
        ("<tool_call>", "<tool_call>{\"name\": \"time\", \"argum"),
        ("<tool_call>", "<tool_call>[1]</tool_call> and <tool_ca"),
        ("<tool_call> <function= <parameter=", "<tool_call>\n<function=weather>\n<parameter=city>\nOs"),
        ("<tool_call> <function= <parameter=", "<function=nothing>\n</function>"),
        ("<|python_tag|>", "{\"answer\": 42}"),
        ("<|python_tag|>", "[a link](https://example.org)"),
        ("<|python_tag|>", "["),
        ("<|python_tag|>", "It is {\"name\": \"time\", \"parameters\": {}}"),
        ("[TOOL_CALLS]", "[TOOL_CALLS]"),
        ("<|tool_call_start|>", "<|tool_call_start|>[time(1)]<|tool_call_end|>"),
        ("<|channel|> <|message|>", "No channel."),
        ("", "Anything <tool_call> at all"),
    ];
    for (template, text) in cases {
        let format = Format::of_template(template);
        let options = Options::default().tools(&tools());
        for size in [1, 2, 1000] {
            let reply = parse_in_pieces(text, &[size], &format, &options);
            assert_eq!(reply.content, text, "{template}");
            assert!(reply.tool_calls.is_empty(), "{template}");
        }
    }
}

#[test]
fn a_call_with_a_fault_in_its_arguments_is_content() {
    let format = Format::of_template("<tool_call>");
    let text = "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": ]}}</tool_call>";
    let reply = parse(text, &format, &Options::default().tools(&tools()));
    assert_eq!((reply.tool_calls.len(), reply.is_cut), (0, true));
    assert_eq!(reply.content, text);
}

#[test]
fn gpt_oss_may_call_again_behind_a_call() {
    let format = Format::of_template("<|channel|> <|message|>");
    let text = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>\
                <|start|>assistant to=functions.time<|channel|>commentary json<|message|>{}<|call|>";
    let reply = parse(text, &format, &Options::default().tools(&tools()));
    let names: Vec<&str> = reply.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((names, reply.content.as_str()), (vec!["weather", "time"], ""));
}

#[test]
fn line_breaks_in_strings_become_escapes() -> Result<(), Box<dyn Error>> {
    let format = Format::of_template("<tool_call>");
    let text = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb\t\u{1}\"}}</tool_call>";
    let reply = parse(text, &format, &Options::default().tools(&tools()));
    assert_eq!(reply.tool_calls[0].arguments, r#"{"city": "a\nb\t\u0001"}"#);
    assert_eq!(Value::from_json(&reply.tool_calls[0].arguments)?.get("city"), Some(&"a\nb\t\u{1}".into()));
    Ok(())
}

#[test]
fn one_call_only_leaves_further_ones_in_the_content() {
    let format = Format::of_template("<tool_call>");
    let call = "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
    let options = Options::default().tools(&tools()).parallel(false);
    let reply = parse(&[call, call].concat(), &format, &options);
    assert_eq!((reply.tool_calls.len(), reply.content.as_str()), (1, call));
}

#[test]
fn markers_of_reasoning_mean_something_before_the_answer() {
    let cases = [
        ("<think>", "Use the `<think>` tag.", "Use the `<think>` tag.", ""),
        ("<think>", "\n<think>a</think>\nb", "b", "a"),
        ("<think>", " \n</think>b", "b", ""),
        ("<think>", " b", " b", ""),
        (
            "Here is my thought process:",
            "b Here is my thought process: c",
            "b Here is my thought process: c",
            "",
        ),
        ("<|inner_prefix|>", "<|inner_prefix|>a<|inner_suffix|>b", "b", "a"),
        ("<|channel>thought", "b<|channel>thought\na<channel|>c", "bc", "a"),
        (
            "<|tool_call|>",
            "<response>Write <response> or </response> tags.</response>\n",
            "Write <response> or </response> tags.\n",
            "",
        ),
        ("<|tool_call|>", "a <response></response>", "a <response>", ""),
    ];
    for (template, text, content, reasoning) in cases {
        let format = Format::of_template(template);
        for size in [1, 100] {
            let reply = parse_in_pieces(text, &[size], &format, &Options::default());
            assert_eq!((reply.content.as_str(), reply.reasoning.as_str()), (content, reasoning), "{text}");
        }
    }
}

#[test]
fn values_without_quotes_are_what_the_schema_says() {
    let schema = r#"{"name":"f","parameters":{"properties":{"t":{"type":"boolean"},"o":{"type":"object"},
        "n":{"allOf":[{"minLength":1},{"type":"string"}]},"s":{"type":"string"}}}}"#;
    let tool = Value::from_json(schema).unwrap_or_default();
    let options = Options::default().tools(&[tool]);
    let format = Format::of_template("<tool_call> <function= <parameter=");
    let one = |(name, value)| format!("<parameter={name}>\n{value}\n</parameter>\n");
    let values = [("t", "True"), ("o", "{'a': None}"), ("n", "12345"), ("s", "False")].map(one).concat();
    let reply = parse(&format!("<function=f>\n{values}</function>"), &format, &options);
    let wanted = r#"{"t":true,"o":{"a":null},"n":"12345","s":"False"}"#;
    assert_eq!(reply.tool_calls[0].arguments, wanted);
}

#[test]
fn control_tokens_within_markers_are_known() {
    let token = |text: &str| match text {
        "<|begin|>" => Some(1),
        "<|content|>" => Some(2),
        "｜DSML｜" => Some(3),
        "<|message_sep|>" => Some(4),
        "<|role_sep|>" => Some(5),
        _ => None,
    };
    let of = |template: &str| {
        let mut found = Format::of_template(template).marker_tokens(&token);
        found.sort_unstable();
        found.dedup();
        found
    };
    assert_eq!(of("<|tool_call:begin|> <|tool_call:args|>"), [1, 2]);
    assert_eq!(of("DSML tool_calls"), [3]);
    assert_eq!(of("<|message_sep|> <|role_sep|>"), [4, 5]);
    let format = Format::of_template("<|message_sep|> <|role_sep|>");
    let lark = format.grammar(&tools(), false, &token).unwrap_or_default();
    assert!(lark.contains(r#"<[4]> "\n\nfunction call" <[5]> SPACE? "#), "{lark}");
}

#[test]
fn names_and_values_of_clients_are_never_tokens() {
    let schema = r#"{"name":"f","parameters":{"properties":{"u":{"enum":["<a>","b"]}},"required":["u"]}}"#;
    let tool = Value::from_json(schema).unwrap_or_default();
    let format = Format::of_template("<tool_call> <function= <parameter=");
    let lark = format.grammar(&[tool], false, &|text| (text == "<a>").then_some(7)).unwrap_or_default();
    assert!(lark.contains(r#"("<a>" | "b")"#), "{lark}");
}

#[test]
fn reasoning_is_split_kept_or_both() {
    let format = Format::of_template("<think>");
    let text = "<think>\na\n</think>\n\nb";
    let parsed = |reasoning| {
        let reply = parse(text, &format, &Options::default().reasoning(reasoning));
        (reply.reasoning, reply.content)
    };
    assert_eq!(parsed(ReasoningFormat::Deepseek), ("a".into(), "b".into()));
    assert_eq!(parsed(ReasoningFormat::None), (String::new(), text.into()));
    assert_eq!(parsed(ReasoningFormat::DeepseekLegacy), ("a".into(), text.into()));
}

#[test]
fn a_prompt_may_end_within_reasoning() {
    let format = Format::of_template("<think>");
    let reply = |options: &Options| parse("a</think>b", &format, options);
    let split = Reply { content: "b".into(), reasoning: "a".into(), tool_calls: Vec::new(), is_cut: false };
    assert_eq!(reply(&Options::default().prompt("…<think>\n")), split);
    assert_eq!(reply(&Options::default().thinking_forced_open(true)), split);
    assert_eq!(reply(&Options::default().prompt("<think>\n\n</think>\n\n")).content, "a</think>b");
    let kept = Options::default().prompt("<think>\n").reasoning(ReasoningFormat::None);
    assert_eq!(reply(&kept).content, "<think>\na</think>b");
}

#[test]
fn a_prompt_may_end_with_the_marker_of_a_call() {
    let format = Format::of_template(">>>all >>>${recipient}");
    let options = Options::default().tools(&tools()).prompt("assistant\n\n>>>");
    for size in [1, 100] {
        let reply = |text| parse_in_pieces(text, &[size], &format, &options);
        assert_eq!(reply("all\nHello").content, "Hello");
        assert_eq!(reply("time\n{}").tool_calls[0].name, "time");
        assert_eq!(reply("nobody\nknows").content, "nobody\nknows");
    }
}

#[test]
fn arguments_are_passed_on_as_they_come() {
    let format = Format::of_template("<tool_call>");
    let mut parser = Parser::new(&format, &Options::default().tools(&tools()));
    let mut deltas = Vec::new();
    parser.push("<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Os", &mut deltas);
    let begin = Delta::ToolCallBegin { index: 0, id: None, name: "weather".into() };
    let piece = |text: &str| Delta::ToolCallArguments { index: 0, text: text.into() };
    assert_eq!(deltas, [begin, piece("{\"city\": \"Os")]);
    deltas.clear();
    parser.push("lo", &mut deltas);
    assert_eq!(deltas, [piece("lo")]);
    deltas.clear();
    parser.finish(&mut deltas); // the model was cut
    let text = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo";
    assert_eq!(deltas, [Delta::ToolCallsCut { n: 1 }, Delta::Content(text.into())]);
}

/// Return texts that are made of pieces of all cases, and so are often almost right.
fn almost_right() -> impl Strategy<Value = String> {
    let pieces: Vec<String> = CASES
        .iter()
        .flat_map(|case| case.text.split_inclusive(['>', '{', '"', '\n', ']', ',']))
        .chain(["\\", "}", "(", "'", "[", "<", "é", " ", "\n\n", "{\"name\": \"time\", \"arguments\": {}}"])
        .map(ToString::to_string)
        .collect();
    prop::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

/// Return texts that are a case with some characters taken out or doubled.
fn damaged(case: usize) -> impl Strategy<Value = String> {
    let text = CASES.get(case).map_or("", |case| case.text);
    prop::collection::vec((0..text.chars().count().max(1), any::<bool>()), 0..3).prop_map(move |faults| {
        let mut chars: Vec<char> = text.chars().collect();
        for (i, doubled) in faults {
            match chars.get(i).copied() {
                Some(c) if doubled => chars.insert(i, c),
                Some(_) => drop(chars.remove(i)),
                None => {}
            }
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn a_text_in_pieces_is_the_same_reply(
        text in almost_right(),
        case in 0..CASES.len(),
        sizes in prop::collection::vec(1..9_usize, 1..6),
        reasoning in 0..3,
        parallel in any::<bool>(),
        forced in any::<bool>(),
    ) {
        check(&text, case, &sizes, reasoning, parallel, forced)?;
    }

    #[test]
    fn a_damaged_text_in_pieces_is_the_same_reply(
        (case, text) in (0..CASES.len()).prop_flat_map(|case| (Just(case), damaged(case))),
        sizes in prop::collection::vec(1..9_usize, 1..6),
        parallel in any::<bool>(),
    ) {
        check(&text, case, &sizes, 1, parallel, false)?;
    }
}

#[test]
fn white_space_up_to_every_limit_is_the_same_reply_in_pieces() {
    let options = Options::default().tools(&tools());
    for case in CASES {
        let format = Format::of_template(case.template);
        for n in [64, 65, 66, 120, 125, 128, 129, 140, 250, 256, 257] {
            for (at, _) in case.text.match_indices(['>', '[', '{', '"', 'r']) {
                let (before, after) = case.text.split_at(at + 1);
                let text = format!("{before}{}{after}", " ".repeat(n));
                let whole = parse(&text, &format, &options);
                let pieces = parse_in_pieces(&text, &[1], &format, &options);
                assert_eq!(pieces, whole, "{}, {n} spaces behind {before:?}", case.format);
            }
        }
    }
}

/// The formats that drop markers around content.
const WITH_WRAPPERS: [&str; 8] = [
    "command-r7b",
    "functionary-v3.2",
    "gemma-4",
    "granite-3",
    "harmony",
    "kimi-k3",
    "muse-glimmer",
    "solar-open",
];

/// Check that a text is the same reply whole and in pieces, that names are those of tools, and that
/// nothing of it is lost where nothing is split off.
fn check(
    text: &str,
    case: usize,
    sizes: &[usize],
    reasoning: i32,
    parallel: bool,
    forced: bool,
) -> Result<(), TestCaseError> {
    let format = CASES.get(case).map(|case| Format::of_template(case.template));
    let format = format.unwrap_or_else(|| Format::of_template(""));
    let reasoning = match reasoning {
        0 => ReasoningFormat::None,
        1 => ReasoningFormat::Deepseek,
        _ => ReasoningFormat::DeepseekLegacy,
    };
    let options = Options::default().tools(&tools()).reasoning(reasoning).parallel(parallel);
    let options = options.thinking_forced_open(forced);
    let reply = parse(text, &format, &options);
    prop_assert_eq!(&parse_in_pieces(text, sizes, &format, &options), &reply, "{:?}", format);
    prop_assert!(reply.tool_calls.iter().all(|call| ["time", "weather"].contains(&call.name.as_str())));
    prop_assert!(parallel || reply.tool_calls.len() <= 1);
    if !WITH_WRAPPERS.contains(&format.name().unwrap_or("")) {
        let kept = parse(text, &format, &Options::default().reasoning(ReasoningFormat::None));
        prop_assert_eq!(&kept.content, text);
    }
    Ok(())
}

#[test]
fn every_format_describes_calls_as_a_grammar() {
    for case in CASES {
        let format = Format::of_template(case.template);
        assert_eq!(format.grammar(&[], true, &|_| None), None);
        assert_eq!(format.answer_grammar(&Options::default(), &|_| None), None);
        let grammar = format.grammar(&tools(), false, &|_| None).unwrap_or_default();
        let defined: Vec<&str> = grammar.lines().filter_map(|line| line.split([':', '[']).next()).collect();
        // Symbols stand between spaces, texts and schemas between quotes and braces.
        let used = grammar.split([' ', '(', ')', '?', '*', '\n']).filter(|symbol| {
            symbol.strip_prefix('r').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        });
        for symbol in used {
            assert!(defined.contains(&symbol), "{}: {symbol} in {grammar}", case.format);
        }
        assert!(grammar.starts_with("start: "), "{}", case.format);
        assert!(grammar.contains("weather") && grammar.contains("time"), "{}", case.format);
        let begins = first_trigger(case.text, &format).is_some();
        let is_bare = ["json", "llama-3"].contains(&case.format);
        assert!(begins || is_bare, "{}", case.format);
    }
}

#[test]
fn grammars_ask_for_tokens_and_allow_reasoning() {
    let format = Format::of_template("<think> <tool_call>");
    let token = |text: &str| match text {
        "<tool_call>" => Some(7),
        "</think>" => Some(9),
        _ => None,
    };
    let options = Options::default().tools(&tools()).parallel(false);
    let first = |text: &str| text.lines().next().map(ToString::to_string);
    let trigger = format.grammar(&tools(), false, &token).unwrap_or_default();
    assert!(trigger.contains("<[7]> SPACE? r0 SPACE? \"</tool_call>\""), "{trigger}");
    assert_eq!(first(&trigger).as_deref(), Some("start: r1"));
    let answer = format.answer_grammar(&options, &token).unwrap_or_default();
    assert_eq!(first(&answer).as_deref(), Some("start: (SPACE? \"<think>\" R2 <[9]> SPACE?)? r1"));
    let opened = format.answer_grammar(&options.prompt("<think>\n"), &token).unwrap_or_default();
    assert_eq!(first(&opened).as_deref(), Some("start: R2 <[9]> SPACE? r1"));
}

/// Return the offset of the first text in `text` from which on a grammar of calls applies.
fn first_trigger(text: &str, format: &Format) -> Option<usize> {
    let triggers = format.triggers(&tools());
    let found = triggers.iter().filter_map(|trigger| match trigger {
        Trigger::Anywhere(trigger) => text.find(trigger),
        Trigger::AtStart(trigger) => text.starts_with(trigger).then_some(0),
    });
    found.min()
}

/// Text that is repeated a thousand times is parsed in pieces of one character, for each format,
/// which takes forever if a parser reads text more than a bounded number of times.
#[test]
fn long_hostile_text_takes_linear_time() {
    let hostile = [
        "<tool_call>",
        "{\"name\": \"",
        "[",
        "\n",
        "<think>",
        "<function=weather>",
        "<parameter=",
        "[weather(a='",
        "<|channel|>",
        "]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<a>",
        "<arg_key>",
        "{\"weather\": {\"a\": [",
    ];
    let options = Options::default().tools(&tools());
    for case in CASES {
        let format = Format::of_template(case.template);
        for piece in hostile.iter().chain([&case.text]) {
            let text = format!("{}{}", case.text, piece.repeat(8_000 / piece.len()));
            parse_in_pieces(&text, &[1], &format, &options);
        }
    }
}
