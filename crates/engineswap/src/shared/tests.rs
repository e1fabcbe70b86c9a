use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Condvar, mpsc};
use std::time::Duration;

use super::*;
use crate::engine::Lends;
use crate::mem::AlignedBuf;
use crate::{Buf, ErrorKind, File, Io, OpKind, OpenHow, Purpose};

const P: Purpose = Purpose(2);

/// The engines that work here, with the options that concern shared queues.
fn engines() -> Vec<Io> {
    let uris = [
        "posix",
        "posix?threads=1",
        "libaio",
        "io_uring",
        "io_uring?sqpoll&sqpoll_idle_ms=5",
        "io_uring?force_async&reap=4",
        "io_uring?single_issuer&registered_ring=off",
    ];
    uris.iter().filter_map(|uri| Io::from_uri(uri).ok()).collect()
}

fn buf() -> Buf {
    Buf::Aligned(AlignedBuf::zeroed(4096))
}

fn page(n: u64) -> Vec<u8> {
    (0..4096u64).map(|i| (n * 37 + i + (i >> 8)) as u8).collect()
}

fn filled(io: &Io, dir: &std::path::Path, pages: u64) -> File {
    let f = io.open(&dir.join("f"), &OpenHow::read_write()).unwrap();
    (0..pages).for_each(|n| f.write_all_at(&page(n), n * 4096, P).unwrap());
    f
}

fn read(f: &File, n: u64, user: u64) -> Op {
    Op::read(f, n * 4096, 4096, buf(), P).user(user)
}

fn check(done: &Done, n: u64) {
    let Buf::Aligned(b) = &done.buf else { panic!("the buffer is gone: {done:?}") };
    assert_eq!(*done.result.as_ref().unwrap(), 4096);
    assert!(b[..] == page(n), "page {n} has other bytes");
}

/// Runs `f` on a thread and panics if it takes absurdly long: a lost wake-up would hang it.
fn bounded(f: impl FnOnce() + Send) {
    std::thread::scope(|s| {
        let (tell, told) = mpsc::channel();
        let t = s.spawn(move || {
            f();
            let _ = tell.send(());
        });
        if let Err(mpsc::RecvTimeoutError::Timeout) = told.recv_timeout(Duration::from_secs(100)) {
            eprintln!("a thread that uses a shared queue hangs");
            std::process::abort();
        }
        t.join().unwrap();
    });
}

fn pushed(q: &SharedQueue, mut op: Op) {
    while let Err(back) = q.push(op) {
        op = back;
        std::thread::yield_now();
    }
}

#[test]
fn each_thread_takes_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 64);
        // Less deep than four threads want.
        let q = io.shared_queue(6).unwrap();
        bounded(|| {
            std::thread::scope(|s| {
                for t in 0..4u64 {
                    let (q, f) = (&q, &f);
                    s.spawn(move || {
                        for round in 0..40 {
                            let n = (t * 17 + round * 5) % 62;
                            let tag = |i| t << 32 | i;
                            pushed(q, read(f, n, tag(0)));
                            pushed(q, Op::sync_data(f, P).user(tag(2)));
                            // The last first: it must not wait for, or take, another's.
                            assert_eq!(q.take(tag(2)).unwrap().unwrap().result.unwrap(), 0);
                            check(&q.take(tag(0)).unwrap().unwrap(), n);
                            assert!(q.take(tag(0)).unwrap().is_none());
                        }
                    });
                }
            });
        });
        assert_eq!(q.in_flight(), 0);
    }
}

#[test]
fn some_push_and_others_pop() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 64);
        let q = io.shared_queue(16).unwrap();
        let (each, taken, stop) = (100u64, AtomicUsize::new(0), AtomicBool::new(false));
        bounded(|| {
            std::thread::scope(|s| {
                let producers: Vec<_> = (0..2u64)
                    .map(|t| {
                        let (q, f) = (&q, &f);
                        s.spawn(move || {
                            for i in 0..each {
                                pushed(q, read(f, (t * 31 + i) % 64, (t * 31 + i) % 64));
                                if i % 3 == 0 {
                                    q.submit().unwrap();
                                }
                            }
                            q.submit().unwrap();
                        })
                    })
                    .collect();
                for min in [1, 4] {
                    let (q, taken, stop) = (&q, &taken, &stop);
                    s.spawn(move || {
                        while !stop.load(SeqCst) || q.in_flight() > 0 {
                            q.wait(min).unwrap();
                            while let Some(done) = q.pop() {
                                check(&done, done.user);
                                taken.fetch_add(1, SeqCst);
                            }
                        }
                    });
                }
                producers.into_iter().for_each(|t| t.join().unwrap());
                stop.store(true, SeqCst);
            });
        });
        assert_eq!((taken.load(SeqCst) as u64, q.in_flight()), (2 * each, 0), "{}", io.info().uri);
    }
}

