/* What llama.h cannot say: exact rollback with its cost, forks, pins, saved states with
 * fingerprints, prompt caches, and the reason of a failure.
 *
 * The functions take the handles of llama.h. All check their arguments: a null, stale or foreign
 * handle, a sequence or position that there is none of, a buffer that is too short give the failure
 * value, the reason goes to the log and to bst_last_error, and nothing has changed.
 *
 * A position is the one that the next token of a sequence gets: a sequence of n tokens from
 * position 0 on ends at position n.
 */
#ifndef BACKSTITCH_H
#define BACKSTITCH_H

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, and that of llama-cpp-python whose structures it has. */
const char *bst_version(void);
const char *bst_layout(void);

/* The reason of the last failure on this thread; an empty text if there was none. The address is
 * valid until the next failure on the thread. */
const char *bst_last_error(void);

/* Work of a rollback. Either steps of recurrences were replayed, without running the model, or
 * tokens re-evaluated, or neither. */
struct bst_rollback_cost {
    int32_t restored_from; /* position that was restored, from which work began */
    uint32_t replayed;     /* steps of recurrences */
    uint32_t reevaluated;  /* tokens */
};

/* Rolls a sequence back so that pos is the position of its next token, on every kind of model and
 * to every position that it reached, with the bits that it had there. cost may be null.
 * Returns 0, or -1. */
int32_t bst_rollback(
    struct llama_context *ctx, llama_seq_id seq, llama_pos pos, struct bst_rollback_cost *cost);

/* Writes the cost of a rollback without doing it. Returns 0, or -1 if pos was not reached. */
int32_t bst_cost_of_rollback(
    struct llama_context *ctx, llama_seq_id seq, llama_pos pos, struct bst_rollback_cost *cost);

/* Makes dst a copy of src. They share blocks and states until one of them changes. Returns 0, or
 * -1. */
int32_t bst_fork(struct llama_context *ctx, llama_seq_id src, llama_seq_id dst);

/* Pins the end of a sequence: a rollback reaches it at once from now on, with its logits. With
 * bst_rollback this is a savepoint. Returns 0, or -1 if pins use up their budget. */
int32_t bst_pin(struct llama_context *ctx, llama_seq_id seq);

/* Removes a pin. Returns 1, 0 if there is none (models that keep every position need none), or
 * -1. */
int32_t bst_unpin(struct llama_context *ctx, llama_seq_id seq, llama_pos pos);

/* Writes the tokens of a sequence. Returns their number, its negative if it exceeds capacity, or 0
 * if they are not known because the sequence was changed in its middle. */
int32_t bst_tokens(
    struct llama_context *ctx, llama_seq_id seq, llama_token *tokens, int32_t capacity);

/* Writes the logits of the last token of a sequence, also if its batch was not the last one; the
 * token is re-evaluated then, and the sequence stays as it is. Returns their number, its negative
 * if it exceeds capacity, or 0 if there are none. */
int32_t bst_logits(struct llama_context *ctx, llama_seq_id seq, float *logits, int32_t capacity);

/* Saves a sequence to a file of Backstitch's: checksums, the fingerprint of the model, all
 * positions that it can go back to at once. The file holds the old state or the new one, whatever
 * happens. Returns 0, or -1. */
int32_t bst_save(struct llama_context *ctx, llama_seq_id seq, const char *path);

/* Restores a sequence from such a file, in the place of what it holds. Returns 0, or -1. */
int32_t bst_restore(struct llama_context *ctx, llama_seq_id seq, const char *path);

/* Writes the 32 bytes that tell the states of this model from those of others. Returns 0, or -1. */
int32_t bst_fingerprint(struct llama_context *ctx, uint8_t *fingerprint);

/* Makes llama_state_* write states exactly as llama.cpp does, which can then read whole sessions,
 * or with a seal again: a checksum, the fingerprint and the tokens. */
void bst_plain_states(struct llama_context *ctx, bool plain);

struct bst_prompt_cache;

/* Opens a folder of evaluated prompts that may grow to budget bytes. Returns null on failure. */
struct bst_prompt_cache *bst_prompt_cache_open(const char *path, uint64_t budget);
void bst_prompt_cache_free(struct bst_prompt_cache *cache);

/* The part of a prompt that a cache had. */
struct bst_recalled {
    size_t n_tokens; /* tokens that the sequence holds now */
    size_t n_stored; /* tokens that are stored */
};

/* Replaces what a sequence holds by the longest beginning of a prompt that the cache has, without
 * its last token. Writes how much that was, and as text why it was not more. Both may be null, with
 * why_size 0. Returns 0, or -1. */
int32_t bst_recall(
    struct llama_context *ctx, llama_seq_id seq, struct bst_prompt_cache *cache,
    const llama_token *tokens, size_t n_tokens, struct bst_recalled *recalled, char *why,
    size_t why_size);

/* Stores the beginning of a sequence as far as the cache lacks it. Returns 1 if there was something
 * to store, 0 if not, or -1. */
int32_t bst_remember(struct llama_context *ctx, llama_seq_id seq, struct bst_prompt_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
