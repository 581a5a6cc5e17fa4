//! The library's samplers: a chain of the engine's with one sampler each.

use crate::border::Out;
use crate::error::Error;
use crate::layouts::{TokenData, TokenDataArray};
use backstitch_models::Token;
use backstitch_models::sampler::{Chain, Generator, Settings};
use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};

/// Work of a sampler on the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It does nothing, because its settings turn it off.
    Inert,
    /// It changes logits or drops candidates.
    Filter,
    /// It sorts the candidates and computes their probabilities.
    Softmax,
    /// It chooses one.
    Choice,
}

/// A sampler of the library.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    /// The name, as llama.cpp has it.
    pub name: &'static CStr,
    /// Its work on the candidates.
    pub role: Role,
    /// The seed of its random numbers, if it draws.
    pub seed: Option<u32>,
    /// True if the program left the seed open: each beginning has another one.
    pub is_seed_random: bool,
    /// The engine's sampler, in a chain of its own.
    pub chain: Chain,
}

/// Return a seed that nobody chose.
pub fn random_seed() -> u32 {
    RandomState::new().hash_one(crate::context::now_us()) as u32
}

/// Return settings of a chain whose random numbers, and order of candidates, are llama.cpp's.
pub fn settings(seed: u32, min_keep: usize) -> Settings {
    Settings::default().generator(Generator::Llama).seed(seed.into()).min_keep(min_keep).order(Vec::new())
}

/// Return a token of C's; numbers below 0 become one that no vocabulary has.
fn token(id: i32) -> Token {
    Token(u32::try_from(id).unwrap_or(u32::MAX))
}

impl BuiltIn {
    /// Remember a token.
    pub fn accept(&mut self, id: i32) {
        self.chain.accept(token(id));
    }

    /// Start anew, with another seed if the program left that open.
    pub fn reset(&mut self) {
        self.chain.reset();
        if self.is_seed_random {
            let seed = random_seed();
            self.seed = Some(seed);
            self.chain.reseed(seed.into());
        }
    }

    /// Change the candidates.
    ///
    /// # Errors
    /// [`Error::Null`] or [`Error::Unaligned`] if the array points nowhere.
    pub fn apply(&mut self, array: Out<TokenDataArray>) -> Result<(), Error> {
        let mut view = array.read("cur_p")?;
        // SAFETY: the C program claims that the array holds as many candidates as it says, which
        // nobody else uses during the call.
        let mut data = unsafe { Out::new(view.data) };
        let data = data.slice(view.size, "cur_p.data")?;
        if data.is_empty() || self.role == Role::Inert {
            return Ok(());
        }
        if cfg!(feature = "layout-0-3-16") && self.name == c"dist" {
            // llama.cpp sorted before every draw when it had this layout.
            sort(data);
            view.sorted = 1;
        }
        match self.role {
            Role::Choice => view.selected = self.choose(data),
            _ => view.size = self.filter(data),
        }
        let kept = data.get(..view.size).unwrap_or_default();
        if self.role != Role::Choice {
            view.sorted = u8::from(kept.is_sorted_by(|a, b| a.logit >= b.logit));
        }
        array.write(view, "cur_p")
    }

    /// Let the engine's sampler change the candidates, and return how many are left.
    fn filter(&mut self, data: &mut [TokenData]) -> usize {
        let left = self.chain.filter(data.iter().map(|candidate| (token(candidate.id), candidate.logit)));
        let n = left.items().len().min(data.len());
        for (to, from) in data.iter_mut().zip(left.items()) {
            *to = TokenData { id: from.id.0 as i32, logit: from.logit, p: to.p };
        }
        // That one sorted at its end when llama.cpp had this layout.
        let sorts = cfg!(feature = "layout-0-3-16") && self.name == c"top-n-sigma";
        let left = data.get_mut(..n).unwrap_or_default();
        if sorts {
            sort(left);
        }
        if sorts || self.role == Role::Softmax {
            softmax(left);
        }
        n
    }

    /// Return the index of the candidate that the engine's sampler draws; -1 if all are banned.
    fn choose(&mut self, data: &mut [TokenData]) -> i64 {
        // llama.cpp took no random number for a single candidate when it had this layout.
        if cfg!(feature = "layout-0-3-16")
            && self.name == c"dist"
            && let [only] = data
            && only.logit > f32::NEG_INFINITY
        {
            only.p = 1.0;
            return 0;
        }
        let all = data.iter().map(|candidate| (token(candidate.id), candidate.logit));
        let Some(chosen) = self.chain.sample_from(all) else { return -1 };
        let left = self.chain.candidates().items();
        if left.len() == data.len() {
            // The draw was among all of them in their order: their probabilities are known.
            let total: f64 = left.iter().map(|candidate| f64::from(candidate.score)).sum();
            data.iter_mut().zip(left).for_each(|(to, from)| to.p = (f64::from(from.score) / total) as f32);
        }
        data.iter().position(|candidate| token(candidate.id) == chosen).map_or(-1, |index| index as i64)
    }
}

/// Sort candidates by their logits, descending; equal ones stay in their order.
fn sort(data: &mut [TokenData]) {
    data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
}

/// Set the probabilities of sorted candidates.
fn softmax(data: &mut [TokenData]) {
    let largest = data.first().map_or(0.0, |first| first.logit);
    let mut sum = 0.0;
    for candidate in data.iter_mut() {
        candidate.p = (candidate.logit - largest).exp();
        sum += candidate.p;
    }
    data.iter_mut().for_each(|candidate| candidate.p /= sum);
}
