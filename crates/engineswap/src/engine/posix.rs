//! The posix engine: plain system calls; a queue's operations run on a pool of threads.
//!
//! The pool belongs to the engine, is started as it is needed, and ends with the engine and its last queue. A
//! thread that waits for its queue does reads of its own meanwhile, and what the page cache has is read at submission
//! (RWF_NOWAIT), so cached reads cost no switch; a read that is tried in vain has started its read-ahead.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::bell::Bell;
use super::owned::SlotQueue;
use super::slots::SlotTable;
use super::{Engine, RawWaiter};
use crate::engine::driver::{Driver, OsEngine, Users};
use crate::engine::exec;
use crate::info::EngineInfo;
use crate::kind::OpKind;
use crate::op::{Done, Op};
use crate::process::{OfProcess, Process};
use crate::stats::{Counter, Stats};
use crate::uri::PosixConfig;
use crate::{Error, Result};

/// Operations of one batch in flight or waiting for a thread.
const RUN_DEPTH: u32 = 256;

/// Opens the engine.
pub fn open(config: &PosixConfig, reasons: Vec<String>) -> Arc<dyn Engine> {
    let pool = OfProcess::new(Pool::new(config.threads));
    OsEngine::start(Posix { pool, config: config.clone(), reasons })
}

struct Posix {
    pool: OfProcess<Arc<Pool>>,
    config: PosixConfig,
    reasons: Vec<String>,
}

impl Driver for Posix {
    const NAME: &std::ffi::CStr = c"posix";
    type Queue = PosixQueue;

    fn info(&self) -> EngineInfo {
        EngineInfo { name: "posix", uri: self.config.to_string(), reasons: self.reasons.clone() }
    }

    fn queue(&self, depth: u32, _: Users, stats: &Arc<Stats>) -> Result<PosixQueue> {
        let pool = self.pool.get(|| Pool::new(self.config.threads));
        Ok(PosixQueue::new(pool, self.config.nowait, depth, stats))
    }

    fn run_depth(&self) -> u32 {
        RUN_DEPTH
    }

    fn queue_always(&self) -> bool {
        self.config.queue_always
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds these locks can panic halfway through a change.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool's side that its threads know: queues with work, once for each operation.
struct Jobs {
    list: Mutex<JobList>,
    wake: Condvar,
}

#[derive(Default)]
struct JobList {
    queues: VecDeque<Arc<Shared>>,
    idle: usize,
    stop: bool,
}

struct Pool {
    jobs: Arc<Jobs>,
    limit: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: Process,
}

impl Pool {
    fn new(limit: u32) -> Arc<Pool> {
        let jobs = Arc::new(Jobs { list: Mutex::new(JobList::default()), wake: Condvar::new() });
        let limit = limit.max(1) as usize;
        Arc::new(Pool { jobs, limit, threads: Mutex::new(Vec::new()), process: Process::this() })
    }

    /// Announces `n` operations of `queue`; says whether there is a thread to do them.
    fn announce(&self, queue: &Arc<Shared>, n: usize) -> bool {
        let (waiting, idle) = {
            let mut list = lock(&self.jobs.list);
            list.queues.extend(std::iter::repeat_n(queue, n).cloned());
            (list.queues.len(), list.idle)
        };
        for _ in 0..n.min(idle) {
            self.jobs.wake.notify_one();
        }
        let mut threads = lock(&self.threads);
        for _ in idle..waiting {
            if threads.len() >= self.limit {
                break;
            }
            let jobs = self.jobs.clone();
            match std::thread::Builder::new().name("engineswap".into()).spawn(move || work(&jobs)) {
                Ok(t) => threads.push(t),
                // No more threads to be had: those that exist, or the caller, do the work.
                Err(_) => break,
            }
        }
        !threads.is_empty()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // A child after fork() has none of these threads, so there is nothing to join, nor to detach.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            return std::mem::forget(std::mem::take(threads));
        }
        lock(&self.jobs.list).stop = true;
        self.jobs.wake.notify_all();
        for t in lock(&self.threads).drain(..) {
            // A thread's own panic was caught and answered.
            let _ = t.join();
        }
    }
}

fn work(jobs: &Jobs) {
    let mut list = lock(&jobs.list);
    loop {
        if let Some(queue) = list.queues.pop_front() {
            drop(list);
            // The caller may have done it already.
            let job = lock(&queue.work).todo.pop_front();
            if let Some(job) = job {
                queue.finish(run(job));
            }
            drop(queue);
            list = lock(&jobs.list);
        } else if list.stop {
            return;
        } else {
            list.idle += 1;
            list = jobs.wake.wait(list).unwrap_or_else(PoisonError::into_inner);
            list.idle -= 1;
        }
    }
}

/// One queue as its workers see it.
struct Shared {
    work: Mutex<Work>,
    ready: Condvar,
    /// Rings when an operation is done; made when somebody asks for a descriptor.
    bell: OnceLock<Bell>,
}

#[derive(Default)]
struct Work {
    todo: VecDeque<(u32, Op)>,
    done: Vec<(u32, Op, Result<u64>)>,
    /// The owner waits until so many are done.
    wanted: usize,
    /// Whoever waits beside the queue is to look at it.
    rung: bool,
}

impl Shared {
    /// Does an operation that no thread has taken yet.
    fn help(&self, what: impl Fn(&Op) -> bool) -> bool {
        let mut work = lock(&self.work);
        if !work.todo.back().is_some_and(|(_, op)| what(op)) {
            return false;
        }
        let job = work.todo.pop_back();
        drop(work);
        job.map(|job| self.finish(run(job))).is_some()
    }

