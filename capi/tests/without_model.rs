//! The border's own logic, where no model is needed: batches, samplers of programs, texts, the log,
//! calls with nothing in hand. Miri can run these tests; it cannot map the files of models:
//!
//!     MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-deterministic-floats -Zmiri-ignore-leaks" \
//!         cargo +nightly miri test -p backstitch-capi --test without_model
//!
//! The address of a freed sampler stays in quarantine until the program ends, so the last eight are
//! leaks to Miri.

use backstitch_capi::batch::{llama_batch_free, llama_batch_init};
use backstitch_capi::border::{self, Out, Text};
use backstitch_capi::error::Error;
use backstitch_capi::handles::{Handle, Kind, Registry};
use backstitch_capi::layouts::{
    ChainParams, ChatMessage, Sampler, SamplerInterface, TokenData, TokenDataArray,
};
use backstitch_capi::sampler::*;
use backstitch_capi::{batch_ext, bst, chat, context, decode, ggml, log, memory, model, names, state, vocab};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

mod handing_over;

use handing_over::*;

fn candidates() -> Vec<TokenData> {
    [0.5, 3.0, 1.0, 2.0].iter().zip(0..).map(|(&logit, id)| TokenData { id, logit, p: 0.0 }).collect()
}

/// Apply a sampler to the candidates, and return the array that it leaves.
fn apply(sampler: SamplerRef, data: &mut [TokenData]) -> TokenDataArray {
    let size = data.len();
    let mut array = [TokenDataArray { data: data.as_mut_ptr(), size, selected: -1, sorted: 0 }];
    llama_sampler_apply(sampler, output(&mut array));
    array[0]
}

