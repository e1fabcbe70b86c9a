//! Queues: pushing back, chains, and what outlives what.

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Done, ErrorKind, Op, OpKind, OpenHow, Queue};

use crate::{Case, Ctx, P, buf, bytes, page, read_page, write_page};

pub const CASES: &[Case] = &[
    ("queues::a_full_queue_pushes_back", a_full_queue_pushes_back),
    ("queues::completions_come_without_waiting", completions_come_without_waiting),
    ("queues::chains_go_in_order", chains_go_in_order),
    ("queues::a_broken_chain_is_canceled", a_broken_chain_is_canceled),
    ("queues::a_short_read_breaks_a_chain", a_short_read_breaks_a_chain),
    ("queues::a_chain_goes_on_after_a_submit", a_chain_goes_on_after_a_submit),
    ("queues::files_outlive_their_handles", files_outlive_their_handles),
    ("queues::dropped_with_operations_in_flight", dropped_with_operations_in_flight),
    ("queues::what_was_not_submitted_is_not_done", what_was_not_submitted_is_not_done),
    ("queues::durable_writes_overlap", durable_writes_overlap),
    ("queues::every_kind_of_operation", every_kind_of_operation),
    ("queues::more_frames_than_one_call_takes", more_frames_than_one_call_takes),
    ("queues::errors_say_what_and_where", errors_say_what_and_where),
];

fn all(q: &mut Queue) -> Vec<Done> {
    let mut out = Vec::new();
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        out.extend(std::iter::from_fn(|| q.pop()));
    }
    out
}

fn sorted(q: &mut Queue) -> Vec<Result<u64, ErrorKind>> {
    let mut v = all(q);
    v.sort_by_key(|d| d.user);
    v.into_iter().map(|d| d.result.map_err(|e| e.kind())).collect()
}

fn a_full_queue_pushes_back(c: &Ctx) {
    let f = c.filled("f", 8);
    let mut q = c.io.queue(4).unwrap();
    for i in 0..4 {
        q.push(read_page(&f, i)).unwrap();
    }
    let back = q.push(read_page(&f, 7)).unwrap_err();
    assert_eq!((back.user, back.offset), (7, 7 * 4096));
    assert!(matches!(back.buf, Buf::Aligned(_)));
    q.submit().unwrap();
    let back = q.push(back).unwrap_err();
    q.wait(1).unwrap();
    assert_eq!(q.in_flight(), 4, "completions count until they are taken");
    let first = q.pop().unwrap();
    assert_eq!(bytes(&first.buf), page(first.user));
    q.push(back).unwrap();
    let rest = all(&mut q);
    assert_eq!(rest.len(), 4);
    assert!(rest.iter().any(|d| d.user == 7));
    for d in rest {
        assert_eq!((d.result.unwrap(), bytes(&d.buf)), (4096, &page(d.user)[..]));
    }
    assert!(q.pop().is_none());
    q.wait(3).unwrap();
}

