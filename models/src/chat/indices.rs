//! Indices and slices of sequences, as in Python: negative numbers count from the end, and the
//! bounds of slices are clamped to the sequence instead of being faults.

/// Return the index of element `n`, counted from the end if negative; `None` if there is no such
/// element.
pub(super) fn index(n: i64, len: usize) -> Option<usize> {
    let n = if n < 0 { n.checked_add(i64::try_from(len).ok()?)? } else { n };
    usize::try_from(n).ok().filter(|n| *n < len)
}

/// The indices that a slice takes, in order. All of them are below the length of the sequence.
pub(super) struct Indices {
    /// The next index.
    pub(super) first: usize,
    /// The distance between indices, never 0.
    step: i64,
    /// The number of indices left.
    pub(super) left: usize,
}

impl Iterator for Indices {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.first;
        self.first = index.saturating_add_signed(self.step as isize);
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Indices {}

/// Return the indices that Python's `[start:stop:step]` takes of `len` elements. `step` is not 0.
///
/// The default of a bound is the end of the sequence from which the step leads away.
pub(super) fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> Indices {
    let len = len as i64;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(n) if n < 0 => n.saturating_add(len).clamp(lowest, highest),
        Some(n) => n.clamp(lowest, highest),
    };
    let (start, stop) =
        if step > 0 { (bound(start, 0), bound(stop, len)) } else { (bound(start, len - 1), bound(stop, -1)) };
    let distance = if step > 0 { stop - start } else { start - stop };
    let step = step.max(-i64::MAX);
    let left = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    Indices { first: start.max(0) as usize, step, left: left as usize }
}
