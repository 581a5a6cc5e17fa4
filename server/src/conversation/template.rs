//! A chat template with what it can express.

use super::builtin::{self, CHATML};
use super::capabilities::{Capabilities, Probe};
use super::demands::{Demands, Messages};
use super::fallback::CALL_MARKER;
use super::request::Request;
use backstitch_models::Cancel;
use backstitch_models::chat::reply::Format;
use backstitch_models::chat::{ChatError, ChatTemplate};
use std::sync::Arc;

/// A chat template, its source, and what was found out about it by rendering small conversations.
/// Clones share the template.
#[derive(Clone, Debug)]
pub struct Template {
    inner: Arc<Inner>,
    /// The template of requests with tools, if it is another.
    for_tools: Option<Arc<Inner>>,
    bounds: Bounds,
}

/// The bounds of making tokens of the text that a template gives.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// The most tokens that are wanted.
    pub most_tokens: usize,
    /// Ends the work.
    pub cancel: Cancel,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { most_tokens: usize::MAX, cancel: Cancel::new() }
    }
}

#[derive(Debug)]
struct Inner {
    source: String,
    parsed: ChatTemplate,
    capabilities: Capabilities,
    demands: Demands,
    ends: Vec<&'static str>,
}

impl Template {
    /// Parse a template and probe what it can express.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::from_source`].
    pub fn new(source: &str) -> Result<Self, ChatError> {
        let parsed = ChatTemplate::from_source(source)?;
        let probe = Probe::of(source, &parsed);
        let capabilities = Capabilities::of(source, &probe);
        let demands = Demands::of(source, &probe, &capabilities);
        let ends = builtin::ends(source);
        let inner = Arc::new(Inner { source: source.into(), parsed, capabilities, demands, ends });
        Ok(Template { inner, for_tools: None, bounds: Bounds::default() })
    }

    /// Use another template for requests with tools, which some models have. One that cannot be
    /// parsed counts for nothing.
    #[must_use]
    pub fn with_template_for_tools(self, source: Option<&str>) -> Self {
        let for_tools = source.and_then(|source| Template::new(source).ok());
        Template { for_tools: for_tools.map(|template| template.inner), ..self }
    }

    /// Return the template for a request.
    #[must_use]
    pub fn of_request(&self, request: &Request) -> Self {
        let for_tools = self.for_tools.as_ref().filter(|_| !request.tools.is_empty());
        let inner = for_tools.unwrap_or(&self.inner).clone();
        Template { inner, for_tools: None, bounds: self.bounds.clone() }
    }

    /// Give up texts of far more than `most_tokens`, and all work when `cancel` is made.
    pub(crate) fn within(self, most_tokens: usize, cancel: &Cancel) -> Self {
        Template { bounds: Bounds { most_tokens, cancel: cancel.clone() }, ..self }
    }

    /// Return the bounds of making tokens.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Parse the template of a model; ChatML if it has none.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    /// use backstitch_server::conversation::{CHATML, Template};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// assert_eq!(Template::of(model.chat_template())?.source(), CHATML);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ChatTemplate::from_source`].
    pub fn of(source: Option<&str>) -> Result<Self, ChatError> {
        Template::new(source.unwrap_or(CHATML))
    }

    /// Return the source.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Return the parsed template.
    pub fn parsed(&self) -> &ChatTemplate {
        &self.inner.parsed
    }

    /// Return the texts that end an answer as a stop string does, where the vocabulary has no token
    /// for them: models that were not trained with a known template write its markers as text.
    pub(super) fn ends(&self) -> &[&'static str] {
        &self.inner.ends
    }

    /// Return true if tools, calls and their results have to be written as text.
    pub(super) fn writes_tools_as_text(&self) -> bool {
        !self.inner.capabilities.tools && !self.inner.capabilities.tool_calls
    }

    /// Return true if calls and their results have to be written as text, because the template
    /// refuses messages with calls.
    pub(super) fn writes_calls_as_text(&self) -> bool {
        self.writes_tools_as_text() || !self.inner.demands.results.calls
    }

    /// Return the format of answers. If they `may_call` tools, it is one that has calls: that of
    /// Hermes where the template has none.
    pub fn reply_format(&self, may_call: bool) -> Format {
        let format = Format::of_template(self.source());
        match format.name() {
            None if may_call => Format::of_template(&format!("{}{CALL_MARKER}", self.source())),
            _ => format,
        }
    }

    /// Return true if the template takes messages of this role.
    pub(super) fn takes_role(&self, role: &str) -> bool {
        let demands = self.demands();
        let probe = Probe::new(self.parsed(), demands.lists);
        demands.any_role || Messages { probe, form: demands.form }.takes_role(role)
    }

    /// Return the form in which the template takes messages.
    pub(super) fn demands(&self) -> &Demands {
        &self.inner.demands
    }

    /// Return what the template can express.
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }
}
