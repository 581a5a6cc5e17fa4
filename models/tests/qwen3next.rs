//! Qwen 3 Next is Qwen 3.5 with another layout. The tiny Qwen 3.5 file, with its heads in another
//! order, its gates in one matrix, and its networks as the shared expert, is the same model under
//! that name.

use backstitch_core::DType;
use backstitch_models::{
    Context, Model, Params, Token,
    gguf::{Gguf, Writer},
};
use backstitch_testing::Random;

const N_EMBD: usize = 64;
const N_FF: usize = 72;
/// The number of value heads; there are half as many key heads.
const N_HEAD: usize = 4;
/// The head of Qwen 3.5, in which every second one has the same keys, at each index.
const ORDER: [usize; N_HEAD] = [0, 2, 1, 3];

/// Return `x`, four heads one after the other, in the new order.
fn reordered(x: &[f32]) -> Vec<f32> {
    let head = x.len() / N_HEAD;
    ORDER.iter().flat_map(|&i| &x[i * head..(i + 1) * head]).copied().collect()
}

struct File {
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl File {
    fn read(gguf: &Gguf<'_>) -> Self {
        let decode = |info: &backstitch_models::gguf::TensorInfo<'_>| {
            let mut x = vec![0.0; info.n_elements()];
            info.dtype().decode(gguf.tensor_data(info), &mut x).unwrap();
            (info.name().to_owned(), info.shape().to_vec(), x)
        };
        File { tensors: gguf.tensors().iter().map(decode).collect() }
    }

    fn change(&mut self, name: &str, f: impl Fn(&mut Vec<f32>)) {
        if let Some((.., x)) = self.tensors.iter_mut().find(|(found, ..)| found == name) {
            f(x);
        }
    }

    fn take(&mut self, name: &str) -> Vec<f32> {
        let at = self.tensors.iter().position(|(found, ..)| found == name).unwrap();
        self.tensors.remove(at).2
    }

    fn add(&mut self, name: String, shape: &[usize], x: Vec<f32>) {
        assert_eq!(shape.iter().product::<usize>(), x.len());
        self.tensors.push((name, shape.to_vec(), x));
    }

    /// Convert a recurrent layer: its heads in the new order, and both gates of the heads with the
    /// same keys together.
    fn turn_recurrence(&mut self, il: usize) {
        let name = |suffix: &str| format!("blk.{il}.{suffix}");
        // Queries and keys come before the values.
        self.change(&name("attn_qkv.weight"), |x| {
            let values = reordered(&x[N_EMBD * N_EMBD..]);
            x.truncate(N_EMBD * N_EMBD);
            x.extend(values);
        });
        self.change(&name("ssm_conv1d.weight"), |x| {
            let values = reordered(&x[N_EMBD * 4..]);
            x.truncate(N_EMBD * 4);
            x.extend(values);
        });
        for suffix in ["attn_gate.weight", "ssm_a", "ssm_dt.bias"] {
            self.change(&name(suffix), |x| *x = reordered(x));
        }
        self.change(&name("ssm_out.weight"), |x| *x = x.chunks(N_EMBD).flat_map(reordered).collect());
        let [beta, alpha] =
            ["ssm_beta.weight", "ssm_alpha.weight"].map(|suffix| reordered(&self.take(&name(suffix))));
        let pairs = beta.chunks(2 * N_EMBD).zip(alpha.chunks(2 * N_EMBD));
        let both = pairs.flat_map(|(beta, alpha)| [beta, alpha].concat()).collect();
        self.add(name("ssm_ba.weight"), &[2 * N_HEAD, N_EMBD], both);
    }

    /// Convert a network into the shared expert, half of which passes, beside experts that add
    /// nothing.
    fn turn_network(&mut self, il: usize) {
        let name = |suffix: &str| format!("blk.{il}.{suffix}.weight");
        let mut random = Random::new(il as u64);
        let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|suffix| self.take(&name(suffix)));
        self.add(name("ffn_gate_shexp"), &[N_FF, N_EMBD], gate);
        self.add(name("ffn_up_shexp"), &[N_FF, N_EMBD], up);
        let twice = down.iter().map(|x| 2.0 * x).collect();
        self.add(name("ffn_down_shexp"), &[N_EMBD, N_FF], twice);
        self.add(name("ffn_gate_inp_shexp"), &[N_EMBD], vec![0.0; N_EMBD]);
        self.add(name("ffn_gate_inp"), &[3, N_EMBD], random.floats(3 * N_EMBD));
        self.add(name("ffn_gate_exps"), &[3, 8, N_EMBD], random.floats(24 * N_EMBD));
        self.add(name("ffn_up_exps"), &[3, 8, N_EMBD], random.floats(24 * N_EMBD));
        self.add(name("ffn_down_exps"), &[3, N_EMBD, 8], vec![0.0; 24 * N_EMBD]);
    }

    fn write(&self, gguf: &Gguf<'_>) -> Vec<u8> {
        let mut writer = Writer::new();
        for entry in gguf.metadata().iter().filter(|entry| entry.key != "general.architecture") {
            writer.set(entry.key.replace("qwen35", "qwen3next"), entry.value.clone()).unwrap();
        }
        writer.set("general.architecture", "qwen3next").unwrap();
        let counts = [
            ("qwen3next.expert_count", 3),
            ("qwen3next.expert_used_count", 2),
            ("qwen3next.expert_feed_forward_length", 8),
            ("qwen3next.expert_shared_feed_forward_length", N_FF as u32),
        ];
        for (key, n) in counts {
            writer.set(key, n).unwrap();
        }
        let bytes: Vec<Vec<u8>> =
            self.tensors.iter().map(|(.., x)| x.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        for ((name, shape, _), bytes) in self.tensors.iter().zip(&bytes) {
            writer.tensor(name, shape, DType::F32, bytes).unwrap();
        }
        writer.to_bytes()
    }
}

fn logits(model: &Model) -> Vec<f32> {
    let mut ctx = Context::new(model, Params::default().n_ctx(128)).unwrap();
    let seq = ctx.sequence().unwrap();
    (0..50)
        .flat_map(|i| {
            ctx.append(seq, &[Token(i * 5 % 288)]).unwrap();
            ctx.logits(seq).unwrap().to_vec()
        })
        .collect()
}

#[test]
fn qwen35_in_the_shape_of_qwen3next_gives_its_logits() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/qwen35.gguf");
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut file = File::read(&gguf);
    (0..4).for_each(|il| file.turn_network(il));
    [0, 2].into_iter().for_each(|il| file.turn_recurrence(il));
    let (expected, got) = (
        logits(&Model::from_bytes(&bytes).unwrap()),
        logits(&Model::from_bytes(&file.write(&gguf)).unwrap()),
    );
    let far = expected.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(expected.len() == got.len() && far < 2e-4, "{far}");
}
