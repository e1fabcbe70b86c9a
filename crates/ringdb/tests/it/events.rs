//! What listeners are told of a store's life, and that they may do what they like.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use ringdb::engineswap::sim::{Disk, Plan};
use ringdb::{Db, Error, Event, EventListener, Options, SystemEnv};

fn small() -> Options {
    Options::default()
        .with_cache_bytes(4 << 20)
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_background_threads(1)
}

/// All events, in the order in which they came.
#[derive(Default)]
struct Seen(Mutex<Vec<Event>>);

impl EventListener for Seen {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Seen {
    fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    fn names(&self) -> Vec<String> {
        self.all().iter().map(|e| format!("{e:?}").split([' ', '{']).next().unwrap().to_string()).collect()
    }

    fn count(&self, name: &str) -> usize {
        self.names().iter().filter(|n| *n == name).count()
    }

    /// Waits until there is such an event, for a minute at most.
    fn wait_for(&self, what: &str, is: impl Fn(&Event) -> bool) -> Event {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(event) = self.all().into_iter().find(|e| is(e)) {
                return event;
            }
            assert!(Instant::now() < end, "no {what}: {:?}", self.names());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn fill(db: &Db, keys: std::ops::Range<u32>) {
    for i in keys {
        db.put(format!("{i:06}"), vec![7; 500]).unwrap();
    }
}

/// For reading, then with twenty writes to replay.
fn opened_again(dir: &std::path::Path) {
    let again = Arc::new(Seen::default());
    let reader = Db::open_read_only(dir, small().with_listener(again.clone())).unwrap();
    assert!(matches!(again.all()[..], [Event::Opened { read_only: true, tables, .. }] if tables > 0));
    reader.close().unwrap();
    assert_eq!(again.names(), ["Opened", "Closed"]);
    let db = Db::open(dir, small().with_listener(again.clone())).unwrap();
    let opened = again.all()[2].clone();
    assert!(
        matches!(opened, Event::Opened { read_only: false, replayed_bytes, replayed_frames: 20, .. }
            if replayed_bytes > 5000),
        "{opened:?}"
    );
    assert_eq!(db.stats().listener_panics, 0);
}

#[test]
fn a_life_is_told_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let db = Db::open(dir.path(), small().with_listener(seen.clone())).unwrap();
    let Event::Opened { directory, read_only, tables, replayed_frames, replayed_bytes, lost, .. } =
        &seen.all()[0]
    else {
        panic!("{:?}", seen.names())
    };
    assert_eq!((directory.as_path(), *read_only, *tables), (dir.path(), false, 0));
    assert_eq!((*replayed_frames, *replayed_bytes), (0, 0));
    assert!(lost.is_none());
    fill(&db, 0..1000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.wait_idle().unwrap();
    fill(&db, 0..20);
    let before = db.stats();
    // As after a kill: with a log to replay.
    drop(db);

    let all = seen.all();
    assert!(matches!(all.last(), Some(Event::Closed { .. })), "{:?}", seen.names());
    let flushed: u64 = all
        .iter()
        .map(|e| match e {
            Event::FlushEnded { written_bytes, memtable_bytes, tables, error: None, .. } => {
                assert!(*memtable_bytes > 0 && *tables == 1, "a flush of so little makes a table");
                *written_bytes
            }
            _ => 0,
        })
        .sum();
    assert_eq!(flushed, before.flush_written_bytes);
    assert_eq!(seen.count("FlushBegan"), seen.count("FlushEnded"));
    assert_eq!(seen.count("FlushEnded") as u64, before.flushes);
    let (mut read, mut moved, mut reasons, mut open) = (0, 0, Vec::new(), None);
    for event in &all {
        match event {
            Event::CompactionBegan { reason, level, output, tables, bytes, .. } => {
                assert!(open.is_none() && level <= output && *tables > 0 && *bytes > 0);
                open = Some((*reason, *level, *output));
            }
            Event::CompactionEnded { reason, level, output, read_bytes, moved_tables, error, .. } => {
                assert!(*moved_tables == 0 || *read_bytes == 0, "moved, or read");
                moved += moved_tables;
                assert_eq!(open.take(), Some((*reason, *level, *output)));
                assert!(error.is_none());
                read += read_bytes;
                reasons.push(*reason);
            }
            _ => {}
        }
    }
    assert_eq!((read, moved), (before.compaction_read_bytes, before.trivial_moves));
    assert!(!reasons.is_empty());
    for (reason, times) in before.compaction_reasons {
        assert_eq!(reasons.iter().filter(|r| **r == reason).count() as u64, times, "{reason}");
    }

    opened_again(dir.path());
}

#[test]
fn writers_that_are_slowed_and_their_release_are_told_once_each() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let db = Db::open(dir.path(), small().with_listener(seen.clone())).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let mut n = 0;
    while seen.count("StallBegan") == 0 {
        assert!(Instant::now() < end, "writers were never slowed");
        fill(&db, n..n + 500);
        n += 500;
    }
    let stall = seen.wait_for("stall", |e| matches!(e, Event::StallBegan { .. }));
    assert!(matches!(stall, Event::StallBegan { reason, .. } if !reason.is_empty()));
    db.flush().unwrap();
    db.wait_idle().unwrap();
    seen.wait_for("end of the stall", |e| matches!(e, Event::StallEnded { .. }));
    db.close().unwrap();
    // By several threads: the end of one may be told before the beginning of the next, or behind it.
    let (began, ended) = (seen.count("StallBegan"), seen.count("StallEnded"));
    assert!(began == ended || began == ended + 1, "{began} {ended}");
}

#[test]
fn trouble_its_end_and_the_end_of_writing_are_told() {
    let disk =
        Disk::from_config(&ringdb::engineswap::uri::SimConfig { seed: 5, ..Default::default() }).unwrap();
    let seen = Arc::new(Seen::default());
    let options = small().with_listener(seen.clone());
    let db = Db::open_with_env("/s", options, disk.io(), SystemEnv::shared()).unwrap();
    fill(&db, 0..20);
    db.wait_prepared().unwrap();
    // The disk is full when a flush makes its table.
    disk.set_plan(Plan::parse("on create *.sst ENOSPC").unwrap());
    assert!(db.flush().is_err());
    let trouble = seen.wait_for("trouble", |e| matches!(e, Event::TroubleBegan { .. }));
    assert!(matches!(trouble, Event::TroubleBegan { work: "flush", error, .. } if !error.is_empty()));
    disk.set_plan(Plan::none());
    seen.wait_for("the end of it", |e| matches!(e, Event::TroubleEnded { work: "flush", .. }));
    assert_eq!(seen.count("TroubleBegan"), 1);
    assert!(seen.all().iter().any(|e| matches!(e, Event::FlushEnded { error: Some(_), .. })));
    assert_eq!(seen.count("Stopped"), 0);

    disk.set_plan(Plan::parse("on fdatasync *.log EIO").unwrap());
    db.put("k", "v").unwrap();
    assert!(db.sync().is_err());
    let stopped = seen.wait_for("end of writing", |e| matches!(e, Event::Stopped { .. }));
    let why = db.stats().stopped.unwrap();
    assert!(matches!(stopped, Event::Stopped { reason, .. } if reason == why), "{why}");
    drop(db);
    assert_eq!(seen.count("Stopped"), 1);
}

/// Calls the store from within each event.
#[derive(Default)]
struct Curious {
    db: OnceLock<Db>,
    asked: Mutex<u64>,
}

impl EventListener for Curious {
    fn event(&self, _event: &Event) {
        if let Some(db) = self.db.get() {
            db.stats();
            db.get("000001").unwrap();
            match db.put("from a listener", "1") {
                // Memory is full of memtables, which perhaps this thread flushes.
                Ok(()) | Err(Error::Invalid(_)) => {}
                Err(e) => panic!("{e}"),
            }
            for waits in [db.flush(), db.wait_idle(), db.compact_range(..), db.clone().close()] {
                assert!(waits.is_ok() || waits.is_err_and(|e| e.to_string().contains("another thread")));
            }
            *self.asked.lock().unwrap() += 1;
        }
    }
}

#[test]
fn a_listener_may_call_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let curious = Arc::new(Curious::default());
    let db = Db::open(dir.path(), small().with_listener(curious.clone())).unwrap();
    assert!(curious.db.set(db.clone()).is_ok());
    fill(&db, 0..3000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    assert!(*curious.asked.lock().unwrap() > 4);
    assert!(db.get("from a listener").unwrap().is_some());
    db.close().unwrap();
}

struct Panics;

impl EventListener for Panics {
    fn event(&self, _event: &Event) {
        panic!("a listener's own fault");
    }
}

#[test]
fn a_listener_that_panics_harms_nothing_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let db = Db::open(dir.path(), small().with_listener(Panics).with_listener(seen.clone())).unwrap();
    fill(&db, 0..1000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let panics = db.stats().listener_panics;
    assert!(panics > 3 && panics <= seen.all().len() as u64, "{panics}");
    assert!(db.get("000999").unwrap().is_some());
    db.close().unwrap();
    assert_eq!(seen.count("Closed"), 1);
}

#[test]
fn moves_are_told_apart_from_merges_and_ingests_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let db = Db::open(dir.path(), small().with_listener(seen.clone())).unwrap();
    // One range behind the other: what is full goes down without being read.
    for i in 0..12 {
        fill(&db, i * 1000..(i + 1) * 1000);
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    let k = db.keyspace("loaded").unwrap();
    assert_eq!(k.ingest((0..100_u32).map(|i| (i.to_be_bytes(), "v"))).unwrap(), 100);
    let stats = db.stats();
    db.close().unwrap();

    let ended = |f: &dyn Fn(u64, u64) -> u64| {
        let of = |e: &Event| match e {
            Event::CompactionEnded { moved_tables, read_bytes, .. } => f(*moved_tables, *read_bytes),
            _ => 0,
        };
        seen.all().iter().map(of).sum::<u64>()
    };
    assert!(stats.trivial_moves > 0, "{stats:?}");
    assert_eq!(ended(&|moved, _| moved), stats.trivial_moves);
    assert_eq!(ended(&|moved, read| if moved > 0 { read } else { 0 }), 0);
    let ingests: Vec<Event> =
        seen.all().into_iter().filter(|e| matches!(e, Event::Ingested { .. })).collect();
    let [Event::Ingested { keyspace, pairs: 100, tables: 1, written_bytes, .. }] = &ingests[..] else {
        panic!("{ingests:?}")
    };
    assert!(keyspace == "loaded" && *written_bytes > 500);
}
