//! A turn of the assistant: a request that was read, rendered, and is ready for the engine.

use super::error::ConversationError;
use super::message::ToolChoice;
use super::prompt::Prompt;
use super::request::{Request, Thinking};
use super::values::template_value;
use crate::http::{ApiError, App, Client, ErrorKind};
use crate::params::{Fields, Reading, read_generate};
use backstitch_models::chat::reply::{Format, Options, ReasoningFormat};
use serde_json::{Map, Value};

/// Fields with messages, which samplers need not see.
const BULKY: [&str; 5] = ["messages", "input", "system", "tools", "instructions"];

/// A turn of the assistant.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The request for the engine, with what the answer needs of the fields.
    pub reading: Reading,
    /// The markers that the model writes.
    pub format: Format,
    /// The treatment of what the model writes.
    pub options: Options,
}

/// The text of a request alone, for counting its tokens.
pub(crate) fn render(app: &App, mut request: Request) -> Result<Prompt, ApiError> {
    prepare(app, &mut request)?;
    Ok(app.template().prompt(&request, app.vocab(), thinking(app))?)
}

/// Fill in what the server decides where the request does not.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for tools on a server without Jinja; those of
/// [`Request::continue_assistant`].
fn prepare(app: &App, request: &mut Request) -> Result<(), ApiError> {
    let params = app.params();
    if !params.jinja && !request.tools.is_empty() {
        return Err(ApiError::new(ErrorKind::Server, "tools param requires --jinja flag"));
    }
    if !params.jinja && request.tool_choice != ToolChoice::Auto {
        return Err(ApiError::new(ErrorKind::Server, "tool_choice param requires --jinja flag"));
    }
    for (name, value) in &params.template_variables {
        if !request.variables.contains_key(name) {
            request.variables.insert(name.clone(), value.clone());
        }
    }
    let server_thinks = params.template_variables.get("enable_thinking").and_then(Value::as_bool);
    request.thinking = request.thinking.or(server_thinks);
    if params.prefill_assistant {
        request.continue_assistant()?;
    }
    Ok(())
}

/// Return the server's default for thinking.
fn thinking(app: &App) -> Thinking {
    match app.params().reasoning.as_str() {
        "on" => Thinking::On,
        "off" => Thinking::Off,
        _ => Thinking::Auto,
    }
}

impl Turn {
    /// Render `request`, and read everything else of `body`.
    ///
    /// # Errors
    /// [`ApiError`] with the field at fault, or because the server was started for something else.
    pub fn read(
        app: &App,
        client: &Client,
        body: &Map<String, Value>,
        request: Request,
    ) -> Result<Self, ApiError> {
        if app.params().embedding || app.params().reranking {
            return Err(ApiError::not_supported("this server was started for embeddings only"));
        }
        let mut request = request;
        prepare(app, &mut request)?;
        let mut prompt = app.template().prompt(&request, app.vocab(), thinking(app))?;
        let format = Format::of_template(app.template().source());
        let parallel =
            request.parallel_tool_calls.unwrap_or(app.template().capabilities().parallel_tool_calls);
        let mut options = Options::default()
            .reasoning(reasoning_format(app, Fields::new(body))?)
            .parallel(parallel)
            .prompt(&prompt.generation_prompt);
        if request.may_call() {
            let tools: Vec<_> = request.tools.iter().map(|tool| template_value(&tool.to_json())).collect();
            options = options.tools(&tools);
        }
        let fields = sampling_fields(body)?;
        let tokens = core::mem::take(&mut prompt.tokens);
        let mut reading = read_generate(Fields::new(&fields), app, client, tokens)?;
        reading.generate.message_ends = core::mem::take(&mut prompt.message_ends);
        reading.generate.shown =
            format.markers().iter().filter_map(|marker| app.vocab().find(marker.as_bytes())).collect();
        Ok(Turn { reading, format, options })
    }
}

/// Return the treatment of reasoning that the request or the server asks for.
fn reasoning_format(app: &App, fields: Fields<'_>) -> Result<ReasoningFormat, ApiError> {
    match fields.str("reasoning_format")?.unwrap_or(&app.params().reasoning_format) {
        "none" => Ok(ReasoningFormat::None),
        "auto" | "deepseek" => Ok(ReasoningFormat::Deepseek),
        "deepseek-legacy" => Ok(ReasoningFormat::DeepseekLegacy),
        _ => {
            let wanted = "\"none\", \"auto\", \"deepseek\" or \"deepseek-legacy\"";
            Err(ApiError::field("reasoning_format", wanted))
        }
    }
}

/// Return the fields that say how to sample, in the words of llama-server.
///
/// # Errors
/// [`ApiError`] for a `response_format` that is not known, and for `json_schema` beside `grammar`.
fn sampling_fields(body: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let mut sampling: Map<String, Value> = body
        .iter()
        .filter(|(name, _)| !BULKY.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let fields = Fields::new(body);
    if fields.has("json_schema") && fields.str("grammar")?.is_some_and(|grammar| !grammar.is_empty()) {
        return Err(ApiError::invalid("json_schema and grammar cannot be used together"));
    }
    let format = match fields.object("response_format")? {
        // Responses have the format within the options of the text.
        None => fields.object("text")?.map_or(Ok(None), |text| Fields::new(text).object("format"))?,
        format => format,
    };
    if let Some(format) = format
        && let Some(schema) = read_format(Fields::new(format))?
    {
        sampling.insert("json_schema".into(), schema);
    }
    Ok(sampling)
}

/// Return the JSON schema that a response format asks for.
fn read_format(format: Fields<'_>) -> Result<Option<Value>, ApiError> {
    let schema = match format.str("type")? {
        None | Some("text") => return Ok(None),
        Some("json_object") => format.get("schema"),
        Some("json_schema") => match format.object("json_schema")? {
            Some(wrapper) => Fields::new(wrapper).get("schema"),
            None => format.get("schema"),
        },
        Some(_) => {
            let wanted = "\"text\", \"json_object\" or \"json_schema\"";
            return Err(ApiError::field("response_format.type", wanted));
        }
    };
    match schema {
        None => Ok(Some(serde_json::json!({"type": "object"}))),
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Some(schema.clone())),
        Some(_) => Err(ApiError::field("response_format.schema", "a JSON schema")),
    }
}

impl From<ConversationError> for ApiError {
    fn from(error: ConversationError) -> Self {
        match &error {
            ConversationError::Missing { field } => ApiError::missing(field),
            ConversationError::Wrong { field, expected } => ApiError::field(field, expected),
            // llama-server's clients expect 500 here.
            ConversationError::Media { .. } => ApiError::new(ErrorKind::Server, error.to_string()),
            _ => ApiError::invalid(error.to_string()),
        }
    }
}
