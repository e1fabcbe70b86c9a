//! Queues that threads share: the same contract, from several threads at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engineswap::{Done, ErrorKind, Op, OpKind, SharedQueue};

use crate::{Case, Ctx, P, bytes, page, read_page, write_page};

pub const CASES: &[Case] = &[
    ("shared::threads_write_and_read_through_one_queue", threads_write_and_read_through_one_queue),
    ("shared::chains_of_threads_do_not_mix", chains_of_threads_do_not_mix),
    ("shared::what_is_cancelled_comes_back_once", what_is_cancelled_comes_back_once),
    ("shared::dropped_with_operations_in_flight", dropped_with_operations_in_flight),
];

fn push(q: &SharedQueue, mut ops: Vec<Op>) {
    while let Err(back) = q.push_all(ops) {
        ops = back;
        std::thread::yield_now();
    }
}

fn take(q: &SharedQueue, user: u64) -> Done {
    q.take(user).unwrap().unwrap_or_else(|| panic!("operation {user} is gone"))
}

fn threads_write_and_read_through_one_queue(c: &Ctx) {
    let f = c.open("f");
    let q = c.io.shared_queue(7).unwrap();
    std::thread::scope(|s| {
        for t in 0..3u64 {
            let (q, f) = (&q, &f);
            s.spawn(move || {
                // Pages of its own, each written, then read by its tag, the last first.
                for round in 0..8 {
                    let mine = |i: u64| t * 64 + round * 4 + i;
                    push(q, (0..4).map(|i| write_page(f, mine(i))).collect());
                    for i in (0..4).rev() {
                        assert_eq!(take(q, mine(i)).result.unwrap(), 4096);
                    }
                    push(q, (0..4).map(|i| read_page(f, mine(i))).collect());
                    for i in (0..4).rev() {
                        let done = take(q, mine(i));
                        assert_eq!((done.result.unwrap(), bytes(&done.buf)), (4096, &page(mine(i))[..]));
                    }
                }
            });
        }
    });
    assert_eq!(q.in_flight(), 0);
}

fn chains_of_threads_do_not_mix(c: &Ctx) {
    let f = c.filled("f", 1);
    let q = c.io.shared_queue(16).unwrap();
    std::thread::scope(|s| {
        for t in 0..3u64 {
            let (q, f) = (&q, &f);
            s.spawn(move || {
                for round in 0..10 {
                    let page = |i| 8 + t * 8 + i;
                    let tag = |i| t * 100 + i;
                    let mut ops = vec![
                        write_page(f, page(round % 4)).user(tag(0)).then(),
                        read_page(f, page(round % 4)).user(tag(1)).then(),
                        Op::sync_data(f, P).user(tag(2)),
                    ];
                    let breaks = round % 2 == 1;
                    if breaks {
                        // Beyond the end of the file: a short read ends the chain.
                        ops[1].offset = 1 << 30;
                    }
                    push(q, ops);
                    let results = [0, 1, 2].map(|i| take(q, tag(i)).result.map_err(|e| e.kind()));
                    let want = match breaks {
                        false => [Ok(4096), Ok(4096), Ok(0)],
                        true => [Ok(4096), Ok(0), Err(ErrorKind::Canceled)],
                    };
                    assert_eq!(results, want);
                }
            });
        }
    });
}

fn what_is_cancelled_comes_back_once(c: &Ctx) {
    let f = c.filled("f", 8);
    let q = c.io.shared_queue(8).unwrap();
    let canceled = AtomicU64::new(0);
    std::thread::scope(|s| {
        for t in 0..2u64 {
            let (q, f, canceled) = (&q, &f, &canceled);
            s.spawn(move || {
                for i in 0..20u64 {
                    let sync = Op::new(OpKind::SyncAll, f, 0, 0, engineswap::Buf::None, P);
                    push(q, vec![read_page(f, i % 8).user(t << 8 | i), sync.user(t << 8 | 0x80)]);
                    if i % 3 == 0 {
                        q.submit().unwrap();
                    }
                    q.cancel(t << 8 | i).unwrap();
                    let done = take(q, t << 8 | i);
                    match done.result {
                        Ok(n) => assert_eq!((n, bytes(&done.buf)), (4096, &page(i % 8)[..])),
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Canceled, "{e}");
                            canceled.fetch_add(1, Relaxed);
                        }
                    }
                    assert_eq!(take(q, t << 8 | 0x80).result.unwrap(), 0);
                    assert!(q.take(t << 8 | i).unwrap().is_none());
                }
            });
        }
    });
    assert_eq!(q.in_flight(), 0);
}

fn dropped_with_operations_in_flight(c: &Ctx) {
    let f = c.open("f");
    let q = c.io.shared_queue(8).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            push(&q, (0..8).map(|n| write_page(&f, n)).collect());
            q.submit().unwrap();
        });
    });
    // Another thread than the one that submitted.
    drop(q);
    for n in 0..8 {
        let mut back = engineswap::mem::AlignedBuf::zeroed(4096);
        f.read_exact_at(&mut back, n * 4096, P).unwrap();
        assert!(back[..] == page(n));
    }
}
