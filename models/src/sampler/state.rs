//! The state of a chain as plain data, to be saved beside the tokens of a sequence.

use super::Trail;
use crate::error::Error;
use crate::saved_reader::SavedReader;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// The state of a [`Chain`](super::Chain): the position in its random numbers, the tokens of its
/// history, and the states of those samplers that have one. The samplers themselves and their
/// settings are not included.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Chain, Settings, State};
///
/// let logits = [0.1, 0.5, 1.0, 0.4];
/// let mut chain = Chain::new(4, &Settings::default());
/// chain.sample(&logits);
/// let bytes = chain.state().encode();
///
/// let mut other = Chain::new(4, &Settings::default());
/// other.resume(&State::decode(&bytes)?)?;
/// assert_eq!(other.sample(&logits), chain.sample(&logits));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The seed that the random numbers started from.
    pub seed: u64,
    /// The current state of the random number generator.
    pub rng: u64,
    /// The tokens of the history, oldest first.
    pub tokens: Vec<Token>,
    /// The states of the samplers that have one, in the order of the chain.
    pub samplers: Vec<SamplerState>,
    /// The chain's earlier states by position of its sequence. [`State::encode`] leaves it out;
    /// [`Trail::encode`] writes it.
    pub trail: Trail,
}

/// The state of one sampler of a chain.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{SamplerState, State};
///
/// let samplers = vec![SamplerState { index: 0, bytes: vec![1, 2] }];
/// let state = State { samplers, ..State::default() };
/// assert_eq!(State::decode(&state.encode())?, state);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamplerState {
    /// The index of the sampler in the chain, from 0.
    pub index: u32,
    /// The bytes that [`Sampler::save`](super::Sampler::save) wrote.
    pub bytes: Vec<u8>,
}

/// The version of the layout without states of samplers.
const PLAIN: u32 = 1;
/// The version of the layout with states of samplers behind the tokens.
const WITH_SAMPLERS: u32 = 2;

impl State {
    /// Encode the state as bytes, little-endian: version (u32), number of tokens (u32), `seed`,
    /// `rng` (u64 each), the tokens (u32 each).
    ///
    /// Version 2, for chains with samplers that have a state, adds for each of these its index in
    /// the chain and its number of bytes (u32 each), then the bytes.
    pub fn encode(&self) -> Vec<u8> {
        // The history is as long as the settings say, far below 2^32.
        debug_assert!(u32::try_from(self.tokens.len()).is_ok(), "a history of 2^32 tokens");
        let version = if self.samplers.is_empty() { PLAIN } else { WITH_SAMPLERS };
        let mut bytes = bytemuck::bytes_of(&[version, self.tokens.len() as u32]).to_vec();
        bytes.extend(bytemuck::bytes_of(&[self.seed, self.rng]));
        bytes.extend(bytemuck::must_cast_slice::<_, u8>(&self.tokens));
        for SamplerState { index, bytes: own } in &self.samplers {
            debug_assert!(u32::try_from(own.len()).is_ok(), "a sampler state of 4 GiB");
            bytes.extend(bytemuck::bytes_of(&[*index, own.len() as u32]));
            bytes.extend(own);
        }
        bytes
    }

    /// Decode the bytes that [`State::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::SavedLength`] if they are too few or too many; [`Error::SavedValue`] if their
    /// version is unknown; [`Error::OutOfMemory`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut from = SavedReader::new("the sampler's state", bytes);
        let [version, n] = from.array::<u32, 2>()?;
        let [seed, rng] = from.array()?;
        if version != PLAIN && version != WITH_SAMPLERS {
            return Err(from.wrong(0, version, "version 1 or 2"));
        }
        let tokens = from.list(n.into())?;
        let n_left = if version == WITH_SAMPLERS { from.left() } else { 0 };
        let samplers = decode_samplers(from.take(n_left)?)?;
        from.end()?;
        Ok(State { seed, rng, tokens, samplers, trail: Trail::default() })
    }
}

/// A number of samplers that no chain has. The bound keeps the list of their states small, however
/// long the bytes are.
const MAX_SAMPLERS: u32 = 1 << 12;

