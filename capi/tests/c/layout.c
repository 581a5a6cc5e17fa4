/* The sizes and offsets of structures that are passed by value are those of the header that
 * llama-cpp-python 0.3.36 carries. Compiling this is the test. */
#include "backstitch.h"

#ifdef __cplusplus
#define ASSERT static_assert
#else
#define ASSERT _Static_assert
#endif
#define SIZE(type, size) ASSERT(sizeof(struct type) == size, #type)
#define FIELD(type, field, at, size) \
    ASSERT(offsetof(struct type, field) == at && sizeof(((struct type *)0)->field) == size, #field)

SIZE(llama_batch, 56);
FIELD(llama_batch, n_tokens, 0, 4);
FIELD(llama_batch, token, 8, 8);
FIELD(llama_batch, embd, 16, 8);
FIELD(llama_batch, pos, 24, 8);
FIELD(llama_batch, n_seq_id, 32, 8);
FIELD(llama_batch, seq_id, 40, 8);
FIELD(llama_batch, logits, 48, 8);
SIZE(llama_chat_message, 16);
SIZE(llama_context_params, 160);
FIELD(llama_context_params, n_ctx, 0, 4);
FIELD(llama_context_params, n_batch, 4, 4);
FIELD(llama_context_params, n_ubatch, 8, 4);
FIELD(llama_context_params, n_seq_max, 12, 4);
FIELD(llama_context_params, n_rs_seq, 16, 4);
FIELD(llama_context_params, n_outputs_max, 20, 4);
FIELD(llama_context_params, n_outputs_max_per_seq, 24, 4);
FIELD(llama_context_params, n_threads, 28, 4);
FIELD(llama_context_params, n_threads_batch, 32, 4);
FIELD(llama_context_params, ctx_type, 36, 4);
FIELD(llama_context_params, rope_scaling_type, 40, 4);
FIELD(llama_context_params, pooling_type, 44, 4);
FIELD(llama_context_params, attention_type, 48, 4);
FIELD(llama_context_params, flash_attn_type, 52, 4);
FIELD(llama_context_params, rope_freq_base, 56, 4);
FIELD(llama_context_params, rope_freq_scale, 60, 4);
FIELD(llama_context_params, yarn_ext_factor, 64, 4);
FIELD(llama_context_params, yarn_attn_factor, 68, 4);
FIELD(llama_context_params, yarn_beta_fast, 72, 4);
FIELD(llama_context_params, yarn_beta_slow, 76, 4);
FIELD(llama_context_params, yarn_orig_ctx, 80, 4);
FIELD(llama_context_params, defrag_thold, 84, 4);
FIELD(llama_context_params, cb_eval, 88, 8);
FIELD(llama_context_params, cb_eval_user_data, 96, 8);
FIELD(llama_context_params, type_k, 104, 4);
FIELD(llama_context_params, type_v, 108, 4);
FIELD(llama_context_params, abort_callback, 112, 8);
FIELD(llama_context_params, abort_callback_data, 120, 8);
FIELD(llama_context_params, embeddings, 128, 1);
FIELD(llama_context_params, offload_kqv, 129, 1);
FIELD(llama_context_params, no_perf, 130, 1);
FIELD(llama_context_params, op_offload, 131, 1);
FIELD(llama_context_params, swa_full, 132, 1);
FIELD(llama_context_params, kv_unified, 133, 1);
FIELD(llama_context_params, samplers, 136, 8);
FIELD(llama_context_params, n_samplers, 144, 8);
FIELD(llama_context_params, ctx_other, 152, 8);
SIZE(llama_embd, 24);
SIZE(llama_logit_bias, 8);
SIZE(llama_model_imatrix_data, 24);
SIZE(llama_model_kv_override, 264);
SIZE(llama_model_params, 80);
FIELD(llama_model_params, devices, 0, 8);
FIELD(llama_model_params, tensor_buft_overrides, 8, 8);
FIELD(llama_model_params, n_gpu_layers, 16, 4);
FIELD(llama_model_params, split_mode, 20, 4);
FIELD(llama_model_params, load_mode, 24, 4);
FIELD(llama_model_params, lazy_mode, 28, 4);
FIELD(llama_model_params, main_gpu, 32, 4);
FIELD(llama_model_params, tensor_split, 40, 8);
FIELD(llama_model_params, progress_callback, 48, 8);
FIELD(llama_model_params, progress_callback_user_data, 56, 8);
FIELD(llama_model_params, kv_overrides, 64, 8);
FIELD(llama_model_params, vocab_only, 72, 1);
FIELD(llama_model_params, check_tensors, 73, 1);
FIELD(llama_model_params, use_extra_bufts, 74, 1);
FIELD(llama_model_params, no_host, 75, 1);
FIELD(llama_model_params, no_alloc, 76, 1);
FIELD(llama_model_params, load_mtp, 77, 1);
SIZE(llama_model_quantize_params, 64);
FIELD(llama_model_quantize_params, nthread, 0, 4);
FIELD(llama_model_quantize_params, ftype, 4, 4);
FIELD(llama_model_quantize_params, output_tensor_type, 8, 4);
FIELD(llama_model_quantize_params, token_embedding_type, 12, 4);
FIELD(llama_model_quantize_params, allow_requantize, 16, 1);
FIELD(llama_model_quantize_params, quantize_output_tensor, 17, 1);
FIELD(llama_model_quantize_params, only_copy, 18, 1);
FIELD(llama_model_quantize_params, pure, 19, 1);
FIELD(llama_model_quantize_params, keep_split, 20, 1);
FIELD(llama_model_quantize_params, dry_run, 21, 1);
FIELD(llama_model_quantize_params, imatrix, 24, 8);
FIELD(llama_model_quantize_params, kv_overrides, 32, 8);
FIELD(llama_model_quantize_params, tt_overrides, 40, 8);
FIELD(llama_model_quantize_params, prune_layers, 48, 8);
FIELD(llama_model_quantize_params, max_buf_size, 56, 8);
SIZE(llama_model_tensor_override, 16);
/* The binding declares one field fewer than the header, which it never hands over. */
SIZE(llama_opt_params, 48);
SIZE(llama_perf_context_data, 48);
SIZE(llama_perf_sampler_data, 16);
SIZE(llama_sampler, 16);
FIELD(llama_sampler, iface, 0, 8);
FIELD(llama_sampler, ctx, 8, 8);
SIZE(llama_sampler_chain_params, 1);
FIELD(llama_sampler_chain_params, no_perf, 0, 1);
SIZE(llama_sampler_data, 32);
SIZE(llama_sampler_i, 96);
FIELD(llama_sampler_i, name, 0, 8);
FIELD(llama_sampler_i, accept, 8, 8);
FIELD(llama_sampler_i, apply, 16, 8);
FIELD(llama_sampler_i, reset, 24, 8);
FIELD(llama_sampler_i, clone, 32, 8);
FIELD(llama_sampler_i, free, 40, 8);
FIELD(llama_sampler_i, backend_init, 48, 8);
FIELD(llama_sampler_i, backend_accept, 56, 8);
FIELD(llama_sampler_i, backend_apply, 64, 8);
FIELD(llama_sampler_i, backend_set_input, 72, 8);
FIELD(llama_sampler_i, backend_reset, 80, 8);
FIELD(llama_sampler_i, copy_state, 88, 8);
SIZE(llama_sampler_seq_config, 16);
SIZE(llama_token_data, 12);
SIZE(llama_token_data_array, 32);
FIELD(llama_token_data_array, data, 0, 8);
FIELD(llama_token_data_array, size, 8, 8);
FIELD(llama_token_data_array, selected, 16, 8);
FIELD(llama_token_data_array, sorted, 24, 1);

int main(void) {
    return 0;
}
