//! Requests made of bytes: written out, or valid ones of every endpoint with mutations.

use arbitrary::{Arbitrary, Result, Unstructured};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Map, Value, json};

/// The endpoints with a method and a valid body.
pub const ENDPOINTS: [(&str, &str, &str); 36] = [
    (
        "POST",
        "/completion",
        r#"{"prompt":"Once upon","n_predict":2,"temperature":0,"n_probs":2,"stop":["x"]}"#,
    ),
    ("POST", "/completions", r#"{"prompt":[1,"a b",5],"n_predict":1,"stream":true,"return_progress":true}"#),
    ("POST", "/completion", r#"{"prompt":["a","b"],"n_predict":1,"grammar":"root ::= [a-c]+ \"d\""}"#),
    (
        "POST",
        "/completion",
        r#"{"prompt":"a","json_schema":{"type":"object","properties":{"a":{"enum":[1,"b"]}}}}"#,
    ),
    (
        "POST",
        "/completion",
        r#"{"prompt":"a","samplers":["penalties","dry","top_k","xtc"],"logit_bias":[[5,-1],["a",false]],"mirostat":0}"#,
    ),
    (
        "POST",
        "/completion",
        r#"{"prompt":"a","grammar":"root ::= \"b\"","grammar_lazy":true,"grammar_triggers":[{"type":1,"value":"b"}]}"#,
    ),
    (
        "POST",
        "/infill",
        r#"{"input_prefix":"a","input_suffix":"b","prompt":"c","input_extra":[{"filename":"x","text":"y"}]}"#,
    ),
    (
        "POST",
        "/tokenize",
        r#"{"content":["Lily",5],"with_pieces":true,"add_special":true,"parse_special":false}"#,
    ),
    ("POST", "/detokenize", r#"{"tokens":[1,2,3]}"#),
    ("POST", "/embedding", r#"{"content":"a","embd_normalize":2}"#),
    ("POST", "/embeddings", r#"{"input":["a",[1,2]],"encoding_format":"base64"}"#),
    ("POST", "/v1/embeddings", r#"{"input":"a","model":"m","dimensions":8,"encoding_format":"float"}"#),
    ("POST", "/rerank", r#"{"query":"a","documents":["b","c"],"top_n":1}"#),
    ("POST", "/v1/rerank", r#"{"query":"a","texts":["b"],"return_text":true}"#),
    ("GET", "/slots", ""),
    ("GET", "/slots?fail_on_no_slot=1", ""),
    ("POST", "/slots/0?action=erase", "{}"),
    ("POST", "/slots/0?action=save", r#"{"filename":"a.bin"}"#),
    ("POST", "/slots/1?action=restore", r#"{"filename":"a.bin","cache_salt":"s"}"#),
    ("GET", "/backstitch/cache", ""),
    ("GET", "/health", ""),
    ("GET", "/props", ""),
    ("POST", "/props", r#"{"chat_template":"x"}"#),
    ("GET", "/lora-adapters", ""),
    ("POST", "/lora-adapters", r#"[{"id":0,"scale":1}]"#),
    ("GET", "/metrics", ""),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/chat/completions", CHAT_TOOLS),
    ("POST", "/v1/chat/completions/input_tokens", CHAT),
    ("POST", "/apply-template", CHAT_TOOLS),
    (
        "POST",
        "/v1/completions",
        r#"{"prompt":"a","max_tokens":2,"logprobs":2,"echo":true,"n":2,"stream":true,"stream_options":{"include_usage":true}}"#,
    ),
    ("POST", "/v1/responses", RESPONSES),
    ("POST", "/v1/responses/input_tokens", RESPONSES),
    ("GET", "/v1/models/model", ""),
    ("POST", "/v1/messages", MESSAGES),
    ("POST", "/v1/messages/count_tokens", MESSAGES),
];

const CHAT: &str = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]}],
"max_tokens":2,"logprobs":true,"top_logprobs":1,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}}"#;
const CHAT_TOOLS: &str = r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":
[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"2"}],
"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],
"tool_choice":"required","parallel_tool_calls":true,"stream":true,"max_tokens":2,"reasoning_format":"deepseek",
"chat_template_kwargs":{"enable_thinking":false},"stop":"x"}"#;
const RESPONSES: &str = r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call","call_id":"1",
"name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"o"}],"instructions":"i","max_output_tokens":2,
"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"stream":true,"text":{"format":{"type":"text"}}}"#;
const MESSAGES: &str = r#"{"model":"m","max_tokens":2,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"hi"},
{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"2"}]}],
"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"},"stop_sequences":["x"],"stream":true,
"thinking":{"type":"enabled","budget_tokens":5}}"#;

/// Words that requests contain: names of fields, of roles, of kinds.
const WORDS: [&str; 72] = [
    "prompt",
    "n_predict",
    "max_tokens",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "n_probs",
    "logprobs",
    "stop",
    "grammar",
    "json_schema",
    "regex",
    "lark",
    "samplers",
    "logit_bias",
    "id_slot",
    "cache_prompt",
    "cache_salt",
    "priority",
    "n_keep",
    "messages",
    "role",
    "content",
    "type",
    "text",
    "tools",
    "tool_choice",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "parameters",
    "response_format",
    "schema",
    "image_url",
    "url",
    "input",
    "instructions",
    "user",
    "system",
    "assistant",
    "tool",
    "developer",
    "auto",
    "none",
    "required",
    "any",
    "json_object",
    "thinking",
    "budget_tokens",
    "reasoning_format",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "filename",
    "query",
    "documents",
    "echo",
    "suffix",
    "dry_sequence_breakers",
    "mirostat",
    "ignore_eos",
    "post_sampling_probs",
    "response_fields",
    "t_max_predict_ms",
    "sse_ping_interval",
    "input_extra",
    "dynatemp_range",
];

