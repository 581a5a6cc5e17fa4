//! Formats that write each parameter between tags.

use super::super::syntax::{Attribute, CallSyntax, Part, Tags, WithinReasoning};
use super::{CallFormat, JSON, section};

/// Tags around a value that stands where it is, without attributes.
const TAGS: Tags = Tags {
    begin: "",
    after_name: ">",
    before_value: "",
    end: "",
    own_lines: false,
    attribute: Attribute::None,
    has_cdata: false,
    namespace: "",
};

/// The tags of Qwen3-Coder's parameters.
const PARAMETER: Tags = Tags {
    begin: "<parameter=",
    after_name: ">",
    before_value: "",
    end: "</parameter>",
    own_lines: true,
    ..TAGS
};

/// A call of DeepSeek from V3.2 on.
const DSML_CALL: &[Part] = &[
    Part::Literal("<｜DSML｜invoke name=\""),
    Part::Name,
    Part::Literal("\">"),
    Part::Tags(&Tags {
        begin: "<｜DSML｜parameter name=\"",
        after_name: "\"",
        before_value: ">",
        end: "</｜DSML｜parameter>",
        attribute: Attribute::IsString,
        ..TAGS
    }),
    Part::Close("</｜DSML｜invoke>"),
];

/// A call of DeepSeek V4.1, whose markers have a space.
const SPACED_DSML_CALL: &[Part] = &[
    Part::Literal("<｜DSML｜ invoke name=\""),
    Part::Name,
    Part::Literal("\">"),
    Part::Tags(&Tags {
        begin: "<｜DSML｜ parameter name=\"",
        after_name: "\"",
        before_value: ">",
        end: "</｜DSML｜ parameter>",
        attribute: Attribute::IsString,
        ..TAGS
    }),
    Part::Close("</｜DSML｜ invoke>"),
];

pub(super) const MUSE_GLIMMER: CallFormat = CallFormat {
    evidence: &[&["<atem:function_calls>", "<|eom|>"]],
    syntax: CallSyntax {
        name: "muse-glimmer",
        call: &[
            Part::Literal("to="),
            Part::Name,
            Part::Literal("<|message|>"),
            Part::Literal("<atem:function_calls>"),
            Part::Literal("<atem:invoke name=\""),
            Part::Name,
            Part::Literal("\">"),
            Part::Tags(&Tags {
                begin: "<atem:parameter name=\"",
                after_name: "\"",
                before_value: ">",
                end: "</atem:parameter>",
                ..TAGS
            }),
            Part::Literal("</atem:invoke>"),
            Part::Close("</atem:function_calls>"),
        ],
        wrappers: &["<|start|>assistant", " to=user<|message|>", "<|eom|>", "<|eot|>"],
        ..JSON
    },
};

pub(super) const KIMI_K3: CallFormat = CallFormat {
    evidence: &[&["<|open|>", "<|close|>", "<|end_of_msg|>"]],
    syntax: CallSyntax {
        name: "kimi-k3",
        section: Some(section("<|open|>tools<|sep|>", "<|close|>tools<|sep|>")),
        call: &[
            Part::Literal("<|open|>call tool=\""),
            Part::Name,
            Part::Literal("\" index=\""),
            Part::Number,
            Part::Literal("\"<|sep|>"),
            Part::Tags(&Tags {
                begin: "<|open|>argument key=\"",
                after_name: "\"",
                before_value: "<|sep|>",
                end: "<|close|>argument<|sep|>",
                attribute: Attribute::Type,
                ..TAGS
            }),
            Part::Close("<|close|>call<|sep|>"),
        ],
        within_reasoning: WithinReasoning::Ends,
        wrappers: &[
            "<|open|>response<|sep|>",
            "<|close|>response<|sep|>",
            "<|close|>message<|sep|>",
            "<|end_of_msg|>",
        ],
        ..JSON
    },
};

pub(super) const MINIMAX_M3: CallFormat = CallFormat {
    evidence: &[&["]<]minimax[>[", "<invoke name="]],
    syntax: CallSyntax {
        name: "minimax-m3",
        section: Some(section("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>")),
        call: &[
            Part::Literal("]<]minimax[>[<invoke name=\""),
            Part::Name,
            Part::Literal("\">"),
            Part::Tags(&Tags {
                begin: "]<]minimax[>[<",
                end: "]<]minimax[>[</",
                namespace: "]<]minimax[>[",
                ..TAGS
            }),
            Part::Close("]<]minimax[>[</invoke>"),
        ],
        ..JSON
    },
};

