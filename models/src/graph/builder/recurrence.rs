//! Recurrences. Each names the values that enter its state where it is emitted: with the weights
//! and the old state they decide the new state, because a rollback steps it from a journal of them
//! alone.

use super::{Builder, Recurrence};
use crate::llama_files::{Order, Piece, Row};
use crate::{
    error::Error,
    graph::{
        kind::{DeltaSizes, GlaSizes, KdaSizes, Kind, SsdSizes, WkvSizes},
        step::Step,
        value::{Rows, Value},
    },
};
use alloc::format;
use backstitch_core::isa::LANES;

/// llama.cpp keeps convolutions and token shifts in one row of a recurrent layer ...
const fn in_r(order: Order) -> Piece {
    Piece { row: Row::R, order }
}

/// ... and matrices of keys and values in the other.
const fn in_s(order: Order) -> Piece {
    Piece { row: Row::S, order }
}

/// Inputs of the selective scan of Mamba-1.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveInputs {
    /// `[n_tokens, n_channels]`.
    pub x: Value,
    /// Time steps before softplus, `[n_tokens, n_channels]`.
    pub dt: Value,
    /// `[n_tokens, d_state]`.
    pub b: Value,
    /// `[n_tokens, d_state]`.
    pub c: Value,
}

/// Inputs of the recurrence of RWKV 6, `[n_tokens, n_head, d_head]` each.
#[derive(Clone, Copy, Debug)]
pub struct Wkv6Inputs {
    /// Receptance.
    pub r: Value,
    /// Decay before its exponentials.
    pub w: Value,
    /// Keys.
    pub k: Value,
    /// Values.
    pub v: Value,
}

/// Inputs of the recurrence of RWKV 7, `[n_tokens, n_head, d_head]` each.
#[derive(Clone, Copy, Debug)]
pub struct Wkv7Inputs {
    /// Receptance.
    pub r: Value,
    /// Decay before its sigmoid.
    pub w: Value,
    /// Keys.
    pub k: Value,
    /// Values.
    pub v: Value,
    /// Learning rate before its sigmoid.
    pub a: Value,
}

/// Inputs of gated linear attention.
#[derive(Clone, Copy, Debug)]
pub struct GlaInputs {
    /// Receptance, `[n_tokens, n_head, d_head]`.
    pub r: Value,
    /// Decay before its exponentials, `[n_tokens, n_head, d_head]`.
    pub w: Value,
    /// Keys, `[n_tokens, n_head_kv, d_head]`.
    pub k: Value,
    /// Values, `[n_tokens, n_head_kv, d_head]`.
    pub v: Value,
}

/// Inputs of Kimi delta attention.
#[derive(Clone, Copy, Debug)]
pub struct KdaInputs {
    /// Queries, `[n_tokens, n_head, d_k]`.
    pub q: Value,
    /// Keys, `[n_tokens, n_head, d_k]`.
    pub k: Value,
    /// Values, `[n_tokens, n_head, d_v]`.
    pub v: Value,
    /// Learning rate before its sigmoid, `[n_tokens, n_head]`.
    pub beta: Value,
    /// Decay before bias and softplus, `[n_tokens, n_head, d_k]`.
    pub alpha: Value,
}

/// Inputs of the gated delta rule.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs {
    /// Queries, keys and values side by side.
    pub qkv: Value,
    /// Learning rate before its sigmoid, `[n_tokens, n_head]`.
    pub beta: Value,
    /// Decay before bias and softplus, `[n_tokens, n_head]`.
    pub alpha: Value,
}

