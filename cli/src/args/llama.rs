//! Options of llama.cpp that this program does not have: each is taken with a note, or refused with what to
//! do instead.

/// The values that an option takes.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// One of these words, or nothing.
    Maybe(&'static [&'static str]),
}

/// The treatment of an option.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It changes nothing here; a note says why.
    Ignored(&'static str),
    /// It would change the outcome; an error says what to do instead.
    Refused(&'static str),
    /// As refused, but with these values, which switch it off.
    Off(&'static [&'static str], &'static str),
}

/// An option of llama.cpp.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// All of its names.
    pub names: &'static [&'static str],
    /// The commands that it is about; none are all.
    commands: &'static [&'static str],
    /// The values that follow it.
    pub takes: Takes,
    /// Whether it is passed over or refused.
    pub fate: Fate,
}

/// The option of that name, as `command` takes it.
pub fn find(name: &str, command: &str) -> Option<&'static Flag> {
    let is_about = |flag: &&Flag| flag.commands.is_empty() || flag.commands.contains(&command);
    FLAGS.iter().filter(is_about).find(|flag| flag.names.contains(&name))
}

/// The names of all of them.
pub fn names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().flat_map(|flag| flag.names).copied()
}

#[cfg(test)]
impl Flag {
    /// Returns true if it is about some commands only.
    pub fn is_about_some(&self) -> bool {
        !self.commands.is_empty()
    }
}

const fn flag(names: &'static [&'static str], takes: Takes, fate: Fate) -> Flag {
    Flag { names, commands: &[], takes, fate }
}

const fn only(
    commands: &'static [&'static str],
    names: &'static [&'static str],
    takes: Takes,
    fate: Fate,
) -> Flag {
    Flag { names, commands, takes, fate }
}

use Fate::{Ignored, Off, Refused};
use Takes::{Maybe, Nothing, Value};

const ON_OFF: Takes = Maybe(&["on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled"]);
const ZERO: &[&str] = &["0", "0.0", "0.00"];
const NEUTRAL: Fate = Off(
    &["0", "0.0", "0.00", "-1", "1", "1.0"],
    "this sampler is not there; --temp, --top-k, --top-p, --min-p and --typical are",
);
const CPU: Fate = Ignored("everything runs on the CPU");
const PLACEMENT: Fate =
    Ignored("threads are placed by the system; start the program with `taskset` to change that");
const IN_FILE: Fate = Refused("the model file says how positions are rotated; change it there");
const DOWNLOAD: Fate = Refused("nothing is downloaded here; get the GGUF file, then name it with -m FILE");
const CHAT: Fate = Refused("`backstitch chat` talks, `backstitch run` continues a text");
const GRAMMAR: Fate = Refused("text cannot be held to a grammar here; --logit-bias TOKEN-inf bans a token");
const LOGS: Fate = Ignored("there is no log; -v tells more on standard error");
const ADAPTER: Fate =
    Refused("adapters are not applied here; merge it into the model with llama-export-lora first");
const MEDIA: Fate = Refused("models read text only here");
const SERVER: Fate = Refused("this is an option of a server, and there is none here");
const TEMPLATE: Fate =
    Refused("the chat template in the model file is used; write another one into the file");
const PREFIX: Fate = Refused("the chat template puts these texts around messages: use `backstitch chat`");
const DRAFT: Fate = Ignored("the draft model is run as the model is");
const SHIFT: Fate = Ignored("a text ends when the context is full; a larger -c gives it more room");
const SEQUENCES: Fate = Refused("there is one text at a time; `backstitch bench --seqs N` measures several");

