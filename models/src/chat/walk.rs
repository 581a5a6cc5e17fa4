//! Going through all there is inside a value, paying for each part. Lists can share their elements and namespaces can hold
//! themselves, so there can be far more of it than was ever made.

use alloc::vec::Vec;

use minijinja::Error;
use minijinja::value::{Value, ValueIter, ValueKind};

use super::meter::{ELEMENT, Meter};

impl Meter {
    /// Pays for all there is inside `value`.
    pub(super) fn pay_to_walk(&self, value: &Value) -> Result<(), Error> {
        let mut walk = Walk::into(value);
        while walk.cost <= self.left() && walk.step() {}
        self.pay(walk.cost)
    }

    /// Pays for comparing two values: no comparison goes further than the end of the lesser one.
    pub(super) fn pay_to_compare(&self, a: &Value, b: &Value) -> Result<(), Error> {
        let (mut a, mut b) = (Walk::into(a), Walk::into(b));
        loop {
            let lesser = if a.cost <= b.cost { &mut a } else { &mut b };
            if lesser.cost > self.left() || !lesser.step() {
                return self.pay(lesser.cost);
            }
        }
    }
}

/// What is still to be seen inside a value. It takes memory for how deep it is, not for how much there is.
struct Walk {
    open: Vec<(Value, ValueIter)>,
    cost: u64,
}

impl Walk {
    fn into(value: &Value) -> Self {
        let mut walk = Self { open: Vec::new(), cost: 0 };
        walk.enter(value.clone(), 1);
        walk
    }

    fn enter(&mut self, value: Value, base: u64) {
        let text = value.as_str().map_or(0, |text| text.len() as u64);
        self.cost = self.cost.saturating_add(base).saturating_add(text);
        if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
            && let Ok(items) = value.try_iter()
        {
            self.open.push((value, items));
        }
    }

    /// Goes on by one element or entry. False at the end.
    fn step(&mut self) -> bool {
        let Some((whole, items)) = self.open.last_mut() else { return false };
        let Some(item) = items.next() else {
            self.open.pop();
            return true;
        };
        let entry = (whole.kind() == ValueKind::Map).then(|| whole.get_item(&item).unwrap_or_default());
        self.enter(item, ELEMENT);
        if let Some(entry) = entry {
            self.enter(entry, 1);
        }
        true
    }
}