fn read_text(text: *const c_char) -> String {
    // SAFETY: the functions of these tests return texts that end with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Return the element of a batch's list, as C finds it.
fn element<T: Copy>(list: *mut T, index: usize) -> Out<T> {
    // SAFETY: the callers stay within the list, which is alive and theirs alone.
    unsafe { Out::new(list.wrapping_add(index)) }
}

#[test]
fn batches_are_filled_and_read_as_c_does() {
    let made = llama_batch_init(3, 0, 2);
    assert!(!made.token.is_null() && made.embd.is_null());
    for i in 0..3 {
        element(made.token, i).write(7, "").unwrap();
        element(made.pos, i).write(i as i32, "").unwrap();
        element(made.n_seq_id, i).write(2, "").unwrap();
        element(made.logits, i).write(1, "").unwrap();
        let seqs = element(made.seq_id, i).read("").unwrap();
        element(seqs, 0).write(i as i32, "").unwrap();
        element(seqs, 1).write(9, "").unwrap();
    }
    let seqs = |i| element(made.seq_id, i).read("").unwrap();
    assert_eq!(element(seqs(0), 0).read("").unwrap(), 0);
    assert_eq!(element(seqs(2), 0).read("").unwrap(), 2);
    assert_eq!(element(seqs(2), 1).read("").unwrap(), 9);
    // The list of sequences ends with a null.
    assert!(seqs(3).is_null());
    // The lists of a batch are read before its context refuses it.
    assert_eq!(decode::llama_decode(Handle::NULL, made), -1);
    llama_batch_free(made);
    llama_batch_free(made);
    let rows = llama_batch_init(2, 5, 1);
    assert!(rows.token.is_null());
    element(rows.embd, 9).write(1.0, "").unwrap();
    llama_batch_free(rows);
}

/// Bindings allocate for as many sequences of each token as a context has tokens.
#[test]
fn a_batch_takes_memory_where_it_is_used() {
    let (n_tokens, n_seq_max) = if cfg!(miri) { (3, 4) } else { (2048, 1 << 20) };
    let made = llama_batch_init(n_tokens, 0, n_seq_max);
    assert!(!made.pos.is_null(), "{}", last_error());
    let last = |i| element(made.seq_id, i as usize).read("").unwrap();
    for i in [0, n_tokens / 2, n_tokens - 1] {
        assert_eq!(element(last(i), n_seq_max as usize - 1).read("").unwrap(), 0);
        element(last(i), 0).write(i, "").unwrap();
    }
    assert_eq!(element(last(n_tokens - 1), 0).read("").unwrap(), n_tokens - 1);
    llama_batch_free(made);
}

/// Return the text that a template makes of a conversation; none if it cannot be used.
fn applied(template: &str, chat: &[(&str, &str)], asks: bool) -> Option<String> {
    let c_string = |text: &str| CString::new(text).unwrap();
    let texts: Vec<_> = chat.iter().map(|(role, content)| (c_string(role), c_string(content))).collect();
    let messages = texts.iter().map(|(role, content)| (role.as_ptr(), content.as_ptr()));
    let messages: Vec<_> = messages.map(|(role, content)| ChatMessage { role, content }).collect();
    let (template, mut buffer) = (c_string(template), [0u8; 1024]);
    let (chat, asks) = (input(&messages), u8::from(asks));
    let n = chat::llama_chat_apply_template(
        text(&template),
        chat,
        messages.len(),
        asks,
        output(&mut buffer),
        1024,
    );
    let n = usize::try_from(n).ok()?;
    Some(String::from_utf8(buffer[..n].to_vec()).unwrap())
}

#[test]
fn formats_have_their_names_and_are_known_by_their_marks() {
    let chat = [("system", " Be brief. "), ("user", "Hi "), ("assistant", " Yes."), ("user", "Why?")];
    let expected = [
        (
            "gemma",
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n\
             <start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
        ),
        ("llama2", "[INST]  Be brief. \nHi  [/INST] Yes.</s>[INST] Why? [/INST]"),
        (
            "llama2-sys-bos",
            "[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nHi  [/INST] Yes.</s><s>[INST] Why? [/INST]",
        ),
        ("mistral-v1", " [INST]  Be brief. \n\nHi  [/INST]  Yes.</s> [INST] Why? [/INST]"),
        (
            "mistral-v7",
            "[SYSTEM_PROMPT]  Be brief. [/SYSTEM_PROMPT][INST] Hi [/INST]  Yes.</s>[INST] Why?[/INST]",
        ),
        ("vicuna", " Be brief. \n\nUSER: Hi \nASSISTANT:  Yes.</s>\nUSER: Why?\nASSISTANT:"),
        (
            "bailing",
            "<role>SYSTEM</role> Be brief. <role>HUMAN</role>Hi <role>ASSISTANT</role> Yes.\
                     <role>HUMAN</role>Why?<role>ASSISTANT</role>",
        ),
        (
            "openchat",
            " Be brief. <|end_of_turn|>GPT4 Correct User: Hi <|end_of_turn|>GPT4 Correct Assistant:  Yes.\
                      <|end_of_turn|>GPT4 Correct User: Why?<|end_of_turn|>GPT4 Correct Assistant:",
        ),
        ("rwkv-world", "System: Be brief.\n\nUser: Hi\n\nAssistant: Yes.\n\nUser: Why?\n\nAssistant:"),
    ];
    for (name, text) in expected {
        assert_eq!(applied(name, &chat, true).as_deref(), Some(text), "{name}");
    }
    let marked = [
        ("{% if true %}{{ raise_exception('no') }}{% endif %}<|im_start|>", "chatml"),
        ("{{ raise_exception('System role not supported') }}'<start_of_turn>'", "gemma"),
        ("{{ ' [INST] ' }}[AVAILABLE_TOOLS]", "mistral-v1"),
        ("<|start|>{{ x }}<|channel|>", "gpt-oss"),
    ];
    for (template, name) in marked {
        assert_eq!(applied(template, &chat, true), applied(name, &chat, true), "{name}");
    }
    let own = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}";
    assert_eq!(applied(own, &chat[1..2], false).as_deref(), Some("user=Hi ;"));
    for unknown in ["mistral-v9", "", "a text without any mark", "{{ raise_exception('no') }}"] {
        assert_eq!(applied(unknown, &chat, true), None, "{unknown}");
    }
}

