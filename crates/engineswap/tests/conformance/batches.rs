//! `run` and `run_with`.

use engineswap::{ErrorKind, Op, OpClass, OpKind, OpenHow};

use crate::{Case, Ctx, P, buf, bytes, page, read_page, write_page};

pub const CASES: &[Case] = &[
    ("batches::larger_than_any_queue", larger_than_any_queue),
    ("batches::results_in_order_and_tags_kept", results_in_order_and_tags_kept),
    ("batches::small_ones", small_ones),
    ("batches::as_they_come_and_from_within", as_they_come_and_from_within),
    ("batches::chains", chains),
    ("batches::refused_in_the_middle", refused_in_the_middle),
    ("batches::from_many_threads", from_many_threads),
    ("batches::threads_that_end", threads_that_end),
    ("batches::threads_leave_no_descriptors", threads_leave_no_descriptors),
    ("batches::count_what_is_in_flight", count_what_is_in_flight),
];

fn larger_than_any_queue(c: &Ctx) {
    let f = c.filled("f", 500);
    let ops: Vec<_> = (0..1500u64).map(|i| read_page(&f, i * 7 % 500)).collect();
    let want: Vec<u64> = ops.iter().map(|o| o.user).collect();
    let done = c.io.run(ops);
    assert_eq!(done.iter().map(|d| d.user).collect::<Vec<_>>(), want);
    for d in done {
        assert_eq!(d.result.unwrap(), 4096);
        assert!(bytes(&d.buf) == page(d.user));
    }
    let done = c.io.run((500..900).map(|i| write_page(&f, i)).collect());
    assert!(done.iter().all(|d| *d.result.as_ref().unwrap() == 4096));
    let mut b = vec![0; 4096];
    for i in 500..900 {
        f.read_exact_at(&mut b, i * 4096, P).unwrap();
        assert!(b == page(i), "page {i}");
    }
}

fn results_in_order_and_tags_kept(c: &Ctx) {
    let f = c.filled("f", 4);
    f.set_len(3 * 4096 + 1024).unwrap();
    let write_only = {
        let how =
            engineswap::OpenHow { read: false, write: true, direct: c.how().direct, ..Default::default() };
        c.io.open(&c.dir.join("f"), &how).unwrap()
    };
    let tag = u64::MAX - 7;
    let done = c.io.run(vec![
        read_page(&f, 3).user(tag),
        read_page(&write_only, 0).user(tag),
        read_page(&f, 9).user(1),
        read_page(&f, 0).user(tag),
    ]);
    let got: Vec<_> =
        done.iter().map(|d| (d.user, d.result.as_ref().map_err(|e| e.errno()).copied())).collect();
    assert_eq!(got, [(tag, Ok(1024)), (tag, Err(Some(libc::EBADF))), (1, Ok(0)), (tag, Ok(4096))]);
    let e = done.into_iter().nth(2).unwrap().full(4096, "read").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
}

fn small_ones(c: &Ctx) {
    let f = c.filled("f", 4);
    assert!(c.io.run(Vec::new()).is_empty());
    let d = c.io.run(vec![read_page(&f, 2).then()]).remove(0);
    assert_eq!((d.result.unwrap(), bytes(&d.buf)), (4096, &page(2)[..]));
    for n in 2..5u64 {
        let done = c.io.run((0..n).map(|i| read_page(&f, i)).collect());
        assert!(done.iter().all(|d| bytes(&d.buf) == page(d.user)));
    }
}

