//! Calls as no program should make them: null, stale and foreign handles, negative numbers, short
//! buffers, tokens outside of the vocabulary, positions that go backwards. Each gives the
//! documented failure value, and nothing changes.

use backstitch_capi::border::{Out, Text};
use backstitch_capi::handles::Handle;
use backstitch_capi::layouts::{
    ChainParams, ContextParams, ModelParams, Sampler, SamplerInterface, TokenData, TokenDataArray,
};
use backstitch_capi::sampler::SamplerRef;
use backstitch_capi::{aliases, batch, bst, chat, context, decode, memory, model, sampler, state, vocab};
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

mod handing_over;

use handing_over::*;

const FOREIGN: Handle = Handle(0x1234_5670);

#[test]
fn null_stale_and_foreign_handles_give_failure_values() {
    let (model_handle, ctx) = open();
    let memory_handle = context::llama_get_memory(ctx);
    let vocab_handle = model::llama_model_get_vocab(model_handle);
    let (stale_model, stale_ctx) = open();
    context::llama_free(stale_ctx);
    context::llama_free(stale_ctx);
    model::llama_model_free(stale_model);
    aliases::llama_free_model(stale_model);
    for bad in [Handle::NULL, stale_ctx, FOREIGN, model_handle, vocab_handle] {
        assert_eq!(context::llama_n_ctx(bad), 0);
        assert_eq!(decode_tokens(bad, &mut [1, 2]), -1);
        assert!(decode::llama_get_logits(bad).is_null());
        assert!(decode::llama_get_logits_ith(bad, -1).is_null());
        assert!(decode::llama_get_embeddings_seq(bad, 0).is_null());
        assert!(context::llama_get_memory(bad).is_null());
        assert!(context::llama_get_model(bad).is_null());
        assert_eq!(state::llama_state_get_size(bad), 0);
        assert_eq!(state::llama_state_seq_get_size(bad, 0), 0);
        assert_eq!(bst::bst_rollback(bad, 0, 0, nowhere()), -1);
        assert_eq!(bst::bst_fork(bad, 0, 1), -1);
        assert!(!memory::llama_memory_seq_rm(bad, 0, 0, -1));
        assert_eq!(memory::llama_memory_seq_pos_max(bad, 0), -1);
        memory::llama_memory_clear(bad, 1);
        memory::llama_memory_seq_cp(bad, 0, 1, 0, -1);
        context::llama_synchronize(bad);
    }
    for bad in [Handle::NULL, stale_model, FOREIGN, ctx, memory_handle] {
        assert_eq!(model::llama_model_n_embd(bad), 0);
        assert_eq!(model::llama_model_n_params(bad), 0);
        assert!(context::llama_init_from_model(bad, ContextParams::default()).is_null());
        assert!(model::llama_model_get_vocab(bad).is_null());
        assert_eq!(vocab::llama_vocab_n_tokens(bad), 0);
        assert_eq!(vocab::llama_vocab_bos(bad), -1);
        assert!(vocab::llama_vocab_get_text(bad, 0).is_null());
        assert_eq!(vocab::llama_tokenize(bad, input(b"a"), 1, nowhere(), 0, 1, 0), 0);
        assert!(sampler::llama_sampler_init_grammar(bad, text(c"root ::= \"a\""), text(c"root")).is_null());
    }
    assert!(last_error().contains("llama_sampler_init_grammar"), "{}", last_error());
    assert_eq!(decode_tokens(ctx, &mut [1, 2]), 0, "{}", last_error());
    // A model that was freed lives on in its contexts.
    model::llama_model_free(model_handle);
    assert_eq!(decode_tokens(ctx, &mut [3]), 0, "{}", last_error());
    context::llama_free(ctx);
}