/// Programs evaluate what a message adds to the text of the conversation before it.
#[test]
fn the_text_of_a_conversation_begins_with_that_of_its_beginning() {
    let chat = [("user", "One"), ("assistant", "<think>\nhm\n</think>\n\nTwo"), ("user", "Three")];
    let mut names = [null(); 64];
    let n = chat::llama_chat_builtin_templates(output(&mut names), 64) as usize;
    for name in names[..n].iter().map(|&name| read_text(name)) {
        let (before, whole) =
            (applied(&name, &chat[..2], false).unwrap(), applied(&name, &chat, true).unwrap());
        assert!(whole.starts_with(&before) && before.contains("hm"), "{name}: {before:?}, {whole:?}");
    }
}

/// A program's sampler: it prefers one token, and counts its calls.
#[derive(Clone, Default)]
struct Foreign {
    prefers: i32,
    accepted: Vec<i32>,
    resets: usize,
    /// A chain that it calls while it is applied.
    chain: usize,
}

/// Return what a sampler of these tests knows itself by.
fn data<'a>(sampler: *const Sampler) -> &'a mut Foreign {
    // SAFETY: the samplers of these tests are alive as long as somebody calls them.
    let own = unsafe { (*sampler).ctx };
    // SAFETY: each has the address of a `Foreign` of its own, and a function uses it alone.
    unsafe { &mut *own.cast::<Foreign>() }
}

extern "C" fn name(_sampler: *const Sampler) -> *const c_char {
    c"preference".as_ptr()
}

extern "C" fn accept(sampler: *mut Sampler, token: i32) {
    data(sampler).accepted.push(token);
}

extern "C" fn prefer(sampler: *mut Sampler, array: Out<TokenDataArray>) {
    let own = data(sampler);
    let view = array.read("cur_p").unwrap();
    // SAFETY: the array has as many candidates as it says.
    let mut candidates = unsafe { Out::new(view.data) };
    for candidate in candidates.slice(view.size, "cur_p.data").unwrap() {
        candidate.logit += f32::from(u8::from(candidate.id == own.prefers)) * 100.0;
    }
    if own.chain != 0 {
        let chain = SamplerRef(own.chain as *mut Sampler);
        assert_eq!(llama_sampler_chain_n(chain), 3);
    }
    array.write(TokenDataArray { sorted: 0, ..view }, "cur_p").unwrap();
}

extern "C" fn reset(sampler: *mut Sampler) {
    data(sampler).resets += 1;
}

extern "C" fn copy(sampler: *const Sampler) -> *mut Sampler {
    let copy = Box::into_raw(Box::new(data(sampler).clone()));
    // SAFETY: the library calls this with a sampler that is alive.
    llama_sampler_init(unsafe { (*sampler).iface }, copy.cast()).0
}

extern "C" fn free(sampler: *mut Sampler) {
    // SAFETY: each `Foreign` came from a box, and a sampler is freed once.
    drop(unsafe { Box::from_raw(&raw mut *data(sampler)) });
}

static INTERFACE: SamplerInterface = {
    const SETTLED: SamplerInterface = SamplerInterface::of_library(name, accept, prefer, reset, copy);
    SamplerInterface { free: Some(free), ..SETTLED }
};

fn foreign(prefers: i32) -> SamplerRef {
    let own = Box::into_raw(Box::new(Foreign { prefers, ..Foreign::default() }));
    llama_sampler_init(&raw const INTERFACE, own.cast())
}

