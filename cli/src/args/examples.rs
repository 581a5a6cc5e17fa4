//! The text below the options of each command: examples first. No line is longer than 80 columns.

pub const ALL: &str = "\
Examples:
  backstitch run                                      a story by a small model
  backstitch run -m model.gguf -p \"The sea is\" -n 50  continue a text
  cat letter.txt | backstitch run -m model.gguf       the prompt from a pipe
  backstitch chat -m model.gguf                       talk to a model
  backstitch inspect model.gguf                       what a file holds

Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong
usage, 130 stopped by Ctrl-C (143 and 129 by signals of other programs).";

pub const RUN: &str = "\
Examples:
  backstitch run                                     a story by the model inside
  backstitch run -p \"The little cat\" -n 100 -s 7     always the same story
  backstitch run -m model.gguf -f prompt.txt --temp 0
  echo \"2 + 2 =\" | backstitch run -m model.gguf -n 3 --no-display-prompt
  cat letter.txt | backstitch run -m model.gguf -p \"In short:\"

  With guesses of a small model, the same text sooner; -v tells how many were
  right:
    backstitch run -m large.gguf --draft-model small.gguf -v
  With a prompt cache, which makes the second time start at once:
    backstitch run -m model.gguf -f book.txt --prompt-cache ~/.cache/backstitch
  With other kernels; -v lists those that this processor has:
    BACKSTITCH_ISA=avx2 backstitch run -m model.gguf -v
  Stop here, and go on another day:
    backstitch run -m model.gguf -p \"Dear diary,\" -n 100 --save diary.bst
    backstitch run -m model.gguf --restore diary.bst -n 100 --save diary.bst

A prompt cache is a folder that all prompts share: what a prompt has in common
with an earlier one, up to the first token that differs, is not evaluated again.
It may lose its least recently used entries, and its failures stop nothing.

A saved session is one file that you name: a text with all that the model keeps
of it, and the state of the samplers, so that it goes on as if it had never
stopped. A file that holds another text is not replaced unless --force is given.
Either way the text is the same, bit for bit.";

pub const CHAT: &str = "\
Examples:
  backstitch chat -m model.gguf
  backstitch chat -m model.gguf -sys \"You are terse.\"
  printf 'Hello\\nAnd in French?\\n' | backstitch chat -m model.gguf
                                                     one message a line

Commands while talking: /help /retry /undo /clear /exit";

pub const TOKENIZE: &str = "\
Examples:
  backstitch tokenize -p \"Once upon a time\"
  backstitch tokenize -m model.gguf -f letter.txt --ids | wc -w";

pub const INSPECT: &str = "\
Examples:
  backstitch inspect model.gguf
  backstitch inspect model.gguf --tensors
  backstitch inspect model.gguf --json | jq .metadata";

pub const PACK: &str = "\
Examples:
  backstitch pack model.gguf model.packed.gguf
  backstitch run -m model.packed.gguf -p \"The sea is\"      the same bits, sooner

A packed file is used where it lies: nothing is copied or repacked when it is
loaded, and several processes share its memory. It is for this program alone;
others refuse it, because they do not know its types. Keep the original.";

pub const GRAPH: &str = "\
Examples:
  backstitch graph -m model.gguf | less
  backstitch graph -m model.gguf --dot | dot -Tsvg > graph.svg";

pub const BENCH: &str = "\
Examples:
  backstitch bench -m model.gguf -t 2
  backstitch bench -m model.gguf -p 128,512 -n 64 --depth 0,2048 -t 1,2
  backstitch bench -m model.gguf --depth 2048 --seqs 4 --json
  BACKSTITCH_ISA=avx2 backstitch bench -m model.gguf -v      with these kernels

A row is a prompt (pp512) or a generation (tg64), @ d2048 behind as many tokens.
GB/s are weights and caches, read once for each batch of at most -ub tokens;
GOP/s are multiplications and additions with the matrices of the model. Their
limits are measured in the same run, with as many threads: plain reading of
memory, which a model that fits a cache can exceed, and products in registers.
Generation is near the first limit, a prompt nearer the second.

\"logits\" is a hash of the last logits of all that was measured: runs with the
same hash computed the same bits. If other programs use more than 5 % of the
machine meanwhile, a warning says so: such figures are too low.";

pub const TIMELINE: &str = "\
Examples:
  backstitch timeline                            memory of a story, by the model
                                                 inside
  backstitch timeline -m model.gguf -f book.txt  of a text of yours
  backstitch timeline --pin 200 --rollback 450   what rolling back to 450 takes,
                                                 and what is left then
  backstitch timeline --forks 3 --rollback 300   shared blocks stay with forks
  backstitch timeline --spacing 64 --journal 16  more checkpoints, less journal
  backstitch timeline --svg memory.svg           as a drawing, with the cost of
                                                 every rollback

In this order: the text is evaluated, tokens are generated, pins are set where
the text passes them, forks leave from its end, rollbacks happen one after the
other, and then the memory is drawn.

A checkpoint is a position that is restored at once. The schedule keeps some, at
growing distances from the end. A journal holds the inputs of the recurrent
states since a checkpoint, so that positions behind it are replayed without
running the model. What neither reaches is re-evaluated from the checkpoint
before it.";

pub const VERIFY: &str = "\
Examples:
  backstitch verify goldens/goldens/llama.txt
  backstitch verify goldens                       everything below a folder
  backstitch verify goldens/real --model SmolLM2-135M-Instruct.Q4_1.gguf

Exit codes: 0 all that could be checked passed, 1 a case failed or none could be
checked; with --strict also if a case is not supported.";
