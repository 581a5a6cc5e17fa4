//! The formats of conversations that have a name in llama.h.
//!
//! A format writes each message by its role and keeps what it wrote of earlier ones, so the text of
//! a conversation begins with the text of its beginning. Programs rely on that: they evaluate what
//! a message adds.

use std::ffi::CStr;

/// A message: the role of the speaker, and the text.
pub type Message = (String, String);

/// A format: the texts around messages.
///
/// `roles` gives the text of a message by its role, where these have a meaning in braces: `c` the
/// content, `t` the content without blanks around it, `r` the role, `R` the role in capitals, `U`
/// the role with a capital at its beginning, `s` the content that was held back, with an empty line
/// behind it, `+c` and `+t` hold the content back. The role `^x` is `x` of the first message, `$x`
/// that of the last one; a role without name is any other. A message of a role that is not there
/// has no text.
pub struct Format {
    /// The name.
    pub name: &'static CStr,
    /// The text before all messages.
    start: &'static str,
    /// The text in the place of the instructions, if the conversation begins with something else.
    unless_system: &'static str,
    /// The text before a message behind an answer; also before the first unless there is a `start`.
    open: &'static str,
    roles: &'static [(&'static str, &'static str)],
    /// The text that asks for an answer.
    prompt: &'static str,
}

/// Return a format of messages that stand alone.
const fn of_roles(
    name: &'static CStr,
    roles: &'static [(&'static str, &'static str)],
    prompt: &'static str,
) -> Format {
    Format { name, start: "", unless_system: "", open: "", roles, prompt }
}

/// Return a format that opens a turn before a message behind an answer, and asks for nothing.
const fn of_turns(
    name: &'static CStr,
    start: &'static str,
    open: &'static str,
    roles: &'static [(&'static str, &'static str)],
) -> Format {
    Format { name, start, unless_system: "", open, roles, prompt: "" }
}

const BAILING: &[(&str, &str)] = &[("user", "<role>HUMAN</role>{c}"), ("", "<role>{R}</role>{c}")];
const GRANITE_4: &[(&str, &str)] = &[
    ("assistant_tool_call", "<|start_of_role|>assistant<|end_of_role|><|tool_call|>{c}<|end_of_text|>\n"),
    ("", "<|start_of_role|>{r}<|end_of_role|>{c}<|end_of_text|>\n"),
];
const LLAMA_2_SYS: &[(&str, &str)] =
    &[("system", "<<SYS>>\n{c}\n<</SYS>>\n\n"), ("user", "{c} [/INST]"), ("", "{c}</s>")];

