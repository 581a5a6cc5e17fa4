/* What the C tests share: models, tokens, comparison of bits. */
#ifndef COMMON_H
#define COMMON_H

#include "backstitch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the place and the reason if `condition` does not hold. */
#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #condition,       \
                    bst_last_error());                                                           \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

enum { N_CTX = 256 };

/* The folder of the models, and one for files. */
static const char *models_dir;
static const char *files_dir;

static inline const char *in_dir(const char *dir, const char *name) {
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static inline struct llama_model *open_model(const char *name) {
    struct llama_model *model =
        llama_model_load_from_file(in_dir(models_dir, name), llama_model_default_params());
    CHECK(model);
    return model;
}

static inline struct llama_context *open_context(struct llama_model *model, uint32_t n_seq_max) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = N_CTX;
    params.n_seq_max = n_seq_max;
    params.n_threads = params.n_threads_batch = 1;
    params.kv_unified = true;
    struct llama_context *ctx = llama_init_from_model(model, params);
    CHECK(ctx);
    return ctx;
}

static inline int n_vocab(struct llama_context *ctx) {
    return llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
}

static inline llama_token token_at(struct llama_context *ctx, int i) {
    return (i * 7 + 3) % n_vocab(ctx);
}

/* Decodes tokens i from `from` to before `to`, each by `token_at` plus `shift`, in one batch. */
static inline int32_t decode(
    struct llama_context *ctx, llama_seq_id seq, int from, int to, int shift) {
    struct llama_batch batch = llama_batch_init(to - from, 0, 1);
    CHECK(batch.token);
    for (int i = from; i < to; i++) {
        int k = batch.n_tokens++;
        batch.token[k] = (token_at(ctx, i) + shift) % n_vocab(ctx);
        batch.pos[k] = i;
        batch.n_seq_id[k] = 1;
        batch.seq_id[k][0] = seq;
        batch.logits[k] = i + 1 == to;
    }
    int32_t result = llama_decode(ctx, batch);
    llama_batch_free(batch);
    return result;
}

/* Copies the logits of the last output. */
static inline float *logits(struct llama_context *ctx) {
    const float *row = llama_get_logits_ith(ctx, -1);
    CHECK(row);
    float *copy = (float *)malloc(sizeof(float) * (size_t)n_vocab(ctx));
    memcpy(copy, row, sizeof(float) * (size_t)n_vocab(ctx));
    return copy;
}

/* Checks that the last logits have the bits of `expected`, and frees these. */
static inline void check_bits(struct llama_context *ctx, float *expected) {
    const float *row = llama_get_logits_ith(ctx, -1);
    CHECK(row);
    CHECK(memcmp(row, expected, sizeof(float) * (size_t)n_vocab(ctx)) == 0);
    free(expected);
}

/* Returns the logits after tokens 0 to before `n`, and one token with `shift`, in a context of its
 * own. */
static inline float *fresh_logits(struct llama_model *model, int n, int shift) {
    struct llama_context *ctx = open_context(model, 1);
    CHECK(decode(ctx, 0, 0, n, 0) == 0);
    CHECK(decode(ctx, 0, n, n + 1, shift) == 0);
    float *result = logits(ctx);
    llama_free(ctx);
    return result;
}

#endif
