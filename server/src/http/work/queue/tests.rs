use super::*;
use crate::engine::Tenant;
use backstitch_testing::Random;

/// The time of a turn.
const TURN: Duration = Duration::from_millis(50);

fn owner(n: usize) -> Owner {
    Owner::Key(Tenant::of(&[&n.to_string()]))
}

/// Take the permit of work that may run.
fn granted(waiting: &mut Receiver<Permit>) -> Option<Permit> {
    waiting.try_recv().ok()
}

#[test]
fn short_work_never_waits_for_long_work() {
    for n_permits in 1..5 {
        let queue = RunQueue::new(n_permits, 100);
        let mut long: Vec<_> = (0..10).map(|n| queue.enter(owner(n % 2), Class::Long)).collect();
        let running: Vec<_> = long.iter_mut().filter_map(granted).collect();
        assert_eq!(running.len(), n_permits.max(2) - 1, "all permits but one");
        for _ in 0..10 {
            assert!(granted(&mut queue.enter(owner(0), Class::Short)).is_some());
        }
    }
}

#[test]
fn long_work_goes_on_beside_any_amount_of_short_work() {
    let queue = RunQueue::new(2, 200);
    let first = granted(&mut queue.enter(owner(0), Class::Short)).unwrap();
    let second = granted(&mut queue.enter(owner(0), Class::Short)).unwrap();
    let mut waiting: Vec<_> = (0..100).map(|_| queue.enter(owner(0), Class::Short)).collect();
    let mut long = queue.enter(owner(1), Class::Long);
    assert!(granted(&mut long).is_none());
    drop(first);
    assert!(granted(&mut long).is_some());
    drop(second);
    assert!(granted(&mut waiting[0]).is_some());
}

#[test]
fn owners_take_turns() {
    for class in [Class::Short, Class::Long] {
        let queue = RunQueue::new(2, 200);
        // One permit is taken for good.
        let _short = granted(&mut queue.enter(owner(9), Class::Short)).unwrap();
        let mut running = granted(&mut queue.enter(owner(9), class)).unwrap();
        let many: Vec<_> = (0..50).map(|_| queue.enter(owner(0), class)).collect();
        let few: Vec<_> = (0..3).map(|_| queue.enter(owner(1), class)).collect();
        let mut waiting: Vec<_> = many.into_iter().chain(few).map(Some).collect();
        let mut order = Vec::new();
        while order.len() < 10 {
            drop(running);
            let mut next = waiting.iter_mut().enumerate();
            let (index, permit) = next.find_map(|(i, slot)| Some((i, granted(slot.as_mut()?)?))).unwrap();
            waiting[index] = None;
            order.push(index);
            running = permit;
        }
        assert_eq!(order, [0, 50, 1, 51, 2, 52, 3, 4, 5, 6], "{class:?}");
    }
}

#[test]
fn places_are_bounded_with_a_share_for_everybody() {
    let queue = RunQueue::new(2, 1);
    // Work that runs without a permit keeps its place.
    let begin = |n| {
        let mut permit = granted(&mut queue.enter(owner(n), Class::Short))?;
        permit.take_place()
    };
    let mut all: Vec<_> = (0..3).map(|_| begin(0).unwrap()).collect();
    assert!(begin(0).is_none());
    let _other = begin(1).unwrap();
    assert!(begin(1).is_none());
    all.truncate(1);
    assert!(begin(1).is_some());
    let many: Vec<_> = (2..100).map_while(begin).collect();
    assert_eq!(many.len(), MOST_TIMES * 3 - 2);
    let large = RunQueue::new(1000, 16);
    let begin = |n| granted(&mut large.enter(owner(n), Class::Short))?.take_place();
    let many: Vec<_> = (0..1000).map_while(begin).collect();
    assert_eq!(many.len(), MOST_BEGUN, "on a machine of any number of cores");
}

