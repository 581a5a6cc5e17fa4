//! Calls as grammars: as text over the demo model's vocabulary, and as control tokens.

use super::cases::Case;
use super::*;
use backstitch_models::grammar::{Compiler, Grammar};
use backstitch_models::vocab::{Vocab, VocabSource};
use backstitch_models::{Model, Token};

fn compiler() -> Result<Compiler, Box<dyn Error>> {
    Ok(Compiler::new(Model::from_bytes(backstitch_demo::GGUF)?.vocab())?)
}

/// Return the grammar of calls of one tool `f` with a schema.
fn of_schema(template: &str, schema: &str) -> Result<Grammar, Box<dyn Error>> {
    let tool = Value::map([("name", "f".into()), ("parameters", Value::from_json(schema)?)]);
    let lark = Format::of_template(template).grammar(&[tool], false, &|_| None);
    Ok(compiler()?.lark(&lark.ok_or("no grammar")?)?)
}

/// Texts of formats, and whether the grammar of a tool `f` with the schema allows them.
type Written = (&'static str, &'static str, bool);

const TAGS: &str = "<tool_call> <function= <parameter=";

fn check_schema(schema: &str, written: &[Written]) -> Result<(), Box<dyn Error>> {
    for (template, text, is_allowed) in written {
        assert_eq!(of_schema(template, schema)?.accepts(text), *is_allowed, "{schema}: {text}");
    }
    Ok(())
}

/// Formats with a case that only the parser takes: it knows other identifiers, other keys, and
/// parameters that nobody offered.
const ONLY_PARSED: [&str; 5] = ["llama-3", "minicpm-5", "minimax-m3", "mistral-small", "solar-open"];

/// Formats of cases without a trigger, whose calls nothing but their place tells from text.
const WITHOUT_TRIGGER: [&str; 3] = ["llama-3", "llama-3", "json"];

/// Return the calls of a case from the byte `at` on.
fn call_of(case: &Case, at: usize) -> &'static str {
    let ends = ["<|call|>", "<|eot|>", " Done.", "<|close|>message<|sep|>"];
    ends.iter().fold(&case.text[at..], |text, end| text.strip_suffix(end).unwrap_or(text))
}

#[test]
fn calls_in_every_format_match_their_grammar() -> Result<(), Box<dyn Error>> {
    let compiler = compiler()?;
    let mut without = Vec::new();
    for case in CASES {
        let format = Format::of_template(case.template);
        let grammar = compiler.lark(&format.grammar(&tools(), true, &|_| None).unwrap_or_default())?;
        let Some(at) = first_trigger(case.text, &format) else {
            without.push(case.format);
            continue;
        };
        let text = call_of(case, at);
        assert_eq!(grammar.accepts(text), !ONLY_PARSED.contains(&case.format), "{}: {text}", case.format);
    }
    assert_eq!(without, WITHOUT_TRIGGER);
    Ok(())
}

/// The first of the control tokens of a vocabulary, behind the usual ones.
pub const FIRST: u32 = 3;

/// Return a vocabulary of control tokens and all bytes.
pub fn with_control(control: &[&str]) -> Result<Vocab, Box<dyn Error>> {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let tokens: Vec<&str> =
        [&["<unk>", "<s>", "</s>"], control].concat().into_iter().chain(bytes.iter().map(|b| &**b)).collect();
    let kinds = [2].into_iter().chain(vec![3; 2 + control.len()]).chain([6; 256]).collect();
    let scores = vec![0.0; tokens.len()];
    Ok(Vocab::new(&VocabSource {
        model: "llama",
        tokens: &tokens,
        scores,
        types: kinds,
        ..VocabSource::default()
    })?)
}

/// Return the tokens of a text in such a vocabulary.
fn spelled(mut text: &str, control: &[&str]) -> Vec<Token> {
    let mut tokens = Vec::new();
    while let Some(c) = text.chars().next() {
        let begins = control.iter().enumerate().filter(|(_, token)| text.starts_with(**token));
        match begins.max_by_key(|(_, token)| token.len()) {
            Some((i, token)) => {
                tokens.push(Token(FIRST + i as u32));
                text = &text[token.len()..];
            }
            None => {
                let (first, n) = (FIRST + control.len() as u32, c.len_utf8());
                tokens.extend(text.bytes().take(n).map(|byte| Token(first + u32::from(byte))));
                text = &text[n..];
            }
        }
    }
    tokens
}

