//! Batches by number, and what a store holds after so many of each writer's.
//!
//! A batch begins with what its writer knows to be written by the others. So a store that has it must have that, too.

use std::collections::BTreeMap;

use ringdb::{Db, Durability, Options, WriteBatch};

use crate::support::Rng;

pub const WRITERS: usize = 3;
const KEYS: u64 = 150;
const BURST_BYTES: u64 = 50_000;
/// Entries of a batch besides its head.
const ENTRIES: u64 = 3;

/// For each writer a batch: the last that is there, or must be.
pub type Last = [u64; WRITERS];

/// Small enough that memtables, segments and manifests are exchanged all the time.
pub fn options(io: &str, durability: Durability) -> Options {
    Options::default()
        .with_io(io)
        .with_durability(durability)
        .with_memtable_bytes(64 << 10)
        .with_log_segment_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_manifest_bytes(4 << 10)
        .with_cache_bytes(8 << 20)
        .with_background_threads(2)
        .with_socket(false)
}

pub fn durability(name: &str) -> Result<Durability, String> {
    match name {
        "sync" => Ok(Durability::Sync),
        "process" => Ok(Durability::Process),
        other => Err(format!("durability {other}")),
    }
}

fn head(w: usize) -> Vec<u8> {
    format!("{w}/head").into_bytes()
}

/// The entries of a batch: keys, and the lengths of their values, none for a deletion.
fn entries(w: usize, n: u64) -> impl Iterator<Item = (Vec<u8>, Option<u64>)> {
    let mut rng = Rng(n << 8 | w as u64);
    (0..ENTRIES).map(move |_| {
        let key = format!("{w}/key{:04}", rng.below(KEYS)).into_bytes();
        let bytes = if rng.chance(100) { 9000 } else { 20 + rng.below(1000) };
        let bytes = if burst(w, n) && rng.chance(3) { BURST_BYTES } else { bytes };
        (key, (!rng.chance(5)).then_some(bytes))
    })
}

/// Some batches in a row fill segments faster than they are prepared, so that some are made, and named, on demand.
fn burst(w: usize, n: u64) -> bool {
    w == 0 && n % 50 >= 40
}

/// A value says its batch, then bytes that follow from it.
fn value(w: usize, n: u64, bytes: u64) -> Vec<u8> {
    let mut rng = Rng(n ^ (w as u64) << 56);
    n.to_le_bytes().into_iter().chain((0..bytes).map(|_| rng.next() as u8)).collect()
}

pub fn batch(w: usize, n: u64, seen: &Last) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let numbers = [n].into_iter().chain(*seen);
    batch.put(head(w), numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    for (key, bytes) in entries(w, n) {
        match bytes {
            Some(bytes) => batch.put(key, value(w, n, bytes)),
            None => batch.delete(key),
        };
    }
    batch
}

/// The last batch of a writer, and what it saw of the others.
pub fn last(db: &Db, w: usize) -> Result<(u64, Last), String> {
    let Some(value) = db.get(head(w)).map_err(|e| format!("get: {e}"))? else {
        return Ok((0, Last::default()));
    };
    let numbers: Vec<u64> =
        value.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight"))).collect();
    let seen = numbers.get(1..).and_then(|s| Last::try_from(s).ok());
    Ok((numbers[0], seen.ok_or_else(|| format!("writer {w}: its head has {} bytes", value.len()))?))
}

/// What there is of a writer after its first `n` batches: the batch of each key, and the bytes of its value.
fn contents(w: usize, n: u64) -> BTreeMap<Vec<u8>, (u64, u64)> {
    let mut all = BTreeMap::new();
    for i in 1..=n {
        for (key, bytes) in entries(w, i) {
            match bytes {
                Some(bytes) => all.insert(key, (i, bytes)),
                None => all.remove(&key),
            };
        }
    }
    all
}

/// What must be there is, and what is there are the first batches of each writer, whole, with all that was written
/// before one of them began. Gives the last of each.
pub fn check(db: &Db, floor: &Last) -> Result<Last, String> {
    let mut found = Last::default();
    let mut saw = [Last::default(); WRITERS];
    for w in 0..WRITERS {
        (found[w], saw[w]) = last(db, w)?;
        if found[w] < floor[w] {
            return Err(format!("writer {w}: batch {} was acknowledged, {} is the last", floor[w], found[w]));
        }
    }
    for w in 0..WRITERS {
        if let Some(x) = (0..WRITERS).find(|x| found[*x] < saw[w][*x]) {
            let (n, lacks) = (found[w], saw[w][x]);
            return Err(format!("batch {n} of writer {w} is there without batch {lacks} of writer {x}"));
        }
        let mut wanted = contents(w, found[w]);
        let it = |what: &str, key: &[u8]| {
            format!("writer {w} after {} batches: {} is {what}", found[w], String::from_utf8_lossy(key))
        };
        for pair in db.prefix(format!("{w}/key")) {
            let (key, got) = pair.map_err(|e| format!("scan: {e}"))?;
            match wanted.remove(&key[..]) {
                Some((n, bytes)) if got[..] == value(w, n, bytes)[..] => {}
                Some(_) => return Err(it("another value", &key)),
                None => return Err(it("not deleted", &key)),
            }
        }
        if let Some(key) = wanted.keys().next() {
            return Err(it("missing", key));
        }
    }
    Ok(found)
}

/// The check tells a lost batch, a torn one and one without what it saw from a good store.
pub fn tests() {
    let store = |batches: &[(usize, u64, Last)], spoil: &dyn Fn(&Db)| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("store"), options("posix", Durability::Process)).unwrap();
        for (w, n, seen) in batches {
            db.write(batch(*w, *n, seen), &ringdb::WriteOptions::default()).unwrap();
        }
        spoil(&db);
        check(&db, &[2, 1, 0])
    };
    let good = [(0, 1, [0; 3]), (0, 2, [1, 0, 0]), (1, 1, [2, 0, 0])];
    assert_eq!(store(&good, &|_| {}), Ok([2, 1, 0]));
    assert!(store(&good[..2], &|_| {}).unwrap_err().contains("acknowledged"));
    let early = [(0, 1, [0; 3]), (0, 2, [1, 0, 0]), (1, 1, [2, 0, 4])];
    assert!(store(&early, &|_| {}).unwrap_err().contains("without batch 4 of writer 2"));
    let (key, _) = entries(0, 2).find(|(_, bytes)| bytes.is_some()).unwrap();
    assert!(store(&good, &|db| db.delete(&key).unwrap()).unwrap_err().contains("missing"));
    assert!(store(&good, &|db| db.put(&key, "x").unwrap()).unwrap_err().contains("another value"));
    assert!(store(&good, &|db| db.put("1/key9999", "x").unwrap()).unwrap_err().contains("not deleted"));
}
