//! The examples that show how to build on a store, each run, and run again on the store that it has left.
#![allow(clippy::unwrap_used, dead_code)] // a test; it does not call the examples' main

#[path = "../examples/counters.rs"]
mod counters;
#[path = "../examples/event_store.rs"]
mod event_store;
#[path = "../examples/queue.rs"]
mod queue;
#[path = "../examples/time_series.rs"]
mod time_series;

#[test]
fn an_event_store_finds_events_by_its_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let (of_ann, orders) = event_store::run(dir.path()).unwrap();
    assert_eq!(of_ann, ["ann visit /", "ann order pear", "ann visit /thanks"]);
    assert_eq!(orders, 3);
    let (of_ann, orders) = event_store::run(dir.path()).unwrap();
    assert_eq!((of_ann.len(), orders), (6, 6));
}

#[test]
fn a_queue_loses_no_job_and_does_none_twice() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..20).map(|i| format!("job {i:02}")).collect();
    for _ in 0..2 {
        assert_eq!(queue::run(dir.path()).unwrap(), all);
    }
}

#[test]
fn counters_add_up() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(counters::run(dir.path()).unwrap(), (300, 1000));
    assert_eq!(counters::run(dir.path()).unwrap(), (300, 2000));
    let db = ringdb::Db::open(dir.path(), ringdb::Options::default()).unwrap();
    assert!(!counters::transfer(&db, "ann", "bob", 301).unwrap(), "nobody has so much");
}

#[test]
fn a_time_series_forgets_by_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let hour = |start, mean| time_series::Hour { start, points: 120, mean };
    for _ in 0..2 {
        let (hours, newest) = time_series::run(dir.path()).unwrap();
        assert_eq!(hours, [hour(3600, 21.5), hour(7200, 22.5)]);
        assert_eq!(newest, Some((179 * 60, 12.0)));
    }
}

#[test]
fn points_of_a_time_series_expire_and_means_stay() {
    let dir = tempfile::tempdir().unwrap();
    // Long enough to be settled first on a busy machine.
    let (left, means) = time_series::outlived(dir.path(), std::time::Duration::from_secs(2)).unwrap();
    let hour = |start, mean| time_series::Hour { start, points: 60, mean };
    assert_eq!((left, means), (0, vec![hour(0, 29.5), hour(3600, 89.5)]));
}