#[test]
fn chains_are_pushed_together() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 4);
        let r = io.open(&dir.path().join("f"), &OpenHow::read()).unwrap();
        let q = io.shared_queue(8).unwrap();
        bounded(|| {
            std::thread::scope(|s| {
                for t in 0..3u64 {
                    let (q, f, r) = (&q, &f, &r);
                    s.spawn(move || {
                        for _ in 0..20 {
                            // The middle one of the first chain fails, the second chain is whole. What asks for a
                            // successor at the end of a call gets none.
                            let write = |f: &File, user| Op::write(f, t * 4096, 4096, buf(), P).user(user);
                            let first = vec![
                                write(f, t * 10).then(),
                                write(r, t * 10 + 1).then(),
                                write(f, t * 10 + 2).then(),
                            ];
                            let mut ops = first;
                            while let Err(back) = q.push_all(ops) {
                                ops = back;
                                std::thread::yield_now();
                            }
                            let kind = |i| q.take(t * 10 + i).unwrap().unwrap().result.map_err(|e| e.kind());
                            assert_eq!(kind(2), Err(ErrorKind::Canceled));
                            assert_eq!((kind(0), kind(1)), (Ok(4096), Err(ErrorKind::Io)));
                            let lone = write(f, t * 10 + 3).then();
                            pushed(q, lone);
                            pushed(q, read(f, 3, t * 10 + 4));
                            assert_eq!((kind(4), kind(3)), (Ok(4096), Ok(4096)));
                        }
                    });
                }
            });
        });
        let too_many: Vec<Op> = (0..9).map(|i| read(&f, 0, i)).collect();
        assert_eq!(q.push_all(too_many).unwrap_err().len(), 9);
        assert_eq!((q.in_flight(), q.depth()), (0, 8));
    }
}

#[test]
fn any_thread_cancels() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 4);
        let q = io.shared_queue(8).unwrap();
        pushed(&q, read(&f, 1, 1));
        pushed(&q, read(&f, 2, 2));
        bounded(|| {
            std::thread::scope(|s| {
                // Not submitted yet, so it is certain to be found.
                s.spawn(|| assert_eq!((q.cancel(2).unwrap(), q.cancel(7).unwrap()), (1, 0)));
            });
            check(&q.take(1).unwrap().unwrap(), 1);
            let done = q.take(2).unwrap().unwrap();
            assert_eq!(done.result.unwrap_err().kind(), ErrorKind::Canceled);
            assert!(matches!(done.buf, Buf::Aligned(_)));
        });
    }
}

#[test]
fn what_a_thread_submitted_outlives_it() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines() {
        let f = filled(&io, dir.path(), 64);
        bounded(|| {
            let q = io.shared_queue(64).unwrap();
            for round in 0..30u64 {
                std::thread::scope(|s| {
                    s.spawn(|| {
                        for i in 0..8 {
                            pushed(&q, read(&f, round + i, i));
                            pushed(&q, Op { force_async: i % 2 == 0, ..Op::sync_all(&f) }.user(100 + i));
                        }
                        q.submit().unwrap();
                    });
                });
                for i in 0..8 {
                    check(&q.take(i).unwrap().unwrap(), round + i);
                    assert_eq!(q.take(100 + i).unwrap().unwrap().result.unwrap(), 0, "{}", io.info().uri);
                }
            }
            // And one that is dropped by another thread than those that used it, with operations in flight.
            (0..8).for_each(|i| pushed(&q, read(&f, i, i)));
            q.submit().unwrap();
            let q = q;
            std::thread::spawn(move || drop(q)).join().unwrap();
        });
    }
}

trait SyncAll {
    fn sync_all(f: &File) -> Op;
}

