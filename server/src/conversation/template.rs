//! A chat template with what it can express.

use super::builtin::CHATML;
use super::capabilities::Capabilities;
use super::fallback::CALL_MARKER;
use backstitch_models::chat::reply::Format;
use backstitch_models::chat::{ChatError, ChatTemplate};
use std::sync::Arc;

/// A chat template, its source, and what was found out about it by rendering small conversations.
/// Clones share the template.
#[derive(Clone, Debug)]
pub struct Template(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: String,
    parsed: ChatTemplate,
    capabilities: Capabilities,
}

impl Template {
    /// Parse a template and probe what it can express.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::from_source`].
    pub fn new(source: &str) -> Result<Self, ChatError> {
        let parsed = ChatTemplate::from_source(source)?;
        let capabilities = Capabilities::of(source, &parsed);
        Ok(Template(Arc::new(Inner { source: source.into(), parsed, capabilities })))
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
        &self.0.source
    }

    /// Return the parsed template.
    pub fn parsed(&self) -> &ChatTemplate {
        &self.0.parsed
    }

    /// Return true if tools, calls and their results have to be written as text.
    pub(super) fn writes_tools_as_text(&self) -> bool {
        !self.0.capabilities.tools && !self.0.capabilities.tool_calls
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

    /// Return what the template can express.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }
}
