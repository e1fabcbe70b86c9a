//! Flush and compaction from end to end on small tables, against a model.

mod fault;
mod store;

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engineswap::Io;

use super::backpressure::{Debt, Limits};
use super::flush::flush;
use super::pick::{
    Busy, LAST, Manual, Merge, Pick, PickContext, Reason, Shape, movable, pick, pick_manual, runs,
};
use super::run::run;
use super::scheduler::{On, Scheduler, Settings};
use super::watch::Watch;
use super::{CompactionEnv, Levels};
use crate::cursor::model::Entry;
use crate::env::{Join, SystemEnv};
use crate::key::{KeyBuf, Kind, Prefix, SEQ_MAX, Seq};
use crate::settings::{SettingsMap, TableSettings};
use crate::table::meta::TableMeta;
use crate::{Error, ErrorKind, Options, Result};
use fault::{NO_SPACE, READ_ERROR, WRITE_ERROR, faulty_io};
use store::{TestTable, TestTree, Threads};

/// Numbers that a seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

const TABLE_BYTES: u64 = 24 << 10;

fn shape() -> Shape {
    Shape {
        memtable_bytes: 16 << 10,
        level0_runs: 3,
        fanout: 3,
        compaction_bytes: 400 << 10,
        settings: Arc::new(SettingsMap::uniform(TableSettings::of_store(&Options::default()))),
    }
}

/// Writes to random keys of three keyspaces, each with the next sequence number.
fn writes(r: &mut Random, n: u64, next_seq: &mut Seq) -> Vec<Entry> {
    let one = |r: &mut Random, seq: Seq| {
        let id = [0, 7, 300][r.below(3) as usize];
        let key = format!("{:05}", r.below(700));
        let kind = if r.below(4) == 0 { Kind::Delete } else { Kind::Put };
        let len = if kind == Kind::Delete { 0 } else { r.below(400) };
        let value = (0..len).map(|i| (seq + i) as u8).collect();
        Entry { key: KeyBuf::new(&Prefix::new(id), key.as_bytes()).as_slice().to_vec(), seq, kind, value }
    };
    (0..n)
        .map(|_| {
            *next_seq += 1;
            one(r, *next_seq - 1)
        })
        .collect()
}

fn pick_context(tree: &TestTree) -> PickContext {
    let oldest_view = tree.views().into_iter().min().unwrap();
    PickContext {
        oldest_view,
        dropped: tree.dropped_keyspaces(),
        damaged: tree.quarantined(),
        ..PickContext::default()
    }
}

fn next_pick(tree: &TestTree, manual: bool) -> Option<(Pick<TestTable>, Levels<TestTable>)> {
    let (levels, busy) = (tree.levels(), Busy::default());
    let p = if manual {
        match pick_manual(&levels, &shape(), &busy, &pick_context(tree), (&[], None), SEQ_MAX) {
            Manual::Pick(p) => Some(p),
            Manual::Wait => panic!("nothing runs"),
            Manual::Done => None,
        }
    } else {
        pick(&levels, &shape(), &busy, &pick_context(tree))
    };
    p.map(|p| (p, levels))
}

fn unlimited(p: &Pick<TestTable>) -> Arc<Watch> {
    Watch::over(p, &Arc::default(), &SystemEnv::shared(), None)
}

fn run_next(tree: &Arc<TestTree>, manual: bool, threads: usize) -> Result<bool> {
    let Some((p, levels)) = next_pick(tree, manual) else { return Ok(false) };
    run(tree, &p, &levels, TABLE_BYTES, &Threads(threads), &unlimited(&p))?;
    Ok(true)
}

fn flush_now(tree: &Arc<TestTree>) {
    flush(&**tree, &AtomicBool::new(false)).unwrap();
}

#[test]
fn a_flush_is_one_run_however_many_damaged_ranges_cut_it() {
    let mut r = Random(7);
    let tree = TestTree::new(Io::from_uri("posix").unwrap());
    let mut next_seq = 1;
    tree.freeze(writes(&mut r, 1500, &mut next_seq));
    flush_now(&tree);
    while run_next(&tree, true, 1).unwrap() {}
    let ids: BTreeSet<u64> = tree.levels()[LAST].iter().step_by(2).map(|t| (**t).as_ref().file_id).collect();
    assert!(ids.len() >= 3, "{ids:?}");
    *tree.quarantined.lock().unwrap() = ids;
    for _ in 0..2 {
        tree.freeze(writes(&mut r, 1500, &mut next_seq));
        flush_now(&tree);
    }
    let (levels, damaged) = (tree.levels(), tree.quarantined());
    let free = movable(levels.clone(), &damaged);
    assert!(free[0].len() >= 4, "{}", free[0].len());
    assert_eq!(
        runs(&levels, &free, &damaged, &shape().settings),
        2,
        "writers would be slowed for what is no debt"
    );
}

