//! One value of N bytes: how many times N it takes at most on its way through a store.

use ringdb::{Db, Durability, Options};

use crate::child;
use crate::watch::Watch;

const MIB: u64 = 1 << 20;
const VALUE: u64 = 64 * MIB;
const BUDGET: u64 = 16 * MIB;
/// What a store and this test take without such a value.
const BESIDES: u64 = BUDGET + 32 * MIB;

#[test]
fn a_large_value_takes_little_more_than_itself() {
    child::run("large::child_writes_large_values", 4 * VALUE + BESIDES + 32 * MIB);
}

#[test]
fn child_writes_large_values() {
    if child::is_me("large::child_writes_large_values") {
        for durability in [Durability::Process, Durability::Sync] {
            go(durability);
        }
    }
}

fn value(byte: u8) -> Vec<u8> {
    vec![byte; VALUE as usize]
}

fn go(durability: Durability) {
    println!("{durability:?}, times {} MiB:", VALUE / MIB);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = Options::default().with_cache_bytes(BUDGET).with_durability(durability);
    // One merge at a time: each takes a value.
    let options = options.with_background_threads(1);
    let watch = Watch::start();
    let db = Db::open(dir.path(), options.clone()).unwrap();
    // The caller's and the memtable's, or the frame of the log.
    watch.phase("put", 2 * VALUE + BESIDES, || db.put("k1", value(1)).unwrap());
    watch.phase("flush", VALUE + BESIDES, || db.wait_idle().unwrap());
    for round in 2..5 {
        for k in 1..4 {
            // The one before may still be in its memtable, another in a merge.
            watch.phase("put after put", 4 * VALUE + BESIDES, || {
                db.put(format!("k{k}"), value(round)).unwrap()
            });
        }
    }
    // The last one in its memtable, and another in a merge that is at work already.
    watch.phase("settle", 2 * VALUE + BESIDES, || {
        db.flush().unwrap();
        db.wait_idle().unwrap();
    });
    watch.phase("compact", VALUE + BESIDES, || {
        // Around all of them, so that they are merged, not left where they are.
        ["k0", "k9"].iter().for_each(|k| db.put(k, "small").unwrap());
        db.flush().unwrap();
        db.compact_range(..).unwrap();
    });
    // The block and the value.
    watch.phase("get", 2 * VALUE + BESIDES, || {
        assert!(db.get("k2").unwrap().unwrap()[..] == [4; VALUE as usize])
    });
    watch.phase("iterate", 3 * VALUE + BESIDES, || assert_eq!(db.iter().map(Result::unwrap).count(), 5));
    db.put("k4", value(9)).unwrap();
    drop(db);
    // The frame and the memtable.
    let db = watch.phase("replay", 2 * VALUE + BESIDES, || Db::open(dir.path(), options).unwrap());
    watch.phase("get again", 2 * VALUE + BESIDES, || {
        assert!(db.get("k4").unwrap().unwrap()[..] == [9; VALUE as usize])
    });
}
