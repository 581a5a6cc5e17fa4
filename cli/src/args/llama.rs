//! Options of llama.cpp that this program does not have.
//!
//! A script written for llama.cpp should work here, or fail with a message that says what to
//! change. So an option that cannot change the result is ignored with a note ([`Ignored`]), and one
//! that would change it is refused with what to do instead ([`Refused`]). [`FLAGS`] is the whole
//! table; to support another option of llama.cpp is to add a line to it. Options that exist here
//! under other names are not in it: `expand` spells them out.

/// Values that follow an option on the command line.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// No value: the next word is another option or argument.
    Nothing,
    /// One value, the next word or the text after `=`.
    Value,
    /// One of these words if it is the next one, or no value.
    Maybe(&'static [&'static str]),
}

/// The treatment of an option that this program does not have.
#[derive(Clone, Copy, Debug)]
pub enum Treatment {
    /// The option changes nothing here and is dropped; the text is the note that says why.
    Ignored(&'static str),
    /// The option would change the result; the text is the error that says what to do instead.
    Refused(&'static str),
    /// The option is dropped silently with one of these values, which switch it off in llama.cpp;
    /// with any other value it is refused.
    Off(&'static [&'static str], &'static str),
}

/// An option of llama.cpp, or several that are treated alike.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Names of the options, with their dashes.
    pub names: &'static [&'static str],
    /// Commands that this entry is for; empty for all commands.
    commands: &'static [&'static str],
    /// Values that follow the option.
    pub takes: Takes,
    /// Treatment of the option.
    pub treatment: Treatment,
}

/// Return the entry for an option of that name in `command`.
pub fn find(name: &str, command: &str) -> Option<&'static Flag> {
    let is_about = |flag: &&Flag| flag.commands.is_empty() || flag.commands.contains(&command);
    all().filter(is_about).find(|flag| flag.names.contains(&name))
}

/// Iterate over the names of all options in the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().flat_map(|flag| flag.names).copied()
}

/// Iterate over the table, options of the server first.
fn all() -> impl Iterator<Item = &'static Flag> {
    super::llama_server::FLAGS.iter().chain(FLAGS)
}

#[cfg(test)]
impl Flag {
    /// Return true if the entry is for some commands only.
    pub fn is_about_some(&self) -> bool {
        !self.commands.is_empty()
    }
}

/// Make an entry for all commands.
const fn flag(names: &'static [&'static str], takes: Takes, treatment: Treatment) -> Flag {
    Flag { names, commands: &[], takes, treatment }
}

/// Make an entry for some commands only.
pub const fn only(
    commands: &'static [&'static str],
    names: &'static [&'static str],
    takes: Takes,
    treatment: Treatment,
) -> Flag {
    Flag { names, commands, takes, treatment }
}

use Takes::{Maybe, Nothing, Value};
use Treatment::{Ignored, Off, Refused};

/// Words that may follow a switch of llama.cpp.
const ON_OFF: Takes = Maybe(&["on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled"]);
/// Values that mean 0, which switches a sampler off.
const ZERO: &[&str] = &["0", "0.0", "0.00"];

// Treatments that several options share.

/// The treatment of options for graphics processors.
const CPU: Treatment = Ignored("everything runs on the CPU");
/// The treatment of options that say where in memory things lie.
const PLACEMENT: Treatment =
    Ignored("threads are placed by the system; start the program with `taskset` to change that");
/// The treatment of options for the rotation of positions.
const IN_FILE: Treatment = Refused("the model file says how positions are rotated; change it there");
/// The treatment of options that name models on servers.
const DOWNLOAD: Treatment =
    Refused("nothing is downloaded here; get the GGUF file, then name it with -m FILE");
/// The treatment of options for conversations.
const CHAT: Treatment = Refused("`backstitch chat` chats, `backstitch run` continues a text");
/// The treatment of options for grammars.
const GRAMMAR: Treatment =
    Refused("a request to `backstitch serve` may have a grammar; --logit-bias TOKEN-inf bans a token");
