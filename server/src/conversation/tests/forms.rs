//! Tests of the forms in which templates take messages, in templates that say in a line what those
//! of well-known models say in many.

use super::*;
use backstitch_models::gguf::{Gguf, Writer};

/// Qwen 3.5 takes one message of the system.
const ONE_SYSTEM: &str = "{% for m in messages %}\
    {% if m.role == 'system' and not loop.first %}{{ raise_exception('not at the beginning') }}{% endif %}\
    <{{ m.role }}>{{ m.content }}{% endfor %}";

/// gpt-oss reasons in a message of its own, and takes no text beside reasoning and calls.
const HARMONY: &str = "{% for m in messages %}{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>\
    {% elif m.tool_calls %}{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}\
    {% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}\
    {{ m.content }}[{{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments | tojson }}]{% elif m.role == 'assistant' %}\
    <|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
    {% if add_generation_prompt %}<|start|>assistant{% endif %}";

/// Mistral's templates count the characters of identifiers, refuse empty answers, and have
/// reasoning in parts of the content.
const MISTRAL: &str = "{% for m in messages %}{% if m.role == 'assistant' %}\
    {% if not m.content and not m.tool_calls %}{{ raise_exception('empty') }}{% endif %}\
    {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
    {% if p.type == 'thinking' %}[THINK]{{ p.thinking }}[/THINK]{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}\
    {% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('9') }}{% endif %}\
    [{{ c.id }}]{{ c.function.arguments | tojson }}{% endfor %}</s>\
    {% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('9') }}{% endif %}\
    ({{ m.tool_call_id }}){{ m.content }}{% elif m.content is string %}<{{ m.content }}>\
    {% else %}<{% for p in m.content %}{{ p.text }}{% endfor %}>{% endif %}{% endfor %}";

/// The first templates of Gemma 4 have results of tools in the message that calls them.
const GEMMA: &str = "{% set ns = namespace(role='') %}{% for m in messages %}\
    {% set ns.role = 'tool' if m.tool_responses else m.role %}\
    <|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n\
    {% for c in m.tool_calls or [] %}<|tool_call>call:{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}\
    {% for r in m.tool_responses or [] %}{{ r.name }}={{ r.response | tojson }};{% endfor %}{{ m.content }}\
    {% if not (m.tool_responses and not m.content) %}<turn|>\n{% endif %}{% endfor %}\
    {% if add_generation_prompt and ns.role != 'tool' %}<|turn>model\n{% endif %}";

