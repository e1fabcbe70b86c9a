//! Buffers that the kernel chooses.

use super::options::pipe;
use super::*;
use crate::ErrorKind;
use crate::mem::{PoolBuf, ReadPool};

fn pooled(f: &File, n: u64, pool: &ReadPool) -> Op {
    Op::read_from_pool(f, n * 4096, 4096, pool, P).user(n)
}

/// The engine; `None`, said aloud, if this kernel cannot do it.
fn choosing() -> Option<Io> {
    match Io::from_uri("io_uring?provided_buffers") {
        Ok(io) => Some(io),
        Err(e) => {
            assert!(e.to_string().contains("needs Linux 5.19") || open("io_uring").is_none(), "{e}");
            println!("skipped: {e}");
            None
        }
    }
}

fn take(q: &mut Queue) -> PoolBuf {
    let d = q.pop().unwrap();
    assert_eq!(d.result.unwrap(), 4096);
    let Buf::Pooled(b) = d.buf else { panic!("no buffer of the pool") };
    b
}

fn whole(pool: &ReadPool) {
    let all: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(all.len(), pool.count());
}

#[test]
fn buffers_are_chosen_when_there_is_something_to_read() {
    let Some(io) = choosing() else { return };
    let dir = dir();
    let both = pipe(&io, dir.path());
    let pool = ReadPool::new(4096, 2);
    let mut q = io.queue(8).unwrap();
    for n in 0..6 {
        q.push(pooled(&both, 0, &pool).user(n)).unwrap();
    }
    q.submit().unwrap();
    assert!(q.pop().is_none());
    assert_eq!((q.in_flight(), io.stats().chosen), (6, 6), "six reads wait in the kernel with two buffers");
    // Three find something to read: two have buffers, and the third waits for one.
    std::fs::write(both.path(), [page(1), page(2), page(3)].concat()).unwrap();
    q.wait(2).unwrap();
    let (one, two) = (take(&mut q), take(&mut q));
    assert!(q.pop().is_none() && one[..] == page(1) && two[..] == page(2));
    drop(two);
    q.wait(1).unwrap();
    let three = take(&mut q);
    assert!(three[..] == page(3) && one[..] == page(1));
    drop((one, three));
    std::fs::write(both.path(), [page(4), page(5), page(6)].concat()).unwrap();
    let mut rest = Vec::new();
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        while q.in_flight() > 0 && rest.len() < 3 {
            let Some(d) = q.pop() else { break };
            let Buf::Pooled(b) = &d.buf else { panic!("no buffer of the pool") };
            rest.push(b[..] == page(4 + rest.len() as u64));
        }
    }
    assert_eq!(rest, [true; 3]);
    assert!(io.stats().chosen >= 7, "who found none has asked again");
    whole(&pool);
}

#[test]
fn without_the_option_nothing_else_differs() {
    let Some(_) = choosing() else { return };
    for (uri, chosen) in [("io_uring", 32), ("io_uring?provided_buffers=off", 0), ("io_uring?sqpoll", 32)] {
        let io = open(uri).unwrap();
        let dir = dir();
        let f = filled(&io, dir.path(), 32);
        let pool = ReadPool::new(4096, 32);
        let mut q = io.queue(32).unwrap();
        for n in 0..32 {
            q.push(pooled(&f, n, &pool)).unwrap();
        }
        q.wait(32).unwrap();
        while let Some(d) = q.pop() {
            let Buf::Pooled(b) = d.buf else { panic!("no buffer of the pool") };
            assert!(d.result.unwrap() == 4096 && b[..] == page(d.user), "{uri}: page {}", d.user);
        }
        assert_eq!(io.stats().chosen, chosen, "{uri}");
        whole(&pool);
    }
}

