//! The format that a template of Jinja stands for, by the marks in its source.

use super::formats::{Format, named};

/// Marks, and the name of the format of templates that hold all of them: the first such entry
/// counts.
const MARKS: &[(&[&str], &str)] = &[
    (&["<|im_start|>", "<|im_sep|>"], "phi4"),
    (&["<|im_start|>", "<end_of_utterance>"], "smolvlm"),
    (&["<|im_start|>"], "chatml"),
    (&["[INST]", "[SYSTEM_PROMPT]"], "mistral-v7"),
    (&["[INST]", "' [INST] ' + system_message"], "mistral-v1"),
    (&["[INST]", "[AVAILABLE_TOOLS]", " [INST]"], "mistral-v1"),
    (&["[INST]", "[AVAILABLE_TOOLS]", "\"[INST]\""], "mistral-v3-tekken"),
    (&["[INST]", "[AVAILABLE_TOOLS]"], "mistral-v3"),
    (&["[INST]", "content.strip()"], "llama2-sys-strip"),
    (&["[INST]", "bos_token + '[INST]"], "llama2-sys-bos"),
    (&["[INST]", "<<SYS>>"], "llama2-sys"),
    (&["[INST]"], "llama2"),
    (&["<|assistant|>", "<|end|>"], "phi3"),
    (&["[gMASK]<sop>"], "chatglm4"),
    (&["<|assistant|>", "<|user|>", "<|tool_declare|>"], "exaone-moe"),
    (&["<|assistant|>", "<|user|>", "</s>"], "falcon3"),
    (&["<|assistant|>", "<|user|>"], "glmedge"),
    (&["<|{{ item['role'] }}|>", "<|begin_of_image|>"], "glmedge"),
    (&["<|user|>", "<|endoftext|>"], "zephyr"),
    (&["bos_token + message['role']"], "monarch"),
    (&["<start_of_turn>"], "gemma"),
    (&["'\\n\\nAssistant: ' + eos_token"], "orion"),
    (&["GPT4 Correct "], "openchat"),
    (&["USER: ", "ASSISTANT: ", "SYSTEM: "], "vicuna-orca"),
    (&["USER: ", "ASSISTANT: "], "vicuna"),
    (&["### Instruction:", "<|EOT|>"], "deepseek"),
    (&["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"], "command-r"),
    (&["<|start_header_id|>", "<|end_header_id|>"], "llama3"),
    (&["[gMASK]sop"], "chatglm3"),
    (&["<用户>"], "minicpm"),
    (&["'Assistant: ' + message['content'] + eos_token"], "deepseek2"),
    (&["<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"], "deepseek3"),
    (&["[|system|]", "[|assistant|]", "[|endofturn|]", "[|tool|]"], "exaone4"),
    (&["[|system|]", "[|assistant|]", "[|endofturn|]"], "exaone3"),
    (&["rwkv-world"], "rwkv-world"),
    (&["{{- 'User: ' + message['content']|trim + '\\n\\n' -}}"], "rwkv-world"),
    (&["<|start_of_role|>", "<tool_call>", "g4_default_system_message"], "granite-4.0"),
    (&["<|start_of_role|>", "<tools>", "g4_default_system_message"], "granite-4.0"),
    (&["<|start_of_role|>", "<tool_call>"], "granite-4.1"),
    (&["<|start_of_role|>", "<tools>"], "granite-4.1"),
    (&["<|start_of_role|>"], "granite"),
    (
        &[
            "message['role'] + additional_special_tokens[0] + message['content'] + additional_special_tokens[1]",
        ],
        "gigachat",
    ),
    (&["<|role_start|>"], "megrez"),
    (&[" Ассистент:"], "yandex"),
    (&["<role>ASSISTANT</role>", "'HUMAN'"], "bailing"),
    (&["<role>ASSISTANT</role>", "\"HUMAN\"", "<think>"], "bailing-think"),
    (&["<role>ASSISTANT</role>", "<role>HUMAN</role>", "<|role_end|>"], "bailing2"),
    (&["<|header_start|>", "<|header_end|>"], "llama4"),
    (&["<|endofuserprompt|>"], "dots1"),
    (&["<|extra_0|>", "<|extra_4|>"], "hunyuan-moe"),
    (&["<|start|>", "<|channel|>"], "gpt-oss"),
    (&["<｜hy_Assistant｜>", "<｜hy_begin▁of▁sentence｜>"], "hunyuan-vl"),
    (&["<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁3｜>"], "hunyuan-dense"),
    (&["<|im_assistant|>assistant<|im_middle|>"], "kimi-k2"),
    (&["<seed:bos>"], "seed_oss"),
    (&["'Assistant: '  + message['content'] + '<|separator|>"], "grok-2"),
    (&["[unused9]系统：[unused10]"], "pangu-embedded"),
    (&["<|begin|>", "<|end|>", "<|content|>"], "solar-open"),
];

/// Return the format that `source` stands for: a name, or a template with the marks of one.
pub fn format(source: &str) -> Option<&'static Format> {
    named(source).or_else(|| {
        let marked = MARKS.iter().find(|(marks, _)| marks.iter().all(|mark| source.contains(mark)));
        marked.and_then(|(_, name)| named(name))
    })
}
