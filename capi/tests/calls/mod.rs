//! Random calls with random handles, stale and foreign ones among them: the fuzz target `capi` and
//! the test `random_calls` run what bytes say.
//!
//! Addresses keep the claims that the border states, because nothing can check those: buffers are
//! as long as the calls say. All else is chosen by the bytes.

use backstitch_capi::border::{In, Out, Text};
use backstitch_capi::handles::Handle;
use backstitch_capi::layouts::{ChainParams, ContextParams, ModelParams, TokenData, TokenDataArray};
use backstitch_capi::sampler::SamplerRef;
use backstitch_capi::{
    batch, batch_ext, bst, context, decode, log, memory, model, names, sampler, state, vocab,
};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;

/// The numbers of a buffer.
const LEN: usize = 64;
/// The most contexts at a time.
const MOST_CONTEXTS: usize = 4;
/// Numbers that are likely to be wrong.
const NUMBERS: [i32; 12] = [0, 1, 2, 3, 5, 31, 64, -1, -2, i32::MAX, i32::MIN, 1 << 20];

/// The world that the calls act on. Nothing is ever taken out of the lists, so that they fill with
/// stale handles.
struct World<'a> {
    bytes: std::slice::Iter<'a, u8>,
    handles: Vec<Handle>,
    samplers: Vec<SamplerRef>,
    n_contexts: usize,
    tokens: [i32; LEN],
    text: [u8; LEN],
    numbers: [f32; LEN],
    state: Vec<u8>,
}

extern "C" fn quiet(_level: i32, _text: *const c_char, _data: *mut c_void) {}

fn text(text: &CStr) -> Text {
    // SAFETY: the text ends with a zero and outlives the call that it is handed to.
    unsafe { Text::new(text.as_ptr()) }
}

fn input<T: Copy>(values: &[T]) -> In<T> {
    // SAFETY: the slice outlives the call that it is handed to.
    unsafe { In::new(values.as_ptr()) }
}

fn output<T: Copy>(values: &mut [T]) -> Out<T> {
    // SAFETY: the slice outlives the call that it is handed to, and nobody else uses it meanwhile.
    unsafe { Out::new(values.as_mut_ptr()) }
}