#[test]
fn samplers_of_programs_work_in_chains_and_are_freed_once() {
    let (chain, member) = (llama_sampler_chain_init(ChainParams { no_perf: 0 }), foreign(0));
    for sampler in [member, llama_sampler_init_top_k(2), llama_sampler_init_greedy()] {
        llama_sampler_chain_add(chain, sampler);
    }
    // SAFETY: the sampler is alive, and nobody uses it now.
    let own = data(member.0);
    own.chain = chain.address();
    let mut list = candidates();
    let array = apply(chain, &mut list);
    assert_eq!((array.size, list[array.selected as usize].id), (2, 0));
    llama_sampler_accept(chain, 5);
    llama_sampler_reset(chain);
    let copied = llama_sampler_clone(chain);
    data(member.0).chain = 0;
    let (theirs, array) = (llama_sampler_chain_get(copied, 0), apply(member, &mut candidates()));
    assert_eq!((data(theirs.0).accepted.as_slice(), data(theirs.0).resets, array.size), (&[5][..], 1, 4));
    assert_eq!(read_text(llama_sampler_name(theirs)), "preference");
    assert_eq!(llama_sampler_get_seed(theirs), u32::MAX);
    llama_sampler_free(chain);
    llama_sampler_free(chain);
    llama_sampler_free(member);
    assert!(last_error().contains("freed before"), "{}", last_error());
    data(theirs.0).chain = 0;
    let taken = llama_sampler_chain_remove(copied, 0);
    assert_eq!(taken, theirs);
    llama_sampler_free(taken);
    llama_sampler_free(copied);
}

#[test]
fn functions_that_a_sampler_lacks_are_done_without() {
    static BARE: SamplerInterface = SamplerInterface { apply: None, ..INTERFACE };
    let own = || Box::into_raw(Box::new(Foreign::default())).cast();
    let chain = llama_sampler_chain_init(ChainParams { no_perf: 0 });
    let (bare, other) =
        (llama_sampler_init(&raw const BARE, own()), llama_sampler_init(&raw const BARE, own()));
    for member in [bare, llama_sampler_init_greedy()] {
        llama_sampler_chain_add(chain, member);
    }
    let mut list = candidates();
    assert_eq!(apply(chain, &mut list).selected, 1);
    // Its state is copied by a clone, which takes the place of the other's.
    llama_sampler_accept(bare, 7);
    llama_sampler_copy(bare, other);
    assert_eq!(data(other.0).accepted, [7]);
    llama_sampler_accept(other, 8);
    assert_eq!((data(bare.0).accepted.len(), data(other.0).accepted.len()), (1, 2));
    llama_sampler_free(other);
    llama_sampler_free(chain);
}

#[test]
fn a_sampler_in_the_memory_of_a_program_is_used_where_it_lies() {
    let own = Box::into_raw(Box::new(Foreign { prefers: 2, ..Foreign::default() }));
    let mut sampler = Sampler { iface: &raw const INTERFACE, ctx: own.cast() };
    let address = SamplerRef(&raw mut sampler);
    let mut list = candidates();
    assert_eq!(apply(address, &mut list).size, 4);
    assert_eq!(list[2].logit, 101.0);
    llama_sampler_free(address);
    let mut bare = Sampler { iface: null(), ctx: null_mut() };
    let bare = SamplerRef(&raw mut bare);
    llama_sampler_accept(bare, 1);
    assert!(last_error().contains("sampler.iface is null"), "{}", last_error());
    assert!(llama_sampler_init(null(), null_mut()).is_null());
}

#[test]
fn freed_samplers_are_recognised_until_many_more_were_freed() {
    let first = llama_sampler_init_greedy();
    llama_sampler_free(first);
    for _ in 0..6 {
        let other = llama_sampler_init_greedy();
        assert_ne!(first, other);
        llama_sampler_free(other);
        assert!(llama_sampler_clone(first).is_null());
        assert!(last_error().contains("freed before"), "{}", last_error());
    }
    for _ in 0..if cfg!(miri) { 8 } else { 4096 } {
        llama_sampler_free(llama_sampler_init_greedy());
    }
}

