//! Deadlines: reads behind a device that does nothing, writes behind a committer that does not run. The calls end in
//! time, and what they waited for harms nobody when it comes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::async_reads::{check, filled, key};
use crate::executor::{block_on, join_all, poll_once};
use crate::failing;

use ringdb::engineswap::engine::{RawQueue, RawWaiter};
use ringdb::engineswap::{self, Done, Io, Op, Result};
use ringdb::{
    Db, Durability, Env, Error, ErrorKind, Options, ReadOptions, SystemEnv, WriteBatch, WriteOptions,
};

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(1000);

fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn timed_out<T: std::fmt::Debug>(result: ringdb::Result<T>) {
    let e = result.unwrap_err();
    assert!(matches!(e, Error::TimedOut) && e.kind() == ErrorKind::TimedOut, "{e}");
}

/// A device that answers nothing while it is shut; what was taken back ends so when it is open again.
#[derive(Default)]
struct Device {
    shut: AtomicBool,
    /// Whether somebody has rung.
    rung: Mutex<bool>,
    bell: Condvar,
    canceled: AtomicUsize,
}

impl Device {
    fn set_shut(&self, shut: bool) {
        self.shut.store(shut, SeqCst);
        self.wake();
    }
}

impl RawWaiter for Device {
    fn wait(&self) -> Result<()> {
        self.wait_at_most(None)
    }
    fn wait_at_most(&self, most: Option<Duration>) -> Result<()> {
        let rung = self.rung.lock().unwrap();
        let most = most.unwrap_or(LONG);
        *self.bell.wait_timeout_while(rung, most, |rung| !*rung).unwrap().0 = false;
        Ok(())
    }
    fn wake(&self) {
        *self.rung.lock().unwrap() = true;
        self.bell.notify_all();
    }
    fn fd(&self) -> Result<std::os::fd::BorrowedFd<'_>> {
        Err(engineswap::Error::new(engineswap::ErrorKind::Unsupported, "queue", "part of a test"))
    }
}

struct Held {
    device: Arc<Device>,
    ops: Vec<Op>,
    canceled: Vec<Op>,
}

impl RawQueue for Held {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        self.ops.push(op);
        Ok(())
    }
    fn submit(&mut self) -> Result<()> {
        Ok(())
    }
    fn wait(&mut self, _: usize) -> Result<()> {
        panic!("waited for with the lock held");
    }
    fn pop(&mut self) -> Option<Done> {
        if self.device.shut.load(SeqCst) {
            return None;
        }
        if let Some(op) = self.canceled.pop() {
            let e = engineswap::Error::new(engineswap::ErrorKind::Canceled, "read", "part of a test");
            return Some(Done { user: op.user, result: Err(e), buf: op.buf });
        }
        self.ops.pop().map(failing::run)
    }
    fn in_flight(&self) -> usize {
        self.ops.len() + self.canceled.len()
    }
    fn cancel(&mut self, user: u64) -> Result<usize> {
        let found = self.ops.iter().position(|op| op.user == user);
        self.canceled.extend(found.map(|i| self.ops.remove(i)));
        self.device.canceled.fetch_add(usize::from(found.is_some()), SeqCst);
        Ok(usize::from(found.is_some()))
    }
    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        Some(self.device.clone())
    }
}

