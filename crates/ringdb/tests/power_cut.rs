//! Power cuts at many moments of a store's life, on a disk that keeps, drops and tears what was not synced, and
//! power cuts during the recovery from them.
//!
//! After each, the store must open, hold every write that was acknowledged as durable, hold of the others none
//! without all that had been acknowledged before it began, hold batches whole and nothing that was deleted, pass
//! `verify`, take further writes and hold those after another opening.
//!
//! The disk has no mappings, so the mapped log goes by `pwrite` here. `RINGDB_CUTS` sets the number of cuts in each
//! life (40 by default).

#![allow(clippy::unwrap_used)]

#[path = "support/disk.rs"]
mod disk;
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use disk::{Disk, Event, Image};
use ringdb::{Db, Durability, Keyspace, Options, SystemEnv, WriteBatch, WriteOptions};
use support::Rng;

/// The store's directory: its parents are missing too.
const STORE: &str = "/srv/data/store";
const KEYS: u64 = 24;

/// What the test notes among the disk's events.
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
    /// All that was acknowledged before event `since` is durable (in the store, and in the checkpoint if it is one).
    Flushed {
        since: usize,
        checkpoint: Option<String>,
    },
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

/// Of each writer, how many writes must have survived a cut before event `cut`, given that `kept` have.
fn needed(events: &[Event<Note>], cut: usize, base: &[usize], kept: &[usize]) -> Vec<usize> {
    let mut need = base.to_vec();
    let mut acknowledged = base.to_vec();
    for (i, e) in events[..cut].iter().enumerate() {
        let Event::Note(note) = e else { continue };
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
                let before = acknowledged_before(&events[..i], *since, base);
                need.iter_mut().zip(before).for_each(|(need, a)| *need = (*need).max(a));
            }
        }
    }
    need
}

fn acknowledged_before(events: &[Event<Note>], since: usize, base: &[usize]) -> Vec<usize> {
    let mut a = base.to_vec();
    for e in &events[..since] {
        if let Event::Note(Note::Acknowledged { w, n, .. }) = e {
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
        .with_durability(durability)
}

fn open(disk: &Disk<Note>, dir: &str, durability: Durability) -> Db {
    Db::open_with_env(dir, options(durability), disk.io(), SystemEnv::shared()).expect("the store opens")
}

/// Each writer makes `writes` more writes, at once. Some are durable, some are not logged (those are no part of the
/// histories), some are a single put. One writer flushes, compacts and makes a checkpoint now and then.
fn write_all(
    db: &Db,
    disk: &Disk<Note>,
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
    /// What a power cut before event `cut` of `disk` left: opened, checked, gone on with. `base` of the writes were
    /// durable when the disk's events began. Cuts the power again, `depth` times.
    #[allow(clippy::too_many_arguments)]
    fn survive(
        &mut self,
        image: Image,
        events: &[Event<Note>],
        cut: usize,
        base: &[usize],
        mut histories: Vec<Vec<Write>>,
        rng: &mut Rng,
        depth: u32,
    ) {
        self.cuts += 1;
        if rng.chance(12) {
            self.on_a_real_disk(&image, &histories, events, cut, base);
        }
        for e in &events[..cut] {
            if let Event::Note(Note::Flushed { since, checkpoint: Some(dir) }) = e
                && rng.chance(4)
            {
                let db = open(&Disk::new(image.clone()), dir, self.durability);
                let kept = kept(&db, &histories);
                let need = acknowledged_before(events, *since, base);
                assert!(
                    kept.iter().zip(&need).all(|(k, n)| k >= n),
                    "the checkpoint {dir}: {kept:?} of {need:?}"
                );
            }
        }
        let disk = Disk::new(image);
        let db = open(&disk, STORE, self.durability);
        let kept_now = kept(&db, &histories);
        let need = needed(events, cut, base, &kept_now);
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
        let db = open(&disk, STORE, self.durability);
        let all: Vec<usize> = histories.iter().map(Vec::len).collect();
        assert_eq!(kept(&db, &histories), all, "after opening again");
        drop(db);
        if depth == 0 {
            return;
        }
        let events = disk.events();
        let mut cutter = disk.cutter();
        let cut = rng.below(events.len() as u64 + 1) as usize;
        cutter.advance(cut);
        let image = cutter.cut(rng);
        self.survive(image, &events, cut, &kept_now, histories, rng, depth - 1);
    }

    /// The same files in a directory of this machine, with the engine that stores use here.
    fn on_a_real_disk(
        &self,
        image: &Image,
        histories: &[Vec<Write>],
        events: &[Event<Note>],
        cut: usize,
        base: &[usize],
    ) {
        let dir = tempfile::tempdir().unwrap();
        image.write_out(Path::new(STORE), dir.path());
        let db = Db::open(dir.path(), options(self.durability)).expect("the store opens on a real disk");
        let kept = kept(&db, histories);
        let need = needed(events, cut, base, &kept);
        assert!(kept.iter().zip(&need).all(|(k, n)| k >= n), "{kept:?} of {need:?} on a real disk");
    }
}

fn cut_everywhere(test: &str, durability: Durability, writers: usize, writes: usize) {
    let seed = support::seed(test);
    let cuts = support::env_number("RINGDB_CUTS", 40);
    let mut rng = Rng(seed);
    let disk = Disk::new(Image::empty());
    let mut histories = vec![vec![]; writers];
    // Two lives, the second of which begins with a log to replay.
    for life in 0..2 {
        let db = open(&disk, STORE, durability);
        write_all(&db, &disk, &mut histories, (rng.below(1 << 12) << 1) | life, writes, durability);
    }
    let events = disk.events();
    let mut points: Vec<usize> = (0..cuts).map(|_| rng.below(events.len() as u64 + 1) as usize).collect();
    points.sort_unstable();
    let mut run = Run { durability, seed, cuts: 0, largest: vec![0; writers] };
    let mut cutter = disk.cutter();
    for cut in points {
        cutter.advance(cut);
        let image = cutter.cut(&mut rng);
        println!("cut before event {cut} of {}", events.len());
        run.survive(image, &events, cut, &vec![0; writers], histories.clone(), &mut rng, 2);
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