#[test]
fn wrong_batches_change_nothing() {
    let (_, ctx) = open();
    let memory_handle = context::llama_get_memory(ctx);
    assert_eq!(decode_tokens(ctx, &mut [5, 6, 7]), 0, "{}", last_error());
    let n_vocab = vocab::llama_vocab_n_tokens(model::llama_model_get_vocab(context::llama_get_model(ctx)));
    for wrong in [&mut [n_vocab][..], &mut [-1], &mut [1, i32::MAX], &mut [i32::MIN]] {
        assert_eq!(decode_tokens(ctx, wrong), -1);
    }
    assert_eq!(decode_tokens(ctx, &mut []), -1);
    assert_eq!(decode::llama_decode(ctx, batch::llama_batch_get_one(null_mut(), 4)), -1);
    assert_eq!(decode::llama_decode(ctx, batch::llama_batch_get_one(null_mut(), i32::MIN)), -1);
    // Positions backwards, with a hole, below zero; sequences that there are none of.
    for (position, seq) in [(1, 0), (9, 0), (-3, 0), (3, 2), (3, -1), (3, i32::MAX)] {
        let made = batch::llama_batch_init(1, 0, 1);
        let mut token = [4];
        let mut positions = [position];
        let mut seqs = [seq];
        let mut list = [seqs.as_mut_ptr()];
        let wrong = backstitch_capi::layouts::Batch {
            n_tokens: 1,
            token: token.as_mut_ptr(),
            pos: positions.as_mut_ptr(),
            n_seq_id: null_mut(),
            seq_id: list.as_mut_ptr(),
            ..made
        };
        assert_eq!(decode::llama_decode(ctx, wrong), -1, "position {position}, sequence {seq}");
        batch::llama_batch_free(made);
        batch::llama_batch_free(made);
    }
    assert_eq!(memory::llama_memory_seq_pos_max(memory_handle, 0), 2);
    let n_ctx = context::llama_n_ctx(ctx) as i32;
    assert_eq!(decode_tokens(ctx, &mut vec![8; n_ctx as usize - 3]), 0, "{}", last_error());
    assert_eq!(decode_tokens(ctx, &mut [8]), 1, "the cells are full");
    assert_eq!(memory::llama_memory_seq_pos_max(memory_handle, 0), n_ctx - 1);
    for (tokens, embd, seqs) in [(0, 0, 1), (-1, 0, 1), (1, -1, 1), (1, 0, 0), (i32::MAX, i32::MAX, i32::MAX)]
    {
        assert!(batch::llama_batch_init(tokens, embd, seqs).pos.is_null());
    }
    context::llama_free(ctx);
}