/// Decode states of samplers until the bytes end. Their indices ascend.
pub(super) fn decode_samplers(bytes: &[u8]) -> Result<Vec<SamplerState>, Error> {
    let mut from = SavedReader::new("the state of a sampler", bytes);
    let mut samplers: Vec<SamplerState> = Vec::new();
    while from.left() > 0 {
        let [index, len] = from.array::<u32, 2>()?;
        if index >= MAX_SAMPLERS || samplers.last().is_some_and(|last| last.index >= index) {
            return Err(Error::SavedValue {
                what: "the index of a sampler in its chain",
                offset: 0,
                found: index.into(),
                wanted: "numbers that ascend and are below 4096",
            });
        }
        samplers.push(SamplerState { index, bytes: from.list(len.into())? });
    }
    Ok(samplers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Chain, Settings};
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_pinned() {
        let tokens = alloc::vec![Token(7), Token(300)];
        let state = State { seed: 0x0102_0304_0506_0708, rng: 9, tokens, ..State::default() };
        let bytes =
            [1, 0, 0, 0, 2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 44, 1, 0, 0];
        assert_eq!(state.encode(), bytes);
        assert_eq!(State::decode(&bytes).unwrap(), state);
    }

    /// Return the record of the document: its fields with their offsets, then its length.
    fn documented() -> (Vec<(&'static str, usize)>, usize) {
        let (_, rest) = include_str!("../../../docs/state-format.md").split_once("Record `sampler`").unwrap();
        let table = rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let (mut fields, mut at) = (Vec::new(), 0);
        for line in table.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            fields.push((cells[1], at));
            at += cells[2].parse::<usize>().unwrap();
        }
        (fields, at)
    }

    #[test]
    fn fields_lie_where_the_document_says() {
        let (fields, len) = documented();
        assert_eq!(len, State::default().encode().len());
        let bytes = State {
            seed: 0x1_0000_0005,
            rng: 0x2_0000_0006,
            tokens: alloc::vec![Token(7); 3],
            ..State::default()
        }
        .encode();
        assert_eq!(bytes.len(), len + 3 * 4);
        let wanted = [("version", 1), ("n_tokens", 3), ("seed", 5), ("rng", 6)];
        assert_eq!(fields.len(), wanted.len());
        for ((name, at), (wanted_name, value)) in fields.into_iter().zip(wanted) {
            assert_eq!((name, u32::from(bytes[at])), (wanted_name, value));
        }
    }

    #[test]
    fn bytes_that_are_no_state_are_refused() {
        let good = State { tokens: alloc::vec![Token(1); 3], ..State::default() }.encode();
        for n in 0..good.len() {
            assert!(matches!(State::decode(&good[..n]), Err(Error::SavedLength { .. })), "{n}");
        }
        let mut long = good.clone();
        long.push(0);
        assert!(matches!(State::decode(&long), Err(Error::SavedLength { found: 37, wanted: 36, .. })));
        let mut new = good.clone();
        new[0] = 3;
        assert!(matches!(State::decode(&new), Err(Error::SavedValue { offset: 0, found: 3, .. })));
        let mut many = good;
        many[4..8].fill(0xff);
        assert!(State::decode(&many).is_err());
    }

    #[test]
    fn states_of_samplers_follow_the_tokens() {
        let sampler = |index, bytes: &[u8]| SamplerState { index, bytes: bytes.to_vec() };
        let state = State {
            tokens: alloc::vec![Token(7)],
            samplers: alloc::vec![sampler(1, &[5]), sampler(3, &[])],
            ..State::default()
        };
        let bytes = state.encode();
        assert_eq!(bytes[0], 2);
        assert_eq!(bytes[28..], [1, 0, 0, 0, 1, 0, 0, 0, 5, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(State::decode(&bytes).unwrap(), state);
        for n in (0..bytes.len()).filter(|n| ![28, 37].contains(n)) {
            let error = State::decode(&bytes[..n]).unwrap_err();
            assert!(matches!(error, Error::SavedLength { .. }), "{n}: {error:?}");
        }
        let mut endless = bytes;
        endless[32..36].fill(0xff);
        assert!(matches!(State::decode(&endless), Err(Error::SavedLength { .. })));
    }

    proptest! {
        #[test]
        fn a_chain_goes_on_as_if_it_had_never_stopped(
            tokens in prop::collection::vec(0u32..40, 0..60),
            seed: u64, repeat_last_n in 0usize..20, repeat_penalty in 0.5f32..2.0, frequency_penalty in -1.0f32..1.0,
        ) {
            let settings =
                Settings { seed, repeat_last_n, repeat_penalty, frequency_penalty, ..Settings::default() };
            let logits: Vec<f32> = (0..32).map(|i| ((i * 37) % 17) as f32 * 0.25).collect();
            let mut chain = Chain::new(32, &settings);
            for token in tokens {
                chain.sample(&logits);
                chain.accept(Token(token));
            }
            let mut other = Chain::new(32, &Settings { seed: 1, ..settings });
            other.accept(Token(3));
            other.resume(&State::decode(&chain.state().encode()).unwrap()).unwrap();
            for i in 0..30 {
                if i == 15 {
                    chain.reset();
                    other.reset();
                }
                let token = chain.sample(&logits);
                prop_assert_eq!(token, other.sample(&logits));
                chain.accept(token.unwrap());
                other.accept(token.unwrap());
            }
            prop_assert_eq!(chain.state(), other.state());
        }
    }
}
