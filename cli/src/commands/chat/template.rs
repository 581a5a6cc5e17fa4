//! The chat template of a conversation: the one of the model, or another that was asked for.
//!
//! A model without a template gets ChatML, which most models have met. Where the vocabulary lacks
//! ChatML's control tokens, their texts end an answer instead.

use super::refused;
use crate::error::Error;
use crate::whole_file;
use backstitch_models::chat::ChatTemplate;
use backstitch_models::chat::reply::Format;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use backstitch_models::{Model, Token};
use std::path::Path;

/// A template known by name, and the texts with which it ends messages.
struct Known {
    /// The name that a person types.
    name: &'static str,
    /// The source in Jinja.
    source: &'static str,
    /// Texts that no answer contains.
    ends: &'static [&'static str],
}

/// The name of the template for models without one.
const DEFAULT: &str = "chatml";

/// The templates that `--chat-template` takes by name.
const KNOWN: [Known; 6] = [
    Known {
        name: DEFAULT,
        source: "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                 {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        ends: &["<|im_end|>", "<|im_start|>"],
    },
    Known {
        name: "gemma",
        source: "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}\
                 {% if m.role == 'system' %}{% set ns.system = m.content + '\n\n' %}{% else %}\
                 <start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n\
                 {{ ns.system }}{{ m.content }}<end_of_turn>\n{% set ns.system = '' %}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        ends: &["<end_of_turn>", "<start_of_turn>"],
    },
    Known {
        name: "llama2",
        source: "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}\
                 {% set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}{% elif m.role == 'user' %}\
                 {{ bos_token }}[INST] {{ ns.system }}{{ m.content }} [/INST]{% set ns.system = '' %}\
                 {% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}",
        ends: &["[INST]"],
    },
    Known {
        name: "llama3",
        source: "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n\
                 {{ m.content }}<|eot_id|>{% endfor %}\
                 {% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ends: &["<|eot_id|>", "<|start_header_id|>"],
    },
    Known {
        name: "phi3",
        source: "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}\
                 {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        ends: &["<|end|>", "<|user|>"],
    },
    Known {
        name: "zephyr",
        source: "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}\
                 {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        ends: &["<|user|>"],
    },
];

/// The template of a conversation.
pub struct Template {
    /// The parsed template.
    pub parsed: ChatTemplate,
    /// Its source if it is not the model's own, to be saved with the conversation.
    pub source: Option<String>,
    /// Texts that end an answer, because the vocabulary has no control token for them.
    pub ends: Vec<String>,
    /// The markers that the model writes around its reasoning.
    pub format: Format,
}

impl Template {
    /// Choose the template: `wanted`, or the model's own, or [`DEFAULT`].
    ///
    /// # Errors
    /// - [`Error::Refused`] if `wanted` is no name, no file and no template, or the template cannot
    ///   be parsed.
    /// - [`Error::Read`] if it is a file that cannot be read.
    pub fn choose(wanted: Option<&str>, model: &Model) -> Result<Self, Error> {
        match wanted {
            Some(wanted) => match known(wanted) {
                Some(known) => Self::of_known(known, model.vocab()),
                None => Self::of_source(source(wanted)?, model.vocab()),
            },
            None => match (model.chat_template(), known(DEFAULT)) {
                (None, Some(known)) => Self::of_known(known, model.vocab()),
                (own, _) => {
                    let own = own.unwrap_or_default();
                    let parsed = ChatTemplate::from_source(own).map_err(refused)?;
                    Ok(Self { parsed, source: None, ends: Vec::new(), format: Format::of_template(own) })
                }
            },
        }
    }

    /// Make a template of its source. The texts that end an answer are those of the known template
    /// with this source.
    ///
    /// # Errors
    /// [`Error::Refused`] if it cannot be parsed.
    pub fn of_source(source: String, vocab: &Vocab) -> Result<Self, Error> {
        let ends = KNOWN.iter().find(|known| known.source == source).map_or(&[][..], |known| known.ends);
        let ends = ends.iter().filter(|end| !is_token(vocab, end)).map(|end| (*end).into()).collect();
        let parsed = ChatTemplate::from_source(&source).map_err(refused)?;
        let format = Format::of_template(&source);
        Ok(Self { parsed, source: Some(source), ends, format })
    }

    /// Make the template of an entry of the table.
    ///
    /// # Errors
    /// Those of [`Self::of_source`]; a test parses all of them.
    fn of_known(known: &Known, vocab: &Vocab) -> Result<Self, Error> {
        Self::of_source(known.source.into(), vocab)
    }

