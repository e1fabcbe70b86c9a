//! Tables are read through the page cache, no more of them than is asked for, or past it (`direct_reads`);
//! and files whose sectors are larger than a block.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Mutex;

use ringdb::engineswap::{Advice, Direct, Io, OpenHow};
use ringdb::{Db, Durability, Options, SystemEnv};

/// The process has one counter of what it has read: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn options(io: &str, direct: bool) -> Options {
    Options::default()
        .with_io(io)
        .with_cache_bytes(4 << 20)
        .with_memtable_bytes(1 << 20)
        .with_background_threads(1)
        .with_direct_reads(direct)
}

fn key(n: u32) -> String {
    format!("key{n:06}")
}

fn value(n: u32) -> Vec<u8> {
    vec![n as u8; 1000]
}

const KEYS: u32 = 8000;

/// 8 MB in one sorted run: each key is in one block.
fn fill(dir: &Path) {
    let db = Db::open(dir, options("posix", false)).unwrap();
    for n in 0..KEYS {
        db.put(key(n), value(n)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.close().unwrap();
}

fn tables(dir: &Path) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    all.filter(|p| p.extension().is_some_and(|e| e == "sst")).collect()
}

/// Has the page cache forget the tables.
fn evict(dir: &Path) {
    let io = Io::from_uri("posix").unwrap();
    for path in tables(dir) {
        io.open(&path, &OpenHow::read()).unwrap().advise(Advice::DontNeed, 0, 0).unwrap();
    }
}

/// Bytes that the device has read for this process.
fn device_read() -> u64 {
    let all = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = all.lines().find_map(|l| l.strip_prefix("read_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// The flags of an open file.
fn flags(fd: RawFd) -> u32 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    let line = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

/// The flag of a direct file; `None` if there are none in `dir`.
fn o_direct(dir: &Path) -> Option<u32> {
    let io = Io::from_uri("posix").unwrap();
    let path = tables(dir).pop().unwrap();
    let open = |direct| io.open(&path, &OpenHow::read().direct(direct));
    let (buffered, direct) = (open(Direct::No).unwrap(), open(Direct::Require).ok()?);
    Some(flags(buffered.raw_fd().unwrap()) ^ flags(direct.raw_fd().unwrap()))
}

/// The flags of this process's open tables of the store in `dir`.
fn open_tables(dir: &Path) -> Vec<u32> {
    let dir = dir.canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        if target.starts_with(&dir) && target.extension().is_some_and(|e| e == "sst") {
            found.push(flags(entry.file_name().to_str().unwrap().parse().unwrap()));
        }
    }
    found
}

/// Who looks for a key after a compaction does not wait for the device, as before it.
#[test]
fn what_a_compaction_writes_is_in_the_page_cache_if_it_is_read_through_it() {
    let _alone = ALONE.lock().unwrap();
    for io in support::engines() {
        for direct in [false, true] {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let db = Db::open(dir.path(), options(io, direct)).unwrap();
            // What background work does counts, too. Written twice, so that there is something to merge.
            let before = device_read();
            for n in (0..KEYS).chain(0..KEYS) {
                db.put(key(n), value(n)).unwrap();
            }
            db.flush().unwrap();
            db.compact_range(..).unwrap();
            let compaction = device_read() - before;
            for n in (0..KEYS).step_by(10) {
                assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]), "{io}");
            }
            let gets = device_read() - before - compaction;
            if o_direct(dir.path()).is_none() {
                return println!("SKIPPED: no direct I/O here");
            }
            assert_eq!((compaction > 0, gets > 0), (direct, direct), "{io}: {compaction} and {gets} bytes");
        }
    }
}