#[test]
fn short_buffers_get_the_size_that_they_need() {
    let (model_handle, ctx) = open();
    let vocab_handle = model::llama_model_get_vocab(model_handle);
    let mut tokens = [0; 64];
    let words = b"a few words to turn into tokens";
    let n =
        vocab::llama_tokenize(vocab_handle, input(words), words.len() as i32, output(&mut tokens), 64, 1, 0);
    assert!(n > 1);
    for short in [0, 1, n - 1] {
        let out = output(&mut tokens);
        let found = vocab::llama_tokenize(vocab_handle, input(words), words.len() as i32, out, short, 1, 0);
        assert_eq!(found, -n);
    }
    assert_eq!(vocab::llama_tokenize(vocab_handle, nothing(), 5, output(&mut tokens), 64, 1, 0), 0);
    assert_eq!(vocab::llama_tokenize(vocab_handle, input(words), -5, output(&mut tokens), 64, 1, 0), 0);
    let mut bytes = [0u8; 64];
    let len = vocab::llama_token_to_piece(vocab_handle, tokens[1], output(&mut bytes), 64, 0, 1);
    assert!(len > 0);
    assert_eq!(vocab::llama_token_to_piece(vocab_handle, tokens[1], output(&mut bytes), 0, 0, 1), -len);
    assert_eq!(vocab::llama_token_to_piece(vocab_handle, tokens[1], nowhere(), 64, 0, 1), 0);
    assert_eq!(vocab::llama_token_to_piece(vocab_handle, -1, output(&mut bytes), 64, 0, 1), 0);
    assert_eq!(vocab::llama_detokenize(vocab_handle, input(&[i32::MAX]), 1, output(&mut bytes), 64, 0, 0), 0);
    let mut name = [1 as c_char; 4];
    let key = text(c"general.architecture");
    let full = model::llama_model_meta_val_str(model_handle, key, nowhere(), 0);
    assert_eq!(full, 5);
    assert_eq!(model::llama_model_meta_val_str(model_handle, key, output(&mut name), 4), 5);
    assert_eq!(name.map(|c| c as u8), *b"lla\0");
    assert_eq!(model::llama_model_meta_val_str(model_handle, text(c"no such key"), output(&mut name), 4), -1);
    assert_eq!(model::llama_model_meta_key_by_index(model_handle, -1, output(&mut name), 4), -1);
    assert_eq!(model::llama_model_meta_key_by_index(model_handle, i32::MAX, output(&mut name), 4), -1);
    assert_eq!(decode_tokens(ctx, &mut [1, 2]), 0);
    let size = state::llama_state_get_size(ctx);
    let mut state_bytes = vec![0; size];
    assert_eq!(state::llama_state_get_data(ctx, output(&mut state_bytes), size - 1), 0);
    assert_eq!(state::llama_state_get_data(ctx, output(&mut state_bytes), size), size);
    for cut in [0, 1, size / 2, size - 1] {
        assert_eq!(state::llama_state_set_data(ctx, input(&state_bytes), cut), 0);
    }
    assert_eq!(state::llama_state_set_data(ctx, nothing(), size), 0);
    assert_eq!(state::llama_state_set_data(ctx, input(&state_bytes), usize::MAX), 0);
    assert_eq!(state::llama_state_set_data(ctx, input(&state_bytes), size), size, "{}", last_error());
    a_state_tells_its_length(ctx, &mut state_bytes);
    let message = backstitch_capi::layouts::ChatMessage { role: c"user".as_ptr(), content: null() };
    let chatml = text(c"chatml");
    assert_eq!(chat::llama_chat_apply_template(chatml, input(&[message]), 1, 1, output(&mut bytes), 64), -1);
    assert_eq!(chat::llama_chat_apply_template(text(c"{% if"), nothing(), 0, 1, output(&mut bytes), 64), -1);
    context::llama_free(ctx);
}

/// Read the state of the context as the function that gets no size does: whole, damaged in its
/// first bytes, and without them.
fn a_state_tells_its_length(ctx: Handle, bytes: &mut [u8]) {
    assert_eq!(state::llama_copy_state_data(ctx, output(bytes)), bytes.len());
    assert_eq!(state::llama_set_state_data(ctx, input(bytes)), bytes.len(), "{}", last_error());
    for at in 0..24 {
        bytes[at] ^= 4;
        assert_eq!(state::llama_set_state_data(ctx, input(bytes)), 0);
        assert_eq!(state::llama_state_set_data(ctx, input(bytes), bytes.len()), 0);
        bytes[at] ^= 4;
    }
    state::bst_plain_states(ctx, 1);
    let mut plain = vec![0; state::llama_state_get_size(ctx)];
    assert_eq!(state::llama_copy_state_data(ctx, output(&mut plain)), plain.len());
    assert_eq!(state::llama_set_state_data(ctx, input(&plain)), 0);
    assert!(last_error().contains("does not tell its length"), "{}", last_error());
    state::bst_plain_states(ctx, 0);
}

