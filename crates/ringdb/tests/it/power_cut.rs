//! Power cuts at many moments of the life of a store that several threads write to at once, on a simulated disk, and
//! power cuts during the recovery from them. (One thread and every moment: see the crash campaign.)
//!
//! After each, the store must open, hold every write that was acknowledged as durable, hold of the others none
//! without all that had been acknowledged before it began, hold batches whole and nothing that was deleted, pass
//! `verify`, take further writes and hold those after another opening.
//!
//! `RINGDB_CUTS` sets the number of cuts in each life (40 by default).

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ringdb::engineswap::sim::Disk;
use ringdb::{Db, Durability, Keyspace, Options, SystemEnv, WriteBatch, WriteOptions};
use support::Rng;

/// The store's directory: its parents are missing too.
const STORE: &str = "/srv/data/store";
const KEYS: u64 = 24;

/// What the test notes between the disk's changes.
#[derive(Clone, Debug)]
enum Note {
    /// Writer `w` begins its write number `n` (from 1).
    Began {
        w: usize,
        n: usize,
    },
    Acknowledged {
        w: usize,
        n: usize,
        durable: bool,
    },
    /// All that was acknowledged before the note `since` is durable (in the store, and in the checkpoint if it is one).
    Flushed {
        since: usize,
        checkpoint: Option<String>,
    },
}

/// A note and how many changes of the disk came before it.
type Noted = (usize, Note);

/// A disk that keeps what it held at each change, with notes in between. Cheap to clone.
#[derive(Clone)]
struct NotedDisk {
    disk: Disk,
    notes: Arc<Mutex<Vec<Noted>>>,
}

impl NotedDisk {
    fn new(disk: Disk) -> NotedDisk {
        disk.record(true);
        NotedDisk { disk, notes: Arc::default() }
    }

    fn note(&self, note: Note) {
        let mut notes = self.notes.lock().unwrap();
        notes.push((self.disk.points(), note));
    }

    /// How many notes there are.
    fn len(&self) -> usize {
        self.notes.lock().unwrap().len()
    }

    /// What a power cut in this change leaves, and the notes before it.
    fn cut(&self, at: usize, outcome: u64) -> (Disk, Vec<Noted>) {
        let left = match self.disk.point(at) {
            Some(point) => self.disk.crash_at(&point, outcome).0,
            None => self.disk.crash(outcome),
        };
        let notes = self.notes.lock().unwrap();
        (left, notes.iter().take_while(|(before, _)| *before <= at).cloned().collect())
    }
}

/// A write: which writer's, its number, and in which life of the store it was made.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Write {
    w: usize,
    n: usize,
    life: u64,
}

type Content = BTreeMap<(bool, String), Vec<u8>>;

impl Write {
    fn value(&self, len: usize) -> Vec<u8> {
        let mut v = format!("{} {} {};", self.w, self.n, self.life).into_bytes();
        v.resize(len.max(v.len()), 1 + ((self.n as u64 * 7 + self.life) % 250) as u8);
        v
    }

    /// What it sets and deletes: in the second keyspace or not, the key, the value.
    fn steps(&self) -> Vec<(bool, String, Option<Vec<u8>>)> {
        let mut rng = Rng(self.w as u64 ^ (self.n as u64) << 20 ^ self.life << 50);
        let mut steps = vec![(false, format!("w{}/number", self.w), Some(self.value(0)))];
        for _ in 0..rng.below(4) {
            let len = match rng.below(8) {
                0..=3 => rng.below(900),
                4..=6 => 4000 + rng.below(8000),
                _ => 20_000 + rng.below(50_000),
            };
            let value = (!rng.chance(4)).then(|| self.value(len as usize));
            steps.push((rng.chance(2), format!("w{}/key{:02}", self.w, rng.below(KEYS)), value));
        }
        steps
    }
}

/// What writer `w`'s keys are after `writes`.
fn content_after(writes: &[Write]) -> Content {
    let mut content = Content::new();
    for (side, key, value) in writes.iter().flat_map(Write::steps) {
        match value {
            Some(v) => drop(content.insert((side, key), v)),
            None => drop(content.remove(&(side, key))),
        }
    }
    content
}

/// Checks what the store holds and returns how many of each writer's writes it has kept.
fn kept(db: &Db, histories: &[Vec<Write>]) -> Vec<usize> {
    let side = db.existing_keyspace("side").unwrap();
    let kept = histories.iter().enumerate().map(|(w, history)| {
        let mut found = Content::new();
        let prefix = format!("w{w}/");
        let of_side = side.iter().flat_map(|side: &Keyspace| side.prefix(&prefix).map(|kv| (true, kv)));
        for (side, kv) in db.prefix(&prefix).map(|kv| (false, kv)).chain(of_side) {
            let (k, v) = kv.unwrap();
            found.insert((side, String::from_utf8(k.into_vec()).unwrap()), v.to_vec());
        }
        let n = match found.get(&(false, format!("{prefix}number"))) {
            None => 0,
            Some(v) => std::str::from_utf8(v).unwrap().split(' ').nth(1).unwrap().parse().unwrap(),
        };
        assert!(n <= history.len(), "writer {w}: {n} of {} writes", history.len());
        let expected = content_after(&history[..n]);
        for key in expected.keys().chain(found.keys()) {
            let show =
                |c: &Content| c.get(key).map(|v| String::from_utf8_lossy(&v[..v.len().min(12)]).into_owned());
            assert!(
                expected.get(key) == found.get(key),
                "writer {w} after {n} writes: {key:?} is {:?} instead of {:?}",
                show(&found),
                show(&expected)
            );
        }
        n
    });
    kept.collect()
}