impl SyncAll for Op {
    fn sync_all(f: &File) -> Op {
        Op::new(OpKind::SyncAll, f, 0, 0, Buf::None, P)
    }
}

/// Whoever waits for the pipe, which io_uring can read, does so until somebody writes to it: which happens only after
/// another thread has pushed, submitted and taken something else.
#[test]
fn nobody_waits_for_those_who_wait() {
    let dir = tempfile::tempdir().unwrap();
    for io in engines().iter().filter(|io| io.info().name == "io_uring") {
        let f = filled(io, dir.path(), 4);
        let path = dir.path().join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a path with its NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let pipe = io.open(&path, &OpenHow { create: false, ..OpenHow::read_write() }).unwrap();
        let q = io.shared_queue(8).unwrap();
        let waiting = Barrier::new(2);
        bounded(|| {
            std::thread::scope(|s| {
                let (q, waiting) = (&q, &waiting);
                pushed(q, Op::read(&pipe, 0, 5, buf(), P).user(1));
                s.spawn(move || {
                    waiting.wait();
                    let done = q.take(1).unwrap().unwrap();
                    assert_eq!(done.result.unwrap(), 5, "{}", io.info().uri);
                    let Buf::Aligned(b) = done.buf else { panic!("the buffer is gone") };
                    assert_eq!(&b[..5], b"bytes");
                });
                s.spawn(move || q.wait(1).unwrap());
                waiting.wait();
                // Time to begin the wait; the test is right without, too.
                std::thread::sleep(Duration::from_millis(20));
                pushed(q, read(&f, 3, 2));
                q.submit().unwrap();
                check(&q.take(2).unwrap().unwrap(), 3);
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .map(|mut p| {
                        std::io::Write::write_all(&mut p, b"bytes").unwrap();
                    })
                    .unwrap();
            });
        });
        std::fs::remove_file(&path).unwrap();
    }
}

/// A queue whose operations are done when the test says so.
struct Gated {
    pushed: Vec<Op>,
    open: Arc<AtomicBool>,
    failing: Arc<AtomicBool>,
    waiter: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    waits: AtomicUsize,
    /// Operations that are done although the queue is not open.
    allowed: AtomicUsize,
    /// What was called, in order.
    calls: Mutex<Vec<Call>>,
    rung: Mutex<bool>,
    news: Condvar,
}

impl RawWaiter for Gate {
    fn wait(&self) -> Result<()> {
        self.waits.fetch_add(1, SeqCst);
        let mut rung = self.rung.lock().unwrap();
        while !std::mem::take(&mut *rung) {
            rung = self.news.wait(rung).unwrap();
        }
        Ok(())
    }

    fn wait_at_most(&self, most: Option<Duration>) -> Result<()> {
        let most = most.unwrap_or(Duration::from_secs(1000));
        let silent = |rung: &mut bool| !*rung;
        let rung = self.rung.lock().unwrap();
        *self.news.wait_timeout_while(rung, most, silent).unwrap().0 = false;
        Ok(())
    }

    fn fd(&self) -> Result<std::os::fd::BorrowedFd<'_>> {
        Err(Error::from_errno("none", libc::EBADF))
    }

    fn wake(&self) {
        *self.rung.lock().unwrap() = true;
        self.news.notify_all();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Push,
    Submit,
}

impl Gate {
    fn called(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }
}

impl RawQueue for Gated {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        self.waiter.called(Call::Push);
        self.pushed.push(op);
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        self.waiter.called(Call::Submit);
        match self.failing.load(SeqCst) {
            true => Err(Error::from_errno("submit", libc::EBADF)),
            false => Ok(()),
        }
    }

    fn wait(&mut self, _min: usize) -> Result<()> {
        panic!("waited with the lock held");
    }

    fn pop(&mut self) -> Option<Done> {
        let allowed = &self.waiter.allowed;
        let may =
            || self.open.load(SeqCst) || allowed.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
        let op = (!self.pushed.is_empty() && may()).then(|| self.pushed.pop())??;
        Some(Done { user: op.user, result: Ok(op.len), buf: op.buf })
    }

    fn in_flight(&self) -> usize {
        self.pushed.len()
    }

    fn holds(&self, user: u64) -> bool {
        self.pushed.iter().any(|op| op.user == user)
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        Some(self.waiter.clone())
    }

    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        let answer = |op: Op| Done { user: op.user, result: Err(e.clone()), buf: Buf::None };
        self.pushed.drain(..).map(answer).collect()
    }
}

