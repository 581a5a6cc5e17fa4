//! Chat templates.

use crate::border::{Flag, In, Out, Text, exports};
use crate::error::Error;
use crate::layouts::ChatMessage;
use backstitch_models::chat::{ChatTemplate, Conversation, GenerationPrompt, Message};
use std::ffi::{CStr, c_char};

/// Templates that have a name: the name, and the template in Jinja.
const NAMED: [(&CStr, &str); 4] = [
    (
        c"chatml",
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    ),
    (
        c"llama3",
        "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + (m.content | trim) \
         + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}\
         {{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ),
    (
        c"phi3",
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    ),
    (
        c"zephyr",
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|endoftext|>\\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    ),
];

/// Return the Jinja source of a template or of a name; chatml's for null.
fn source(template: &Text) -> Result<&str, Error> {
    let text = if template.is_null() { "chatml" } else { template.str("tmpl")? };
    let named = NAMED.iter().find(|(name, _)| name.to_bytes() == text.as_bytes());
    Ok(named.map_or(text, |(_, source)| source))
}

exports! {
    /// Write the text that a template makes of a conversation as far as it fits into `length`
    /// bytes, and a zero if there is room; return the length of the whole text, or -1 if the
    /// template cannot be used.
    fn llama_chat_apply_template(
        template: Text, chat: In<ChatMessage>, n_msg: usize, add_assistant: Flag, buf: Out<u8>, length: i32,
    ) -> i32 = [-1] {
        let template = ChatTemplate::from_source(source(&template)?)?;
        let mut messages = Vec::new();
        for message in chat.slice(n_msg, "chat")? {
            // SAFETY: the C program claims that both texts of a message are null, or end with a
            // zero and stay during the call.
            let role = unsafe { Text::new(message.role) };
            // SAFETY: as for the role.
            let content = unsafe { Text::new(message.content) };
            messages.push((role.str("chat.role")?.to_owned(), content.str("chat.content")?.to_owned()));
        }
        let messages = messages.iter().map(|(role, content)| Message { role, content });
        let prompt = if add_assistant != 0 { GenerationPrompt::Yes } else { GenerationPrompt::No };
        let rendered = template.render(&Conversation::new(messages).prompt(prompt))?;
        let bytes = rendered.as_str().as_bytes();
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
        let names: Vec<*const c_char> = NAMED.iter().map(|(name, _)| name.as_ptr()).take(len).collect();
        output.fill(&names, "output")?;
        Ok(NAMED.len() as i32)
    }
}