/// Tags are control tokens in this vocabulary.
#[test]
fn calls_of_control_tokens_match_their_grammar() -> Result<(), Box<dyn Error>> {
    let mut n = 0;
    for case in CASES {
        let format = Format::of_template(case.template);
        let Some(at) = first_trigger(case.text, &format) else { continue };
        n += 1;
        let is_tag = |marker: &&str| {
            marker.starts_with(['<', '[']) && marker.ends_with(['>', ']']) && !marker.contains(['\n', '｜'])
        };
        let mut control: Vec<&str> = format.markers().into_iter().filter(is_tag).collect();
        control.extend(["｜DSML｜", "<|begin|>"]);
        control.sort_unstable();
        control.dedup();
        let vocab = with_control(&control)?;
        let token = |text: &str| control.iter().position(|token| *token == text).map(|i| FIRST + i as u32);
        let lark = format.grammar(&tools(), true, &token).unwrap_or_default();
        let mut matcher = Compiler::new(&vocab)?.lark(&lark)?.matcher();
        let text = call_of(case, at);
        let is_allowed = spelled(text, &control).into_iter().all(|token| matcher.accept(token).is_ok());
        let is_allowed = is_allowed && matcher.is_accepting();
        assert_eq!(is_allowed, !ONLY_PARSED.contains(&case.format), "{}: {text}\n{lark}", case.format);
    }
    assert_eq!(n + WITHOUT_TRIGGER.len(), CASES.len());
    Ok(())
}

/// A tool of an application with many: some parameters are required, and few are alike.
fn tool(n: usize) -> Result<Value, Box<dyn Error>> {
    let schema = r#"{"properties": {"path": {"type": "string"}, "limit": {"type": "integer"},
        "mode": {"enum": ["one", "two"]}, "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": false},
        "force": {"type": "boolean"}}, "required": ["path", "limit", "mode", "tags"],
        "additionalProperties": false}"#;
    Ok(Value::map([
        ("name", format!("tool_{n}").as_str().into()),
        ("description", format!("Does the thing {n}.").as_str().into()),
        ("parameters", Value::from_json(schema)?),
    ]))
}

/// Schemas in a grammar, and rules that do not lead to each other, take no stack of the compiler.
#[test]
fn many_tools_fit_into_one_grammar() -> Result<(), Box<dyn Error>> {
    let compiler = compiler()?;
    let tags = "<tool_call>\n<function=tool_127>\n<parameter=mode>\ntwo\n</parameter>\n<parameter=path>\n/\n</parameter>\n\
                <parameter=limit>\n3\n</parameter>\n<parameter=to>\n{\"x\": 1}\n</parameter>\n<parameter=tags>\n[]\n\
                </parameter>\n</function>\n</tool_call>";
    let json = "<tool_call>\n{\"name\": \"tool_127\", \"arguments\": {\"path\": \"/\", \"limit\": 3, \"mode\": \"two\", \
                \"tags\": []}}\n</tool_call>";
    let many = (0..128).map(tool).collect::<Result<Vec<Value>, _>>()?;
    let any = Value::map([("type", "object".into())]);
    let bare = |n| Value::map([("name", format!("tool_{n}").as_str().into()), ("parameters", any.clone())]);
    let bare: Vec<Value> = (0..600).map(bare).collect();
    for (template, text) in [(TAGS, tags), ("<tool_call>{\"name\"", json)] {
        let format = Format::of_template(template);
        let grammar = |tools: &[Value]| -> Result<Grammar, Box<dyn Error>> {
            let lark = format.grammar(tools, true, &|_| None).ok_or("no grammar")?;
            Ok(compiler.lark(&lark)?)
        };
        let followed = grammar(&many)?;
        assert!(followed.accepts(text) && !followed.accepts(&text.replace("two", "six")), "{template}");
        assert!(grammar(&bare)?.accepts(&text.replace("two", "six")), "{template}");
    }
    for case in CASES
        .iter()
        .filter(|case| ["deepseek-v4", "deepseek-v4.1", "gemma-4", "harmony", "lfm2"].contains(&case.format))
    {
        let lark = Format::of_template(case.template).grammar(&many, true, &|_| None);
        assert!(compiler.lark(&lark.ok_or("no grammar")?).is_ok(), "{}", case.format);
    }
    Ok(())
}

