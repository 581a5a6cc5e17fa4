//! The description of a format: how calls and reasoning are written.
//!
//! All formats are data. A call is a sequence of [`Part`]s, optionally one of several in a section
//! between two markers. The reader (`calls.rs`), the grammar (`grammar.rs`) and the writer
//! (`write.rs`) follow from it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::schema::Types;
use crate::chat::Value;

/// A way of writing calls.
#[derive(Debug)]
pub(super) struct CallSyntax {
    /// The name of the format.
    pub(super) name: &'static str,
    /// The markers around a section of calls.
    pub(super) section: Option<Section>,
    /// The parts of a call.
    pub(super) call: &'static [Part],
    /// The effect of a call within reasoning.
    pub(super) within_reasoning: WithinReasoning,
    /// The keys that the grammar uses where a call is a JSON object.
    pub(super) keys: Keys,
    /// Markers around content, which are dropped.
    pub(super) wrappers: &'static [&'static str],
    /// Texts around the whole answer, which are dropped there and mean nothing within it.
    pub(super) envelope: Option<(&'static str, &'static str)>,
    /// True if models leave out the markers of the section.
    pub(super) is_section_optional: bool,
    /// True if an answer may be a call without any marker before it.
    pub(super) is_bare: bool,
    /// True if a call as JSON stands in a list, also if it is the only one.
    pub(super) is_list: bool,
    /// True if calls are written as in Python.
    pub(super) is_python: bool,
}

/// The markers around a section of calls.
#[derive(Debug)]
pub(super) struct Section {
    /// The marker before the first call.
    pub(super) begin: &'static str,
    /// The marker behind the last call. Where a call has an end of its own, models may leave it
    /// out.
    pub(super) end: &'static str,
    /// True if the end is a token that ends the answer, so that the text lacks it.
    pub(super) ends_answer: bool,
}