#[test]
fn reads_end_in_time_behind_a_device_that_does_nothing() {
    let dir = temp();
    drop(filled(dir.path(), "posix", true));
    let device = Arc::new(Device::default());
    let queues = Arc::clone(&device);
    let io = failing::with_queues(move || {
        Box::new(Held { device: queues.clone(), ops: Vec::new(), canceled: Vec::new() })
    });
    let options = Options::default().with_cache_bytes(1 << 20).with_direct_reads(true);
    let db = Db::open_with_env(dir.path(), options, io, SystemEnv::shared()).unwrap();
    db.wait_idle().unwrap();
    device.set_shut(true);
    let (soon, late) =
        (ReadOptions::default().with_deadline(SHORT), ReadOptions::default().with_deadline(LONG));
    let start = Instant::now();
    let mut patient = db.get_async_with(key(1), &late);
    assert!(poll_once(&mut patient).is_pending());
    timed_out(block_on(db.get_async_with(key(1), &soon)));
    assert!(start.elapsed() >= SHORT);
    let some = (0..60).map(|i| i * 300).filter(|i| i % 7 != 3);
    join_all(some.map(|i| db.get_async_with(key(i), &soon))).into_iter().for_each(timed_out);
    timed_out(block_on(db.multi_get_async_with(&[key(2), key(9000)], &soon)));
    timed_out(db.get_with(key(16_000), &soon));
    timed_out(db.snapshot().multi_get_with(&[key(12_000)], &soon));
    timed_out(db.get_with(key(12_000), &ReadOptions::default().with_deadline(Duration::ZERO)));
    assert!(start.elapsed() < LONG / 10);
    // One that comes when the read has been taken back is not fooled by that.
    let mut joins = db.get_async(key(16_000));
    assert!(poll_once(&mut joins).is_pending());
    assert!(device.canceled.load(SeqCst) > 30);
    device.set_shut(false);
    check(16_000, block_on(joins));
    check(1, block_on(patient));
    check(2, db.get_with(key(2), &late));
    // In memory now.
    check(2, db.get_with(key(2), &ReadOptions::default().with_deadline(Duration::ZERO)));
    db.close().unwrap();
}

#[test]
fn what_cannot_keep_a_deadline_refuses_it() {
    let dir = temp();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let soon = ReadOptions::default().with_deadline(SHORT);
    assert!(matches!(db.range_with(.., &soon).next(), Some(Err(Error::Invalid(_)))));
    assert!(matches!(db.snapshot().range_with(.., &soon).next(), Some(Err(Error::Invalid(_)))));
    assert!(matches!(db.reads_with(4, &soon), Err(Error::Invalid(_))));
}

/// An environment whose committer begins only when the gate is opened.
struct Gated {
    env: Arc<dyn Env>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Env for Gated {
    fn now(&self) -> Duration {
        self.env.now()
    }
    fn sleep(&self, d: Duration) {
        self.env.sleep(d);
    }
    fn random(&self) -> u64 {
        self.env.random()
    }
    fn spawn(
        &self,
        name: &str,
        background: bool,
        f: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Box<dyn FnOnce() + Send>> {
        let gate = (name == "ringdb-commit").then(|| Arc::clone(&self.gate));
        let body = move || {
            if let Some(gate) = gate {
                drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
            }
            f();
        };
        self.env.spawn(name, background, Box::new(body))
    }
}

#[test]
fn writes_end_in_time_and_are_not_begun_afterwards() {
    let dir = temp();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let env = Arc::new(Gated { env: SystemEnv::shared(), gate: Arc::clone(&gate) });
    let io = Io::from_uri("auto").unwrap();
    let db = Db::open_with_env(dir.path(), Options::default(), io, env).unwrap();
    let sync = WriteOptions::default().durability(Durability::Sync);
    let batch = |key: &str| {
        let mut batch = WriteBatch::new();
        batch.put(key, "x");
        batch
    };
    let mut patient = db.write_async(batch("patient"), &sync.with_deadline(LONG));
    assert!(poll_once(&mut patient).is_pending());
    let start = Instant::now();
    timed_out(block_on(db.write_async(batch("late"), &sync.with_deadline(SHORT))));
    assert!(start.elapsed() >= SHORT && start.elapsed() < LONG / 10);
    timed_out(db.write(batch("late"), &sync.with_deadline(SHORT)));
    timed_out(db.write(WriteBatch::new(), &sync.with_deadline(SHORT)));
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    block_on(patient).unwrap();
    db.write(batch("in time"), &sync.with_deadline(LONG)).unwrap();
    assert!(db.get("patient").unwrap().is_some() && db.get("in time").unwrap().is_some());
    assert_eq!(db.get("late").unwrap(), None);
    db.close().unwrap();
}

#[test]
fn deadlines_that_are_kept_leave_nothing() {
    let dir = temp();
    let db = filled(dir.path(), "auto", false);
    let late = ReadOptions::default().with_deadline(LONG);
    for round in 0..20 {
        let all = join_all((0..500).map(|i| db.get_async_with(key(round * 900 + i), &late)));
        (0..).zip(all).for_each(|(i, got)| check(round * 900 + i, got));
    }
    check(5, db.get_with(key(5), &ReadOptions::default().with_deadline(Duration::MAX)));
    db.close().unwrap();
}
