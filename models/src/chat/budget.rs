//! The price of running a template.
//!
//! Everything that costs time or memory pays here before it happens: an evaluation step, a byte written or
//! read, an element made or looked at. So no filter or operator can cost more than it pays, however it is
//! called. The budget is sized by the input; the interrupt is asked at regular intervals of what is paid, so
//! that a clock or a person can stop a template before the budget does.

use super::error::Fault;

/// What a template may always pay.
const BASE: u64 = 1 << 26;
/// What it may pay beyond that for each byte and for each value of its input.
const PER_BYTE: u64 = 256;
const PER_VALUE: u64 = 1 << 12;
/// Texts stay below 4 GiB.
const MOST: u64 = u32::MAX as u64;
/// How much is paid between two looks at the interrupt: a few milliseconds of work.
const INTERVAL: u64 = 1 << 18;

/// The price of one evaluation step.
pub(super) const STEP: u64 = 8;
/// The price of one value made: as many units as it has bytes.
pub(super) const VALUE: u64 = 16;

/// What is left to pay, and who may say stop.
pub(super) struct Budget<'i> {
    left: u64,
    until_asked: u64,
    interrupt: &'i dyn Fn() -> Option<Fault>,
}

impl<'i> Budget<'i> {
    /// A budget for an input of so many bytes in so many values.
    pub(super) fn new(n_bytes: usize, n_values: usize, interrupt: &'i dyn Fn() -> Option<Fault>) -> Self {
        let more = (n_bytes as u64).saturating_mul(PER_BYTE);
        let more = more.saturating_add((n_values as u64).saturating_mul(PER_VALUE));
        Self { left: BASE.saturating_add(more).min(MOST), until_asked: 0, interrupt }
    }

    /// Pays `price`.
    pub(super) fn pay(&mut self, price: u64) -> Result<(), Fault> {
        self.left = self.left.checked_sub(price).ok_or(Fault::Work)?;
        match self.until_asked.checked_sub(price) {
            Some(rest) => self.until_asked = rest,
            None => {
                self.until_asked = INTERVAL;
                if let Some(fault) = (self.interrupt)() {
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Pays for `n` bytes copied or made.
    pub(super) fn bytes(&mut self, n: usize) -> Result<(), Fault> {
        self.pay(n as u64)
    }

    /// Pays for `n` bytes looked at in passing, which is quicker than making them.
    pub(super) fn scan(&mut self, n: usize) -> Result<(), Fault> {
        self.pay(n as u64 / 4 + 1)
    }

    /// Pays for `n` values made or gone through.
    pub(super) fn values(&mut self, n: usize) -> Result<(), Fault> {
        self.pay((n as u64).saturating_mul(VALUE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_budget_ends_and_asks_the_interrupt_at_intervals() {
        let asked = Cell::new(0);
        let interrupt = || {
            asked.set(asked.get() + 1);
            (asked.get() > 3).then_some(Fault::Time)
        };
        let mut budget = Budget::new(0, 0, &interrupt);
        let mut n = 0;
        let end = loop {
            if let Err(fault) = budget.pay(1 << 10) {
                break fault;
            }
            n += 1;
        };
        assert_eq!((end, n), (Fault::Time, 3 * ((INTERVAL >> 10) + 1)));
        let never = || None;
        let mut budget = Budget::new(10, 2, &never);
        assert_eq!(budget.pay(BASE + 10 * PER_BYTE + 2 * PER_VALUE), Ok(()));
        assert_eq!(budget.pay(1), Err(Fault::Work));
        assert_eq!(Budget::new(usize::MAX, 0, &never).left, MOST);
    }
}
