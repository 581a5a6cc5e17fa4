//! Keys and tensors of published files that no golden model has. Each file is made of a golden one,
//! and has to compute the bits of a model that is known to be right.

#[allow(dead_code, reason = "the tests of adapters use the rest")]
mod adapted;
mod edited;

use backstitch_models::adapter::Adapter;
use backstitch_models::gguf::{Gguf, Writer};
use backstitch_models::graph::Head;
use backstitch_models::sampler::Settings;
use backstitch_models::session::{GenerateOptions, Session};
use backstitch_models::{Batch, Context, Error, Model, Params, Pos, Token, Wanted};
use backstitch_testing::assert_bits;
use edited::File;

/// Return arbitrary tokens of the model's vocabulary.
fn text(model: &Model) -> Vec<Token> {
    let n_vocab = model.hparams().n_vocab as u32;
    (0..40).map(|i| Token((i * 37 + 11) % n_vocab)).collect()
}

/// Return the logits of all tokens of a text, or their embeddings.
fn outputs(model: &Model) -> Vec<f32> {
    let mut ctx = Context::new(model, Params::default().n_ctx(128)).unwrap();
    let seq = ctx.sequence().unwrap();
    if model.graph().encoder().is_some() {
        ctx.encode(seq, &text(model)[..30]).unwrap();
    }
    let mut batch = Batch::new();
    batch.extend(seq, Pos(0), &text(model), Wanted::All).unwrap();
    if model.graph().head() == Head::Embeddings {
        ctx.encode_batch(&batch).unwrap();
        return (0..batch.len()).flat_map(|i| ctx.embedding(i).unwrap().to_vec()).collect();
    }
    ctx.decode(&batch).unwrap();
    (0..batch.len()).flat_map(|i| ctx.output(i).unwrap().to_vec()).collect()
}

fn golden(name: &str) -> Vec<f32> {
    outputs(&File::golden(name).model().unwrap())
}

