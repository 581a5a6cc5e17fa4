//! Adapters: LoRA files and control vectors, with which all sequences of a context are evaluated.
//!
//! llama.h lets a program change adapters at any time; what was evaluated before stays as it was.
//! Here the cells of a sequence belong to the adapters that made them, so a change is refused as
//! long as a sequence holds tokens.

use crate::border::{In, Out, Text, exports, write_text};
use crate::context::{Live, context};
use crate::error::Error;
use crate::handles::{Handle, Kind, Registry};
use crate::model::{Metadata, model};
use backstitch_core::DType;
use backstitch_models::adapter::{Adapter, AdapterSet, ControlVector};
use backstitch_models::gguf::{Access, Source, Writer};
use backstitch_models::{Model, SeqId};
use std::ffi::{c_char, c_void};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// An adapter that a handle stands for.
pub struct AdapterEntry {
    adapter: Adapter,
    metadata: Metadata,
}

static ADAPTERS: Registry<AdapterEntry> = Registry::new(Kind::Adapter);

/// The adapters of a context. They stay in use when their handles are freed.
#[derive(Clone, Default)]
pub struct Chosen {
    loras: Vec<(Handle, Arc<AdapterEntry>, f32)>,
    control: Option<(ControlVector, RangeInclusive<usize>)>,
}

impl Chosen {
    /// Use an adapter at this scale, in the place where it was if it is in use.
    fn with(mut self, handle: Handle, scale: f32) -> Result<Self, Error> {
        let entry = ADAPTERS.get(handle)?;
        match self.loras.iter_mut().find(|(of, ..)| *of == handle) {
            Some((.., of)) => *of = scale,
            None => self.loras.push((handle, entry, scale)),
        }
        Ok(self)
    }

    /// Use an adapter no longer.
    ///
    /// # Errors
    /// [`Error::Absent`] if it is not in use.
    fn without(mut self, handle: Handle) -> Result<Self, Error> {
        let n_before = self.loras.len();
        self.loras.retain(|(of, ..)| *of != handle);
        match self.loras.len() < n_before {
            true => Ok(self),
            false => Err(Error::Absent { what: "removing an adapter that is not in use" }),
        }
    }

    fn set(&self) -> Result<AdapterSet, Error> {
        let mut set = AdapterSet::default();
        for (_, entry, scale) in &self.loras {
            set = set.with(&entry.adapter, *scale)?;
        }
        if let Some((vector, layers)) = &self.control {
            set = set.with_control(vector, 1.0, Some(layers.clone()))?;
        }
        Ok(set)
    }

    /// Evaluate all sequences of the context with these adapters from now on. Either every sequence
    /// takes them, or none does.
    fn apply(self, live: &mut Live) -> Result<(), Error> {
        let set = self.set()?;
        let context = live.change()?;
        let mut seqs: Vec<SeqId> = (0..context.params().n_seq_max).map(SeqId).collect();
        seqs.retain(|&seq| context.adapters(seq).is_ok());
        // Those that hold tokens come first: if one of them refuses, nothing has changed.
        seqs.sort_by_key(|&seq| context.seq_range(seq).is_none());
        for seq in seqs {
            context.set_adapters(seq, &set)?;
        }
        context.set_default_adapters(&set)?;
        live.adapters = self;
        Ok(())
    }
}

/// Return the control vector whose directions, from layer 1 on, lie one behind the other.
fn control_vector(directions: &[f32], model: &Model) -> Result<ControlVector, Error> {
    // Read like a file, so that it is checked like one.
    let (mut file, n_embd) = (Writer::new(), model.hparams().n_embd);
    file.set("general.architecture", "controlvector")?;
    let bytes = |direction: &[f32]| direction.iter().flat_map(|x| x.to_le_bytes()).collect();
    let n_layer = model.hparams().n_layer;
    let tensors: Vec<(String, Vec<u8>)> = (1..n_layer)
        .zip(directions.chunks_exact(n_embd.max(1)))
        .map(|(layer, direction)| (format!("direction.{layer}"), bytes(direction)))
        .collect();
    for (name, data) in &tensors {
        file.tensor(name, &[n_embd], DType::F32, data)?;
    }
    Ok(ControlVector::from_bytes(&file.to_bytes(), model)?)
}