fn as_they_come_and_from_within(c: &Ctx) {
    let f = c.filled("f", 64);
    let mut seen = [0; 64];
    c.io.run_with((0..64).map(|i| read_page(&f, i)), |d| {
        assert!(bytes(&d.buf) == page(d.user));
        seen[d.user as usize] += 1;
        if d.user % 16 == 3 {
            let inner = c.io.run((0..5).map(|i| read_page(&f, i)).collect());
            assert!(inner.iter().all(|d| bytes(&d.buf) == page(d.user)));
        }
    });
    assert_eq!(seen, [1; 64]);
    // A callback that panics takes its batch along, and nothing else.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        c.io.run_with((0..64).map(|i| read_page(&f, i)), |d| {
            if d.user == 5 {
                std::panic::resume_unwind(Box::new("as asked"));
            }
        });
    }));
    assert!(panicked.is_err());
    // And so does one that makes the operations, with some in flight.
    let half = |i| if i < 40 { read_page(&f, i) } else { std::panic::resume_unwind(Box::new("as asked")) };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        c.io.run_with((0..64).map(half), |d| assert!(bytes(&d.buf) == page(d.user)));
    }));
    assert!(panicked.is_err());
    for n in 0..3 {
        let mut all = 0;
        c.io.run_with((0..n).map(|i| read_page(&f, i)), |_| all += 1);
        assert_eq!(all, n);
    }
    assert!(
        c.io.run((0..64).map(|i| read_page(&f, i)).collect()).iter().all(|d| bytes(&d.buf) == page(d.user))
    );
}

fn chains(c: &Ctx) {
    let f = c.filled("f", 4);
    // Longer than the queues of some engines here.
    let n = 300u64;
    let ops = (0..n).map(|i| if i % 2 == 0 { write_page(&f, 4 + i) } else { read_page(&f, 3 + i) });
    let done = c.io.run(ops.map(|o| o.then()).collect());
    assert!(done.iter().all(|d| *d.result.as_ref().unwrap() == 4096));
    for d in done.iter().filter(|d| d.user % 2 == 0) {
        assert!(bytes(&d.buf) == page(d.user));
    }
    // The last one was chained to nothing: the next batch starts afresh. And a break is a break to the end.
    let mut ops: Vec<_> = (0..n).map(|i| read_page(&f, i % 4).user(i).then()).collect();
    ops[40].len = 1 << 20;
    ops[200].chain = false;
    for (i, d) in c.io.run(ops).into_iter().enumerate() {
        let want = match i {
            40 => Err(ErrorKind::InvalidInput),
            41..=200 => Err(ErrorKind::Canceled),
            _ => Ok(4096),
        };
        assert_eq!(d.result.map_err(|e| e.kind()), want, "operation {i}");
    }
    let bad = engineswap::Op::read(&f, 0, 1 << 20, buf(4096), P);
    assert!(c.io.run(vec![read_page(&f, 0), bad.then()])[1].result.is_err());
    assert!(c.io.run((0..4).map(|i| read_page(&f, i)).collect()).iter().all(|d| d.result.is_ok()));
}

fn from_many_threads(c: &Ctx) {
    let f = c.filled("f", 128);
    std::thread::scope(|s| {
        for t in 0..8u64 {
            let (f, io) = (&f, &c.io);
            s.spawn(move || {
                for round in 0..6u64 {
                    let own = 128 + t * 16..128 + t * 16 + 16;
                    let mut ops: Vec<_> = own.clone().map(|i| write_page(f, i)).collect();
                    ops.extend((0..32).map(|i| read_page(f, (i * 5 + t + round) % 128)));
                    for d in io.run(ops) {
                        assert_eq!(d.result.unwrap(), 4096);
                        assert!(bytes(&d.buf) == page(d.user));
                    }
                    let back = io.run(own.map(|i| read_page(f, i)).collect());
                    assert!(back.iter().all(|d| bytes(&d.buf) == page(d.user)));
                }
            });
        }
    });
}