/// Return the name of the key that a file was refused for.
fn refused(file: &File) -> String {
    match file.model() {
        Err(Error::Hparam { key, .. } | Error::MissingKey { key }) => key.into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn decoders_that_are_not_causal_are_encoders() {
    let mut llama = File::golden("llama_embed");
    let encoder = outputs(&llama.model().unwrap());
    llama.rename_architecture("llama").set("attention.causal", false);
    let model = llama.model().unwrap();
    assert_eq!(model.graph().head(), Head::Embeddings);
    assert_bits("llama", &outputs(&model), &encoder);
    for name in ["qwen3", "gemma3", "phi2"] {
        let mut file = File::golden(name);
        file.set("attention.causal", true);
        assert_bits(name, &outputs(&file.model().unwrap()), &golden(name));
        file.set("attention.causal", false);
        assert_eq!(file.model().unwrap().graph().head(), Head::Embeddings, "{name}");
    }
}

#[test]
fn recurrences_and_other_one_way_layers_are_refused_where_tokens_see_all_of_their_text() {
    for name in ["lfm2", "mamba", "falcon_h1", "gemma4", "qwen35", "t5"] {
        let mut file = File::golden(name);
        let key = refused(file.set("attention.causal", false));
        assert!(key.ends_with(".attention.causal"), "{name}: {key}");
    }
}

/// Return the rows of a matrix with the halves of each head where neighbours were: what one
/// rotation turns is what the other turned.
fn halved(rows: &mut [f32], n_row: usize, d_head: usize, n_rot: usize) {
    let old = rows.to_vec();
    let n_rows = old.len() / n_row;
    for row in 0..n_rows {
        let (head, i) = (row / d_head, row % d_head);
        let from = match i {
            i if i >= n_rot => i,
            i if i < n_rot / 2 => 2 * i,
            i => 2 * (i - n_rot / 2) + 1,
        };
        let from = (head * d_head + from) * n_row;
        rows[row * n_row..][..n_row].copy_from_slice(&old[from..][..n_row]);
    }
}

#[test]
fn glm4_with_axes_rotates_halves_of_heads() {
    let mut file = File::golden("glm4");
    let model = file.model().unwrap();
    let h = model.hparams();
    let layer = h.layers().next().unwrap();
    let (n_embd, d_k, n_rot) = (h.n_embd, layer.d_k, layer.n_rot);
    let half = n_rot as u32 / 2;
    assert!(half > 2, "{half}");
    for il in 0..h.n_layer {
        for name in ["attn_q", "attn_k"] {
            let name = format!("blk.{il}.{name}");
            file.change(&format!("{name}.weight"), |x| halved(x, n_embd, d_k, n_rot));
            if !file.names(&format!("{name}.bias")).is_empty() {
                file.change(&format!("{name}.bias"), |x| halved(x, 1, d_k, n_rot));
            }
        }
    }
    let neighbours = outputs(&file.model().unwrap());
    file.set("rope.dimension_sections", vec![1, half - 1, 0, 0]);
    let halves = outputs(&file.model().unwrap());
    let expected = golden("glm4");
    let far = |x: &[f32]| x.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far(&halves) < 1e-4 && far(&neighbours) > 1e-2, "{} {}", far(&halves), far(&neighbours));
    // The fourth coordinate of text is 0.
    file.set("rope.dimension_sections", vec![1, 1, 0, half - 2]);
    assert!(far(&outputs(&file.model().unwrap())) > 1e-2);
}

#[test]
fn layers_of_umt5_have_biases_of_their_own() {
    for name in ["t5", "t5encoder"] {
        let mut file = File::golden(name);
        let tables = file.names("attn_rel_b.weight");
        // The first layers' tables, in all other layers too, change nothing.
        for table in &tables {
            let (shape, data) = file.tensor(table);
            for il in 1..file.names("attn_norm.weight").len() {
                let other = table.replace(".0.", &format!(".{il}."));
                let queries = other.replace("attn_rel_b", "attn_q");
                if !file.names(&queries).is_empty() {
                    file.put(&other, &shape, data.clone());
                }
            }
        }
        assert!(file.names("attn_rel_b.weight").len() > tables.len(), "{name}");
        assert_bits(name, &outputs(&file.model().unwrap()), &golden(name));
        for table in file.names("attn_rel_b.weight").into_iter().filter(|table| !tables.contains(table)) {
            file.change(&table, |x| x.iter_mut().for_each(|x| *x = 1.0 - *x));
            assert!(outputs(&file.model().unwrap()) != golden(name), "{table}");
            file.change(&table, |x| x.iter_mut().for_each(|x| *x = 1.0 - *x));
        }
    }
}

#[test]
fn modern_bert_has_the_gate_that_the_file_names() {
    let with = |name: &'static str| {
        let mut file = File::golden("modern_bert");
        file.set("hidden_activation", name).model().map(|model| outputs(&model))
    };
    let usual = golden("modern_bert");
    assert_bits("gelu", &with("gelu").unwrap(), &usual);
    let silu = with("silu").unwrap();
    assert!(silu != usual);
    assert_bits("swish", &with("swish").unwrap(), &silu);
    assert!(matches!(with("relu"), Err(Error::Hparam { .. })));
}

#[test]
fn a_growth_of_queries_by_0_is_none() {
    let mut file = File::golden("mistral3");
    let none = outputs(&file.unset("attention.temperature_scale").model().unwrap());
    assert_bits("0", &outputs(&file.set("attention.temperature_scale", 0.0f32).model().unwrap()), &none);
    assert!(refused(file.set("attention.temperature_scale", -0.1f32)).ends_with("temperature_scale"));
}

#[test]
fn widths_of_networks_that_no_layer_has_need_not_be_stated() {
    for name in ["qwen35moe", "qwen3moe"] {
        let mut file = File::golden(name);
        file.unset("feed_forward_length");
        assert_bits(name, &outputs(&file.model().unwrap()), &golden(name));
    }
    assert!(refused(File::golden("qwen3").unset("feed_forward_length")).ends_with("feed_forward_length"));
}

