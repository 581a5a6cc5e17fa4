/* The part of ggml that programs of llama.h use, as Backstitch offers it: types, clocks, the log.
 *
 * There are no tensors here: structures of them are declared, and nothing makes one.
 */
#ifndef GGML_H
#define GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* For programs that end themselves; the library never does. */
#define GGML_ABORT(...)                                                                          \
    do {                                                                                         \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                          \
        fprintf(stderr, __VA_ARGS__);                                                            \
        abort();                                                                                 \
    } while (0)
#define GGML_ASSERT(condition)                                                                   \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            GGML_ABORT("%s\n", #condition);                                                      \
        }                                                                                        \
    } while (0)

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_tensor;
struct ggml_context;
struct ggml_cgraph;
struct gguf_context;

typedef struct ggml_backend_device *ggml_backend_dev_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_threadpool *ggml_threadpool_t;
typedef struct ggml_opt_dataset *ggml_opt_dataset_t;
typedef struct ggml_opt_result *ggml_opt_result_t;
typedef struct ggml_opt_context *ggml_opt_context_t;

/* Types of numbers, as files name them. */
enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_Q4_0 = 2,
    GGML_TYPE_Q4_1 = 3,
    GGML_TYPE_Q5_0 = 6,
    GGML_TYPE_Q5_1 = 7,
    GGML_TYPE_Q8_0 = 8,
    GGML_TYPE_Q8_1 = 9,
    GGML_TYPE_Q2_K = 10,
    GGML_TYPE_Q3_K = 11,
    GGML_TYPE_Q4_K = 12,
    GGML_TYPE_Q5_K = 13,
    GGML_TYPE_Q6_K = 14,
    GGML_TYPE_Q8_K = 15,
    GGML_TYPE_IQ2_XXS = 16,
    GGML_TYPE_IQ2_XS = 17,
    GGML_TYPE_IQ3_XXS = 18,
    GGML_TYPE_IQ1_S = 19,
    GGML_TYPE_IQ4_NL = 20,
    GGML_TYPE_IQ3_S = 21,
    GGML_TYPE_IQ2_S = 22,
    GGML_TYPE_IQ4_XS = 23,
    GGML_TYPE_I8 = 24,
    GGML_TYPE_I16 = 25,
    GGML_TYPE_I32 = 26,
    GGML_TYPE_I64 = 27,
    GGML_TYPE_F64 = 28,
    GGML_TYPE_IQ1_M = 29,
    GGML_TYPE_BF16 = 30,
    GGML_TYPE_TQ1_0 = 34,
    GGML_TYPE_TQ2_0 = 35,
    GGML_TYPE_MXFP4 = 39,
    GGML_TYPE_NVFP4 = 40,
    GGML_TYPE_Q1_0 = 41,
    GGML_TYPE_Q2_0 = 42,
    GGML_TYPE_COUNT = 43,
};

/* Levels of messages. */
enum ggml_log_level {
    GGML_LOG_LEVEL_NONE = 0,
    GGML_LOG_LEVEL_DEBUG = 1,
    GGML_LOG_LEVEL_INFO = 2,
    GGML_LOG_LEVEL_WARN = 3,
    GGML_LOG_LEVEL_ERROR = 4,
    GGML_LOG_LEVEL_CONT = 5,
};

/* Ways to bind memory to nodes, which is not done. */
enum ggml_numa_strategy {
    GGML_NUMA_STRATEGY_DISABLED = 0,
    GGML_NUMA_STRATEGY_DISTRIBUTE = 1,
    GGML_NUMA_STRATEGY_ISOLATE = 2,
    GGML_NUMA_STRATEGY_NUMACTL = 3,
    GGML_NUMA_STRATEGY_MIRROR = 4,
    GGML_NUMA_STRATEGY_COUNT,
};

/* Methods of training, which is not done. */
enum ggml_opt_optimizer_type {
    GGML_OPT_OPTIMIZER_TYPE_ADAMW,
    GGML_OPT_OPTIMIZER_TYPE_SGD,
    GGML_OPT_OPTIMIZER_TYPE_COUNT,
};

#define GGML_ROPE_TYPE_NEOX 2
#define GGML_ROPE_TYPE_MROPE 8
#define GGML_ROPE_TYPE_VISION 24
#define GGML_ROPE_TYPE_IMROPE 40

/* Receives a message, which ends with a line end. */
typedef void (*ggml_log_callback)(enum ggml_log_level level, const char *text, void *user_data);
/* Returns true to abort a computation. Several threads call it, often; it may not use the
 * context. */
typedef bool (*ggml_abort_callback)(void *data);
/* Would see tensors; never called. */
typedef bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor *t, bool ask, void *user_data);

/* Numbers of a method of training. */
struct ggml_opt_optimizer_params {
    struct {
        float alpha;
        float beta1;
        float beta2;
        float eps;
        float wd;
    } adamw;
    struct {
        float alpha;
        float wd;
    } sgd;
};
typedef struct ggml_opt_optimizer_params (*ggml_opt_get_optimizer_params)(void *userdata);
typedef void (*ggml_opt_epoch_callback)(
    bool train, ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result,
    int64_t ibatch, int64_t ibatch_max, int64_t t_start_us);

/* Clocks. */
void ggml_time_init(void);
int64_t ggml_time_ms(void);
int64_t ggml_time_us(void);

/* The name of a type; an empty text for numbers that are none. */
const char *ggml_type_name(enum ggml_type type);

/* Sends messages to a callback, or to standard error if it is null, as llama_log_set. */
void ggml_log_set(ggml_log_callback log_callback, void *user_data);

/* Do nothing: the kernels are part of the library. */
void ggml_backend_load_all(void);
void ggml_backend_load_all_from_path(const char *dir_path);

#ifdef __cplusplus
}
#endif

#endif