impl World<'_> {
    fn byte(&mut self) -> Option<usize> {
        self.bytes.next().map(|&byte| usize::from(byte))
    }

    fn number(&mut self) -> i32 {
        let byte = self.byte().unwrap_or(0);
        NUMBERS.get(byte % 32).copied().unwrap_or(byte as i32 - 16)
    }

    fn handle(&mut self) -> Handle {
        let byte = self.byte().unwrap_or(0);
        match byte {
            0 => Handle::NULL,
            // Numbers that look like handles.
            1..8 => Handle(byte << 60 | byte << 24 | byte << 4),
            _ => self.handles.get(byte % self.handles.len().max(1)).copied().unwrap_or(Handle::NULL),
        }
    }

    fn sampler(&mut self) -> SamplerRef {
        let byte = self.byte().unwrap_or(0);
        match byte {
            0 => SamplerRef::NULL,
            1 => SamplerRef(self.handle().0 as *mut _),
            _ => self.samplers.get(byte % self.samplers.len().max(1)).copied().unwrap_or(SamplerRef::NULL),
        }
    }

    fn made(&mut self, made: SamplerRef) {
        if !made.is_null() && self.samplers.len() < 200 {
            self.samplers.push(made);
        }
    }

    /// Decode a few tokens that may be wrong, with positions and sequences that may be wrong.
    fn decode(&mut self) {
        let (handle, n) = (self.handle(), self.byte().unwrap_or(0) % 12);
        let made = batch::llama_batch_init(LEN as i32, 0, 1);
        for i in 0..n {
            self.tokens[i] = self.number();
        }
        let mut positions = [self.number(); LEN];
        (0..LEN).for_each(|i| positions[i] = positions[i].wrapping_add(i as i32));
        let has_positions = self.byte().unwrap_or(0).is_multiple_of(2);
        let mut seqs = [self.number(); 1];
        let mut lists = [seqs.as_mut_ptr(); LEN];
        let batch = backstitch_capi::layouts::Batch {
            n_tokens: n as i32,
            token: self.tokens.as_mut_ptr(),
            pos: if has_positions { positions.as_mut_ptr() } else { null_mut() },
            n_seq_id: null_mut(),
            seq_id: lists.as_mut_ptr(),
            ..made
        };
        let result = decode::llama_decode(handle, batch);
        assert!((-3..=2).contains(&result));
        batch::llama_batch_free(made);
    }

    fn memory(&mut self) {
        let (handle, seq, from, to) = (self.handle(), self.number(), self.number(), self.number());
        match self.byte().unwrap_or(0) % 10 {
            0 => memory::llama_memory_clear(handle, 1),
            1 | 2 => {
                let _ = memory::llama_memory_seq_rm(handle, seq, from, to);
            }
            3 => memory::llama_memory_seq_cp(handle, seq, self.number(), from, to),
            4 => memory::llama_memory_seq_keep(handle, seq),
            5 => memory::llama_memory_seq_add(handle, seq, from, to, self.number()),
            6 => memory::llama_memory_seq_div(handle, seq, from, to, self.number()),
            7 => {
                let mut cost = [bst::RollbackCost::default()];
                let result = bst::bst_rollback(handle, seq, from, output(&mut cost));
                assert!(result == 0 || (result == -1 && cost[0] == bst::RollbackCost::default()));
            }
            8 => assert!(bst::bst_fork(handle, seq, from) <= 0),
            _ => assert!(bst::bst_pin(handle, seq) <= 0),
        }
        let last = memory::llama_memory_seq_pos_max(handle, seq);
        assert!(last >= -1 && memory::llama_memory_seq_pos_min(handle, seq) <= last.max(-1));
    }

    fn state(&mut self) {
        let (handle, seq) = (self.handle(), self.number());
        match self.byte().unwrap_or(0) % 4 {
            0 => {
                let size = state::llama_state_seq_get_size(handle, seq);
                self.state.resize(size, 0);
                let out = output(&mut self.state);
                assert_eq!(state::llama_state_seq_get_data(handle, out, size, seq), size);
            }
            1 => {
                let size = state::llama_state_get_size(handle);
                self.state.resize(size, 0);
                assert_eq!(state::llama_state_get_data(handle, output(&mut self.state), size), size);
            }
            2 => {
                let (at, flip) = (self.byte().unwrap_or(0) * 37, self.byte().unwrap_or(0).is_multiple_of(3));
                let len = self.state.len();
                if flip && len > 0 {
                    self.state[at % len] ^= 1;
                }
                let _ = state::llama_state_seq_set_data(handle, input(&self.state), len, seq);
            }
            _ => {
                let _ = state::llama_state_set_data(handle, input(&self.state), self.state.len());
            }
        }
    }

    fn sample(&mut self) {
        let sampler = self.sampler();
        let made = match self.byte().unwrap_or(0) % 20 {
            0 => sampler::llama_sampler_chain_init(ChainParams { no_perf: 0 }),
            1 => sampler::llama_sampler_init_greedy(),
            2 => sampler::llama_sampler_init_dist(self.number() as u32),
            3 => sampler::llama_sampler_init_top_k(self.number()),
            4 => sampler::llama_sampler_init_top_p(0.5, self.byte().unwrap_or(0)),
            5 => sampler::llama_sampler_init_temp(self.number() as f32 / 7.0),
            6 => sampler::llama_sampler_init_mirostat_v2(1, 5.0, 0.1),
            7 => sampler::llama_sampler_init_grammar(self.handle(), text(c"root ::= \"a\"*"), text(c"root")),
            8 => sampler::llama_sampler_clone(sampler),
            9 => sampler::llama_sampler_chain_remove(sampler, self.number()),
            10..13 => {
                sampler::llama_sampler_chain_add(sampler, self.sampler());
                SamplerRef::NULL
            }
            13 => {
                sampler::llama_sampler_free(sampler);
                SamplerRef::NULL
            }
            14 => {
                sampler::llama_sampler_accept(sampler, self.number());
                SamplerRef::NULL
            }
            15 => {
                let mut data = self.numbers.map(|logit| TokenData { id: logit as i32, logit, p: 0.0 });
                let size = self.byte().unwrap_or(0) % LEN;
                let data = data.as_mut_ptr();
                let mut array = [TokenDataArray { data, size, selected: -1, sorted: 0 }];
                sampler::llama_sampler_apply(sampler, output(&mut array));
                assert!(array[0].size <= size && array[0].selected < size.max(1) as i64);
                SamplerRef::NULL
            }
            16 => {
                sampler::llama_sampler_copy(sampler, self.sampler());
                SamplerRef::NULL
            }
            _ => {
                let token = sampler::llama_sampler_sample(sampler, self.handle(), self.number());
                assert!(token >= -1);
                SamplerRef::NULL
            }
        };
        self.made(made);
    }

    fn vocab(&mut self) {
        let (handle, token, n) = (self.handle(), self.number(), self.byte().unwrap_or(0) % LEN);
        let n_text = self.byte().unwrap_or(0) % LEN;
        for i in 0..n_text {
            self.text[i] = self.byte().unwrap_or(0) as u8;
        }
        let (words, found) = (self.text, output(&mut self.tokens));
        let _ = vocab::llama_tokenize(handle, input(&words), n_text as i32, found, n as i32, 1, 1);
        let _ = vocab::llama_token_to_piece(handle, token, output(&mut self.text), n as i32, token, 1);
        let _ = vocab::llama_detokenize(handle, input(&[token]), 1, output(&mut self.text), n as i32, 0, 1);
        let _ = vocab::llama_vocab_get_attr(handle, token);
        let _ = vocab::llama_vocab_get_text(handle, token);
        let _ = names::llama_ftype_name(token);
        let _ = model::llama_model_meta_val_str_by_index(handle, token, output(&mut [0 as c_char; LEN]), n);
    }

    fn outputs(&mut self) {
        let (handle, i) = (self.handle(), self.number());
        let _ = decode::llama_get_logits(handle);
        let _ = decode::llama_get_logits_ith(handle, i);
        let _ = decode::llama_get_embeddings_ith(handle, i);
        let _ = decode::llama_get_embeddings_seq(handle, i);
        let n = bst::bst_logits(handle, i, output(&mut self.numbers), LEN as i32);
        assert!(n <= LEN as i32);
    }

    fn extended(&mut self) {
        let (handle, seq) = (self.handle(), self.number());
        let made = batch_ext::llama_batch_ext_init(handle);
        for _ in 0..3 {
            let index = batch_ext::llama_batch_ext_add_token(made, seq, self.number());
            let _ = batch_ext::llama_batch_ext_set_pos(made, index, input(&[self.number()]));
        }
        let _ = batch_ext::llama_process(handle, 1, made);
        if !made.is_null() && self.handles.len() < 200 {
            self.handles.push(made);
        }
        batch_ext::llama_batch_ext_free(made);
    }

    /// Make or free a context; a model is never freed but at the end.
    fn contexts(&mut self) {
        let (handle, is_new) = (self.handle(), self.byte().unwrap_or(0).is_multiple_of(2));
        if !is_new {
            let was = context::llama_n_seq_max(handle) > 0;
            context::llama_free(handle);
            self.n_contexts -= usize::from(was);
        } else if self.n_contexts < MOST_CONTEXTS && self.handles.len() < 200 {
            let n_seq_max = self.byte().unwrap_or(0) as u32 % 4;
            let params = ContextParams {
                n_ctx: 64,
                n_seq_max,
                n_threads: 1,
                n_threads_batch: 1,
                ..Default::default()
            };
            let made = context::llama_init_from_model(handle, params);
            if !made.is_null() {
                self.handles.extend([made, context::llama_get_memory(made)]);
                self.n_contexts += 1;
            }
        }
    }
}