#[test]
fn damaged_tables_stay_where_they_are_and_the_rest_goes_on_around_them() {
    for seed in 1..=14u64 {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let tree = TestTree::new(Io::from_uri("posix").unwrap());
        let (mut model, mut next_seq) = (Vec::new(), 1);
        let threads = 1 + (seed % 3) as usize;
        let places = |tree: &TestTree, ids: &BTreeSet<u64>| {
            let levels = tree.levels();
            let all = levels
                .iter()
                .enumerate()
                .flat_map(|(l, ts)| ts.iter().map(move |t| (l, (**t).as_ref().file_id)));
            all.filter(|(_, id)| ids.contains(id)).collect::<BTreeSet<_>>()
        };
        for step in 0..90 {
            match r.below(12) {
                0..=4 => {
                    let n = 20 + r.below(150);
                    let batch = writes(&mut r, n, &mut next_seq);
                    model.extend(batch.iter().cloned());
                    tree.freeze(batch);
                }
                5..=7 => flush_now(&tree),
                8 if step % 2 == 0 => drop(tree.snapshot()),
                9 => tree.release_oldest_snapshot(),
                10 if step > 30 => {
                    // Others are damaged now; some of the old ones may be whole again.
                    let levels = tree.levels();
                    let all: Vec<u64> = levels.iter().flatten().map(|t| (**t).as_ref().file_id).collect();
                    let mut ids = tree.quarantined.lock().unwrap();
                    ids.retain(|id| all.contains(id) && r.below(2) == 0);
                    if !all.is_empty() {
                        ids.extend((0..r.below(3)).map(|_| all[r.below(all.len() as u64) as usize]));
                    }
                }
                _ => {
                    let damaged = tree.quarantined();
                    let before = places(&tree, &damaged);
                    run_next(&tree, r.below(6) == 0, threads).unwrap();
                    tree.check_order();
                    assert_eq!(places(&tree, &damaged), before, "seed {seed} step {step}");
                }
            }
            if step % 10 == 0 {
                tree.check(&model);
            }
        }
        while tree.immutable_count() > 0 {
            flush_now(&tree);
        }
        // It comes to an end, with as much done as can be.
        let damaged = tree.quarantined();
        for manual in [false, true] {
            let mut left = 500;
            while run_next(&tree, manual, threads).unwrap() {
                left -= 1;
                assert!(left > 0, "seed {seed}: compactions do not end, manual {manual}");
            }
            tree.check(&model);
        }
        let levels = tree.levels();
        let ranges: Vec<_> = levels
            .iter()
            .flatten()
            .map(|t| (**t).as_ref())
            .filter(|m| damaged.contains(&m.file_id))
            .collect();
        let stuck = |m: &TableMeta| ranges.iter().any(|d| d.smallest <= m.largest && m.smallest <= d.largest);
        let free = levels[..LAST].iter().flatten().filter(|t| !stuck((***t).as_ref())).count();
        assert_eq!(free, 0, "seed {seed}: what does not overlap damage is all in the last level");
        assert_eq!(places(&tree, &damaged).len(), damaged.len());
        drop(levels);
        // Once it is whole again, everything goes down.
        tree.quarantined.lock().unwrap().clear();
        while run_next(&tree, true, threads).unwrap() {}
        tree.check(&model);
        assert!(tree.levels()[..LAST].iter().all(Vec::is_empty));
    }
}

#[test]
fn every_view_survives_random_flushes_and_compactions() {
    for seed in 1..=12u64 {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let tree = TestTree::new(Io::from_uri("posix").unwrap());
        let (mut model, mut next_seq) = (Vec::new(), 1);
        let threads = 1 + (seed % 4) as usize;
        for step in 0..70 {
            match r.below(12) {
                0..=4 => {
                    let n = 20 + r.below(150);
                    let batch = writes(&mut r, n, &mut next_seq);
                    model.extend(batch.iter().cloned());
                    tree.freeze(batch);
                }
                5..=7 => flush_now(&tree),
                8 => drop(tree.snapshot()),
                9 => tree.release_oldest_snapshot(),
                10 if step == 40 + seed => tree.drop_keyspace(7),
                _ => drop(run_next(&tree, r.below(6) == 0, threads).unwrap()),
            }
            if step % 10 == 0 {
                tree.check(&model);
            }
        }
        while run_next(&tree, false, threads).unwrap() {}
        tree.check(&model);
        // All the way down with no snapshot left: one version a key, no tombstones, nothing dropped.
        while tree.immutable_count() > 0 {
            flush_now(&tree);
        }
        for _ in 0..10 {
            tree.release_oldest_snapshot();
        }
        tree.drop_keyspace(300);
        while run_next(&tree, true, threads).unwrap() {}
        while run_next(&tree, false, threads).unwrap() {}
        tree.check(&model);
        let versions = tree.versions();
        assert!(tree.levels()[..LAST].iter().all(Vec::is_empty));
        assert!(versions.values().all(|(kind, _)| *kind == Kind::Put));
        let keys: std::collections::BTreeSet<_> = versions.keys().map(|(k, _)| k).collect();
        assert_eq!(keys.len(), versions.len());
    }
}

