//! Chat templates.
//!
//! llama.h's function knows formats, not Jinja: programs evaluate what a message adds to the text
//! of the conversation before it, which Jinja may write anew. So templates with the marks of a
//! format are that format (`detect`), written by a table (`formats`); only others are Jinja.

mod detect;
mod formats;

use crate::border::{Flag, In, Out, Text, exports};
use crate::error::Error;
use crate::layouts::ChatMessage;
use backstitch_models::chat::{ChatTemplate, Conversation, GenerationPrompt, Message};
use formats::FORMATS;
use std::ffi::c_char;

/// Return the text of a conversation by a template of Jinja.
fn rendered(source: &str, chat: &[formats::Message], asks: bool) -> Result<String, Error> {
    if !source.contains("{{") && !source.contains("{%") {
        return Err(Error::Absent { what: "a chat template of that name" });
    }
    let template = ChatTemplate::from_source(source)?;
    let messages = chat.iter().map(|(role, content)| Message { role, content });
    let prompt = if asks { GenerationPrompt::Yes } else { GenerationPrompt::No };
    Ok(template.render(&Conversation::new(messages).prompt(prompt))?.as_str().to_owned())
}

exports! {
    /// Write the text that a template makes of a conversation as far as it fits into `length`
    /// bytes, and a zero if there is room; return the length of the whole text, or -1 if the
    /// template cannot be used. `template` is the name of a format, chatml for null, or a template
    /// of Jinja; one that bears the marks of a format is that.
    fn llama_chat_apply_template(
        template: Text, chat: In<ChatMessage>, n_msg: usize, add_assistant: Flag, buf: Out<u8>, length: i32,
    ) -> i32 = [-1] {
        let source = if template.is_null() { "chatml" } else { template.str("tmpl")? };
        let mut messages = Vec::new();
        for message in chat.slice(n_msg, "chat")? {
            // SAFETY: the C program claims that both texts of a message are null, or end with a
            // zero and stay during the call.
            let role = unsafe { Text::new(message.role) };
            // SAFETY: as for the role.
            let content = unsafe { Text::new(message.content) };
            // A text that was cut within a character is no reason to refuse a conversation.
            let content = String::from_utf8_lossy(content.bytes("chat.content")?).into_owned();
            messages.push((role.str("chat.role")?.to_owned(), content));
        }
        let text = match detect::format(source) {
            Some(format) => format.text(&messages, add_assistant != 0),
            None => rendered(source, &messages, add_assistant != 0)?,
        };
        let bytes = text.as_bytes();
        let n = usize::try_from(length).unwrap_or(0).min(bytes.len());
        if !buf.is_null() {
            let mut text = bytes.get(..n).unwrap_or_default().to_vec();
            // Programs that made room for more than the text expect it to end like a string of C.
            text.extend((n < usize::try_from(length).unwrap_or(0)).then_some(0));
            buf.fill(&text, "buf")?;
        }
        Ok(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
    }

    /// Write the names of the templates that have one, as many as fit, and return their number.
    fn llama_chat_builtin_templates(output: Out<*const c_char>, len: usize) -> i32 = [0] {
        let names: Vec<*const c_char> = FORMATS.iter().map(|format| format.name.as_ptr()).take(len).collect();
        output.fill(&names, "output")?;
        Ok(FORMATS.len() as i32)
    }
}