#[test]
fn experts_have_the_width_of_their_matrices_where_the_file_states_none() {
    for name in ["qwen2moe", "qwen3moe", "mellum"] {
        let mut file = File::golden(name);
        file.unset("expert_feed_forward_length");
        assert_bits(name, &outputs(&file.model().unwrap()), &golden(name));
    }
}

/// Sentence Transformers' dense modules stand behind pooling, which llama.cpp's files keep.
#[test]
fn dense_modules_multiply_the_embeddings() {
    let mut file = File::golden("gemma_embedding");
    let model = file.model().unwrap();
    let (plain, n) = (outputs(&model), model.hparams().n_embd);
    // Both matrices double and turn the order around: each element comes back, four times as large.
    let turned: Vec<f32> = (0..n * n).map(|i| if i / n + i % n == n - 1 { 2.0 } else { 0.0 }).collect();
    file.put("dense_2.weight", &[n, n], turned.clone()).put("dense_3.weight", &[n, n], turned);
    let quadrupled: Vec<f32> = plain.iter().map(|x| 4.0 * x).collect();
    assert_bits("turned twice", &outputs(&file.model().unwrap()), &quadrupled);
    // The width between them is free.
    let halves: Vec<f32> = (0..2 * n * n).map(|i| if i / n % n == i % n { 0.5 } else { 0.0 }).collect();
    let sums: Vec<f32> = (0..2 * n * n).map(|i| if i % n == i / (2 * n) { 1.0 } else { 0.0 }).collect();
    file.put("dense_2.weight", &[2 * n, n], halves).put("dense_3.weight", &[n, 2 * n], sums);
    assert_bits("halves", &outputs(&file.model().unwrap()), &plain);
}