fn gated() -> (SharedQueue, Arc<AtomicBool>, Arc<AtomicBool>, Arc<Gate>) {
    let (open, failing, waiter) = (Arc::default(), Arc::default(), Arc::new(Gate::default()));
    let raw = Gated {
        pushed: Vec::new(),
        open: Arc::clone(&open),
        failing: Arc::clone(&failing),
        waiter: Arc::clone(&waiter),
    };
    (SharedQueue::new(Box::new(raw), 8), open, failing, waiter)
}

fn some_file() -> (tempfile::TempDir, File) {
    let dir = tempfile::tempdir().unwrap();
    let f = filled(&Io::from_uri("posix").unwrap(), dir.path(), 1);
    (dir, f)
}

#[test]
fn the_lock_is_free_while_threads_wait() {
    let (_dir, f) = some_file();
    let (q, open, _, gate) = gated();
    pushed(&q, read(&f, 0, 1));
    bounded(|| {
        std::thread::scope(|s| {
            let waiters: Vec<_> = (0..3).map(|_| s.spawn(|| q.wait(2).unwrap())).collect();
            while gate.waits.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            // All of these would hang if it were not so.
            pushed(&q, read(&f, 0, 2));
            q.submit().unwrap();
            assert_eq!((q.in_flight(), q.pop().is_none(), q.cancel(5).unwrap()), (2, true, 0));
            assert!(waiters.iter().all(|w| !w.is_finished()));
            // What this thread takes out lets those go who wait for it: nothing is left in flight for them.
            open.store(true, SeqCst);
            assert_eq!(q.pop().map(|d| d.user), Some(2));
            assert_eq!(q.pop().map(|d| d.user), Some(1));
        });
    });
}

#[test]
fn a_broken_queue_answers_everybody() {
    let (_dir, f) = some_file();
    let (q, _, failing, gate) = gated();
    for i in 0..4 {
        pushed(&q, read(&f, 0, i));
    }
    let bad = |e: Error| assert_eq!(e.errno(), Some(libc::EBADF));
    bounded(|| {
        std::thread::scope(|s| {
            s.spawn(|| bad(q.wait(3).unwrap_err()));
            s.spawn(|| bad(q.take(1).unwrap().unwrap().result.unwrap_err()));
            while gate.waits.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            failing.store(true, SeqCst);
            bad(q.submit().unwrap_err());
        });
    });
    bad(q.failure().unwrap());
    // What is pushed now is answered, too, with its buffer: the engine never had it.
    pushed(&q, read(&f, 0, 9));
    let done = q.take(9).unwrap().unwrap();
    bad(done.result.unwrap_err());
    assert!(matches!(done.buf, Buf::Aligned(_)));
    assert_eq!(std::iter::from_fn(|| q.pop()).map(|d| bad(d.result.unwrap_err())).count(), 3);
    assert_eq!(q.in_flight(), 0);
}

#[test]
fn nothing_comes_between_a_push_and_its_start() {
    let (_dir, f) = some_file();
    let (q, open, _, gate) = gated();
    open.store(true, SeqCst);
    // The lock is asked for once, so nobody can come between.
    let locks = |f: &dyn Fn()| {
        let before = q.locks.load(SeqCst);
        f();
        q.locks.load(SeqCst) - before
    };
    assert_eq!(locks(&|| q.start(read(&f, 0, 1)).unwrap()), 1);
    assert_eq!(locks(&|| q.start_all(vec![read(&f, 0, 2), read(&f, 0, 3)]).unwrap()), 1);
    let calls: Vec<Call> = gate.calls.lock().unwrap().clone();
    assert_eq!(calls[..2], [Call::Push, Call::Submit]);
    assert!(calls.windows(3).any(|w| w == [Call::Push, Call::Push, Call::Submit]), "{calls:?}");
    // It was all done when it was started.
    assert_eq!(std::iter::from_fn(|| q.pop()).count(), 3);
    // Full: the operations come back.
    open.store(false, SeqCst);
    q.start_all((0..8).map(|i| read(&f, 0, i)).collect()).unwrap();
    assert_eq!(q.start(read(&f, 0, 9)).unwrap_err().user, 9);
    assert_eq!(q.start_all(vec![read(&f, 0, 9)]).unwrap_err().len(), 1);
    assert!(q.start_all(vec![]).is_ok());
}

