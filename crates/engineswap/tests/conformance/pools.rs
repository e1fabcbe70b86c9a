//! Reads that choose their buffers from a pool.

use engineswap::mem::{PoolBuf, ReadPool};
use engineswap::{Buf, Done, ErrorKind, File, Op, OpKind, OpenHow, Queue};

use crate::{Case, Ctx, P, bytes, page, read_page, write_page};

pub const CASES: &[Case] = &[
    ("pools::more_reads_than_buffers", more_reads_than_buffers),
    ("pools::in_batches_and_alone", in_batches_and_alone),
    ("pools::what_reads_nothing_takes_nothing", what_reads_nothing_takes_nothing),
    ("pools::wrong_operations", wrong_operations),
    ("pools::chains", chains),
    ("pools::odd_ranges", odd_ranges),
    ("pools::dropped_queues_give_all_back", dropped_queues_give_all_back),
    ("pools::threads_share_one", threads_share_one),
    ("pools::taken_back_while_they_wait", taken_back_while_they_wait),
];

fn pooled(f: &File, n: u64, pool: &ReadPool) -> Op {
    Op::read_from_pool(f, n * 4096, 4096, pool, P).user(n)
}

/// All buffers of the pool, which are all free.
fn whole(pool: &ReadPool) -> Vec<PoolBuf> {
    let all: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(all.len(), pool.count(), "buffers are missing");
    all
}

fn check(d: &Done) {
    assert_eq!(*d.result.as_ref().unwrap(), 4096);
    assert!(matches!(d.buf, Buf::Pooled(_)));
    assert!(bytes(&d.buf) == page(d.user), "page {}", d.user);
}

fn each(q: &mut Queue, mut f: impl FnMut(Done)) {
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        while let Some(d) = q.pop() {
            f(d);
        }
    }
}

fn more_reads_than_buffers(c: &Ctx) {
    let f = c.filled("f", 64);
    let pool = ReadPool::new(4096, 4);
    let mut q = c.io.queue(32).unwrap();
    let mut seen = [0; 64];
    for half in [0, 32] {
        for n in half..half + 32 {
            q.push(pooled(&f, n, &pool)).unwrap();
        }
        // Some are kept for a while, never all.
        let mut kept = Vec::new();
        each(&mut q, |d| {
            check(&d);
            seen[d.user as usize] += 1;
            kept.push(d);
            if kept.len() == 3 {
                kept.iter().for_each(check);
                kept.clear();
            }
        });
    }
    assert_eq!(seen, [1; 64]);
    whole(&pool);
    // As many as there are buffers, all kept, beside reads that need none.
    for n in 0..4 {
        q.push(pooled(&f, n, &pool)).unwrap();
        q.push(read_page(&f, 10 + n)).unwrap();
    }
    let mut all = Vec::new();
    each(&mut q, |d| all.push(d));
    assert!(all.len() == 8 && all.iter().all(|d| bytes(&d.buf) == page(d.user)));
    assert!(pool.take().is_none());
    drop(all);
    whole(&pool);
}

fn in_batches_and_alone(c: &Ctx) {
    let f = c.filled("f", 16);
    let pool = ReadPool::new(4096, 8);
    let done = c.io.run((0..8).map(|n| pooled(&f, n, &pool)).collect());
    assert_eq!(done.len(), 8);
    done.iter().for_each(check);
    drop(done);
    let mut n = 0;
    c.io.run_with((0..200).map(|i| pooled(&f, i % 16, &pool)), |d| {
        check(&d);
        n += 1;
    });
    assert_eq!(n, 200);
    let d = c.io.run(vec![pooled(&f, 5, &pool)]).remove(0);
    check(&d);
    // Its buffer is as good as any for a write.
    let mut w = Op::write(&f, 20 * 4096, 4096, d.buf, P);
    w.kind = OpKind::Write { dsync: true };
    let done = c.io.run(vec![w, pooled(&f, 6, &pool)]);
    assert_eq!(*done[0].result.as_ref().unwrap(), 4096);
    check(&done[1]);
    assert!(matches!(done[0].buf, Buf::Pooled(_)));
    let mut b = vec![0; 4096];
    f.read_exact_at(&mut b, 20 * 4096, P).unwrap();
    assert_eq!(b, page(5));
    drop(done);
    whole(&pool);
}