/// Of each writer, how many writes must have survived a cut after these notes, given that `kept` have.
fn needed(notes: &[Noted], base: &[usize], kept: &[usize]) -> Vec<usize> {
    let mut need = base.to_vec();
    let mut acknowledged = base.to_vec();
    for (i, (_, note)) in notes.iter().enumerate() {
        match note {
            Note::Began { w, n } if *n <= kept[*w] => {
                need.iter_mut().zip(&acknowledged).for_each(|(need, a)| *need = (*need).max(*a));
            }
            Note::Began { .. } => {}
            Note::Acknowledged { w, n, durable } => {
                acknowledged[*w] = *n;
                if *durable {
                    need[*w] = need[*w].max(*n);
                }
            }
            Note::Flushed { since, .. } => {
                let before = acknowledged_before(&notes[..i], *since, base);
                need.iter_mut().zip(before).for_each(|(need, a)| *need = (*need).max(a));
            }
        }
    }
    need
}

fn acknowledged_before(notes: &[Noted], since: usize, base: &[usize]) -> Vec<usize> {
    let mut a = base.to_vec();
    for (_, note) in &notes[..since] {
        if let Note::Acknowledged { w, n, .. } = note {
            a[*w] = *n;
        }
    }
    a
}

fn options(durability: Durability) -> Options {
    Options::default()
        .with_cache_bytes(2 << 20)
        .with_memtable_bytes(128 << 10)
        .with_background_threads(2)
        .with_direct_reads(durability == Durability::Sync)
        .with_durability(durability)
}

fn open(disk: &Disk, dir: &str, durability: Durability) -> Db {
    Db::open_with_env(dir, options(durability), disk.io(), SystemEnv::shared()).expect("the store opens")
}

/// Each writer makes `writes` more writes, at once. Some are durable, some are not logged (those are no part of the
/// histories), some are a single put. One writer flushes, compacts and makes a checkpoint now and then.
fn write_all(
    db: &Db,
    disk: &NotedDisk,
    histories: &mut [Vec<Write>],
    life: u64,
    writes: usize,
    durability: Durability,
) {
    let side = db.keyspace("side").unwrap();
    std::thread::scope(|s| {
        for (w, history) in histories.iter_mut().enumerate() {
            let side = &side;
            s.spawn(move || {
                let mut rng = Rng(life << 8 | w as u64);
                for _ in 0..writes {
                    let write = Write { w, n: history.len() + 1, life };
                    history.push(write);
                    let mut batch = WriteBatch::new();
                    for (in_side, key, value) in write.steps() {
                        match (in_side, value) {
                            (false, Some(v)) => batch.put(key, v),
                            (false, None) => batch.delete(key),
                            (true, Some(v)) => batch.put_in(side, key, v),
                            (true, None) => batch.delete_in(side, key),
                        };
                    }
                    let d = if rng.chance(6) { Durability::Sync } else { durability };
                    disk.note(Note::Began { w, n: write.n });
                    db.write(batch, &WriteOptions::default().durability(d)).expect("a write");
                    let durable = d == Durability::Sync;
                    disk.note(Note::Acknowledged { w, n: write.n, durable });
                    if rng.chance(9) {
                        let mut batch = WriteBatch::new();
                        batch.put(format!("unlogged/{}", write.n), vec![b'u'; 700]);
                        db.write(batch, &WriteOptions::default().durability(Durability::None))
                            .expect("a write");
                    }
                    let since = disk.len();
                    let mut flushed = None;
                    match rng.below(120) {
                        0 | 1 => db.flush().map(|()| flushed = Some(None)).expect("flush"),
                        2 => db.compact_range(..).map(|()| flushed = Some(None)).expect("compact"),
                        3 if w == 0 => {
                            let to = format!("/srv/data/copies/{life}-{}", write.n);
                            db.checkpoint(&to).expect("checkpoint");
                            flushed = Some(Some(to));
                        }
                        _ => {}
                    }
                    if let Some(checkpoint) = flushed {
                        disk.note(Note::Flushed { since, checkpoint });
                    }
                }
            });
        }
    });
}

struct Run {
    durability: Durability,
    seed: u64,
    cuts: u64,
    largest: Vec<usize>,
}