#[test]
fn samplers_that_are_gone_or_owned_are_left_alone() {
    let (_, ctx) = open();
    assert_eq!(decode_tokens(ctx, &mut [1, 2]), 0);
    let chain = sampler::llama_sampler_chain_init(ChainParams { no_perf: 0 });
    let greedy = sampler::llama_sampler_init_greedy();
    sampler::llama_sampler_chain_add(chain, greedy);
    sampler::llama_sampler_chain_add(chain, greedy);
    sampler::llama_sampler_chain_add(chain, chain);
    assert_eq!(sampler::llama_sampler_chain_n(chain), 1);
    sampler::llama_sampler_free(greedy);
    assert!(last_error().contains("belongs to a chain"), "{}", last_error());
    assert!(sampler::llama_sampler_sample(chain, ctx, -1) >= 0, "{}", last_error());
    assert_eq!(sampler::llama_sampler_sample(chain, ctx, 7), -1);
    assert!(sampler::llama_sampler_chain_get(chain, 5).is_null());
    assert!(sampler::llama_sampler_chain_remove(chain, -2).is_null());
    let inner = sampler::llama_sampler_chain_init(ChainParams { no_perf: 0 });
    sampler::llama_sampler_chain_add(chain, inner);
    sampler::llama_sampler_chain_add(inner, chain);
    assert_eq!(sampler::llama_sampler_chain_n(inner), 0);
    sampler::llama_sampler_free(chain);
    for gone in [chain, greedy, inner, SamplerRef::NULL, SamplerRef(ctx.0 as *mut _)] {
        sampler::llama_sampler_free(gone);
        sampler::llama_sampler_accept(gone, 1);
        sampler::llama_sampler_reset(gone);
        assert_eq!(sampler::llama_sampler_sample(gone, ctx, -1), -1);
        assert!(sampler::llama_sampler_clone(gone).is_null());
        assert_eq!(sampler::llama_sampler_chain_n(gone), 0);
        assert_eq!(sampler::llama_sampler_get_seed(gone), u32::MAX);
    }
    let top_k = sampler::llama_sampler_init_top_k(2);
    let mut data = [3.0, 1.0, 2.0].map(|logit| TokenData { id: logit as i32, logit, p: 0.0 });
    let mut array = [TokenDataArray { data: data.as_mut_ptr(), size: 3, selected: -1, sorted: 0 }];
    sampler::llama_sampler_apply(top_k, output(&mut array));
    assert_eq!((array[0].size, array[0].sorted, data[1].id), (2, 1, 2));
    sampler::llama_sampler_apply(top_k, nowhere());
    let mut empty = [TokenDataArray { data: null_mut(), size: 4, selected: -1, sorted: 0 }];
    sampler::llama_sampler_apply(top_k, output(&mut empty));
    sampler::llama_sampler_free(top_k);
    context::llama_free(ctx);
}

#[test]
fn contexts_have_room_for_whole_steps_of_tokens() {
    let (model, ctx) = open();
    let sizes = |n_ctx, n_seq_max, kv_unified| {
        let params = ContextParams { n_ctx, n_seq_max, kv_unified, ..Default::default() };
        let made = context::llama_init_from_model(model, params);
        let sizes = (context::llama_n_ctx(made), context::llama_n_ctx_seq(made));
        context::llama_free(made);
        sizes
    };
    assert_eq!(sizes(16, 1, 0), (256, 256));
    assert_eq!(sizes(256, 1, 0), (256, 256));
    assert_eq!(sizes(600, 3, 0), (768, 256));
    assert_eq!(sizes(600, 3, 1), (768, 768));
    assert_eq!(sizes(u32::MAX, 1, 0), (0, 0));
    context::llama_free(ctx);
    model::llama_model_free(model);
}

