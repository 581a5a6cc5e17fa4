//! Options of llama-server that `serve` does not have.
//!
//! Command lines that work there should work here, or say what to do instead. An option that would
//! change answers, or what protects them, is refused; one that only makes llama-server faster is
//! accepted with a note.

use super::llama::Treatment::{Ignored, Off, Refused};
use super::llama::{Flag, Takes, only};
use Takes::{Maybe, Nothing, Value};

/// The command that the options below belong to.
const SERVE: &[&str] = &["serve"];
/// The answer to options of encryption. A proxy does it better, and is kept up to date by others.
const TLS: &str = "connections are not encrypted here; put a proxy that does it in front (docs/security.md)";
/// The note for options of speculation.
const DRAFT: &str = "--draft-model and --lookup say where drafts come from, --draft-max how long they are";
/// The answer to options that let the server act for the model.
const TOOLS: &str = "the server runs no tools; clients do";
/// The answer to options of a folder of models from which requests choose.
const REPOSITORY: &str = "one model is served at a time: -m FILE";

/// The options, before those of all commands.
pub const FLAGS: &[Flag] = &[
    only(SERVE, &["--ssl-key-file", "--ssl-cert-file"], Value, Refused(TLS)),
    only(SERVE, &["--path", "--api-prefix"], Value, Refused("put a proxy with that path in front")),
    only(SERVE, &["--reuse-port"], Nothing, Ignored("the port belongs to one process")),
    only(SERVE, &["--models-dir", "--models-preset", "--models-max"], Value, Refused(REPOSITORY)),
    only(SERVE, &["--models-autoload", "--no-models-autoload"], Nothing, Ignored(REPOSITORY)),
    only(
        SERVE,
        &["--cors-methods", "--cors-headers"],
        Value,
        Ignored("pages of allowed origins may use all methods and headers"),
    ),
    only(
        SERVE,
        &["--cors-credentials", "--no-cors-credentials"],
        Nothing,
        Ignored("there are no cookies; keys come in headers"),
    ),
    only(
        SERVE,
        &["--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json"],
        Value,
        Refused(TOOLS),
    ),
    only(SERVE, &["-ag", "--agent", "--ui-mcp-proxy", "--webui-mcp-proxy"], Nothing, Refused(TOOLS)),
    only(
        SERVE,
        &["-no-ag", "--no-agent", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"],
        Nothing,
        Ignored(TOOLS),
    ),
    only(
        SERVE,
        &["--ui-config", "--ui-config-file", "--webui-config", "--webui-config-file"],
        Value,
        Ignored("the page keeps its settings in the browser"),
    ),
    only(SERVE, &["--media-path"], Value, Ignored("models read text only here")),
    only(
        SERVE,
        &["--spec-type", "--spec-draft-n-min", "--spec-draft-p-min", "--spec-draft-p-split"],
        Value,
        Ignored(DRAFT),
    ),
    only(SERVE, &["--spec-draft-backend-sampling", "--spec-default"], Nothing, Ignored(DRAFT)),
    only(
        SERVE,
        &["-cb", "--cont-batching", "-nocb", "--no-cont-batching"],
        Nothing,
        Ignored("requests are always evaluated together"),
    ),
    only(
        SERVE,
        &["-sps", "--slot-prompt-similarity", "--cache-reuse"],
        Value,
        Ignored("the longest prefix that is held is always found, whichever slot shows it"),
    ),
    only(
        SERVE,
        &["--cache-idle-slots", "--no-cache-idle-slots"],
        Nothing,
        Ignored("conversations are kept apart from slots; --cache-ram limits them"),
    ),
    only(
        SERVE,
        &["-bs", "--backend-sampling", "--backend_sampling"],
        Nothing,
        Ignored("sampling runs on the CPU"),
    ),
    only(
        SERVE,
        &["-cms", "--checkpoint-min-step"],
        Value,
        Ignored("--spacing sets the distance of checkpoints"),
    ),
    only(
        SERVE,
        &["-p", "--prompt", "-f", "--file", "-sys", "--system-prompt", "-sysf", "--system-prompt-file"],
        Value,
        Refused("clients send the prompts"),
    ),
    only(SERVE, &["--reasoning-budget-message", "--reasoning-effort"], Value, Ignored("clients may set it")),
    only(
        SERVE,
        &["--reasoning-preserve", "--no-reasoning-preserve", "--skip-chat-parsing", "--no-skip-chat-parsing"],
        Nothing,
        Ignored("--reasoning-format says what becomes of thoughts"),
    ),
    only(SERVE, &["-fit", "--fit"], Maybe(&["on", "off"]), Ignored("sizes that do not fit are an error")),
    only(
        SERVE,
        &["-fitt", "--fit-target", "-fitc", "--fit-ctx"],
        Value,
        Ignored("sizes that do not fit are an error"),
    ),
    only(SERVE, &["--embd-normalize"], Value, Off(&["2"], "clients set it: \"embd_normalize\"")),
    only(
        SERVE,
        &["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"],
        Value,
        Refused("clients send grammars and schemas"),
    ),
];
