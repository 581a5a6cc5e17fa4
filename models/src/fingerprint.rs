//! The fingerprint of a model, which binds saved sequences to it. Saved sequences mean nothing to
//! another model.
//!
//! Two files have the same fingerprint if the same tokens give the same logits with both, as far as
//! their metadata, their tensor tables and a sample of each tensor show. The layout of a file does
//! not matter: keys and tensors may come in another order, in one file or in several shards.
//! Neither do names, authors and chat templates.

use crate::gguf::{Gguf, TensorInfo};
use alloc::vec::Vec;
use backstitch_kv::storage::Fingerprint;
use blake3::Hasher;
use core::ops::Range;

/// The context string of the hash. A change of anything that is hashed needs another version here,
/// and changes all fingerprints.
const CONTEXT: &str = "Backstitch fingerprint of a model, version 1";

/// The domain of fingerprints of long contexts.
const LONG_CONTEXT: &str = "Backstitch fingerprint of a model in long contexts, version 1";

/// The bytes of one sample of a tensor. Tensors of at most three samples are hashed whole.
const SAMPLE: usize = 4096;

/// The bytes of a tensor per further sample: 256 samples' worth.
const SPAN: usize = 256 * SAMPLE;

/// 2^64 over the golden ratio. The upper bits of its multiples are spread evenly and have no period
/// that rows of a tensor could share.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Prefixes of keys that do not affect the computation: the model's origin, its chat templates, and
/// how its file was made and split. `general.architecture` is the exception.
const IRRELEVANT: [&str; 5] = ["general.", "tokenizer.chat_template", "quantize.", "split.", "backstitch."];

/// The key, in packed files, of the fingerprint of the file that was packed, in hexadecimal digits.
pub(crate) const ORIGINAL: &str = "backstitch.fingerprint";

/// Return the fingerprint of the model in a file.
///
/// This takes time linear in the metadata and the number of tensors. Of each tensor at most 12 KiB
/// are read, and 4 KiB per MiB. A change that misses all of these bytes is not seen; a changed
/// stretch of 2 MiB always is.
///
/// A packed file has the fingerprint of the file that it was packed from. It states this itself,
/// and its maker vouches for it.
///
/// # Example
/// ```
/// use backstitch_models::{Model, fingerprint, gguf::Gguf};
///
/// let bytes = backstitch_demo::GGUF;
/// let model = Model::from_bytes(bytes)?;
/// assert_eq!(model.fingerprint(), fingerprint(&Gguf::parse(bytes)?));
/// assert!(model.fingerprint().to_string().starts_with("9d2e8788"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fingerprint(gguf: &Gguf<'_>) -> Fingerprint {
    if let Some(original) = original(gguf) {
        return original;
    }
    let mut hasher = Hasher::new_derive_key(CONTEXT);
    let mut bytes = Vec::new();
    hash_metadata(gguf, &mut hasher, &mut bytes);
    hash_tensors(gguf, &mut hasher, &mut bytes);
    // Adapters belong to sequences, not to models: what they evaluate bears the identity of their
    // set besides. The empty section is part of every fingerprint so far.
    section(&mut hasher, *b"adapters", 0);
    Fingerprint(*hasher.finalize().as_bytes())
}

/// Return the fingerprint of a model whose rotation is that of long contexts: its keys mean nothing
/// to contexts of the usual length.
pub(crate) fn of_long_context(model: Fingerprint) -> Fingerprint {
    let mut hasher = Hasher::new_derive_key(LONG_CONTEXT);
    hasher.update(&model.0);
    Fingerprint(*hasher.finalize().as_bytes())
}

/// Return the fingerprint that a packed file states for the file it was packed from.
fn original(gguf: &Gguf<'_>) -> Option<Fingerprint> {
    gguf.tensors().iter().find(|tensor| tensor.is_packed())?;
    Fingerprint::parse(gguf.optional::<&str>(ORIGINAL).ok()??)
}

/// Begin a list of `n` entries.
fn section(hasher: &mut Hasher, name: [u8; 8], n: usize) {
    hasher.update(&name).update(&(n as u64).to_le_bytes());
}

/// Hash keys, types and values, sorted by key. `bytes` is a buffer.
fn hash_metadata(gguf: &Gguf<'_>, hasher: &mut Hasher, bytes: &mut Vec<u8>) {
    let mut entries: Vec<_> = gguf.metadata().iter().filter(|entry| is_relevant(entry.key)).collect();
    entries.sort_unstable_by_key(|entry| entry.key);
    section(hasher, *b"metadata", entries.len());
    for entry in entries {
        bytes.clear();
        put_text(entry.key, bytes);
        bytes.extend(entry.value.ty().id().to_le_bytes());
        entry.value.encode(bytes);
        hasher.update(bytes);
    }
}

fn is_relevant(key: &str) -> bool {
    key == "general.architecture" || !IRRELEVANT.iter().any(|prefix| key.starts_with(prefix))
}