#[test]
fn parts_give_what_one_merge_gives() {
    let mut trees = Vec::new();
    for threads in [1, 2, 5] {
        let mut r = Random(77);
        let mut next_seq = 1;
        let tree = TestTree::new(Io::from_uri("posix").unwrap());
        for _ in 0..6 {
            tree.freeze(writes(&mut r, 400, &mut next_seq));
            flush_now(&tree);
            tree.snapshot();
        }
        let levels = tree.levels();
        let inputs = vec![(0, levels[0].clone())];
        let p = Pick::Merge(Merge { inputs, output: LAST, reason: Reason::Manual });
        let watch = unlimited(&p);
        let work = run(&tree, &p, &levels, TABLE_BYTES, &Threads(threads), &watch).unwrap();
        let told = watch.tell(Duration::from_secs(3));
        assert_eq!((told.level, told.output, told.tables), (0, LAST as u32, 6));
        assert!((2_000_000..=3_000_000).contains(&told.running_us), "{told:?}");
        assert_eq!((told.entries, told.reason), (work.entries, Reason::Manual.name()));
        assert!(
            told.entries_done < work.entries && (threads > 1 || told.entries_done >= work.entries - 1024)
        );
        assert_eq!(work.entries, levels[0].iter().map(|t| (**t).as_ref().entries).sum::<u64>());
        drop((levels, p));
        tree.check_files();
        assert!(tree.levels()[LAST].len() > 5, "several tables");
        trees.push((tree.versions(), tree));
    }
    assert!(!trees[0].0.is_empty());
    assert!(trees.windows(2).all(|w| w[0].0 == w[1].0));
}

#[test]
fn merges_are_split_evenly() {
    let mut r = Random(5);
    let mut next_seq = 1;
    let tree = TestTree::new(Io::from_uri("posix").unwrap());
    for _ in 0..3 {
        tree.freeze(writes(&mut r, 2000, &mut next_seq));
        flush_now(&tree);
    }
    let inputs = vec![(0, tree.levels()[0].clone())];
    let merge = Merge { inputs, output: LAST, reason: Reason::Manual };
    assert!(super::input::split_keys(&*tree, &merge, 1).is_empty());
    let splits = super::input::split_keys(&*tree, &merge, 4);
    assert_eq!(splits.len(), 3);
    let keys: Vec<Vec<u8>> = tree.versions().into_keys().map(|(k, _)| k).collect();
    let at: Vec<usize> = splits.iter().map(|s| keys.partition_point(|k| k < s)).collect();
    for (i, &n) in at.iter().enumerate() {
        let even = keys.len() * (i + 1) / 4;
        assert!(n.abs_diff(even) < keys.len() / 8, "{at:?} of {}", keys.len());
    }
}