/// Return the tensor for which a file was refused.
fn unused(file: &File) -> String {
    match file.model() {
        Err(Error::UnusedTensor { tensor }) => tensor.into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tensors_that_change_results_and_are_not_used_are_refused() {
    let mut file = File::golden("gemma_embedding");
    let n = file.model().unwrap().hparams().n_embd;
    assert_eq!(unused(file.put("dense_2.weight", &[n, n], vec![0.0; n * n])), "dense_2.weight");
    let mut file = File::golden("lfm2");
    let n = file.model().unwrap().hparams().n_embd;
    assert_eq!(unused(file.put("dense_2.weight", &[8, n], vec![0.0; 8 * n])), "dense_2.weight");
    let mut file = File::golden("qwen3moe");
    let name = "blk.0.ffn_up_exps.scale";
    let n_expert = file.tensor("blk.0.ffn_up_exps.weight").0[0];
    assert_eq!(unused(file.put(name, &[n_expert], vec![1.0; n_expert])), name);
    let mut file = File::golden("llama");
    assert_eq!(unused(file.put("blk.0.attn_q.scale", &[2], vec![1.0; 2])), "blk.0.attn_q.scale");
}

#[test]
fn matrices_have_scales_of_their_own() {
    for name in ["bitnet", "llama", "falcon_h1", "phi3"] {
        let mut file = File::golden(name);
        let matrices = [".attn_q", ".attn_qkv", ".attn_output", ".ffn_up", ".ffn_down", ".ssm_in"];
        let named = matrices.iter().flat_map(|end| file.names(&format!("{end}.weight")));
        for name in named.collect::<Vec<_>>() {
            let scale = name.replace(".weight", ".scale");
            file.change(&name, |x| x.iter_mut().for_each(|x| *x *= 4.0)).put(&scale, &[1], vec![0.25]);
        }
        assert!(!file.names(".scale").is_empty(), "{name}");
        let (scaled, plain) = (outputs(&file.model().unwrap()), golden(name));
        // Sums in another order, where a product is added to the stream.
        let far = scaled.iter().zip(&plain).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(scaled.len() == plain.len() && far < 1e-4, "{name}: {far}");
        let first = file.names(".scale").remove(0);
        file.change(&first, |x| x[0] = 0.5);
        assert!(outputs(&file.model().unwrap()) != scaled, "{name}");
    }
}

#[test]
fn layers_of_granite_rotate_where_the_file_says_so() {
    let with = |pattern: Vec<u32>| {
        let mut file = File::golden("granite_swa");
        file.set("attention.rope_pattern", pattern).model().map(|model| outputs(&model))
    };
    let n_layer = File::golden("granite_swa").model().unwrap().hparams().n_layer;
    assert_bits("all", &with(vec![1; n_layer]).unwrap(), &golden("granite_swa"));
    let mut none = File::golden("granite_swa");
    let none = outputs(&none.set("rope.scaling.finetuned", false).model().unwrap());
    assert_bits("none", &with(vec![0; n_layer]).unwrap(), &none);
    let mut some = vec![1; n_layer];
    some[0] = 0;
    let some = with(some).unwrap();
    assert!(some != none && some != golden("granite_swa"));
    assert!(matches!(with(vec![1; n_layer + 1]), Err(Error::Hparam { .. })));
}

#[test]
fn shared_experts_have_gate_and_up_in_one_tensor() {
    let mut file = File::golden("ernie4_5_moe");
    let gates = file.names("ffn_gate_shexp.weight");
    assert!(!gates.is_empty());
    for name in gates {
        let up = name.replace("gate", "up");
        let ((_, gate), (shape, data)) = (file.take(&name), file.tensor(&up));
        file.put(&up, &[2 * shape[0], shape[1]], [gate, data].concat());
    }
    assert_bits("fused", &outputs(&file.model().unwrap()), &golden("ernie4_5_moe"));
}

/// For each head of keys its query and key, and the values and output gates of those that use them.
#[test]
fn first_files_of_qwen3next_have_one_matrix_for_the_recurrence() {
    let mut file = File::golden("qwen3next");
    let ssm = file.model().unwrap().hparams().ssm.unwrap();
    let gates = file.names("attn_gate.weight");
    assert!(!gates.is_empty());
    for name in gates {
        let (shape, gate) = file.take(&name);
        let (n_gate, width) = (shape[0], shape[1]);
        let (shape, qkv) = file.take(&name.replace("attn_gate", "attn_qkv"));
        let (n_k, n_v) = (ssm.d_state * width, ssm.d_inner / ssm.n_group * width);
        let (q, kv) = qkv.split_at(n_k * ssm.n_group);
        let (k, v) = kv.split_at(n_k * ssm.n_group);
        let heads = q.chunks(n_k).zip(k.chunks(n_k)).zip(v.chunks(n_v).zip(gate.chunks(n_v)));
        let mixed = heads.flat_map(|((q, k), (v, z))| [q, k, v, z].concat()).collect();
        file.put(&name.replace("attn_gate", "ssm_in"), &[shape[0] + n_gate, width], mixed);
    }
    assert_bits("mixed", &outputs(&file.model().unwrap()), &golden("qwen3next"));
}

/// Layers of Nemotron 3 Puzzle have experts of different widths, and use different numbers of them.
#[test]
fn experts_have_the_numbers_of_their_layer() {
    let mut file = File::golden("nemotron_h_moe");
    let model = file.model().unwrap();
    let (h, usual) = (model.hparams(), golden("nemotron_h_moe"));
    let experts = h.experts.unwrap();
    let ups = file.names("ffn_up_exps.weight");
    let is_sparse = |il: usize| ups.contains(&format!("blk.{il}.ffn_up_exps.weight"));
    let list = |n: usize| -> Vec<u32> {
        (0..h.n_layer).map(|il| if is_sparse(il) { n as u32 } else { 0 }).collect()
    };
    let (mut used, mut widths) = (list(experts.n_used), list(experts.n_ff));
    file.set("expert_used_count", used.clone()).set("expert_feed_forward_length", widths.clone());
    assert_bits("lists", &outputs(&file.model().unwrap()), &usual);
    // Halves of the first layer's experts are the whole experts without the other halves' share.
    let half = experts.n_ff / 2;
    let first = (0..h.n_layer).find(|&il| is_sparse(il)).unwrap();
    let [up, down] = ["up", "down"].map(|name| format!("blk.{first}.ffn_{name}_exps.weight"));
    let width = file.tensor(&up).0[2];
    let is_first = |row: usize| row % experts.n_ff < half;
    file.change(&up, |x| {
        let rows = x.chunks_mut(width).enumerate().filter(|(row, _)| !is_first(*row));
        rows.for_each(|(_, row)| row.fill(0.0));
    });
    let whole = outputs(&file.model().unwrap());
    let (shape, data) = file.tensor(&up);
    let rows = data.chunks(width).enumerate().filter(|(row, _)| is_first(*row));
    file.put(&up, &[shape[0], half, width], rows.flat_map(|(_, row)| row.to_vec()).collect());
    let (shape, data) = file.tensor(&down);
    let columns = data.into_iter().enumerate().filter(|(i, _)| is_first(*i)).map(|(_, x)| x);
    file.put(&down, &[shape[0], shape[1], half], columns.collect());
    widths[first] = half as u32;
    let halves = outputs(&file.set("expert_feed_forward_length", widths).model().unwrap());
    let far = halves.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-4 && whole != usual, "{far}");
    used[first] = 1;
    assert!(outputs(&file.set("expert_used_count", used.clone()).model().unwrap()) != halves);
    used[first] = experts.n_expert as u32 + 1;
    assert!(matches!(file.set("expert_used_count", used).model(), Err(Error::OfAll { .. })));
}

#[test]
fn adapters_of_matrices_with_scales_are_refused() {
    let mut file = File::golden("bitnet");
    let model = file.put("blk.0.attn_q.scale", &[1], vec![0.5]).model().unwrap();
    let change = |name: &'static str| adapted::file(&model, 1, 3, move |found| found == name);
    assert!(Adapter::from_bytes(&change("blk.0.attn_k.weight"), &model).is_ok());
    let error = Adapter::from_bytes(&change("blk.0.attn_q.weight"), &model).unwrap_err().to_string();
    assert!(error.contains("\"blk.0.attn_q.weight\", whose products the model scales"), "{error}");
}

/// llama.cpp loads such a pair of jina-embeddings-v3's adapters, and does not use it.
#[test]
fn pairs_for_tables_that_all_tokens_read_alike_are_left_out() {
    let model = File::golden("jina_bert_v3").model().unwrap();
    let file = adapted::file(&model, 1, 3, |name| name.contains("ffn_up"));
    let gguf = Gguf::parse(&file).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for info in gguf.tensors() {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    let names = ["token_types.weight.lora_a", "token_types.weight.lora_b"];
    let zeros = [0; 4 * 64 * 3];
    for name in names {
        writer.tensor(name, &[64, 3], backstitch_core::DType::F32, &zeros).unwrap();
    }
    let (without, with) =
        (Adapter::from_bytes(&file, &model), Adapter::from_bytes(&writer.to_bytes(), &model));
    let (without, with) = (without.unwrap(), with.unwrap());
    assert_eq!(with.left_out(), names);
    assert_eq!(with.n_bytes(), without.n_bytes());
}

#[test]
fn suppressed_tokens_are_never_drawn() {
    let mut file = File::golden("llama");
    let draw = |file: &File| {
        let model = file.model().unwrap();
        let ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
        let mut session = Session::new(ctx, &Settings::default().temp(0.0)).unwrap();
        session.feed(&text(&model)[..8]).unwrap();
        let mut generation = session.generate(GenerateOptions::default().limit(1).ignore_eos());
        while let Some(chunk) = generation.next_chunk() {
            chunk.unwrap();
        }
        drop(generation);
        session.tokens()[8]
    };
    let usual = draw(&file);
    let list = vec![-1, usual.0 as i32, i32::MAX];
    file.set_whole("tokenizer.ggml.suppress_tokens", list);
    assert_eq!(file.model().unwrap().vocab().suppressed(), [usual.0]);
    assert_ne!(draw(&file), usual);
}