/// Make the calls that `bytes` say, on the model at `path`.
pub fn run(path: &str, bytes: &[u8]) {
    log::llama_log_set(Some(quiet), null_mut());
    let path = CString::new(path).unwrap_or_default();
    let opened = model::llama_model_load_from_file(text(&path), ModelParams::default());
    assert!(!opened.is_null(), "the model can be loaded");
    let params =
        ContextParams { n_ctx: 64, n_seq_max: 2, n_threads: 1, n_threads_batch: 1, ..Default::default() };
    let ctx = context::llama_init_from_model(opened, params);
    let mut world = World {
        bytes: bytes.iter(),
        handles: vec![opened, model::llama_model_get_vocab(opened), ctx, context::llama_get_memory(ctx)],
        samplers: Vec::new(),
        n_contexts: 1,
        tokens: [0; LEN],
        text: [0; LEN],
        numbers: [0.5; LEN],
        state: Vec::new(),
    };
    while let Some(byte) = world.byte() {
        match byte % 12 {
            0..3 => world.decode(),
            3..5 => world.memory(),
            5 => world.state(),
            6..9 => world.sample(),
            9 => world.vocab(),
            10 => world.outputs(),
            _ if byte % 5 == 0 => world.contexts(),
            _ => world.extended(),
        }
    }
    // Owners first; what they own is gone then, which the second round meets as stale.
    let samplers = std::mem::take(&mut world.samplers);
    for _ in 0..2 {
        samplers.iter().for_each(|&sampler| sampler::llama_sampler_free(sampler));
        world.handles.iter().for_each(|&handle| context::llama_free(handle));
        world.handles.iter().for_each(|&handle| model::llama_model_free(handle));
    }
}