impl Run {
    /// What a power cut after `notes` left: opened, checked, gone on with. `base` of the writes were durable when the
    /// notes began. Cuts the power again, `depth` times.
    fn survive(
        &mut self,
        left: Disk,
        notes: &[Noted],
        base: &[usize],
        mut histories: Vec<Vec<Write>>,
        rng: &mut Rng,
        depth: u32,
    ) {
        self.cuts += 1;
        if rng.chance(12) {
            self.on_a_real_disk(&left, &histories, notes, base);
        }
        for (_, note) in notes {
            if let Note::Flushed { since, checkpoint: Some(dir) } = note
                && rng.chance(4)
            {
                let db = open(&left.clone_now(), dir, self.durability);
                let kept = kept(&db, &histories);
                let need = acknowledged_before(notes, *since, base);
                assert!(
                    kept.iter().zip(&need).all(|(k, n)| k >= n),
                    "the checkpoint {dir}: {kept:?} of {need:?}"
                );
            }
        }
        let disk = NotedDisk::new(left);
        let db = open(&disk.disk, STORE, self.durability);
        let kept_now = kept(&db, &histories);
        let need = needed(notes, base, &kept_now);
        assert!(
            kept_now.iter().zip(&need).all(|(k, n)| k >= n),
            "{kept_now:?} writes have survived of {need:?}"
        );
        self.largest.iter_mut().zip(&kept_now).for_each(|(l, k)| *l = (*l).max(*k));
        for kv in db.prefix("unlogged/") {
            assert_eq!(kv.unwrap().1.len(), 700);
        }
        let report = db.verify().unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
        histories.iter_mut().zip(&kept_now).for_each(|(h, k)| h.truncate(*k));
        let life = 1 + rng.below(1 << 12);
        write_all(&db, &disk, &mut histories, life, 6, self.durability);
        drop(db);
        let db = open(&disk.disk, STORE, self.durability);
        let all: Vec<usize> = histories.iter().map(Vec::len).collect();
        assert_eq!(kept(&db, &histories), all, "after opening again");
        drop(db);
        if depth == 0 {
            return;
        }
        let at = rng.below(disk.disk.points() as u64 + 1) as usize;
        let (left, notes) = disk.cut(at, rng.next());
        self.survive(left, &notes, &kept_now, histories, rng, depth - 1);
    }

    /// The same files in a directory of this machine, with the engine that stores use here.
    fn on_a_real_disk(&self, left: &Disk, histories: &[Vec<Write>], notes: &[Noted], base: &[usize]) {
        let dir = tempfile::tempdir().unwrap();
        left.dump(dir.path()).unwrap();
        let store = dir.path().join(STORE.trim_start_matches('/'));
        let db = Db::open(store, options(self.durability)).expect("the store opens on a real disk");
        let kept = kept(&db, histories);
        let need = needed(notes, base, &kept);
        assert!(kept.iter().zip(&need).all(|(k, n)| k >= n), "{kept:?} of {need:?} on a real disk");
    }
}

fn cut_everywhere(test: &str, durability: Durability, writers: usize, writes: usize) {
    let seed = support::seed(test);
    let cuts = support::env_number("RINGDB_CUTS", 40);
    let mut rng = Rng(seed);
    // Sectors of 16 KiB make all files buffered ones, the log of a `Sync` store too.
    let align = *rng.pick(&[512, 4096, 16384]);
    println!("sectors of {align} bytes");
    let disk = NotedDisk::new(support::disk(seed, align));
    let mut histories = vec![vec![]; writers];
    // Two lives, the second of which begins with a log to replay.
    for life in 0..2 {
        let db = open(&disk.disk, STORE, durability);
        write_all(&db, &disk, &mut histories, (rng.below(1 << 12) << 1) | life, writes, durability);
    }
    let points = disk.disk.points();
    let mut run = Run { durability, seed, cuts: 0, largest: vec![0; writers] };
    for _ in 0..cuts {
        let (at, outcome) = (rng.below(points as u64 + 1) as usize, rng.next());
        println!("cut in change {at} of {points}, outcome {outcome}");
        let (left, notes) = disk.cut(at, outcome);
        run.survive(left, &notes, &vec![0; writers], histories.clone(), &mut rng, 2);
    }
    println!("{test}: {} cuts (seed {}), writes that survived: {:?}", run.cuts, run.seed, run.largest);
    assert!(
        run.cuts >= cuts && (cuts < 20 || run.largest.iter().all(|n| *n > writes)),
        "the test tests little"
    );
}

#[test]
fn one_writer() {
    cut_everywhere("power cuts, one writer", Durability::Process, 1, 150);
}

#[test]
fn some_writers() {
    cut_everywhere("power cuts, three writers", Durability::Process, 3, 70);
}

#[test]
fn some_writers_of_a_sync_store() {
    cut_everywhere("power cuts, three writers, direct log", Durability::Sync, 3, 70);
}