/// All formats, by name.
pub static FORMATS: &[Format] = &[
    of_roles(c"bailing", BAILING, "<role>ASSISTANT</role>"),
    of_roles(c"bailing-think", BAILING, "<role>ASSISTANT</role><think>"),
    Format {
        unless_system: "<role>SYSTEM</role>detailed thinking off<|role_end|>",
        ..of_roles(
            c"bailing2",
            &[("user", "<role>HUMAN</role>{c}<|role_end|>"), ("", "<role>{R}</role>{c}<|role_end|>")],
            "<role>ASSISTANT</role>",
        )
    },
    Format { start: "[gMASK]sop", ..of_roles(c"chatglm3", &[("", "<|{r}|>\n {c}")], "<|assistant|>") },
    Format { start: "[gMASK]<sop>", ..of_roles(c"chatglm4", &[("", "<|{r}|>\n{c}")], "<|assistant|>\n") },
    of_roles(c"chatml", &[("", "<|im_start|>{r}\n{c}<|im_end|>\n")], "<|im_start|>assistant\n"),
    of_roles(
        c"command-r",
        &[
            ("system", "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{t}<|END_OF_TURN_TOKEN|>"),
            ("user", "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{t}<|END_OF_TURN_TOKEN|>"),
            ("assistant", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{t}<|END_OF_TURN_TOKEN|>"),
        ],
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    of_roles(
        c"deepseek",
        &[
            ("system", "{c}"),
            ("user", "### Instruction:\n{c}\n"),
            ("assistant", "### Response:\n{c}\n<|EOT|>\n"),
        ],
        "### Response:\n",
    ),
    of_roles(c"deepseek-ocr", &[("", "{c}")], ""),
    of_roles(
        c"deepseek2",
        &[
            ("system", "{c}\n\n"),
            ("user", "User: {c}\n\n"),
            ("assistant", "Assistant: {c}<｜end▁of▁sentence｜>"),
        ],
        "Assistant:",
    ),
    of_roles(
        c"deepseek3",
        &[
            ("system", "{c}\n\n"),
            ("user", "<｜User｜>{c}"),
            ("assistant", "<｜Assistant｜>{c}<｜end▁of▁sentence｜>"),
        ],
        "<｜Assistant｜>",
    ),
    of_roles(
        c"dots1",
        &[
            ("system", "<|system|>{c}<|endofsystem|>"),
            ("user", "<|userprompt|>{c}<|endofuserprompt|>"),
            ("", "<|response|>{c}<|endofresponse|>"),
        ],
        "<|response|>",
    ),
    of_roles(
        c"exaone-moe",
        &[
            ("system", "<|system|>\n{t}<|endofturn|>\n"),
            ("user", "<|user|>\n{t}<|endofturn|>\n"),
            ("assistant", "<|assistant|>\n{t}<|endofturn|>\n"),
            ("tool", "<|tool|>\n{t}<|endofturn|>\n"),
        ],
        "<|assistant|>\n",
    ),
    of_roles(
        c"exaone3",
        &[
            ("system", "[|system|]{t}[|endofturn|]\n"),
            ("user", "[|user|]{t}\n"),
            ("assistant", "[|assistant|]{t}[|endofturn|]\n"),
        ],
        "[|assistant|]",
    ),
    of_roles(
        c"exaone4",
        &[
            ("system", "[|system|]{t}[|endofturn|]\n"),
            ("user", "[|user|]{t}\n"),
            ("assistant", "[|assistant|]{t}[|endofturn|]\n"),
            ("tool", "[|tool|]{t}[|endofturn|]\n"),
        ],
        "[|assistant|]",
    ),
    of_roles(c"falcon3", &[("", "<|{r}|>\n{c}\n")], "<|assistant|>\n"),
    of_roles(
        c"gemma",
        &[
            ("system", "{+t}"),
            ("assistant", "<start_of_turn>model\n{t}<end_of_turn>\n"),
            ("model", "<start_of_turn>model\n{t}<end_of_turn>\n"),
            ("", "<start_of_turn>{r}\n{s}{t}<end_of_turn>\n"),
        ],
        "<start_of_turn>model\n",
    ),
    Format {
        start: "<s>",
        ..of_roles(
            c"gigachat",
            &[
                ("^system", "{c}<|message_sep|>"),
                (
                    "user",
                    "user<|role_sep|>{c}<|message_sep|>available functions<|role_sep|>[]<|message_sep|>",
                ),
                ("assistant", "assistant<|role_sep|>{c}<|message_sep|>"),
            ],
            "assistant<|role_sep|>",
        )
    },
    of_roles(c"glmedge", &[("", "<|{r}|>\n{c}")], "<|assistant|>"),
    of_roles(
        c"gpt-oss",
        &[
            ("assistant", "<|start|>assistant<|message|>{c}<|return|>"),
            ("", "<|start|>{r}<|message|>{c}<|end|>"),
        ],
        "<|start|>assistant",
    ),
    of_roles(
        c"granite",
        &[
            ("assistant_tool_call", "<|start_of_role|>{r}<|end_of_role|><|tool_call|>{c}<|end_of_text|>\n"),
            ("", "<|start_of_role|>{r}<|end_of_role|>{c}<|end_of_text|>\n"),
        ],
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    of_roles(c"granite-4.0", GRANITE_4, "<|start_of_role|>assistant<|end_of_role|>"),
    of_roles(c"granite-4.1", GRANITE_4, "<|start_of_role|>assistant<|end_of_role|>"),
    of_roles(
        c"grok-2",
        &[
            ("system", "System: {t}<|separator|>\n\n"),
            ("user", "Human: {t}<|separator|>\n\n"),
            ("assistant", "Assistant: {c}<|separator|>\n\n"),
        ],
        "Assistant:",
    ),
    of_roles(
        c"hunyuan-dense",
        &[
            ("^system", "{c}<｜hy_place▁holder▁no▁3｜>"),
            ("user", "<｜hy_User｜>{c}<｜hy_Assistant｜>"),
            ("assistant", "<｜hy_Assistant｜>{c}<｜hy_place▁holder▁no▁2｜>"),
        ],
        "",
    ),
    of_roles(
        c"hunyuan-moe",
        &[
            ("system", "<|startoftext|>{c}<|extra_4|>"),
            ("assistant", "{c}<|eos|>"),
            ("", "<|startoftext|>{c}<|extra_0|>"),
        ],
        "",
    ),
    Format {
        start: "<｜hy_begin▁of▁sentence｜>",
        ..of_roles(
            c"hunyuan-vl",
            &[
                ("^system", "{c}<｜hy_place▁holder▁no▁3｜>"),
                ("user", "{c}<｜hy_User｜>"),
                ("assistant", "{c}<｜hy_Assistant｜>"),
            ],
            "",
        )
    },
    of_roles(
        c"kimi-k2",
        &[
            ("system", "<|im_system|>system<|im_middle|>{c}<|im_end|>"),
            ("user", "<|im_user|>user<|im_middle|>{c}<|im_end|>"),
            ("assistant", "<|im_assistant|>assistant<|im_middle|>{c}<|im_end|>"),
            ("tool", "<|im_system|>tool<|im_middle|>{c}<|im_end|>"),
            ("", "{c}<|im_end|>"),
        ],
        "<|im_assistant|>assistant<|im_middle|>",
    ),
    of_turns(
        c"llama2",
        "[INST] ",
        "[INST] ",
        &[("system", "{c}\n"), ("user", "{c} [/INST]"), ("", "{c}</s>")],
    ),
    of_turns(c"llama2-sys", "[INST] ", "[INST] ", LLAMA_2_SYS),
    of_turns(c"llama2-sys-bos", "[INST] ", "<s>[INST] ", LLAMA_2_SYS),
    of_turns(
        c"llama2-sys-strip",
        "[INST] ",
        "[INST] ",
        &[("system", "<<SYS>>\n{t}\n<</SYS>>\n\n"), ("user", "{t} [/INST]"), ("", "{t}</s>")],
    ),
    of_roles(
        c"llama3",
        &[("", "<|start_header_id|>{r}<|end_header_id|>\n\n{t}<|eot_id|>")],
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    of_roles(
        c"llama4",
        &[("", "<|header_start|>{r}<|header_end|>\n\n{t}<|eot|>")],
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    of_roles(
        c"megrez",
        &[("", "<|role_start|>{r}<|role_end|>{c}<|turn_end|>")],
        "<|role_start|>assistant<|role_end|>",
    ),
    of_roles(c"minicpm", &[("user", "<用户>{t}<AI>"), ("", "{t}")], ""),
    of_turns(
        c"mistral-v1",
        "",
        " [INST] ",
        &[("system", "{c}\n\n"), ("user", "{c} [/INST]"), ("", " {c}</s>")],
    ),
    of_turns(
        c"mistral-v3",
        "",
        "[INST] ",
        &[("system", "{c}\n\n"), ("user", "{c}[/INST]"), ("", " {t}</s>")],
    ),
    of_turns(
        c"mistral-v3-tekken",
        "",
        "[INST]",
        &[("system", "{c}\n\n"), ("user", "{c}[/INST]"), ("", "{c}</s>")],
    ),
    of_roles(
        c"mistral-v7",
        &[("system", "[SYSTEM_PROMPT] {c}[/SYSTEM_PROMPT]"), ("user", "[INST] {c}[/INST]"), ("", " {c}</s>")],
        "",
    ),
    of_roles(
        c"mistral-v7-tekken",
        &[("system", "[SYSTEM_PROMPT]{c}[/SYSTEM_PROMPT]"), ("user", "[INST]{c}[/INST]"), ("", "{c}</s>")],
        "",
    ),
    of_roles(c"monarch", &[("^", "{r}\n{c}</s>\n"), ("", "<s>{r}\n{c}</s>\n")], "<s>assistant\n"),
    of_roles(
        c"openchat",
        &[("system", "{c}<|end_of_turn|>"), ("", "GPT4 Correct {U}: {c}<|end_of_turn|>")],
        "GPT4 Correct Assistant:",
    ),
    of_roles(
        c"orion",
        &[("system", "{+c}"), ("user", "Human: {s}{c}\n\nAssistant: </s>"), ("", "{c}</s>")],
        "",
    ),
    Format {
        unless_system: "[unused9]系统：[unused10]",
        ..of_roles(
            c"pangu-embedded",
            &[
                ("system", "[unused9]系统：{c}[unused10]"),
                ("user", "[unused9]用户：{c}[unused10]"),
                ("assistant", "[unused9]助手：{c}[unused10]"),
                ("tool", "[unused9]工具：{c}[unused10]"),
                ("function", "[unused9]方法：{c}[unused10]"),
            ],
            "[unused9]助手：",
        )
    },
    of_roles(c"phi3", &[("", "<|{r}|>\n{c}<|end|>\n")], "<|assistant|>\n"),
    of_roles(c"phi4", &[("", "<|im_start|>{r}<|im_sep|>{c}<|im_end|>")], "<|im_start|>assistant<|im_sep|>"),
    of_roles(
        c"rwkv-world",
        &[
            ("system", "System: {t}\n\n"),
            ("$user", "User: {t}\n\nAssistant:"),
            ("user", "User: {t}\n\n"),
            ("assistant", "Assistant: {t}\n\n"),
        ],
        "",
    ),
    of_roles(
        c"seed_oss",
        &[("assistant", "<seed:bos>assistant\n{t}<seed:eos>"), ("", "<seed:bos>{r}\n{c}<seed:eos>")],
        "<seed:bos>assistant\n",
    ),
    Format {
        start: "<|im_start|>",
        ..of_roles(
            c"smolvlm",
            &[
                ("system", "{c}\n\n"),
                ("user", "User: {c}<end_of_utterance>\n"),
                ("", "Assistant: {c}<end_of_utterance>\n"),
            ],
            "Assistant:",
        )
    },
    of_roles(c"solar-open", &[("", "<|begin|>{r}<|content|>{c}<|end|>")], "<|begin|>assistant"),
    of_roles(
        c"vicuna",
        &[("system", "{c}\n\n"), ("user", "USER: {c}\n"), ("assistant", "ASSISTANT: {c}</s>\n")],
        "ASSISTANT:",
    ),
    of_roles(
        c"vicuna-orca",
        &[("system", "SYSTEM: {c}\n"), ("user", "USER: {c}\n"), ("assistant", "ASSISTANT: {c}</s>\n")],
        "ASSISTANT:",
    ),
    of_roles(
        c"yandex",
        &[("user", " Пользователь: {c}\n\n"), ("assistant", " Ассистент: {c}\n\n")],
        " Ассистент:[SEP]",
    ),
    of_roles(c"zephyr", &[("", "<|{r}|>\n{c}<|endoftext|>\n")], "<|assistant|>\n"),
];

/// Return the format of a name.
pub fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name.to_bytes() == name.as_bytes())
}

impl Format {
    /// Return the text of a conversation, and of the beginning of an answer if `asks`.
    pub fn text(&self, chat: &[Message], asks: bool) -> String {
        let mut text = String::from(self.start);
        if chat.first().is_some_and(|(role, _)| role != "system") {
            text.push_str(self.unless_system);
        }
        let (mut is_open, mut held) = (!self.start.is_empty(), String::new());
        for (i, message) in chat.iter().enumerate() {
            if !is_open {
                text.push_str(self.open);
            }
            is_open = ["system", "user"].contains(&message.0.as_str());
            let template = self.template(&message.0, i == 0, i + 1 == chat.len());
            fill(template, message, &mut held, &mut text);
        }
        text.push_str(if asks { self.prompt } else { "" });
        text
    }

    /// Return the text of a message of a role; empty for one without.
    fn template(&self, role: &str, is_first: bool, is_last: bool) -> &'static str {
        let is_meant = |wanted: &str| match wanted.split_at_checked(1) {
            None => true,
            Some(("^", rest)) => is_first && (rest.is_empty() || rest == role),
            Some(("$", rest)) => is_last && rest == role,
            Some(_) => wanted == role,
        };
        self.roles.iter().find(|(wanted, _)| is_meant(wanted)).map_or("", |(_, template)| template)
    }
}

/// Append the text of a message; `held` is what was held back.
fn fill(template: &str, (role, content): &Message, held: &mut String, text: &mut String) {
    const BLANKS: [char; 6] = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];
    let trimmed = content.trim_matches(BLANKS);
    for (i, part) in template.split(['{', '}']).enumerate() {
        match part {
            part if i % 2 == 0 => text.push_str(part),
            "c" => text.push_str(content),
            "t" => text.push_str(trimmed),
            "r" => text.push_str(role),
            "R" => text.push_str(&role.to_ascii_uppercase()),
            "U" => {
                let (first, rest) = role.split_at_checked(1).unwrap_or((role, ""));
                text.extend([&first.to_ascii_uppercase(), rest]);
            }
            "+c" => held.push_str(content),
            "+t" => held.push_str(trimmed),
            "s" if !held.is_empty() => text.extend([&std::mem::take(held), "\n\n"]),
            _ => {}
        }
    }
}