#[test]
fn a_completion_wakes_only_whom_it_belongs_to() {
    let (_dir, f) = some_file();
    let (q, _, _, gate) = gated();
    q.start_all((0..8).map(|i| read(&f, 0, i)).collect()).unwrap();
    let waiting = || {
        let s = q.lock();
        s.waiting.asleep() + usize::from(s.waiting.looking.is_some())
    };
    bounded(|| {
        std::thread::scope(|s| {
            for i in 0..8 {
                let q = &q;
                s.spawn(move || assert_eq!(q.take(i).unwrap().unwrap().user, i));
            }
            for left in (0..8).rev() {
                while waiting() != left + 1 {
                    std::thread::yield_now();
                }
                gate.allowed.store(1, SeqCst);
                gate.wake();
            }
        });
    });
    // One for each: the owner, or the next to wait in the engine if it was the owner who did.
    let woken = q.lock().waiting.woken;
    assert!(woken <= 8, "{woken} wakes for 8 completions");
    // Those who wait for several are woken when these are there, not before.
    q.start_all((0..4).map(|i| read(&f, 0, i)).collect()).unwrap();
    bounded(|| {
        std::thread::scope(|s| {
            s.spawn(|| q.wait(1).unwrap());
            while waiting() != 1 {
                std::thread::yield_now();
            }
            s.spawn(|| q.wait(3).unwrap());
            while waiting() != 2 {
                std::thread::yield_now();
            }
            gate.allowed.store(1, SeqCst);
            gate.wake();
            // The first is gone, and the second waits in the engine now.
            while waiting() != 1 || q.lock().waiting.asleep() != 0 {
                std::thread::yield_now();
            }
            assert_eq!(q.in_flight(), 4);
            gate.allowed.store(2, SeqCst);
            gate.wake();
        });
    });
    assert!(q.lock().waiting.woken <= woken + 1);
    gate.allowed.store(1, SeqCst);
}

/// A file that no kernel knows, whose reads end when the test says so.
#[derive(Default)]
struct Slow {
    reads: AtomicUsize,
    open: Mutex<bool>,
    news: Condvar,
}

impl Slow {
    fn end(&self) {
        *self.open.lock().unwrap() = true;
        self.news.notify_all();
    }
}

impl crate::engine::RawFile for Slow {
    fn read_at(&self, buf: &mut [u8], _offset: u64, _purpose: Purpose) -> Result<usize> {
        self.reads.fetch_add(1, SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.news.wait_while(open, |open| !*open).unwrap());
        buf.fill(7);
        Ok(buf.len())
    }

