//! Decoders: one description of a transformer, with the choices in which families differ.
//!
//! An architecture names its choices and leaves the others as Llama has them:
//!
//! ```text
//! Decoder { norm: blocks::layer_norm, residual: Residual::Parallel, ..Decoder::LLAMA }.build(b, h)
//! ```

use super::{blocks, rope};
use crate::{
    error::Error,
    graph::{Builder, Cells, Linear, Mixture, Norm, RopeId, Routing, Scores, Value},
    hparams::{Hparams, LayerHparams, Pattern},
};
use backstitch_core::rope::Pairs;
use backstitch_kv::Window;

/// The choices of a family of decoders, or of encoders that are built as decoders are.
#[derive(Clone)]
pub(super) struct Decoder {
    /// True if every token sees all of its text, nothing is kept between batches, and the output is
    /// an embedding a token.
    pub(super) is_encoder: bool,
    /// Factor of the embeddings.
    pub(super) embed_scale: f32,
    /// Changes embeddings before the first layer.
    pub(super) embedded: fn(&mut Builder<'_, '_>, &Hparams, Value) -> Result<(), Error>,
    /// The norm of the residual stream whose tensor has the name given.
    pub(super) norm: fn(&Hparams, &'static str) -> Norm,
    /// The norm in front of attention; none: it reads the stream itself.
    pub(super) attn_norm: Option<&'static str>,
    /// The norm of what attention adds.
    pub(super) post_attn_norm: Option<&'static str>,
    /// The norm in front of the network; none: it reads the stream itself.
    pub(super) ffn_norm: Option<&'static str>,
    /// The norm of what the network adds.
    pub(super) post_ffn_norm: Option<&'static str>,
    /// The norm behind the last layer.
    pub(super) output_norm: &'static str,
    /// The input of the network.
    pub(super) residual: Residual,
    /// Factor of what attention and network add.
    pub(super) residual_scale: f32,
    /// The layers that have a window, if the file does not say; windows without a length are none.
    pub(super) pattern: Pattern,
    /// The kind of the windows.
    pub(super) window: fn(u32) -> Window,
    /// The dimensions that are rotated together.
    pub(super) pairs: Pairs,
    /// Declares the rotation of a layer, if it has one.
    pub(super) rope: Rope,
    /// The layer whose keys and values a layer attends to, if it keeps none.
    pub(super) shares: fn(&Hparams, &LayerHparams, &Pattern) -> Option<usize>,
    /// The keys and values that a layer keeps.
    pub(super) cells: fn(&Hparams, &LayerHparams, Option<RopeId>) -> Result<Cells, Error>,
    /// The norm of queries or keys whose tensor has the name given, if the file has it.
    pub(super) head_norm: fn(&Hparams, &LayerHparams, &'static str) -> Norm,
    /// True if queries and keys are rotated before their norms, not behind them.
    pub(super) rotates_first: bool,
    /// The treatment of attention scores.
    pub(super) scores: fn(&Hparams, &LayerHparams) -> Scores,
    /// Attention up to, not including, its output projection.
    pub(super) attention: Attention,
    /// True if a layer attends.
    pub(super) attends: fn(&Hparams, &LayerHparams) -> bool,
    /// Describes the mixer of layers that do not attend, up to its output projection, whose name it
    /// returns.
    pub(super) mixer: Mixer,
    /// The feed-forward network.
    pub(super) feed_forward: FeedForward,
    /// True if a layer's router reads the stream in front of attention.
    pub(super) routes_early: bool,
    /// Factor of the scores of the vocabulary.
    pub(super) logit_scale: f32,
    /// Cap of the scores of the vocabulary.
    pub(super) final_soft_cap: Option<f32>,
}

pub(super) type Rope =
    fn(&mut Builder<'_, '_>, &Hparams, &LayerHparams, Pairs) -> Result<Option<RopeId>, Error>;

pub(super) type Attention = fn(&mut Builder<'_, '_>, AttentionSpec<'_>, Value) -> Result<Value, Error>;

/// A layer that attends.
#[derive(Clone, Copy)]
pub(super) struct AttentionSpec<'s> {
    /// The numbers of the model.
    pub(super) h: &'s Hparams,
    /// The numbers of the layer.
    pub(super) layer: &'s LayerHparams,
    /// The choices of the family.
    pub(super) choices: &'s Decoder,
    /// The rotation, if the layer has one.
    pub(super) rope: Option<RopeId>,
}

pub(super) type Mixer =
    fn(&mut Builder<'_, '_>, &Hparams, &LayerHparams, Value) -> Result<(Value, &'static str), Error>;

pub(super) type FeedForward =
    fn(&mut Builder<'_, '_>, &Hparams, &LayerHparams, Value, Branch) -> Result<(), Error>;

/// The input of a layer's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residual {
    /// The stream with the result of attention.
    Sequential,
    /// The input of attention.
    Parallel,
    /// The stream without the result of attention, behind a norm of its own.
    ParallelNormed,
}

/// The way of a branch back into the residual stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    /// The stream.
    pub(super) stream: Value,
    /// The norm of what is added.
    pub(super) norm: Option<Norm>,
    /// The factor of what is added.
    pub(super) scale: f32,
    /// The logits of the router, where they are not made of what the network reads.
    pub(super) logits: Option<Value>,
}

impl Branch {
    /// A branch that is added as it is.
    pub(super) const fn to(stream: Value) -> Self {
        Branch { stream, norm: None, scale: 1.0, logits: None }
    }