#[test]
fn every_sampler_is_applied_copied_and_freed() {
    let made = [
        llama_sampler_init_greedy(),
        llama_sampler_init_dist(1),
        llama_sampler_init_softmax(),
        llama_sampler_init_top_k(2),
        llama_sampler_init_top_p(0.5, 1),
        llama_sampler_init_min_p(0.5, 1),
        llama_sampler_init_typical(0.5, 1),
        llama_sampler_init_temp(0.7),
        llama_sampler_init_temp_ext(0.7, 0.1, 1.0),
        llama_sampler_init_xtc(0.5, 0.1, 1, 1),
        llama_sampler_init_top_n_sigma(1.0),
        llama_sampler_init_mirostat(4, 1, 5.0, 0.1, 100),
        llama_sampler_init_mirostat_v2(1, 5.0, 0.1),
        llama_sampler_init_adaptive_p(0.5, 0.9, 1),
    ];
    for sampler in made {
        // Its square root is an instruction that Miri does not know.
        if cfg!(miri) && read_text(llama_sampler_name(sampler)) == "top-n-sigma" {
            llama_sampler_free(sampler);
            continue;
        }
        let copied = llama_sampler_clone(sampler);
        let (mut first, mut second) = (candidates(), candidates());
        let (a, b) = (apply(sampler, &mut first), apply(copied, &mut second));
        assert!((1..=4).contains(&a.size) && a.selected < 4, "{}", read_text(llama_sampler_name(sampler)));
        assert_eq!((a.size, a.selected, &first[..a.size]), (b.size, b.selected, &second[..b.size]));
        llama_sampler_copy(copied, sampler);
        llama_sampler_free(sampler);
        llama_sampler_free(copied);
    }
    let top_k = llama_sampler_init_top_k(2);
    let mut array = [TokenDataArray { data: null_mut(), size: 4, selected: -1, sorted: 0 }];
    llama_sampler_apply(top_k, output(&mut array));
    assert!(last_error().contains("cur_p.data is null"), "{}", last_error());
    let mut list = candidates();
    array[0].data = list.as_mut_ptr().wrapping_byte_add(1);
    llama_sampler_apply(top_k, output(&mut array));
    assert!(last_error().contains("not aligned"), "{}", last_error());
    array[0].size = usize::MAX;
    array[0].data = list.as_mut_ptr();
    llama_sampler_apply(top_k, output(&mut array));
    assert!(last_error().contains("fits in memory"), "{}", last_error());
    llama_sampler_free(top_k);
}

#[test]
fn a_single_candidate_takes_a_random_number_except_with_the_older_layout() {
    let (fresh, used) = (llama_sampler_init_dist(1), llama_sampler_init_dist(1));
    let mut only = [candidates()[0]];
    assert_eq!((apply(used, &mut only).selected, only[0].p), (0, 1.0));
    let draws = |sampler| (0..16).map(|_| apply(sampler, &mut candidates()).selected).collect::<Vec<_>>();
    assert_eq!(draws(used) == draws(fresh), cfg!(feature = "layout-0-3-16"));
    llama_sampler_free(fresh);
    llama_sampler_free(used);
}

#[test]
fn a_seed_that_is_left_open_is_another_one_after_each_reset() {
    const OPEN: u32 = u32::MAX;
    let made = [
        llama_sampler_init_dist(OPEN),
        llama_sampler_init_xtc(0.5, 0.1, 1, OPEN),
        llama_sampler_init_mirostat(4, OPEN, 5.0, 0.1, 100),
        llama_sampler_init_mirostat_v2(OPEN, 5.0, 0.1),
        llama_sampler_init_adaptive_p(0.5, 0.9, OPEN),
    ];
    for sampler in made {
        let seeds: Vec<u32> = (0..4)
            .map(|_| {
                llama_sampler_reset(sampler);
                llama_sampler_get_seed(sampler)
            })
            .collect();
        assert!(seeds.iter().any(|&seed| seed != seeds[0]), "{seeds:?}");
        llama_sampler_free(sampler);
    }
    let (first, second) = (llama_sampler_init_dist(OPEN), llama_sampler_init_dist(7));
    let draws = |sampler| (0..16).map(|_| apply(sampler, &mut candidates()).selected).collect::<Vec<_>>();
    llama_sampler_reset(first);
    let same = llama_sampler_init_dist(llama_sampler_get_seed(first));
    assert_eq!(draws(first), draws(same));
    let before = draws(second);
    llama_sampler_reset(second);
    assert_eq!((draws(second), llama_sampler_get_seed(second)), (before, 7));
    [first, second, same].into_iter().for_each(|sampler| llama_sampler_free(sampler));
}

