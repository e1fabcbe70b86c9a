use std::task::{Context, Poll, Waker};

use super::fetches::Asker;
use super::*;
use crate::db::get::Look;
use crate::db::lookup::Parked;
use crate::db::testing::{Fixture, Plan};

/// For whom a lookup is: the key of this number.
struct Numbered(usize);

/// Numbers from here on are of those who have gone.
const GONE: usize = 1 << 20;

impl Asker for Numbered {
    fn is_gone(&self) -> bool {
        self.0 >= GONE
    }
}

fn parked(f: &Fixture, key: &[u8]) -> Option<Parked> {
    match f.views.look(&f.prefix, key, Some(f.last_seq)).unwrap() {
        Look::Done(value) => {
            assert_eq!(value.as_deref(), f.expect(key, f.last_seq));
            None
        }
        Look::Parked(parked) => Some(parked),
    }
}

/// Takes lookups of all keys to their ends, with so many reads in flight at most.
fn all(f: &Fixture, io: &Io, window: usize) -> Arc<Counters> {
    let counters = Arc::new(Counters::default());
    let mut fetches = Fetches::new(io, window, Arc::clone(&counters));
    let keys: Vec<_> = f.model.keys().collect();
    let mut left = 0;
    for (i, key) in keys.iter().enumerate() {
        if let Some(parked) = parked(f, key) {
            fetches.add(Waiting { parked, fill_cache: i % 3 > 0, asker: Numbered(i) });
            left += 1;
        }
    }
    loop {
        fetches.start();
        assert!(fetches.in_flight() <= window);
        fetches.reap();
        for (asker, answer) in fetches.take_finished() {
            let key = keys[asker.0];
            assert_eq!(answer.unwrap().as_deref(), f.expect(key, f.last_seq), "{}", key.escape_ascii());
            left -= 1;
        }
        if left == 0 {
            assert_eq!(fetches.in_flight(), 0);
            return counters;
        }
        if fetches.in_flight() > 0 {
            fetches.wait(None);
        }
    }
}

fn small_cache(seed: u64, large_every: u64, filter_bits: u32) -> Fixture {
    Fixture::new(Plan { seed, large_every, filter_bits, cache_bytes: 1, ..Plan::default() })
}

#[test]
fn lookups_end_whatever_the_window_and_the_engine() {
    for (seed, large_every, filter_bits) in [(1, 0, 10), (2, 20, 0)] {
        for uri in ["posix", "libaio", "io_uring", "io_uring?depth=4"] {
            let Ok(io) = Io::from_uri(uri) else { continue };
            for window in [1, 7, 256] {
                let counters = all(&small_cache(seed, large_every, filter_bits), &io, window);
                let (reads, joined) = (counters.reads.load(Relaxed), counters.joined.load(Relaxed));
                assert!(reads > 50 && joined > 100, "{uri}: {reads} reads, {joined} joined");
            }
        }
    }
}

#[test]
fn what_nobody_waits_for_is_not_read() {
    let (f, io) = (small_cache(3, 0, 10), Io::from_uri("auto").unwrap());
    let counters = Arc::new(Counters::default());
    let mut fetches = Fetches::new(&io, 8, Arc::clone(&counters));
    for key in f.model.keys() {
        if let Some(parked) = parked(&f, key) {
            fetches.add(Waiting { parked, fill_cache: true, asker: Numbered(GONE) });
        }
    }
    fetches.start();
    assert_eq!((fetches.in_flight(), counters.reads.load(Relaxed)), (0, 0));
    assert!(fetches.take_finished().is_empty());
}

/// Somebody, or one of many who have gone.
struct Dropped(Option<Arc<()>>);

impl Asker for Dropped {
    fn is_gone(&self) -> bool {
        self.0.is_some()
    }
}

#[test]
fn what_nobody_waits_for_does_not_pile_up_behind_a_device_that_hangs() {
    let (f, io) = (small_cache(3, 0, 10), Io::from_uri("posix").unwrap());
    let counters = Arc::new(Counters::default());
    let mut fetches = Fetches::new(&io, 8, Arc::clone(&counters));
    let key = f.model.keys().find(|key| parked(&f, key).is_some()).unwrap();
    let waiting = |asker| Waiting { parked: parked(&f, key).unwrap(), fill_cache: true, asker };
    let run = |fetches: &mut Fetches<Dropped>, asker| {
        let view = f.views.newest();
        fetches.add_run(RunRead::all(&view.tables().tables()[0], 0, 1, true).next().unwrap(), asker);
    };
    let gone = Arc::new(());
    fetches.add(waiting(Dropped(None)));
    run(&mut fetches, Dropped(None));
    for _ in 0..20_000 {
        fetches.add(waiting(Dropped(Some(Arc::clone(&gone)))));
        run(&mut fetches, Dropped(Some(Arc::clone(&gone))));
    }
    assert!(Arc::strong_count(&gone) < 5000, "{} are kept", Arc::strong_count(&gone));
    let (mut values, mut runs) = (Vec::new(), 0);
    while values.is_empty() || runs == 0 {
        fetches.start();
        fetches.reap();
        values.extend(fetches.take_finished().into_iter().map(|(_, value)| value.unwrap()));
        runs += fetches.take_finished_runs().into_iter().filter(|(_, done)| done.is_ok()).count();
        if fetches.in_flight() > 0 {
            fetches.wait(None);
        }
    }
    assert_eq!((values[0].as_deref(), runs), (f.expect(key, f.last_seq), 1));
    assert!(counters.reads.load(Relaxed) < 20, "{counters:?}");
    assert_eq!(Arc::strong_count(&gone), 1);
}

#[test]
fn of_several_errors_the_first_is_told() {
    let ticket = Ticket::new(Waker::noop().clone(), 4, Answers::Many(vec![None, None, None, None]));
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| Question::new(&ticket, i));
    tell(a, Ok(None));
    tell(b, Err(Error::Invalid("first".into())));
    tell(c, Err(Error::Invalid("second".into())));
    // What nobody wants any more is let go of unanswered.
    drop(d);
    match ticket.poll(&Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(Error::Invalid(what))) => assert_eq!(what, "first"),
        Poll::Ready(Err(e)) => panic!("{e}"),
        _ => panic!("an error"),
    }
}
