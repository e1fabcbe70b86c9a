//! Waits that other threads and the time end.

use super::*;
use crate::mem::ReadPool;

#[test]
fn a_wait_is_ended_by_completions_by_wakes_and_by_time() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 8);
        let q = io.shared_queue(8).unwrap();
        bounded(|| {
            // Nothing is in flight: only a wake, also one that comes before, or the time.
            q.wake();
            q.wait_or_wake(None).unwrap();
            q.wait_or_wake(Some(Duration::ZERO)).unwrap();
            let start = std::time::Instant::now();
            q.wait_or_wake(Some(Duration::from_millis(5))).unwrap();
            assert!(start.elapsed() >= Duration::from_millis(5), "{}", io.info().uri);
            std::thread::scope(|s| {
                s.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    q.wake();
                });
                q.wait_or_wake(None).unwrap();
            });
            (0..8).for_each(|n| pushed(&q, read(&f, n, n)));
            let mut got = 0;
            while got < 8 {
                q.wait_or_wake(None).unwrap();
                while let Some(done) = q.pop() {
                    check(&done, done.user);
                    got += 1;
                }
            }
        });
    }
}

#[test]
fn a_failing_queue_ends_the_wait() {
    let (_dir, f) = some_file();
    let (q, _, failing, _) = gated();
    pushed(&q, read(&f, 0, 1));
    failing.store(true, SeqCst);
    bounded(|| assert!(q.wait_or_wake(None).is_err()));
    assert!(q.pop().is_some_and(|done| done.result.is_err()));
}

#[test]
fn a_buffer_that_comes_back_to_its_pool_ends_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 2);
        let (q, pool) = (io.shared_queue(8).unwrap(), ReadPool::new(4096, 1));
        let next = || {
            loop {
                q.wait_or_wake(None).unwrap();
                if let Some(done) = q.pop() {
                    break done;
                }
            }
        };
        let start = |n| pushed(&q, Op::read(&f, n * 4096, 4096, Buf::Pool(pool.clone()), P).user(n));
        bounded(|| {
            start(0);
            let first = next();
            start(1);
            std::thread::scope(|s| {
                s.spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    drop(first);
                });
                let second = next();
                assert_eq!((second.user, second.result.unwrap()), (1, 4096), "{}", io.info().uri);
            });
        });
    }
}