/// Texts that mean something somewhere.
const TEXTS: [&str; 20] = [
    "",
    " ",
    "a",
    "Once upon a time",
    "\0",
    "é",
    "\u{1F600}",
    "<|im_start|>",
    "</s>",
    "{\"a\": 1}",
    "root ::= \"a\"",
    "root ::= root",
    "[a-z]{1,9}",
    "start: \"a\"",
    "%llguidance {}\nstart: /a+/",
    "data:image/png;base64,AAAA",
    "../x",
    "{{ messages }}",
    "\u{202e}\r\n\r\n",
    "-1",
];

/// Return the request that bytes below 0x80 at first write out: a line with the method and the
/// path, lines of headers, an empty line and a body.
pub fn written(input: &[u8]) -> Option<Request<Body>> {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (first, mut rest) =
        (core::str::from_utf8(&input[..end]).ok()?, input.get(end + 1..).unwrap_or_default());
    let (method, path) = first.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path);
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (line, behind) = (&rest[..end], &rest[end + 1..]);
        rest = behind;
        let Some(colon) = line.iter().position(|&byte| byte == b':').filter(|_| !line.is_empty()) else {
            break;
        };
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    request.body(Body::from(rest.to_vec())).ok()
}

/// Return the method, the path and the body of a valid request with mutations.
pub fn mutated(u: &mut Unstructured<'_>) -> Result<(&'static str, &'static str, String)> {
    let (method, path, body) = *u.choose(&ENDPOINTS)?;
    let mut body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    for _ in 0..u.int_in_range(0..=4)? {
        mutate(u, &mut body)?;
    }
    // Another's body reaches handlers that share fields.
    let method = if u.ratio(1, 16)? {
        *u.choose(&["GET", "POST", "PUT", "OPTIONS", "HEAD", "DELETE"])?
    } else {
        method
    };
    let text = if body.is_null() { String::new() } else { body.to_string() };
    Ok((method, path, text))
}

/// Change one value somewhere below `value`.
fn mutate(u: &mut Unstructured<'_>, value: &mut Value) -> Result<()> {
    let goes_down = u.ratio(2, 3)?;
    match value {
        Value::Object(map) if goes_down && !map.is_empty() => {
            let index = u.choose_index(map.len())?;
            map.values_mut().nth(index).map_or(Ok(()), |inner| mutate(u, inner))
        }
        Value::Array(list) if goes_down && !list.is_empty() => {
            let index = u.choose_index(list.len())?;
            list.get_mut(index).map_or(Ok(()), |inner| mutate(u, inner))
        }
        Value::Object(map) => change(u, map),
        Value::Array(list) => {
            let new = any(u, 3)?;
            match u.int_in_range(0..=2)? {
                0 => drop(list.pop()),
                1 => list.extend(list.clone()),
                _ => list.push(new),
            }
            Ok(())
        }
        other => {
            *other = any(u, 3)?;
            Ok(())
        }
    }
}

/// Add, replace, rename or remove a field.
fn change(u: &mut Unstructured<'_>, map: &mut Map<String, Value>) -> Result<()> {
    let old: Vec<String> = map.keys().cloned().collect();
    let new = (*u.choose(&WORDS)?).to_owned();
    match (u.int_in_range(0..=3)?, old.is_empty()) {
        (0, false) => drop(map.shift_remove(u.choose(&old)?)),
        (1, false) => {
            let value = map.shift_remove(u.choose(&old)?).unwrap_or_default();
            map.insert(new, value);
        }
        (2, false) => drop(map.insert(u.choose(&old)?.clone(), any(u, 3)?)),
        _ => drop(map.insert(new, any(u, 3)?)),
    }
    Ok(())
}

/// Return a value at the edge of what is expected.
fn any(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(match u.int_in_range(0..=13)? {
        0 => Value::Null,
        1 => bool::arbitrary(u)?.into(),
        2 => u.choose(&[0, 1, -1, 2, 7, 100, 4096, i64::MAX, i64::MIN, 1 << 31, -(1 << 31)]).copied()?.into(),
        3 => u.choose(&[0.0, -0.0, 0.5, 1e308, -1e308, 1e-308, 2.5, 1e19]).copied()?.into(),
        4 => u64::MAX.into(),
        5 => (*u.choose(&WORDS)?).into(),
        6 => (*u.choose(&TEXTS)?).into(),
        7 => String::arbitrary(u)?.into(),
        8 => u.choose(&TEXTS)?.repeat(u.int_in_range(0..=200)?).into(),
        9 => nested(u.int_in_range(0..=100)?),
        10 => serde_json::from_str(u.choose(&ENDPOINTS)?.2).unwrap_or_default(),
        11 if depth > 0 => Value::Array(vec![any(u, depth - 1)?; u.int_in_range(0..=20)?]),
        12 if depth > 0 => {
            let field = |u: &mut Unstructured<'_>| Ok(((*u.choose(&WORDS)?).to_owned(), any(u, depth - 1)?));
            let n = u.int_in_range(0..=4)?;
            Value::Object((0..n).map(|_| field(u)).collect::<Result<Map<String, Value>>>()?)
        }
        _ => json!([i32::arbitrary(u)?]),
    })
}

/// Return lists in lists.
fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, _| json!([inner]))
}