    /// Return the control tokens around reasoning.
    pub fn markers(&self, vocab: &Vocab) -> Vec<Token> {
        let hidden = |text: &str| vocab.find(text.as_bytes()).filter(|token| vocab.is_hidden(*token));
        let Some((open, close)) = self.format.reasoning() else { return Vec::new() };
        // Where reasoning is a message of its own, all tokens of its headers are needed to see it.
        let is_message = open.contains("<|message|>") || close == "<|end|>";
        match [open, close].map(hidden) {
            [Some(open), Some(close)] if !is_message => vec![open, close],
            _ => {
                let tokens = self.format.marker_tokens(&|text| hidden(text).map(|token| token.0));
                tokens.into_iter().map(Token).collect()
            }
        }
    }
}

/// Return the template of that name.
fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// Return true if a text is one token.
fn is_token(vocab: &Vocab, text: &str) -> bool {
    let mut tokens = Vec::new();
    vocab.tokenize(text, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
    tokens.len() == 1
}

/// Return the source of a template that was given as such, or as a file.
fn source(wanted: &str) -> Result<String, Error> {
    if wanted.contains("{{") || wanted.contains("{%") {
        return Ok(wanted.into());
    }
    if !Path::new(wanted).exists() {
        let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
        return Err(Error::Refused(format!(
            "--chat-template {wanted}: no such file, and none of {}; a template in Jinja has {{{{ or {{%",
            names.join(", ")
        )));
    }
    whole_file::written(Path::new(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_models::chat::{Conversation, Message};
    use backstitch_models::vocab::VocabSource;

    fn model() -> Model {
        Model::from_bytes(crate::embedded::GGUF).unwrap()
    }

    #[test]
    fn known_templates_end_at_the_beginning_of_an_answer() {
        for known in &KNOWN {
            let messages = [("system", "be brief"), ("user", "hello"), ("assistant", "hi"), ("user", "bye")];
            let messages = messages.map(|(role, content)| Message { role, content });
            let template = Template::choose(Some(known.name), &model()).unwrap();
            let text = template.parsed.render(&Conversation::new(messages).tokens("<s>", "</s>")).unwrap();
            let at =
                |part: &str| text.as_str().find(part).unwrap_or_else(|| panic!("{}: {text}", known.name));
            assert!(at("be brief") < at("hello") && at("hello") < at("hi") && at("hi") < at("bye"), "{text}");
            assert!(!text.as_str().ends_with("bye"), "{text}");
        }
    }

    #[test]
    fn the_control_tokens_around_reasoning_are_kept() {
        let control =
            ["<|think|>", "<|end|>", "<|begin|>", "<|content|>", "[THINK]", "[/THINK]", "[TOOL_CALLS]"];
        let tokens = [&control[..], &["a"]].concat();
        let types = [vec![3; control.len()], vec![1]].concat();
        let vocab =
            Vocab::new(&VocabSource { model: "gpt2", tokens: &tokens, types, ..VocabSource::default() });
        let vocab = vocab.unwrap();
        let kept = |source: &str| {
            let mut ids: Vec<u32> = Template::of_source(source.into(), &vocab)
                .unwrap()
                .markers(&vocab)
                .iter()
                .map(|t| t.0)
                .collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        assert_eq!(kept("[THINK] [TOOL_CALLS]"), [4, 5]);
        // Here reasoning is a message of its own, with a header behind it.
        assert_eq!(
            kept("<|think|> <|end|> <|begin|>assistant<|content|> <|tool_call:begin|><|tool_call:args|>"),
            [0, 1, 2, 3]
        );
        assert!(kept("{{ messages }}").is_empty());
    }

    #[test]
    fn a_model_without_template_gets_chatml_and_stops_at_its_texts() {
        let template = Template::choose(None, &model()).unwrap();
        assert_eq!(template.ends, ["<|im_end|>", "<|im_start|>"]);
        let messages = [Message { role: "user", content: "Hi" }];
        let text = template.parsed.render(&Conversation::new(messages)).unwrap();
        assert_eq!(text.as_str(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn a_template_is_a_name_a_source_or_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{{ messages[0].content }}").unwrap();
        for wanted in ["{{ messages[0].content }}", file.path().to_str().unwrap()] {
            let source = Template::choose(Some(wanted), &model()).unwrap().source;
            assert_eq!(source.as_deref(), Some("{{ messages[0].content }}"));
        }
        for wrong in ["chatlm", "{% if %}"] {
            assert!(matches!(Template::choose(Some(wrong), &model()), Err(Error::Refused(_))), "{wrong}");
        }
    }
}