fn threads_that_end(c: &Ctx) {
    let f = c.filled("f", 8);
    for _ in 0..5 {
        std::thread::scope(|s| {
            let t = s.spawn(|| c.io.run((0..8).map(|i| read_page(&f, i)).collect()));
            assert!(t.join().unwrap().iter().all(|d| bytes(&d.buf) == page(d.user)));
        });
    }
    // An engine that ends before the thread that used it.
    let other = engineswap::Io::from_uri(c.uri).unwrap();
    let g = if c.simulated() {
        // A disk of its own, which is empty.
        other.create_dir_all(&c.dir).unwrap();
        Ctx { io: other.clone(), dir: c.dir.clone(), ..*c }.filled("f", 8)
    } else {
        other.open(&c.dir.join("f"), &c.how()).unwrap()
    };
    assert_eq!(other.run((0..8).map(|i| read_page(&g, i)).collect()).len(), 8);
    drop(other);
    let mut b = vec![0; 4096];
    g.read_exact_at(&mut b, 4096, P).unwrap();
    assert_eq!(b, page(1));
    assert_eq!(c.io.info().name, engineswap::Io::from_uri(&c.io.info().uri).unwrap().info().name);
}

/// Short threads one after the other and side by side: each makes a queue, and all are gone with their threads.
fn threads_leave_no_descriptors(c: &Ctx) {
    let f = c.filled("f", 8);
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("io_uring").count();
    let rounds = std::env::var("ENGINESWAP_TEST_THREADS").map_or(100, |n| n.parse::<usize>().unwrap()) / 4;
    // Less may be left later: a thread of the case before may still be on its way out.
    let mut before = (open(), mappings());
    for _ in 0..rounds {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let done = c.io.run((0..4).map(|i| read_page(&f, i)).collect());
                    assert!(done.iter().all(|d| bytes(&d.buf) == page(d.user)));
                });
            }
        });
        // A scope ends before its threads have ended.
        let mut tries = 0;
        loop {
            let now = (open(), mappings());
            if now.0 <= before.0 && now.1 <= before.1 {
                before = now;
                break;
            }
            tries += 1;
            assert!(tries < 10_000, "{before:?} before, {now:?} after");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn count_what_is_in_flight(c: &Ctx) {
    let f = c.filled("f", 64);
    let before = c.io.stats();
    for _ in 0..4 {
        c.io.run((0..64).map(|i| read_page(&f, i)).collect());
    }
    let s = c.io.stats().since(&before);
    let reads = s.of(OpClass::Read, P);
    assert_eq!((reads.ops, reads.bytes, reads.errors), (4 * 64, 4 * 64 * 4096, 0));
    assert_eq!(s.fallbacks, 0);
    // What the page cache has is done before the queue where buffered reads would wait in it one after the other.
    assert!((s.queue_ops..=s.queue_ops + s.inline).contains(&(4 * 64)), "{} and {}", s.queue_ops, s.inline);
    if s.queue_ops > 0 {
        assert!(s.average_queue_depth() >= 1.0, "{}", s.average_queue_depth());
        assert!(s.average_queue_depth() <= 64.0, "{}", s.average_queue_depth());
        assert!(s.average_reads_in_flight() > 0.0);
    }
}

/// The kernel takes what comes before a request that it refuses, and no more: the rest goes on all the same.
fn refused_in_the_middle(c: &Ctx) {
    let f = c.filled("f", 16);
    let read_only = c.io.open(&c.dir.join("f"), &OpenHow::read()).unwrap();
    let ops = (0..16u64).map(|n| match n {
        3 | 4 | 9 | 15 => Op { kind: OpKind::Write { dsync: true }, ..write_page(&read_only, n) },
        _ if n % 2 == 0 => Op { kind: OpKind::Write { dsync: true }, ..write_page(&f, n) },
        _ => read_page(&f, n),
    });
    for (n, d) in c.io.run(ops.collect()).into_iter().enumerate() {
        match n {
            3 | 4 | 9 | 15 => assert_eq!(d.result.unwrap_err().errno(), Some(libc::EBADF)),
            _ => {
                assert_eq!(d.result.unwrap(), 4096);
                assert_eq!(bytes(&d.buf), page(n as u64));
            }
        }
    }
}
