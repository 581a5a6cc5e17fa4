use super::*;
use crate::http::client::Address;

fn owner() -> Owner {
    Owner::Address(Some(Address::new([127, 0, 0, 1].into())))
}

fn job(queue: &Arc<RunQueue>, class: Class) -> Arc<Job> {
    let permit = queue.enter(owner(), class).try_recv().unwrap();
    Job::new(queue.clone(), owner(), class, permit)
}

/// Let the turn of a piece of work be over.
fn age(job: &Job, time: Duration) {
    let mut run = job.run();
    run.since = run.since.checked_sub(time).unwrap();
}

#[test]
fn work_ends_when_its_client_leaves_or_its_time_is_over() {
    let queue = RunQueue::new(2, 4);
    let left = job(&queue, Class::Short);
    assert!(!left.is_over());
    drop(Leave(left.clone()));
    assert!(left.is_over());
    let late = job(&queue, Class::Short);
    age(&late, MOST_TIME);
    assert!(late.is_over());
    assert!(late.end());
    let done = job(&queue, Class::Short);
    age(&done, TURN);
    assert!(!done.end());
    assert!(!done.is_over() && done.run().permit.is_none(), "work that has ended takes no permit");
}

#[test]
fn what_is_for_all_clients_is_not_counted() {
    let job = job(&RunQueue::new(2, 4), Class::Short);
    let (since, time) = (job.run().since, Duration::from_millis(3));
    WorkTime(Some(job.clone())).pause(|| std::thread::sleep(time));
    assert!(job.run().since >= since + time);
}

#[test]
fn work_that_takes_long_gives_way_to_short_work() {
    let queue = RunQueue::new(2, 4);
    let (one, two) = (job(&queue, Class::Short), job(&queue, Class::Short));
    let mut short = queue.enter(owner(), Class::Short);
    age(&one, TURN);
    assert!(!one.is_over() && one.run().class == Class::Long, "one piece of long work goes on");
    assert!(short.try_recv().is_err());
    age(&two, TURN);
    let two = std::thread::spawn(move || two.is_over());
    let _short = short.blocking_recv().unwrap();
    drop(one);
    assert!(!two.join().unwrap(), "the other one is next");
}

#[test]
fn work_that_never_looks_keeps_no_permit_of_short_work() {
    let queue = RunQueue::new(2, 1);
    let (one, two) = (job(&queue, Class::Short), job(&queue, Class::Short));
    let mut short = queue.enter(owner(), Class::Short);
    one.run_free();
    let _three = short.try_recv().unwrap();
    two.run_free();
    // No more than a few may run so.
    let mut fourth = queue.enter(owner(), Class::Short);
    assert!(fourth.try_recv().is_err());
    assert!(!two.end());
    assert!(fourth.try_recv().is_ok());
}

#[test]
fn who_leaves_while_work_waits_gives_its_place_back() {
    let queue = RunQueue::new(2, 1);
    let long = job(&queue, Class::Long);
    let left = job(&queue, Class::Short);
    age(&left, TURN);
    let leave = Leave(left.clone());
    let waits = {
        let left = left.clone();
        std::thread::spawn(move || (left.is_over(), left.end()))
    };
    while left.waiting().is_none() {
        std::thread::yield_now();
    }
    drop(leave);
    assert_eq!(waits.join().unwrap(), (true, false), "no turn was free for it");
    assert!(long.run().permit.is_some());
    let mut places: Vec<_> = (0..2).map(|_| queue.enter(owner(), Class::Short)).collect();
    assert!(places[0].try_recv().is_ok());
}

#[test]
fn results_and_failures_come_back() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::default();
    let seven = runtime.block_on(blocking(&client, Class::Short, |client| {
        assert!(!client.cancel().is_cancelled());
        Ok(7)
    }));
    assert_eq!(seven.unwrap(), 7);
    let broken = runtime.block_on(blocking::<()>(&client, Class::Long, |_| panic!("a test")));
    assert_eq!(broken.unwrap_err().kind(), ErrorKind::Server);
}
