//! llama-server's environment variables, as options of `serve`.
//!
//! Containers and service files set these. Options of the command line count more. Variables of
//! options that do not exist here are treated as these options are: those that would change
//! answers, or what protects them, are refused.

use super::defaults::Setting;
use super::llama::{self, Takes, Treatment};
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
    ("LLAMA_ARG_CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs", Value),
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
    ("LLAMA_ARG_TEMPERATURE", "--temp", Value),
    ("LLAMA_ARG_TOP_K", "--top-k", Value),
    ("LLAMA_ARG_TOP_P", "--top-p", Value),
    ("LLAMA_ARG_MIN_P", "--min-p", Value),
    ("LLAMA_ARG_REPEAT_PENALTY", "--repeat-penalty", Value),
    ("LLAMA_ARG_PRESENCE_PENALTY", "--presence-penalty", Value),
    ("LLAMA_ARG_FREQUENCY_PENALTY", "--frequency-penalty", Value),
    ("LLAMA_ARG_MODEL_DRAFT", "--draft-model", Value),
    ("LLAMA_ARG_SPEC_DRAFT_MODEL", "--draft-model", Value),
    ("LLAMA_ARG_DRAFT_MAX", "--draft-max", Value),
    ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "--draft-max", Value),
];

/// The beginning of the names of all variables of llama.cpp.
const PREFIX: &str = "LLAMA_ARG_";

/// The beginning of the names of variables that stand for the opposite of a switch, whatever their
/// value.
const OPPOSITE: &str = "LLAMA_ARG_NO_";

/// The command that the variables are for.
const COMMAND: &str = "serve";

/// Variables of options that do not exist here, under names that are not those of the options.
const OTHER_NAMES: [(&str, &str); 2] =
    [("LLAMA_ARG_STATIC_PATH", "--path"), ("LLAMA_ARG_ROPE_SCALING_TYPE", "--rope-scaling")];

/// Return the options that variables stand for, and notes about variables without a meaning here.
///
/// # Errors
/// One line about a variable whose option is refused.
pub fn options(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(Vec<Setting>, Vec<String>), String> {
    let (mut options, mut notes) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some(name) = name.to_str() else { continue };
        match VARIABLES.iter().find(|(known, ..)| *known == name) {
            Some((_, option, Value)) => options.push(Setting::new(*option, Some(value))),
            Some((_, option, kind)) => options.push(switch(option, *kind, &value)),
            None => match (opposite(name), name.starts_with(PREFIX)) {
                (Some(option), _) => options.push(Setting::new(option, None)),
                (None, true) => notes.extend(foreign(name, &value)?),
                (None, false) => {}
            },
        }
    }
    Ok((options, notes))
}

/// Return the option that a variable for the opposite of a switch stands for.
fn opposite(name: &str) -> Option<&'static str> {
    let switch = format!("{PREFIX}{}", name.strip_prefix(OPPOSITE)?);
    VARIABLES.iter().find_map(|(known, _, kind)| match kind {
        Either(opposite) if *known == switch => Some(*opposite),
        _ => None,
    })
}

/// Treat a variable as the option of llama.cpp that it stands for, which does not exist here.
/// Return a note about it.
///
/// # Errors
/// One line, if the option is refused.
fn foreign(name: &str, value: &OsString) -> Result<Option<String>, String> {
    let other = OTHER_NAMES.iter().find(|(known, _)| *known == name).map(|(_, option)| (*option).to_owned());
    let option = other.unwrap_or_else(|| {
        let words = name.strip_prefix(PREFIX).unwrap_or(name);
        format!("--{}", words.to_lowercase().replace('_', "-"))
    });
    let ignored = |why: &str| Ok(Some(format!("{name} is ignored: {why}")));
    let Some(flag) = llama::find(&option, COMMAND) else { return ignored("it has no meaning here") };
    let is_off = match flag.takes {
        Takes::Nothing => !is_on(value),
        Takes::Value | Takes::Maybe(_) => value.is_empty(),
    };
    match flag.treatment {
        Treatment::Ignored(why) => ignored(why),
        _ if is_off => Ok(None),
        Treatment::Off(values, _) if value.to_str().is_some_and(|value| values.contains(&value)) => Ok(None),
        Treatment::Refused(instead) | Treatment::Off(_, instead) => Err(format!("{name}: {instead}")),
    }
}

/// Return the option that a value of a switch stands for.
fn switch(option: &'static str, kind: Kind, value: &OsString) -> Setting {
    match kind {
        _ if is_on(value) => Setting::new(option, None),
        Either(opposite) => Setting::new(opposite, None),
        _ => Setting::off(option),
    }
}

/// Return true for a value that switches something on.
fn is_on(value: &OsString) -> bool {
    let value = value.to_string_lossy().to_lowercase();
    !matches!(value.as_str(), "" | "0" | "false" | "off" | "no" | "disabled")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_read(pairs: &[(&str, &str)]) -> Result<(Vec<Setting>, Vec<String>), String> {
        options(pairs.iter().map(|(name, value)| (name.into(), value.into())))
    }

    fn read(pairs: &[(&str, &str)]) -> (Vec<OsString>, Vec<String>) {
        let (options, notes) = try_read(pairs).unwrap();
        (options.into_iter().flat_map(Setting::into_words).collect(), notes)
    }

    #[test]
    fn variables_stand_for_options() {
        let pairs = [("LLAMA_ARG_PORT", "81"), ("LLAMA_ARG_ENDPOINT_SLOTS", "0"), ("HOME", "/root")];
        assert_eq!(read(&pairs).0, ["--port", "81", "--no-slots"]);
        assert_eq!(read(&[("LLAMA_ARG_ENDPOINT_METRICS", "false")]).0, [""; 0]);
        assert_eq!(read(&[("LLAMA_ARG_N_GPU_LAYERS", "9")]).1.len(), 1);
        assert_eq!(read(&[("LLAMA_ARG_TEMPERATURE", "0.5")]).0, ["--temp", "0.5"]);
        assert_eq!(read(&[("LLAMA_ARG_NO_CONTEXT_SHIFT", "1")]).0, ["--no-context-shift"]);
    }

    #[test]
    fn variables_of_refused_options_are_refused() {
        for name in ["HF_REPO", "MODEL_URL", "SSL_KEY_FILE", "SSL_CERT_FILE", "STATIC_PATH", "MODELS_DIR"] {
            let name = format!("LLAMA_ARG_{name}");
            let refused = try_read(&[(&name, "x")]).map(drop).unwrap_err();
            assert!(refused.starts_with(&format!("{name}: ")), "{refused}");
            assert!(read(&[(&name, "")]).0.is_empty(), "{name}");
        }
        assert!(try_read(&[("LLAMA_ARG_AGENT", "1")]).is_err());
        assert!(read(&[("LLAMA_ARG_AGENT", "0")]).0.is_empty());
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
