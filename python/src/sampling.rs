//! Settings of the samplers, and grammars.

use crate::arguments::{json_text, number, number_or_none, token};
use crate::errors::{OrRaise, argument};
use crate::model::Grammars;
use backstitch_models::grammar::{Grammar, GrammarSampler};
use backstitch_models::sampler::{self, Chain, MirostatVersion};
use backstitch_models::{Context, Error};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Settings of the samplers that choose tokens. They never change; `replace` makes others of them.
///
/// The names and defaults are those of llama.cpp. A temperature of 0 always takes the likeliest
/// token. Without a seed, or with -1, every session draws its own one, its `seed`. A
/// `repeat_last_n` of -1 is the whole context; a `top_k` of 0 or less is off.
#[pyclass(frozen, eq, module = "backstitch")]
#[derive(Clone, Default, PartialEq)]
pub struct Settings {
    /// All settings but the seed. A `repeat_last_n` of `usize::MAX` is the whole context.
    inner: sampler::Settings,
    /// The seed; `None` for a random one.
    seed: Option<u64>,
}

/// Return the number that is written like `x`: Python has double precision only, in which 0.7 of
/// single precision is 0.699999988079071.
fn double(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(x.into())
}

/// Return the names of all settings with their values.
fn values<'py>(py: Python<'py>, settings: &Settings) -> PyResult<Bound<'py, PyDict>> {
    let s = &settings.inner;
    let seed = settings.seed.map_or(-1, i128::from);
    let repeat_last_n = if s.repeat_last_n == usize::MAX { -1 } else { s.repeat_last_n as i128 };
    let mirostat = match s.mirostat {
        None => 0,
        Some(MirostatVersion::One) => 1,
        Some(MirostatVersion::Two) => 2,
    };
    let bias: BTreeMap<u32, f64> =
        s.logit_bias.iter().map(|&(token, bias)| (token.0, double(bias))).collect();
    let values = PyDict::new(py);
    values.set_item("seed", seed)?;
    values.set_item("temp", double(s.temp))?;
    values.set_item("top_k", s.top_k)?;
    values.set_item("top_p", double(s.top_p))?;
    values.set_item("min_p", double(s.min_p))?;
    values.set_item("typical_p", double(s.typical_p))?;
    values.set_item("top_n_sigma", double(s.top_n_sigma))?;
    values.set_item("xtc_probability", double(s.xtc_probability))?;
    values.set_item("xtc_threshold", double(s.xtc_threshold))?;
    values.set_item("repeat_last_n", repeat_last_n)?;
    values.set_item("repeat_penalty", double(s.repeat_penalty))?;
    values.set_item("frequency_penalty", double(s.frequency_penalty))?;
    values.set_item("presence_penalty", double(s.presence_penalty))?;
    values.set_item("mirostat", mirostat)?;
    values.set_item("mirostat_tau", double(s.mirostat_tau))?;
    values.set_item("mirostat_eta", double(s.mirostat_eta))?;
    values.set_item("logit_bias", bias)?;
    Ok(values)
}

/// Change the setting `name` to `value`.
fn set(settings: &mut Settings, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, s) = (value.py(), &mut settings.inner);
    match name {
        "seed" => settings.seed = number_or_none(py, name, value.extract()?)?,
        "temp" => s.temp = value.extract()?,
        "top_k" => s.top_k = number(py, name, value.extract::<i128>()?.max(0))?,
        "top_p" => s.top_p = value.extract()?,
        "min_p" => s.min_p = value.extract()?,
        "typical_p" => s.typical_p = value.extract()?,
        "top_n_sigma" => s.top_n_sigma = value.extract()?,
        "xtc_probability" => s.xtc_probability = value.extract()?,
        "xtc_threshold" => s.xtc_threshold = value.extract()?,
        "repeat_last_n" => {
            s.repeat_last_n = number_or_none(py, name, value.extract()?)?.unwrap_or(usize::MAX);
        }
        "repeat_penalty" => s.repeat_penalty = value.extract()?,
        "frequency_penalty" => s.frequency_penalty = value.extract()?,
        "presence_penalty" => s.presence_penalty = value.extract()?,
        "mirostat_tau" => s.mirostat_tau = value.extract()?,
        "mirostat_eta" => s.mirostat_eta = value.extract()?,
        "mirostat" => {
            s.mirostat = match value.extract::<i128>()? {
                0 => None,
                1 => Some(MirostatVersion::One),
                2 => Some(MirostatVersion::Two),
                version => {
                    let text = format_args!("mirostat is {version}; it can be 0 for off, 1 or 2");
                    return Err(argument(py, text));
                }
            };
        }
        "logit_bias" => {
            let bias: BTreeMap<i64, f32> = value.extract()?;
            let bias = bias.into_iter().map(|(number, bias)| Ok((token(py, number)?, bias)));
            s.logit_bias = bias.collect::<PyResult<_>>()?;
        }
        _ => return Err(PyTypeError::new_err(format!("there is no setting '{name}'"))),
    }
    Ok(())
}

