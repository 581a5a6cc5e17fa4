//! An answer to continue stands in a conversation that is arranged like others.

use super::awkward::{awkward, demanding, said, sequences};
use super::*;

/// Return the prompt that continues the answer `begun` behind these messages.
fn continued(template: &Template, messages: &[Value]) -> Result<String, ConversationError> {
    let messages: Vec<Value> = messages.iter().cloned().chain([said("assistant", "begun ".into())]).collect();
    let request = chat(json!({ "messages": messages }))?;
    assert!(request.continues.is_some());
    Ok(template.prompt(&request, model().vocab(), Thinking::Auto)?.text)
}

#[test]
fn an_answer_is_continued_behind_every_conversation() {
    let conversations = awkward();
    backstitch_testing::each(demanding(), |(name, source)| {
        let template = Template::new(source).unwrap();
        let named = conversations.iter().map(|(talk, messages)| {
            let messages = messages.as_array().unwrap().clone();
            ((*talk).to_owned(), messages)
        });
        let orders = (0..=2).flat_map(sequences).map(|messages| (json!(messages).to_string(), messages));
        for (talk, messages) in named.chain(orders) {
            let text =
                continued(&template, &messages).unwrap_or_else(|error| panic!("{name}: {talk}: {error}"));
            assert!(text.ends_with("begun "), "{name}: {talk}: {text}");
            let request = chat(json!({"messages": messages, "add_generation_prompt": false})).unwrap();
            for message in &request.messages {
                let content = message.content.joined("\n");
                content
                    .split('\n')
                    .for_each(|word| assert!(text.contains(word), "{name}: {talk}: {word} in {text}"));
            }
        }
    });
}

#[test]
fn an_answer_before_the_continued_one_joins_it_where_speakers_take_turns() {
    let messages = [said("user", "u".into()), said("assistant", "a".into())];
    let template = |name: &str| {
        let source = demanding().into_iter().find(|(other, _)| *other == name).unwrap().1;
        Template::new(&source).unwrap()
    };
    assert_eq!(continued(&template("turns"), &messages).unwrap(), "<user>ua\nbegun ");
    assert_eq!(continued(&template("nothing"), &messages).unwrap(), "<user>u<assistant>abegun ");
    assert_eq!(continued(&template("the user first"), &[]).unwrap(), "<user>begun ");
}
