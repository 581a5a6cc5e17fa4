/* Eight ways in which an engine behind llama.h can go wrong, each checked to give the right answer
 * or an error here.
 *
 *     failures MODELS FILES
 *
 * MODELS is a folder of tiny models, FILES one for files. Ends with 0 if all is right. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "common.h"

#include <sys/resource.h>
#include <sys/stat.h>

static unsigned char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    CHECK(file);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = (unsigned char *)malloc(*size + 1);
    CHECK(fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const unsigned char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* 1. The tail of a sequence that was decoded token by token, or in one batch, is removed. */
static void rollback_is_exact(const char *name) {
    struct llama_model *model = open_model(name);
    for (int at_once = 0; at_once < 2; at_once++) {
        struct llama_context *ctx = open_context(model, 1);
        for (int i = 0; i < 40; i += at_once ? 40 : 1) {
            CHECK(decode(ctx, 0, i, at_once ? 40 : i + 1, 0) == 0);
        }
        CHECK(llama_memory_seq_rm(llama_get_memory(ctx), 0, 33, -1));
        CHECK(llama_memory_seq_pos_max(llama_get_memory(ctx), 0) == 32);
        CHECK(decode(ctx, 0, 33, 34, 5) == 0);
        check_bits(ctx, fresh_logits(model, 33, 5));
        llama_free(ctx);
    }
    llama_model_free(model);
}

struct abort_after {
    int calls;
};

static bool abort_later(void *data) {
    return --((struct abort_after *)data)->calls < 0;
}

/* 2. A decode is aborted, and tried again. */
static void abort_leaves_everything(const char *name) {
    struct llama_model *model = open_model(name);
    struct llama_context *ctx = open_context(model, 1);
    CHECK(decode(ctx, 0, 0, 8, 0) == 0);
    for (int calls = 0; calls < 12; calls += 3) {
        struct abort_after abort = {calls};
        llama_set_abort_callback(ctx, abort_later, &abort);
        CHECK(decode(ctx, 0, 8, 24, 0) == 2);
        CHECK(llama_memory_seq_pos_max(llama_get_memory(ctx), 0) == 7);
    }
    llama_set_abort_callback(ctx, NULL, NULL);
    CHECK(decode(ctx, 0, 8, 24, 0) == 0);
    CHECK(decode(ctx, 0, 24, 25, 0) == 0);
    check_bits(ctx, fresh_logits(model, 24, 0));
    llama_free(ctx);
    llama_model_free(model);
}

static void limit_files(rlim_t size) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = size;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* 3 and 4. The disk takes only a part of a file: saving fails, and the old file stays. */
static void full_disks(void) {
    struct llama_model *model = open_model("llama.gguf");
    struct llama_context *ctx = open_context(model, 1);
    const char *path = in_dir(files_dir, "full.state");
    CHECK(decode(ctx, 0, 0, 20, 0) == 0);
    llama_token tokens[64] = {0};
    size_t size = llama_state_seq_save_file(ctx, path, 0, tokens, 0);
    CHECK(size > 200);
    CHECK(decode(ctx, 0, 20, 40, 0) == 0);
    limit_files(size - 100);
    CHECK(llama_state_seq_save_file(ctx, path, 0, tokens, 0) == 0);
    CHECK(!llama_state_save_file(ctx, path, tokens, 0));
    CHECK(llama_state_seq_save_file(ctx, in_dir(files_dir, "new.state"), 0, tokens, 0) == 0);
    limit_files(RLIM_INFINITY);
    struct stat status;
    CHECK(stat(in_dir(files_dir, "new.state"), &status) != 0);
    struct llama_context *other = open_context(model, 1);
    size_t n_tokens = 99;
    CHECK(llama_state_seq_load_file(other, path, 0, tokens, 64, &n_tokens) == size);
    CHECK(n_tokens == 0);
    CHECK(llama_memory_seq_pos_max(llama_get_memory(other), 0) == 19);
    CHECK(decode(other, 0, 20, 21, 0) == 0);
    check_bits(other, fresh_logits(model, 20, 0));
    llama_free(other);
    llama_free(ctx);
    llama_model_free(model);
}