    /// Add the product of `x` with the matrix `name`.
    pub(super) fn add_linear(
        self,
        b: &mut Builder<'_, '_>,
        h: &Hparams,
        x: Value,
        name: &'static str,
    ) -> Result<(), Error> {
        if self.norm.is_none() && self.scale == 1.0 {
            return b.add_linear(self.stream, x, name);
        }
        let y = b.linear(x, Linear::new(name, h.n_embd))?;
        self.add(b, y)
    }

    /// Add a mixture of experts over `x`.
    pub(super) fn add_mixture(
        self,
        b: &mut Builder<'_, '_>,
        x: Value,
        mixture: Mixture,
    ) -> Result<(), Error> {
        let mixture = Mixture { logits: self.logits.or(mixture.logits), ..mixture };
        if self.norm.is_some() {
            let y = b.mixture(x, mixture)?;
            return self.add(b, y);
        }
        let routing = Routing { scale: mixture.routing.scale * self.scale, ..mixture.routing };
        b.add_mixture(self.stream, x, Mixture { routing, ..mixture })
    }

    /// Add `y`, which is used up.
    pub(super) fn add(self, b: &mut Builder<'_, '_>, y: Value) -> Result<(), Error> {
        if let Some(norm) = self.norm {
            b.norm_in_place(y, norm)?;
        }
        if self.scale != 1.0 {
            b.scale(y, self.scale);
        }
        b.add(self.stream, y);
        Ok(())
    }
}

impl Decoder {
    /// The choices of Llama: RMS norms in front of attention and network, rotation of neighbouring
    /// dimensions, a network with a gate or a mixture of such.
    pub(super) const LLAMA: Self = Decoder {
        is_encoder: false,
        embed_scale: 1.0,
        embedded: |_, _, _| Ok(()),
        norm: blocks::rms_norm,
        attn_norm: Some("attn_norm"),
        post_attn_norm: None,
        ffn_norm: Some("ffn_norm"),
        post_ffn_norm: None,
        output_norm: "output_norm",
        residual: Residual::Sequential,
        residual_scale: 1.0,
        pattern: Pattern::NONE,
        window: Window::Sliding,
        pairs: Pairs::Adjacent,
        rope: |b, h, layer, pairs| rope::of_layer(b, h, layer, pairs).map(Some),
        shares: |_, _, _| None,
        cells: |_, layer, rope| Ok(blocks::cells(layer, rope)),
        head_norm: |h, layer, name| Norm::heads(name, h.norm_rms_eps, layer.d_k),
        rotates_first: false,
        scores: |h, layer| Scores::scaled(h.attention_scale(layer)),
        attention: blocks::attention,
        attends: |_, layer| layer.attends(),
        mixer: |_, h, _, _| Err(h.missing("attention.head_count_kv")),
        feed_forward: blocks::gated_network,
        routes_early: false,
        logit_scale: 1.0,
        final_soft_cap: None,
    };

    /// The choices of Llama with rotation of dimensions that are half a head apart.
    pub(super) const SPLIT: Self = Decoder { pairs: Pairs::Split, ..Self::LLAMA };

    /// The choices of GPT-2 and its kin: layer norms, and a network without a gate.
    pub(super) const GPT: Self =
        Decoder { norm: blocks::layer_norm, feed_forward: blocks::gelu_network, ..Self::SPLIT };