fn said(messages: Value) -> Request {
    chat(json!({ "messages": messages })).unwrap()
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Return an answer with reasoning, text and a call.
fn calling(id: &str, reasoning: &str, content: &str, arguments: &str) -> Value {
    let function = json!({"name": "time", "arguments": arguments});
    json!({"role": "assistant", "content": content, "reasoning_content": reasoning,
           "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

#[test]
fn systems_are_joined_or_turned_where_the_template_refuses_them() {
    let [a, b] = ["a", "b"].map(|text| message("system", text));
    let [u, v] = ["u", "v"].map(|text| message("user", text));
    let x = message("assistant", "x");
    let several = said(json!([a, message("developer", "b"), u]));
    assert_eq!(text(ONE_SYSTEM, &several), "<system>a\nb<user>u");
    let later = said(json!([a, u, b, x, u, x, b, v]));
    assert_eq!(text(ONE_SYSTEM, &later), "<system>a<user>u\nb<assistant>x<user>u<assistant>x<user>b\nv");
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    assert_eq!(text(plain, &said(json!([a, b, u, b]))), "<system>a<system>b<user>u<system>b");
    // User and assistant still alternate in a template without a role for the system.
    let none = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('system') }}{% endif %}\
                {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}\
                <{{ m.role }}>{{ m.content }}{% endfor %}";
    let wanted = "<user>a\nu\nb<assistant>x<user>v\nb";
    assert_eq!(text(none, &said(json!([a, u, b, x, v, b]))), wanted);
    // A template that hoists the last one would lose the first, and the beginning of the prompt.
    let hoists = "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}\
                  {% set ns.s = m.content %}{% endif %}{% endfor %}<system>{{ ns.s }}\
                  {% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
    assert_eq!(text(hoists, &said(json!([a, b, u, b]))), "<system>a\nb<user>u\nb");
}

#[test]
fn reasoning_of_earlier_turns_stands_where_the_template_looks_for_it() {
    let turns = |content: &str| {
        said(json!([message("user", "u"), calling("a", "Hm.", content, "{}"), message("tool", "t")]))
    };
    // This template writes no results, which the user says then.
    let wanted = "<|start|>user<|message|>u<|end|><|channel|>analysis<|message|>Hm.<|end|>[time{}]\
                  <|start|>user<|message|><tool_response>\nt\n</tool_response><|end|><|start|>assistant";
    assert_eq!(text(HARMONY, &turns("")), wanted);
    // Beside reasoning it refuses a text, and beside a call alone it writes one as reasoning.
    assert_eq!(text(HARMONY, &turns("So.")), wanted.replace("Hm.", "Hm.\nSo."));
    let without = said(json!([message("user", "u"), calling("a", "", "So.", "{}")]));
    assert_eq!(text(HARMONY, &without), "<|start|>user<|message|>u<|end|>So.[time{}]<|start|>assistant");
    let thoughts = json!({"role": "assistant", "content": "x", "reasoning_content": "Hm."});
    let answered = said(json!([message("user", "u"), thoughts, message("user", "v")]));
    assert_eq!(text(MISTRAL, &answered), "<u>[THINK]Hm.[/THINK]x</s><v>");
    let plan = "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}<plan>{{ m.tool_plan }}{{ m.tool_calls[0].function.arguments }}{% endif %}{% endfor %}";
    assert_eq!(text(plan, &turns("")), "u<plan>Hm.{}t");
    let common =
        "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{{ m.content }};{% endfor %}";
    assert_eq!(text(common, &answered), "u;Hm.x;v;");
}

#[test]
fn identifiers_of_other_services_are_shortened_the_same_way_in_calls_and_results() {
    let turns = |id: &str| {
        let mut result = message("tool", "t");
        result["tool_call_id"] = id.into();
        said(json!([message("user", "u"), calling(id, "", "", ""), result]))
    };
    assert_eq!(text(MISTRAL, &turns("Abc012345")), "<u>[Abc012345]{}</s>(Abc012345)t");
    let long = text(MISTRAL, &turns("call_0123456789abcdef"));
    let (_, short) = long.split_once('[').unwrap();
    let (short, rest) = short.split_once(']').unwrap();
    assert!(short.len() == 9 && short.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{long}");
    assert_eq!(rest, format!("{{}}</s>({short})t"));
    assert_ne!(long, text(MISTRAL, &turns("call_0123456789abcdee")));
    let mut nameless = turns("");
    nameless.messages[2].tool_call_id = None;
    assert!(text(MISTRAL, &nameless).ends_with(")t"));
    let plain = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments }}{% endfor %}{% endfor %}";
    assert_eq!(text(plain, &turns("call_0123456789abcdef")), "call_0123456789abcdef{}");
}

#[test]
fn an_empty_answer_is_written_where_the_template_refuses_it() {
    let turns = said(json!([message("user", "u"), message("assistant", ""), message("user", "v")]));
    assert_eq!(text(MISTRAL, &turns), "<u></s><v>");
}

#[test]
fn results_join_their_calls_where_the_template_has_no_role_for_them() {
    let mut result = message("tool", "{\"hour\":4}");
    result["tool_call_id"] = "a".into();
    let mut turns = vec![message("user", "u"), calling("a", "", "", "{}"), result];
    let begun = "<|turn>user\nu<turn|>\n<|turn>model\n<|tool_call>call:time{}time={\"hour\": 4};";
    assert_eq!(text(GEMMA, &said(json!(turns))), begun);
    turns.push(message("assistant", "Four."));
    turns.push(message("user", "v"));
    let all = format!("{begun}Four.<turn|>\n<|turn>user\nv<turn|>\n<|turn>model\n");
    assert_eq!(text(GEMMA, &said(json!(turns))), all);
    turns[1]["content"] = "Let me see.".into();
    assert!(
        text(GEMMA, &said(json!(turns))).contains("model\nLet me see.<turn|>\n<|turn>model\n<|tool_call>")
    );
    // Later templates know the role, and leave the next turn out behind a message with both.
    let later = "{#- OpenAI Chat Completions: -#}{% for m in messages %}<|turn>{{ m.role }}{{ m.content }}{{ m.tool_calls }}<turn|>\n\
                 {% endfor %}{% if false %}<|turn>model{{ tool_responses }}{% endif %}";
    let prompt = Template::new(later).unwrap();
    let prompt = prompt.prompt(&said(json!(turns[..3])), model().vocab(), Thinking::Auto).unwrap();
    assert!(prompt.text.contains("Let me see.[{"), "{}", prompt.text);
    assert!(prompt.text.ends_with("<|turn>tool{\"hour\":4}<turn|>\n<|turn>model\n"), "{}", prompt.text);
    assert_eq!(prompt.generation_prompt, "<|turn>model\n");
}

#[test]
fn what_is_continued_begins_behind_the_markers_of_its_model() {
    let continued = |template: &str, answer: Value| {
        let request = said(json!([message("user", "u"), answer]));
        Template::new(template).unwrap().prompt(&request, model().vocab(), Thinking::Auto).unwrap()
    };
    let both = json!({"role": "assistant", "content": "Hello", "reasoning_content": "Hm."});
    let thoughts = json!({"role": "assistant", "content": "", "reasoning_content": "Hm."});
    let header = "<|start|>assistant<|channel|>final<|message|>Hello";
    assert_eq!(continued(HARMONY, message("assistant", "Hello")).generation_prompt, header);
    let analysis = "<|start|>assistant<|channel|>analysis<|message|>Hm.";
    assert_eq!(continued(HARMONY, both.clone()).generation_prompt, format!("{analysis}<|end|>{header}"));
    let begun = continued(HARMONY, thoughts.clone());
    assert_eq!((begun.generation_prompt.as_str(), begun.in_reasoning), (analysis, true));
    let cohere = "{{ messages[0].content }}{% if false %}<|START_THINKING|><|END_THINKING|><|START_RESPONSE|>{% endif %}\
                  {% if add_generation_prompt %}<|CHATBOT_TOKEN|>{% endif %}";
    assert_eq!(
        continued(cohere, both.clone()).generation_prompt,
        "<|CHATBOT_TOKEN|><|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hello"
    );
    let gemma = "{{ messages[0].content }}{% if false %}<|channel>thought{% endif %}";
    assert_eq!(continued(gemma, both.clone()).generation_prompt, "<|channel>thought\nHm.<channel|>Hello");
    let open = "{{ messages[0].content }}{% if add_generation_prompt %}<A><think>\n{% endif %}";
    assert_eq!(continued(open, thoughts).generation_prompt, "<A><think>\nHm.");
    let closed = "{{ messages[0].content }}{% if add_generation_prompt %}<A><think></think>{% endif %}";
    assert_eq!(continued(closed, both).generation_prompt, "<A><think></think>Hello");
    // Reasoning that is a message of its own is not closed before the answer begins.
    let off = chat(json!({"messages": [message("user", "u")], "reasoning_effort": "none"})).unwrap();
    assert!(text(HARMONY, &off).ends_with("<|start|>assistant"));
}

#[test]
fn the_generation_prompt_is_what_the_text_has_not_without_it() {
    let phi =
        "{{ messages[0].content }}{% if add_generation_prompt %}[assistant]{% else %}{{ '</s>' }}{% endif %}";
    let template = Template::new(phi).unwrap();
    let prompt =
        template.prompt(&said(json!([message("user", "u")])), model().vocab(), Thinking::Auto).unwrap();
    assert_eq!(prompt.generation_prompt, "[assistant]");
}

#[test]
fn requests_with_tools_have_a_template_of_their_own() {
    let template = Template::new("{{ messages[0].content }}").unwrap();
    let template =
        template.with_template_for_tools(Some("{{ messages[0].content }}{{ tools[0].function.name }}"));
    let mut request = said(json!([message("user", "u")]));
    let rendered = |request: &Request| {
        template.of_request(request).prompt(request, model().vocab(), Thinking::Auto).unwrap().text
    };
    assert_eq!(rendered(&request), "u");
    request.tools.push(Tool { name: "time".into(), description: String::new(), parameters: json!({}) });
    assert_eq!(rendered(&request), "utime");
    // Such a template may know no conversation without tools.
    let source =
        "{% for tool in tools %}{{ tool }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert!(Template::new(source).unwrap().capabilities().system_role);
}

#[test]
fn white_space_around_texts_is_removed_for_step_fun() {
    let template = "{% for m in messages %}<{{ m.content }}>{% endfor %}\
                    {% if tools %}You have access to the following functions in JSONSchema format{% endif %}";
    assert_eq!(text(template, &said(json!([message("user", " u\n")]))), "<u>");
}

#[test]
fn blocks_that_only_the_service_can_use_do_not_end_a_conversation() {
    let found = json!({"type": "search_result", "title": "Almanac", "source": "a.org",
                       "content": [{"type": "text", "text": "It rains."}]});
    let results = json!([{"type": "tool_reference", "tool_name": "time"}, found]);
    let body = json!({
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "So."},
                {"type": "tool_use", "id": "a", "name": "find", "input": {}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": results}]},
        ],
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "custom", "name": "time", "input_schema": {"type": "object"}},
        ],
    });
    let request = Request::from_anthropic(body.as_object().unwrap()).unwrap();
    assert_eq!(request.messages[1].content, Content::Parts(vec!["So.".into()]));
    assert_eq!(request.messages[1].tool_calls.len(), 1);
    let wanted = "found tool: time\nAlmanac\na.org\nIt rains.\n";
    assert_eq!(request.messages[2].content, Content::Text(wanted.into()));
    assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["time"]);
}

