//! Answers of real models, taken apart as the server does it.
//!
//! `.ci/canitoolcall` prepares the cases, and judges what is made of them.

use super::super::schema::standalone;
use super::super::turn::{callable, described};
use super::*;
use backstitch_models::Cancel;
use backstitch_models::chat::reply::{Format, Options, ReasoningFormat, Reply};
use std::io::{BufRead, BufReader};

/// Take an answer apart that comes in these pieces.
fn replay(format: &Format, options: &Options, pieces: &[String]) -> Value {
    let mut speaker = Speaker::new(format, options);
    let mut streamed = Reply::default();
    for piece in pieces {
        speaker.write(piece, &[]).iter().for_each(|delta| streamed.add(delta));
    }
    speaker.finish().iter().for_each(|delta| streamed.add(delta));
    assert_eq!(streamed.content, speaker.reply().content, "a stream adds up to the whole");
    let calls = streamed.tool_calls.iter();
    let calls = calls.map(|call| json!({"name": call.name, "arguments_raw": call.arguments}));
    json!({
        "content": streamed.content,
        "reasoning_content": streamed.reasoning,
        "tool_calls": calls.collect::<Vec<_>>(),
    })
}

/// Return what the server makes of a case: a template, tools, and an answer in several ways of
/// cutting it into pieces.
fn answer(case: &Value) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let template = Template::new(&std::fs::read_to_string(case["template"].as_str().unwrap_or_default())?)?;
    let request = Request::from_chat(case["request"].as_object().ok_or("a request")?)?;
    let prompt = template.of_request(&request).prompt(&request, model().vocab(), Thinking::Auto)?;
    let format = template.reply_format(request.may_call());
    let tools = callable(&request)?;
    let schemas: Vec<Value> =
        tools.iter().map(|tool| standalone(&tool.parameters, &Cancel::new()).0).collect();
    let options = Options::default()
        .reasoning(ReasoningFormat::Deepseek)
        .parallel(true)
        .thinking_forced_open(prompt.in_reasoning)
        .prompt(&prompt.generation_prompt)
        .tools(&described(&tools, &schemas));
    let ways: Vec<Vec<String>> = serde_json::from_value(case["ways"].clone())?;
    Ok(ways.iter().map(|pieces| replay(&format, &options, pieces)).collect())
}

#[test]
#[ignore = "needs cases that .ci/canitoolcall prepares"]
fn answers_of_real_models_are_taken_apart() {
    let [cases, results] = ["REPLAY_CASES", "REPLAY_RESULTS"].map(|name| std::env::var(name).unwrap());
    let mut told = String::new();
    for line in BufReader::new(std::fs::File::open(cases).unwrap()).lines() {
        let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let result = match answer(&case) {
            Ok(ways) => json!({"id": case["id"], "ways": ways}),
            Err(error) => json!({"id": case["id"], "error": error.to_string()}),
        };
        told += &format!("{result}\n");
    }
    std::fs::write(results, told).unwrap();
}
