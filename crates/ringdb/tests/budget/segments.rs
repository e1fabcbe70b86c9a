//! A log segment that was made for one large value goes with it.

use std::path::Path;

use ringdb::{Db, Durability, Options};

const VALUE: usize = 24 << 20;
const MOST: u64 = 2 << 20;

fn options(durability: Durability) -> Options {
    Options::default().with_cache_bytes(16 << 20).with_durability(durability)
}

/// The largest log segment in the directory.
fn largest_segment(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let logs = files.filter(|f| f.path().extension().is_some_and(|e| e == "log"));
    logs.map(|f| f.metadata().map_or(0, |m| m.len())).max().unwrap()
}

fn goes_when_released(durability: Durability) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Db::open(dir.path(), options(durability)).unwrap();
    db.put("a", vec![1; VALUE]).unwrap();
    // Nothing is written after it: the segment that it has to itself would be the active one for ever.
    db.wait_idle().unwrap();
    let largest = largest_segment(dir.path());
    assert!(largest <= MOST, "{durability:?}: a segment of {largest} bytes after the flush");
    assert!(db.stats().log_bytes < VALUE as u64 / 2, "{durability:?}: {:?}", db.stats().log_bytes);
    // The log goes on behind it, also for another process that finds it as it is.
    db.put("b", "1").unwrap();
    db.put("c", vec![3; VALUE]).unwrap();
    db.put("d", "2").unwrap();
    drop(db);
    let db = Db::open(dir.path(), options(durability)).unwrap();
    assert!(
        db.get("a").unwrap().unwrap() == vec![1; VALUE] && db.get("c").unwrap().unwrap() == vec![3; VALUE]
    );
    assert_eq!(
        (db.get("b").unwrap().unwrap(), db.get("d").unwrap().unwrap()),
        (b"1"[..].into(), b"2"[..].into())
    );
    db.flush().unwrap();
    let largest = largest_segment(dir.path());
    assert!(largest <= MOST, "{durability:?}: a segment of {largest} bytes after the replay");
}

#[test]
fn an_oversized_mapped_segment_goes_when_it_is_released() {
    goes_when_released(Durability::Process);
}

#[test]
fn an_oversized_direct_segment_goes_when_it_is_released() {
    goes_when_released(Durability::Sync);
}
