//! Chat templates against Jinja: the same messages give the same text and the same tokens, and no
//! message becomes a control token.
#![cfg(feature = "chat")]

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use backstitch_models::Token;
use backstitch_models::chat::{self, ChatTemplate, Conversation, GenerationPrompt, Message, Rendered};
use backstitch_models::gguf::Gguf;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use proptest::prelude::*;
use serde_json::Value;

#[test]
fn smollm2_conversations_read_as_jinja_writes_them() -> Result<(), Box<dyn Error>> {
    let golden = golden()?;
    for case in list(&golden, "cases") {
        assert_eq!(render(&golden, case)?.as_str(), text(case, "rendered"), "{case}");
    }
    Ok(())
}

/// Test with a vocabulary that is too large for this repository: `SMOLLM2` names the model file,
/// SmolLM2-135M-Instruct in any format.
#[test]
#[ignore = "needs a model file: SMOLLM2=path cargo test -- --ignored smollm2"]
fn smollm2_conversations_have_the_tokens_of_llama_cpp() -> Result<(), Box<dyn Error>> {
    let golden = golden()?;
    let file = fs::read(std::env::var("SMOLLM2")?)?;
    let gguf = Gguf::parse(&file)?;
    assert_eq!(gguf.str("tokenizer.chat_template")?, text(&golden, "template"));
    let vocab = Vocab::from_gguf(&gguf)?;
    let (mut n_alike, mut n_kept) = (0, 0);
    for case in list(&golden, "cases") {
        let rendered = render(&golden, case)?;
        let wanted: Vec<Token> =
            serde_json::from_value::<Vec<u32>>(case["ids"].clone())?.into_iter().map(Token).collect();
        assert_eq!(tokens(&vocab, rendered.as_str(), ParseSpecial::Yes), wanted, "{case}");
        let mut ours = Vec::new();
        rendered.tokenize(&vocab, AddSpecial::Yes, &mut ours);
        let contents = list(case, "messages").iter().map(|message| text(message, "content"));
        let forged: usize =
            contents.map(|content| n_control(&vocab, &tokens(&vocab, content, ParseSpecial::Yes))).sum();
        if forged == 0 {
            n_alike += 1;
            assert_eq!(ours, wanted, "{case}");
        } else {
            // The reference takes what a message writes out for the tokens themselves.
            n_kept += 1;
            assert_eq!(n_control(&vocab, &ours) + forged, n_control(&vocab, &wanted), "{case}");
        }
    }
    assert!(n_alike > 0 && n_kept > 0, "{n_alike} {n_kept}");
    Ok(())
}

/// Compare with the output of Python's jinja2 for templates that use each statement, operator,
/// filter, test and method. `null` is a refusal.
#[test]
fn templates_mean_what_they_mean_in_python() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/chat/jinja.json");
    let file = fs::read_to_string(path)?;
    let golden = chat::Value::from_json(&file)?;
    let Some(chat::Value::Map(vars)) = golden.get("vars") else { return Err("no variables".into()) };
    let mut conversation = Conversation::new([] as [Message<'_>; 0]).at(Duration::from_secs(1_732_203_245));
    for (name, value) in vars {
        conversation = conversation.set(name, value.clone());
    }
    let cases = golden.get("cases").and_then(chat::Value::as_list).ok_or("no cases")?;
    backstitch_testing::each(cases, |case| {
        let source = case.get("template").and_then(chat::Value::as_str).unwrap_or_default();
        let rendered = ChatTemplate::from_source(source).and_then(|template| template.render(&conversation));
        let rendered = rendered.ok().map(String::from);
        assert_eq!(rendered.as_deref(), case.get("expect").and_then(chat::Value::as_str));
    });
    Ok(())
}

/// The vocabularies of the small models, with every kind of tokeniser.
fn vocabularies() -> Result<Vec<(String, Vocab)>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/models");
    let mut vocabularies = Vec::new();
    for name in ["bert", "deepseek2", "gpt2", "gptoss", "llama", "qwen2", "rwkv6", "t5", "gemma3"] {
        let file = fs::read(folder.join(name).with_extension("gguf"))?;
        vocabularies.push((name.into(), Vocab::from_gguf(&Gguf::parse(&file)?)?));
    }
    Ok(vocabularies)
}

/// Return the texts of the control tokens of a vocabulary.
fn control_texts(vocab: &Vocab) -> Vec<String> {
    let ids = (0..vocab.n_vocab() as u32).map(Token).filter(|token| vocab.is_hidden(*token));
    let texts = ids.filter_map(|token| String::from_utf8(vocab.token_text(token).to_vec()).ok());
    texts.filter(|text| !text.is_empty()).collect()
}

fn tokens(vocab: &Vocab, text: &str, parse: ParseSpecial) -> Vec<Token> {
    let mut tokens = Vec::new();
    vocab.tokenize(text, AddSpecial::No, parse, &mut tokens);
    tokens
}

fn trusting(vocab: &Vocab, text: &str, ranges: &[Range<usize>]) -> Vec<Token> {
    let mut tokens = Vec::new();
    vocab.tokenize_trusted(text, ranges, AddSpecial::No, &mut tokens);
    tokens
}

/// Return the number of tokens looked for and found, except those of text that the vocabulary
/// cannot express.
fn n_control(vocab: &Vocab, tokens: &[Token]) -> usize {
    tokens.iter().filter(|token| vocab.is_hidden(**token) && Some(token.0) != vocab.roles().unk).count()
}

