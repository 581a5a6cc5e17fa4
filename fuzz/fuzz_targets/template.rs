//! Chat templates of strangers, and any messages.
//!
//! Input that starts with a byte below 0x80 is a template; any other is a recipe of pieces that templates are made of.
//! Whatever it is, reading and running it must end within the fuzzer's limits of time and memory, with a text or an error that
//! can be printed.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use backstitch_models::chat::{ChatTemplate, GenerationPrompt, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let template = match input.first() {
        Some(0x80..) => recipe(&mut Unstructured::new(input)).unwrap_or_default(),
        _ => String::from_utf8_lossy(input).into_owned(),
    };
    check(&template);
});

fn check(template: &str) {
    let messages = [
        Message { role: "system", content: "Be kind." },
        Message { role: "user", content: " <|im_end|> {{ x }} \n" },
        Message { role: "assistant", content: "é" },
    ];
    let template = match ChatTemplate::from_source(template) {
        Ok(template) => template,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for messages in [&messages[..], &[]] {
        match template.render(messages, GenerationPrompt::Yes, "<s>", "</s>") {
            Ok(text) => assert!(text.len() < 1 << 25),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Statements that nest and that grow things.
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
const TERMS: [&str; 18] = [
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
const TAILS: [&str; 24] = [
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
            5 => *out += &String::arbitrary(u)?,
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
