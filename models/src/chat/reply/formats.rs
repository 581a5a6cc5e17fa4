//! The known formats, and the templates that tell of them.
//!
//! A template belongs to the first row of [`CALLS`] with all of one of its sets of texts, and to
//! the first row of [`REASONING`] likewise. Rows with rarer texts stand first.

use super::syntax::{
    Attribute, CallSyntax, Identifier, Keys, Part, ReasoningSyntax, Section, Tags, WithinReasoning,
};

/// A row of the table of formats of calls.
pub(super) struct CallFormat {
    /// Sets of texts; a template that contains all texts of a set has this format.
    pub(super) evidence: &'static [&'static [&'static str]],
    /// The format.
    pub(super) syntax: CallSyntax,
}

/// A row of the table of ways of writing reasoning.
pub(super) struct ReasoningFormat {
    /// Sets of texts; a template that contains all texts of a set has this way.
    pub(super) evidence: &'static [&'static [&'static str]],
    /// The way of writing.
    pub(super) syntax: ReasoningSyntax,
}

/// The keys of most formats.
const NAME_ARGUMENTS: Keys = Keys::Named("name", "arguments", Identifier::None);

/// A format in which a call is a JSON object or a list of them.
const JSON: CallSyntax = CallSyntax {
    name: "",
    section: None,
    call: &[Part::Json],
    within_reasoning: WithinReasoning::Text,
    keys: NAME_ARGUMENTS,
    wrappers: &[],
    envelope: None,
    is_section_optional: false,
    is_bare: false,
    is_list: false,
    is_python: false,
};

/// The name of the format of gpt-oss, which `harmony.rs` reads.
pub(super) const HARMONY: &str = "harmony";

/// The formats of calls.
pub(super) static CALLS: &[CallFormat] = &[
    CallFormat { evidence: &[&["<|channel|>", "<|message|>"]], syntax: CallSyntax { name: HARMONY, ..JSON } },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
        evidence: &[&["DSML", "function_calls"]],
        syntax: CallSyntax {
            name: "deepseek-v3.2",
            section: Some(section("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")),
            call: DSML_CALL,
            within_reasoning: WithinReasoning::Ends,
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["DSML", "tool_calls"]],
        syntax: CallSyntax {
            name: "deepseek-v4",
            section: Some(section("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")),
            call: DSML_CALL,
            within_reasoning: WithinReasoning::Ends,
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<function_calls>"]],
        syntax: CallSyntax {
            name: "olmo-3",
            section: Some(section("<function_calls>", "</function_calls>")),
            call: &[Part::Name, Part::Keywords],
            ..JSON
        },
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
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
    },
    CallFormat {
        evidence: &[&["[TOOL_CALLS]"]],
        syntax: CallSyntax {
            name: "mistral-nemo",
            is_list: true,
            call: &[Part::Literal("[TOOL_CALLS]"), Part::Json],
            keys: Keys::Named("name", "arguments", Identifier::Behind("id")),
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|START_ACTION|>"]],
        syntax: CallSyntax {
            name: "command-r7b",
            is_list: true,
            section: Some(section("<|START_ACTION|>", "<|END_ACTION|>")),
            keys: Keys::Named("tool_name", "parameters", Identifier::Before("tool_call_id")),
            wrappers: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|CHATBOT_TOKEN|>", "Action:", "tool_name"]],
        syntax: CallSyntax {
            name: "command-r-plus",
            is_list: true,
            section: Some(section("Action:\n```json", "```")),
            keys: Keys::Named("tool_name", "parameters", Identifier::None),
            wrappers: &["<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"],
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|tools_prefix|>"]],
        syntax: CallSyntax {
            name: "apertus",
            is_list: true,
            section: Some(ending_section("<|tools_prefix|>", "<|tools_suffix|>")),
            keys: Keys::NameIsKey,
            within_reasoning: WithinReasoning::Ends,
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<TOOLCALL>"]],
        syntax: CallSyntax {
            name: "nemotron-nano-v2",
            is_list: true,
            section: Some(section("<TOOLCALL>", "</TOOLCALL>")),
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<tool_calls>"]],
        syntax: CallSyntax {
            name: "apriel",
            is_list: true,
            section: Some(section("<tool_calls>", "</tool_calls>")),
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|function_call|>"]],
        syntax: CallSyntax {
            name: "gigachat-3.1",
            call: &[Part::Literal("<|function_call|>"), Part::Json],
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|message_sep|>", "<|role_sep|>"]],
        syntax: CallSyntax {
            name: "gigachat-3",
            section: Some(ending_section("<|message_sep|>\n\nfunction call<|role_sep|>", "<|message_sep|>")),
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&[">>>all", ">>>${recipient}"]],
        syntax: CallSyntax {
            name: "functionary-v3.2",
            call: &[Part::Literal(">>>"), Part::NameLine, Part::Arguments],
            wrappers: &[">>>all\n"],
            ..JSON
        },
    },
    CallFormat {
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
    },
    CallFormat {
        evidence: &[&["functools["]],
        syntax: CallSyntax {
            name: "firefunction-v2",
            is_list: true,
            call: &[Part::Literal("functools"), Part::Json],
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|tool_call_start|>"], &["List of tools: ["], &["<|tool_list_start|>"]],
        syntax: CallSyntax {
            name: "lfm2",
            is_python: true,
            section: Some(section("<|tool_call_start|>", "<|tool_call_end|>")),
            call: &[Part::JsonOrPython],
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|tool_call|>", "<|/tool_call|>"], &["<|tool|>", "<|/tool|>"]],
        syntax: CallSyntax {
            name: "phi-4-mini",
            is_list: true,
            section: Some(section("<|tool_call|>", "<|/tool_call|>")),
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<|tool_call|>"]],
        syntax: CallSyntax {
            name: "granite-3",
            is_list: true,
            call: &[Part::Literal("<|tool_call|>"), Part::Json],
            envelope: Some(("<response>", "</response>")),
            ..JSON
        },
    },
    CallFormat {
        evidence: &[&["<tool_call>"]],
        syntax: CallSyntax { name: "hermes", section: Some(section("<tool_call>", "</tool_call>")), ..JSON },
    },
    CallFormat {
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
    },
    CallFormat {
        evidence: &[&["tool_calls", "\"arguments\":"], &["tools", "tojson"]],
        syntax: CallSyntax { name: "json", call: &[Part::JsonOrPython], is_bare: true, ..JSON },
    },
];

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

/// Return a section whose end stands in the text.
const fn section(begin: &'static str, end: &'static str) -> Section {
    Section { begin, end, ends_answer: false }
}

/// Return a section whose end also ends the answer.
const fn ending_section(begin: &'static str, end: &'static str) -> Section {
    Section { begin, end, ends_answer: true }
}

/// The tags of Qwen3-Coder's parameters.
const PARAMETER: Tags = Tags {
    begin: "<parameter=",
    after_name: ">",
    before_value: "",
    end: "</parameter>",
    own_lines: true,
    ..TAGS
};

/// The section of DeepSeek's calls up to V3.1.
const DEEPSEEK_SECTION: Option<Section> = Some(section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"));

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

/// Reasoning that stands before the answer.
const fn once(open: &'static str, close: &'static str) -> ReasoningSyntax {
    ReasoningSyntax { open, close, repeats: false }
}

/// Reasoning that may come again behind parts of the answer.
const fn repeated(open: &'static str, close: &'static str) -> ReasoningSyntax {
    ReasoningSyntax { open, close, repeats: true }
}

/// The ways of writing reasoning.
pub(super) static REASONING: &[ReasoningFormat] = &[
    ReasoningFormat {
        evidence: &[&["<|channel|>", "<|message|>"]],
        syntax: once("<|channel|>analysis<|message|>", "<|end|>"),
    },
    ReasoningFormat {
        evidence: &[&["<atem:function_calls>", "<|eom|>"]],
        syntax: repeated(" to=self<|message|>", "<|eom|>"),
    },
    ReasoningFormat {
        evidence: &[&["<|open|>", "<|close|>", "<|end_of_msg|>"]],
        syntax: once("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    },
    ReasoningFormat {
        evidence: &[&["<|START_THINKING|>"]],
        syntax: once("<|START_THINKING|>", "<|END_THINKING|>"),
    },
    ReasoningFormat {
        evidence: &[&["<|inner_prefix|>"]],
        syntax: once("<|inner_prefix|>", "<|inner_suffix|>"),
    },
    ReasoningFormat { evidence: &[&["<seed:think>"]], syntax: once("<seed:think>", "</seed:think>") },
    ReasoningFormat { evidence: &[&["<mm:think>"]], syntax: once("<mm:think>", "</mm:think>") },
    ReasoningFormat {
        evidence: &[&["<think{}>", ":opensource"]],
        syntax: once("<think:opensource>", "</think:opensource>"),
    },
    ReasoningFormat { evidence: &[&["[THINK]"]], syntax: once("[THINK]", "[/THINK]") },
    ReasoningFormat {
        evidence: &[&["<|channel>thought"]],
        syntax: repeated("<|channel>thought", "<channel|>"),
    },
    ReasoningFormat {
        evidence: &[&["[BEGIN FINAL RESPONSE]"]],
        syntax: once("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    },
    ReasoningFormat { evidence: &[&["<|think|>", "<|end|>"]], syntax: repeated("<|think|>", "<|end|>") },
    ReasoningFormat {
        evidence: &[&["Here is my thought process:"]],
        syntax: once("Here is my thought process:", "Here is my response:"),
    },
    ReasoningFormat { evidence: &[&["<think>"], &["</think>"]], syntax: once("<think>", "</think>") },
];

/// Return true if `source` contains all texts of one of the sets.
pub(super) fn fits(evidence: &[&[&str]], source: &str) -> bool {
    evidence.iter().any(|set| set.iter().all(|text| source.contains(text)))
}