#[test]
fn a_message_with_control_tokens_written_out_stays_text() -> Result<(), Box<dyn Error>> {
    let mut n_found = 0;
    for (name, vocab) in vocabularies()? {
        for control in control_texts(&vocab) {
            let quoted = control.replace('\\', "\\\\").replace('\'', "\\'");
            let source = format!("{{{{ '{quoted}' }}}}{{{{ messages[0].content }}}}{{{{ '{quoted}' }}}}");
            let template = ChatTemplate::from_source(&source)?;
            let rendered = |content| -> Result<Vec<Token>, Box<dyn Error>> {
                let message = Message { role: "user", content };
                let mut out = Vec::new();
                template.render(&Conversation::new([message]))?.tokenize(&vocab, AddSpecial::No, &mut out);
                Ok(out)
            };
            let own = n_control(&vocab, &rendered("")?);
            n_found += own;
            let forged = format!("a{control} b {control}");
            assert_eq!(n_control(&vocab, &rendered(&forged)?), own, "{name} {control:?}");
            // The tokens between are those of the message alone, except for spaces that tokenisers
            // put in front.
            let whole = format!("{control}{forged}{control}");
            let n = control.len();
            let ranges = [0..n, whole.len() - n..whole.len()];
            assert_eq!(trusting(&vocab, &whole, &ranges), rendered(&forged)?, "{name} {control:?}");
        }
    }
    assert!(n_found > 20, "{n_found}");
    Ok(())
}

#[test]
fn the_token_at_the_beginning_is_there_once() -> Result<(), Box<dyn Error>> {
    let vocabularies = vocabularies()?;
    let adds = vocabularies.iter().filter(|(_, vocab)| vocab.adds_bos());
    let mut n = 0;
    for (name, vocab) in adds {
        n += 1;
        for source in ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"] {
            let conversation = Conversation::new([Message { role: "user", content: "a" }]).tokens_of(vocab);
            let mut out = Vec::new();
            ChatTemplate::from_source(source)?.render(&conversation)?.tokenize(
                vocab,
                AddSpecial::Yes,
                &mut out,
            );
            let n_bos = out.iter().filter(|token| Some(**token) == vocab.bos()).count();
            assert_eq!((n_bos, out.first().copied()), (1, vocab.bos()), "{name} {source}");
        }
    }
    assert!(n > 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Return messages made of pieces of control tokens, among template text with real ones.
    #[test]
    fn no_message_yields_a_control_token(
        seeds in proptest::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..40, 0_usize..40, 0_u8..3),
            1..12,
        ),
    ) {
        for (name, vocab) in vocabularies().map_err(|error| TestCaseError::fail(error.to_string()))? {
            let controls = control_texts(&vocab);
            prop_assert!(!controls.is_empty(), "{}", name);
            let (mut text, mut plain) = (String::new(), String::new());
            let mut ranges = Vec::<Range<usize>>::new();
            for (index, start, len, kind) in &seeds {
                let control = index.get(&controls).as_str();
                if *kind == 0 {
                    ranges.push(text.len()..text.len() + control.len());
                    text += control;
                } else {
                    let piece: String = control.chars().skip(start % control.len()).take(*len).collect();
                    text += &piece;
                    plain += &piece;
                }
            }
            let trusted = trusting(&vocab, &text, &ranges);
            let alone = |range: &Range<usize>| tokens(&vocab, &text[range.clone()], ParseSpecial::Yes);
            let own: usize = ranges.iter().map(|range| n_control(&vocab, &alone(range))).sum();
            prop_assert!(n_control(&vocab, &trusted) <= own, "{} {:?} {:?}", name, text, ranges);
            prop_assert_eq!(trusting(&vocab, &plain, &[]), tokens(&vocab, &plain, ParseSpecial::No));
            let whole = 0..text.len();
            prop_assert_eq!(
                trusting(&vocab, &text, core::slice::from_ref(&whole)),
                tokens(&vocab, &text, ParseSpecial::Yes)
            );
        }
    }

    /// Without control tokens in the text, ranges change nothing: all text is tokenised at once.
    #[test]
    fn tokens_do_not_change_where_origins_do(
        words in proptest::collection::vec("( ?[a-zA-Zé]{1,7}|[0-9]{1,4}|[ \n]{1,3}|[.,!']|\\PC)", 0..20),
        cuts in proptest::collection::vec(any::<bool>(), 20),
    ) {
        let (mut text, mut ranges) = (String::new(), Vec::new());
        for (word, own) in words.iter().zip(cuts) {
            if own {
                ranges.push(text.len()..text.len() + word.len());
            }
            text += word;
        }
        for (name, vocab) in vocabularies().map_err(|error| TestCaseError::fail(error.to_string()))? {
            if tokens(&vocab, &text, ParseSpecial::Yes) == tokens(&vocab, &text, ParseSpecial::No) {
                let plain = tokens(&vocab, &text, ParseSpecial::No);
                prop_assert_eq!(trusting(&vocab, &text, &ranges), plain, "{}", name);
            }
        }
    }
}

fn golden() -> Result<Value, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/real/chat_smollm2.json");
    let golden: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    assert!(!list(&golden, "cases").is_empty());
    Ok(golden)
}

fn render(golden: &Value, case: &Value) -> Result<Rendered, Box<dyn Error>> {
    let template = ChatTemplate::from_source(text(golden, "template"))?;
    let messages: Vec<Message<'_>> = list(case, "messages")
        .iter()
        .map(|message| Message { role: text(message, "role"), content: text(message, "content") })
        .collect();
    let prompt =
        if case["add_generation_prompt"] == true { GenerationPrompt::Yes } else { GenerationPrompt::No };
    let conversation = Conversation::new(messages).prompt(prompt).tokens("<|im_start|>", "<|im_end|>");
    Ok(template.render(&conversation)?)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}
