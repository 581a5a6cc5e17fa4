//! Awkward conversations by templates that each make a demand of their own, as those of well-known
//! models do. `server/tests/conversations.py` does the same with templates in a folder.

use super::*;

/// Writes everything, and demands nothing.
const WRITES: &str = "<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}\
    {% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{{ m.reasoning_content }}\
    {% for c in m.tool_calls or [] %}[{{ c.function.name }}{{ c.function.arguments | string }}]{% endfor %}";

/// Leaves out the text of messages that call.
const WITHOUT_TEXT: &str = "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}\
    {% for c in m.tool_calls %}[{{ c.function.name }}{{ c.function.arguments | string }}]{% endfor %}\
    {% else %}{{ m.content }}{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}";

/// Return a template that refuses messages for which `demand` is true, and writes others.
pub(super) fn refusing(demand: &str) -> String {
    format!(
        "{{% set ns = namespace(n=0, open=0, users=0) %}}{{% for m in messages %}}\
         {{% if m.role == 'user' %}}{{% set ns.users = ns.users + 1 %}}{{% endif %}}\
         {{% if {demand} %}}{{{{ raise_exception('refused') }}}}{{% endif %}}\
         {{% if not m.tool_calls and m.role in ['user', 'assistant'] %}}{{% set ns.n = ns.n + 1 %}}{{% endif %}}\
         {{% set ns.open = m.tool_calls | length if m.tool_calls else (ns.open - 1 if m.role == 'tool' else 0) %}}\
         {WRITES}{{% endfor %}}{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}"
    )
}

/// Return templates by the demand that each makes.
pub(super) fn demanding() -> Vec<(&'static str, String)> {
    let turns = "(m.role == 'user') != (ns.n % 2 == 0)";
    let demands = [
        ("nothing", "false".to_owned()),
        ("turns", format!("m.role in ['user', 'assistant'] and not m.tool_calls and {turns}")),
        ("turns of system, user and assistant", format!("m.role != 'tool' and not m.tool_calls and {turns}")),
        ("no system", "m.role == 'system'".into()),
        ("the system first", "m.role == 'system' and not loop.first".into()),
        ("a call before a result", "m.role == 'tool' and ns.open < 1".into()),
        ("one call", "m.tool_calls and m.tool_calls | length > 1".into()),
        ("known roles", "m.role not in ['system', 'user', 'assistant', 'tool']".into()),
        ("no user twice", "m.role == 'user' and loop.previtem and loop.previtem.role == 'user'".into()),
        ("the user first", "m.role == 'assistant' and ns.users == 0".into()),
        ("a user", "loop.last and ns.users == 0".into()),
        ("names of results", "m.role == 'tool' and not m.name and m.tool_call_id != 'call00000'".into()),
        ("identifiers", "m.role == 'tool' and m.tool_call_id | length < 1".into()),
        ("results called ipython", "m.role == 'tool'".into()),
        ("no calls", "m.tool_calls".into()),
        ("no text beside calls", "m.tool_calls and m.content".into()),
        ("no text beside reasoning and calls", "m.tool_calls and m.content and m.reasoning_content".into()),
        (
            "turns, no text beside calls",
            format!(
                "m.role in ['user', 'assistant'] and not m.tool_calls and {turns} or m.tool_calls and m.content"
            ),
        ),
        ("texts", "m.content is not string".into()),
        ("parts", "m.content is string and m.content".into()),
        ("parts of the user alone", "m.content is not string and m.role != 'user'".into()),
    ];
    let mut templates: Vec<_> = demands.iter().map(|(name, demand)| (*name, refusing(demand))).collect();
    let items = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}\
                 [{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}]{% endfor %}{% endfor %}";
    templates.push(("objects", items.into()));
    let lists = refusing("false") + "{% for t in tools %}{% endfor %}{% for d in documents %}{% endfor %}";
    templates.push(("lists", lists));
    let schemas = refusing("false")
        + "{% for t in tools or [] %}{% for k, s in t.function.parameters.properties.items() %}\
           {{ k + s.type }}{% if 'enum' in s %}{{ s.enum | join }}{% endif %}{% endfor %}{% endfor %}";
    templates.push(("schemas", schemas));
    templates.push(("text beside calls is left out", WITHOUT_TEXT.into()));
    templates
}

/// Return the templates that have names.
fn builtin() -> impl Iterator<Item = (&'static str, String)> {
    builtin_names().into_iter().filter_map(|name| Some((name, builtin_template(name)?)))
}

