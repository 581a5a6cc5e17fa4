//! The arguments of a call, after evaluation.
//!
//! Jinja passes arguments by position and by name, as Python does. [`Arguments::bind`] sorts them
//! into the parameters of a filter, test, method or function, and names the call in its faults.
//! Macros bind their own parameters (`machine/call.rs`).

use alloc::format;
use alloc::vec::Vec;

use super::error::{Eval, Fault};
use super::heap::Val;
use super::text::Str;

/// The evaluated arguments of a call.
///
/// The interpreter makes them from the argument list in the source, in which `*list` and `**dict`
/// are already expanded.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// The arguments passed by position, in order.
    pub(super) list: Vec<Val>,
    /// The arguments passed by name, in order.
    pub(super) named: Vec<(Str, Val)>,
    /// The body of a call block, which a macro can call as `caller()`.
    pub(super) caller: Option<Val>,
}

impl Arguments {
    /// Return the arguments in the order of `names`, passed by position or by name; `None` for
    /// those not passed.
    ///
    /// # Errors
    /// [`Fault::Failed`], naming `what`, if there are too many arguments, an unknown name, or an
    /// argument passed twice.
    pub(super) fn bind<const N: usize>(self, what: &str, names: [&str; N]) -> Eval<[Option<Val>; N]> {
        if self.list.len() > N {
            return Err(Fault::failed(format!(
                "{what} takes at most {N} arguments, {} given",
                self.list.len()
            )));
        }
        let mut list = self.list.into_iter();
        let mut bound = names.map(|_| list.next());
        for (name, value) in self.named {
            let slot = names.iter().zip(&mut bound).find(|(known, _)| **known == name.as_str());
            match slot {
                Some((_, slot @ None)) => *slot = Some(value),
                Some(_) => return Err(Fault::failed(format!("{what}: {:?} is given twice", name.as_str()))),
                None => return Err(Fault::failed(format!("{what} takes no argument {:?}", name.as_str()))),
            }
        }
        Ok(bound)
    }

    /// Return the only argument.
    ///
    /// # Errors
    /// [`Fault::Failed`], naming `what`, if there is none, or more than one.
    pub(super) fn one(self, what: &str) -> Eval<Val> {
        let [value] = self.bind(what, [""])?;
        value.ok_or_else(|| Fault::failed(format!("{what} needs an argument")))
    }

    /// Check that there are no arguments.
    ///
    /// # Errors
    /// [`Fault::Failed`], naming `what`, if there are any.
    pub(super) fn none(self, what: &str) -> Eval<()> {
        self.bind(what, []).map(|_: [Option<Val>; 0]| ())
    }
}
