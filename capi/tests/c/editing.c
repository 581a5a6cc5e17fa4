/* The functions of backstitch.h on several kinds of models: rollback with its cost, forks, pins,
 * saved states, prompt caches, errors.
 *
 *     editing MODELS FILES
 */
#include "common.h"

/* A rollback to every position gives the bits of a fresh context, and costs what was foretold. */
static void rollback(const char *name) {
    struct llama_model *model = open_model(name);
    struct llama_context *ctx = open_context(model, 1);
    for (int pos = 48; pos > 0; pos -= 11) {
        CHECK(decode(ctx, 0, llama_memory_seq_pos_max(llama_get_memory(ctx), 0) + 1, 50, 0) == 0);
        struct bst_rollback_cost foretold, cost;
        CHECK(bst_cost_of_rollback(ctx, 0, pos, &foretold) == 0);
        CHECK(bst_rollback(ctx, 0, pos, &cost) == 0);
        CHECK(memcmp(&foretold, &cost, sizeof cost) == 0);
        CHECK(cost.reevaluated == 0 || cost.replayed == 0);
        CHECK(decode(ctx, 0, pos, pos + 1, 9) == 0);
        check_bits(ctx, fresh_logits(model, pos, 9));
        CHECK(bst_rollback(ctx, 0, pos, NULL) == 0);
    }
    CHECK(bst_rollback(ctx, 0, 99, NULL) == -1 && bst_rollback(ctx, 0, -1, NULL) == -1);
    llama_free(ctx);
    llama_model_free(model);
}

/* A fork goes its own way; both give the bits that each would have alone. */
static void forks_and_pins(const char *name) {
    struct llama_model *model = open_model(name);
    struct llama_context *ctx = open_context(model, 2);
    CHECK(decode(ctx, 0, 0, 20, 0) == 0);
    CHECK(bst_pin(ctx, 0) == 0);
    CHECK(bst_fork(ctx, 0, 1) == 0);
    CHECK(decode(ctx, 1, 20, 21, 4) == 0);
    check_bits(ctx, fresh_logits(model, 20, 4));
    CHECK(decode(ctx, 0, 20, 60, 0) == 0);
    struct bst_rollback_cost cost;
    CHECK(bst_rollback(ctx, 0, 20, &cost) == 0 && cost.reevaluated == 0 && cost.replayed == 0);
    CHECK(decode(ctx, 0, 20, 21, 6) == 0);
    check_bits(ctx, fresh_logits(model, 20, 6));
    /* Models that keep every position need no pin. */
    CHECK(bst_unpin(ctx, 0, 20) >= 0 && bst_unpin(ctx, 0, 20) == 0);
    llama_token tokens[64];
    CHECK(bst_tokens(ctx, 0, tokens, 64) == 21 && tokens[3] == token_at(ctx, 3));
    CHECK(bst_tokens(ctx, 0, tokens, 5) == -21);
    llama_free(ctx);
    llama_model_free(model);
}

/* A saved sequence comes back in another context, and can go back there. */
static void saved(const char *name) {
    struct llama_model *model = open_model(name);
    struct llama_context *ctx = open_context(model, 1), *other = open_context(model, 2);
    const char *path = in_dir(files_dir, "saved.bst");
    CHECK(decode(ctx, 0, 0, 40, 0) == 0);
    CHECK(bst_save(ctx, 0, path) == 0 && bst_restore(other, 1, path) == 0);
    CHECK(llama_memory_seq_pos_max(llama_get_memory(other), 1) == 39);
    CHECK(bst_rollback(other, 1, 25, NULL) == 0);
    CHECK(decode(other, 1, 25, 26, 2) == 0);
    check_bits(other, fresh_logits(model, 25, 2));
    CHECK(bst_restore(other, 1, in_dir(files_dir, "no such file")) == -1);
    CHECK(strlen(bst_last_error()) > 0);
    llama_free(ctx);
    llama_free(other);
    llama_model_free(model);
}

/* A prompt cache gives back what it was given, and says why it is not more. */
static void cached(const char *name) {
    struct llama_model *model = open_model(name);
    struct llama_context *ctx = open_context(model, 1), *other = open_context(model, 1);
    struct bst_prompt_cache *cache = bst_prompt_cache_open(in_dir(files_dir, name), 1 << 24);
    CHECK(cache);
    llama_token prompt[100];
    for (int i = 0; i < 100; i++) {
        prompt[i] = token_at(ctx, i);
    }
    CHECK(decode(ctx, 0, 0, 100, 0) == 0);
    CHECK(bst_remember(ctx, 0, cache) == 1);
    struct bst_recalled recalled;
    char why[200];
    CHECK(bst_recall(other, 0, cache, prompt, 100, &recalled, why, sizeof why) == 0);
    CHECK(recalled.n_tokens >= 64 && recalled.n_tokens < 100 && strlen(why) > 0);
    CHECK(decode(other, 0, (int)recalled.n_tokens, 100, 0) == 0);
    CHECK(decode(other, 0, 100, 101, 1) == 0);
    check_bits(other, fresh_logits(model, 100, 1));
    bst_prompt_cache_free(cache);
    CHECK(bst_remember(ctx, 0, cache) == -1);
    llama_free(ctx);
    llama_free(other);
    llama_model_free(model);
}

static void quiet(enum ggml_log_level level, const char *text, void *data) {
    (void)level, (void)text, (void)data;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    models_dir = argv[1], files_dir = argv[2];
    llama_log_set(quiet, NULL);
    const char *names[] = {"llama.gguf", "mamba.gguf", "falcon_h1.gguf", "gemma3.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rollback(names[i]);
        forks_and_pins(names[i]);
        saved(names[i]);
        cached(names[i]);
    }
    puts("editing is exact");
    return 0;
}