/// A model may escape any character of a string in arguments.
#[test]
fn characters_of_arguments_may_be_escaped() -> Result<(), Box<dyn Error>> {
    let schema =
        r#"{"properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}}}"#;
    let call =
        r#"<tool_call>{"name": "f", "arguments": {"a": "caf\u00e9", "b": ["\uD83D\uDE00"]}}</tool_call>"#;
    let tags = "<tool_call><function=f><parameter=b>\n[\"caf\\u00e9\"]\n</parameter></function></tool_call>";
    check_schema(schema, &[("<tool_call>{\"name\"", call, true), (TAGS, tags, true)])
}

#[test]
fn open_schemas_take_any_parameters() -> Result<(), Box<dyn Error>> {
    let written = [
        (TAGS, "<function=f>\n<parameter=a>\nx <b>\n</parameter>\n</function>", true),
        (TAGS, "<tool_call>\n<function=f>\n</function>\n</tool_call>", true),
        (
            "<arg_key> <arg_value>",
            "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>",
            true,
        ),
        (
            "DSML tool_calls",
            "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"false\">[1]\
             </｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
            true,
        ),
        (
            "<|tool_call>call:",
            "<|tool_call>call:f{a:<|\"|>x<|\"|>,b:[1,{c:<|\"|>y<|\"|>}]}<tool_call|>",
            true,
        ),
        ("<|tool_call_start|>", "<|tool_call_start|>[f(a=\"x\", b=2)]<|tool_call_end|>", true),
        (
            "]<]minimax[>[ <invoke name=",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>x]<]minimax[>[</a>\
             ]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
            true,
        ),
    ];
    for schema in [r#"{"type":"object"}"#, r#"{"anyOf":[{"required":["a"]},{}]}"#] {
        check_schema(schema, &written)?;
    }
    let closed = written.map(|(template, text, _)| (template, text, text.contains(">\n</function>\n</tool")));
    check_schema(r#"{"type":"object","properties":{},"required":[]}"#, &closed)?;
    check_schema(r#"{"type":"object","properties":{},"$defs":{},"$id":"f","$comment":"c"}"#, &closed)?;
    check_schema(r#"{"type":"object","properties":{},"additionalProperties":false}"#, &closed)
}

/// A parameter that is forbidden is none, and no reason to forbid others.
#[test]
fn forbidden_parameters_are_in_no_call() -> Result<(), Box<dyn Error>> {
    let tags = |name: &str| format!("<function=f>\n<parameter={name}>\nx\n</parameter>\n</function>");
    let marked = |name: &str| format!("<|tool_call>call:f{{{name}:<|\"|>x<|\"|>}}<tool_call|>");
    let python = |name: &str| format!("<|tool_call_start|>[f({name}=\"x\")]<|tool_call_end|>");
    let forbidden = r#"{"type":"object","allOf":[{"type":"object","properties":{"a":false}}]}"#;
    let apart = r#"{"type":"object","anyOf":[{"required":["a"],"properties":{"a":false}},{"properties":{"a":false}}]}"#;
    for schema in [forbidden, apart] {
        for (template, text) in [
            (TAGS, &tags as &dyn Fn(&str) -> String),
            ("<|tool_call>call:", &marked),
            ("<|tool_call_start|>", &python),
        ] {
            let grammar = of_schema(template, schema)?;
            assert!(grammar.accepts(&text("b")), "{schema}: {}", text("b"));
            assert!(!grammar.accepts(&text("a")), "{schema}: {}", text("a"));
        }
    }
    Ok(())
}

/// Of a schema with too many alternatives only its own keywords hold.
#[test]
fn closed_schemas_stay_so_without_their_alternatives() -> Result<(), Box<dyn Error>> {
    let choice = r#"{"anyOf":[{"required":["a"]},{"required":["b"]},{"required":["a","b"]}]}"#;
    let many = [choice; 4].join(",");
    let schema = format!(
        r#"{{"type":"object","properties":{{"a":{{}},"b":{{}}}},"additionalProperties":false,"allOf":[{many}]}}"#
    );
    let grammar = of_schema(TAGS, &schema)?;
    for (name, is_allowed) in [("a", true), ("c", false)] {
        let text = format!("<function=f>\n<parameter={name}>\nx\n</parameter>\n</function>");
        assert_eq!(grammar.accepts(&text), is_allowed, "{text}");
    }
    Ok(())
}

#[test]
fn parameters_between_tags_come_in_any_order() -> Result<(), Box<dyn Error>> {
    let schema = r#"{"properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"integer"}},
        "required":["b","c"],"additionalProperties":false}"#;
    let call = |names: &str| {
        let one = |name| format!("<parameter={name}>\n1\n</parameter>\n");
        format!("<function=f>\n{}</function>", names.chars().map(one).collect::<String>())
    };
    let grammar = of_schema(TAGS, schema)?;
    for (names, is_allowed) in [("bc", true), ("cb", true), ("abc", true), ("cba", true), ("bac", true)]
        .into_iter()
        .chain([("b", false), ("a", false), ("", false), ("bcb", false), ("bcaa", false)])
    {
        assert_eq!(grammar.accepts(&call(names)), is_allowed, "{names}");
    }
    Ok(())
}

#[test]
fn gpt_oss_calls_behind_its_role_or_its_channel() -> Result<(), Box<dyn Error>> {
    let template = "<|channel|> <|message|>";
    let begins = [
        "<|channel|>commentary to=functions.time <|constrain|>json",
        "<|channel|>analysis to=functions.time",
        "<|start|>assistant to=functions.time<|channel|>commentary json",
        " to=functions.time<|channel|>analysis <|constrain|>json",
    ];
    let format = Format::of_template(template);
    let grammar = compiler()?.lark(&format.grammar(&tools(), true, &|_| None).unwrap_or_default())?;
    let options = Options::default().tools(&tools()).prompt("<|start|>assistant");
    let answer = compiler()?.lark(&format.answer_grammar(&options, &|_| None).unwrap_or_default())?;
    let thought = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant";
    for begin in begins {
        let text = format!("{begin}<|message|>{{}}");
        assert_eq!(first_trigger(&text, &format), Some(0), "{begin}");
        assert!(grammar.accepts(&text), "{begin}");
        assert!(answer.accepts(&text) && answer.accepts(&format!("{thought}{text}")), "{begin}");
        assert_eq!(parse(&text, &format, &options).tool_calls.len(), 1, "{begin}");
    }
    assert_eq!(first_trigger("Use to=functions.time", &format), None);
    Ok(())
}

#[test]
fn markers_that_stand_in_text_trigger_with_a_name() {
    let named = [
        (TAGS, "#include <functional>, <function=", "<function=time>"),
        (">>>all >>>${recipient}", ">>>all\n", ">>>time\n"),
        ("<atem:function_calls> <|eom|>", " to=user<|message|>", "to=time<|message|>"),
        ("functools[", "import functools", "functools["),
    ];
    for (template, text, trigger) in named {
        let format = Format::of_template(template);
        assert_eq!(first_trigger(text, &format), None, "{text}");
        assert_eq!(first_trigger(trigger, &format), Some(0), "{trigger}");
    }
}

#[test]
fn calls_may_have_their_optional_markers() -> Result<(), Box<dyn Error>> {
    let one = "<function=f>\n</function>";
    let section = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
    let json = "{\"name\": \"f\", \"parameters\": {}}";
    let tagged = format!("<|python_tag|>{json}");
    let tool = Value::map([("name", "f")].map(|(key, name)| (key, Value::from(name))));
    for (template, text) in [
        (TAGS, one.to_string()),
        (TAGS, format!("{section}\n{section}")),
        ("<|python_tag|>", json.to_string()),
        ("<|python_tag|>", tagged),
    ] {
        let lark = Format::of_template(template).grammar(core::slice::from_ref(&tool), true, &|_| None);
        assert!(compiler()?.lark(&lark.unwrap_or_default())?.accepts(&text), "{text}");
    }
    Ok(())
}

#[test]
fn gemmas_lists_and_objects_have_its_quotes() -> Result<(), Box<dyn Error>> {
    let schema = r#"{"properties":{"a":{"type":"array","items":{"type":"string"}},"o":{"type":"object",
        "properties":{"k":{"enum":["x","y"]},"n":{"type":"integer"}},"required":["k"],
        "additionalProperties":false}},"required":["a"],"additionalProperties":false}"#;
    let call = |inner: &str| format!("<|tool_call>call:f{{{inner}}}<tool_call|>").replace('~', "<|\"|>");
    let grammar = of_schema("<|tool_call>call:", schema)?;
    for (inner, is_allowed) in [
        ("a:[~x~,~y~]", true),
        ("a:[],o:{k:~y~,n:3}", true),
        ("a:[\"x\"]", false),
        ("a:[1]", false),
        ("a:[],o:{k:~z~}", false),
    ] {
        assert_eq!(grammar.accepts(&call(inner)), is_allowed, "{inner}");
    }
    Ok(())
}

