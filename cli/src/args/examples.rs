//! The text below the options of each command: examples first, then what somebody should know who
//! reads nothing else.
//!
//! No line is longer than 80 columns, and clap prints them as they are; a test in `tests.rs` holds
//! them to that. The texts of `state` and `cache` stand beside their options.

/// Text below the list of commands.
pub const ALL: &str = "\
Examples:
  backstitch run                                      a story by the small model
  backstitch run -m model.gguf -p \"The sea is\" -n 50  continue a text
  cat letter.txt | backstitch run -m model.gguf       the prompt from a pipe
  backstitch chat -m model.gguf                       chat with a model
  backstitch inspect model.gguf                       what a file holds
  backstitch doctor                                   what this machine can do

Every option has a default in a configuration file and in a variable: --config
FILE or BACKSTITCH_CONFIG names the file, which is else backstitch/config.toml
in $XDG_CONFIG_HOME or ~/.config. Its keys are long names of options, at the top
or in the table of a command; BACKSTITCH_CTX_SIZE is the option --ctx-size. What
is typed counts before a variable, and a variable before the file.
  model = \"~/models/model.gguf\"
  threads = 4
  [chat]
  system-prompt = \"Be brief.\"

Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong
usage, 130 stopped by Ctrl-C (143 and 129 by signals of other programs).";

/// Text below the options of `run`.
pub const RUN: &str = "\
Examples:
  backstitch run                                     a story by the small model
  backstitch run -p \"The little cat\" -n 100 -s 7     always the same story
  backstitch run -m model.gguf -f prompt.txt --temp 0
  echo \"2 + 2 =\" | backstitch run -m model.gguf -n 3 --no-display-prompt
  cat letter.txt | backstitch run -m model.gguf -p \"In short:\"

  Speculative decoding: the same text, sooner; -v tells how many draft tokens
  were accepted:
    backstitch run -m large.gguf --draft-model small.gguf -v
  With a prompt cache, the second time starts at once:
    backstitch run -m model.gguf -f book.txt --prompt-cache ~/.cache/backstitch
  With other kernels; -v lists those that this processor has:
    BACKSTITCH_ISA=avx2 backstitch run -m model.gguf -v
  Stop here, and continue another day:
    backstitch run -m model.gguf -p \"Dear diary,\" -n 100 --save diary.bst
    backstitch run -m model.gguf --restore diary.bst -n 100 --save diary.bst

A prompt cache is a folder that all prompts share: the tokens that a prompt
shares with an earlier one, up to the first that differs, are not re-evaluated.
The least recently used entries are removed when it is full. A prompt cache that
fails stops nothing.

A saved session is one file that you name: a text, what the model remembers of
it, and the state of the samplers, so that it continues as if it had never
stopped. A file that holds another text is not replaced without --force.
Either way the text is the same, bit for bit.";

/// Text below the options of `chat`.
pub const CHAT: &str = "\
Examples:
  backstitch chat -m model.gguf
  backstitch chat -m model.gguf -sys \"You are terse.\"
  backstitch chat -m model.gguf --restore trip.bst --save trip.bst
                                          continue; every answer is saved
  printf 'Hello\\nAnd in French?\\n' | backstitch chat -m model.gguf
                                          one message a line

Commands while chatting: /help /list /edit /regen /undo /clear /system /branch
/save /load /stats /exit

A full context drops the oldest turns, never the system prompt, and one line
says so. A saved conversation continues bit for bit, with all its branches.

Exit codes: 0 every piped message got an answer, 1 one did not, or a command
failed.";

/// Text below the options of `serve`.
pub const SERVE: &str = "\
Examples:
  backstitch serve -m model.gguf               http://127.0.0.1:8080
  backstitch serve -m model.gguf -np 8 -c 4096 --kv-unified
  backstitch serve -m model.gguf --state ~/.local/state/backstitch
                                               conversations survive a restart
  backstitch serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt

Clients of llama-server, OpenAI and Anthropic find their paths: /completion,
/v1/chat/completions, /v1/messages and others, and people a page at /.
Options can be given as llama-server's variables: LLAMA_ARG_PORT=81.

