/* A chat in a terminal, over llama.h.
 *
 *     chat MODEL.gguf
 *
 * Each line is a message; the answer follows as it is generated. The conversation is kept as the
 * text that the model's template makes of it, and only what is new is evaluated. "/undo" takes back
 * the last exchange: the end of a sequence can be removed exactly, on every kind of model. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGES = 256, MAX_TEXT = 1 << 16, MAX_LINE = 4096 };
enum { MAX_TOKENS = 4096, MAX_ANSWER = 256 };

static void quit(const char *what) {
    fprintf(stderr, "chat: %s\n", what);
    exit(1);
}

/* Evaluates a text behind what sequence 0 holds. */
static void evaluate(struct llama_context *ctx, const struct llama_vocab *vocab, const char *text) {
    static llama_token tokens[MAX_TOKENS];
    bool is_first = llama_memory_seq_pos_max(llama_get_memory(ctx), 0) < 0;
    int n = llama_tokenize(vocab, text, (int)strlen(text), tokens, MAX_TOKENS, is_first, true);
    if (n < 0) {
        quit("the message is too long");
    }
    if (n > 0 && llama_decode(ctx, llama_batch_get_one(tokens, n)) != 0) {
        quit("the context is full");
    }
}

/* Generates until the model ends its message, and appends the text to `answer`. */
static void generate(
    struct llama_context *ctx, const struct llama_vocab *vocab, struct llama_sampler *sampler,
    char *answer) {
    size_t n = 0;
    for (int i = 0; i < MAX_ANSWER; i++) {
        llama_token token = llama_sampler_sample(sampler, ctx, -1);
        if (token < 0 || llama_vocab_is_eog(vocab, token)) {
            break;
        }
        char piece[256];
        int len = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, true);
        if (len < 0 || n + (size_t)len >= MAX_LINE) {
            break;
        }
        fwrite(piece, 1, (size_t)len, stdout);
        fflush(stdout);
        memcpy(answer + n, piece, (size_t)len);
        n += (size_t)len;
        if (llama_decode(ctx, llama_batch_get_one(&token, 1)) != 0) {
            break;
        }
    }
    answer[n] = 0;
    putchar('\n');
}

int main(int argc, char **argv) {
    if (argc != 2) {
        quit("usage: chat MODEL.gguf");
    }
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 0; /* that of the model */
    struct llama_context *ctx = model ? llama_init_from_model(model, params) : NULL;
    if (!ctx) {
        quit("the model cannot be loaded");
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    const char *template = llama_model_chat_template(model, NULL);
    struct llama_sampler *sampler =
        llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(sampler, llama_sampler_init_min_p(0.05f, 1));
    llama_sampler_chain_add(sampler, llama_sampler_init_temp(0.8f));
    llama_sampler_chain_add(sampler, llama_sampler_init_dist(LLAMA_DEFAULT_SEED));

    static llama_chat_message messages[MAX_MESSAGES];
    static llama_pos starts[MAX_MESSAGES];
    static char text[MAX_TEXT], line[MAX_LINE], answer[MAX_LINE];
    int n_messages = 0, n_done = 0;
    while (printf("> "), fflush(stdout), fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "/undo")) {
            if (n_messages >= 2) {
                n_messages -= 2;
                llama_memory_seq_rm(llama_get_memory(ctx), 0, starts[n_messages], -1);
                n_done = n_messages ? llama_chat_apply_template(
                                          template, messages, (size_t)n_messages, false, NULL, 0)
                                    : 0;
            }
            continue;
        }
        if (n_messages + 2 > MAX_MESSAGES) {
            quit("the conversation is too long");
        }
        starts[n_messages] = llama_memory_seq_pos_max(llama_get_memory(ctx), 0) + 1;
        messages[n_messages++] = (llama_chat_message){"user", strdup(line)};
        int n = llama_chat_apply_template(
            template, messages, (size_t)n_messages, true, text, sizeof text - 1);
        if (n < n_done || n >= (int)sizeof text) {
            quit("the template cannot be used");
        }
        text[n] = 0;
        evaluate(ctx, vocab, text + n_done);
        generate(ctx, vocab, sampler, answer);
        messages[n_messages++] = (llama_chat_message){"assistant", strdup(answer)};
        n_done = llama_chat_apply_template(template, messages, (size_t)n_messages, false, NULL, 0);
    }
    llama_sampler_free(sampler);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
