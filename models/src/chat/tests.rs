//! The semantics of templates. `tests/chat.rs` of the crate has more, with Jinja's own answers.

mod hostile;

use alloc::string::String;

use super::*;

const TALK: [Message<'_>; 2] =
    [Message { role: "user", content: " Hi\n" }, Message { role: "assistant", content: "Hello!" }];

fn render(source: &str) -> Result<String, ChatError> {
    let conversation = Conversation::new(TALK).tokens("<s>", "</s>");
    ChatTemplate::from_source(source)?.render(&conversation).map(String::from)
}

#[test]
fn templates_see_messages_tokens_and_the_prompt() {
    let cases = [
        (
            "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}|{{ m.content }}]{% endfor %}",
            "<s>[user| Hi\n][assistant|Hello!]",
        ),
        ("{% if add_generation_prompt %}go{% endif %}{{ eos_token }}", "go</s>"),
        (
            "{% for m in messages %}\n  {% if loop.last %}\n{{ loop.index }}\n  {% endif %}\n{% endfor %}\n",
            "2\n",
        ),
        (
            "{{ messages | length }}{{ messages[-1].content }}{{ tools is defined }}{{ tools is none }}",
            "2Hello!TrueTrue",
        ),
    ];
    for (source, wanted) in cases {
        assert_eq!(render(source).as_deref(), Ok(wanted), "{source}");
    }
}

#[test]
fn templates_in_the_wild_find_what_they_call() {
    let cases = [
        ("{{ messages[0].content.strip() + '|' + messages[0]['content'] | trim }}", "Hi|Hi"),
        ("{{ 'a,b,c'.split(',')[-1] ~ 'xyx'.replace('x', 'zz') ~ ', '.join(['p', 'q']) }}", "czzyzzp, q"),
        (
            "{{ 'abc'.startswith('ab') and not 'abc'.endswith('ab') }}{{ 'Abc'.upper() }}{{ 'a b'.title() }}",
            "TrueABCA B",
        ),
        ("{% for k, v in {'b': 1, 'a': [2]}.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[2];"),
        (
            "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 2 %}{% set ns.s = ns.s + m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}",
            "4ua",
        ),
        (
            "{% macro f(x, y=3) %}<{{ x * y }}>{% endmacro %}{{ f(2) }}{{ f('ab', y=2) }}{{ f([1], 2) | length }}",
            "<6><abab>8",
        ),
        (
            "{% for x in range(5) %}{% if x == 3 %}{% break %}{% endif %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
            "02",
        ),
        (
            "{% for x in range(5) %}{{ x }}{% for y in [] %}{% else %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{% endfor %},{% endfor %}",
            "0,12,3",
        ),
        (
            "{% set x %}a{{ 1 + 2.5 }}{% endset %}{{ x * 2 }}{{ (['a'] + ['b']) | join('-') }}{{ 'n: %s' }}",
            "a3.5a3.5a-bn: %s",
        ),
        (
            "{{ {'b': 'é\"\n', 'a': [1, true, none, 1.5]} | tojson }}",
            r#"{"b": "é\"\n", "a": [1, true, null, 1.5]}"#,
        ),
        ("{{ [{'a': []}] | tojson(indent=2) }}", "[\n  {\n    \"a\": []\n  }\n]"),
        ("{{ 'a\nb\n\nc' | indent(2) }}|{{ 'x' | indent(width=1, first=true) }}", "a\n  b\n\n  c| x"),
        (
            r"{{ 'a\r\nb\r' | indent(1) }}|{{ 'a\x0cb\n' | indent(1, true, true) }}|{{ '' | indent(1, true) }}",
            "a\n b| a\n b\n | ",
        ),
        ("{% generation %}a{% endgeneration %}{%- generation -%} b {%- endgeneration -%} c", "abc"),
        (
            "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
            "[' Hi\\n']",
        ),
        (
            "{{ messages[1:] | length }}{{ messages[0].get('name', 'none') }}{{ 'x' if messages[0].name else 'y' }}",
            "1noney",
        ),
        (
            "{% for m in messages recursive %}{{ m.role }}{% endfor %}{% filter upper %}abc{% endfilter %}",
            "userassistantABC",
        ),
        ("{% block b %}in{% endblock %}{% for m in [] %}{% else %}none{% endfor %}", "innone"),
        ("{{ 3 * 4 - 2 ** 3 // 2 + 7 % 4 }}{{ true + 1 }}{{ 'a' ~ 1 ~ none }}{{ 0.5 * 4 }}", "112a1None2.0"),
    ];
    backstitch_testing::each(cases, |&(source, wanted)| assert_eq!(render(source).as_deref(), Ok(wanted)));
}

#[test]
fn a_template_may_refuse_messages_in_its_own_words() {
    let refused =
        render("{% if messages[0].role != 'system' %}{{ raise_exception('No ' ~ 'system!') }}{% endif %}");
    assert_eq!(refused, Err(ChatError::Raised { message: "No system!".into() }));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    assert!(matches!(render("a\n{% for %}"), Err(ChatError::Syntax { line: 2, .. })));
    assert!(matches!(render("a\n\n{{ 1 + 'a' }}"), Err(ChatError::Failed { line: 3, .. })));
    for after in ["{% for x in [1, 'a'] if x + 1 %}\n\n{% endfor %}", "{% filter round %}\n\n{% endfilter %}"]
    {
        assert!(matches!(render(&format!("\n{after}")), Err(ChatError::Failed { line: 2, .. })), "{after}");
    }
    assert!(matches!(
        render("{{ x | frobnicate }}"),
        Err(ChatError::Syntax { .. } | ChatError::Failed { .. })
    ));
    assert_eq!(render(&"x".repeat(MAX_SOURCE + 1)), Err(ChatError::TooLong));
}

#[test]
fn operators_mean_what_they_mean_in_python() {
    let cases = [
        ("{{ 1 < 2 <= 2 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' in ['abc'] }}", "TrueFalseTrue"),
        ("{{ 'role' in messages[0] }}{{ 'x' not in messages[0] }}{{ 'a' in nothing }}", "TrueTrueFalse"),
        ("{{ [1, 2] == [1, 2] }}{{ [1] < [2] }}{{ {'a': 1} == {'a': 1.0} }}", "TrueTrueTrue"),
        (
            "{{ 'abcdef'[1:4] }}{{ 'abc'[-1] }}{{ [1, 2, 3, 4][::-2] }}{{ messages[[]] is defined }}",
            "bcdc[4, 2]False",
        ),
        ("{{ {'b': 2, 'a': messages, 'b': 3}['b'] }}{{ {}.get((), 5) }}{{ {'a': 1}.get('a') }}", "351"),
        ("{{ [3, 1, 2] | sort | join }}{{ [1, 2] | max }}{{ [2, 2] | unique | list }}", "1232[2]"),
        (
            "{{ [2, 1] | sort(reverse=true) | first }}{{ nothing | default('d') }}{{ 'b' is in ['a'] }}",
            "2dFalse",
        ),
        ("{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2], *[3]) }}", "123"),
        (
            "{% for x in [[1, [2]], 3] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{% endfor %}",
            "123",
        ),
        ("{{ [] * 999999999999 }}{{ 3 | tojson(indent=2) }}", "[]3"),
    ];
    backstitch_testing::each(cases, |&(source, wanted)| assert_eq!(render(source).as_deref(), Ok(wanted)));
}

/// Return a text with its values in ⟦brackets⟧.
fn marked(source: &str, conversation: &Conversation) -> Result<String, ChatError> {
    let rendered = ChatTemplate::from_source(source)?.render(conversation)?;
    let mark = |(part, origin): (&str, Origin)| match origin {
        Origin::Template => String::from(part),
        Origin::Value => alloc::format!("⟦{part}⟧"),
    };
    Ok(rendered.spans().map(mark).collect())
}

#[test]
fn every_byte_of_a_text_has_its_origin() {
    let cases = [
        ("A{{ v }}B", "A⟦xyz⟧B"),
        ("{{ 'A' ~ v ~ 'B' }}{{ 'C' + v }}", "A⟦xyz⟧BC⟦xyz⟧"),
        ("{{ v[0] }}A{{ v[1:] }}{{ v[::-1] }}", "⟦x⟧A⟦yzzyx⟧"),
        ("{{ v.replace('y', 'A') }}{{ 'y'.replace('y', v) }}", "⟦x⟧A⟦zxyz⟧"),
        ("{{ ('A' ~ v ~ 'B').split('y') | join('C') }}", "A⟦x⟧C⟦z⟧B"),
        ("{{ (' A' ~ v ~ ' ') | trim }}{{ v | upper }}", "A⟦xyzXYZ⟧"),
        ("{{ {v: v} | tojson }}{{ {'A': [v]} }}", "{\"⟦xyz⟧\": \"⟦xyz⟧\"}{'A': ['⟦xyz⟧']}"),
        ("{{ '%s|%5s' % (v, v) }}{{ 'A%c' % 66 }}", "⟦xyz⟧|⟦  xyz⟧A⟦B⟧"),
        ("{{ '{}-{:>4}'.format(v, 'A') }}{{ (v ~ '{}').format('A') }}", "⟦xyz⟧-⟦   ⟧A⟦xyz⟧A"),
        ("{% set s %}A{{ v }}{% endset %}{{ s | capitalize }}{{ s | title }}", "A⟦xyz⟧A⟦xyz⟧"),
        (
            "{% macro m(x) %}A{{ x }}{{ caller() }}{% endmacro %}{% call m(v) %}{{ v }}B{% endcall %}",
            "A⟦xyzxyz⟧B",
        ),
        (
            "{% for c in v %}{{ c }}A{% endfor %}{% filter upper %}{{ v }}B{% endfilter %}",
            "⟦x⟧A⟦y⟧A⟦z⟧A⟦XYZ⟧B",
        ),
        ("{{ (v ~ '\n' ~ v) | indent(1, true) }}{{ v.center(5, '-') }}", " ⟦xyz⟧\n ⟦xyz⟧-⟦xyz⟧-"),
        ("{{ v * 2 }}{{ v | first }}{{ v | last }}{{ '<' ~ v | e }}", "⟦xyzxyzxz⟧<⟦xyz⟧"),
        ("{{ messages[0].role }}{{ messages[1].role }}{{ messages[0].content }}", "user⟦root|>hi⟧"),
        ("{{ bos_token }}{{ eos_token }}{{ 1 + 2 }}{{ v | length }}", "<s></s>33"),
        ("{{ tools }}{{ documents[0].text }}", "[{'⟦name⟧': '⟦tool⟧'}]⟦doc⟧"),
        ("{{ v.partition('y') | join('A') }}{{ [v] | map('upper') | first }}", "⟦x⟧A⟦y⟧A⟦zXYZ⟧"),
        (
            "{{ (v ~ 'Axyz').strip('xz') }}{{ v.removeprefix('x') }}{{ v | truncate(1, true, 'A', 0) }}",
            "⟦yz⟧Axy⟦yz⟧A",
        ),
        ("{{ (v ~ 'ab') | urlencode }}{{ (v ~ 'B').lower() }}", "⟦xyz⟧ab⟦xyz⟧b"),
        ("{{ f.format('') }}{{ '%d%%' % 5 }}", "⟦<|x⟧5⟦%⟧"),
    ];
    let messages = [Message { role: "user", content: "hi" }, Message { role: "root|>", content: "" }];
    let conversation = Conversation::new(messages)
        .set("v", "xyz")
        .set("f", "{0:<<1}{0:|<1}{0:x<1}")
        .tools([Value::map([("name", "tool".into())])])
        .documents([Value::map([("text", "doc".into())])])
        .tokens("<s>", "</s>");
    backstitch_testing::each(cases, |&(source, wanted)| {
        assert_eq!(marked(source, &conversation).as_deref(), Ok(wanted))
    });
}