/// Hash names, types, shapes and samples, sorted by name. `bytes` is a buffer.
fn hash_tensors(gguf: &Gguf<'_>, hasher: &mut Hasher, bytes: &mut Vec<u8>) {
    let mut tensors: Vec<&TensorInfo<'_>> = gguf.tensors().iter().collect();
    tensors.sort_unstable_by_key(|tensor| tensor.name());
    section(hasher, *b"tensors\0", tensors.len());
    for tensor in tensors {
        bytes.clear();
        put_text(tensor.name(), bytes);
        bytes.extend(tensor.type_id().to_le_bytes());
        bytes.extend((tensor.shape().len() as u32).to_le_bytes());
        tensor.shape().iter().for_each(|&dim| bytes.extend((dim as u64).to_le_bytes()));
        hasher.update(bytes);
        let data = gguf.tensor_data(tensor);
        for range in samples(data.len()) {
            debug_assert!(range.end <= data.len(), "a sample within the data");
            hasher.update(data.get(range).unwrap_or_default());
        }
    }
}

/// Append a string after its length, so that no two lists of strings give the same bytes.
fn put_text(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Return the ranges of `n` bytes that are hashed: all of a few; of many the first, the middle and
/// the last, and one somewhere in each whole span.
fn samples(n: usize) -> impl Iterator<Item = Range<usize>> {
    let few = n <= 3 * SAMPLE;
    let middle = (n / 2).saturating_sub(SAMPLE / 2);
    let ends = if few { [0..n, n..n, n..n] } else { [0..SAMPLE, middle..middle + SAMPLE, n - SAMPLE..n] };
    let spread = (0..n / SPAN).map(|span| {
        let place = (span as u64 + 1).wrapping_mul(GOLDEN) >> 56;
        let start = span * SPAN + place as usize * SAMPLE;
        start..start + SAMPLE
    });
    ends.into_iter().chain(spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Value, Writer};
    use crate::model::Model;
    use alloc::format;
    use alloc::string::{String, ToString};
    use backstitch_core::DType;

    fn golden(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// A file's parts, to be changed and put together again.
    #[derive(Clone)]
    struct Parts<'a> {
        metadata: Vec<(String, Value<'a>)>,
        tensors: Vec<Tensor>,
    }

    /// Name, shape, type and data.
    type Tensor = (String, Vec<usize>, DType, Vec<u8>);

    impl<'a> Parts<'a> {
        fn of(gguf: &Gguf<'a>) -> Self {
            let metadata =
                gguf.metadata().iter().map(|entry| (entry.key.into(), entry.value.clone())).collect();
            let tensor = |t: &TensorInfo<'a>| {
                (t.name().into(), t.shape().to_vec(), t.dtype(), gguf.tensor_data(t).to_vec())
            };
            Parts { metadata, tensors: gguf.tensors().iter().map(tensor).collect() }
        }

        fn set(&mut self, key: &str, value: Value<'a>) {
            match self.metadata.iter_mut().find(|(known, _)| known == key) {
                Some(entry) => entry.1 = value,
                None => self.metadata.push((key.into(), value)),
            }
        }

        fn file(&self) -> Vec<u8> {
            let mut writer = Writer::new();
            for (key, value) in &self.metadata {
                writer.set(key.as_str(), value.clone()).unwrap();
            }
            for (name, shape, dtype, data) in &self.tensors {
                writer.tensor(name.as_str(), shape, *dtype, data).unwrap();
            }
            writer.to_bytes()
        }

        fn fingerprint(&self) -> Fingerprint {
            fingerprint(&Gguf::parse(&self.file()).unwrap())
        }
    }

    #[test]
    fn the_fingerprint_of_a_golden_model_is_pinned() {
        // State files contain it, so a change makes all of them unreadable.
        let model = Model::from_bytes(&golden("llama")).unwrap();
        let wanted = "414cb3988661b213830681e2d1b7ddf1018ff447ef4048ea674bab46442cdc86";
        assert_eq!(model.fingerprint().to_string(), wanted);
    }

    #[test]
    fn whatever_changes_an_answer_changes_the_fingerprint() {
        let bytes = golden("llama");
        let gguf = Gguf::parse(&bytes).unwrap();
        let mut texts: Vec<&str> = match &gguf.entry("tokenizer.ggml.tokens").unwrap().value {
            Value::Array(array) => array.texts().unwrap().to_vec(),
            other => panic!("{other:?}"),
        };
        *texts.last_mut().unwrap() = "another";
        let parts = Parts::of(&gguf);
        let mut seen = alloc::vec![("nothing", parts.fingerprint())];
        let mut note = |what, changed: Parts<'_>| seen.push((what, changed.fingerprint()));
        let set = |key, value: Value<'static>| {
            let mut parts = parts.clone();
            parts.set(key, value);
            parts
        };
        note("the base of rotations", set("llama.rope.freq_base", Value::F32(1234.5)));
        note("the type of a value", set("llama.block_count", Value::U64(2)));
        note("a key of its own", set("llama.more", Value::Bool(true)));
        note("the architecture", set("general.architecture", "llama2".into()));
        let mut changed = parts.clone();
        changed.set("tokenizer.ggml.tokens", texts.into());
        note("a token", changed);
        let tensors = |change: fn(&mut Vec<Tensor>)| {
            let mut parts = parts.clone();
            change(&mut parts.tensors);
            parts
        };
        note("a weight", tensors(|tensors| tensors[0].3[1] ^= 1));
        note("a tensor's name", tensors(|tensors| tensors[1].0.push('x')));
        note("a tensor too few", tensors(|tensors| drop(tensors.pop())));
        note("a tensor's shape", tensors(|tensors| tensors[0].1.insert(0, 1)));
        for (i, (what, fingerprint)) in seen.iter().enumerate() {
            assert!(seen[..i].iter().all(|(_, other)| other != fingerprint), "{what}");
        }
    }

    #[test]
    fn the_same_weights_in_another_format_are_another_model() {
        let of = |name| fingerprint(&Gguf::parse(&golden(name)).unwrap());
        assert_ne!(of("quant_f16"), of("quant_q4_0"));
    }

    #[test]
    fn layout_origin_and_templates_do_not_matter() {
        let bytes = golden("llama");
        let gguf = Gguf::parse(&bytes).unwrap();
        let mut parts = Parts::of(&gguf);
        parts.metadata.reverse();
        parts.tensors.reverse();
        parts.set("general.name", "by another name".into());
        parts.set("general.alignment", Value::U32(256));
        parts.set("tokenizer.chat_template", "{{ messages }}".into());
        parts.set("tokenizer.chat_template.tool_use", "{{ tools }}".into());
        parts.set("quantize.imatrix.file", "somewhere".into());
        assert_eq!(parts.fingerprint(), fingerprint(&gguf));
    }

    #[test]
    fn a_split_model_is_the_same_model() {
        let bytes = golden("llama");
        let gguf = Gguf::parse(&bytes).unwrap();
        let whole = Parts::of(&gguf);
        let (mut first, mut second) = (whole.clone(), whole.clone());
        second.metadata.clear();
        second.tensors = first.tensors.split_off(whole.tensors.len() / 2);
        for (no, part) in (0u16..).zip([&mut first, &mut second]) {
            part.set("split.no", Value::U16(no));
            part.set("split.count", Value::U16(2));
            part.set("split.tensors.count", Value::I32(whole.tensors.len() as i32));
        }
        let files = [first.file(), second.file()];
        let split = Gguf::parse_shards(&[&files[0], &files[1]]).unwrap();
        assert_eq!(fingerprint(&split), fingerprint(&gguf));
    }

    fn listed(n: usize) -> Vec<Range<usize>> {
        samples(n).collect()
    }

    #[test]
    fn samples_lie_at_both_ends_in_the_middle_and_in_each_mebibyte() {
        assert_eq!(listed(0), [0..0, 0..0, 0..0]);
        assert_eq!(listed(3 * SAMPLE), [0..12288, 12288..12288, 12288..12288]);
        assert_eq!(listed(3 * SAMPLE + 1), [0..4096, 4096..8192, 8193..12289]);
        assert_eq!(listed(SPAN - 1), [0..4096, 522_239..526_335, 1_044_479..1_048_575]);
        let places: Vec<usize> =
            listed(4 * SPAN + 5).iter().skip(3).map(|range| range.start / SAMPLE).collect();
        assert_eq!(places, [158, 256 + 60, 512 + 218, 768 + 120]);
    }

    #[test]
    fn samples_lie_within_and_no_two_mebibytes_are_without_one() {
        let n = 300 * SPAN + 17;
        let mut ranges = listed(n);
        assert!(ranges.iter().all(|range| range.start < range.end && range.end <= n));
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[1].end - pair[0].start <= 2 * SPAN));
        let mut places: Vec<usize> = ranges.iter().map(|range| range.start % SPAN / SAMPLE).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 200, "only {} places within a span", places.len());
    }

    #[test]
    fn a_few_rows_of_a_large_tensor_make_another_model() {
        let file = |changed: Range<usize>| {
            let mut data = alloc::vec![1; 8 * SPAN];
            data[changed].fill(2);
            let mut writer = Writer::new();
            writer.set("general.architecture", "llama").unwrap();
            writer.tensor("large", &[256, 8 * SPAN / 1024], DType::F32, &data).unwrap();
            fingerprint(&Gguf::parse(&writer.to_bytes()).unwrap())
        };
        let (mut seen, wide) = (alloc::vec![file(0..0)], 2 * SPAN);
        // Neither the ends nor the middle.
        for at in [SAMPLE, SPAN + 1, 8 * SPAN - SAMPLE - wide] {
            seen.push(file(at..at + wide));
        }
        for (i, fingerprint) in seen.iter().enumerate() {
            assert!(!seen[..i].contains(fingerprint), "{i}");
        }
    }
}
