//! Chat templates against Jinja: the same messages give the same text, and that the same tokens.
#![cfg(feature = "chat")]

use std::error::Error;
use std::fs;
use std::path::Path;

use backstitch_models::Token;
use backstitch_models::chat::{ChatTemplate, GenerationPrompt, Message};
use backstitch_models::gguf::Gguf;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use serde_json::Value;

#[test]
fn smollm2_conversations_read_as_jinja_writes_them() -> Result<(), Box<dyn Error>> {
    let golden = golden()?;
    for case in list(&golden, "cases") {
        assert_eq!(render(&golden, case)?, text(case, "rendered"), "{case}");
    }
    Ok(())
}

/// The vocabulary is too large for this repository: `SMOLLM2` names the model file, SmolLM2-135M-Instruct in any format.
#[test]
#[ignore = "needs a model file: SMOLLM2=path cargo test -- --ignored smollm2"]
fn smollm2_conversations_have_the_tokens_of_llama_cpp() -> Result<(), Box<dyn Error>> {
    let golden = golden()?;
    let file = fs::read(std::env::var("SMOLLM2")?)?;
    let gguf = Gguf::parse(&file)?;
    assert_eq!(gguf.str("tokenizer.chat_template")?, text(&golden, "template"));
    let vocab = Vocab::from_gguf(&gguf)?;
    for case in list(&golden, "cases") {
        let mut tokens = Vec::new();
        vocab.tokenize(&render(&golden, case)?, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
        let wanted = list(case, "ids").iter().filter_map(|id| Some(Token(id.as_u64()?.try_into().ok()?)));
        assert_eq!(tokens, wanted.collect::<Vec<_>>(), "{case}");
    }
    Ok(())
}

fn golden() -> Result<Value, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/real/chat_smollm2.json");
    let golden: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    assert!(!list(&golden, "cases").is_empty());
    Ok(golden)
}

fn render(golden: &Value, case: &Value) -> Result<String, Box<dyn Error>> {
    let template = ChatTemplate::from_source(text(golden, "template"))?;
    let messages: Vec<Message<'_>> = list(case, "messages")
        .iter()
        .map(|message| Message { role: text(message, "role"), content: text(message, "content") })
        .collect();
    let prompt =
        if case["add_generation_prompt"] == true { GenerationPrompt::Yes } else { GenerationPrompt::No };
    Ok(template.render(&messages, prompt, "<|im_start|>", "<|im_end|>")?)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}
