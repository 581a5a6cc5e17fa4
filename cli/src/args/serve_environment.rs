//! llama-server's environment variables, as options of `serve`.
//!
//! Containers and service files set these. Options of the command line count more. Variables of
//! options that do not exist here are left alone, because other programs may read them.

use super::defaults::Setting;
use std::ffi::OsString;

/// A variable, the option that it stands for, and the option for a false value of a switch.
type Variable = (&'static str, &'static str, Kind);

/// The value of a variable.
#[derive(Clone, Copy)]
enum Kind {
    /// The value of the option.
    Value,
    /// A switch: on for true values.
    Switch,
    /// A switch with an opposite.
    Either(&'static str),
}

use Kind::{Either, Switch, Value};

/// The variables, in the order of the options in llama-server's help. If two of them stand for one
/// option, the later one counts, as it does on a command line.
const VARIABLES: &[Variable] = &[
    ("LLAMA_ARG_MODEL", "--model", Value),
    ("LLAMA_ARG_HOST", "--host", Value),
    ("LLAMA_ARG_PORT", "--port", Value),
    ("LLAMA_ARG_TIMEOUT", "--timeout", Value),
    ("LLAMA_ARG_SSE_PING_INTERVAL", "--sse-ping-interval", Value),
    ("LLAMA_ARG_UI", "--ui", Either("--no-ui")),
    ("LLAMA_ARG_WEBUI", "--ui", Either("--no-ui")),
    ("LLAMA_API_KEY", "--api-key", Value),
    ("LLAMA_ARG_API_KEY", "--api-key", Value),
    ("LLAMA_ARG_API_KEY_FILE", "--api-key-file", Value),
    ("LLAMA_ARG_CORS_ORIGINS", "--cors-origins", Value),
    ("LLAMA_ARG_ENDPOINT_METRICS", "--metrics", Switch),
    ("LLAMA_ARG_ENDPOINT_PROPS", "--props", Switch),
    ("LLAMA_ARG_ENDPOINT_SLOTS", "--slots", Either("--no-slots")),
    ("LLAMA_ARG_N_PARALLEL", "--parallel", Value),
    ("LLAMA_ARG_KV_UNIFIED", "--kv-unified", Either("--no-kv-unified")),
    ("LLAMA_ARG_CACHE_RAM", "--cache-ram", Value),
    ("LLAMA_ARG_CACHE_PROMPT", "--cache-prompt", Either("--no-cache-prompt")),
    ("LLAMA_ARG_SLOT_SAVE_PATH", "--slot-save-path", Value),
    ("LLAMA_ARG_CONTEXT_SHIFT", "--context-shift", Either("--no-context-shift")),
    ("LLAMA_ARG_SLEEP_IDLE_SECONDS", "--sleep-idle-seconds", Value),
    ("LLAMA_ARG_ALIAS", "--alias", Value),
    ("LLAMA_ARG_TAGS", "--tags", Value),
    ("LLAMA_ARG_N_PREDICT", "--predict", Value),
    ("LLAMA_ARG_EMBEDDINGS", "--embedding", Switch),
    ("LLAMA_ARG_RERANKING", "--reranking", Switch),
    ("LLAMA_ARG_POOLING", "--pooling", Value),
    ("LLAMA_ARG_CHAT_TEMPLATE", "--chat-template", Value),
    ("LLAMA_ARG_CHAT_TEMPLATE_FILE", "--chat-template-file", Value),
    ("LLAMA_CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs", Value),
    ("LLAMA_ARG_JINJA", "--jinja", Either("--no-jinja")),
    ("LLAMA_ARG_THINK", "--reasoning-format", Value),
    ("LLAMA_ARG_REASONING", "--reasoning", Value),
    ("LLAMA_ARG_THINK_BUDGET", "--reasoning-budget", Value),
    ("LLAMA_ARG_PREFILL_ASSISTANT", "--prefill-assistant", Either("--no-prefill-assistant")),
    ("LLAMA_ARG_CTX_SIZE", "--ctx-size", Value),
    ("LLAMA_ARG_BATCH", "--batch-size", Value),
    ("LLAMA_ARG_UBATCH", "--ubatch-size", Value),
    ("LLAMA_ARG_THREADS", "--threads", Value),
    ("LLAMA_ARG_CACHE_TYPE_K", "--cache-type-k", Value),
    ("LLAMA_ARG_CACHE_TYPE_V", "--cache-type-v", Value),
    ("LLAMA_ARG_TOP_K", "--top-k", Value),
    ("LLAMA_ARG_MODEL_DRAFT", "--draft-model", Value),
    ("LLAMA_ARG_SPEC_DRAFT_MODEL", "--draft-model", Value),
    ("LLAMA_ARG_DRAFT_MAX", "--draft-max", Value),
    ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "--draft-max", Value),
];

/// The beginning of the names of all variables of llama.cpp.
const PREFIX: &str = "LLAMA_ARG_";

/// Return the options that variables stand for, and notes about variables without a meaning here.
pub fn options(variables: impl Iterator<Item = (OsString, OsString)>) -> (Vec<Setting>, Vec<String>) {
    let (mut options, mut notes) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some(name) = name.to_str() else { continue };
        match VARIABLES.iter().find(|(known, ..)| *known == name) {
            Some((_, option, Value)) => options.push(Setting::new(*option, Some(value))),
            Some((_, option, kind)) => options.push(switch(option, *kind, &value)),
            None if name.starts_with(PREFIX) => {
                notes.push(format!("{name} is ignored: it has no meaning here"));
            }
            None => {}
        }
    }
    (options, notes)
}

/// Return the option that a value of a switch stands for.
fn switch(option: &'static str, kind: Kind, value: &OsString) -> Setting {
    let is_on = !matches!(
        value.to_string_lossy().to_lowercase().as_str(),
        "" | "0" | "false" | "off" | "no" | "disabled"
    );
    match kind {
        _ if is_on => Setting::new(option, None),
        Either(opposite) => Setting::new(opposite, None),
        _ => Setting::off(option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Vec<OsString>, Vec<String>) {
        let (options, notes) = options(pairs.iter().map(|(name, value)| (name.into(), value.into())));
        (options.into_iter().flat_map(Setting::into_words).collect(), notes)
    }

    #[test]
    fn variables_stand_for_options() {
        let pairs = [("LLAMA_ARG_PORT", "81"), ("LLAMA_ARG_ENDPOINT_SLOTS", "0"), ("HOME", "/root")];
        assert_eq!(read(&pairs).0, ["--port", "81", "--no-slots"]);
        assert_eq!(read(&[("LLAMA_ARG_ENDPOINT_METRICS", "false")]).0, [""; 0]);
        assert_eq!(read(&[("LLAMA_ARG_N_GPU_LAYERS", "9")]).1.len(), 1);
    }

    #[test]
    fn every_option_exists() {
        use clap::CommandFactory;
        let mut root = crate::args::Cli::command();
        root.build();
        let serve = root.find_subcommand("serve").unwrap();
        let exists = |name: &str| serve.get_arguments().any(|arg| arg.get_long() == name.strip_prefix("--"));
        for (name, option, kind) in VARIABLES {
            assert!(exists(option), "{name}");
            if let Either(opposite) = kind {
                assert!(exists(opposite), "{name}");
            }
        }
    }
}
