//! Formats that write the name of the tool before its arguments, which are JSON.

use super::super::syntax::{CallSyntax, Part, Section, WithinReasoning};
use super::{CallFormat, JSON, section};

/// The section of DeepSeek's calls up to V3.1.
const DEEPSEEK_SECTION: Option<Section> = Some(section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"));

pub(super) const KIMI_K2: CallFormat = CallFormat {
    evidence: &[&["<|tool_calls_section_begin|>"]],
    syntax: CallSyntax {
        name: "kimi-k2",
        section: Some(section("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
        call: &[
            Part::Literal("<|tool_call_begin|>"),
            Part::NameInId,
            Part::Literal("<|tool_call_argument_begin|>"),
            Part::Arguments,
            Part::Close("<|tool_call_end|>"),
        ],
        within_reasoning: WithinReasoning::Ends,
        ..JSON
    },
};

pub(super) const SOLAR_OPEN: CallFormat = CallFormat {
    evidence: &[&["<|tool_call:begin|>", "<|tool_call:args|>"]],
    syntax: CallSyntax {
        name: "solar-open",
        section: Some(section("<|tool_calls|>", "<|calls|>")),
        call: &[
            Part::Literal("<|tool_call:begin|>"),
            Part::Id(""),
            Part::Literal("<|tool_call:name|>"),
            Part::Name,
            Part::Literal("<|tool_call:args|>"),
            Part::Arguments,
            Part::Close("<|tool_call:end|>"),
        ],
        wrappers: &["<|begin|>assistant", "<|content|>", "<|end|>"],
        ..JSON
    },
};

pub(super) const DEEPSEEK_R1: CallFormat = CallFormat {
    // The format of the arguments tells R1 and V3 from V3.1.
    evidence: &[&["<｜tool▁calls▁begin｜>", "```json"]],
    syntax: CallSyntax {
        name: "deepseek-r1",
        section: DEEPSEEK_SECTION,
        call: &[
            Part::Literal("<｜tool▁call▁begin｜>"),
            Part::Literal("function"),
            Part::Literal("<｜tool▁sep｜>"),
            Part::NameLine,
            Part::Literal("```json"),
            Part::Arguments,
            Part::Optional("```"),
            Part::Close("<｜tool▁call▁end｜>"),
        ],
        ..JSON
    },
};

pub(super) const DEEPSEEK_V3_1: CallFormat = CallFormat {
    evidence: &[&["<｜tool▁calls▁begin｜>"]],
    syntax: CallSyntax {
        name: "deepseek-v3.1",
        section: DEEPSEEK_SECTION,
        call: &[
            Part::Literal("<｜tool▁call▁begin｜>"),
            Part::Name,
            Part::Literal("<｜tool▁sep｜>"),
            Part::Arguments,
            Part::Close("<｜tool▁call▁end｜>"),
        ],
        ..JSON
    },
};

pub(super) const MISTRAL_SMALL: CallFormat = CallFormat {
    evidence: &[&["[TOOL_CALLS]", "[ARGS]"]],
    syntax: CallSyntax {
        name: "mistral-small",
        call: &[
            Part::Literal("[TOOL_CALLS]"),
            Part::Name,
            Part::Id("[CALL_ID]"),
            Part::Literal("[ARGS]"),
            Part::Arguments,
        ],
        ..JSON
    },
};

pub(super) const FUNCTIONARY_V3_2: CallFormat = CallFormat {
    evidence: &[&[">>>all", ">>>${recipient}"]],
    syntax: CallSyntax {
        name: "functionary-v3.2",
        call: &[Part::Literal(">>>"), Part::NameLine, Part::Arguments],
        wrappers: &[">>>all\n"],
        ..JSON
    },
};

pub(super) const FUNCTIONARY_V3_1: CallFormat = CallFormat {
    evidence: &[&["<function=", "</function>"]],
    syntax: CallSyntax {
        name: "functionary-v3.1",
        call: &[
            Part::Literal("<function="),
            Part::Name,
            Part::Literal(">"),
            Part::Arguments,
            Part::Close("</function>"),
        ],
        ..JSON
    },
};