#[test]
fn failed_jobs_leave_no_trace_and_can_be_done_again() {
    let (io, faults) = faulty_io();
    let tree = TestTree::new(io);
    let (mut r, mut next_seq, mut model) = (Random(9), 1, Vec::new());
    let cancelled = AtomicBool::new(true);
    let mut failures = 0;
    for _ in 0..8 {
        let batch = writes(&mut r, 2500, &mut next_seq);
        model.extend(batch.iter().cloned());
        tree.freeze(batch);
        for what in [NO_SPACE, WRITE_ERROR] {
            faults.set(what, 0);
            let e = flush(&*tree, &AtomicBool::new(false)).unwrap_err();
            assert_eq!(e.kind() == ErrorKind::Retry, what == NO_SPACE, "{e}");
            faults.clear();
            tree.check(&model);
        }
        tree.fail_next_install(Error::Io(engineswap::Error::new(
            engineswap::ErrorKind::NoSpace,
            "write",
            "a test",
        )));
        assert_eq!(flush(&*tree, &AtomicBool::new(false)).unwrap_err().kind(), ErrorKind::Retry);
        assert!(matches!(flush(&*tree, &cancelled), Err(Error::Closed)));
        tree.check(&model);
        assert!(flush(&*tree, &AtomicBool::new(false)).unwrap().is_some());
        assert!(flush(&*tree, &cancelled).unwrap().is_none());
        while let Some((p, levels)) = next_pick(&tree, false) {
            let mut done = false;
            for (what, after) in [(NO_SPACE, 0), (WRITE_ERROR, 1), (READ_ERROR, 0), (READ_ERROR, 2), (0, 0)] {
                faults.set(what, after);
                let result = run(&tree, &p, &levels, TABLE_BYTES, &Threads(3), &unlimited(&p));
                faults.clear();
                match result {
                    Err(e) => {
                        failures += 1;
                        assert_eq!(e.kind() == ErrorKind::Retry, what == NO_SPACE, "{e}");
                    }
                    // A move, or fewer operations than would have to pass, or no fault at last.
                    Ok(_) => {
                        done = true;
                        break;
                    }
                }
                tree.check_files();
            }
            assert!(done);
            drop((p, levels));
            tree.check(&model);
        }
    }
    assert!(failures > 8, "{failures}");
    // An error after which nobody knows what the manifest says: the files must stay.
    tree.freeze(writes(&mut r, 100, &mut next_seq));
    let before = std::fs::read_dir(tree.dir()).unwrap().count();
    tree.fail_next_install(Error::Io(engineswap::Error::new(
        engineswap::ErrorKind::Io,
        "fdatasync",
        "a test",
    )));
    assert_eq!(flush(&*tree, &AtomicBool::new(false)).unwrap_err().kind(), ErrorKind::Stop);
    assert_eq!(std::fs::read_dir(tree.dir()).unwrap().count(), before + 1);
}

fn settings(threads: usize) -> Settings {
    Settings {
        threads,
        shape: shape(),
        limits: Limits {
            soft: Debt { immutables: 2, level0: 50, pending_bytes: 1 << 40 },
            hard: Debt { immutables: 8, level0: 100, pending_bytes: 1 << 41 },
        },
        table_bytes: TABLE_BYTES,
        most_immutables: 3,
        limit: None,
    }
}

fn start(tree: &Arc<TestTree>, threads: usize) -> (Arc<Scheduler>, Vec<Join>) {
    let s = Scheduler::new(
        SystemEnv::shared(),
        settings(threads),
        crate::insight::Latencies::off(),
        Arc::default(),
    );
    let mut joins = Vec::new();
    s.start(tree, &mut joins).unwrap();
    assert_eq!(joins.len(), threads + 1);
    (s, joins)
}

fn stop(s: &Scheduler, joins: Vec<Join>) {
    s.close();
    joins.into_iter().for_each(|j| j());
}

#[test]
fn the_scheduler_flushes_compacts_and_ends() {
    for threads in [1, 3] {
        let tree = TestTree::new(Io::from_uri("posix").unwrap());
        let (s, joins) = start(&tree, threads);
        let (mut r, mut next_seq, mut model) = (Random(31), 1, Vec::new());
        for i in 0..60 {
            s.admit(1000).unwrap();
            let batch = writes(&mut r, 150, &mut next_seq);
            model.extend(batch.iter().cloned());
            s.memtable_frozen(tree.freeze(batch));
            if i % 20 == 7 {
                tree.snapshot();
            }
        }
        s.wait_idle(&*tree).unwrap();
        assert_eq!(tree.immutable_count(), 0);
        assert!(tree.levels()[0].len() < shape().level0_runs);
        tree.check(&model);
        s.compact_range(&[], None, SEQ_MAX, false).unwrap();
        assert!(tree.levels()[..LAST].iter().all(Vec::is_empty));
        tree.check(&model);
        assert!(s.counters.flushes.load(Relaxed) > 0 && s.counters.compactions.load(Relaxed) > 0);
        stop(&s, joins);
        assert!(matches!(s.compact_range(&[], None, SEQ_MAX, false), Err(Error::Closed)));
        assert_eq!(Arc::strong_count(&tree), 1, "no thread is left");
    }
}

#[test]
fn closing_cancels_what_runs() {
    for round in 0..6 {
        let tree = TestTree::new(Io::from_uri("posix").unwrap());
        let (s, joins) = start(&tree, 2);
        let (mut r, mut next_seq, mut model) = (Random(17), 1, Vec::new());
        for _ in 0..round * 4 {
            let batch = writes(&mut r, 400, &mut next_seq);
            model.extend(batch.iter().cloned());
            s.memtable_frozen(tree.freeze(batch));
        }
        stop(&s, joins);
        assert_eq!(tree.stopped(), None);
        tree.check(&model);
    }
}

