//! Formats that write a call as a JSON object, or several as a list of them.

use super::super::syntax::{CallSyntax, Identifier, Keys, Part, WithinReasoning};
use super::{CallFormat, JSON, ending_section, section};

pub(super) const MISTRAL_NEMO: CallFormat = CallFormat {
    evidence: &[&["[TOOL_CALLS]"]],
    syntax: CallSyntax {
        name: "mistral-nemo",
        is_list: true,
        call: &[Part::Literal("[TOOL_CALLS]"), Part::Json],
        keys: Keys::Named("name", "arguments", Identifier::Behind("id")),
        ..JSON
    },
};

pub(super) const COMMAND_R7B: CallFormat = CallFormat {
    evidence: &[&["<|START_ACTION|>"]],
    syntax: CallSyntax {
        name: "command-r7b",
        is_list: true,
        section: Some(section("<|START_ACTION|>", "<|END_ACTION|>")),
        keys: Keys::Named("tool_name", "parameters", Identifier::Before("tool_call_id")),
        wrappers: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
        ..JSON
    },
};

pub(super) const COMMAND_R_PLUS: CallFormat = CallFormat {
    evidence: &[&["<|CHATBOT_TOKEN|>", "Action:", "tool_name"]],
    syntax: CallSyntax {
        name: "command-r-plus",
        is_list: true,
        section: Some(section("Action:\n```json", "```")),
        keys: Keys::Named("tool_name", "parameters", Identifier::None),
        wrappers: &["<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"],
        ..JSON
    },
};

pub(super) const APERTUS: CallFormat = CallFormat {
    evidence: &[&["<|tools_prefix|>"]],
    syntax: CallSyntax {
        name: "apertus",
        is_list: true,
        section: Some(ending_section("<|tools_prefix|>", "<|tools_suffix|>")),
        keys: Keys::NameIsKey,
        within_reasoning: WithinReasoning::Ends,
        ..JSON
    },
};

pub(super) const NEMOTRON_NANO_V2: CallFormat = CallFormat {
    evidence: &[&["<TOOLCALL>"]],
    syntax: CallSyntax {
        name: "nemotron-nano-v2",
        is_list: true,
        section: Some(section("<TOOLCALL>", "</TOOLCALL>")),
        ..JSON
    },
};

pub(super) const APRIEL: CallFormat = CallFormat {
    evidence: &[&["<tool_calls>"]],
    syntax: CallSyntax {
        name: "apriel",
        is_list: true,
        section: Some(section("<tool_calls>", "</tool_calls>")),
        ..JSON
    },
};

pub(super) const GIGACHAT_3_1: CallFormat = CallFormat {
    evidence: &[&["<|function_call|>"]],
    syntax: CallSyntax {
        name: "gigachat-3.1",
        call: &[Part::Literal("<|function_call|>"), Part::Json],
        ..JSON
    },
};

pub(super) const GIGACHAT_3: CallFormat = CallFormat {
    evidence: &[&["<|message_sep|>", "<|role_sep|>"]],
    syntax: CallSyntax {
        name: "gigachat-3",
        section: Some(ending_section("<|message_sep|>\n\nfunction call<|role_sep|>", "<|message_sep|>")),
        ..JSON
    },
};

pub(super) const FIREFUNCTION_V2: CallFormat = CallFormat {
    evidence: &[&["functools["]],
    syntax: CallSyntax {
        name: "firefunction-v2",
        is_list: true,
        call: &[Part::Literal("functools"), Part::Json],
        ..JSON
    },
};

pub(super) const PHI_4_MINI: CallFormat = CallFormat {
    evidence: &[&["<|tool_call|>", "<|/tool_call|>"], &["<|tool|>", "<|/tool|>"]],
    syntax: CallSyntax {
        name: "phi-4-mini",
        is_list: true,
        section: Some(section("<|tool_call|>", "<|/tool_call|>")),
        ..JSON
    },
};

pub(super) const GRANITE_3: CallFormat = CallFormat {
    evidence: &[&["<|tool_call|>"]],
    syntax: CallSyntax {
        name: "granite-3",
        is_list: true,
        call: &[Part::Literal("<|tool_call|>"), Part::Json],
        envelope: Some(("<response>", "</response>")),
        ..JSON
    },
};

pub(super) const HERMES: CallFormat = CallFormat {
    evidence: &[&["<tool_call>"]],
    syntax: CallSyntax { name: "hermes", section: Some(section("<tool_call>", "</tool_call>")), ..JSON },
};

pub(super) const LLAMA_3: CallFormat = CallFormat {
    evidence: &[
        &["<|python_tag|>"],
        &["Environment: ipython"],
        &["<|start_header_id|>", "\"parameters\": dictionary"],
    ],
    syntax: CallSyntax {
        name: "llama-3",
        section: Some(ending_section("<|python_tag|>", "<|eom_id|>")),
        call: &[Part::JsonOrPython],
        keys: Keys::Named("name", "parameters", Identifier::None),
        is_bare: true,
        ..JSON
    },
};

pub(super) const PLAIN: CallFormat = CallFormat {
    evidence: &[&["tool_calls", "\"arguments\":"], &["tools", "tojson"]],
    syntax: CallSyntax { name: "json", call: &[Part::JsonOrPython], is_bare: true, ..JSON },
};
