//! A workload for stores that are cut off while they write: a few writers, whose every batch has a number, and a check
//! that knows from the numbers what must be there. The writing process prints a line for each acknowledged batch.

#![allow(dead_code)] // each test uses a part

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use ringdb::{Db, Durability, Options, WriteBatch, WriteOptions};

use super::support::Rng;

pub const WRITERS: u64 = 3;
/// Keys of a writer's batch; the batch with number `n` gives each of them the value `n` and a payload.
const BATCH: u64 = 4;

/// Small enough that flushes and compactions go on all the time.
pub fn options(io: &str, durability: Durability) -> Options {
    Options::default()
        .with_io(io)
        .with_durability(durability)
        .with_memtable_bytes(64 << 10)
        .with_cache_bytes(8 << 20)
        .with_background_threads(2)
}

fn key(writer: u64, i: u64) -> String {
    format!("writer{writer}/fixed{i}")
}

fn log_key(writer: u64, n: u64) -> String {
    format!("writer{writer}/log{n:012}")
}

/// The value says its number, then bytes that follow from it.
fn value(writer: u64, n: u64) -> Vec<u8> {
    let mut v = n.to_le_bytes().to_vec();
    let mut rng = Rng(n ^ (writer << 56));
    let len = if rng.chance(100) { 9000 } else { 20 + rng.below(1000) };
    v.extend((0..len).map(|_| rng.next() as u8));
    v
}

/// Opens the store and writes until something fails; each writer prints its numbers as they are acknowledged, and
/// whether that was for good (`sync`) or for as long as the machine lives (`process`).
pub fn write_for_ever(dir: &Path, io: &str, durability: Durability) -> ringdb::Error {
    match open_and_write(dir, io, durability) {
        Err(e) => e,
        Ok(never) => match never {},
    }
}

fn open_and_write(
    dir: &Path,
    io: &str,
    durability: Durability,
) -> Result<std::convert::Infallible, ringdb::Error> {
    let db = Db::open(dir, options(io, durability))?;
    let side = db.keyspace("side")?;
    std::thread::scope(|s| {
        let mut threads = Vec::new();
        for w in 0..WRITERS {
            let (db, side) = (db.clone(), side.clone());
            threads.push(s.spawn(move || -> Result<std::convert::Infallible, ringdb::Error> {
                let mut n = last_number(&db, w)?;
                loop {
                    n += 1;
                    let v = value(w, n);
                    let mut b = WriteBatch::new();
                    for i in 0..BATCH {
                        b.put(key(w, i), &v);
                    }
                    b.put(log_key(w, n), n.to_le_bytes());
                    b.put_in(&side, key(w, 0), &v);
                    if n > 500 {
                        b.delete(log_key(w, n - 500));
                    }
                    let mut o = WriteOptions::default();
                    let sync = durability == Durability::Sync || n.is_multiple_of(64);
                    if sync {
                        o = o.durability(Durability::Sync);
                    }
                    db.write(b, &o)?;
                    // One write call a line, straight to the pipe: acknowledged before it is printed.
                    use std::io::Write;
                    let line = format!("ack {w} {n} {}\n", if sync { "sync" } else { "process" });
                    std::io::stdout().write_all(line.as_bytes()).expect("print");
                    std::io::stdout().flush().expect("print");
                }
            }));
        }
        let mut first = None;
        for t in threads {
            let Err(e) = t.join().expect("a writer panicked");
            first.get_or_insert(e);
        }
        Err(first.expect("a writer"))
    })
}

fn last_number(db: &Db, w: u64) -> Result<u64, ringdb::Error> {
    Ok(db.get(key(w, 0))?.map_or(0, |v| u64::from_le_bytes(v[..8].try_into().expect("number"))))
}

/// For each writer the newest batch that must be there.
pub type Floor = [u64; WRITERS as usize];

/// Everything that must be there is, batches are whole, none is missing before the last, and what was deleted stays
/// deleted. Returns the newest batch of each writer.
pub fn check(db: &Db, floor: &Floor) -> Floor {
    let side = db.keyspace("side").expect("keyspace");
    let mut found = Floor::default();
    for w in 0..WRITERS {
        let n = last_number(db, w).expect("get");
        assert!(n >= floor[w as usize], "writer {w}: {n} found, {} acknowledged", floor[w as usize]);
        found[w as usize] = n;
        if n == 0 {
            continue;
        }
        let want = value(w, n);
        for i in 0..BATCH {
            assert_eq!(
                db.get(key(w, i)).expect("get").as_deref(),
                Some(&want[..]),
                "writer {w} batch {n} key {i}"
            );
        }
        assert_eq!(side.get(key(w, 0)).expect("get").as_deref(), Some(&want[..]), "the other keyspace");
        let log: Vec<u64> = db
            .prefix(format!("writer{w}/log"))
            .map(|kv| u64::from_le_bytes(kv.expect("pair").1[..8].try_into().expect("number")))
            .collect();
        let first = n.saturating_sub(499).max(1);
        assert_eq!(log, (first..=n).collect::<Vec<_>>(), "writer {w}: the last 500 batches, each once");
    }
    found
}

/// What the writing process has acknowledged so far.
pub struct Acks {
    seen: Arc<[[AtomicU64; 2]; WRITERS as usize]>,
    first: mpsc::Receiver<()>,
    reader: std::thread::JoinHandle<()>,
}

impl Acks {
    /// Follows what the process prints.
    pub fn of(out: impl Read + Send + 'static) -> Acks {
        let seen: Arc<[[AtomicU64; 2]; WRITERS as usize]> = Arc::default();
        let (first_ack, first) = mpsc::channel();
        let theirs = seen.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { break };
                let words: Vec<&str> = line.split(' ').collect();
                // A line that the end cut short lacks its last word.
                let ["ack", w, n, how @ ("sync" | "process")] = words[..] else { continue };
                let (Ok(w), Ok(n)) = (w.parse::<usize>(), n.parse::<u64>()) else { continue };
                let Some([any, synced]) = theirs.get(w) else { continue };
                any.fetch_max(n, Ordering::SeqCst);
                if how == "sync" {
                    synced.fetch_max(n, Ordering::SeqCst);
                }
                // Nobody listens any more after the first.
                let _ = first_ack.send(());
            }
        });
        Acks { seen, first, reader }
    }

    /// Waits for the first acknowledgement.
    pub fn first(&self, at_most: std::time::Duration) -> bool {
        self.first.recv_timeout(at_most).is_ok()
    }

    /// What was acknowledged, and what was for good.
    pub fn now(&self) -> (Floor, Floor) {
        let at = |i: usize| std::array::from_fn(|w| self.seen[w][i].load(Ordering::SeqCst));
        (at(0), at(1))
    }

    /// The same, when the process has ended and all that it printed was read.
    pub fn last(self) -> (Floor, Floor) {
        let seen = self.seen.clone();
        self.reader.join().expect("reader");
        let at = |i: usize| std::array::from_fn(|w| seen[w][i].load(Ordering::SeqCst));
        (at(0), at(1))
    }
}