    fn finish(&self, done: (u32, Op, Result<u64>)) {
        let mut w = lock(&self.work);
        w.done.push(done);
        if w.wanted > 0 && w.done.len() >= w.wanted {
            self.ready.notify_one();
        }
        drop(w);
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }
}

impl RawWaiter for Shared {
    fn wait(&self) -> Result<()> {
        loop {
            let mut work = lock(&self.work);
            if std::mem::take(&mut work.rung) || !work.done.is_empty() {
                return Ok(());
            }
            drop(work);
            if self.help(|op| op.kind == OpKind::Read) {
                continue;
            }
            let mut work = lock(&self.work);
            work.wanted = 1;
            while work.done.is_empty() && !work.rung {
                work = self.ready.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
            work.wanted = 0;
        }
    }

    /// Helps nobody: the operation may be a slow one.
    fn wait_at_most(&self, most: Option<Duration>) -> Result<()> {
        let mut work = lock(&self.work);
        work.wanted = 1;
        let over = |w: &mut Work| w.done.is_empty() && !w.rung;
        work = match most {
            None => self.ready.wait_while(work, over).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                self.ready.wait_timeout_while(work, most, over).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        (work.wanted, work.rung) = (0, false);
        if let Some(bell) = self.bell.get() {
            bell.silence();
        }
        Ok(())
    }

    fn fd(&self) -> Result<BorrowedFd<'_>> {
        let _work = lock(&self.work);
        if self.bell.get().is_none() {
            let bell = Bell::new()?;
            // What has come before shows, too.
            bell.ring();
            let _ = self.bell.set(bell);
        }
        self.bell.get().map(Bell::as_fd).ok_or_else(|| Error::from_errno("eventfd", libc::EBADF))
    }

    fn wake(&self) {
        lock(&self.work).rung = true;
        self.ready.notify_one();
    }
}

fn run((slot, mut op): (u32, Op)) -> (u32, Op, Result<u64>) {
    let result = exec::perform_alone(&mut op);
    (slot, op, result)
}

struct PosixQueue {
    slots: SlotTable,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    back: Vec<(u32, Op, Result<u64>)>,
    /// Cached reads are done at submission.
    nowait: bool,
}

impl PosixQueue {
    fn new(pool: &Arc<Pool>, nowait: bool, depth: u32, stats: &Arc<Stats>) -> PosixQueue {
        let shared = Arc::new(Shared {
            work: Mutex::new(Work::default()),
            ready: Condvar::new(),
            bell: OnceLock::new(),
        });
        PosixQueue {
            slots: SlotTable::new(depth, stats),
            shared,
            pool: pool.clone(),
            back: Vec::new(),
            nowait,
        }
    }

    fn collect(&mut self) {
        std::mem::swap(&mut lock(&self.shared.work).done, &mut self.back);
        if self.back.is_empty() {
            return;
        }
        self.slots.tick();
        for (slot, op, result) in self.back.drain(..) {
            self.slots.bring_back(slot, op, result);
        }
        self.slots.count();
    }

    fn start(&mut self) {
        let mut n = 0;
        self.slots.feed();
        if self.slots.has_pending() {
            self.slots.tick();
            let mut jobs = Vec::new();
            while let Some(i) = self.slots.next_pending() {
                let Some(mut op) = self.slots.lend(i) else { continue };
                match self.nowait.then(|| exec::read_cached(&mut op)).flatten() {
                    Some(got) => {
                        self.slots.stats().add(Counter::Inline, 1);
                        // It took its time, which the others waited for.
                        self.slots.tick();
                        self.slots.bring_back(i, op, Ok(got));
                    }
                    None => jobs.push((i, op)),
                }
            }
            self.slots.count();
            n = jobs.len();
            lock(&self.shared.work).todo.extend(jobs);
        }
        if n > 0 && !self.pool.announce(&self.shared, n) {
            while self.shared.help(|_| true) {}
        }
    }