/// Return an answer with a call.
fn call(id: &str, arguments: &str) -> Value {
    let function = json!({"name": "time", "arguments": arguments});
    json!({"role": "assistant", "content": null,
           "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

pub(super) fn said(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "four"})
}

/// Return awkward conversations by names.
pub(super) fn awkward() -> Vec<(&'static str, Value)> {
    let [u, v] = ["hello", "well?"].map(|text| said("user", text.into()));
    let [a, b] = ["yes", "so"].map(|text| said("assistant", text.into()));
    let [s, t] = ["brief", "kind"].map(|text| said("system", text.into()));
    let (c, d) = (call("call00000", "{}"), call("call00001", "{}"));
    let (r, q) = (result("call00000"), result("call00001"));
    let mut both = c.clone();
    both["tool_calls"] = json!([c["tool_calls"][0], d["tool_calls"][0]]);
    let telling = |mut call: Value, text: &str| {
        call["content"] = text.into();
        call
    };
    let mut pondered = telling(c.clone(), "let me see");
    pondered["reasoning_content"] = "hm".into();
    let mut bare = r.clone();
    bare["tool_call_id"] = Value::Null;
    let part = |text: &str| json!({"type": "text", "text": text});
    let mut conversations = vec![
        ("one message", json!([u])),
        ("turns", json!([s, u, a, v])),
        ("a developer", json!([said("developer", "brief".into()), u])),
        ("two systems", json!([s, t, u])),
        ("a later system", json!([u, a, s, v])),
        ("a last system", json!([u, a, v, s])),
        ("only a system", json!([s])),
        ("two users", json!([u, v])),
        ("three users", json!([u, v, u, a, v, u])),
        ("an answer first", json!([a, u])),
        ("an answer behind the system", json!([s, a, u])),
        ("two answers", json!([u, a, b, v])),
        ("an answer before a call", json!([u, a, c, r, b])),
        ("a user behind a result", json!([u, c, r, v])),
        ("a call without a result", json!([u, c, v])),
        ("a last call", json!([u, c])),
        ("a last result", json!([u, c, r])),
        ("two calls", json!([u, both, r, q, a, v])),
        ("two calls, results turned round", json!([u, both, q, r])),
        ("one result of two", json!([u, both, r, v])),
        ("calls in a row", json!([u, c, d, r, q])),
        ("a result without a call", json!([u, r, v])),
        ("a result behind an answer", json!([u, a, r, v])),
        ("a result first", json!([r, u])),
        ("a result of another call", json!([u, c, result("else"), v])),
        ("text beside a call", json!([u, telling(c.clone(), "let me see"), r, a, v])),
        ("text beside two calls", json!([u, telling(both.clone(), "let me see"), r, q, v])),
        (
            "text beside calls in a row",
            json!([u, telling(c.clone(), "one"), telling(d.clone(), "two"), r, q]),
        ),
        ("text beside a call behind an answer", json!([u, a, telling(c.clone(), "let me see"), r])),
        ("text beside reasoning and a call", json!([u, pondered, r, a, v])),
        ("no identifiers", json!([u, call("", "{}"), bare, v])),
        ("no contents", json!([said("user", Value::Null), said("assistant", Value::Null), v, c, r])),
        ("empty contents", json!([said("user", "".into()), said("assistant", "".into()), v])),
        ("no parts", json!([said("user", json!([])), a, v])),
        (
            "parts",
            json!([
                said("system", json!([part("brief")])),
                said("user", json!([part("x"), part("y")])),
                said("assistant", json!([part("yes")])),
                v
            ]),
        ),
        (
            "parts of a result",
            json!([u, c, {"role": "tool", "tool_call_id": "call00000", "content": [part("four")]}]),
        ),
        ("a function's role", json!([u, c, {"role": "function", "name": "time", "content": "four"}, a, v])),
    ];
    for arguments in MALFORMED {
        conversations.push(("malformed arguments", json!([u, call("call00000", arguments), r, v])));
    }
    conversations
}

/// Arguments that are no JSON object.
const MALFORMED: [&str; 10] =
    ["{\"", "[1]", "'x'", "{\"a\":NaN}", "{\"a\":1}{\"b\":2}", "5", "null", "", "\"x\"", "[[[["];

/// Return a tool with odd parameters.
fn odd_tool() -> Value {
    let properties =
        json!({"any": true, "none": {}, "null": {"type": ["string", "null"]}, "one": {"enum": [1]}});
    json!([{"type": "function", "function": {"name": "bare"}},
           {"type": "function", "function": {"name": "time", "parameters": {"properties": properties}}}])
}

#[test]
fn every_template_takes_every_conversation() {
    let conversations = awkward();
    backstitch_testing::each(demanding().into_iter().chain(builtin()), |(name, source)| {
        let template = Template::new(source).unwrap();
        for (talk, messages) in &conversations {
            for tools in [Value::Null, odd_tool()] {
                let request = chat(json!({"messages": messages, "tools": tools})).unwrap();
                let prompt = template.prompt(&request, model().vocab(), Thinking::Auto);
                let text = prompt.unwrap_or_else(|error| panic!("{name}: {talk}: {error}")).text;
                for message in &request.messages {
                    let content = message.content.joined("\n");
                    content
                        .split('\n')
                        .for_each(|word| assert!(text.contains(word), "{name}: {talk}: {word} in {text}"));
                }
            }
        }
    });
}

/// The speakers of messages: the system, the user, the assistant with a text, with a call and with
/// two, and a tool.
pub(super) fn sequences(length: usize) -> impl Iterator<Item = Vec<Value>> {
    const N: usize = 6;
    (0..N.pow(length as u32)).map(move |number| {
        let speaker = |place: usize| number / N.pow(place as u32) % N;
        let message = |place: usize| {
            let text = format!("m{place}.");
            match speaker(place) {
                0 => said("system", text.into()),
                1 => said("user", text.into()),
                2 => said("assistant", text.into()),
                3 => {
                    let mut told = call(&format!("call{place:05}"), "{}");
                    told["content"] = text.into();
                    told
                }
                4 => {
                    let mut both = call(&format!("call{place:05}"), "{}");
                    both["tool_calls"].as_array_mut().unwrap().push(call("", "{}")["tool_calls"][0].clone());
                    both
                }
                _ => json!({"role": "tool", "tool_call_id": format!("call{:05}", place.saturating_sub(1)),
                            "content": text}),
            }
        };
        (0..length).map(message).collect()
    })
}

/// Every order of up to three speakers is taken by every template (of up to two by those with
/// names), nothing is lost, and a template that demands nothing gets the messages as they are.
#[test]
fn every_order_of_speakers_is_taken() {
    let by_length = demanding().into_iter().map(|template| (3, template));
    let by_length = by_length.chain(builtin().map(|template| (2, template)));
    backstitch_testing::each(by_length, |(longest, (name, source))| {
        let template = Template::new(source).unwrap();
        for messages in (1..=*longest).flat_map(sequences) {
            // The last message of the assistant would be continued.
            let body = json!({"messages": messages});
            let request = Request::from_chat(body.as_object().unwrap()).unwrap();
            let prompt = template.prompt(&request, model().vocab(), Thinking::Auto);
            let text = prompt.unwrap_or_else(|error| panic!("{name}: {body}: {error}")).text;
            let texts = request.messages.iter().filter_map(|message| message.content.texts().first());
            texts.for_each(|said| assert!(text.contains(said.as_str()), "{name}: {body}: {text}"));
            if *name == "nothing" {
                let roles = text.matches('<').count();
                assert_eq!(roles, messages.len(), "{body}: {text}");
            }
        }
    });
}

/// A conversation that goes on keeps the beginning of its prompt.
#[test]
fn messages_that_follow_leave_the_beginning_as_it_was() {
    let written = |template: &Template, messages: &[Value]| {
        let body = json!({"messages": messages, "add_generation_prompt": false});
        let request = Request::from_chat(body.as_object().unwrap()).unwrap();
        template.prompt(&request, model().vocab(), Thinking::Auto).unwrap().text
    };
    let keeps =
        ["nothing", "turns", "the user first", "names of results", "no user twice", "no text beside calls"];
    let templates = demanding().into_iter().filter(|(name, _)| keeps.contains(name));
    backstitch_testing::each(templates, |(name, source)| {
        let template = Template::new(source).unwrap();
        for messages in sequences(3) {
            let whole = written(&template, &messages);
            for n in 1..messages.len() {
                let begun = written(&template, &messages[..n]);
                assert!(whole.starts_with(&begun), "{name}: {messages:?}: {begun} {whole}");
            }
        }
    });
}

#[test]
fn arguments_that_are_no_object_are_one_or_stay_text() {
    let template = |source: &str| Template::new(source).unwrap();
    let written = |template: &Template, arguments: &str| {
        let messages = json!([said("user", "u".into()), call("call00000", arguments), result("call00000")]);
        let request = chat(json!({ "messages": messages })).unwrap();
        template.prompt(&request, model().vocab(), Thinking::Auto).unwrap().text
    };
    let items = demanding().into_iter().find(|(name, _)| *name == "objects").unwrap().1;
    let either = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}\
        [{% if c.function.arguments is string %}{{ c.function.arguments }}\
        {% else %}{{ c.function.arguments | tojson }}{% endif %}]{% endfor %}{% endfor %}";
    let (items, either) = (template(&items), template(either));
    for text in MALFORMED.into_iter().filter(|text| !matches!(*text, "" | "null")) {
        assert!(written(&items, text).contains(&format!("[arguments={text};]")), "{text}");
        assert!(written(&either, text).contains(&format!("[{text}]")), "{text}");
    }
    for text in ["", "null", " "] {
        assert!(written(&items, text).contains("[]"));
        assert!(written(&either, text).contains("[{}]"));
    }
    let deep = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
    assert!(written(&items, &deep(20)).contains("a=[[[["));
    assert!(written(&items, &deep(500)).contains("arguments={\"a\":[[[["));
}
