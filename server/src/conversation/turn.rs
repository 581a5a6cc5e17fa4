//! A turn of the assistant: a request that was read, rendered, and is ready for the engine.

use super::error::ConversationError;
use super::message::{Tool, ToolChoice};
use super::own_calls::CallFormat;
use super::prompt::Prompt;
use super::request::{Request, Thinking};
use super::schema::{any_object, standalone};
use super::template::Template;
use super::values::template_value;
use crate::engine::Tenant;
use crate::http::{ApiError, App, Client, ErrorKind};
use crate::params::{Constraint, Fields, Formatted, Reading, read_generate};
use backstitch_models::chat::Value as TemplateValue;
use backstitch_models::chat::reply::{
    Format, Options, ReasoningFormat, Trigger as CallTrigger, UnwritableName,
};
use backstitch_models::grammar::{Compiler, GrammarError, Trigger};
use backstitch_models::vocab::Vocab;
use backstitch_models::{Cancel, Token};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Fields with messages, which samplers need not see.
const BULKY: [&str; 5] = ["messages", "input", "system", "tools", "instructions"];

/// The number of tools whose schemas are tried alone if all are too much together.
const MAX_TRIED: usize = 256;
/// The number of tools whose schemas may fail alone before no more are tried.
const MAX_FAILED: usize = 64;

/// The most tokens of a text that are counted.
const MAX_COUNTED: usize = 1 << 20;

/// A turn of the assistant.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The request for the engine, with what the answer needs of the fields.
    pub reading: Reading,
    /// The markers that the model writes.
    pub format: Format,
    /// The treatment of what the model writes.
    pub options: Options,
    /// The descriptions of all tools.
    pub tools: Arc<[TemplateValue]>,
    /// The number of stop strings of the client; those behind them are ends of the template.
    pub n_stops: usize,
    /// The answer has to call a tool.
    pub must_call: bool,
}

/// The text of a request alone, for counting its tokens.
///
/// # Errors
/// Those of [`prepare`] and [`Template::prompt`](super::Template::prompt).
pub(crate) fn render(app: &App, client: &Client, mut request: Request) -> Result<Prompt, ApiError> {
    prepare(app, &mut request)?;
    let template = app.template().of_request(&request).within(MAX_COUNTED, client.cancel());
    let mut prompt = template.prompt(&request, app.vocab(), thinking(app))?;
    let offered = Offered::new(&request, client.cancel());
    offered.restore_calls(app, &template, &request, client.tenant(None), &mut prompt);
    Ok(prompt)
}

/// The tools of a request with schemas that stand alone.
struct Offered {
    /// The descriptions of all tools.
    tools: Arc<[TemplateValue]>,
    /// The schemas of all tools, by their names.
    schemas: Vec<(String, Value)>,
    /// The parts of schemas that are not followed.
    ignored: Vec<String>,
}

impl Offered {
    /// Read the schemas of all tools.
    fn new(request: &Request, cancel: &Cancel) -> Self {
        let (mut schemas, mut ignored) = (Vec::new(), Vec::new());
        for tool in &request.tools {
            let (schema, places) = standalone(&tool.parameters, cancel);
            ignored.extend(places.iter().map(|place| format!("{}{place}", tool.name)));
            schemas.push((tool.name.clone(), schema));
        }
        let own: Vec<Value> = schemas.iter().map(|(_, schema)| schema.clone()).collect();
        Offered { tools: described(&request.tools, &own).into(), schemas, ignored }
    }

    /// Return the schemas of some of the tools.
    fn schemas_of(&self, tools: &[Tool]) -> Vec<Value> {
        let find = |tool: &Tool| self.schemas.iter().find(|(name, _)| *name == tool.name);
        tools.iter().map(|tool| find(tool).map_or_else(any_object, |(_, schema)| schema.clone())).collect()
    }