/// The treatment of options for logs.
const LOGS: Treatment = Ignored("there is no log; -v tells more on standard error");
/// The treatment of options for pictures and sounds.
const MEDIA: Treatment = Refused("models read text only here");
/// The treatment of options for servers.
const SERVER: Treatment = Refused("this is an option of `backstitch serve`");
/// The treatment of options for chat templates.
const TEMPLATE: Treatment = Refused("`backstitch chat --chat-template` takes another chat template");
/// The treatment of options for what stands around a prompt.
const PREFIX: Treatment =
    Refused("the chat template puts these texts around messages: use `backstitch chat`");
/// The treatment of options for the draft model.
const DRAFT: Treatment = Ignored("the draft model has the settings of the model");
/// The treatment of options for full contexts.
const SHIFT: Treatment = Ignored("a text ends when the context is full; a larger -c gives it more room");
/// The treatment of options for several sequences.
const SEQUENCES: Treatment =
    Refused("there is one text at a time; `backstitch bench --seqs N` measures several");

/// The options of llama.cpp, grouped like llama.cpp's own help. The first entry that fits name and
/// command counts, so an entry for one command comes before the one for all.
pub const FLAGS: &[Flag] = &[
    // Devices: there is the CPU only.
    flag(&["-ngl", "--gpu-layers", "--n-gpu-layers"], Value, CPU),
    flag(&["-sm", "--split-mode"], Value, CPU),
    flag(&["-ts", "--tensor-split"], Value, CPU),
    flag(&["-mg", "--main-gpu"], Value, CPU),
    flag(&["-dev", "--device"], Value, CPU),
    flag(&["-ot", "--override-tensor"], Value, CPU),
    flag(&["-cmoe", "--cpu-moe"], Nothing, CPU),
    flag(&["-ncmoe", "--n-cpu-moe"], Value, CPU),
    flag(&["-nkvo", "--no-kv-offload"], Nothing, CPU),
    flag(&["-kvo", "--kv-offload"], Nothing, CPU),
    flag(&["--no-op-offload", "--op-offload"], Nothing, CPU),
    flag(&["--rpc"], Value, CPU),
    flag(
        &["--list-devices"],
        Nothing,
        Refused("there is the CPU alone; `backstitch run -n 0 -v` names its kernels"),
    ),
    // Threads and memory: speed may change, the result cannot.
    flag(&["-tb", "--threads-batch"], Value, Ignored("prompts use the threads of -t")),
    flag(
        &["-C", "--cpu-mask", "-Cr", "--cpu-range", "-Cb", "--cpu-mask-batch", "-Crb", "--cpu-range-batch"],
        Value,
        PLACEMENT,
    ),
    flag(
        &["--cpu-strict", "--cpu-strict-batch", "--prio", "--prio-batch", "--poll", "--poll-batch"],
        Value,
        PLACEMENT,
    ),
    flag(&["--numa"], Value, PLACEMENT),
    flag(&["--mlock"], Nothing, Ignored("memory is not locked; the system may swap it")),
    flag(&["--mmap"], Nothing, Ignored("files are mapped unless --no-mmap says otherwise")),
    flag(
        &["-dio", "--direct-io", "-ndio", "--no-direct-io"],
        Nothing,
        Ignored("--no-mmap reads the file instead of mapping it"),
    ),
    flag(
        &["-nr", "--no-repack", "--repack"],
        Nothing,
        Ignored("weights are always repacked; `backstitch pack` does it once and for all"),
    ),
    flag(&["--no-host"], Nothing, CPU),
    flag(&["--check-tensors"], Nothing, Ignored("every size in a model file is always checked")),
    flag(&["--warmup", "--no-warmup"], Nothing, Ignored("`bench` always warms up, other commands never")),
    // Attention and context. RoPE parameters would change the result, so they are refused.
    flag(&["-fa", "--flash-attn"], ON_OFF, Ignored("attention is always computed in one pass")),
    flag(&["-no-fa", "--no-flash-attn"], Nothing, Ignored("attention is always computed in one pass")),
    flag(&["--attention"], Value, Ignored("the model file says which tokens attend to which")),
    flag(&["--keep"], Value, SHIFT),
    flag(&["--context-shift", "--no-context-shift"], Nothing, SHIFT),
    flag(&["--swa-full"], Nothing, Ignored("checkpoints keep the cells that a rollback needs")),
    flag(
        &["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"],
        Value,
        Ignored("--spacing and --checkpoint-mib set the number of checkpoints"),
    ),
    flag(
        &["-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"],
        Nothing,
        Ignored("sequences always share one pool of blocks"),
    ),
    flag(&["-dt", "--defrag-thold"], Value, Ignored("the cache is never fragmented")),
    flag(
        &["-gan", "--grp-attn-n"],
        Value,
        Off(&["1"], "self-extension is not done; a larger -c reads more, as far as the model was trained"),
    ),
    flag(
        &["-gaw", "--grp-attn-w"],
        Value,
        Off(ZERO, "self-extension is not done; a larger -c reads more, as far as the model was trained"),
    ),
    flag(&["--rope-scaling"], Value, IN_FILE),
    flag(&["--rope-scale", "--rope-freq-base", "--rope-freq-scale"], Value, IN_FILE),
    flag(&["--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor"], Value, IN_FILE),
    flag(&["--yarn-beta-slow", "--yarn-beta-fast"], Value, IN_FILE),
    flag(
        &["-np", "--parallel"],
        Value,
        Off(&["1"], "there is one text at a time; `backstitch bench --seqs N` measures several"),
    ),
    flag(&["-ns", "--sequences"], Value, SEQUENCES),
    flag(
        &["-cb", "--cont-batching", "-nocb", "--no-cont-batching"],
        Nothing,
        Ignored("there is one text at a time"),
    ),
    // Sources of models, and changes of their weights or metadata.
    flag(&["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token"], Value, DOWNLOAD),
    flag(
        &["-hfd", "-hfrd", "--hf-repo-draft", "-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v"],
        Value,
        DOWNLOAD,
    ),
    flag(&["-mu", "--model-url", "-dr", "--docker-repo"], Value, DOWNLOAD),
    flag(&["--offline"], Nothing, Ignored("the program never asks the network")),
    flag(
        &["--override-kv"],
        Value,
        Refused("the model file is taken as it is; change its metadata with gguf-new-metadata of llama.cpp"),
    ),
    flag(&["--mmproj", "--mmproj-url", "--image", "--audio"], Value, MEDIA),
    flag(&["--no-mmproj"], Nothing, Ignored("models read text only here")),
    flag(&["-a", "--alias"], Value, SERVER),
    flag(
        &["--host", "--port", "--api-key", "--path", "--slot-save-path", "--timeout", "--threads-http"],
        Value,
        SERVER,
    ),
    flag(
        &["--embedding", "--embeddings", "--rerank", "--reranking", "--metrics", "--slots", "--props"],
        Nothing,
        SERVER,
    ),
    flag(
        &["--pooling"],
        Value,
        Refused("`backstitch embed` and `backstitch serve --embedding` make embeddings"),
    ),
    // Prompts.
    flag(&["-bf", "--binary-file"], Value, Refused("prompts are text in UTF-8: -f FILE")),
    flag(&["--in-file"], Value, Refused("-f FILE reads a prompt from a file")),
    flag(&["--no-escape"], Nothing, Ignored("backslashes stay as they are typed, unless -e is given")),
    only(&["chat"], &["-f", "--file"], Value, Refused("pipe the messages: backstitch chat < FILE")),
    flag(
        &["-sysf", "--system-prompt-file"],
        Value,
        Refused("give the text itself: backstitch chat -sys \"$(cat FILE)\""),
    ),
    flag(
        &["-sys", "--system-prompt"],
        Value,
        Refused("`backstitch chat` has a system prompt, `backstitch run` continues a text"),
    ),
    flag(&["--in-prefix", "--in-suffix"], Value, PREFIX),
    flag(&["--in-prefix-bos"], Nothing, PREFIX),
    flag(&["--verbose-prompt"], Nothing, Refused("`backstitch tokenize` shows the tokens of a prompt")),
    flag(&["-ptc", "--print-token-count"], Value, Ignored("-v tells the number of tokens at the end")),
    flag(&["-sp", "--special"], Nothing, Ignored("control tokens are not printed")),
    flag(&["--spm-infill"], Nothing, Refused("a gap in a text cannot be filled here")),
    only(
        &["chat"],
        &["--display-prompt", "--no-display-prompt"],
        Nothing,
        Ignored("messages are not printed again"),
    ),
    flag(
        &["--display-prompt"],
        Nothing,
        Ignored("the prompt is printed unless --no-display-prompt is given"),
    ),
    // Chat.
    only(
        &["chat"],
        &["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"],
        Nothing,
        Ignored("chat always talks"),
    ),
    flag(&["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"], Nothing, CHAT),
    only(&["chat"], &["-no-cnv", "--no-conversation"], Nothing, CHAT),
    flag(&["-no-cnv", "--no-conversation"], Nothing, Ignored("`backstitch run` never talks")),
    flag(&["-st", "--single-turn"], Nothing, Refused("pipe the message: echo \"Hello\" | backstitch chat")),
    flag(&["-mli", "--multiline-input"], Nothing, Refused("a line that ends in \\ goes on in the next")),
    flag(&["--jinja"], Nothing, Ignored("chat templates are always Jinja")),
    flag(&["--no-jinja"], Nothing, TEMPLATE),
    flag(&["--chat-template", "--chat-template-file", "--chat-template-kwargs"], Value, TEMPLATE),
    flag(
        &["--reasoning-format", "--reasoning-budget"],
        Value,
        Ignored("answers are printed as the model writes them"),
    ),
    // Samplers.
    flag(
        &["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"],
        Value,
        GRAMMAR,
    ),
    // Speculative decoding.
    flag(
        &["--draft-min", "--draft-n-min", "--draft-p-min", "--draft-p-split"],
        Value,
        Ignored("the draft grows while its tokens are accepted; --draft-max limits it"),
    ),
    flag(
        &["-cd", "--ctx-size-draft", "-td", "--threads-draft", "-tbd", "--threads-batch-draft"],
        Value,
        DRAFT,
    ),
    flag(&["-ctkd", "--cache-type-k-draft", "-ctvd", "--cache-type-v-draft"], Value, DRAFT),
    flag(&["-devd", "--device-draft", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"], Value, CPU),
    flag(
        &["-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic"],
        Value,
        Refused("--lookup drafts from the text itself; there is no file of drafts"),
    ),
    flag(&["--spec-replace"], Value, Refused("both models must have the same vocabulary")),
    // Output.
    flag(
        &["-co", "--color"],
        ON_OFF,
        Ignored("colours are used on a terminal alone; NO_COLOR=1 switches them off"),
    ),
    flag(&["--simple-io", "--perf", "--no-perf"], Nothing, Ignored("-v tells the speed on standard error")),
    flag(
        &["--log-disable", "--log-prefix", "--log-timestamps", "--no-log-prefix", "--no-log-timestamps"],
        Nothing,
        LOGS,
    ),
    flag(&["--log-colors"], ON_OFF, LOGS),
    flag(&["-ld", "--logdir", "--log-file", "-lv", "--verbosity", "--log-verbosity"], Value, LOGS),
    flag(&["--log-verbose"], Nothing, LOGS),
    flag(&["--usage"], Nothing, Refused("--help shows every option")),
    flag(&["--version"], Nothing, Refused("`backstitch --version` tells it")),
    flag(&["--completion-bash"], Nothing, Refused("`backstitch completions bash` prints them")),
];