#[test]
fn tables_are_read_through_the_page_cache_or_past_it_as_asked() {
    let _alone = ALONE.lock().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fill(dir.path());
    let Some(o_direct) = o_direct(dir.path()) else {
        return println!("SKIPPED: no direct I/O here");
    };
    for io in support::engines() {
        for direct in [false, true] {
            let what = format!("{io}, direct_reads {direct}");
            evict(dir.path());
            let db = Db::open(dir.path(), options(io, direct)).unwrap();
            let open = open_tables(dir.path());
            assert!(!open.is_empty());
            assert!(open.iter().all(|f| (f & o_direct != 0) == direct), "{what}: {open:?}, {o_direct}");
            // Opening has read the tables' ends.
            evict(dir.path());
            let ask = |n: u32| {
                let before = device_read();
                assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]), "{what}");
                device_read() - before
            };
            assert_eq!(ask(1234), 4096, "{what}: a block");
            assert_eq!(ask(1234), 0, "{what}: a block of the store's own cache");
            // Blocks one after the other, but asked for one by one: the kernel would read ahead from the second on.
            for n in 2000..2040 {
                assert!(ask(n) <= 4096, "{what}: more than a block for key {n}");
            }
            let keys: Vec<u32> = (0..64).map(|i| (i * 125 + 7) % KEYS).collect();
            let names: Vec<String> = keys.iter().map(|n| key(*n)).collect();
            let batch = || {
                let before = device_read();
                for (n, got) in keys.iter().zip(db.multi_get(&names).unwrap()) {
                    assert_eq!(got.as_deref(), Some(&value(*n)[..]), "{what}");
                }
                device_read() - before
            };
            let read = batch();
            assert!((60 * 4096..=64 * 4096).contains(&read), "{what}: {read}");
            drop(db);
            // Another store's cache is empty: what the page cache has is not read again.
            let db = Db::open(dir.path(), options(io, direct)).unwrap();
            let before = device_read();
            for n in &keys {
                assert_eq!(db.get(key(*n)).unwrap().as_deref(), Some(&value(*n)[..]), "{what}");
            }
            let again = device_read() - before;
            let all = if direct { 60 * 4096..=64 * 4096 } else { 0..=0 };
            assert!(all.contains(&again), "{what}: {again}");
        }
    }
}

#[test]
fn scans_of_cold_tables_read_each_byte_about_once() {
    let _alone = ALONE.lock().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fill(dir.path());
    let bytes: u64 = tables(dir.path()).iter().map(|p| p.metadata().unwrap().len()).sum();
    for io in support::engines() {
        for direct in [false, true] {
            let db = Db::open(dir.path(), options(io, direct)).unwrap();
            evict(dir.path());
            let before = device_read();
            for (n, pair) in db.iter().enumerate() {
                let (k, v) = pair.unwrap();
                assert_eq!((k.as_ref(), v.as_ref()), (key(n as u32).as_bytes(), &value(n as u32)[..]));
            }
            let read = device_read() - before;
            assert!(read <= bytes + (64 << 10), "{io}, direct_reads {direct}: {read} of {bytes}");
        }
    }
}

#[test]
fn sectors_larger_than_a_block_are_served_through_the_page_cache() {
    for align in [8192, 16384, 65536] {
        for (durability, direct) in [
            (Durability::Process, false),
            (Durability::Process, true),
            (Durability::Sync, false),
            (Durability::Sync, true),
        ] {
            let what = format!("align={align} {durability:?} direct_reads={direct}");
            let disk = support::disk(7, align);
            let o = options("auto", direct).with_memtable_bytes(64 << 10).with_durability(durability);
            let open = |o: &Options| {
                Db::open_with_env("/store", o.clone(), disk.io(), SystemEnv::shared())
                    .unwrap_or_else(|e| panic!("{what}: {e}"))
            };
            let db = open(&o);
            for n in 0..300 {
                db.put(key(n), value(n)).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            db.flush().unwrap_or_else(|e| panic!("{what}: {e}"));
            for n in 0..100 {
                db.delete(key(n)).unwrap();
            }
            db.compact_range(..).unwrap_or_else(|e| panic!("{what}: {e}"));
            for n in 300..320 {
                db.put(key(n), value(n)).unwrap();
            }
            let check = |db: &Db| {
                for n in 0..320 {
                    let want = (n >= 100).then(|| value(n));
                    assert_eq!(db.get(key(n)).unwrap().as_deref(), want.as_deref(), "{what}: {n}");
                }
                let names: Vec<String> = (0..320).map(key).collect();
                assert_eq!(db.multi_get(&names).unwrap().iter().flatten().count(), 220, "{what}");
                assert_eq!(db.iter().count(), 220, "{what}");
                assert!(db.verify().unwrap().is_ok(), "{what}");
            };
            check(&db);
            drop(db);
            check(&open(&o));
        }
    }
}