    /// Put the calls that the model wrote into the prompt, as it wrote them.
    fn restore_calls(
        &self,
        app: &App,
        template: &Template,
        request: &Request,
        tenant: Tenant,
        prompt: &mut Prompt,
    ) {
        let format = template.reply_format(!request.tools.is_empty());
        let format = CallFormat { format: &format, tools: &self.tools, vocab: app.vocab(), tenant };
        app.own_calls().restore(prompt, &request.messages, format);
    }
}

/// Fill in what the server decides where the request does not.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for tools on a server without Jinja.
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
            request.paths.variables.insert(name.clone(), "--chat-template-kwargs".into());
        }
    }
    let server_thinks = params.template_variables.get("enable_thinking").and_then(Value::as_bool);
    request.thinking = request.thinking.or(server_thinks);
    if params.prefill_assistant {
        request.continue_assistant();
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
        let n_ctx = app.summary().n_ctx as usize;
        let template = app.template().of_request(&request).within(n_ctx, client.cancel());
        let mut prompt = template.prompt(&request, app.vocab(), thinking(app))?;
        let format = template.reply_format(request.may_call());
        let offered = Offered::new(&request, client.cancel());
        let tenant = client.tenant(Fields::new(body).str("cache_salt")?);
        offered.restore_calls(app, &template, &request, tenant, &mut prompt);
        let parallel = request.parallel_tool_calls.unwrap_or(template.capabilities().parallel_tool_calls);
        let mut options = Options::default()
            .reasoning(reasoning_format(app, Fields::new(body))?)
            .parallel(request.parallel_tool_calls.unwrap_or(true))
            .thinking_forced_open(prompt.in_reasoning)
            .prompt(&prompt.generation_prompt);
        let tools = callable(&request)?;
        let schemas = offered.schemas_of(&tools);
        let values = described(&tools, &schemas);
        if let Some(name) = format.unwritable_name(&values) {
            return Err(unwritable(&request, &tools, &name));
        }
        options = options.tools(&values);
        let formatted = Formatted::read(Fields::new(body), |name| !BULKY.contains(&name))?;
        let mut reading = read_fields(app, client, &formatted, &format, &mut prompt)?;
        let token = control_token(app.vocab());
        let n_stops = reading.generate.stops.len();
        reading.generate.stops = with_ends(&reading.generate.stops, template.ends(), &token);
        if let Some(constraint) = reading.constraint.clone().filter(|_| !prompt.in_answer) {
            let within = behind_reasoning(&constraint, &format, &options, &token)?;
            within.into_iter().for_each(|constraint| reading.constrain(app, constraint));
        }
        let must_call = request.must_call();
        reading.ignored.extend(request.paths.left_out.iter().map(|(path, _)| path.clone()));
        if !tools.is_empty() {
            let (format, options, tools, schemas) = (&format, &options, &tools, &schemas);
            let formatted = &formatted;
            let calls =
                Calls { format, options, tools, schemas, parallel, is_required: must_call, formatted };
            reading.ignored.extend(offered.ignored);
            calls.constrain(app, client, &mut reading)?;
        }
        Ok(Turn { reading, format, options, tools: offered.tools, n_stops, must_call })
    }
}

/// Read the fields of a request whose answer to `prompt` comes in `format`.
///
/// # Errors
/// Those of [`read_generate`].
fn read_fields(
    app: &App,
    client: &Client,
    formatted: &Formatted,
    format: &Format,
    prompt: &mut Prompt,
) -> Result<Reading, ApiError> {
    let tokens = core::mem::take(&mut prompt.tokens);
    let reading = read_generate(Fields::new(&formatted.fields), app, client, tokens);
    let mut reading = reading.map_err(|error| formatted.named(error))?;
    reading.generate.message_ends = core::mem::take(&mut prompt.message_ends);
    let markers = format.marker_tokens(&control_token(app.vocab()));
    reading.generate.shown = markers.into_iter().map(Token).collect();
    Ok(reading)
}

