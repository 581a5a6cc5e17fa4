//! A turn of the assistant: a request that was read, rendered, and is ready for the engine.

use super::error::ConversationError;
use super::message::ToolChoice;
use super::prompt::Prompt;
use super::request::{Request, Thinking};
use super::values::template_value;
use crate::http::{ApiError, App, Client, ErrorKind};
use crate::params::{Constraint, Fields, Reading, read_generate};
use backstitch_models::chat::Value as TemplateValue;
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
        let tools = callable(&request)?;
        options = options.tools(&tools);
        let fields = sampling_fields(body)?;
        let tokens = core::mem::take(&mut prompt.tokens);
        let mut reading = read_generate(Fields::new(&fields), app, client, tokens)?;
        reading.generate.message_ends = core::mem::take(&mut prompt.message_ends);
        reading.generate.shown =
            format.markers().iter().filter_map(|marker| app.vocab().find(marker.as_bytes())).collect();
        if !tools.is_empty() {
            constrain(app, &mut reading, &format, &tools, (&request, parallel, &prompt))?;
        }
        Ok(Turn { reading, format, options })
    }
}

/// Return the tools that may be called.
///
/// # Errors
/// [`ConversationError::Wrong`] if the choice names a tool that is not offered.
fn callable(request: &Request) -> Result<Vec<TemplateValue>, ConversationError> {
    let is_callable = |name: &str| match &request.tool_choice {
        ToolChoice::None => false,
        ToolChoice::Named(chosen) => chosen == name,
        ToolChoice::Auto | ToolChoice::Required => true,
    };
    let tools = request.tools.iter().filter(|tool| is_callable(&tool.name));
    let tools: Vec<_> = tools.map(|tool| template_value(&tool.to_json())).collect();
    match &request.tool_choice {
        ToolChoice::Named(_) if tools.is_empty() => {
            Err(ConversationError::wrong("tool_choice", "the name of a tool in \"tools\""))
        }
        ToolChoice::Required if tools.is_empty() => {
            Err(ConversationError::Conflict("a call cannot be required without tools"))
        }
        _ => Ok(tools),
    }
}

/// Let calls follow the schemas of their tools: from the beginning of the answer if a call is
/// required, else from the beginning of a call on.
///
/// # Errors
/// [`ApiError`] if the request has a grammar of its own, or a schema cannot be followed.
fn constrain(
    app: &App,
    reading: &mut Reading,
    format: &Format,
    tools: &[TemplateValue],
    (request, parallel, prompt): (&Request, bool, &Prompt),
) -> Result<(), ApiError> {
    let is_required = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
    if reading.constraint.is_some() {
        // Text in the asked format is an answer too, unless a call is required.
        return match is_required {
            true => Err(ApiError::invalid("a grammar and a required call cannot be used together")),
            false => Ok(()),
        };
    }
    let token = |text: &str| app.vocab().find(text.as_bytes()).map(|token| token.0);
    let Some(lark) = format.grammar(tools, parallel, &token) else { return Ok(()) };
    // A model that is thinking calls after its thoughts.
    let is_thinking = format.reasoning().is_some_and(|(open, _)| prompt.text.trim_end().ends_with(open));
    let triggers = if is_required && !is_thinking { Vec::new() } else { format.triggers() };
    if is_required || !triggers.is_empty() {
        reading.constrain(app, Constraint::of_lark(app, &lark, &triggers)?);
    }
    Ok(())
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
/// [`ApiError`] for a `response_format` that is not known.
fn sampling_fields(body: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let mut sampling: Map<String, Value> = body
        .iter()
        .filter(|(name, _)| !BULKY.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let fields = Fields::new(body);
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
            // llama-server answers 500, which clients take for a fault and try again.
            ConversationError::Media { .. } => ApiError::not_supported(error.to_string()),
            _ => ApiError::invalid(error.to_string()),
        }
    }
}
