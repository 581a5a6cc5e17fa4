//! Templates by name, and ChatML for models without one.

/// ChatML, the template of models that have none.
pub const CHATML: &str = "{%- for message in messages -%}\
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\
{%- endfor -%}\
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

/// The texts around the messages of a role.
type Around = (&'static str, &'static str);

/// A template that is the same text around every message of a role.
struct Plain {
    name: &'static str,
    system: Around,
    user: Around,
    assistant: Around,
    /// The beginning of the assistant's next message.
    generation: &'static str,
}

/// The plain templates, by the names that llama.cpp gives them.
const PLAIN: [Plain; 14] = [
    Plain {
        name: "llama3",
        system: ("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        user: ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        assistant: ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        generation: "<|start_header_id|>assistant<|end_header_id|>\n\n",
    },
    Plain {
        name: "command-r",
        system: ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        user: ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        assistant: ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        generation: "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    },
    Plain {
        name: "phi3",
        system: ("<|system|>\n", "<|end|>\n"),
        user: ("<|user|>\n", "<|end|>\n"),
        assistant: ("<|assistant|>\n", "<|end|>\n"),
        generation: "<|assistant|>\n",
    },
    Plain {
        name: "phi4",
        system: ("<|im_start|>system<|im_sep|>", "<|im_end|>"),
        user: ("<|im_start|>user<|im_sep|>", "<|im_end|>"),
        assistant: ("<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
        generation: "<|im_start|>assistant<|im_sep|>",
    },
    Plain {
        name: "falcon3",
        system: ("<|system|>\n", "\n"),
        user: ("<|user|>\n", "\n"),
        assistant: ("<|assistant|>\n", "\n"),
        generation: "<|assistant|>\n",
    },
    Plain {
        name: "zephyr",
        system: ("<|system|>\n", "<|endoftext|>\n"),
        user: ("<|user|>\n", "<|endoftext|>\n"),
        assistant: ("<|assistant|>\n", "<|endoftext|>\n"),
        generation: "<|assistant|>\n",
    },
    Plain {
        name: "monarch",
        system: ("<s>system\n", "</s>\n"),
        user: ("<s>user\n", "</s>\n"),
        assistant: ("<s>assistant\n", "</s>\n"),
        generation: "<s>assistant\n",
    },
    Plain {
        name: "vicuna",
        system: ("", "\n\n"),
        user: ("USER: ", "\n"),
        assistant: ("ASSISTANT: ", "</s>\n"),
        generation: "ASSISTANT:",
    },
    Plain {
        name: "deepseek",
        system: ("", ""),
        user: ("### Instruction:\n", "\n"),
        assistant: ("### Response:\n", "\n<|EOT|>\n"),
        generation: "### Response:\n",
    },
    Plain {
        name: "deepseek2",
        system: ("", "\n\n"),
        user: ("User: ", "\n\n"),
        assistant: ("Assistant: ", "<｜end▁of▁sentence｜>"),
        generation: "Assistant:",
    },
    Plain {
        name: "deepseek3",
        system: ("", "\n\n"),
        user: ("<｜User｜>", ""),
        assistant: ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        generation: "<｜Assistant｜>",
    },
    Plain {
        name: "chatglm4",
        system: ("<|system|>\n", ""),
        user: ("<|user|>\n", ""),
        assistant: ("<|assistant|>\n", ""),
        generation: "<|assistant|>\n",
    },
    Plain {
        name: "exaone3",
        system: ("[|system|]", "[|endofturn|]\n"),
        user: ("[|user|]", "\n"),
        assistant: ("[|assistant|]", "[|endofturn|]\n"),
        generation: "[|assistant|]",
    },
    Plain {
        name: "granite",
        system: ("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
        user: ("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        assistant: ("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"),
        generation: "<|start_of_role|>assistant<|end_of_role|>",
    },
];

impl Plain {
    /// Return the source of the template.
    fn source(&self) -> String {
        let quoted = |text: &str| format!("{{{{- '{}' -}}}}", text.replace('\n', "\\n"));
        let message = |(before, after): Around| {
            format!("{}{{{{- message.content | trim -}}}}{}", quoted(before), quoted(after))
        };
        format!(
            "{{%- for message in messages -%}}{{%- if message.role == 'system' -%}}{}\
             {{%- elif message.role == 'assistant' -%}}{}{{%- else -%}}{}{{%- endif -%}}{{%- endfor -%}}\
             {{%- if add_generation_prompt -%}}{}{{%- endif -%}}",
            message(self.system),
            message(self.assistant),
            message(self.user),
            quoted(self.generation),
        )
    }
}

/// The template of Gemma, whose messages of the system stand before the user's.
const GEMMA: &str = "{%- set ns = namespace(system='') -%}\
{%- for message in messages -%}\
{%- if message.role == 'system' -%}{%- set ns.system = ns.system + message.content | trim + '\\n\\n' -%}\
{%- elif message.role == 'assistant' -%}\
{{- '<start_of_turn>model\\n' + message.content | trim + '<end_of_turn>\\n' -}}\
{%- else -%}{{- '<start_of_turn>user\\n' + ns.system + message.content | trim + '<end_of_turn>\\n' -}}\
{%- set ns.system = '' -%}{%- endif -%}{%- endfor -%}\
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}";

/// The template of Llama 2 and of Mistral's first models.
const LLAMA2: &str = "{%- set ns = namespace(system='') -%}\
{%- for message in messages -%}\
{%- if message.role == 'system' -%}{%- set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' -%}\
{%- elif message.role == 'assistant' -%}{{- message.content + eos_token -}}\
{%- else -%}{{- '[INST] ' + ns.system + message.content + ' [/INST]' -}}{%- set ns.system = '' -%}\
{%- endif -%}{%- endfor -%}";

/// Return the source of the template that llama.cpp knows by this name.
///
/// # Example
/// ```
/// use backstitch_server::conversation::{CHATML, builtin_template};
///
/// assert_eq!(builtin_template("chatml").as_deref(), Some(CHATML));
/// assert_eq!(builtin_template("{{ messages }}"), None);
/// ```
pub fn builtin_template(name: &str) -> Option<String> {
    match name {
        "chatml" => Some(CHATML.into()),
        "gemma" => Some(GEMMA.into()),
        "llama2" | "llama2-sys" => Some(LLAMA2.into()),
        name => PLAIN.iter().find(|plain| plain.name == name).map(Plain::source),
    }
}

/// Return the texts that no answer contains, if `source` is that of a known template: the end of
/// the assistant's message, and the beginning of the next one where nothing else begins like it.
pub(super) fn ends(source: &str) -> Vec<&'static str> {
    match source {
        CHATML => vec!["<|im_end|>", "<|im_start|>"],
        GEMMA => vec!["<end_of_turn>", "<start_of_turn>"],
        LLAMA2 => vec!["[INST]"],
        _ => {
            let plain = PLAIN.iter().find(|plain| plain.source() == source);
            let end = plain.map(|plain| plain.assistant.1.trim());
            end.into_iter().filter(|end| !end.is_empty()).collect()
        }
    }
}

/// Return the names of the known templates.
pub fn builtin_names() -> Vec<&'static str> {
    ["chatml", "gemma", "llama2"].into_iter().chain(PLAIN.iter().map(|plain| plain.name)).collect()
}