impl Settings {
    /// Return these settings with changes, checked as far as that needs no vocabulary.
    fn changed(&self, py: Python<'_>, changes: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut changed = self.clone();
        for (name, value) in changes.into_iter().flatten() {
            set(&mut changed, &name.extract::<String>()?, &value)?;
        }
        changed.check(usize::MAX).or_raise(py)?;
        Ok(changed)
    }

    /// Check the settings for a vocabulary of `n_vocab` tokens.
    ///
    /// # Errors
    /// Those of [`sampler::Settings::check`].
    pub fn check(&self, n_vocab: usize) -> Result<(), Error> {
        self.inner.check(n_vocab)
    }

    /// Return the settings for a context and its model, with a seed drawn at random if none is set.
    pub fn in_context(&self, ctx: &Context) -> sampler::Settings {
        let seed = self.seed.unwrap_or_else(any_seed);
        // The samplers reserve memory for the tokens that they look back.
        let repeat_last_n = self.inner.repeat_last_n.min(ctx.params().n_ctx as usize);
        self.inner.clone().seed(seed).repeat_last_n(repeat_last_n).suppress(ctx.model().vocab())
    }
}

/// Return the seed that a caller gives; a random one for -1.
///
/// # Errors
/// `ArgumentError` if it is out of range.
pub fn seed(py: Python<'_>, seed: i128) -> PyResult<u64> {
    Ok(number_or_none(py, "seed", seed)?.unwrap_or_else(any_seed))
}

/// Return a random seed, short enough to be typed again.
fn any_seed() -> u64 {
    // A forked process has the random state of its parent, but a number of its own.
    RandomState::new().hash_one(std::process::id()) >> 32
}

#[pymethods]
impl Settings {
    #[new]
    #[pyo3(signature = (**values))]
    fn new(py: Python<'_>, values: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Self::default().changed(py, values)
    }

    /// Return the same settings with some of them changed.
    #[pyo3(signature = (**changes))]
    fn replace(&self, py: Python<'_>, changes: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        self.changed(py, changes)
    }

    /// Return the settings as a dict.
    fn asdict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values(py, self)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = values(py, self)?.get_item(name)?;
        let text = || format!("'Settings' object has no attribute '{name}'");
        found.ok_or_else(|| pyo3::exceptions::PyAttributeError::new_err(text()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (usual, mine) = (values(py, &Self::default())?, values(py, self)?);
        let mut texts = Vec::new();
        for (name, value) in mine {
            if !value.eq(usual.get_item(&name)?)? {
                texts.push(format!("{name}={}", value.repr()?));
            }
        }
        Ok(format!("Settings({})", texts.join(", ")))
    }
}

/// Texts that constrain a generation; at most one of them may be given.
pub struct Constraint<'py> {
    pub grammar: Option<String>,
    pub json_schema: Option<Bound<'py, PyAny>>,
    pub regex: Option<String>,
    pub lark: Option<String>,
}

/// A language of grammars.
enum Language {
    Gbnf,
    JsonSchema,
    Regex,
    Lark,
}

impl Constraint<'_> {
    /// Compile the grammar, if one is given.
    ///
    /// # Errors
    /// `ArgumentError` if several are given, `GrammarError` if it is none.
    pub fn compile(self, py: Python<'_>, grammars: &Grammars) -> PyResult<Option<Grammar>> {
        let schema = self.json_schema.as_ref().map(json_text).transpose()?;
        let given = [
            (Language::Gbnf, self.grammar),
            (Language::JsonSchema, schema),
            (Language::Regex, self.regex),
            (Language::Lark, self.lark),
        ];
        let mut given = given.into_iter().filter_map(|(language, text)| Some((language, text?)));
        let Some((language, text)) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(argument(py, "give one of grammar, json_schema, regex and lark, not several"));
        }
        let compiled = py.detach(|| {
            let compiler = grammars.compiler()?;
            match language {
                Language::Gbnf => compiler.gbnf(&text),
                Language::JsonSchema => compiler.json_schema(&text),
                Language::Regex => compiler.regex(&text),
                Language::Lark => compiler.lark(&text),
            }
        });
        compiled.or_raise(py).map(Some)
    }
}

/// Return the samplers of `settings`, behind a grammar that begins behind `n_prompt` tokens.
pub fn chain(n_vocab: usize, settings: &sampler::Settings, grammar: Option<(&Grammar, usize)>) -> Chain {
    let builder = Chain::builder(n_vocab);
    let builder = match grammar {
        Some((grammar, n_prompt)) => builder.with(GrammarSampler::new(grammar, n_prompt)),
        None => builder,
    };
    builder.settings(settings).build()
}