/// Return the tools that may be called.
///
/// # Errors
/// [`ConversationError::Wrong`] if the choice names a tool that is not offered.
pub(super) fn callable(request: &Request) -> Result<Vec<Tool>, ConversationError> {
    let is_callable = |name: &str| match &request.tool_choice {
        ToolChoice::None => false,
        ToolChoice::Named(chosen) => chosen == name,
        ToolChoice::Auto | ToolChoice::Required => true,
    };
    let tools: Vec<_> = request.tools.iter().filter(|tool| is_callable(&tool.name)).cloned().collect();
    match &request.tool_choice {
        ToolChoice::Named(chosen) if tools.is_empty() => {
            let is_left_out = request.paths.left_out.iter().any(|(_, name)| name == chosen);
            let expected = match is_left_out {
                true => "the name of a tool that can run here: this one needs its own service",
                false => "the name of a tool in \"tools\"",
            };
            let path = request.paths.choice.as_deref().unwrap_or("tool_choice");
            Err(ConversationError::wrong(path, expected))
        }
        ToolChoice::Required if tools.is_empty() => {
            let reason = "a call cannot be required without tools";
            Err(ConversationError::Conflict { field: "tool_choice", reason })
        }
        _ => Ok(tools),
    }
}

/// Return the error of a tool whose name, or that of a parameter, calls of this model cannot have.
fn unwritable(request: &Request, tools: &[Tool], name: &UnwritableName) -> ApiError {
    let tool = tools.get(name.tool);
    let index = request.tools.iter().position(|other| Some(other) == tool).unwrap_or(name.tool);
    let paths = request.paths.tool(index);
    let (field, what, name) = match &name.parameter {
        Some(parameter) => (paths.parameters, "those of a tool that this model can call", parameter.as_str()),
        None => (paths.name, "that of a tool that this model can call", tool.map_or("", |tool| &tool.name)),
    };
    let remedy = match name {
        "" => "a name that is not empty",
        _ => "a shorter name of letters, digits, '_' and '-'",
    };
    ApiError::field(&field, &format!("{what}: its format has no text for the name {name:?}; give {remedy}"))
}

/// The calls that an answer may have.
struct Calls<'a> {
    format: &'a Format,
    options: &'a Options,
    tools: &'a [Tool],
    /// The schemas of their arguments, which stand alone.
    schemas: &'a [Value],
    parallel: bool,
    is_required: bool,
    /// The fields of the request, with the format of the answer.
    formatted: &'a Formatted,
}