Conversations are kept, whichever slot they ran in: an edited, regenerated or
branched one is re-evaluated from the first token that differs. What one API key
asks is never reused for another. Connections are not encrypted.";

/// Text below the options of `tokenize`.
pub const TOKENIZE: &str = "\
Examples:
  backstitch tokenize -p \"Once upon a time\"
  backstitch tokenize -m model.gguf -f letter.txt --ids | wc -w";

/// Text below the options of `perplexity`.
pub const PERPLEXITY: &str = "\
Examples:
  backstitch perplexity -m model.gguf -f text.txt
  backstitch perplexity -m model.gguf -f text.txt -c 2048 --chunks 20
  How much does a quantised model differ?
    backstitch perplexity -m f16.gguf -f text.txt --kl-divergence-base f16.kld
    backstitch perplexity -m q4.gguf --kl-divergence \\
      --kl-divergence-base f16.kld
  backstitch perplexity -m model.gguf --multiple-choice questions.jsonl

The text is divided into windows of -c tokens (512 without it), and the second
half of each is scored, as llama-perplexity does; lower is better. Compare only
figures of the same text and the same -c.";

/// Text below the options of `embed`.
pub const EMBED: &str = "\
Examples:
  backstitch embed -m model.gguf \"The sky is blue.\"
  backstitch embed -m model.gguf -f lines.txt --json
  backstitch embed -m model.gguf --similarity cat kitten stone
  backstitch embed -m model.gguf --pooling last --normalize none \"a text\"

Models made for embeddings state how their tokens are pooled. Others work too;
the mean is taken then.";

/// Text below the options of `inspect`.
pub const INSPECT: &str = "\
Examples:
  backstitch inspect model.gguf
  backstitch inspect model.gguf --tensors
  backstitch inspect adapter.gguf                what a LoRA adapter changes
  backstitch inspect model.gguf --json | jq .metadata";

/// Text below the options of `pack`.
pub const PACK: &str = "\
Examples:
  backstitch pack model.gguf model.packed.gguf
  backstitch run -m model.packed.gguf -p \"The sea is\"      the same bits, sooner

A packed file is mapped into memory and used from there: loading it copies and
repacks nothing, and several processes share its memory. Only this program can
read it: other programs refuse its tensor types. Keep the original: a packed
file cannot be turned back into it.";

/// Text below the options of `convert`.
pub const CONVERT: &str = "\
Examples:
  backstitch convert SmolLM2-135M
  backstitch convert SmolLM2-135M model.gguf --outtype q8_0
  backstitch run -m model.gguf -p \"The sea is\"
  backstitch convert my-adapter --lora --base SmolLM2-135M

The folder holds safetensors files, config.json and the files of a tokenizer,
as Hugging Face's do. The names and keys of the new file are llama.cpp's, so
other engines read it too. Memory holds one tensor at a time.

With --lora the folder is a LoRA adapter as PEFT writes them, and --base is the
folder of its model, of which config.json is enough.";

/// Text below the options of `quantize`.
pub const QUANTIZE: &str = "\
Examples:
  backstitch quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M
  backstitch quantize model-F16.gguf out.gguf IQ2_XS --imatrix imatrix.gguf
  backstitch quantize model-F16.gguf out.gguf Q5_K_M --tensor-type ffn_down=Q8_0
  backstitch quantize model-F16.gguf out.gguf Q4_K_M --dry-run

The new file is the one that llama-quantize makes. Types, from the smallest:
  with an importance matrix   IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M Q2_K_S
                              IQ3_XXS
  with or without one         Q2_K IQ3_XS IQ3_S IQ3_M Q3_K_S Q3_K_M Q3_K_L
                              IQ4_XS Q4_0 IQ4_NL Q4_K_S Q4_K_M Q4_1 Q5_0 Q5_K_S
                              Q5_K_M Q5_1 Q6_K Q8_0 F16 BF16 F32
  for models trained so       Q1_0 TQ1_0 TQ2_0 Q2_0 MXFP4_MOE";

/// Text below the options of `imatrix`.
pub const IMATRIX: &str = "\
Examples:
  backstitch imatrix -m model-F16.gguf -f text.txt
  backstitch quantize model-F16.gguf out.gguf IQ2_XS --imatrix imatrix.gguf