#[test]
fn content_in_a_format_comes_behind_reasoning() -> Result<(), Box<dyn Error>> {
    let body = compiler()?.json_schema(r#"{"const":1}"#)?;
    let open = Options::default().prompt("<think>\n");
    let over = Options::default().prompt("<think>\n\n</think>\n\n");
    let think = Format::of_template("<think>");
    let channels = Format::of_template("<|channel|> <|message|>");
    let cases = [
        (think, &open, "Hm </think>\n\n1", true),
        (think, &open, "1", false),
        (think, &Options::default(), "1", true),
        (think, &Options::default(), "\n<think>Hm</think>1", true),
        (channels, &Options::default(), "<|channel|>final<|message|>1", true),
        (
            channels,
            &Options::default(),
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>1",
            true,
        ),
        (channels, &Options::default(), "1", false),
    ];
    for (format, options, text, is_allowed) in cases {
        let lark = format.content_grammar("@body", options, &|_| None).ok_or("no grammar")?;
        assert_eq!(body.within(&lark)?.accepts(text), is_allowed, "{text}");
    }
    assert_eq!(think.content_grammar("@body", &over, &|_| None), None);
    assert_eq!(Format::of_template("<tool_call>").content_grammar("@body", &open, &|_| None), None);
    Ok(())
}

#[test]
fn names_in_attributes_are_escaped() -> Result<(), Box<dyn Error>> {
    let template = "<|open|> <|close|> <|end_of_msg|>";
    let schema = r#"{"type":"object","properties":{"q&a":{"type":"string"},"&quot; \"hi\"":{"type":"string"}},
        "required":["q&a","&quot; \"hi\""],"additionalProperties":false}"#;
    let text = "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>\
        <|open|>argument key=\"q&amp;a\" type=\"string\"<|sep|>fish & chips<|close|>argument<|sep|>\
        <|open|>argument key=\"&amp;quot; &quot;hi&quot;\" type=\"string\"<|sep|>&amp;<|close|>argument<|sep|>\
        <|close|>call<|sep|><|close|>tools<|sep|>";
    check_schema(schema, &[(template, text, true), (template, "", false)])?;
    let tools = [Value::map([("name", "f".into()), ("parameters", Value::from_json(schema)?)])];
    let (format, options) = (Format::of_template(template), Options::default().tools(&tools));
    assert_eq!(format.unwritable_name(&tools), None);
    let wanted = r#"{"q&a":"fish & chips","&quot; \"hi\"":"&amp;"}"#;
    let calls = parse(text, &format, &options).tool_calls;
    assert_eq!(calls.iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(), [wanted]);
    let written = format.write_calls(&calls, &tools).ok_or("no text")?;
    assert_eq!(parse(&written, &format, &options).tool_calls, calls);
    Ok(())
}
