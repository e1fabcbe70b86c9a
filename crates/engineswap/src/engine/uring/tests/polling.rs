//! Polling threads for submissions, and polling for completions.

use super::*;
use crate::ErrorKind;
use crate::engine::uring::raw::RawRing;
use crate::engine::uring::ring::{Ring, Setup};
use crate::engine::uring::sys;

#[test]
fn queues_share_one_polling_thread_or_have_one_each() {
    for (uri, want) in [("io_uring?sqpoll", 1), ("io_uring?sqpoll&sqpoll_share=off", 3)] {
        let Some(io) = open(uri) else { return };
        let dir = dir();
        let f = filled(&io, dir.path(), 64);
        let mut queues: Vec<_> = (0..3).map(|_| io.queue(16).unwrap()).collect();
        for q in &mut queues {
            for n in 0..16 {
                q.push(read_page(&f, n)).unwrap();
            }
            q.submit().unwrap();
        }
        assert_eq!(queues.iter_mut().map(finish).sum::<usize>(), 48);
        // The threads of the rings that were tried at the opening end when the kernel gets to it.
        eventually(uri, || threads("iou-sqp").len() == want);
        drop(queues);
        drop(io);
        eventually("no thread is left", || threads("iou-sqp").is_empty());
    }
}

#[test]
fn submissions_to_a_polling_thread_are_no_system_calls() {
    let Some(io) = open("io_uring?sqpoll&sqpoll_idle_ms=60000") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 64);
    let mut q = io.queue(32).unwrap();
    let before = io.stats().submit_calls;
    let mut done = 0;
    for round in 0..64 {
        for n in 0..32 {
            q.push(read_page(&f, (round + n) % 64)).unwrap();
        }
        q.submit().unwrap();
        while q.in_flight() > 0 {
            match q.pop() {
                Some(d) => {
                    check(d);
                    done += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    }
    assert_eq!(done, 64 * 32);
    let calls = io.stats().submit_calls - before;
    assert!(calls < 64, "{calls} calls for 64 submissions");
}

#[test]
fn a_shared_polling_thread_keeps_long_chains_in_order() {
    let Some(io) = open("io_uring?sqpoll") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 1);
    // The thread cuts what it takes short only if it has more than one ring.
    let _other = io.queue(4).unwrap();
    let mut q = io.queue(64).unwrap();
    for n in (0..32).flat_map(|n| [n, n]) {
        let first = q.in_flight() % 2 == 0;
        let mut op = read_page(&f, 1 + n).then();
        if let (true, Buf::Aligned(b)) = (first, &mut op.buf) {
            b.copy_from_slice(&page(1 + n));
            op.kind = crate::OpKind::Write { dsync: false };
        }
        q.push(op.user(1 + n)).unwrap();
    }
    q.end_chain();
    assert_eq!(finish(&mut q), 64);
}

#[test]
fn the_polling_thread_runs_where_it_is_told() {
    let Some(io) = open("io_uring?sqpoll&sqpoll_cpu=0") else { return };
    eventually("bound to CPU 0", || {
        let t = threads("iou-sqp");
        t.len() == 1 && cpus_of(&t[0]).is_some_and(|c| c == "0")
    });
    drop(io);
    let e = Io::from_uri("io_uring?sqpoll&sqpoll_cpu=1023").err().unwrap();
    assert!(e.to_string().contains("sqpoll_cpu=1023 needs that CPU"), "{e}");
}

#[test]
fn the_polling_thread_sleeps_after_its_idle_time() {
    for (idle_ms, sleeps) in [(5, true), (60_000, false)] {
        let how = Setup { flags: sys::SETUP_SQPOLL, idle_ms, ..Setup::default() };
        let mut ring = match Ring::new(4, &how) {
            Ok(ring) => ring,
            Err(e) => return println!("skipped: {}", std::io::Error::from_raw_os_error(e)),
        };
        // The time runs from the first work on.
        // SAFETY: a request that points to nothing.
        assert!(unsafe { ring.put(sys::Sqe { opcode: sys::OP_NOP, user_data: 1, ..Default::default() }) });
        ring.enter(1, 0).unwrap();
        assert_eq!(ring.take(), Some((1, 0, 0)));
        if sleeps {
            eventually("asleep", || ring.submitter_sleeps());
        } else {
            std::thread::sleep(Duration::from_millis(100));
            assert!(!ring.submitter_sleeps());
        }
    }
}

#[test]
fn polled_completions_come_or_the_error_says_what_is_missing() {
    for uri in ["io_uring?iopoll", "io_uring?iopoll&hybrid_iopoll"] {
        let io = match (Io::from_uri(uri), uri.contains("hybrid")) {
            (Ok(io), _) => io,
            (Err(e), true) => {
                assert!(e.to_string().contains("hybrid_iopoll needs Linux 6.13"), "{e}");
                println!("skipped: {e}");
                continue;
            }
            (Err(e), false) if Io::from_uri("io_uring").is_err() => return println!("skipped: {e}"),
            (Err(e), false) => panic!("{e}"),
        };
        let dir = dir();
        let f = filled(&io, dir.path(), 4);
        // Now that there is something to read, it shows at the opening.
        let direct = OpenHow::read().direct(Direct::Prefer);
        let again = io.open(f.path(), &direct);
        let polled = match &again {
            Ok(_) => true,
            Err(e) => {
                assert_eq!((e.kind(), e.errno()), (ErrorKind::Unsupported, Some(libc::EOPNOTSUPP)));
                assert!(e.path() == Some(f.path()) && e.to_string().contains("nvme.poll_queues"), "{e}");
                false
            }
        };
        // Plain calls serve buffered files, and files that are only written to cannot be tried.
        assert!(io.open(f.path(), &OpenHow::read()).is_ok());
        let write = OpenHow { write: true, direct: Direct::Prefer, ..OpenHow::default() };
        assert!(io.open(f.path(), &write).is_ok());
        let mut q = io.queue(4).unwrap();
        q.push(read_page(&f, 1)).unwrap();
        q.push(read_page(&f, 2)).unwrap();
        while q.in_flight() > 0 {
            q.wait(1).unwrap();
            while let Some(d) = q.pop() {
                match &d.result {
                    Ok(_) => check(d),
                    Err(e) => {
                        assert!(!polled, "{e}");
                        assert_eq!((e.kind(), e.errno()), (ErrorKind::Unsupported, Some(libc::EOPNOTSUPP)));
                        assert!(e.to_string().contains("nvme.poll_queues"), "{e}");
                    }
                }
            }
        }
        // What cannot be polled for is done by plain calls.
        q.push(Op::sync_data(&f, P)).unwrap();
        q.wait(1).unwrap();
        assert_eq!(q.pop().unwrap().result.unwrap(), 0);
        let Some((trace, ..)) = traced_anyhow(uri) else { return };
        let hybrid = if uri.contains("hybrid") { sys::SETUP_HYBRID_IOPOLL } else { 0 };
        let want = sys::SETUP_IOPOLL | hybrid;
        assert_eq!(setup_flags(&trace) & (sys::SETUP_IOPOLL | sys::SETUP_HYBRID_IOPOLL), want, "{trace}");
    }
}
