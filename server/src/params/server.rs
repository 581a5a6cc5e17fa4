//! Settings of the server.

use super::sampling::Sampling;
use crate::engine::SlotLayout;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a server, with llama-server's defaults where it has them.
///
/// # Example
/// ```
/// use backstitch_server::params::ServerParams;
///
/// let params = ServerParams { port: 0, ..ServerParams::default() };
/// assert_eq!((params.hosts[0].as_str(), params.alias()), ("127.0.0.1", "model"));
/// ```
#[derive(Clone, Debug)]
pub struct ServerParams {
    /// The addresses to listen on.
    pub hosts: Vec<String>,
    /// The port to listen on; 0 for any that is free.
    pub port: u16,
    /// The names of the model; the first one is in answers.
    pub aliases: Vec<String>,
    /// Words about the model, for `/v1/models`.
    pub tags: Vec<String>,
    /// The file of the model, for `/props`.
    pub model_path: Option<PathBuf>,
    /// Samplers of requests that do not say otherwise.
    pub sampling: Sampling,
    /// The most tokens that a request may generate; `None` for no limit.
    pub n_predict: Option<usize>,
    /// The number of tokens at the beginning that stay when the context shifts; `None` for all of
    /// the prompt.
    pub n_keep: Option<usize>,
    /// A full context shifts instead of ending the generation.
    pub context_shift: bool,
    /// Requests reuse what is held, unless they say otherwise.
    pub cache_prompt: bool,
    /// Keys of clients; anyone is admitted if there are none.
    pub api_keys: Vec<String>,
    /// Origins whose pages may use the server; `*` for all. None by default.
    pub cors_origins: Vec<String>,
    /// The most bytes of a body.
    pub max_body_bytes: usize,
    /// The longest time of a request.
    pub timeout: Duration,
    /// The longest time in which the headers of a request arrive.
    pub header_timeout: Duration,
    /// The longest time until the next piece of a body arrives. A long body also has to bring 64
    /// KiB a second.
    pub body_timeout: Duration,
    /// The longest time in which a client takes no byte of an answer.
    pub write_timeout: Duration,
    /// The time that requests under way have to end when the server stops.
    pub grace: Duration,
    /// The most open connections; further ones wait.
    pub max_connections: usize,
    /// The folder of saved slots; slots cannot be saved without it.
    pub slot_save_path: Option<PathBuf>,
    /// The layout of saved slots.
    pub slot_layout: SlotLayout,
    /// `/metrics` answers.
    pub metrics: bool,
    /// `/slots` answers.
    pub slots: bool,
    /// `POST /props` answers.
    pub props: bool,
    /// Only embeddings are asked for.
    pub embedding: bool,
    /// Only scores of documents are asked for.
    pub reranking: bool,
    /// The page at `/` is there.
    pub ui: bool,
    /// Templates are run as Jinja. Without it, tools cannot be offered.
    pub jinja: bool,
    /// The way in which thoughts are told: `none`, `deepseek`, `deepseek-legacy` or `auto`.
    pub reasoning_format: String,
    /// Thinking is asked for (`on`), forbidden (`off`), or left to the template (`auto`).
    pub reasoning: String,
    /// Variables for the chat template, a JSON object.
    pub template_variables: serde_json::Map<String, serde_json::Value>,
    /// The template continues a last message of the assistant.
    pub prefill_assistant: bool,
    /// The model is dropped from memory after so long without a request.
    pub sleep_after: Option<Duration>,
    /// The time between comments in streams in which nothing happens.
    pub ping: Duration,
    /// Answers tell details for debugging, as llama-server's do with `--verbose`.
    pub verbose: bool,
}

impl ServerParams {
    /// Return the name of the model in answers.
    pub fn alias(&self) -> &str {
        self.aliases.first().map_or("model", String::as_str)
    }
}

impl Default for ServerParams {
    fn default() -> Self {
        ServerParams {
            hosts: vec!["127.0.0.1".into()],
            port: 8080,
            aliases: Vec::new(),
            tags: Vec::new(),
            model_path: None,
            sampling: Sampling::default(),
            n_predict: None,
            n_keep: Some(0),
            context_shift: false,
            cache_prompt: true,
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            max_body_bytes: 32 << 20,
            timeout: Duration::from_secs(3600),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            max_connections: 1024,
            slot_save_path: None,
            slot_layout: SlotLayout::default(),
            metrics: false,
            slots: true,
            props: false,
            embedding: false,
            reranking: false,
            ui: true,
            jinja: true,
            reasoning_format: "auto".into(),
            reasoning: "auto".into(),
            template_variables: serde_json::Map::new(),
            prefill_assistant: true,
            sleep_after: None,
            ping: Duration::from_secs(30),
            verbose: false,
        }
    }
}
