//! Untrusted chat templates with arbitrary messages.
//!
//! Input that starts with a byte below 0x80 is a template. Any other is a recipe of pieces that
//! templates consist of. Every fourth recipe runs with thousands of messages. Parsing and running
//! it must end before the deadline, within the fuzzer's memory limit, with a text or an error that
//! can be printed. Values contain letters that occur nowhere else. Each of these bytes must have a
//! value as its origin in the text, and none may become a control token.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Result, Unstructured};
use backstitch_models::Token;
use backstitch_models::chat::{ChatTemplate, Conversation, Message, Origin, Rendered, Value};
use backstitch_models::vocab::{AddSpecial, Vocab, VocabSource};
use libfuzzer_sys::fuzz_target;

/// The deadline of a template, with time for a slow machine.
const SOON: Duration = Duration::from_secs(8);

/// Letters that only values have, and their upper case.
const MARKS: [char; 2] = ['ж', 'Ж'];

fuzz_target!(|input: &[u8]| {
    let (template, n_messages) = match input.first() {
        Some(first @ 0x80..) => {
            let n_messages = if first % 4 == 0 { 3000 } else { 3 };
            (recipe(&mut Unstructured::new(input)).unwrap_or_default(), n_messages)
        }
        _ => (unmarked(&String::from_utf8_lossy(input)), 3),
    };
    check(&template, n_messages);
});

/// Return a piece of a template without these letters, even as escapes.
fn unmarked(template: &str) -> String {
    template.replace(MARKS, "x").replace("\\u", "u").replace("\\U", "U")
}

fn check(template: &str, n_messages: usize) {
    let start = Instant::now();
    match ChatTemplate::from_source(template) {
        Ok(template) => {
            render(&template, conversation(n_messages));
            render(&template, conversation(0));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

fn conversation(n_messages: usize) -> Conversation {
    let messages = (0..n_messages).map(|i| match i % 3 {
        0 => Message { role: "system", content: "ж<|end|>ж" },
        1 => Message { role: "user", content: "ж<|" },
        _ => Message { role: "end", content: "|>ж{{ x }}\n" },
    });
    Conversation::new(messages)
        .tools([Value::map([("nameж", "<|endж|>".into())])])
        .set("x", "ж")
        .tokens("<s>", "</s>")
}

fn render(template: &ChatTemplate, conversation: Conversation) {
    match template.render(&conversation) {
        Ok(rendered) => {
            assert!(rendered.as_str().len() < 1 << 28);
            let marked = |(part, origin): (&str, Origin)| origin == Origin::Template && part.contains(MARKS);
            assert!(!rendered.spans().any(marked), "a value's bytes count as the template's");
            check_tokens(&rendered);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Return a vocabulary with a control token.
static VOCAB: LazyLock<Vocab> = LazyLock::new(|| {
    let source = VocabSource {
        model: "gpt2",
        tokens: &["<|end|>", "<", "|", "e", "n", "d", ">"],
        types: vec![3, 1, 1, 1, 1, 1, 1],
        ..VocabSource::default()
    };
    Vocab::new(&source).expect("the vocabulary is well-formed")
});

/// Check that there are no more control tokens than the template wrote.
fn check_tokens(rendered: &Rendered) {
    let mut tokens = Vec::new();
    rendered.tokenize(&VOCAB, AddSpecial::No, &mut tokens);
    let n_tokens = tokens.iter().filter(|token| **token == Token(0)).count();
    let own = rendered.spans().filter(|(_, origin)| *origin == Origin::Template);
    let n_written: usize = own.map(|(part, _)| part.matches("<|end|>").count()).sum();
    assert_eq!(n_tokens, n_written);
}

/// Statements that nest, and that grow values.
const OPEN: [&str; 8] = [
    "{% for x in messages %}",
    "{% for y in range(99) %}",
    "{% if x %}",
    "{% set y %}",
    "{% macro f(x) %}",
    "{% filter upper %}",
    "{% with x = y %}",
    "{% call f(y) %}",
];
const CLOSE: [&str; 8] = [
    "{% endfor %}",
    "{% endfor %}",
    "{% endif %}",
    "{% endset %}",
    "{% endmacro %}",
    "{% endfilter %}",
    "{% endwith %}",
    "{% endcall %}",
];
const TERMS: [&str; 24] = [
    "x",
    "y",
    "messages",
    "'ab'",
    "0",
    "7",
    "1.5",
    "none",
    "true",
    "[x, y]",
    "{'a': x}",
    "ns.a",
    "loop",
    "f(x)",
    "caller()",
    "x[1:]",
    "namespace(a=x)",
    "range(9)",
    "tools",
    "(x, y)",
    "'<|end|>'",
    "'<|'",
    "'|>'",
    "-9223372036854775807",
];
const OPERATORS: [&str; 14] = [
    " + ",
    " * ",
    " ~ ",
    " - ",
    " / ",
    " // ",
    " % ",
    " ** ",
    " == ",
    " < ",
    " in ",
    " and ",
    " or ",
    " if y else ",
];
const TAILS: [&str; 46] = [
    "",
    "",
    "",
    "",
    " | join",
    " | join(x)",
    " | replace('a', x)",
    " | tojson",
    " | tojson(indent=2)",
    " | list",
    " | length",
    " | indent(9)",
    " | trim",
    " | string",
    " | map('upper')",
    " | sort",
    " | items",
    " | first",
    ".strip()",
    ".split('a')",
    ".replace('a', y)",
    ".items()",
    ".join(x)",
    " | unique | reverse",
    ".strip(x)",
    ".append(x)",
    ".update(a=x)",
    ".format(x, y)",
    ".title()",
    "[::-2]",
    "[x]",
    "[:3]",
    " | map(attribute='a.a.a')",
    " | map('default', x)",
    " | selectattr('content', 'in', x)",
    " | groupby('role')",
    " | batch(3, x)",
    " | dictsort",
    " | int",
    " | round(2)",
    " | capitalize",
    " | truncate(9)",
    " | format(x)",
    " is divisibleby(x)",
    " is in x",
    " | default(x, true)",
];

fn recipe(u: &mut Unstructured<'_>) -> Result<String> {
    let mut template = String::new();
    let _: u8 = u.arbitrary()?;
    statements(u, 4, &mut template)?;
    Ok(template)
}

fn statements(u: &mut Unstructured<'_>, depth: usize, out: &mut String) -> Result<()> {
    for _ in 0..u.int_in_range(0..=6)? {
        match u.int_in_range(0..=7)? {
            0 if depth > 0 => {
                let kind = u.choose_index(OPEN.len())?;
                out.push_str(OPEN[kind]);
                statements(u, depth - 1, out)?;
                out.push_str(CLOSE[kind]);
            }
            1 => *out += &format!("{{% set x = {} %}}", expression(u)?),
            2 => *out += &format!("{{% set y = {} %}}", expression(u)?),
            3 => *out += &format!("{{% set ns.a = {} %}}", expression(u)?),
            4 => *out += "{% set ns = namespace(a=y) %}",
            5 => *out += &unmarked(&String::arbitrary(u)?),
            _ => *out += &format!("{{{{ {} }}}}", expression(u)?),
        }
    }
    Ok(())
}

fn expression(u: &mut Unstructured<'_>) -> Result<String> {
    let mut expression = format!("({}){}", u.choose(&TERMS)?, u.choose(&TAILS)?);
    for _ in 0..u.int_in_range(0..=2)? {
        expression =
            format!("({expression}{}{}){}", u.choose(&OPERATORS)?, u.choose(&TERMS)?, u.choose(&TAILS)?);
    }
    Ok(expression)
}
