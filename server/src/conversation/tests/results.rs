//! Results of tools and roles that templates leave out without a word.

use super::super::arrange::arrange_results;
use super::super::sequences::Results;
use super::*;

/// A template that takes everything, and names in results.
const STRICT: Results = Results {
    role: Some("tool"),
    orphans: true,
    unnamed: false,
    without_ids: true,
    several_calls: true,
    calls_in_a_row: true,
    calls: true,
    text_beside_calls: true,
    text_beside_thoughts: true,
};

/// Return a message that calls tools by these identifiers, which name the tools too.
fn calling(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall { id: (*id).into(), name: format!("tool {id}"), arguments: "{}".into() };
    Message { tool_calls: ids.iter().map(call).collect(), ..Message::new("assistant", "") }
}

/// Return the identifiers and tools of results with these identifiers, in the order in which they
/// stand behind calls.
fn results_of(messages: &[Message], results: &Results) -> Vec<(String, String, String)> {
    let arranged = arrange_results(messages.to_vec(), results);
    let results = arranged.into_iter().filter(|message| message.role == "tool");
    let fields = |message: Message| {
        let text = message.content.joined("");
        (text, message.tool_call_id.unwrap_or_default(), message.name.unwrap_or_default())
    };
    results.map(fields).collect()
}

/// Return results with these identifiers; their texts are the identifiers and places.
fn results(ids: &[&str]) -> Vec<Message> {
    let result = |(i, id): (usize, &&str)| Message {
        tool_call_id: Some((*id).into()).filter(|id: &String| !id.is_empty()),
        ..Message::new("tool", format!("{i}{id}"))
    };
    ids.iter().enumerate().map(result).collect()
}

#[test]
fn results_belong_to_the_calls_that_they_name() {
    // The identifiers of results, and those of the calls that they belong to.
    let cases: [(&[&str], &[&str]); 8] = [
        (&["a", "b"], &["a", "b"]),
        (&["b", "a"], &["b", "a"]),
        (&["zz", "a", "b"], &["", "a", "b"]),
        (&["zz", "b"], &["a", "b"]),
        (&["a", "a", "b"], &["a", "a", "b"]),
        (&["a", "a", ""], &["a", "a", "b"]),
        (&["", "a"], &["b", "a"]),
        (&["", ""], &["a", "b"]),
    ];
    for (ids, calls) in cases {
        let messages = [vec![calling(&["a", "b"])], results(ids)].concat();
        let found = results_of(&messages, &STRICT);
        let wanted: Vec<_> = (ids.iter().zip(calls).enumerate())
            .map(|(i, (id, call))| match *call {
                "" => (format!("{i}{id}"), (*id).to_owned(), String::new()),
                call => (format!("{i}{id}"), call.to_owned(), format!("tool {call}")),
            })
            .collect();
        assert_eq!(found, wanted, "{ids:?}");
    }
}

/// Some clients number the calls of each message from the beginning.
#[test]
fn an_identifier_may_come_back_in_the_next_message() {
    let mut second = calling(&["a"]);
    second.tool_calls[0].name = "other".into();
    let messages = [vec![calling(&["a"])], results(&["a"]), vec![second], results(&["a"])].concat();
    let names: Vec<_> = results_of(&messages, &STRICT).into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(names, ["tool a", "other"]);
}

#[test]
fn a_second_result_joins_the_first_where_each_needs_a_call() {
    let messages = [vec![calling(&["a", "b"])], results(&["a", "a", "b"])].concat();
    let found = results_of(&messages, &Results { orphans: false, several_calls: false, ..STRICT });
    let texts: Vec<_> = found.iter().map(|(text, ..)| text.as_str()).collect();
    assert_eq!(texts, ["0a\n1a", "2b"]);
}

/// Many templates have a branch for each role, and none for others.
#[test]
fn no_message_is_left_out_for_its_role() {
    let template = "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }};\
        {% elif m.role == 'assistant' %}A:{{ m.content }}{% for c in m.tool_calls or [] %}\
        [{{ c.function.name }}{{ c.function.arguments }}]{% endfor %};{% elif m.role == 'tool' %}T:{{ m.content }};{% endif %}{% endfor %}";
    let call = json!({"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let messages = json!([
        {"role": "user", "content": "Hey"},
        call,
        {"role": "function", "name": "f", "content": "X"},
    ]);
    let request = chat(json!({"messages": messages})).unwrap();
    assert_eq!(text(template, &request), "U:Hey;A:[f{}];T:X;");
    let messages = json!([{"role": "user", "content": "Hey"}, {"role": "critic", "content": "X"}]);
    let request = chat(json!({"messages": messages})).unwrap();
    let prompt = Template::new(template).unwrap().prompt(&request, model().vocab(), Thinking::Auto);
    let error = prompt.unwrap_err().to_string();
    assert!(error.starts_with("'messages[1].role' must be"), "{error}");
    // Without a branch for results they are said by the user.
    let template = template.replace("'tool'", "'nobody'");
    let text = text(
        &template,
        &Request::new([vec![Message::new("user", "Hey"), calling(&["a"])], results(&["a"])].concat()),
    );
    assert!(text.contains("0a"), "{text}");
}