fn what_reads_nothing_takes_nothing(c: &Ctx) {
    let f = c.filled("f", 4);
    f.set_len(4 * 4096 - 1000).unwrap();
    let how = OpenHow { read: false, write: true, direct: c.how().direct, ..OpenHow::default() };
    let write_only = c.io.open(&c.dir.join("f"), &how).unwrap();
    let pool = ReadPool::new(8192, 3);
    let op = |user: u64| match user % 4 {
        0 => Op::read_from_pool(&f, 3 * 4096, 8192, &pool, P),
        1 => Op::read_from_pool(&f, 40 * 4096, 4096, &pool, P),
        2 => Op::read_from_pool(&write_only, 0, 4096, &pool, P),
        _ => Op::read_from_pool(&f, 0, 0, &pool, P),
    };
    let check = |d: Done| match d.user % 4 {
        0 => {
            assert_eq!(d.result.unwrap(), 3096);
            assert!(bytes(&d.buf)[..3096] == page(3)[..3096]);
        }
        1 | 3 => assert!(d.result.unwrap() == 0 && matches!(d.buf, Buf::Pool(_))),
        _ => {
            assert_eq!(d.result.unwrap_err().errno(), Some(libc::EBADF));
            assert!(matches!(d.buf, Buf::Pool(_)));
        }
    };
    let mut q = c.io.queue(16).unwrap();
    for round in 0..3 {
        for user in 0..12 {
            q.push(op(user + round).user(user + round)).unwrap();
        }
        each(&mut q, check);
        whole(&pool);
    }
    for user in 0..4 {
        check(c.io.run(vec![op(user).user(user)]).remove(0));
    }
    whole(&pool);
}

