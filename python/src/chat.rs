//! Chat templates.

use crate::arguments::{numbers, value, values};
use crate::errors::OrRaise;
use crate::vocab::Vocab;
use crate::watch::Watch;
use backstitch_models::chat::{self, Conversation, GenerationPrompt};
use backstitch_models::vocab::AddSpecial;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The chat template of a model: from messages to the text that the model was trained to continue.
#[pyclass(frozen, module = "backstitch")]
pub struct ChatTemplate {
    template: chat::ChatTemplate,
    source: String,
}

impl ChatTemplate {
    /// Parse a template.
    ///
    /// # Errors
    /// `ChatError` if it is not one.
    pub fn parse(py: Python<'_>, source: String) -> PyResult<Self> {
        let template = chat::ChatTemplate::from_source(&source).or_raise(py)?;
        Ok(ChatTemplate { template, source })
    }

    /// Render a conversation. `variables` are further ones of the template.
    ///
    /// # Errors
    /// `ChatError` if the template refuses the messages or fails.
    pub fn rendered(
        &self,
        messages: &Bound<'_, PyAny>,
        vocab: Option<&backstitch_models::vocab::Vocab>,
        options: &RenderOptions<'_>,
    ) -> PyResult<chat::Rendered> {
        let py = messages.py();
        let prompt = match options.add_generation_prompt {
            true => GenerationPrompt::Yes,
            false => GenerationPrompt::No,
        };
        let mut conversation = Conversation::new(values(messages, "messages")?).prompt(prompt);
        if let Some(vocab) = vocab {
            conversation = conversation.tokens_of(vocab);
        }
        if let Some(tools) = &options.tools {
            conversation = conversation.tools(values(tools, "tools")?);
        }
        for (name, variable) in options.variables.into_iter().flatten() {
            conversation = conversation.set(&name.extract::<String>()?, value(&variable)?);
        }
        let watch = Watch::new([None]);
        let conversation = conversation.cancel(watch.cancel());
        let rendered = py.detach(|| self.template.render(&conversation));
        watch.finish(rendered)?.or_raise(py)
    }
}

/// The input of a template beside the messages.
pub struct RenderOptions<'a> {
    pub add_generation_prompt: bool,
    pub tools: Option<Bound<'a, PyAny>>,
    pub variables: Option<&'a Bound<'a, PyDict>>,
}

#[pymethods]
impl ChatTemplate {
    #[new]
    fn new(py: Python<'_>, source: String) -> PyResult<Self> {
        Self::parse(py, source)
    }

    /// The template as it was written, in Jinja.
    #[getter]
    fn source(&self) -> &str {
        &self.source
    }

    /// Return the text for messages, each a dict with "role" and "content".
    ///
    /// The text ends where the answer of the model begins, unless `add_generation_prompt` is false.
    /// `vocab` tells the template the texts of its own tokens. Further keyword arguments are
    /// variables of the template.
    #[pyo3(signature = (messages, vocab=None, *, add_generation_prompt=true, tools=None, **variables))]
    fn render(
        &self,
        messages: &Bound<'_, PyAny>,
        vocab: Option<&Vocab>,
        add_generation_prompt: bool,
        tools: Option<Bound<'_, PyAny>>,
        variables: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Rendered> {
        let options = RenderOptions { add_generation_prompt, tools, variables };
        let vocab = vocab.map(|vocab| vocab.model.vocab());
        self.rendered(messages, vocab, &options).map(|rendered| Rendered { rendered })
    }

    fn __repr__(&self) -> String {
        format!("<backstitch.ChatTemplate of {} bytes>", self.source.len())
    }
}

/// The text of a conversation, which knows which of its bytes the template wrote. `str()` of it is
/// the text.
#[pyclass(frozen, module = "backstitch")]
pub struct Rendered {
    rendered: chat::Rendered,
}

#[pymethods]
impl Rendered {
    /// Return the tokens. Control tokens are recognised only where the template wrote them, so text
    /// that users type cannot become one.
    fn tokenize(&self, py: Python<'_>, vocab: &Vocab) -> Vec<u32> {
        py.detach(|| {
            let mut tokens = Vec::new();
            self.rendered.tokenize(vocab.model.vocab(), AddSpecial::Start, &mut tokens);
            numbers(&tokens)
        })
    }

    fn __str__(&self) -> &str {
        self.rendered.as_str()
    }

    fn __repr__(&self) -> String {
        format!("<backstitch.Rendered: {:?}>", self.rendered.as_str())
    }
}