impl Builder<'_, '_> {
    /// Convolve `x` causally by the taps `NAME.weight` and, where the file has it, `NAME.bias`;
    /// then apply SiLU if `silu`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn conv(&mut self, x: Value, name: &str, d_conv: usize, silu: bool) -> Result<Value, Error> {
        let width = self.width(x);
        let taps = self.columns_of(&format!("{name}.weight"), width, d_conv)?;
        let bias = self.optional_vector(&format!("{name}.bias"), width)?;
        let out = self.value("conv", width, Rows::Tokens);
        let step = Step::new("conv", Kind::Conv { silu }).reading([x]).writing([out]);
        // `d_conv` is at least 1. llama.cpp goes channel by channel, these taps tap by tap.
        debug_assert!(d_conv > 0, "a convolution has taps");
        let rows = d_conv.saturating_sub(1);
        let order = Order::Transposed { rows: rows.max(1), cols: width };
        let state = Recurrence { len: rows * width, enters: &[x], in_llama: in_r(order) };
        self.push_recurrence(step.using([taps]).using(bias), state);
        Ok(out)
    }

    /// Return for each token the row of `x` of the token before, from the layer's state.
    pub fn shift(&mut self, x: Value) -> Value {
        let len = self.width(x);
        let out = self.value("before", len, Rows::Tokens);
        let step = Step::new("shift", Kind::Shift).reading([x]).writing([out]);
        self.push_recurrence(step, Recurrence { len, enters: &[x], in_llama: in_r(Order::Same) });
        out
    }

    /// Step the recurrence of Mamba-1 with the weights `ssm_a` and `ssm_d`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn selective(&mut self, inputs: SelectiveInputs) -> Result<Value, Error> {
        let SelectiveInputs { x, dt, b, c } = inputs;
        let (width, d_state) = (self.width(x), self.width(b));
        let a = self.columns_of("ssm_a", width, d_state)?;
        let d = self.vector("ssm_d", width)?;
        let out = self.value("scan", width, Rows::Tokens);
        let step = Step::new("selective", Kind::Selective).reading([x, dt, b, c]).writing([out]);
        // Sixteen channels are lanes of ours.
        let in_llama = in_s(Order::Transposed { rows: d_state, cols: LANES });
        let state = Recurrence { len: width * d_state, enters: &[x, dt, b], in_llama };
        self.push_recurrence(step.using([a, d]), state);
        Ok(out)
    }

    /// Step the recurrence of Mamba-2 with the weights `ssm_dt.bias`, `ssm_a` and `ssm_d`; `xbc` is
    /// x, B and C side by side.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn ssd(&mut self, xbc: Value, dt: Value, sizes: SsdSizes) -> Result<Value, Error> {
        self.step_ssd(&[xbc, dt], &[xbc, dt], sizes)
    }

    /// Step the recurrence of Mamba-2 as [`Builder::ssd`] does, with x, B and C in values of their
    /// own.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn ssd_apart(&mut self, inputs: SelectiveInputs, sizes: SsdSizes) -> Result<Value, Error> {
        let SelectiveInputs { x, dt, b, c } = inputs;
        self.step_ssd(&[x, b, c, dt], &[x, b, dt], sizes)
    }

    /// Step the recurrence of Mamba-2; `enters` are those of the values that enter its state.
    fn step_ssd(&mut self, reads: &[Value], enters: &[Value], sizes: SsdSizes) -> Result<Value, Error> {
        let width = sizes.n_head * sizes.d_head;
        let dt_bias = self.vector("ssm_dt.bias", sizes.n_head)?;
        let (a, d) = (self.vector("ssm_a", sizes.n_head)?, self.vector("ssm_d", sizes.n_head)?);
        let out = self.value("ssd", width, Rows::Tokens);
        let step = Step::new("ssd", Kind::Ssd(sizes)).reading(reads.iter().copied()).writing([out]);
        let in_llama = in_s(Order::Same);
        let state = Recurrence { len: width * sizes.d_state, enters, in_llama };
        self.push_recurrence(step.using([dt_bias, a, d]), state);
        Ok(out)
    }

    /// Step the recurrence of RWKV 6 with the weights `time_mix_first` and `time_mix_ln`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn wkv6(&mut self, inputs: Wkv6Inputs, sizes: WkvSizes) -> Result<Value, Error> {
        let Wkv6Inputs { r, w, k, v } = inputs;
        let width = sizes.n_head * sizes.d_head;
        let first = self.vector("time_mix_first.weight", width)?;
        let norm = [self.vector("time_mix_ln.weight", width)?, self.vector("time_mix_ln.bias", width)?];
        let out = self.value("wkv", width, Rows::Tokens);
        let step = Step::new("wkv6", Kind::Wkv6(sizes)).reading([r, w, k, v]).writing([out]);
        let in_llama = in_s(Order::Same);
        let state = Recurrence { len: width * sizes.d_head, enters: &[w, k, v], in_llama };
        self.push_recurrence(step.using([first]).using(norm), state);
        Ok(out)
    }

    /// Step the recurrence of RWKV 7 with the weights `time_mix_k_k`, `time_mix_k_a`,
    /// `time_mix_r_k` and, where the file has it, `time_mix_ln`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn wkv7(&mut self, inputs: Wkv7Inputs, sizes: WkvSizes) -> Result<Value, Error> {
        let Wkv7Inputs { r, w, k, v, a } = inputs;
        let (d_head, width) = (sizes.d_head, sizes.n_head * sizes.d_head);
        let k_k = self.vector("time_mix_k_k.weight", width)?;
        let (k_a, r_k) =
            (self.vector("time_mix_k_a.weight", width)?, self.vector("time_mix_r_k.weight", width)?);
        let norm = match self.has("time_mix_ln.weight") {
            true => {
                Some([self.vector("time_mix_ln.weight", width)?, self.vector("time_mix_ln.bias", width)?])
            }
            false => None,
        };
        let out = self.value("wkv", width, Rows::Tokens);
        let step = Step::new("wkv7", Kind::Wkv7(sizes)).reading([r, w, k, v, a]).writing([out]);
        // A head's values are rows there.
        let in_llama = in_s(Order::Transposed { rows: d_head, cols: d_head });
        let state = Recurrence { len: width * d_head, enters: &[w, k, v, a], in_llama };
        self.push_recurrence(step.using([k_k, k_a, r_k]).using(norm.into_iter().flatten()), state);
        Ok(out)
    }

    /// Step gated linear attention, which has no weights of its own.
    pub fn gla(&mut self, inputs: GlaInputs, sizes: GlaSizes) -> Value {
        let GlaInputs { r, w, k, v } = inputs;
        let width = sizes.n_head * sizes.d_head;
        let out = self.value("gla", width, Rows::Tokens);
        let step = Step::new("gla", Kind::Gla(sizes)).reading([r, w, k, v]).writing([out]);
        let in_llama = in_s(Order::Same);
        let state = Recurrence { len: width * sizes.d_head, enters: &[w, k, v], in_llama };
        self.push_recurrence(step, state);
        out
    }

    /// Step Kimi delta attention with the weights `ssm_dt.bias` and `ssm_a`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn kda(&mut self, inputs: KdaInputs, sizes: KdaSizes) -> Result<Value, Error> {
        let KdaInputs { q, k, v, beta, alpha } = inputs;
        let KdaSizes { n_head, d_k, d_v, .. } = sizes;
        let (dt_bias, a) = (self.vector("ssm_dt.bias", n_head * d_k)?, self.vector("ssm_a", n_head)?);
        let out = self.value("kda", n_head * d_v, Rows::Tokens);
        let step = Step::new("kda", Kind::Kda(sizes)).reading([q, k, v, beta, alpha]).writing([out]);
        let in_llama = in_s(Order::Transposed { rows: d_k, cols: d_v });
        let state = Recurrence { len: n_head * d_v * d_k, enters: &[k, v, beta, alpha], in_llama };
        self.push_recurrence(step.using([dt_bias, a]), state);
        Ok(out)
    }

    /// Step the gated delta rule with the weights `ssm_dt.bias` and `ssm_a`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn delta(&mut self, inputs: DeltaInputs, sizes: DeltaSizes) -> Result<Value, Error> {
        let DeltaInputs { qkv, beta, alpha } = inputs;
        let width = sizes.n_head * sizes.d_v;
        let (dt_bias, a) = (self.vector("ssm_dt.bias", sizes.n_head)?, self.vector("ssm_a", sizes.n_head)?);
        let out = self.value("delta", width, Rows::Tokens);
        let step = Step::new("delta", Kind::Delta(sizes)).reading([qkv, beta, alpha]).writing([out]);
        let in_llama = in_s(Order::Transposed { rows: sizes.d_k, cols: sizes.d_v });
        let state = Recurrence { len: width * sizes.d_k, enters: &[qkv, beta, alpha], in_llama };
        self.push_recurrence(step.using([dt_bias, a]), state);
        Ok(out)
    }
}
