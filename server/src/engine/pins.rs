//! Pins: the ends of messages at which a conversation stays reachable, thinned where the budget of
//! checkpoints does not hold all of them.
//!
//! Within the budget every end is held. Beyond it every second end is given up, from the oldest on:
//! the distances between the ends that are held are powers of two and become larger towards the
//! beginning, as the cost of an edit does, which re-evaluates everything behind it anyway. The
//! first and the newest end of a conversation go last.
//!
//! Nothing here knows about memory: [`give_up`] chooses, its caller unpins and tries again.

use backstitch_models::Pos;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the next pin.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A pinned end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pin {
    /// The number of the pin, the same in forks that share it.
    id: u64,
    /// The position of the token that follows.
    pos: Pos,
    /// The number of ends from the pin before to this one: 1 if none in between was given up.
    gap: u64,
}

/// The pinned ends of one conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins {
    /// The pins, ascending by position.
    list: Vec<Pin>,
}

/// A pin that a conversation can spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spare {
    /// The kind of pin: 0 for one between others, 1 for the first of several, 2 for the only one.
    kind: u8,
    /// The distance of its neighbours in proportion to its own distance from the newest end, for
    /// conversations used long ago divided by their number.
    loss: u64,
    /// The place in the list.
    index: usize,
}

