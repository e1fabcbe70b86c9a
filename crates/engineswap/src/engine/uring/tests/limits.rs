//! Time limits and cancellation: what ends, what comes back, and that the kernel has let go of it.

use super::options::pipe;
use super::*;
use crate::ErrorKind;

const SOON: Duration = Duration::from_millis(5);
const NEVER: Duration = Duration::from_secs(3600);

fn next(q: &mut Queue) -> Done {
    q.wait(1).unwrap();
    q.pop().unwrap()
}

/// The buffer that came back is as it was, and nobody writes to it any more: what is sent now goes to the next read.
fn let_go(q: &mut Queue, pipe: &File, d: Done) {
    let Buf::Aligned(b) = d.buf else { panic!("the buffer did not come back") };
    std::fs::write(pipe.path(), page(3)).unwrap();
    q.push(read_page(pipe, 0).user(3)).unwrap();
    check(next(q));
    assert!(b.iter().all(|x| *x == 0), "written to after it came back");
}

#[test]
fn an_operation_ends_at_its_time_limit() {
    let Some(io) = open("io_uring") else { return };
    let dir = dir();
    let (f, pipe) = (filled(&io, dir.path(), 8), pipe(&io, dir.path()));
    for depth in [1, 8] {
        let mut q = io.queue(depth).unwrap();
        q.push(read_page(&pipe, 0).time_limit(SOON)).unwrap();
        let d = next(&mut q);
        assert_eq!(d.result.as_ref().unwrap_err().kind(), ErrorKind::TimedOut);
        let_go(&mut q, &pipe, d);
    }
    // What is in time is not disturbed, within a chain and without; what follows one that is not is canceled.
    let mut q = io.queue(8).unwrap();
    for n in 0..6 {
        let op = read_page(&f, n).time_limit(NEVER);
        q.push(if n < 3 { op.then() } else { op }).unwrap();
    }
    assert_eq!(finish(&mut q), 6);
    q.push(read_page(&f, 0).user(0).then()).unwrap();
    q.push(read_page(&pipe, 0).user(1).time_limit(SOON).then()).unwrap();
    q.push(read_page(&f, 2).user(2)).unwrap();
    let mut ends: Vec<_> = (0..3).map(|_| next(&mut q)).collect();
    ends.sort_by_key(|d| d.user);
    let kinds: Vec<_> = ends.into_iter().map(|d| d.result.map_err(|e| e.kind())).collect();
    assert_eq!(kinds, [Ok(4096), Err(ErrorKind::TimedOut), Err(ErrorKind::Canceled)]);
    // Alone in a batch it is bounded as well.
    let d = io.run(vec![read_page(&pipe, 0).time_limit(SOON)]).remove(0);
    assert_eq!(d.result.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn an_operation_is_taken_back() {
    for uri in ["io_uring", "io_uring?sqpoll", "io_uring?force_async"] {
        let Some(io) = open(uri) else { return };
        let dir = dir();
        let (f, pipe) = (filled(&io, dir.path(), 8), pipe(&io, dir.path()));
        let mut q = io.queue(8).unwrap();
        // Not started: ended without the kernel. Chained behind what goes on: alone.
        q.push(read_page(&f, 1).user(7)).unwrap();
        q.push(read_page(&f, 2).user(2).then()).unwrap();
        q.push(read_page(&f, 3).user(7)).unwrap();
        assert_eq!(q.cancel(7).unwrap(), 2);
        assert_eq!(q.cancel(8).unwrap(), 0);
        for _ in 0..2 {
            let d = q.pop().unwrap();
            assert_eq!((d.user, d.result.unwrap_err().kind()), (7, ErrorKind::Canceled));
        }
        check(next(&mut q));
        // In the kernel's hands. (A worker that waits in a pipe is told by a signal.)
        q.push(read_page(&pipe, 0).user(9)).unwrap();
        q.submit().unwrap();
        assert!(q.pop().is_none());
        assert_eq!(q.cancel(9).unwrap(), 1);
        // A request that a worker is just picking up is missed by the kernel: then it is asked again.
        let mut end = None;
        eventually("taken back", || {
            end = q.pop();
            end.is_some() || q.cancel(9).is_err()
        });
        let d = end.unwrap();
        assert_eq!((d.user, d.result.as_ref().unwrap_err().kind()), (9, ErrorKind::Canceled), "{uri}");
        let_go(&mut q, &pipe, d);
        assert_eq!(q.in_flight(), 0);
    }
}

#[test]
fn whatever_comes_first_each_operation_ends_once() {
    let Some(io) = open("io_uring") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 64);
    let mut q = io.queue(64).unwrap();
    let (mut done, mut canceled) = (0, 0);
    for round in 0..64u64 {
        for n in 0..64 {
            let op = read_page(&f, n);
            let op = if n % 3 == 0 { op.time_limit(Duration::from_micros(round)) } else { op };
            q.push(if n % 5 == 0 { op.force_async() } else { op }).unwrap();
        }
        q.submit().unwrap();
        for n in (0..64).step_by(2) {
            q.cancel((n * 7 + round) % 64).unwrap();
        }
        let mut seen = [0; 64];
        while q.in_flight() > 0 {
            q.wait(1).unwrap();
            while let Some(d) = q.pop() {
                seen[d.user as usize] += 1;
                match d.result.as_ref().map_err(|e| e.kind()) {
                    Ok(_) => {
                        check(d);
                        done += 1;
                    }
                    Err(ErrorKind::Canceled | ErrorKind::TimedOut) => canceled += 1,
                    Err(e) => panic!("{e:?}"),
                }
            }
        }
        assert_eq!(seen, [1; 64]);
    }
    assert_eq!(done + canceled, 64 * 64);
}

#[test]
fn limits_are_refused_where_there_can_be_none() {
    let Some(_) = open("io_uring") else { return };
    let dir = dir();
    for uri in ["posix", "libaio", "io_uring?sqpoll"] {
        let Ok(io) = Io::from_uri(uri) else { continue };
        let f = filled(&io, dir.path(), 4);
        let mut q = io.queue(4).unwrap();
        q.push(read_page(&f, 0).user(0).then()).unwrap();
        q.push(read_page(&f, 1).user(1).time_limit(NEVER).then()).unwrap();
        q.push(read_page(&f, 2).user(2)).unwrap();
        let mut ends: Vec<_> = (0..3).map(|_| next(&mut q)).collect();
        ends.sort_by_key(|d| d.user);
        let kinds: Vec<_> = ends.iter().map(|d| d.result.as_ref().map_err(|e| e.kind())).collect();
        assert_eq!(kinds, [Ok(&4096), Err(ErrorKind::Unsupported), Err(ErrorKind::Canceled)], "{uri}");
        assert!(ends[1].result.as_ref().unwrap_err().to_string().contains("without sqpoll"));
        // Alone in a batch, too; and what has not been started is taken back on every engine.
        let d = io.run(vec![read_page(&f, 1).time_limit(NEVER)]).remove(0);
        assert_eq!(d.result.unwrap_err().kind(), ErrorKind::Unsupported);
        q.push(read_page(&f, 0).user(5)).unwrap();
        assert_eq!(q.cancel(5).unwrap(), 1);
        assert_eq!(next(&mut q).result.unwrap_err().kind(), ErrorKind::Canceled);
    }
}