#[test]
fn a_stopped_load_and_missing_files_give_null() {
    backstitch_capi::log::llama_log_set(Some(quiet), null_mut());
    extern "C" fn stop(_share: f32, _data: *mut c_void) -> bool {
        false
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf");
    let path = CString::new(path).unwrap();
    let params = ModelParams { progress_callback: Some(stop), ..Default::default() };
    assert!(model::llama_model_load_from_file(text(&path), params).is_null());
    for missing in [c"/no/such/model.gguf", c"", c"/"] {
        assert!(model::llama_model_load_from_file(text(missing), ModelParams::default()).is_null());
    }
    // SAFETY: null is always allowed.
    let null_path = unsafe { Text::new(null()) };
    assert!(model::llama_model_load_from_file(null_path, ModelParams::default()).is_null());
    assert!(last_error().contains("path_model is null"), "{}", last_error());
}

/// Open a context of a golden model whose batches yield embeddings.
fn embedding(name: &str) -> (Handle, Handle) {
    backstitch_capi::log::llama_log_set(Some(quiet), null_mut());
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let path = CString::new(path).unwrap();
    let model = model::llama_model_load_from_file(text(&path), ModelParams::default());
    let params = ContextParams { n_ctx: 64, n_seq_max: 2, n_threads: 1, embeddings: 1, ..Default::default() };
    let ctx = context::llama_init_from_model(model, params);
    assert!(!ctx.is_null(), "{}", last_error());
    (model, ctx)
}

/// Copy `n` numbers of an output.
fn numbers(address: *mut f32, n: i32) -> Vec<f32> {
    // SAFETY: the callers know how many numbers an output has.
    let list = unsafe { backstitch_capi::border::In::new(address.cast_const()) };
    list.slice(n as usize, "an output").unwrap().to_vec()
}

/// llama.cpp's programs read a row for each token, whatever the batch asked for.
#[test]
fn batches_for_embeddings_yield_those_of_all_tokens() {
    let (model, ctx) = embedding("llama");
    let (_, plain) = open();
    let n_vocab = vocab::llama_vocab_n_tokens(model::llama_model_get_vocab(model));
    let n_embd = model::llama_model_n_embd(model);
    let mut tokens: Vec<i32> = (1..11).collect();
    assert_eq!(decode_tokens(ctx, &mut tokens), 0, "{}", last_error());
    let all = numbers(decode::llama_get_embeddings(ctx), 10 * n_embd);
    let all_logits = numbers(decode::llama_get_logits(ctx), 10 * n_vocab);
    for i in 0..10 {
        let row = numbers(decode::llama_get_embeddings_ith(ctx, i), n_embd);
        assert_eq!(row, all[(i * n_embd) as usize..][..n_embd as usize]);
        // The logits beside them are those of a batch without embeddings.
        assert_eq!(decode_tokens(plain, &mut [i + 1]), 0, "{}", last_error());
        let logits = numbers(decode::llama_get_logits_ith(plain, 0), n_vocab);
        assert_eq!(logits, all_logits[(i * n_vocab) as usize..][..n_vocab as usize]);
    }
    assert!(decode::llama_get_embeddings_ith(plain, 0).is_null());
    for ctx in [ctx, plain] {
        context::llama_free(ctx);
    }
    let (model, ctx) = embedding("t5");
    let batch = batch::llama_batch_get_one(tokens.as_mut_ptr(), 10);
    context::llama_set_embeddings(ctx, 0);
    assert_eq!(decode::llama_encode(ctx, batch), 0, "{}", last_error());
    assert!(!decode::llama_get_embeddings_ith(ctx, 0).is_null(), "{}", last_error());
    context::llama_free(ctx);
    model::llama_model_free(model);
}

/// Rows stay until the next batch, whatever becomes of the sequences.
#[test]
fn outputs_outlive_their_sequences() {
    let (_, ctx) = open();
    let memory_handle = context::llama_get_memory(ctx);
    assert_eq!(decode_tokens(ctx, &mut [5, 6]), 0);
    let mut saved = vec![0; state::llama_state_seq_get_size(ctx, 0)];
    assert_eq!(state::llama_state_seq_get_data(ctx, output(&mut saved), saved.len(), 0), saved.len());
    assert_eq!(state::llama_state_seq_set_data(ctx, input(&saved), saved.len(), 1), saved.len());
    assert!(!decode::llama_get_logits_ith(ctx, 1).is_null(), "{}", last_error());
    memory::llama_memory_clear(memory_handle, 1);
    let greedy = sampler::llama_sampler_init_greedy();
    assert!(sampler::llama_sampler_sample(greedy, ctx, -1) >= 0, "{}", last_error());
    context::llama_free(ctx);
    let (model, ctx) = embedding("llama");
    context::llama_free(ctx);
    let params = ContextParams { n_ctx: 64, embeddings: 1, pooling_type: 1, ..Default::default() };
    let ctx = context::llama_init_from_model(model, params);
    let memory_handle = context::llama_get_memory(ctx);
    assert_eq!(decode_tokens(ctx, &mut [5, 6]), 0, "{}", last_error());
    assert!(memory::llama_memory_seq_rm(memory_handle, 0, -1, -1));
    assert!(!decode::llama_get_embeddings_seq(ctx, 0).is_null(), "{}", last_error());
    // Logits that were not computed with the batch do not follow from what is there now.
    assert_eq!(decode_tokens(ctx, &mut [5, 6]), 0, "{}", last_error());
    assert!(memory::llama_memory_seq_rm(memory_handle, 0, 1, -1));
    assert!(decode::llama_get_logits_ith(ctx, 1).is_null());
    assert!(memory::llama_memory_seq_rm(memory_handle, 0, 1, 0), "an empty range is no failure");
    sampler::llama_sampler_free(greedy);
    context::llama_free(ctx);
}

/// Calls of a callback, all and those by other threads than the program's.
#[derive(Default)]
struct Asked {
    answer: AtomicBool,
    n: AtomicUsize,
    n_elsewhere: AtomicUsize,
}

thread_local! {
    static IS_PROGRAM: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn aborts(data: *mut c_void) -> bool {
    // SAFETY: the test below hands over its `Asked`, which outlives the context.
    let asked = unsafe { &*data.cast::<Asked>() };
    asked.n.fetch_add(1, Ordering::Relaxed);
    asked.n_elsewhere.fetch_add(usize::from(!IS_PROGRAM.get()), Ordering::Relaxed);
    asked.answer.load(Ordering::Relaxed)
}

#[test]
fn only_evaluations_are_aborted_and_by_their_own_thread() {
    let (model, ctx) = open();
    context::llama_free(ctx);
    let params = ContextParams { n_ctx: 64, n_threads: 2, n_threads_batch: 2, ..Default::default() };
    let ctx = context::llama_init_from_model(model, params);
    let memory_handle = context::llama_get_memory(ctx);
    let mut asked = Asked::default();
    IS_PROGRAM.set(true);
    let data = (&raw mut asked).cast();
    context::llama_set_abort_callback(ctx, Some(aborts), data);
    assert_eq!(decode_tokens(ctx, &mut (1..40).collect::<Vec<_>>()), 0, "{}", last_error());
    let n = asked.n.load(Ordering::Relaxed);
    assert!(n > 0);
    assert_eq!(asked.n_elsewhere.load(Ordering::Relaxed), 0);
    // What else computes is not asked about.
    asked.answer.store(true, Ordering::Relaxed);
    assert!(memory::llama_memory_seq_rm(memory_handle, 0, 30, -1), "{}", last_error());
    let mut saved = vec![0; state::llama_state_seq_get_size(ctx, 0)];
    assert_eq!(state::llama_state_seq_get_data(ctx, output(&mut saved), saved.len(), 0), saved.len());
    assert_eq!(state::llama_state_seq_set_data(ctx, input(&saved), saved.len(), 0), saved.len());
    assert_eq!(asked.n.load(Ordering::Relaxed), n);
    assert_eq!(decode_tokens(ctx, &mut [8]), 2);
    asked.answer.store(false, Ordering::Relaxed);
    assert_eq!(decode_tokens(ctx, &mut [8]), 0, "{}", last_error());
    context::llama_free(ctx);
}

/// A context to evaluate something with when another one asks for the first time.
struct Elsewhere {
    ctx: Handle,
    n: AtomicUsize,
}

extern "C" fn evaluates_elsewhere(data: *mut c_void) -> bool {
    // SAFETY: the test below hands over its `Elsewhere`, which outlives the context.
    let elsewhere = unsafe { &*data.cast::<Elsewhere>() };
    if elsewhere.n.fetch_add(1, Ordering::Relaxed) == 0 {
        assert_eq!(decode_tokens(elsewhere.ctx, &mut [1]), 0, "{}", last_error());
    }
    false
}

#[test]
fn a_callback_that_evaluates_elsewhere_is_asked_again() {
    let ((_, ctx), (_, other)) = (open(), open());
    let mut elsewhere = Elsewhere { ctx: other, n: AtomicUsize::new(0) };
    context::llama_set_abort_callback(ctx, Some(evaluates_elsewhere), (&raw mut elsewhere).cast());
    assert_eq!(decode_tokens(ctx, &mut [1, 2, 3]), 0, "{}", last_error());
    assert!(elsewhere.n.load(Ordering::Relaxed) > 1);
    context::llama_free(ctx);
    context::llama_free(other);
}

/// Leave candidates of the sampler's own in the array, of which the second is chosen.
extern "C" fn replace(sampler: *mut Sampler, array: Out<TokenDataArray>) {
    // SAFETY: the sampler of the test below is alive, and knows itself by its candidates.
    let data = unsafe { (*sampler).ctx }.cast();
    array.write(TokenDataArray { data, size: 2, selected: 1, sorted: 1 }, "cur_p").unwrap();
}

#[test]
fn a_sampler_may_bring_candidates_of_its_own() {
    static INTERFACE: SamplerInterface = {
        // SAFETY: null functions are allowed, and all of it is functions.
        let none: SamplerInterface = unsafe { std::mem::zeroed() };
        SamplerInterface { apply: Some(replace), ..none }
    };
    let (_, ctx) = open();
    assert_eq!(decode_tokens(ctx, &mut [1, 2]), 0);
    let mut own = [40, 41].map(|id| TokenData { id, logit: 0.0, p: 0.5 });
    let sampler = sampler::llama_sampler_init(&raw const INTERFACE, own.as_mut_ptr().cast());
    assert_eq!(sampler::llama_sampler_sample(sampler, ctx, -1), 41);
    sampler::llama_sampler_free(sampler);
    context::llama_free(ctx);
}

#[test]
#[cfg(not(feature = "layout-0-3-16"))]
fn extended_batches_are_filled_step_by_step() {
    use backstitch_capi::{batch_ext::*, layouts::Embeddings};
    let (model, ctx) = open();
    let n_embd = model::llama_model_n_embd(model) as usize;
    let made = llama_batch_ext_init(ctx);
    assert_eq!(llama_process(ctx, 1, made), -1, "an empty batch");
    let n_vocab = vocab::llama_vocab_n_tokens(model::llama_model_get_vocab(model));
    assert_eq!(llama_batch_ext_add_token(made, 0, n_vocab), -2);
    assert_eq!((llama_batch_ext_add(made, 0), llama_batch_ext_add(made, 2)), (0, -3));
    assert!(llama_batch_ext_set_pos(made, 0, input(&[0])));
    assert_eq!(llama_process(ctx, 1, made), -1, "a token without id and embedding");
    let row = vec![0.5; n_embd];
    let embd = |n_embd| Embeddings { data: row.as_ptr(), n_rows: 1, n_embd };
    assert!(!llama_batch_ext_set_embd_token(made, 0, embd(n_embd - 1)));
    assert!(llama_batch_ext_set_embd_token(made, 0, embd(n_embd)));
    assert!(!llama_batch_ext_set_embd_token(made, 0, embd(n_embd)), "it has one");
    assert!(llama_batch_ext_set_output_logits(made, 0, true));
    assert_eq!(llama_process(ctx, 1, made), 0, "{}", last_error());
    assert!(!decode::llama_get_logits_ith(ctx, 0).is_null());
    llama_batch_ext_free(made);
    context::llama_free(ctx);
}