#[test]
fn a_pool_is_with_one_ring_at_a_time() {
    let Some(io) = choosing() else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 8);
    let pool = ReadPool::new(4096, 8);
    let read = |q: &mut Queue, pool: &ReadPool| {
        let before = io.stats().chosen;
        q.push(pooled(&f, 3, pool)).unwrap();
        q.wait(1).unwrap();
        assert!(take(q)[..] == page(3));
        io.stats().chosen - before
    };
    let (mut one, mut two) = (io.queue(4).unwrap(), io.queue(4).unwrap());
    assert_eq!([read(&mut one, &pool), read(&mut two, &pool), read(&mut one, &pool)], [1, 0, 1]);
    drop(one);
    assert_eq!([read(&mut two, &pool), read(&mut two, &pool)], [1, 1]);
    // A ring knows a certain number of pools, and forgets those that nobody else has.
    let many: Vec<_> = (0..20).map(|_| ReadPool::new(4096, 1)).collect();
    assert_eq!(many.iter().map(|p| read(&mut two, p)).sum::<u64>(), 15);
    drop(many);
    assert_eq!(read(&mut two, &ReadPool::new(4096, 1)), 1);
    whole(&pool);
}

#[test]
fn buffers_that_failed_reads_leave_with_the_kernel_come_back() {
    let Some(io) = choosing() else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 4);
    let write_only = io.open(f.path(), &OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let pool = ReadPool::new(4096, 2);
    let mut q = io.queue(4).unwrap();
    for _ in 0..3 {
        q.push(pooled(&write_only, 0, &pool)).unwrap();
        q.push(pooled(&write_only, 1, &pool)).unwrap();
        q.wait(2).unwrap();
        for _ in 0..2 {
            assert_eq!(q.pop().unwrap().result.unwrap_err().errno(), Some(libc::EBADF));
        }
        whole(&pool);
        q.push(pooled(&f, 2, &pool)).unwrap();
        q.wait(1).unwrap();
        assert!(take(&mut q)[..] == page(2));
    }
    assert!(io.stats().chosen >= 9);
}

#[test]
fn reads_that_nobody_frees_a_buffer_for_end_with_an_error() {
    std::thread::scope(|s| {
        for uri in ["posix", "libaio", "io_uring", "io_uring?provided_buffers=off", "sim"] {
            let Ok(io) = Io::from_uri(uri) else { continue };
            s.spawn(move || {
                let dir = dir();
                // The simulated disk has no folders yet.
                io.create_dir_all(dir.path()).unwrap();
                let f = filled(&io, dir.path(), 4);
                let pool = ReadPool::new(4096, 1);
                let held = pool.take().unwrap();
                let mut q = io.queue(4).unwrap();
                q.push(pooled(&f, 1, &pool)).unwrap();
                q.push(pooled(&f, 2, &pool)).unwrap();
                q.wait(1).unwrap();
                for _ in 0..2 {
                    let e = q.pop().unwrap().result.unwrap_err();
                    assert_eq!(
                        (e.kind(), e.errno()),
                        (ErrorKind::Exhausted, Some(libc::ENOBUFS)),
                        "{uri}: {e}"
                    );
                    assert!(e.to_string().contains("every buffer of the pool"), "{e}");
                }
                let d = io.run(vec![pooled(&f, 1, &pool)]).remove(0);
                assert_eq!(d.result.unwrap_err().errno(), Some(libc::ENOBUFS), "{uri}, alone");
                // Another thread gives it back while the queue waits.
                q.push(pooled(&f, 3, &pool)).unwrap();
                q.submit().unwrap();
                let back = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(30));
                    drop(held);
                });
                q.wait(1).unwrap();
                assert!(take(&mut q)[..] == page(3), "{uri}");
                back.join().unwrap();
                // And the same on a queue that threads share.
                let held = pool.take().unwrap();
                let shared = io.shared_queue(4).unwrap();
                shared.push(pooled(&f, 1, &pool)).unwrap();
                shared.wait(1).unwrap();
                assert_eq!(shared.pop().unwrap().result.unwrap_err().errno(), Some(libc::ENOBUFS), "{uri}");
                shared.push(pooled(&f, 2, &pool).user(9)).unwrap();
                shared.submit().unwrap();
                let back = std::thread::spawn(move || drop(held));
                let d = shared.take(9).unwrap().unwrap();
                assert_eq!(d.result.unwrap(), 4096, "{uri}");
                back.join().unwrap();
            });
        }
    });
}

#[test]
fn a_refusal_says_what_is_missing() {
    let fault = "io_uring_register:error=EINVAL";
    let Some(e) = files::refused("io_uring?provided_buffers&registered_ring=off", fault) else { return };
    assert!(e.contains("provided_buffers needs Linux 5.19"), "{e}");
    assert!(files::refused("io_uring", fault).is_none(), "who does not ask goes on without");
}