#[test]
fn draws_are_among_sorted_candidates_with_the_older_layout() {
    let is_sorted = |list: &[TokenData]| list.is_sorted_by(|a, b| a.logit >= b.logit);
    let sampler = llama_sampler_init_dist(1);
    let mut list = candidates();
    let array = apply(sampler, &mut list);
    assert_eq!(
        (is_sorted(&list), array.sorted != 0),
        (cfg!(feature = "layout-0-3-16"), cfg!(feature = "layout-0-3-16"))
    );
    llama_sampler_free(sampler);
    if !cfg!(miri) {
        let (sampler, mut list) = (llama_sampler_init_top_n_sigma(9.0), candidates());
        assert_eq!((apply(sampler, &mut list).size, is_sorted(&list)), (4, cfg!(feature = "layout-0-3-16")));
        llama_sampler_free(sampler);
    }
}

/// Programs leave the other arguments out if one turns a sampler off.
#[test]
fn samplers_that_are_turned_off_need_nothing() {
    let arguments = |multiplier, last_n| DryArguments {
        multiplier,
        base: 1.75,
        allowed_length: 2,
        last_n,
        breakers: nothing(),
        n_breakers: 3,
    };
    for (multiplier, last_n) in [(0.0, 64), (0.8, 0), (0.8, -1)] {
        let sampler = dry(Handle::NULL, &arguments(multiplier, last_n)).unwrap();
        assert_eq!(apply(sampler, &mut candidates()).size, 4);
        llama_sampler_free(sampler);
    }
    assert!(dry(Handle::NULL, &arguments(0.8, 64)).is_err());
    // SAFETY: null is always allowed.
    let null_text = unsafe { Text::new(null()) };
    let sampler = llama_sampler_init_grammar(Handle::NULL, null_text, null_text);
    assert_eq!(apply(sampler, &mut candidates()).size, 4);
    llama_sampler_free(sampler);
}

/// The user data of the log's callback.
const DATA: usize = 0x1230;

