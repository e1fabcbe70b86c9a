//! The limit of what compactions write a second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ringdb::engineswap::Io;
use ringdb::{Db, Env, Error, Join, Options, SystemEnv};

fn options() -> Options {
    Options::default().with_io("posix")
}

/// A clock that sleepers set forward.
struct Clock {
    system: Arc<dyn Env>,
    slept_us: AtomicU64,
    /// What compactions sleep, in naps of at least a millisecond.
    on_sleep: Option<mpsc::SyncSender<()>>,
    /// Time stands still, and sleepers really wait.
    stands: AtomicBool,
}

impl Clock {
    fn new(on_sleep: Option<mpsc::SyncSender<()>>) -> Arc<Clock> {
        let stands = AtomicBool::new(on_sleep.is_some());
        Arc::new(Clock { system: SystemEnv::shared(), slept_us: AtomicU64::new(0), on_sleep, stands })
    }

    fn slept(&self) -> Duration {
        Duration::from_micros(self.slept_us.load(SeqCst))
    }
}

impl Env for Clock {
    fn now(&self) -> Duration {
        Duration::from_secs(1) + self.slept()
    }

    fn sleep(&self, d: Duration) {
        if let Some(tell) = &self.on_sleep {
            // Whoever listens has heard enough.
            let _ = tell.try_send(());
        }
        match self.stands.load(SeqCst) {
            true => self.system.sleep(Duration::from_millis(1)),
            false => drop(self.slept_us.fetch_add(d.as_micros() as u64, SeqCst)),
        }
    }

    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        self.system.spawn(name, background, f)
    }

    fn random(&self) -> u64 {
        self.system.random()
    }
}

fn open(dir: &std::path::Path, o: Options, clock: &Arc<Clock>) -> Db {
    Db::open_with_env(dir, o, Io::from_uri("posix").unwrap(), clock.clone()).unwrap()
}

fn fill(db: &Db) {
    for i in 0..2000u32 {
        db.put(i.to_be_bytes(), [i as u8; 1000]).unwrap();
    }
    db.flush().unwrap();
}

#[test]
fn compactions_take_the_time_that_their_limit_says() {
    for (limit, least_ms) in [(0, 0), (1 << 20, 1800), (16 << 20, 95)] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new(None);
        // One memtable: nothing is compacted before it is asked for.
        let o = options().with_cache_bytes(64 << 20).with_memtable_bytes(8 << 20);
        let db = open(dir.path(), o.with_compaction_bytes_per_second(limit), &clock);
        fill(&db);
        assert_eq!(clock.slept(), Duration::ZERO, "flushes are not limited");
        db.put(1u32.to_be_bytes(), "new").unwrap();
        db.flush().unwrap();
        db.compact_range(..).unwrap();
        let written = db.stats().compaction_written_bytes;
        assert!((2_000_000..2_600_000).contains(&written), "{written}");
        let slept = clock.slept().as_millis() as u64;
        assert!(slept >= least_ms, "limit {limit}: slept {slept} ms for {written} bytes");
        let most = (written * 1000).checked_div(limit).map_or(0, |ms| ms + ms / 4);
        assert!(slept <= most, "limit {limit}: slept {slept} ms for {written} bytes");
        db.close().unwrap();
    }
}

#[test]
fn a_compaction_that_waits_for_its_limit_ends_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let (tell, sleeps) = mpsc::sync_channel(1);
    let clock = Clock::new(Some(tell));
    let o = options().with_cache_bytes(64 << 20).with_memtable_bytes(8 << 20);
    // Half a minute's work, of a clock that does not move.
    let db = open(dir.path(), o.with_compaction_bytes_per_second(64 << 10), &clock);
    fill(&db);
    db.put(1u32.to_be_bytes(), "new").unwrap();
    db.flush().unwrap();
    std::thread::scope(|s| {
        let other = db.clone();
        let waiter = s.spawn(move || other.compact_range(..));
        sleeps.recv().unwrap();
        assert_eq!(db.stats().running_compactions.len(), 1);
        db.close().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    });
    // Nothing is lost, and nothing is left behind.
    let db = Db::open(dir.path(), options()).unwrap();
    assert_eq!(db.get(1u32.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(db.get(2u32.to_be_bytes()).unwrap().as_deref(), Some(&[2u8; 1000][..]));
    assert_eq!(db.iter().count(), 2000);
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{report:?}");
}

#[test]
fn a_limit_that_is_too_low_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let e = Db::open(dir.path(), options().with_compaction_bytes_per_second(1000)).unwrap_err();
    assert!(e.to_string().contains("compaction_bytes_per_second is 1000: at least 65536 (64 KiB)"), "{e}");
}
