//! The ways of writing reasoning.

use super::super::syntax::ReasoningSyntax;

/// A row of the table of ways of writing reasoning.
pub(in super::super) struct ReasoningFormat {
    /// Sets of texts; a template that contains all texts of a set has this way.
    pub(in super::super) evidence: &'static [&'static [&'static str]],
    /// The way of writing.
    pub(in super::super) syntax: ReasoningSyntax,
}

/// Reasoning that stands before the answer.
const fn once(open: &'static str, close: &'static str) -> ReasoningSyntax {
    ReasoningSyntax { open, close, repeats: false }
}

/// Reasoning that may come again behind parts of the answer.
const fn repeated(open: &'static str, close: &'static str) -> ReasoningSyntax {
    ReasoningSyntax { open, close, repeats: true }
}

/// The ways of writing reasoning.
pub(in super::super) static REASONING: &[ReasoningFormat] = &[
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