impl Calls<'_> {
    /// Let calls follow the schemas of their tools: from the beginning of the answer if a call is
    /// required, which may have reasoning before it, else from the beginning of a call on.
    ///
    /// # Errors
    /// [`ApiError`] if the request has a grammar of its own, or a schema cannot be followed.
    fn constrain(&self, app: &App, client: &Client, reading: &mut Reading) -> Result<(), ApiError> {
        if let Some(constraint) = &reading.constraint {
            // Text in the asked format is an answer too, unless a call is required.
            return match self.is_required {
                true => Err(self.formatted.conflict(constraint.name(), "a required call")),
                false => Ok(()),
            };
        }
        let followed = self.followed(&app.compiler(client)?);
        let (constraint, schemas) = followed.map_err(|error| ApiError::from(error).about("tools"))?;
        let followed = self.tools.iter().zip(self.schemas.iter().zip(&schemas));
        let opened = followed.filter(|(_, (wanted, followed))| wanted != followed);
        reading.ignored.extend(opened.map(|(tool, _)| format!("{}#", tool.name)));
        constraint.into_iter().for_each(|constraint| reading.constrain(app, constraint));
        Ok(())
    }

    /// Return the grammar of calls that follows as many schemas as possible. A schema may be too
    /// much for a grammar, and many may be so together: then those of the largest tools give way,
    /// twice as many at a time. Return the schemas that are followed, too.
    ///
    /// # Errors
    /// [`GrammarError`] if it is too large without any schema.
    fn followed(&self, compiler: &Compiler) -> Result<(Option<Constraint>, Vec<Value>), GrammarError> {
        let mut schemas = self.schemas.to_vec();
        let compiled = |schemas: &[Value]| self.grammar(compiler, &described(self.tools, schemas));
        match compiled(&schemas) {
            Ok(constraint) => return Ok((constraint, schemas)),
            Err(GrammarError::Cancelled) => return Err(GrammarError::Cancelled),
            Err(_) => {}
        }
        open_failing(self.tools, &mut schemas, |tool, schema| {
            let alone = described(core::slice::from_ref(tool), core::slice::from_ref(schema));
            self.grammar(compiler, &alone).is_ok()
        });
        let size = |schema: &Value| schema.to_string().len();
        let mut by_size: Vec<(usize, usize)> = schemas.iter().map(size).zip(0..).collect();
        by_size.sort_unstable_by(|one, other| other.cmp(one));
        let mut n_open = 0;
        loop {
            match compiled(&schemas) {
                Ok(constraint) => return Ok((constraint, schemas)),
                Err(error) if n_open >= schemas.len() || error == GrammarError::Cancelled => {
                    return Err(error);
                }
                Err(_) => {}
            }
            n_open = (2 * n_open).max(1);
            for (_, index) in by_size.iter().take(n_open) {
                schemas.get_mut(*index).into_iter().for_each(|schema| *schema = any_object());
            }
        }
    }

    /// Return the grammar of calls of `tools`, if there has to be one.
    fn grammar(
        &self,
        compiler: &Compiler,
        tools: &[TemplateValue],
    ) -> Result<Option<Constraint>, GrammarError> {
        let token = control_token(compiler.vocab());
        let (lark, triggers) = match self.is_required {
            true => (
                self.format
                    .answer_grammar(&self.options.clone().tools(tools).parallel(self.parallel), &token),
                Vec::new(),
            ),
            false => (self.format.grammar(tools, self.parallel, &token), self.format.triggers(tools)),
        };
        let lark = lark.filter(|_| self.is_required || !triggers.is_empty());
        let triggers: Vec<_> = triggers
            .into_iter()
            .map(|trigger| match trigger {
                CallTrigger::Anywhere(text) => Trigger::Word(text),
                CallTrigger::AtStart(text) => Trigger::Start(text),
            })
            .collect();
        lark.map(|lark| Constraint::of_lark(compiler, &lark, &triggers)).transpose()
    }
}

/// Let tools take any object whose schemas cannot be followed alone, and those that are left once
/// too many were tried.
fn open_failing(tools: &[Tool], schemas: &mut [Value], can_follow: impl Fn(&Tool, &Value) -> bool) {
    let mut n_failed = 0;
    for (i, (tool, schema)) in tools.iter().zip(schemas).enumerate() {
        let is_tried = i < MAX_TRIED && n_failed < MAX_FAILED;
        if !is_tried || !can_follow(tool, schema) {
            *schema = any_object();
            n_failed += 1;
        }
    }
}

/// Return the descriptions of `tools` with these schemas.
pub(super) fn described(tools: &[Tool], schemas: &[Value]) -> Vec<TemplateValue> {
    let tools = tools.iter().zip(schemas);
    let tools = tools.map(|(tool, schema)| Tool { parameters: schema.clone(), ..tool.clone() });
    tools.map(|tool| template_value(&tool.to_json())).collect()
}

/// Return what finds control tokens by their texts. Texts of other tokens can be written otherwise
/// too, so that formats must not insist on these.
fn control_token(vocab: &Vocab) -> impl Fn(&str) -> Option<u32> {
    let is_control = |token: &Token| vocab.is_hidden(*token) || vocab.is_eog(*token);
    move |text| vocab.find(text.as_bytes()).filter(is_control).map(|token| token.0)
}

/// Return stop strings with the ends of the template behind them that are no control tokens.
fn with_ends(stops: &[String], ends: &[&str], token: &dyn Fn(&str) -> Option<u32>) -> Arc<[String]> {
    let ends = ends.iter().filter(|end| token(end).is_none()).map(|&end| end.to_owned());
    stops.iter().cloned().chain(ends).collect()
}

