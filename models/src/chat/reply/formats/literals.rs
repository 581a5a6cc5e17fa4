//! Formats that write arguments as literals without JSON's quotes, or as keywords of Python.

use super::super::syntax::{CallSyntax, Part};
use super::{CallFormat, JSON, section};

pub(super) const OLMO_3: CallFormat = CallFormat {
    evidence: &[&["<function_calls>"]],
    syntax: CallSyntax {
        name: "olmo-3",
        section: Some(section("<function_calls>", "</function_calls>")),
        call: &[Part::Name, Part::Keywords],
        ..JSON
    },
};

pub(super) const GEMMA_4: CallFormat = CallFormat {
    evidence: &[&["<|tool_call>call:"]],
    syntax: CallSyntax {
        name: "gemma-4",
        call: &[
            Part::Literal("<|tool_call>"),
            Part::Literal("call:"),
            Part::Name,
            Part::Map("<|\"|>"),
            Part::Close("<tool_call|>"),
        ],
        wrappers: &["<|channel>", "<channel|>"],
        ..JSON
    },
};

pub(super) const FUNCTIONGEMMA: CallFormat = CallFormat {
    evidence: &[&["<start_function_call>"]],
    syntax: CallSyntax {
        name: "functiongemma",
        call: &[
            Part::Literal("<start_function_call>"),
            Part::Literal("call:"),
            Part::Name,
            Part::Map("<escape>"),
            Part::Close("<end_function_call>"),
        ],
        ..JSON
    },
};

pub(super) const LFM2: CallFormat = CallFormat {
    evidence: &[&["<|tool_call_start|>"], &["List of tools: ["], &["<|tool_list_start|>"]],
    syntax: CallSyntax {
        name: "lfm2",
        is_python: true,
        section: Some(section("<|tool_call_start|>", "<|tool_call_end|>")),
        call: &[Part::JsonOrPython],
        ..JSON
    },
};
