//! The chat template of the server: the model's, one that was given, or one with a name.

use crate::args::AnswerArgs;
use crate::error::Error;
use backstitch_models::chat::ChatTemplate;

/// Templates by llama.cpp's names.
const NAMED: [(&str, &str); 8] = [
    (
        "chatml",
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    ),
    (
        "llama3",
        "{% for m in messages %}\
         {{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}\
         {% endfor %}\
         {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ),
    (
        "command-r",
        "{% for m in messages %}{% set role = {'system': 'SYSTEM', 'user': 'USER'}.get(m.role, 'CHATBOT') %}\
         {{ '<|START_OF_TURN_TOKEN|><|' + role + '_TOKEN|>' + m.content | trim + '<|END_OF_TURN_TOKEN|>' }}\
         {% endfor %}\
         {% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
    ),
    (
        "gemma",
        "{% set ns = namespace(system='') %}{% for m in messages %}\
         {% if m.role == 'system' %}{% set ns.system = m.content | trim + '\\n\\n' %}{% else %}\
         {{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}\
         {% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}\
         {{ m.content | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}\
         {% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    ),
    (
        "phi3",
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    ),
    (
        "phi4",
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}\
         {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    ),
    (
        "zephyr",
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|endoftext|>\\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    ),
    (
        "vicuna",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}\
         {% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}\
         {% else %}{{ 'ASSISTANT: ' + m.content + '</s>\\n' }}{% endif %}{% endfor %}\
         {% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    ),
];

/// Return the source of the template that was asked for; `None` for the model's.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read; [`Error::Refused`] if a name is unknown or the
/// template cannot be parsed.
pub fn read(args: &AnswerArgs) -> Result<Option<String>, Error> {
    let source = match (&args.chat_template, &args.chat_template_file) {
        (Some(text), _) if text.contains(['{', ' ']) => text.clone(),
        (Some(name), _) => named(name)?.to_owned(),
        (None, Some(path)) => {
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source })?
        }
        (None, None) => return Ok(None),
    };
    match ChatTemplate::from_source(&source) {
        Ok(_) => Ok(Some(source)),
        Err(error) => Err(Error::Refused(format!("--chat-template: {error}"))),
    }
}

fn named(name: &str) -> Result<&'static str, Error> {
    let known = NAMED.iter().find(|(known, _)| *known == name).map(|(_, source)| *source);
    known.ok_or_else(|| {
        let names = NAMED.map(|(name, _)| name).join(", ");
        Error::Refused(format!("--chat-template {name}: there are {names}; or give a template in Jinja"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_models::chat::{Conversation, Message};

    #[test]
    fn named_templates_render() {
        let messages = ["system", "user", "assistant", "user"].map(|role| Message { role, content: "text" });
        for (name, source) in NAMED {
            let template =
                ChatTemplate::from_source(source).unwrap_or_else(|error| panic!("{name}: {error}"));
            let rendered = template
                .render(&Conversation::new(messages))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(
                rendered.as_str().matches("text").count(),
                4 + usize::from(name == "zephyr") * 4,
                "{name}"
            );
        }
    }
}