/// All of them. The first that fits the command counts.
pub const FLAGS: &[Flag] = &[
    // Devices.
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
    // Threads and memory.
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
    flag(&["--warmup", "--no-warmup"], Nothing, Ignored("nothing is warmed up")),
    // Attention and context.
    flag(&["-fa", "--flash-attn"], ON_OFF, Ignored("attention is always computed in one pass")),
    flag(&["-no-fa", "--no-flash-attn"], Nothing, Ignored("attention is always computed in one pass")),
    flag(&["--attention"], Value, Ignored("the model file says what each token sees")),
    flag(&["--keep"], Value, SHIFT),
    flag(&["--context-shift", "--no-context-shift"], Nothing, SHIFT),
    flag(&["--swa-full"], Nothing, Ignored("checkpoints keep what a window needs to go back")),
    flag(
        &["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"],
        Value,
        Ignored("--spacing and --checkpoint-mib say how many checkpoints there are"),
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
    // Where models come from, and what changes them.
    flag(&["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token"], Value, DOWNLOAD),
    flag(
        &["-hfd", "-hfrd", "--hf-repo-draft", "-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v"],
        Value,
        DOWNLOAD,
    ),
    flag(&["-mu", "--model-url", "-dr", "--docker-repo"], Value, DOWNLOAD),
    flag(&["--offline"], Nothing, Ignored("the program never asks the network")),
    flag(&["--lora", "--lora-scaled"], Value, ADAPTER),
    flag(
        &["--control-vector", "--control-vector-scaled", "--control-vector-layer-range"],
        Value,
        Refused("control vectors are not applied here"),
    ),
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
    flag(&["--pooling"], Value, Refused("embeddings come from the library: `Context::encode`")),
    // The text.
    flag(&["-bf", "--binary-file"], Value, Refused("prompts are text in UTF-8: -f FILE")),
    flag(&["--in-file"], Value, Refused("-f FILE reads a prompt from a file")),
    flag(&["--no-escape"], Nothing, Ignored("backslashes stay as they are typed, unless -e is given")),
    only(&["chat"], &["-e", "--escape"], Nothing, Refused("a line that ends in \\ goes on in the next")),
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
    flag(
        &["-r", "--reverse-prompt"],
        Value,
        Refused("text does not stop at a phrase here; -n N ends it after N tokens, Ctrl-C at once"),
    ),
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
    // Talking.
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
    // Choosing tokens.
    flag(
        &["--samplers", "--sampling-seq", "--sampler-seq"],
        Value,
        Refused(
            "the order is fixed: biases, penalties, top-k, typical, top-p, min-p, temperature; leave this out",
        ),
    ),
    flag(
        &["--mirostat"],
        Value,
        Off(&["0"], "this sampler is not there; --temp, --top-k, --top-p, --min-p and --typical are"),
    ),
    flag(&["--mirostat-lr", "--mirostat-ent"], Value, Ignored("without --mirostat it changes nothing")),
    flag(
        &["--dry-multiplier"],
        Value,
        Off(ZERO, "this sampler is not there; --repeat-penalty makes repetitions less likely"),
    ),
    flag(
        &["--dry-base", "--dry-allowed-length", "--dry-penalty-last-n", "--dry-sequence-breaker"],
        Value,
        Ignored("without --dry-multiplier it changes nothing"),
    ),
    flag(
        &["--xtc-probability"],
        Value,
        Off(ZERO, "this sampler is not there; a higher --temp is more surprising"),
    ),
    flag(&["--xtc-threshold"], Value, Ignored("without --xtc-probability it changes nothing")),
    flag(&["--dynatemp-range"], Value, Off(ZERO, "the temperature is fixed: --temp X")),
    flag(&["--dynatemp-exp"], Value, Ignored("without --dynatemp-range it changes nothing")),
    flag(&["--top-nsigma", "--top-n-sigma"], Value, NEUTRAL),
    flag(
        &["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"],
        Value,
        GRAMMAR,
    ),
    // Guessing ahead.
    flag(
        &["--draft-min", "--draft-n-min", "--draft-p-min", "--draft-p-split"],
        Value,
        Ignored("guesses are made as long as they are right; --draft-max limits them"),
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
        Refused("--lookup guesses from the text itself; there is no file of guesses"),
    ),
    flag(&["--spec-replace"], Value, Refused("both models must have the same vocabulary")),
    // What is printed.
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
    flag(&["--completion-bash"], Nothing, Refused("there are no completions for shells")),
];