    /// Waits until `n` operations are back; reads that nobody has taken are done here.
    fn wait_for(&mut self, n: usize) {
        loop {
            if lock(&self.shared.work).done.len() >= n {
                break;
            }
            if self.shared.help(|op| op.kind == OpKind::Read) {
                continue;
            }
            let mut work = lock(&self.shared.work);
            work.wanted = n;
            while work.done.len() < n {
                work = self.shared.ready.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
            work.wanted = 0;
            break;
        }
        self.collect();
    }
}

impl SlotQueue for PosixQueue {
    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    fn slots_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }

    fn submit(&mut self) -> Result<()> {
        self.collect();
        self.start();
        Ok(())
    }

    fn wait(&mut self, min: usize) -> Result<()> {
        self.submit()?;
        let min = min.min(self.slots.in_flight());
        while self.slots.ready() < min {
            let missing = (min - self.slots.ready()).min(self.slots.running());
            if missing == 0 && self.slots.starving() {
                self.slots.await_buffer();
                self.start();
                continue;
            }
            if missing == 0 {
                break;
            }
            self.wait_for(missing);
            // What was chained after an operation that came back.
            self.start();
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<Done> {
        if self.slots.ready() == 0 && (self.slots.running() > 0 || self.slots.starving()) {
            self.collect();
            self.start();
        }
        self.slots.pop()
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        let shared: Arc<dyn RawWaiter> = self.shared.clone();
        Some(shared)
    }
}

impl Drop for PosixQueue {
    fn drop(&mut self) {
        if !self.pool.process.is_this() {
            // What is in flight is the parent's. The files and buffers of the rest go with the process.
            return self.slots.leak();
        }
        // Operations own what they touch, so workers could go on alone; but a caller that drops its queue may
        // rely on nothing being written afterwards.
        self.slots.discard_pending();
        while self.slots.running() > 0 {
            self.wait_for(1);
            self.start();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::mem::AlignedBuf;
    use crate::{Buf, Direct, ErrorKind, Io, Op, OpenHow, Purpose};

    fn io() -> Io {
        Io::from_uri("posix?threads=4").unwrap()
    }

    #[test]
    fn a_batch_comes_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let io = io();
        for direct in [Direct::No, Direct::Prefer] {
            let f = io.open(&dir.path().join("f"), &OpenHow::read_write().direct(direct)).unwrap();
            let mut data = AlignedBuf::zeroed(64 * 4096);
            for (i, page) in data.chunks_mut(4096).enumerate() {
                page.fill(i as u8);
            }
            f.write_all_at(&data, 0, Purpose(1)).unwrap();
            let ops = (0..100u64).map(|i| {
                let buf = Buf::Aligned(AlignedBuf::zeroed(4096));
                Op::read(&f, (i * 7 % 66) * 4096, 4096, buf, Purpose(2)).user(1000 + i)
            });
            for (i, done) in io.run(ops.collect()).into_iter().enumerate() {
                assert_eq!(done.user, 1000 + i as u64);
                let page = i * 7 % 66;
                assert_eq!(done.result.unwrap(), if page < 64 { 4096 } else { 0 });
                let Buf::Aligned(b) = done.buf else { panic!("the buffer is gone") };
                assert!(b.iter().all(|x| *x == if page < 64 { page as u8 } else { 0 }));
            }
        }
        let stats = io.stats();
        assert_eq!(stats.of(crate::OpClass::Read, Purpose(2)).ops, 200);
        assert_eq!(stats.writes().bytes, 2 * 64 * 4096);
    }

    #[test]
    fn cached_reads_need_no_thread() {
        let dir = tempfile::tempdir().unwrap();
        for nowait in [true, false] {
            let io = Io::from_uri(if nowait { "posix" } else { "posix?nowait=off" }).unwrap();
            let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
            f.write_all_at(&[7; 16 * 4096], 0, Purpose(0)).unwrap();
            let mut q = io.queue(32).unwrap();
            let buf = |n| Buf::Aligned(AlignedBuf::zeroed(n));
            for i in 0..16 {
                q.push(Op::read(&f, i * 4096, 4096, buf(4096), Purpose(0)).user(i)).unwrap();
            }
            // Over the end, and more than is worth it: for the threads.
            q.push(Op::read(&f, 15 * 4096, 8192, buf(8192), Purpose(0)).user(16)).unwrap();
            q.push(Op::read(&f, 0, 16 * 4096, buf(1 << 20), Purpose(0)).user(17)).unwrap();
            q.push(Op::read(&f, 0, 1 << 20, buf(1 << 20), Purpose(0)).user(18)).unwrap();
            q.submit().unwrap();
            assert_eq!(io.stats().inline, if nowait { 17 } else { 0 });
            q.wait(19).unwrap();
            while let Some(done) = q.pop() {
                let want = [4096, 4096, 16 * 4096, 16 * 4096][done.user.saturating_sub(15) as usize];
                assert_eq!(done.result.unwrap(), want, "read {}", done.user);
                let Buf::Aligned(b) = done.buf else { panic!("the buffer is gone") };
                assert!(b[..want as usize].iter().all(|b| *b == 7));
            }
            assert_eq!(io.stats().reads().ops, 19);
        }
    }

    #[test]
    fn chains_stop_at_the_first_failure() {
        let dir = tempfile::tempdir().unwrap();
        let io = io();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        let r = io.open(&dir.path().join("f"), &OpenHow::read()).unwrap();
        let buf = || Buf::Aligned(AlignedBuf::zeroed(4096));
        let ops = vec![
            Op::write(&f, 0, 4096, buf(), Purpose(0)).then(),
            Op::write(&r, 4096, 4096, buf(), Purpose(0)).then(),
            Op::write(&f, 8192, 4096, buf(), Purpose(0)).then(),
            Op::sync_data(&f, Purpose(0)),
            Op::write(&f, 0, 10, buf(), Purpose(0)),
        ];
        let kinds: Vec<_> = io.run(ops).into_iter().map(|d| d.result.map_err(|e| e.kind())).collect();
        let c = Err(ErrorKind::Canceled);
        assert_eq!(kinds, [Ok(4096), Err(ErrorKind::Io), c, c, Ok(10)]);
        assert_eq!(f.len().unwrap(), 4096);
    }

    #[test]
    fn a_chain_may_be_longer_than_the_stack_is_deep() {
        let dir = tempfile::tempdir().unwrap();
        let io = io();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        let n = 50_000u64;
        let chain = |q: &mut crate::Queue| {
            for i in 0..n {
                let op = Op { len: u64::from(i == 0), ..Op::sync_data(&f, Purpose(0)) };
                // The first is wrong: there is no buffer to read into.
                let kind = if i == 0 { crate::OpKind::Read } else { op.kind };
                q.push(Op { kind, ..op }.user(i).then()).unwrap();
            }
        };
        let mut q = io.queue(n as u32).unwrap();
        chain(&mut q);
        q.wait(n as usize).unwrap();
        for i in 0..n {
            let done = q.pop().unwrap();
            assert_eq!(done.user, i);
            let want = if i == 0 { ErrorKind::InvalidInput } else { ErrorKind::Canceled };
            assert_eq!(done.result.unwrap_err().kind(), want);
        }
        q.end_chain();
        // And one that is dropped before it is submitted.
        chain(&mut q);
        drop(q);
    }

    #[test]
    fn the_pool_outlives_what_it_has_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let io = io();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        let mut q = io.queue(8).unwrap();
        for i in 0..8 {
            let buf = Buf::Aligned(AlignedBuf::zeroed(4096));
            q.push(Op::write(&f, i * 4096, 4096, buf, Purpose(0)).then()).unwrap();
        }
        q.submit().unwrap();
        drop(io);
        drop(q);
        assert_eq!(f.len().unwrap(), 8 * 4096);
        drop(f);
    }

    #[test]
    fn mappings_and_locks() {
        let dir = tempfile::tempdir().unwrap();
        let io = io();
        let path = dir.path().join("f");
        let f = io.open(&path, &OpenHow::create_new()).unwrap();
        assert_eq!(f.map(4096).err().unwrap().kind(), ErrorKind::InvalidInput);
        f.allocate(0, 8192).unwrap();
        let mut m = f.map(8192).unwrap();
        m.write(4090, b"over the page");
        f.sync_data(Purpose(0)).unwrap();
        drop(m);
        assert_eq!(&std::fs::read(&path).unwrap()[4090..4103], b"over the page");
        let lock = io.lock_file(&dir.path().join("LOCK")).unwrap();
        let other = Arc::new(io.clone());
        assert_eq!(other.lock_file(&dir.path().join("LOCK")).err().unwrap().kind(), ErrorKind::Locked);
        drop(lock);
        other.lock_file(&dir.path().join("LOCK")).unwrap();
    }
}
