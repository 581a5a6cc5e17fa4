//! The budget of a running template.
//!
//! Everything that costs time or memory is charged before it happens: an evaluation step, a byte
//! written or read, an element made or visited. So no filter or operator can cost more than it
//! charges, however it is called. The budget grows with the input. The interrupt is checked at
//! regular intervals of the charge, so that a clock or a user can stop a template before the budget
//! does.

use super::error::Fault;

/// The budget without input.
const BASE: u64 = 1 << 26;
/// The further budget for each byte of the input.
const PER_BYTE: u64 = 256;
/// The further budget for each value of the input.
const PER_VALUE: u64 = 1 << 12;
/// The largest budget, which keeps texts below 4 GiB.
const MOST: u64 = u32::MAX as u64;
/// The charge between two checks of the interrupt: a few milliseconds of work.
const INTERVAL: u64 = 1 << 18;

/// The price of one evaluation step.
pub(super) const STEP: u64 = 8;
/// The price of making one value: its number of bytes.
pub(super) const VALUE: u64 = 16;

/// The units left, and the interrupt.
pub(super) struct Budget<'i> {
    /// The units left.
    left: u64,
    /// The units until the interrupt is checked again.
    until_asked: u64,
    /// The check for a deadline or a request to cancel.
    interrupt: &'i dyn Fn() -> Option<Fault>,
}

impl<'i> Budget<'i> {
    /// Make the budget for an input of so many bytes in so many values.
    pub(super) fn new(n_bytes: usize, n_values: usize, interrupt: &'i dyn Fn() -> Option<Fault>) -> Self {
        let more = (n_bytes as u64).saturating_mul(PER_BYTE);
        let more = more.saturating_add((n_values as u64).saturating_mul(PER_VALUE));
        Self { left: BASE.saturating_add(more).min(MOST), until_asked: 0, interrupt }
    }

    /// Charge `price`.
    ///
    /// # Errors
    /// [`Fault::Work`] if the budget is spent; the fault of the interrupt.
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

    /// Charge for `n` bytes copied or made.
    pub(super) fn bytes(&mut self, n: usize) -> Result<(), Fault> {
        self.pay(n as u64)
    }

    /// Charge for `n` bytes scanned, which is quicker than making them.
    pub(super) fn scan(&mut self, n: usize) -> Result<(), Fault> {
        self.pay(n as u64 / 4 + 1)
    }

    /// Charge for `n` values made or visited.
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