pub(super) const MINIMAX_M2: CallFormat = CallFormat {
    evidence: &[&["<minimax:tool_call>"]],
    syntax: CallSyntax {
        name: "minimax-m2",
        section: Some(section("<minimax:tool_call>", "</minimax:tool_call>")),
        call: &[
            Part::Literal("<invoke name=\""),
            Part::Name,
            Part::Literal("\">"),
            Part::Tags(&Tags {
                begin: "<parameter name=\"",
                after_name: "\"",
                before_value: ">",
                end: "</parameter>",
                ..TAGS
            }),
            Part::Close("</invoke>"),
        ],
        ..JSON
    },
};

pub(super) const DEEPSEEK_V3_2: CallFormat = CallFormat {
    evidence: &[&["DSML", "function_calls"]],
    syntax: CallSyntax {
        name: "deepseek-v3.2",
        section: Some(section("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")),
        call: DSML_CALL,
        within_reasoning: WithinReasoning::Ends,
        ..JSON
    },
};

pub(super) const DEEPSEEK_V4: CallFormat = CallFormat {
    evidence: &[&["DSML", "tool_calls"]],
    syntax: CallSyntax {
        name: "deepseek-v4",
        section: Some(section("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")),
        call: DSML_CALL,
        within_reasoning: WithinReasoning::Ends,
        ..JSON
    },
};

pub(super) const DEEPSEEK_V4_1: CallFormat = CallFormat {
    evidence: &[&["DSML", " calls>"]],
    syntax: CallSyntax {
        name: "deepseek-v4.1",
        section: Some(section("<｜DSML｜ calls>", "</｜DSML｜ calls>")),
        call: SPACED_DSML_CALL,
        within_reasoning: WithinReasoning::Ends,
        ..JSON
    },
};

pub(super) const SEED_OSS: CallFormat = CallFormat {
    evidence: &[&["<seed:tool_call>", "<function="]],
    syntax: CallSyntax {
        name: "seed-oss",
        section: Some(section("<seed:tool_call>", "</seed:tool_call>")),
        call: &[
            Part::Literal("<function="),
            Part::Name,
            Part::Literal(">"),
            Part::Tags(&Tags { own_lines: false, ..PARAMETER }),
            Part::Close("</function>"),
        ],
        ..JSON
    },
};

pub(super) const QWEN3_CODER: CallFormat = CallFormat {
    evidence: &[&["<function=", "<parameter="]],
    syntax: CallSyntax {
        name: "qwen3-coder",
        section: Some(section("<tool_call>", "</tool_call>")),
        call: &[
            Part::Literal("<function="),
            Part::Name,
            Part::Literal(">"),
            Part::Tags(&PARAMETER),
            Part::Close("</function>"),
        ],
        within_reasoning: WithinReasoning::Ends,
        is_section_optional: true,
        ..JSON
    },
};

pub(super) const HUNYUAN_3: CallFormat = CallFormat {
    evidence: &[&["<arg_key{}>", "<tool_sep{}>", ":opensource"]],
    syntax: CallSyntax {
        name: "hunyuan-3",
        section: Some(section("<tool_calls:opensource>", "</tool_calls:opensource>")),
        call: &[
            Part::Literal("<tool_call:opensource>"),
            Part::Name,
            Part::Optional("<tool_sep:opensource>"),
            Part::Tags(&Tags {
                begin: "<arg_key:opensource>",
                after_name: "</arg_key:opensource>",
                before_value: "<arg_value:opensource>",
                end: "</arg_value:opensource>",
                ..TAGS
            }),
            Part::Close("</tool_call:opensource>"),
        ],
        ..JSON
    },
};

pub(super) const GLM_4_5: CallFormat = CallFormat {
    evidence: &[&["<arg_key>", "<arg_value>"]],
    syntax: CallSyntax {
        name: "glm-4.5",
        call: &[
            Part::Literal("<tool_call>"),
            Part::Name,
            Part::Tags(&Tags {
                begin: "<arg_key>",
                after_name: "</arg_key>",
                before_value: "<arg_value>",
                end: "</arg_value>",
                ..TAGS
            }),
            Part::Close("</tool_call>"),
        ],
        // Ling calls before its reasoning is closed.
        within_reasoning: WithinReasoning::Ends,
        ..JSON
    },
};

pub(super) const MINICPM_5: CallFormat = CallFormat {
    evidence: &[&["<function name=\"", "<param name=\""]],
    syntax: CallSyntax {
        name: "minicpm-5",
        call: &[
            Part::Literal("<function name=\""),
            Part::Name,
            Part::Literal("\">"),
            Part::Tags(&Tags {
                begin: "<param name=\"",
                after_name: "\"",
                before_value: ">",
                end: "</param>",
                has_cdata: true,
                ..TAGS
            }),
            Part::Close("</function>"),
        ],
        ..JSON
    },
};
