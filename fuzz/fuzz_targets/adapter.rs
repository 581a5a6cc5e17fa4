//! Files of adapters and control vectors with changed bytes, read for the models that they were
//! made for. The result is a typed error, or adapters that sequences can be evaluated with.
//!
//! The first byte chooses the file, the second the number of edits; each edit takes eight bytes.
#![no_main]

use backstitch_fuzz::edit::Edit;
use backstitch_kv::Token;
use backstitch_models::adapter::{Adapter, AdapterSet, ControlVector};
use backstitch_models::{Context, Error, Model, Params};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

/// Models, and files of adapters and of control vectors for each.
const FILES: [[&[u8]; 3]; 3] = [
    [
        include_bytes!("../../goldens/models/llama.gguf"),
        include_bytes!("../../goldens/lora/llama.lora.gguf"),
        include_bytes!("../../goldens/lora/llama.control.gguf"),
    ],
    [
        include_bytes!("../../goldens/models/qwen3moe.gguf"),
        include_bytes!("../../goldens/lora/qwen3moe.lora.gguf"),
        include_bytes!("../../goldens/lora/qwen3moe.control.gguf"),
    ],
    [
        include_bytes!("../../goldens/models/phi3.gguf"),
        include_bytes!("../../goldens/lora/phi3.second.gguf"),
        include_bytes!("../../goldens/lora/phi3.control.gguf"),
    ],
];

thread_local! {
    static MODELS: RefCell<Vec<Model>> = RefCell::new(
        FILES.iter().map(|[model, ..]| Model::from_bytes(model).expect("a golden is a model")).collect(),
    );
}

fuzz_target!(|input: &[u8]| {
    let Some(([which, n], rest)) = input.split_first_chunk::<2>() else { return };
    let (number, is_control) = (usize::from(which / 2) % FILES.len(), which % 2 == 1);
    let mut bytes = FILES[number][1 + usize::from(is_control)].to_vec();
    let edits = rest.as_chunks().0.iter().take(usize::from(n % 16)).map(Edit::read);
    edits.for_each(|edit| edit.bytes(&mut bytes));
    MODELS.with_borrow(|models| {
        let model = &models[number];
        match set(model, &bytes, is_control) {
            Ok(set) => evaluate(model, &set),
            Err(error) => drop(error.to_string()),
        }
    });
});

/// Read a file as one of its kind.
fn set(model: &Model, bytes: &[u8], is_control: bool) -> Result<AdapterSet, Error> {
    match is_control {
        true => AdapterSet::default().with_control(&ControlVector::from_bytes(bytes, model)?, 0.5, None),
        false => AdapterSet::default().with(&Adapter::from_bytes(bytes, model)?, 0.5),
    }
}

/// Evaluate a few tokens with a set. Weights may be of any size, so logits may be infinite.
fn evaluate(model: &Model, set: &AdapterSet) {
    let params = Params::default().n_ctx(32).n_threads(1);
    let mut ctx = Context::new(model, params).expect("a small context fits");
    let seq = ctx.sequence_with(set).expect("the set is of this model");
    match ctx.append(seq, &[Token(5), Token(6), Token(7)]) {
        // Values of an adapter can be as large as floats are.
        Ok(_) | Err(Error::NotFinite(_)) => {}
        Err(error) => panic!("there is room for three tokens: {error}"),
    }
    let _ = set.to_string();
}
