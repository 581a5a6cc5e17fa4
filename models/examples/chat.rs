//! A chat that branches: the same question is answered twice from one shared past, then one of the
//! answers is continued.
//!
//! ```text
//! cargo run --release --example chat [model.gguf]
//! ```

use backstitch_models::chat::{ChatTemplate, Conversation, Message};
use backstitch_models::sampler::Settings;
use backstitch_models::session::{GenerateOptions, Session};
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Context, Model, Params, Token};
use std::error::Error;

/// A template for models without one, such as the default model of this example.
const PLAIN: &str = "{% for m in messages %}{{ m.content }}{{ '' if loop.last else ' ' }}{% endfor %}";

/// Messages, each with the name of its speaker.
type Messages = Vec<(&'static str, String)>;

fn main() -> Result<(), Box<dyn Error>> {
    let model = match std::env::args_os().nth(1) {
        Some(path) => Model::open(path)?,
        None => Model::from_bytes(backstitch_demo::GGUF)?,
    };
    let template = ChatTemplate::from_source(model.chat_template().unwrap_or(PLAIN))?;
    let ctx = Context::new(&model, Params::default().n_ctx(512).n_seq_max(2))?;
    let mut session = Session::new(ctx, &Settings::default().seed(1))?;

    let mut messages: Messages = vec![("user", "Once there was a cat who could not sleep.".into())];
    session.set_tokens(&tokens(&model, &template, &messages)?)?;

    // Two answers. The question is not re-evaluated, and no cell is copied before one of them
    // changes it.
    let (first, second) = (session.current(), session.branch()?);
    session.switch(second)?.reseed(2);
    let other = answer(&mut session)?;
    session.switch(first)?;
    let one = answer(&mut session)?;
    println!("one answer:     {one}\nanother answer: {other}");

    // Continue the second answer. Only tokens behind the end of its branch are evaluated.
    session.switch(second)?;
    messages.extend([("assistant", other), ("user", "Then the moon said to her,".into())]);
    let reuse = session.set_tokens(&tokens(&model, &template, &messages)?)?;
    println!("{reuse:?}");
    println!("followed up:    {}", answer(&mut session)?);
    Ok(())
}

/// Generate at most 40 tokens of one line.
fn answer(session: &mut Session) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for chunk in session.generate(GenerateOptions::default().limit(40).stop("\n")) {
        text += &chunk?.text;
    }
    Ok(text.trim().into())
}

/// Return the tokens of the conversation as the model was trained to read it. Text that users typed
/// cannot become control tokens.
fn tokens(model: &Model, template: &ChatTemplate, messages: &Messages) -> Result<Vec<Token>, Box<dyn Error>> {
    let messages = messages.iter().map(|(role, content)| Message { role, content });
    let rendered = template.render(&Conversation::new(messages).tokens_of(model.vocab()))?;
    let mut tokens = Vec::new();
    rendered.tokenize(model.vocab(), AddSpecial::Start, &mut tokens);
    Ok(tokens)
}