fn completions_come_without_waiting(c: &Ctx) {
    let f = c.filled("f", 8);
    let mut q = c.io.queue(8).unwrap();
    for i in 0..8 {
        q.push(read_page(&f, i)).unwrap();
    }
    q.submit().unwrap();
    let mut seen = 0;
    while seen < 8 {
        match q.pop() {
            Some(d) => {
                assert_eq!(bytes(&d.buf), page(d.user));
                seen += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(q.in_flight(), 0);
}

fn chains_go_in_order(c: &Ctx) {
    // Each chain writes a page several times and reads it back in between: any disorder shows.
    let f = c.filled("f", 16);
    let mut q = c.io.queue(64).unwrap();
    for chain in 0..8u64 {
        for step in 0..4u64 {
            let mut w = write_page(&f, chain);
            if let Buf::Aligned(b) = &mut w.buf {
                b.copy_from_slice(&page(100 * chain + step));
            }
            q.push(w.user(chain * 8 + step * 2).then()).unwrap();
            let r = read_page(&f, chain).user(chain * 8 + step * 2 + 1);
            q.push(if step == 3 { r } else { r.then() }).unwrap();
        }
    }
    let done = all(&mut q);
    assert_eq!(done.len(), 64);
    for d in done {
        assert_eq!(d.result.unwrap(), 4096);
        let (chain, step) = (d.user / 8, d.user % 8 / 2);
        assert!(bytes(&d.buf) == page(100 * chain + step), "chain {chain}, step {step}");
    }
    // A write, its sync, and a read, in one submission.
    q.push(write_page(&f, 15).then()).unwrap();
    q.push(Op::sync_data(&f, P).user(16).then()).unwrap();
    q.push(read_page(&f, 15).user(17)).unwrap();
    assert_eq!(sorted(&mut q), [Ok(4096), Ok(0), Ok(4096)]);
}

fn a_broken_chain_is_canceled(c: &Ctx) {
    let f = c.filled("f", 4);
    let readonly =
        c.io.open(&c.dir.join("f"), &OpenHow { direct: c.how().direct, ..OpenHow::read() }).unwrap();
    let mut q = c.io.queue(32).unwrap();
    q.push(read_page(&f, 0).user(0).then()).unwrap();
    q.push(write_page(&readonly, 1).user(1).then()).unwrap();
    q.push(write_page(&f, 8).user(2).then()).unwrap();
    q.push(Op::sync_data(&f, P).user(3).then()).unwrap();
    q.push(read_page(&f, 0).user(4)).unwrap();
    // Not of the chain.
    q.push(read_page(&f, 1).user(5)).unwrap();
    let canceled = Err(ErrorKind::Canceled);
    let got = sorted(&mut q);
    assert_eq!(got, [Ok(4096), Err(ErrorKind::Io), canceled, canceled, canceled, Ok(4096)]);
    assert_eq!(f.len().unwrap(), 4 * 4096, "a canceled write was done");
    // The queue is as good as before.
    q.push(read_page(&f, 2)).unwrap();
    assert_eq!(sorted(&mut q), [Ok(4096)]);
}

fn a_short_read_breaks_a_chain(c: &Ctx) {
    let f = c.filled("f", 4);
    f.set_len(4 * 4096 - 1000).unwrap();
    let mut q = c.io.queue(8).unwrap();
    q.push(read_page(&f, 3).user(0).then()).unwrap();
    q.push(write_page(&f, 9).user(1)).unwrap();
    assert_eq!(sorted(&mut q), [Ok(3096), Err(ErrorKind::Canceled)]);
    assert_eq!(f.len().unwrap(), 4 * 4096 - 1000);
}

fn a_chain_goes_on_after_a_submit(c: &Ctx) {
    let f = c.filled("f", 4);
    let mut q = c.io.queue(8).unwrap();
    let bad = || Op::read(&f, 0, 1 << 20, buf(4096), P);
    // The successor comes before and after the end of the one before it.
    for wait_first in [false, true] {
        for good in [true, false] {
            let first = if good { read_page(&f, 1) } else { bad() };
            q.push(first.user(0).then()).unwrap();
            if wait_first {
                q.wait(1).unwrap();
            } else {
                q.submit().unwrap();
            }
            q.push(read_page(&f, 2).user(1).then()).unwrap();
            q.submit().unwrap();
            q.push(read_page(&f, 3).user(2)).unwrap();
            let canceled = Err(ErrorKind::Canceled);
            let want = match good {
                true => [Ok(4096), Ok(4096), Ok(4096)],
                false => [Err(ErrorKind::InvalidInput), canceled, canceled],
            };
            assert_eq!(sorted(&mut q), want);
        }
    }
    // A chain that ends without its successor.
    q.push(bad().user(0).then()).unwrap();
    q.end_chain();
    q.push(read_page(&f, 2).user(1)).unwrap();
    assert_eq!(sorted(&mut q), [Err(ErrorKind::InvalidInput), Ok(4096)]);
}

fn files_outlive_their_handles(c: &Ctx) {
    let f = c.filled("f", 64);
    let mut q = c.io.queue(64).unwrap();
    for i in 0..64 {
        q.push(read_page(&f, i)).unwrap();
    }
    drop(f);
    c.io.remove_file(&c.dir.join("f")).unwrap();
    q.submit().unwrap();
    let done = all(&mut q);
    assert_eq!(done.len(), 64);
    for d in done {
        assert_eq!((d.result.unwrap(), bytes(&d.buf)), (4096, &page(d.user)[..]));
    }
}

fn dropped_with_operations_in_flight(c: &Ctx) {
    let f = c.filled("f", 64);
    for round in 0..6u64 {
        let mut q = c.io.queue(64).unwrap();
        for i in 0..32 {
            q.push(read_page(&f, i)).unwrap();
        }
        for i in 0..16 {
            q.push(write_page(&f, 64 + round * 16 + i)).unwrap();
        }
        // Linked, or waiting in user space: submitted is submitted.
        q.push(read_page(&f, 0).then()).unwrap();
        q.push(write_page(&f, 1000 + round)).unwrap();
        q.submit().unwrap();
        drop(q);
        // Were the kernel to write into freed buffers, these would be the ones.
        let fresh: Vec<AlignedBuf> = (0..48).map(|_| AlignedBuf::zeroed(4096)).collect();
        assert!(fresh.iter().all(|b| b.iter().all(|x| *x == 0)));
    }
    let mut b = vec![0; 4096];
    for i in (64..64 + 6 * 16).chain(1000..1006) {
        f.read_exact_at(&mut b, i * 4096, P).unwrap();
        assert!(b == page(i), "page {i} was submitted but not written");
    }
}

fn what_was_not_submitted_is_not_done(c: &Ctx) {
    let f = c.filled("f", 1);
    let mut q = c.io.queue(8).unwrap();
    q.push(write_page(&f, 5).then()).unwrap();
    q.push(write_page(&f, 6)).unwrap();
    drop(q);
    assert_eq!(f.len().unwrap(), 4096);
}

fn durable_writes_overlap(c: &Ctx) {
    let f = c.filled("f", 32);
    let mut q = c.io.queue(8).unwrap();
    let mut next = 0;
    let mut done = 0;
    while done < 32 {
        while next < 32 {
            let mut op = write_page(&f, 31 - next);
            op.kind = OpKind::Write { dsync: true };
            if q.push(op).is_err() {
                break;
            }
            next += 1;
        }
        q.wait(1).unwrap();
        while let Some(d) = q.pop() {
            assert_eq!(d.result.unwrap(), 4096);
            done += 1;
        }
    }
    let mut b = vec![0; 4096];
    f.read_exact_at(&mut b, 9 * 4096, P).unwrap();
    assert_eq!(b, page(9));
}

fn every_kind_of_operation(c: &Ctx) {
    let f = c.open("f");
    let mut q = c.io.queue(16).unwrap();
    let plain = |kind, offset, len| Op { kind, offset, len, ..Op::sync_data(&f, P) };
    q.push(plain(OpKind::Allocate, 0, 1 << 20).user(0).then()).unwrap();
    q.push(write_page(&f, 3).user(1).then()).unwrap();
    q.push(plain(OpKind::SyncRange, 0, 1 << 20).user(2).then()).unwrap();
    q.push(plain(OpKind::SyncAll, 0, 0).user(3).then()).unwrap();
    q.push(plain(OpKind::SyncData, 0, 0).user(4).then()).unwrap();
    q.push(read_page(&f, 3).user(5).then()).unwrap();
    q.push(Op::read(&f, 0, 0, Buf::None, P).user(6).then()).unwrap();
    q.push(Op::read(&f, 0, 4097, buf(4096), P).user(7)).unwrap();
    let got = sorted(&mut q);
    assert_eq!(got, [Ok(0), Ok(4096), Ok(0), Ok(0), Ok(0), Ok(4096), Ok(0), Err(ErrorKind::InvalidInput)]);
    assert_eq!(f.len().unwrap(), 1 << 20);
    // One big transfer each way, and ranges that direct I/O cannot do as they are.
    let mut big = AlignedBuf::zeroed(4 << 20);
    for (i, b) in big.iter_mut().enumerate() {
        *b = (i / 7) as u8;
    }
    q.push(Op::write(&f, 8192, 4 << 20, Buf::Aligned(big), P).user(0).then()).unwrap();
    q.push(Op::read(&f, 8192, 4 << 20, buf(4 << 20), P).user(1).then()).unwrap();
    q.push(Op::read(&f, 8192 + 777, 1001, buf(4096), P).user(2)).unwrap();
    let mut done = all(&mut q);
    done.sort_by_key(|d| d.user);
    assert_eq!(done[1].result.as_ref().unwrap(), &(4 << 20));
    assert!(bytes(&done[1].buf).iter().enumerate().all(|(i, b)| *b == (i / 7) as u8));
    assert_eq!(done[2].result.as_ref().unwrap(), &1001);
    assert!(bytes(&done[2].buf)[..1001].iter().enumerate().all(|(i, b)| *b == ((i + 777) / 7) as u8));
}

fn more_frames_than_one_call_takes(c: &Ctx) {
    // One call takes 1024 vectors, so that this is continued; and the file ends in the middle of a frame.
    let pages = 1500u64;
    let f = c.filled("f", pages);
    f.set_len(pages * 4096 - 100).unwrap();
    let arena = crate::arena::PageArena::new(1600);
    let frames = |n| Buf::Pieces((0..n).map(|_| arena.alloc().unwrap().into()).collect());
    let mut q = c.io.queue(4).unwrap();
    q.push(Op::read(&f, 0, 1499 * 4096, frames(1499), P).user(0).then()).unwrap();
    q.push(read_page(&f, 3).user(1)).unwrap();
    let mut done = all(&mut q);
    done.sort_by_key(|d| d.user);
    let check = |b: &Buf, n: usize| {
        let Buf::Pieces(v) = b else { panic!("the frames are gone") };
        for (i, frame) in v.iter().enumerate().take(n) {
            assert!(frame.bytes() == page(i as u64), "frame {i}");
        }
    };
    assert_eq!(done[0].result.as_ref().unwrap(), &(1499 * 4096));
    check(&done[0].buf, 1499);
    assert_eq!((done[1].result.as_ref().unwrap(), bytes(&done[1].buf)), (&4096, &page(3)[..]));
    drop(done);
    q.push(Op::read(&f, 0, 1510 * 4096, frames(1510), P)).unwrap();
    let d = all(&mut q).remove(0);
    assert_eq!(d.result.unwrap(), 1500 * 4096 - 100);
    check(&d.buf, 1499);
    drop(d.buf);
    // The same as a lone operation, and one frame.
    let d = c.io.run(vec![Op::read(&f, 0, 1510 * 4096, frames(1510), P)]).remove(0);
    assert_eq!(d.result.unwrap(), 1500 * 4096 - 100);
    check(&d.buf, 1499);
    let d =
        c.io.run(vec![Op::read(&f, 4096, 4096, Buf::Arena(arena.alloc().unwrap()), P), read_page(&f, 0)])
            .remove(0);
    assert_eq!(bytes(&d.buf), page(1));
}

fn errors_say_what_and_where(c: &Ctx) {
    drop(c.filled("f", 2));
    let path = c.dir.join("f");
    let how = OpenHow { read: false, write: true, direct: c.how().direct, ..OpenHow::default() };
    let f = c.io.open(&path, &how).unwrap();
    let mut q = c.io.queue(4).unwrap();
    q.push(read_page(&f, 1)).unwrap();
    q.push(read_page(&f, 0)).unwrap();
    for d in all(&mut q) {
        let e = d.result.unwrap_err();
        assert_eq!((e.errno(), e.path()), (Some(libc::EBADF), Some(path.as_path())));
        let text = e.to_string();
        let range = format!("offset {}, length 4096", d.user * 4096);
        assert!(text.starts_with("read ") && text.contains(&range), "{text}");
        assert!(matches!(d.buf, Buf::Aligned(_)), "the buffer did not come back");
    }
}