    fn write_all_at(&self, _: &[u8], _: u64, _: bool, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn sync(&self, _: bool, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn sync_range(&self, _: u64, _: u64, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(1 << 20)
    }

    fn path(&self) -> &std::path::Path {
        std::path::Path::new("slow")
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn alignment(&self) -> crate::Alignment {
        crate::Alignment { memory: 1, offset: 1 }
    }

    fn map(&self, _: u64) -> Result<Box<dyn crate::engine::RawMap>> {
        Err(Error::new(ErrorKind::Unsupported, "mmap", "no mappings"))
    }
}

#[test]
fn plain_calls_do_not_hold_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    // posix does all of them so, on threads of its own.
    for io in engines().iter().filter(|io| io.info().name != "posix") {
        let uri = io.info().uri;
        let f = filled(io, dir.path(), 4);
        let slow = Arc::new(Slow::default());
        let file = File::from_raw(Arc::clone(&slow) as _);
        let q = io.shared_queue(8).unwrap();
        std::thread::scope(|s| {
            let (q, f, file) = (&q, &f, &file);
            let reader = s.spawn(move || {
                // With one chained after it, which goes on when it is back.
                let after = Op { chain: false, ..read(f, 2, 2) };
                q.start_all(vec![read(file, 0, 1).then(), after]).unwrap();
                let Buf::Aligned(b) = q.take(1).unwrap().unwrap().buf else { panic!("the buffer is gone") };
                assert!(b.iter().all(|x| *x == 7));
            });
            while slow.reads.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let (tell, told) = mpsc::channel();
            s.spawn(move || {
                q.start(read(f, 3, 3)).unwrap();
                check(&q.take(3).unwrap().unwrap(), 3);
                assert_eq!((q.in_flight(), q.cancel(1).unwrap()), (2, 0));
                tell.send(()).unwrap();
            });
            let free = told.recv_timeout(Duration::from_secs(20));
            slow.end();
            reader.join().unwrap();
            check(&q.take(2).unwrap().unwrap(), 2);
            free.unwrap_or_else(|_| panic!("{uri}: a plain call holds the queue"));
            assert_eq!(q.in_flight(), 0, "{uri}");
        });
    }
}

#[test]
fn buffered_transfers_of_libaio_do_not_hold_the_queue() {
    let Ok(io) = Io::from_uri("libaio") else { return };
    let dir = tempfile::tempdir().unwrap();
    let f = filled(&io, dir.path(), 4);
    let q = io.shared_queue(4).unwrap();
    // Its submission would be the whole transfer.
    q.start(read(&f, 1, 1)).unwrap();
    check(&q.take(1).unwrap().unwrap(), 1);
    assert_eq!(io.stats().inline, 1);
    // One that is dropped with such a read not submitted, and with one chained after it.
    q.push_all(vec![read(&f, 1, 1).then(), read(&f, 2, 2)]).unwrap();
    drop(q);
}

#[test]
fn a_queue_that_breaks_answers_what_is_done_by_plain_calls_when_it_is_done() {
    let (_dir, f) = some_file();
    let slow = Arc::new(Slow::default());
    let file = File::from_raw(Arc::clone(&slow) as _);
    let (failing, waiter) = (Arc::<AtomicBool>::default(), Arc::new(Gate::default()));
    let raw = Gated {
        pushed: Vec::new(),
        open: Arc::default(),
        failing: Arc::clone(&failing),
        waiter: Arc::clone(&waiter),
    };
    let q = SharedQueue::new(Box::new(Lending { gated: raw, out: 0 }), 8);
    bounded(|| {
        std::thread::scope(|s| {
            let (q, f, file) = (&q, &f, &file);
            s.spawn(move || assert!(q.start(read(file, 0, 1)).is_ok()));
            while slow.reads.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let taker = s.spawn(move || q.take(1).unwrap().unwrap());
            let other = s.spawn(move || q.start(read(f, 0, 2)));
            other.join().unwrap().unwrap();
            failing.store(true, SeqCst);
            assert!(q.submit().is_err());
            assert!(!taker.is_finished());
            assert_eq!(q.in_flight(), 2);
            assert_eq!(q.take(2).unwrap().unwrap().result.unwrap_err().errno(), Some(libc::EBADF));
            slow.end();
            let done = taker.join().unwrap();
            // Its result, and its buffer: nobody else has it.
            assert_eq!(done.result.unwrap(), 4096);
            assert!(matches!(done.buf, Buf::Aligned(_)));
        });
    });
    assert_eq!(q.in_flight(), 0);
}

/// A queue that hands the first operation out.
struct Lending {
    gated: Gated,
    out: usize,
}

impl RawQueue for Lending {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        self.gated.push(op)
    }

    fn submit(&mut self) -> Result<()> {
        self.gated.submit()
    }

    fn wait(&mut self, min: usize) -> Result<()> {
        self.gated.wait(min)
    }

    fn pop(&mut self) -> Option<Done> {
        self.gated.pop()
    }

    fn in_flight(&self) -> usize {
        self.gated.in_flight() + self.out
    }

    fn lends(&mut self) -> Option<&mut dyn Lends> {
        Some(self)
    }

    fn holds(&self, user: u64) -> bool {
        user == 1 && self.out > 0 || self.gated.holds(user)
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        self.gated.waiter()
    }

    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        self.gated.fail_all(e)
    }
}

impl Lends for Lending {
    fn plain(&mut self) -> Option<(u32, Op)> {
        let op = self.gated.pushed.pop_if(|op| op.user == 1)?;
        self.out += 1;
        Some((0, op))
    }

    fn has_plain(&self) -> bool {
        false
    }

    fn bring_back(&mut self, _: u32, _: Op, _: Result<u64>) {
        panic!("a broken queue has no place for it");
    }
}

mod waking;
