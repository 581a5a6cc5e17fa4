//! Options of contexts: keyword arguments that several functions of Python take.

use crate::arguments;
use crate::errors::argument;
use backstitch_models::{CellType, Model, Params};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The largest context that is made without being asked for, in tokens.
const DEFAULT_N_CTX: u32 = 4096;
/// The number of sequences, and so of forks, that a context has without being asked for.
const DEFAULT_N_SEQ_MAX: u32 = 4;

/// Return the parameters of a context of `model` with these options.
///
/// # Errors
/// `TypeError` for an unknown option; `ArgumentError` for an unknown type of cells, and for a
/// number that is out of range.
pub fn params(model: &Model, options: Option<&Bound<'_, PyDict>>) -> PyResult<Params> {
    let n_ctx = model.hparams().n_ctx_train.min(DEFAULT_N_CTX);
    let mut params = Params::default().n_ctx(n_ctx).n_seq_max(DEFAULT_N_SEQ_MAX);
    for (name, value) in options.into_iter().flatten() {
        set(&mut params, &name.extract::<String>()?, &value)?;
    }
    Ok(params)
}

fn set(params: &mut Params, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "n_ctx" => params.n_ctx = number(name, value)?,
        "n_seq_max" => params.n_seq_max = number(name, value)?,
        "n_batch" => params.n_batch = number(name, value)?,
        "n_ubatch" => params.n_ubatch = number(name, value)?,
        "n_threads" => params.n_threads = number(name, value)?,
        "cache_type_k" => params.type_k = cell_type(name, value)?,
        "cache_type_v" => params.type_v = cell_type(name, value)?,
        "checkpoint_bytes" => {
            params.rollback = params.rollback.checkpoint_bytes(number(name, value)?);
        }
        _ => return Err(PyTypeError::new_err(format!("there is no option '{name}'"))),
    }
    Ok(())
}

/// Return the number that an option has.
fn number<T: TryFrom<i128>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    arguments::number(value.py(), name, value.extract()?)
}

fn cell_type(name: &str, value: &Bound<'_, PyAny>) -> PyResult<CellType> {
    let found: String = value.extract()?;
    let known = CellType::ALL.into_iter().find(|known| known.name() == found.to_lowercase());
    known.ok_or_else(|| {
        let names = CellType::ALL.map(CellType::name).join(", ");
        argument(value.py(), format_args!("{name} is \"{found}\"; it can be {names}"))
    })
}