exports! {
    /// Load an adapter of a model, or return null.
    fn llama_adapter_lora_init(handle: Handle, path: Text) -> Handle = [Handle::NULL] {
        let (model, path) = (model(handle)?, path.path("path_lora")?);
        let adapter = Adapter::open(&path, model.whole()?)?;
        let source = Source::open(&path, Access::Map)?;
        let metadata = Metadata::read(&source.gguf()?);
        ADAPTERS.insert(AdapterEntry { adapter, metadata })
    }

    /// Load an adapter from an open `FILE`, which is not done: returns null.
    fn llama_adapter_lora_init_from_file_ptr(handle: Handle, file: *mut c_void) -> Handle = [Handle::NULL] {
        let _ = (model(handle)?, file);
        Err(Error::Absent { what: "loading from a FILE; pass its path" })
    }

    /// Free an adapter. Contexts go on with it until they are told otherwise.
    fn llama_adapter_lora_free(adapter: Handle) {
        if adapter.is_null() {
            return Ok(());
        }
        ADAPTERS.remove(adapter).map(drop)
    }

    /// Use these adapters and no others from now on, with a scale each. Returns -1 if sequences
    /// hold tokens that other adapters made.
    fn llama_set_adapters_lora(handle: Handle, adapters: In<Handle>, n: usize, scales: In<f32>) -> i32 = [-1] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let mut chosen = Chosen { loras: Vec::new(), control: live.adapters.control.clone() };
        for (&adapter, &scale) in adapters.slice(n, "adapters")?.iter().zip(scales.slice(n, "scales")?) {
            chosen = chosen.with(adapter, scale)?;
        }
        chosen.apply(&mut live).map(|()| 0)
    }

    /// Use an adapter besides the others from now on, or change its scale.
    fn llama_set_adapter_lora(handle: Handle, adapter: Handle, scale: f32) -> i32 = [-1] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        live.adapters.clone().with(adapter, scale)?.apply(&mut live).map(|()| 0)
    }

    /// Use an adapter no longer; -1 if it was not in use.
    fn llama_rm_adapter_lora(handle: Handle, adapter: Handle) -> i32 = [-1] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        live.adapters.clone().without(adapter)?.apply(&mut live).map(|()| 0)
    }

    /// Use no adapter any longer. A control vector stays.
    fn llama_clear_adapter_lora(handle: Handle) {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        Chosen { loras: Vec::new(), control: live.adapters.control.clone() }.apply(&mut live)
    }

    /// Add a control vector to layers from `il_start` to `il_end`, both included, from now on:
    /// `len` numbers, `n_embd` for each layer from 1 on. Null takes it back.
    fn llama_set_adapter_cvec(
        handle: Handle, data: In<f32>, len: usize, n_embd: i32, il_start: i32, il_end: i32,
    ) -> i32 = [-1] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let mut chosen = Chosen { control: None, ..live.adapters.clone() };
        if !data.is_null() {
            let model = entry.model.whole()?;
            if usize::try_from(n_embd) != Ok(model.hparams().n_embd) {
                let wanted = "that of the model (llama_model_n_embd)";
                return Err(Error::Range { what: "n_embd", found: n_embd.into(), wanted });
            }
            let vector = control_vector(data.slice(len, "data")?, model)?;
            let layers = usize::try_from(il_start.max(1)).ok().zip(usize::try_from(il_end).ok());
            // A range without layers adds nothing.
            chosen.control = layers.filter(|(first, last)| first <= last).map(|(first, last)| (vector, first..=last));
        }
        chosen.apply(&mut live).map(|()| 0)
    }

    /// Add a control vector, as [`llama_set_adapter_cvec`].
    fn llama_apply_adapter_cvec(
        handle: Handle, data: In<f32>, len: usize, n_embd: i32, il_start: i32, il_end: i32,
    ) -> i32 = [-1] {
        Ok(llama_set_adapter_cvec(handle, data, len, n_embd, il_start, il_end))
    }

    /// Write the value of a key of an adapter's metadata; -1 if there is none.
    fn llama_adapter_meta_val_str(adapter: Handle, key: Text, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        let (entry, key) = (ADAPTERS.get(adapter)?, key.str("key")?);
        write_entry(entry.metadata.value(key), buf, size)
    }

    /// Return the number of entries of an adapter's metadata that are no lists.
    fn llama_adapter_meta_count(adapter: Handle) -> i32 = [0] {
        Ok(ADAPTERS.get(adapter)?.metadata.len() as i32)
    }

    /// Write a key of an adapter's metadata; -1 if there are not so many.
    fn llama_adapter_meta_key_by_index(adapter: Handle, i: i32, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        let entry = ADAPTERS.get(adapter)?;
        write_entry(entry.metadata.entry(i).map(|(key, _)| key), buf, size)
    }

    /// Write a value of an adapter's metadata; -1 if there are not so many.
    fn llama_adapter_meta_val_str_by_index(adapter: Handle, i: i32, buf: Out<c_char>, size: usize)
        -> i32 = [-1]
    {
        let entry = ADAPTERS.get(adapter)?;
        write_entry(entry.metadata.entry(i).map(|(_, value)| value), buf, size)
    }

    /// Return the number of tokens that start an adapter: none, because such adapters are not
    /// loaded.
    fn llama_adapter_get_alora_n_invocation_tokens(adapter: Handle) -> u64 = [0] {
        ADAPTERS.get(adapter).map(|_| 0)
    }

    /// Return the tokens that start an adapter: null, because such adapters are not loaded.
    fn llama_adapter_get_alora_invocation_tokens(adapter: Handle) -> *const i32 = [std::ptr::null()] {
        ADAPTERS.get(adapter).map(|_| std::ptr::null())
    }
}

/// Write a text, or nothing and return -1.
fn write_entry(text: Option<&str>, buf: Out<c_char>, size: usize) -> Result<i32, Error> {
    match text {
        Some(text) => write_text(text.as_bytes(), buf, size),
        None => write_text(b"", buf, size).map(|_| -1),
    }
}