/// A part of a call. White space between parts is skipped.
#[derive(Debug)]
pub(super) enum Part {
    /// A text that has to stand there.
    Literal(&'static str),
    /// A text that may stand there.
    Optional(&'static str),
    /// The end of the call. It may be missing before the end of a section and before another call.
    Close(&'static str),
    /// The identifier of the call, behind a marker that is missing if there is none.
    Id(&'static str),
    /// The name of a tool.
    Name,
    /// The name of a tool at the end of a line.
    NameLine,
    /// The number of the call, from 1 on.
    Number,
    /// The name of a tool within an identifier, `functions.NAME:INDEX`.
    NameInId,
    /// A JSON object of arguments.
    Arguments,
    /// A call as JSON object, or a list of them.
    Json,
    /// A call as JSON object, a list of them, or calls as in Python, `[f(a=1), g()]`.
    JsonOrPython,
    /// Arguments as in Python, `(a=1)`.
    Keywords,
    /// Gemma's map of arguments, with this quote around strings.
    Map(&'static str),
    /// Parameters between tags.
    Tags(&'static Tags),
}

/// The tags around a parameter.
#[derive(Debug)]
pub(super) struct Tags {
    /// The text before a name.
    pub(super) begin: &'static str,
    /// The text behind a name.
    pub(super) after_name: &'static str,
    /// The text before a value; attributes may stand before it. Empty if none.
    pub(super) before_value: &'static str,
    /// The text behind a value; with a `namespace`, the text before the name in the tag there.
    pub(super) end: &'static str,
    /// True if a value stands on lines of its own.
    pub(super) own_lines: bool,
    /// The attribute that tells of the value.
    pub(super) attribute: Attribute,
    /// True if a value may stand in a section in which tags mean nothing.
    pub(super) has_cdata: bool,
    /// The text before every tag, where tags have the names of parameters, and values may be nested
    /// tags. Empty if values have none.
    pub(super) namespace: &'static str,
}

impl Tags {
    /// Return the text behind the value of the parameter `name`.
    pub(super) fn end_of(&self, name: &str) -> String {
        if self.namespace.is_empty() { self.end.into() } else { format!("{}{name}>", self.end) }
    }

    /// Return a name as it stands in a tag: in attributes of XML quotes are escaped.
    pub(super) fn written_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.attribute == Attribute::Type && name.contains(['&', '"']) {
            true => name.replace('&', "&amp;").replace('"', "&quot;").into(),
            false => name.into(),
        }
    }

    /// Return the name that stands in a tag so.
    pub(super) fn read_name(&self, written: &str) -> String {
        match self.attribute {
            Attribute::Type => written.replace("&quot;", "\"").replace("&amp;", "&"),
            Attribute::None | Attribute::IsString => written.into(),
        }
    }
}

/// The attribute of a parameter's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// There is none.
    None,
    /// `string="true"` or `string="false"`.
    IsString,
    /// `type="string"`, or the name of another JSON type.
    Type,
}

impl Attribute {
    /// Return the texts of the attribute before values of these types: one of them stands there.
    pub(super) fn texts(self, types: Types) -> Vec<String> {
        match self {
            Self::None => Vec::from([String::new()]),
            Self::IsString => Vec::from([format!(" string=\"{}\"", types == Types::STRING)]),
            Self::Type => types
                .names()
                .iter()
                .filter_map(Value::as_str)
                .map(|name| format!(" type=\"{name}\""))
                .collect(),
        }
    }

    /// Return the types of the values behind the text of an attribute, or `None` if it does not
    /// tell.
    pub(super) fn types(self, text: &str) -> Option<Types> {
        let all = [Types::STRING, Types::ALL.without(Types::STRING)];
        let told = all.into_iter().find(|types| self.texts(*types).iter().any(|known| known.trim() == text));
        told.filter(|_| self != Self::None)
    }
}

/// The effect of a call's marker within reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithinReasoning {
    /// The marker is a part of the reasoning.
    Text,
    /// The reasoning ends, as models forget to close it.
    Ends,
}

/// The keys of a call as JSON object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// The keys of the name and of the arguments, and the identifier.
    Named(&'static str, &'static str, Identifier),
    /// The name is the key of the arguments.
    NameIsKey,
}

/// The key of a call's identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identifier {
    /// Calls have none.
    None,
    /// It stands before the name.
    Before(&'static str),
    /// It stands behind the arguments.
    Behind(&'static str),
}

/// A way of writing reasoning.
#[derive(Debug)]
pub(super) struct ReasoningSyntax {
    /// The marker before reasoning.
    pub(super) open: &'static str,
    /// The marker behind reasoning.
    pub(super) close: &'static str,
    /// True if reasoning may come behind content, where other formats take the marker for text.
    pub(super) repeats: bool,
}

impl CallSyntax {
    /// Return the text that begins a call, or `None` if a call begins with its JSON.
    pub(super) fn begin(&self) -> Option<&'static str> {
        match self.call.first() {
            Some(Part::Literal(text)) => Some(text),
            _ => None,
        }
    }

    /// Return true if the calls of a section are JSON or Python, which the end of the section
    /// closes.
    pub(super) fn is_unit(&self) -> bool {
        let has_end = self.section.as_ref().is_some_and(|section| !section.ends_answer);
        has_end && matches!(self.call, [Part::Json | Part::JsonOrPython])
    }

    /// Return true if an identifier may stand behind the arguments.
    pub(super) fn has_late_id(&self) -> bool {
        matches!(self.keys, Keys::Named(_, _, Identifier::Behind(_)))
    }
}

impl Part {
    /// Return the markers of the part.
    pub(super) fn markers(&self) -> impl Iterator<Item = &'static str> {
        let texts = match self {
            Self::Literal(text) | Self::Optional(text) | Self::Close(text) | Self::Id(text) => {
                [text, "", "", ""]
            }
            Self::Tags(tags) => [tags.begin, tags.after_name, tags.before_value, tags.end],
            Self::Map(quote) => [*quote, "", "", ""],
            _ => [""; 4],
        };
        // Only texts with a name of their own can be control tokens.
        texts.into_iter().filter(|text| text.len() > 2)
    }
}