/* 5. States with a flipped bit, and of another model. */
static void damage_is_noticed(void) {
    struct llama_model *model = open_model("quant_f16.gguf");
    struct llama_context *ctx = open_context(model, 1);
    const char *path = in_dir(files_dir, "damaged.state");
    llama_token tokens[64];
    size_t n_tokens, size;
    CHECK(decode(ctx, 0, 0, 12, 0) == 0);
    CHECK(llama_state_seq_save_file(ctx, path, 0, tokens, 0) > 0);

    struct llama_model *twin = open_model("quant_q4_0.gguf");
    struct llama_context *other = open_context(twin, 1);
    CHECK(llama_state_seq_load_file(other, path, 0, tokens, 64, &n_tokens) == 0);
    size = llama_state_get_size(ctx);
    unsigned char *state = (unsigned char *)malloc(size);
    CHECK(size > 0 && llama_state_get_data(ctx, state, size) == size);
    CHECK(llama_state_set_data(other, state, size) == 0);
    for (size_t at = 0; at < size; at += size / 50 + 1) {
        state[at] ^= 1;
        CHECK(llama_state_set_data(ctx, state, size) == 0);
        state[at] ^= 1;
    }
    CHECK(llama_state_set_data(ctx, state, size) == size);
    free(state);

    unsigned char *bytes = read_file(path, &size);
    for (size_t at = 0; at < size; at += size / 50 + 1) {
        bytes[at] ^= 0x10;
        write_file(path, bytes, size);
        CHECK(llama_state_seq_load_file(ctx, path, 0, tokens, 64, &n_tokens) == 0);
        bytes[at] ^= 0x10;
    }
    write_file(path, bytes, size);
    CHECK(llama_state_seq_load_file(ctx, path, 0, tokens, 64, &n_tokens) == size);
    CHECK(decode(ctx, 0, 12, 13, 0) == 0);
    check_bits(ctx, fresh_logits(model, 12, 0));
    free(bytes);
    llama_free(other);
    llama_model_free(twin);
    llama_free(ctx);
    llama_model_free(model);
}

/* 6. Files that lie about themselves, without a seal as llama.cpp writes them. */
static void hostile_files(const char *name) {
    struct llama_model *model = open_model(name);
    struct llama_context *ctx = open_context(model, 2);
    const char *path = in_dir(files_dir, "hostile.state");
    llama_token tokens[64];
    size_t n_tokens, size;
    CHECK(decode(ctx, 0, 0, 5, 0) == 0);
    bst_plain_states(ctx, true);
    CHECK(llama_state_seq_save_file(ctx, path, 0, tokens, 0) > 0);
    bst_plain_states(ctx, false);
    unsigned char *bytes = read_file(path, &size);
    const int32_t lies[] = {2, -1, 0x7fffffff, -1000, 1 << 20};
    for (size_t at = 0; at + 4 <= size && at < 120; at += 4) {
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            unsigned char kept[4];
            memcpy(kept, bytes + at, 4);
            memcpy(bytes + at, &lies[i], 4);
            write_file(path, bytes, size);
            llama_state_seq_load_file(ctx, path, 1, tokens, 64, &n_tokens);
            CHECK(llama_memory_seq_pos_min(llama_get_memory(ctx), 1) >= -1);
            memcpy(bytes + at, kept, 4);
        }
    }
    unsigned char session[16] = {0x6e, 0x73, 0x67, 0x67, 11, 0, 0, 0, 0xff, 0xff, 0xff, 0x2f};
    write_file(path, session, sizeof session);
    CHECK(!llama_state_load_file(ctx, path, tokens, (size_t)1 << 30, &n_tokens));
    CHECK(llama_memory_seq_pos_max(llama_get_memory(ctx), 0) == 4);
    CHECK(decode(ctx, 0, 5, 6, 0) == 0);
    check_bits(ctx, fresh_logits(model, 5, 0));
    free(bytes);
    llama_free(ctx);
    llama_model_free(model);
}