fn wrong_operations(c: &Ctx) {
    let f = c.filled("f", 4);
    let pool = ReadPool::new(4096, 2);
    let mut q = c.io.queue(8).unwrap();
    q.push(Op::read_from_pool(&f, 0, 4097, &pool, P)).unwrap();
    q.push(Op::write(&f, 0, 4096, Buf::Pool(pool.clone()), P)).unwrap();
    q.push(Op { kind: OpKind::Write { dsync: true }, ..Op::write(&f, 0, 4096, Buf::Pool(pool.clone()), P) })
        .unwrap();
    let mut n = 0;
    each(&mut q, |d| {
        assert_eq!(d.result.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(matches!(d.buf, Buf::Pool(_)));
        n += 1;
    });
    assert_eq!(n, 3);
    let alone = Op::write(&f, 0, 4096, Buf::Pool(pool.clone()), P);
    assert_eq!(c.io.run(vec![alone]).remove(0).result.unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut b = vec![0; 4096];
    f.read_exact_at(&mut b, 0, P).unwrap();
    assert!(b == page(0), "something was written");
    whole(&pool);
}

fn chains(c: &Ctx) {
    let f = c.open("f");
    let pool = ReadPool::new(4096, 2);
    let mut q = c.io.queue(64).unwrap();
    // Each chain writes a page and reads it back, several times; there are more chains than buffers.
    for chain in 0..8u64 {
        for step in 0..3u64 {
            let mut w = write_page(&f, chain);
            if let Buf::Aligned(b) = &mut w.buf {
                b.copy_from_slice(&page(100 * chain + step));
            }
            q.push(w.user(0).then()).unwrap();
            let r = pooled(&f, chain, &pool).user(100 * chain + step + 1);
            q.push(if step == 2 { r } else { r.then() }).unwrap();
        }
    }
    let mut reads = 0;
    each(&mut q, |d| {
        assert_eq!(*d.result.as_ref().unwrap(), 4096);
        if d.user > 0 {
            assert!(bytes(&d.buf) == page(d.user - 1), "{}", d.user);
            reads += 1;
        }
    });
    assert_eq!(reads, 24);
    // A read that is short breaks its chain.
    q.push(Op::read_from_pool(&f, 100 * 4096, 4096, &pool, P).user(1).then()).unwrap();
    q.push(pooled(&f, 0, &pool).user(2)).unwrap();
    each(&mut q, |d| match d.user {
        1 => assert_eq!(d.result.unwrap(), 0),
        _ => assert_eq!(d.result.unwrap_err().kind(), ErrorKind::Canceled),
    });
    whole(&pool);
}

/// What direct I/O cannot do as it is.
fn odd_ranges(c: &Ctx) {
    let f = c.filled("f", 8);
    let pool = ReadPool::new(4096, 2);
    let all: Vec<u8> = (0..8).flat_map(page).collect();
    let mut q = c.io.queue(16).unwrap();
    for i in 0..16u64 {
        q.push(Op::read_from_pool(&f, i * 1777, 1 + i * 211, &pool, P).user(i)).unwrap();
    }
    let mut n = 0;
    each(&mut q, |d| {
        let (at, len) = (d.user as usize * 1777, 1 + d.user as usize * 211);
        assert_eq!(*d.result.as_ref().unwrap(), len as u64);
        assert!(bytes(&d.buf)[..len] == all[at..at + len]);
        n += 1;
    });
    assert_eq!(n, 16);
    whole(&pool);
}

fn dropped_queues_give_all_back(c: &Ctx) {
    let f = c.filled("f", 16);
    let pool = ReadPool::new(4096, 3);
    for submitted in [true, false] {
        for waited in [0, 1, 2] {
            let mut q = c.io.queue(16).unwrap();
            for n in 0..16 {
                q.push(pooled(&f, n, &pool)).unwrap();
            }
            if submitted {
                q.submit().unwrap();
            }
            q.wait(waited).unwrap();
            drop(q);
            whole(&pool);
        }
    }
}

fn threads_share_one(c: &Ctx) {
    let f = c.filled("f", 32);
    let pool = ReadPool::new(4096, 6);
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (f, pool, io) = (&f, &pool, &c.io);
            s.spawn(move || {
                let mut q = io.queue(8).unwrap();
                for round in 0..8 {
                    for i in 0..8 {
                        q.push(pooled(f, (i * 5 + t + round) % 32, pool)).unwrap();
                    }
                    each(&mut q, |d| check(&d));
                }
            });
        }
    });
    whole(&pool);
}

fn taken_back_while_they_wait(c: &Ctx) {
    let f = c.filled("f", 4);
    let pool = ReadPool::new(4096, 1);
    let held = pool.take().unwrap();
    let mut q = c.io.queue(8).unwrap();
    q.push(pooled(&f, 1, &pool).user(7)).unwrap();
    q.push(pooled(&f, 2, &pool).user(8)).unwrap();
    q.submit().unwrap();
    while q.pop().is_some() {}
    assert_eq!(q.in_flight(), 2, "there is no buffer for either");
    assert_eq!(q.cancel(7).unwrap(), 1);
    let d = loop {
        match q.pop() {
            Some(d) => break d,
            None => q.wait(0).unwrap(),
        }
    };
    assert_eq!((d.user, d.result.unwrap_err().kind()), (7, ErrorKind::Canceled));
    drop(held);
    let mut n = 0;
    each(&mut q, |d| {
        assert_eq!(d.user, 8);
        assert!(bytes(&d.buf) == page(2));
        n += 1;
    });
    assert_eq!(n, 1);
    whole(&pool);
}