thread_local! {
    /// Messages of calls of this thread.
    static MESSAGES: RefCell<Vec<(i32, String)>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn receive(level: i32, text: *const c_char, data: *mut c_void) {
    assert_eq!(data, DATA as *mut c_void);
    MESSAGES.with_borrow_mut(|messages| messages.push((level, read_text(text))));
    // A call that fails within the callback is not logged itself.
    assert_eq!(context::llama_n_ctx(Handle::NULL), 0);
}

#[test]
fn panics_end_at_the_border() {
    let body = || -> Result<i32, Error> { panic!("a fault in {}", "here") };
    assert_eq!(border::call("some_function", -7, body), -7);
    assert_eq!(last_error(), "some_function: the library panicked: a fault in here");
    assert!(!border::is_in_callback());
    border::in_callback(|| assert!(border::is_in_callback()));
    assert!(!border::is_in_callback());
}

#[test]
fn texts_are_cut_to_their_buffers() {
    let (prefix, mut buffer) = (text(c"folder/model"), [1 as c_char; 64]);
    let n = names::llama_split_path(output(&mut buffer), 64, prefix, 1, 4);
    assert_eq!((n, read_text(buffer.as_ptr())), (32, "folder/model-00002-of-00004.gguf"[..].into()));
    let mut short = [1 as c_char; 8];
    assert_eq!(names::llama_split_path(output(&mut short), 8, prefix, 1, 4), 0);
    assert_eq!(read_text(short.as_ptr()), "folder/");
    assert_eq!(names::llama_split_path(output(&mut short[..0]), 0, prefix, 1, 4), 0);
    assert_eq!(names::llama_split_path(nowhere(), 8, prefix, 1, 4), 0);
    let message = ChatMessage { role: c"user".as_ptr(), content: c"Hello".as_ptr() };
    let chat = |buffer: Out<u8>, length| {
        chat::llama_chat_apply_template(text(c"chatml"), input(&[message]), 1, 0, buffer, length)
    };
    let whole = "<|im_start|>user\nHello<|im_end|>\n";
    let n = whole.len() as i32;
    for room in [0, 1, n - 1, n, n + 1, n + 9] {
        let mut buffer = vec![b'x'; room as usize];
        assert_eq!(chat(output(&mut buffer), room), n);
        let written = room.min(n) as usize;
        assert_eq!(&buffer[..written], &whole.as_bytes()[..written]);
        assert!(buffer.get(n as usize).is_none_or(|&end| end == 0));
    }
    assert_eq!(chat(nowhere(), n), n);
    let mut templates = [null(); 2];
    assert_eq!(chat::llama_chat_builtin_templates(output(&mut templates), 2), 55);
    assert_eq!(templates.map(read_text), ["bailing", "bailing-think"]);
    assert_eq!(read_text(ggml::ggml_type_name(1)), "f16");
    assert_eq!(read_text(ggml::ggml_type_name(-1)), "");
    // SAFETY: null is always allowed.
    assert_eq!(names::llama_load_mode_from_str(unsafe { Text::new(null()) }), -1);
}

#[test]
fn handles_are_told_apart_by_threads_that_insert_and_remove() {
    let registry = Registry::new(Kind::BatchExt);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let registry = &registry;
            scope.spawn(move || {
                for round in 0..20 {
                    let handle = registry.insert((thread, round)).unwrap();
                    let held = registry.get(handle).unwrap();
                    registry.remove(handle).unwrap();
                    assert_eq!(*held, (thread, round));
                    assert!(matches!(registry.get(handle), Err(Error::Stale { .. })));
                }
            });
        }
    });
}

#[test]
fn calls_with_nothing_in_hand_return_failure_values() {
    log::llama_log_set(Some(receive), DATA as *mut c_void);
    let (none, no_sampler) = (Handle::NULL, SamplerRef::NULL);
    assert_eq!(context::llama_n_ctx(none), 0);
    assert!(decode::llama_get_logits(none).is_null());
    assert!(decode::llama_get_embeddings_ith(none, -1).is_null());
    memory::llama_memory_clear(none, 1);
    assert!(!memory::llama_memory_seq_rm(none, 0, 0, -1));
    assert_eq!(memory::llama_memory_seq_pos_min(none, 0), -1);
    assert_eq!(state::llama_state_get_data(none, nowhere(), 9), 0);
    assert_eq!(state::llama_state_seq_set_data(none, nothing(), 9, 0), 0);
    assert_eq!(bst::bst_rollback(none, 0, 0, nowhere()), -1);
    assert!(vocab::llama_vocab_get_text(none, 0).is_null());
    assert_eq!(vocab::llama_tokenize(none, nothing(), 3, nowhere(), 0, 1, 1), 0);
    assert_eq!(model::llama_model_desc(none, nowhere(), 9), -1);
    assert!(batch_ext::llama_batch_ext_init(none).is_null());
    assert_eq!(batch_ext::llama_batch_ext_add_token(none, 0, 1), -2);
    assert_eq!(llama_sampler_sample(no_sampler, none, -1), -1);
    log::llama_log_set(None, null_mut());
    // There is always a callback, which a program may call in its own.
    let (mut callback, mut data) = ([None], [null_mut()]);
    log::llama_log_get(output(&mut callback), output(&mut data));
    callback[0].unwrap()(2, c"not shown\n".as_ptr(), data[0]);
    log::llama_log_set(callback[0], data[0]);
    let messages = MESSAGES.take();
    assert_eq!(messages.len(), 15, "{messages:?}");
    assert!(messages.iter().all(|(level, text)| *level == 4 && text.contains(" is null\n")), "{messages:?}");
}