/* 7. A restore that fails leaves the live sequence: another type of cells, a truncated session. */
static void failed_restores_change_nothing(void) {
    struct llama_model *model = open_model("llama.gguf");
    struct llama_context *ctx = open_context(model, 1);
    CHECK(decode(ctx, 0, 0, 9, 0) == 0);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = N_CTX;
    params.type_k = params.type_v = GGML_TYPE_F32;
    struct llama_context *other = llama_init_from_model(model, params);
    CHECK(other && decode(other, 0, 0, 30, 0) == 0);
    const char *path = in_dir(files_dir, "other.state");
    llama_token tokens[64] = {0};
    size_t n_tokens, size;
    /* A list of tokens without a place to go is refused before anything is taken. */
    CHECK(llama_state_save_file(other, path, tokens, 4) && decode(other, 0, 30, 31, 0) == 0);
    CHECK(!llama_state_load_file(other, path, NULL, 64, &n_tokens));
    CHECK(llama_memory_seq_pos_max(llama_get_memory(other), 0) == 30);
    CHECK(llama_state_seq_save_file(other, path, 0, tokens, 0) > 0);
    CHECK(llama_state_seq_load_file(ctx, path, 0, tokens, 64, &n_tokens) == 0);
    CHECK(llama_state_save_file(ctx, path, tokens, 0));
    unsigned char *bytes = read_file(path, &size);
    for (size_t cut = 0; cut < size; cut += size / 40 + 1) {
        write_file(path, bytes, cut);
        CHECK(!llama_state_load_file(ctx, path, tokens, 64, &n_tokens));
    }
    CHECK(llama_memory_seq_pos_max(llama_get_memory(ctx), 0) == 8);
    CHECK(decode(ctx, 0, 9, 10, 0) == 0);
    check_bits(ctx, fresh_logits(model, 9, 0));
    free(bytes);
    llama_free(other);
    llama_free(ctx);
    llama_model_free(model);
}

/* 8. A windowed sequence comes back from a file and goes back beyond its window; a sequence is
 * saved right after its positions were moved. */
static void windows_and_moves(void) {
    struct llama_model *model = open_model("gemma3.gguf");
    struct llama_context *ctx = open_context(model, 1), *other = open_context(model, 1);
    const char *path = in_dir(files_dir, "window.state");
    llama_token tokens[64];
    size_t n_tokens;
    for (int i = 0; i < 120; i += 8) {
        CHECK(decode(ctx, 0, i, i + 8, 0) == 0);
    }
    CHECK(llama_state_seq_save_file(ctx, path, 0, tokens, 0) > 0);
    CHECK(llama_state_seq_load_file(other, path, 0, tokens, 64, &n_tokens) > 0);
    if (llama_memory_seq_rm(llama_get_memory(other), 0, 40, -1)) {
        CHECK(decode(other, 0, 40, 41, 3) == 0);
        check_bits(other, fresh_logits(model, 40, 3));
    } else {
        CHECK(llama_memory_seq_pos_max(llama_get_memory(other), 0) == 119);
    }
    llama_free(ctx);
    llama_free(other);
    llama_model_free(model);

    model = open_model("llama.gguf");
    ctx = open_context(model, 1), other = open_context(model, 1);
    CHECK(decode(ctx, 0, 0, 24, 0) == 0);
    CHECK(llama_memory_seq_rm(llama_get_memory(ctx), 0, 4, 8));
    llama_memory_seq_add(llama_get_memory(ctx), 0, 8, -1, -4);
    CHECK(llama_state_seq_save_file(ctx, path, 0, tokens, 0) > 0);
    CHECK(llama_state_seq_load_file(other, path, 0, tokens, 64, &n_tokens) > 0);
    CHECK(decode(ctx, 0, 20, 21, 0) == 0 && decode(other, 0, 20, 21, 0) == 0);
    check_bits(other, logits(ctx));
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
    const char *rolled[] = {"qwen35.gguf", "lfm2.gguf", "lfm2moe.gguf", "nemotron_h.gguf"};
    for (size_t i = 0; i < sizeof rolled / sizeof *rolled; i++) {
        rollback_is_exact(rolled[i]);
    }
    const char *aborted[] = {"mamba.gguf", "rwkv7.gguf", "jamba.gguf", "qwen35.gguf", "lfm2.gguf"};
    for (size_t i = 0; i < sizeof aborted / sizeof *aborted; i++) {
        abort_leaves_everything(aborted[i]);
    }
    full_disks();
    damage_is_noticed();
    hostile_files("mamba.gguf");
    hostile_files("llama.gguf");
    failed_restores_change_nothing();
    windows_and_moves();
    puts("all eight are right");
    return 0;
}