    /// Describe the model. It is an encoder where the file says so, too: embedding models are made
    /// of decoders of any family.
    pub(super) fn build(&self, b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
        let choices = Decoder { is_encoder: self.is_encoder || !h.is_causal, ..self.clone() };
        let mut x = blocks::embed_scaled(b, h, choices.embed_scale)?;
        (choices.embedded)(b, h, x)?;
        for layer in h.layers_by(choices.pattern.clone()) {
            x = choices.layer(b, h, &layer, x)?;
            b.end_layer(x);
        }
        choices.head(b, h, x)
    }

    /// Describe the final norm and, unless embeddings are the output, the scores of the vocabulary.
    pub(super) fn head(&self, b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<(), Error> {
        b.head();
        let x = b.norm(x, (self.norm)(h, self.output_norm))?;
        if self.is_encoder {
            let x = dense(b, h, x)?;
            b.embeddings(x);
            return Ok(());
        }
        if self.logit_scale != 1.0 {
            b.scale_for_logits(x, self.logit_scale);
        }
        b.logits(x, h.n_vocab, self.final_soft_cap)
    }

    /// Describe a layer; return the residual stream behind it.
    pub(super) fn layer(
        &self,
        b: &mut Builder<'_, '_>,
        h: &Hparams,
        layer: &LayerHparams,
        x: Value,
    ) -> Result<Value, Error> {
        let attends = (self.attends)(h, layer);
        let rope = if attends { (self.rope)(b, h, layer, self.pairs)? } else { None };
        match (self.shares)(h, layer, &self.pattern) {
            // Recurrences go one way, and nothing is kept that another layer could share.
            owner if self.is_encoder && (owner.is_some() || !attends) => return Err(h.not_causal()),
            Some(owner) => b.sharing_layer(owner),
            None if attends => {
                let window = layer.window.map(self.window);
                let cells = Cells { window, ..(self.cells)(h, layer, rope)? };
                if self.is_encoder { b.encoder_layer(cells) } else { b.layer(Some(cells)) }
            }
            None => b.layer(None),
        }
        let logits = match h.experts.filter(|_| self.routes_early) {
            Some(experts) => Some(b.linear(x, Linear::new("ffn_gate_inp", experts.n_expert))?),
            None => None,
        };
        let normed = self.normed(b, h, x, self.attn_norm)?;
        let (mixed, output) = match attends {
            true => {
                let spec = AttentionSpec { h, layer, choices: self, rope };
                ((self.attention)(b, spec, normed)?, "attn_output")
            }
            false => (self.mixer)(b, h, layer, normed)?,
        };
        let [mixed, x] = b.last_outputs(layer.is_last, [mixed, x]);
        let logits = logits.map(|logits| b.last_outputs(layer.is_last, [logits])[0]);
        let branch = |norm: Option<&'static str>| Branch {
            stream: x,
            norm: norm.map(|name| (self.norm)(h, name)),
            scale: self.residual_scale,
            logits,
        };
        let read = match self.residual {
            Residual::Sequential => None,
            Residual::Parallel => Some(b.last_outputs(layer.is_last, [normed])[0]),
            Residual::ParallelNormed => Some(self.normed(b, h, x, self.ffn_norm)?),
        };
        branch(self.post_attn_norm).add_linear(b, h, mixed, output)?;
        let read = match read {
            Some(read) => read,
            None => self.normed(b, h, x, self.ffn_norm)?,
        };
        (self.feed_forward)(b, h, layer, read, branch(self.post_ffn_norm))?;
        Ok(x)
    }

    fn normed(
        &self,
        b: &mut Builder<'_, '_>,
        h: &Hparams,
        x: Value,
        name: Option<&'static str>,
    ) -> Result<Value, Error> {
        name.map_or(Ok(x), |name| b.norm(x, (self.norm)(h, name)))
    }
}

/// Return the embeddings `x` behind both matrices that Sentence Transformers calls dense modules,
/// where the file has them. They stand behind pooling there. These products are sums as pooling is,
/// so the order does not matter.
fn dense(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let Some(n_rows) = b.n_rows("dense_2.weight").filter(|_| b.has("dense_3.weight")) else { return Ok(x) };
    let middle = b.linear(x, Linear::new("dense_2", n_rows))?;
    b.linear(middle, Linear::new("dense_3", h.n_embd))
}