The text is divided into windows of -c tokens (512 without it). Some hundred
windows of text like that which the model will read are enough. The file is
llama.cpp's: llama-quantize takes it, and `quantize` those of llama-imatrix.";

/// Text below the options of `graph`.
pub const GRAPH: &str = "\
Examples:
  backstitch graph -m model.gguf | less
  backstitch graph -m model.gguf --dot | dot -Tsvg > graph.svg";

/// Text below the options of `bench`.
pub const BENCH: &str = "\
Examples:
  backstitch bench -m model.gguf -t 2
  backstitch bench -m model.gguf -p 128,512 -n 64 --depth 0,2048 -t 1,2
  backstitch bench -m model.gguf --depth 2048 --seqs 4 --json
  BACKSTITCH_ISA=avx2 backstitch bench -m model.gguf -v      with these kernels

A row is a prompt (pp512) or a generation (tg64), with @ d2048 after 2048
tokens. GB/s counts weights and caches, read once for each physical batch;
GOP/s counts the multiplications and additions of matrix products. Both limits
are measured in the same run with the same number of threads: a plain read of
memory, which a model that fits a processor cache can exceed, and products in
registers. Generation is near the first limit, a prompt nearer the second.
Without -c the context is as large as the sequences need.

\"logits\" is a hash of the last logits of every measurement: runs with the same
hash computed the same bits. A warning says if other programs used more than 5 %
of the machine meanwhile: such figures are too low.";

/// Text below the options of `timeline`.
pub const TIMELINE: &str = "\
Examples:
  backstitch timeline                            memory of a story
  backstitch timeline -m model.gguf -f book.txt  memory of a text of yours
  backstitch timeline --pin 200 --rollback 450   what rolling back to 450 costs,
                                                 and what is left then
  backstitch timeline --forks 3 --rollback 300   forks keep the shared blocks
  backstitch timeline --spacing 64 --journal 16  more checkpoints, less journal
  backstitch timeline --svg memory.svg           as a drawing, with the cost of
                                                 every rollback

The command evaluates the text, setting pins on the way, generates tokens, forks
the sequence at its end, rolls back to each position in turn, and then draws
the memory.

A checkpoint is a position to which a sequence can return at once. The schedule
keeps some, at growing distances from the end. A journal holds the inputs of the
recurrent layers since a checkpoint, so that positions after it are replayed
without running the model. Other positions are re-evaluated from the checkpoint
before them.";

/// Text below the options of `verify`.
pub const VERIFY: &str = "\
Examples:
  backstitch verify goldens/goldens/llama.txt
  backstitch verify goldens                       all files in a folder
  backstitch verify goldens/lora                  those with adapters
  backstitch verify goldens/real --model SmolLM2-135M-Instruct.Q4_1.gguf

Exit codes: 0 every case that could be checked passed, 1 a case failed or none
could be checked; with --strict also if a case is not supported.";

/// Text below the options of `models`.
pub const MODELS: &str = "\
Examples:
  backstitch models                      the cache of Hugging Face
  backstitch models --models ~/models    a folder
  backstitch chat --models ~/models -m smollm2

A name is the path in the folder without .gguf; in the cache it is
org/name/file. What is not needed to tell models apart may be left out.
BACKSTITCH_MODELS names the folder for every command.";

/// Text below the options of `doctor`.
pub const DOCTOR: &str = "\
Examples:
  backstitch doctor                       processor, kernels, limits, memory
  backstitch doctor -m model.gguf -c 8192 what to expect of a model

Limits are measured with the kernels and threads that a model would use. A
generated token reads all weights, and its context, once: the bandwidth divided
by these bytes is the most that can be reached. `backstitch bench` says how near
a model comes.";

/// Text below the options of `completions`.
pub const COMPLETIONS: &str = "\
Examples:
  backstitch completions bash > /etc/bash_completion.d/backstitch
  backstitch completions zsh > ~/.zfunc/_backstitch
  backstitch completions fish > ~/.config/fish/completions/backstitch.fish";

/// Text below the options of `man`.
pub const MAN: &str = "\
Examples:
  backstitch man ~/.local/share/man/man1
  man backstitch-chat";
