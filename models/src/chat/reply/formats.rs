//! The known formats, and the templates that tell of them.
//!
//! A template belongs to the first row of [`CALLS`] with all of one of its sets of texts, and to
//! the first row of [`REASONING`] likewise. Rows with rarer texts stand first. That order is here;
//! each row stands in the file of its kind.

mod json;
mod literals;
mod named;
mod reasoning;
mod tags;

use super::syntax::{CallSyntax, Identifier, Keys, Part, Section, WithinReasoning};

pub(super) use self::reasoning::REASONING;

/// A row of the table of formats of calls.
pub(super) struct CallFormat {
    /// Sets of texts; a template that contains all texts of a set has this format.
    pub(super) evidence: &'static [&'static [&'static str]],
    /// The format.
    pub(super) syntax: CallSyntax,
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

/// The format of gpt-oss, whose calls are messages of their own.
const HARMONY_CHANNELS: CallFormat =
    CallFormat { evidence: &[&["<|channel|>", "<|message|>"]], syntax: CallSyntax { name: HARMONY, ..JSON } };

/// The formats of calls.
pub(super) static CALLS: &[CallFormat] = &[
    HARMONY_CHANNELS,
    tags::MUSE_GLIMMER,
    tags::KIMI_K3,
    tags::MINIMAX_M3,
    tags::MINIMAX_M2,
    tags::DEEPSEEK_V4_1,
    tags::DEEPSEEK_V3_2,
    tags::DEEPSEEK_V4,
    literals::OLMO_3,
    tags::SEED_OSS,
    tags::QWEN3_CODER,
    tags::HUNYUAN_3,
    tags::GLM_4_5,
    tags::MINICPM_5,
    literals::GEMMA_4,
    literals::FUNCTIONGEMMA,
    named::KIMI_K2,
    named::SOLAR_OPEN,
    named::DEEPSEEK_R1,
    named::DEEPSEEK_V3_1,
    named::MISTRAL_SMALL,
    json::MISTRAL_NEMO,
    json::COMMAND_R7B,
    json::COMMAND_R_PLUS,
    json::APERTUS,
    json::NEMOTRON_NANO_V2,
    json::APRIEL,
    json::GIGACHAT_3_1,
    json::GIGACHAT_3,
    named::FUNCTIONARY_V3_2,
    named::FUNCTIONARY_V3_1,
    json::FIREFUNCTION_V2,
    literals::LFM2,
    json::PHI_4_MINI,
    json::GRANITE_3,
    json::HERMES,
    json::LLAMA_3,
    json::PLAIN,
];

/// Return a section whose end stands in the text.
const fn section(begin: &'static str, end: &'static str) -> Section {
    Section { begin, end, ends_answer: false }
}

/// Return a section whose end also ends the answer.
const fn ending_section(begin: &'static str, end: &'static str) -> Section {
    Section { begin, end, ends_answer: true }
}

/// Return true if `source` contains all texts of one of the sets.
pub(super) fn fits(evidence: &[&[&str]], source: &str) -> bool {
    evidence.iter().any(|set| set.iter().all(|text| source.contains(text)))
}