impl Pins {
    /// Add the newest end.
    pub fn push(&mut self, pos: Pos) {
        self.list.retain(|pin| pin.pos <= pos);
        if self.list.last().is_some_and(|pin| pin.pos == pos) {
            return;
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.list.push(Pin { id, pos, gap: 1 });
    }

    /// Return the pins that a fork at `pos` shares.
    pub fn up_to(&self, pos: Pos) -> Pins {
        Pins { list: self.list.iter().copied().filter(|pin| pin.pos <= pos).collect() }
    }

    /// Follow what is pinned: forget other pins, and take in pins that came with a saved state.
    pub fn follow(&mut self, pinned: &[Pos]) {
        let mut i = 0;
        while let Some(pin) = self.list.get(i) {
            match pinned.contains(&pin.pos) {
                true => i += 1,
                false => self.remove(i),
            }
        }
        for &pos in pinned {
            let at = self.list.partition_point(|pin| pin.pos < pos);
            if self.list.get(at).is_none_or(|pin| pin.pos != pos) {
                let id = NEXT.fetch_add(1, Ordering::Relaxed);
                self.list.insert(at, Pin { id, pos, gap: 1 });
            }
        }
    }

    /// Remove a pin; the next one is as much farther from the one before.
    fn remove(&mut self, index: usize) {
        let gap = self.list.remove(index).gap;
        if let Some(next) = self.list.get_mut(index) {
            next.gap = next.gap.saturating_add(gap);
        }
    }

    /// Return the pin whose loss costs least, except those in `taken`. `age` is the number of
    /// conversations used since.
    fn spare(&self, age: u64, taken: &HashSet<u64>) -> Option<Spare> {
        let is_free = |index: usize| self.list.get(index).is_some_and(|pin| !taken.contains(&pin.id));
        if let Some(spare) = self.between(age, &is_free) {
            return Some(spare);
        }
        let kind = match self.list.len() {
            0 => return None,
            1 => 2,
            _ => 1,
        };
        // The conversation that was used longest ago has the least to lose.
        is_free(0).then_some(Spare { kind, loss: u64::MAX - age, index: 0 })
    }

    /// Return the pin between two others whose loss costs least: of those at equal distances from
    /// both, so that the distance doubles, or else the oldest.
    fn between(&self, age: u64, is_free: &dyn Fn(usize) -> bool) -> Option<Spare> {
        let mut best: Option<Spare> = None;
        let mut oldest = None;
        // The number of ends from the pin to the newest, and one more.
        let mut distance = 1 + self.list.iter().skip(1).map(|pin| pin.gap).sum::<u64>();
        let pairs = self.list.iter().zip(self.list.iter().skip(1)).enumerate().skip(1);
        for (index, (pin, next)) in pairs {
            distance = distance.saturating_sub(pin.gap);
            if !is_free(index) {
                continue;
            }
            let merged = pin.gap.saturating_add(next.gap);
            let loss = (u128::from(merged) << 32) / (u128::from(distance.max(1)) * u128::from(1 + age));
            let spare = Spare { kind: 0, loss: u64::try_from(loss).unwrap_or(u64::MAX), index };
            oldest = oldest.or(Some(spare));
            // Ties go to the oldest.
            if pin.gap == next.gap && best.is_none_or(|best| spare.loss < best.loss) {
                best = Some(spare);
            }
        }
        best.or(oldest)
    }
}

/// Choose the pin to give up, and forget it in all conversations that share it. `all` are the pins
/// of each conversation, the one used last first. Return the conversation and the position; `None`
/// if there is no pin.
///
/// Conversations used longer ago lose pins earlier, but none loses all of its pins before the
/// others were thinned. A pin that several share belongs to the one used last.
pub(super) fn give_up(all: &mut [&mut Pins]) -> Option<(usize, Pos)> {
    let mut taken = HashSet::new();
    let mut best: Option<(Spare, usize)> = None;
    for (age, pins) in all.iter().enumerate() {
        if let Some(spare) = pins.spare(age as u64, &taken) {
            best = Some(best.map_or((spare, age), |best| best.min((spare, age))));
        }
        taken.extend(pins.list.iter().map(|pin| pin.id));
    }
    let (spare, of) = best?;
    let Pin { id, pos, .. } = *all.get(of)?.list.get(spare.index)?;
    for pins in all {
        if let Some(index) = pins.list.iter().position(|pin| pin.id == id) {
            pins.remove(index);
        }
    }
    Some((of, pos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(pins: &Pins) -> Vec<i32> {
        pins.list.iter().map(|pin| pin.pos.0).collect()
    }

    fn gaps(pins: &Pins) -> Vec<u64> {
        pins.list.iter().skip(1).map(|pin| pin.gap).collect()
    }

    /// Numbers that look random.
    fn random(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) % below.max(1)
    }

    /// Push an end, and give up pins until at most `budget` are held; return the number given up.
    fn push(pins: &mut Pins, pos: i32, budget: usize) -> usize {
        let mut n = 0;
        while pins.list.len() >= budget {
            give_up(&mut [&mut *pins]).unwrap();
            n += 1;
        }
        pins.push(Pos(pos));
        n
    }

    #[test]
    fn every_end_is_held_within_the_budget_and_the_oldest_distances_double_beyond_it() {
        let mut state = 1;
        for _ in 0..100 {
            let budget = 16 + random(&mut state, 50) as usize;
            let (mut pins, mut ends, mut pos) = (Pins::default(), Vec::new(), 0);
            for n in 1..=random(&mut state, 300) as usize {
                pos += 1 + random(&mut state, 500) as i32;
                ends.push(pos);
                let n_given_up = push(&mut pins, pos, budget);
                let held = positions(&pins);
                // No more is lost than is needed.
                assert_eq!(n_given_up, usize::from(n > budget));
                assert_eq!(held.len(), n.min(budget));
                assert_eq!((held.first(), held.last()), (ends.first(), ends.last()));
                let numbers: Vec<u64> =
                    held.iter().map(|pos| ends.binary_search(pos).unwrap() as u64).collect();
                let between: Vec<u64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
                assert_eq!(between, gaps(&pins));
                assert!(between.iter().all(|gap| gap.is_power_of_two()), "{between:?}");
                assert!(between.windows(2).all(|pair| pair[0] >= pair[1]), "{between:?}");
                // The cost of an edit stays in proportion to what it re-evaluates anyway.
                for (i, gap) in between.iter().enumerate() {
                    let behind: u64 = between[i + 1..].iter().sum();
                    assert!(*gap == 1 || gap * budget as u64 <= 16 * (behind + 1), "{between:?}");
                }
            }
        }
    }

    #[test]
    fn every_second_of_the_older_half_goes_before_any_third() {
        let mut pins = Pins::default();
        (0..16).for_each(|i| pins.push(Pos(i)));
        let order: Vec<i32> = (0..4).map(|_| give_up(&mut [&mut pins]).unwrap().1.0).collect();
        assert_eq!(order, [1, 3, 5, 7]);
        assert_eq!(gaps(&pins), [2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn the_first_and_the_newest_end_go_last() {
        let mut pins = Pins::default();
        (0..6).for_each(|i| pins.push(Pos(i * 10)));
        let mut order = Vec::new();
        while let Some((_, pos)) = give_up(&mut [&mut pins]) {
            order.push(pos.0);
        }
        assert_eq!(order.len(), 6);
        assert_eq!(order[4..], [0, 50]);
    }

    #[test]
    fn conversations_used_long_ago_are_thinned_first_and_none_to_nothing() {
        let mut all: Vec<Pins> = (0..8).map(|_| Pins::default()).collect();
        for pins in &mut all {
            (0..20).for_each(|i| pins.push(Pos(i)));
        }
        let mut refs: Vec<&mut Pins> = all.iter_mut().collect();
        for n in 1..=8 * 18 {
            give_up(&mut refs).unwrap();
            let left: Vec<usize> = refs.iter().map(|pins| pins.list.len()).collect();
            assert!(left.iter().all(|n| *n >= 2), "{left:?}");
            assert!(left.windows(2).all(|pair| pair[0] >= pair[1]), "{left:?}");
            if n == 40 {
                // The latest lost little, and the oldest are not stripped.
                assert!(left[0] >= 18 && left[7] >= 5, "{left:?}");
            }
        }
        for n in (0..16).rev() {
            give_up(&mut refs).unwrap();
            assert_eq!(refs.iter().map(|pins| pins.list.len()).sum::<usize>(), n);
        }
        assert_eq!(give_up(&mut refs), None);
    }

    #[test]
    fn a_shared_pin_belongs_to_the_conversation_used_last() {
        let mut first = Pins::default();
        (0..10).for_each(|i| first.push(Pos(i)));
        let mut fork = first.up_to(Pos(6));
        (0..30).for_each(|i| fork.push(Pos(100 + i)));
        // The parent spares what the fork does not have, or the fork what it can spare itself.
        for _ in 0..20 {
            let before = positions(&fork);
            let (of, pos) = give_up(&mut [&mut fork, &mut first]).unwrap();
            assert!(of == 0 || !before.contains(&pos.0));
            assert!(!positions(&fork).contains(&pos.0) && !positions(&first).contains(&pos.0));
        }
    }

    #[test]
    fn pins_follow_what_is_pinned() {
        let mut pins = Pins::default();
        (1..=6).for_each(|i| pins.push(Pos(i * 10)));
        pins.follow(&[10, 15, 40, 60].map(Pos));
        assert_eq!(positions(&pins), [10, 15, 40, 60]);
        assert_eq!(gaps(&pins), [1, 3, 2]);
        pins.push(Pos(30));
        assert_eq!(positions(&pins), [10, 15, 30]);
    }
}