#[test]
fn a_full_disk_is_waited_for_and_other_errors_stop_the_store() {
    let (io, faults) = faulty_io();
    let tree = TestTree::new(io);
    let (s, joins) = start(&tree, 2);
    let (mut r, mut next_seq, mut model) = (Random(3), 1, Vec::new());
    faults.set(NO_SPACE, 0);
    let mut freeze = |s: &Scheduler, model: &mut Vec<Entry>| {
        let batch = writes(&mut r, 300, &mut next_seq);
        model.extend(batch.iter().cloned());
        s.memtable_frozen(tree.freeze(batch));
    };
    for _ in 0..3 {
        freeze(&s, &mut model);
    }
    // The memtables are full: writers learn why.
    let e = s.admit(100).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Retry, "{e}");
    let reason = s.reason().expect("a reason");
    assert!(reason.contains("No space") && reason.contains("tried again"), "{reason}");
    assert_eq!(tree.stopped(), None);
    tree.check(&model);
    faults.clear();
    // Tried again after at most as long as the last delay.
    let mut waited = 0;
    while s.wait_idle(&*tree).is_err() {
        std::thread::sleep(Duration::from_millis(20));
        waited += 1;
        assert!(waited < 3000);
    }
    s.admit(100).unwrap();
    assert_eq!((s.reason(), tree.immutable_count()), (None, 0));
    tree.check(&model);
    faults.set(WRITE_ERROR, 0);
    freeze(&s, &mut model);
    let e = s.wait_for(On::Flushes, || tree.immutable_count() == 0).unwrap_err();
    assert!(matches!(&e, Error::Stopped(why) if why.contains("Input/output error")), "{e}");
    assert!(tree.stopped().is_some());
    faults.clear();
    stop(&s, joins);
    tree.check(&model);
}

#[test]
fn writers_are_delayed_while_memtables_wait() {
    // Without threads nothing is flushed.
    let s =
        Scheduler::new(SystemEnv::shared(), settings(1), crate::insight::Latencies::off(), Arc::default());
    s.admit(1 << 20).unwrap();
    assert_eq!(s.reason(), None);
    s.memtable_frozen(2);
    s.admit(1 << 20).unwrap();
    assert_eq!(s.counters.write_delays.load(Relaxed), 0);
    s.memtable_frozen(5);
    assert!(s.reason().expect("a reason").contains("5 memtables wait"));
    let writer = {
        let s = Arc::clone(&s);
        std::thread::spawn(move || s.admit(1 << 20).map(|()| s.admit(1 << 20)))
    };
    std::thread::sleep(Duration::from_millis(5));
    s.memtable_frozen(2);
    writer.join().unwrap().unwrap().unwrap();
}

#[test]
fn a_count_of_memtables_told_late_holds_nobody_up() {
    let tree = TestTree::new(Io::from_uri("posix").unwrap());
    let (s, joins) = start(&tree, 1);
    let (told, hears) = std::sync::mpsc::channel();
    let writer = {
        let s = Arc::clone(&s);
        std::thread::spawn(move || {
            for _ in 0..20 {
                // As if a flush had been faster than the writer that froze the last memtable.
                s.memtable_frozen(5);
                told.send(s.admit(1)).unwrap();
            }
        })
    };
    for _ in 0..20 {
        let admitted = hears.recv_timeout(Duration::from_secs(60));
        if admitted.is_err() {
            s.close();
        }
        admitted.expect("a writer waits for nothing").unwrap();
    }
    writer.join().unwrap();
    stop(&s, joins);
}

#[test]
fn runs_of_level_0_become_one() {
    let tree = TestTree::new(Io::from_uri("posix").unwrap());
    let (mut r, mut next_seq, mut model) = (Random(23), 1, Vec::new());
    for _ in 0..6 {
        let batch = writes(&mut r, 900, &mut next_seq);
        model.extend(batch.iter().cloned());
        tree.freeze(batch);
        flush_now(&tree);
    }
    // The newest four while, say, the others are on their way down.
    let levels = tree.levels();
    let inputs = vec![(0, levels[0][..4].to_vec())];
    let p = Pick::Merge(Merge { inputs, output: 0, reason: Reason::WithinLevel0 });
    run(&tree, &p, &levels, TABLE_BYTES, &Threads(3), &unlimited(&p)).unwrap();
    drop((levels, p));
    assert_eq!(tree.levels()[0].len(), 3);
    tree.check(&model);
    while run_next(&tree, false, 2).unwrap() {}
    tree.check(&model);
}