/// Return the constraint of an answer behind its reasoning: that which the prompt began, and where
/// the answer has to be JSON, also that which the model may begin. Grammars of other kinds are for
/// clients that know what the model writes from its first token on. Return `None` if there is
/// nothing before the answer.
///
/// # Errors
/// [`GrammarError`] if both together are too large.
fn behind_reasoning(
    constraint: &Constraint,
    format: &Format,
    options: &Options,
    token: &dyn Fn(&str) -> Option<u32>,
) -> Result<Option<Constraint>, GrammarError> {
    let applies = constraint.is_eager() && (constraint.is_schema() || format.is_reasoning(options));
    let lark = if applies { format.content_grammar("@body", options, token) } else { None };
    lark.map(|lark| constraint.within(&lark)).transpose()
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

impl From<ConversationError> for ApiError {
    fn from(error: ConversationError) -> Self {
        match &error {
            ConversationError::Missing { field } => ApiError::missing(field),
            ConversationError::Wrong { field, expected } => ApiError::field(field, expected),
            ConversationError::Tokens(error) => (*error).into(),
            ConversationError::Media { field, .. } | ConversationError::Refused { field, .. } => {
                ApiError::invalid(error.to_string()).about(field)
            }
            ConversationError::Conflict { field, .. } => ApiError::invalid(error.to_string()).about(field),
            _ => ApiError::invalid(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_models::Model;
    use backstitch_models::sampler::Sampler;
    use backstitch_models::vocab::{AddSpecial, ParseSpecial};
    use serde_json::json;

    fn tool(name: &str, parameters: Value) -> Tool {
        Tool { name: name.into(), description: String::new(), parameters }
    }

    /// Each schema takes time that the client does not pay for.
    #[test]
    fn few_schemas_are_tried_alone() {
        let tools: Vec<Tool> = (0..1000).map(|i| tool(&format!("t{i}"), json!({}))).collect();
        for (result, n_tried) in [(true, MAX_TRIED), (false, MAX_FAILED)] {
            let (mut schemas, n) = (vec![json!(true); 1000], core::cell::Cell::new(0));
            open_failing(&tools, &mut schemas, |_, _| {
                n.set(n.get() + 1);
                result
            });
            assert_eq!(n.get(), n_tried);
            assert_eq!(schemas[0] == json!(true), result);
            assert_eq!(schemas[999], any_object());
        }
    }

    /// Each schema could be followed alone, but not all together.
    #[test]
    fn the_largest_tools_give_way() {
        let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
        let compiler = Compiler::new(model.vocab()).unwrap();
        let long = |n: usize| json!({"properties": {"x": {"const": "y".repeat(n)}}, "required": ["x"]});
        let tools = [
            tool("little", json!({"properties": {"x": {"type": "integer"}}, "required": ["x"]})),
            tool("large", long(180_000)),
            tool("largest", long(200_000)),
            tool("larger", long(190_000)),
        ];
        let format = Format::of_template("<tool_call>{{ tool_call | tojson }}</tool_call>");
        let options = Options::default().parallel(false);
        let schemas = tools.clone().map(|tool| standalone(&tool.parameters, &Cancel::new()).0);
        let (format, options, tools, schemas) = (&format, &options, &tools, &schemas);
        let formatted = &Formatted::read(Fields::new(&Map::new()), |_| true).unwrap();
        let calls = Calls { format, options, tools, schemas, parallel: false, is_required: true, formatted };
        let constraint = calls.followed(&compiler).unwrap().0.unwrap();
        for (name, is_followed) in [("little", true), ("large", true), ("larger", true), ("largest", false)] {
            let mut sampler = constraint.sampler(0);
            let text =
                format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {{\"z\": 1}}}}</tool_call>");
            let mut tokens = Vec::new();
            model.vocab().tokenize(&text, AddSpecial::No, ParseSpecial::No, &mut tokens);
            tokens.into_iter().for_each(|token| sampler.accept(token));
            assert_eq!(sampler.is_accepting(), !is_followed, "{name}");
        }
    }
}