/// Work of one owner that takes several turns, much more than has places, all ends, in order.
#[test]
fn work_of_several_turns_waits_and_is_never_refused() {
    for (n_permits, n_turns) in [(2, 2), (4, 4), (8, 3)] {
        let queue = RunQueue::new(n_permits, 16);
        let mut waiting: Vec<_> =
            (0..64_usize).map(|n| (n, 0, None, queue.enter(owner(0), Class::Short))).collect();
        let (mut running, mut ended) = (VecDeque::new(), Vec::new());
        while ended.len() < 64 {
            waiting.retain_mut(|(n, turn, place, receiver)| match granted(receiver) {
                Some(mut permit) => {
                    let place: Option<Place> = place.take().or_else(|| permit.take_place());
                    running.push_back((*n, *turn + 1, place.unwrap(), permit));
                    false
                }
                None => true,
            });
            let n_begun = running.len() + waiting.iter().filter(|(_, turn, ..)| *turn > 0).count();
            assert!(n_begun <= n_permits + 16, "{n_begun} have begun");
            let (n, turn, place, permit) = running.pop_front().unwrap();
            if turn == n_turns {
                ended.push(n);
            } else {
                waiting.push((n, turn, Some(place), queue.enter_again(owner(0), TURN * turn as u32).0));
            }
            drop(permit);
        }
        assert!(ended.iter().enumerate().all(|(i, &n)| n.abs_diff(i) <= n_permits + 16), "{ended:?}");
    }
}

/// Work that needs one more turn does not wait for all that run for long, and these get every other
/// turn.
#[test]
fn work_that_ran_least_goes_first_every_second_time() {
    let queue = RunQueue::new(2, 100);
    let mut running = granted(&mut queue.enter(owner(0), Class::Long)).unwrap();
    let ran = [5, 4, 3, 1, 2];
    let mut waiting: Vec<_> = ran.iter().map(|&n| queue.enter_again(owner(0), n * TURN).0).collect();
    let mut order = Vec::new();
    while order.len() < ran.len() {
        drop(running);
        let next = waiting.iter_mut().enumerate().find_map(|(i, slot)| Some((i, granted(slot)?)));
        let (index, permit) = next.unwrap();
        order.push(index);
        running = permit;
    }
    assert_eq!(order, [3, 0, 4, 1, 2]);
}

/// Random arrivals, ends and departures: the promises of the queue hold after each of them, and
/// nothing is lost at the end.
#[test]
fn fresh_work_does_not_wait_for_all_that_has_begun() {
    let queue = RunQueue::new(2, 100);
    let _place = granted(&mut queue.enter(owner(0), Class::Short)).unwrap();
    let running = granted(&mut queue.enter(owner(0), Class::Long)).unwrap();
    let mut begun: Vec<_> = (0..4).map(|_| queue.enter_again(owner(0), TURN).0).collect();
    let mut fresh = queue.enter(owner(0), Class::Long);
    drop(running);
    // One piece that has begun goes first, and wants another turn.
    let permit = begun.iter_mut().find_map(granted).unwrap();
    begun.push(queue.enter_again(owner(0), 2 * TURN).0);
    assert!(granted(&mut fresh).is_none());
    drop(permit);
    let permit = granted(&mut fresh).unwrap();
    drop(permit);
    assert!(begun.iter_mut().find_map(granted).is_some());
}

#[test]
fn promises_hold_whatever_happens() {
    let mut random = Random::new(40);
    for _ in 0..200 {
        let n_permits = 2 + random.below(4);
        let queue = RunQueue::new(n_permits, 100);
        let mut waiting: Vec<(Class, Receiver<Permit>)> = Vec::new();
        let mut running: Vec<(Class, Permit)> = Vec::new();
        for _ in 0..100 {
            match random.below(4) {
                0 | 1 => {
                    let class = [Class::Short, Class::Long][random.below(2)];
                    waiting.push((class, queue.enter(owner(random.below(3)), class)));
                }
                2 if !running.is_empty() => {
                    drop(running.swap_remove(random.below(running.len())));
                }
                3 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(random.below(waiting.len())));
                }
                _ => {}
            }
            waiting.retain_mut(|(class, slot)| match granted(slot) {
                Some(permit) => {
                    running.push((*class, permit));
                    false
                }
                None => true,
            });
            let n = |of: Class| running.iter().filter(|(class, _)| *class == of).count();
            let waits = |of: Class| waiting.iter().any(|(class, _)| *class == of);
            assert!(running.len() <= n_permits && n(Class::Long) < n_permits);
            assert!(!waits(Class::Short) || running.len() == n_permits, "a permit lies idle");
            assert!(!waits(Class::Long) || n(Class::Long) + 1 == n_permits || running.len() == n_permits);
        }
        drop((waiting, running));
        let mut rest: Vec<_> = (0..n_permits).map(|_| queue.enter(owner(0), Class::Short)).collect();
        assert_eq!(rest.iter_mut().filter_map(granted).count(), n_permits, "permits are lost");
    }
}