#[test]
fn a_budget_of_0_switches_thinking_off() {
    let chat_budget =
        |budget: i64| chat(json!({"messages": [], "thinking_budget_tokens": budget})).unwrap().thinking;
    assert_eq!((chat_budget(0), chat_budget(64)), (Some(false), None));
    let budget = |n: u64| {
        let body = json!({"messages": [], "thinking": {"type": "enabled", "budget_tokens": n}});
        Request::from_anthropic(body.as_object().unwrap()).unwrap().thinking
    };
    assert_eq!((budget(0), budget(1024)), (Some(false), Some(true)));
}

#[test]
fn tools_that_are_not_allowed_are_not_offered() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let mut body = json!({
        "messages": [],
        "tools": [tool("time"), tool("weather")],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool("time")]}},
    });
    let names = |request: &Request| request.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    let request = chat(body.clone()).unwrap();
    assert_eq!((names(&request), request.tool_choice), (vec!["time".to_owned()], ToolChoice::Required));
    body["tool_choice"]["allowed_tools"]["mode"] = "never".into();
    let error = chat(body).unwrap_err().to_string();
    assert_eq!(error, "'tool_choice.allowed_tools.mode' must be \"auto\" or \"required\"");
    let tool = |name: &str| json!({"type": "function", "name": name});
    let body = json!({
        "input": [],
        "tools": [tool("time"), tool("weather")],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [tool("weather")]},
    });
    let request = Request::from_responses(body.as_object().unwrap()).unwrap();
    assert_eq!((names(&request), request.tool_choice), (vec!["weather".to_owned()], ToolChoice::Auto));
}

#[test]
fn a_model_may_have_a_template_for_tools() {
    let gguf = Gguf::parse(backstitch_demo::GGUF).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    writer.set("tokenizer.chat_template.tool_use", "{{ tools }}").unwrap();
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
    }
    let with = Model::from_bytes(&writer.to_bytes()).unwrap();
    assert_eq!((with.chat_template(), with.chat_template_for_tools()), (None, Some("{{ tools }}")));
    assert_eq!(model().chat_template_for_tools(), None);
}
