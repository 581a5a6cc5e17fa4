//! Sessions: compared with a naive one that starts anew at every step, and in cases of their own.

mod adopted;
mod cases;
mod naive;
mod paused;
mod shortened;

use backstitch_models::sampler::{
    Candidates, Chain, DryParams, Generator, History, Kind, MirostatVersion, Penalties, Sampler, Settings,
    Temperature,
};
use backstitch_models::session::Session;
use backstitch_models::{Context, Error, Model, Params, Token};

const N_CTX: u32 = 192;

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn params() -> Params {
    Params::default().n_ctx(N_CTX).n_seq_max(4).n_ubatch(16)
}

/// A sampler that makes one token likelier, which depends on the number of draws and on the tokens
/// accepted. Only saved bytes restore this state.
#[derive(Clone, Default)]
struct Drift {
    n_asked: u32,
    sum: u32,
}

impl Sampler for Drift {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        self.n_asked += 1;
        let token = (7 * self.n_asked + self.sum) % candidates.items().len() as u32;
        candidates.add(Token(token), 4.0);
    }

    fn accept(&mut self, token: Token) {
        self.sum = (3 * self.sum + token.0) % 10_007;
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        [self.n_asked, self.sum].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (words, _) = bytes.as_chunks::<4>();
        let &[n_asked, sum] = words else {
            return Err(Error::SavedLength { what: "the drift", found: bytes.len() as u64, wanted: 8 });
        };
        (self.n_asked, self.sum) = (u32::from_le_bytes(n_asked), u32::from_le_bytes(sum));
        Ok(())
    }
}

fn chain(model: &Model) -> Chain {
    let penalties = Penalties { repeat: 1.1, frequency: 0.1, presence: 0.0 };
    let chain = Chain::builder(model.hparams().n_vocab).seed(5).last_n(16).with(penalties);
    chain.with(Drift::default()).with(Temperature(0.7)).build()
}

/// Make a chain with llama.cpp's random numbers, whose samplers take some of them for themselves.
fn adaptive(model: &Model) -> Chain {
    let dry = DryParams { multiplier: 0.8, allowed_length: 1, last_n: 12, ..DryParams::default() };
    let order = vec![Kind::Dry, Kind::Xtc, Kind::TopK, Kind::Temperature, Kind::AdaptiveP];
    let settings = Settings::default().seed(5).generator(Generator::Llama).dry(dry).order(order);
    let settings = settings.xtc_probability(0.5).xtc_threshold(0.01).adaptive_target(0.1);
    Chain::new(model.hparams().n_vocab, &settings)
}

fn mirostat(model: &Model) -> Chain {
    let settings =
        Settings::default().seed(5).temp(1.0).mirostat(Some(MirostatVersion::Two)).mirostat_tau(4.0);
    Chain::new(model.hparams().n_vocab, &settings)
}

fn tokens(ids: &[u32]) -> Vec<Token> {
    ids.iter().map(|&id| Token(id)).collect()
}

fn session(name: &str) -> Session {
    let model = model(name);
    let chain = chain(&model);
    Session::with_chain(Context::new(&model, params()).unwrap(), chain).unwrap()
}
