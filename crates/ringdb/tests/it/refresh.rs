//! A store opened read-only that catches up with its writer.
#![allow(clippy::unwrap_used)] // a test

use crate::failing;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use ringdb::engineswap::ErrorKind;
use ringdb::{Db, Error, KeyspaceOptions, Options};

fn options() -> Options {
    Options::default().with_io("posix").with_cache_bytes(4 << 20).with_memtable_bytes(256 << 10)
}

fn both(dir: &Path) -> (Db, Db) {
    (Db::open(dir, options()).unwrap(), Db::open_read_only(dir, options()).unwrap())
}

fn get(db: &Db, key: &str) -> Option<Vec<u8>> {
    db.get(key).unwrap().map(|v| v.to_vec())
}

#[test]
fn it_says_whether_there_was_anything_new() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = both(dir.path());
    assert!(!reader.refresh().unwrap());
    for i in 0..3u8 {
        writer.put("k", [i]).unwrap();
        assert!(!writer.refresh().unwrap(), "a writer has nothing to catch up with");
        assert_eq!(get(&reader, "k"), i.checked_sub(1).map(|i| vec![i]));
        assert!(reader.refresh().unwrap());
        assert_eq!(get(&reader, "k"), Some(vec![i]));
        assert!(!reader.refresh().unwrap());
    }
    writer.flush().unwrap();
    assert!(reader.refresh().unwrap());
    assert!(!reader.refresh().unwrap());
    assert_eq!(get(&reader, "k"), Some(vec![2]));
    assert_eq!(reader.stats().table_entries, 1);
    assert_eq!(reader.stats().memtable_bytes, writer.stats().memtable_bytes, "what was flushed is gone");
    reader.clone().close().unwrap();
    assert!(matches!(reader.refresh(), Err(Error::Closed)));
}

#[test]
fn snapshots_and_iterators_see_what_they_saw() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Db::open(dir.path(), options()).unwrap();
    let key = |i: u32| format!("key{i:05}");
    let fill = |round: u8| (0..2000).for_each(|i| writer.put(key(i), [round; 200]).unwrap());
    fill(1);
    writer.flush().unwrap();
    writer.put("log", "1").unwrap();
    let reader = Db::open_read_only(dir.path(), options()).unwrap();
    let (snapshot, mut iter) = (reader.snapshot(), reader.iter());
    let tables =
        || fs::read_dir(dir.path()).unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let tables = || tables().filter(|n| n.ends_with(".sst")).collect::<Vec<_>>();
    let before = tables();
    assert_eq!(*iter.next().unwrap().unwrap().1, [1; 200]);
    fill(2);
    writer.put("log", "2").unwrap();
    writer.delete_range(key(100)..key(200)).unwrap();
    writer.compact_range(..).unwrap();
    assert!(before.iter().all(|t| !tables().contains(t)), "the writer has removed the reader's tables");
    assert!(reader.refresh().unwrap());
    // The versions that the snapshot sees are in no table of the new view.
    assert_eq!(reader.iter().count(), 1901);
    assert_eq!(*reader.get(key(7)).unwrap().unwrap(), [2; 200]);
    assert_eq!(*snapshot.get(key(7)).unwrap().unwrap(), [1; 200]);
    assert_eq!(*snapshot.multi_get(&[key(150)]).unwrap()[0].as_deref().unwrap(), [1; 200]);
    assert_eq!(snapshot.iter().filter(|p| p.as_ref().is_ok_and(|(_, v)| **v == [1; 200])).count(), 2000);
    let mut back = snapshot.prefix("key");
    assert_eq!(*back.next_back().unwrap().unwrap().1, [1; 200]);
    assert_eq!(iter.filter(|p| p.as_ref().is_ok_and(|(_, v)| **v == [1; 200])).count(), 1999);
    assert_eq!(snapshot.get("log").unwrap().as_deref(), Some(&b"1"[..]));
    smol::block_on(async {
        assert_eq!(*snapshot.get_async(key(9)).await.unwrap().unwrap(), [1; 200]);
        assert_eq!(*snapshot.multi_get_async(&[key(9)]).await.unwrap()[0].as_deref().unwrap(), [1; 200]);
    });
    // Two snapshots of one moment, one given up; another of a later one.
    let (a, b) = (reader.snapshot(), reader.snapshot());
    drop(a);
    fill(3);
    writer.compact_range(..).unwrap();
    reader.refresh().unwrap();
    assert_eq!(*b.get(key(7)).unwrap().unwrap(), [2; 200]);
    assert_eq!(*snapshot.get(key(7)).unwrap().unwrap(), [1; 200]);
    drop((b, snapshot));
    assert_eq!(reader.stats().snapshots, 0);
    assert_eq!(*reader.get(key(7)).unwrap().unwrap(), [3; 200]);
}

#[test]
fn keyspaces_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = both(dir.path());
    assert!(reader.existing_keyspace("a").unwrap().is_none());
    let own = KeyspaceOptions::default().with_block_bytes(8192);
    let a = writer.keyspace_with("a", &own).unwrap();
    a.put("k", "v").unwrap();
    reader.refresh().unwrap();
    let seen = reader.existing_keyspace("a").unwrap().unwrap();
    assert_eq!(seen.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(seen.options().block_bytes, Some(8192));
    a.put("k", "w").unwrap();
    writer.flush().unwrap();
    reader.refresh().unwrap();
    assert_eq!(seen.get("k").unwrap().as_deref(), Some(&b"w"[..]));
    writer.drop_keyspace("a").unwrap();
    writer.keyspace("a").unwrap().put("new", "1").unwrap();
    reader.refresh().unwrap();
    assert!(matches!(seen.get("k"), Err(Error::KeyspaceDropped(_))));
    let again = reader.existing_keyspace("a").unwrap().unwrap();
    assert_eq!((again.get("k").unwrap(), again.get("new").unwrap().is_some()), (None, true));
}

#[test]
fn another_store_in_its_place_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (at, aside) = (dir.path().join("store"), dir.path().join("aside"));
    let (writer, reader) = both(&at);
    writer.put("k", "old").unwrap();
    reader.refresh().unwrap();
    let refused = |words: &str| {
        let e = reader.refresh().unwrap_err();
        assert!(matches!(&e, Error::NoStore { .. }) && e.to_string().contains(words), "{e}");
        assert_eq!(get(&reader, "k").as_deref(), Some(&b"old"[..]), "what was seen stays");
    };
    writer.close().unwrap();
    fs::rename(&at, &aside).unwrap();
    refused("no such directory");
    fs::create_dir(&at).unwrap();
    refused("it is empty");
    fs::remove_dir(&at).unwrap();
    let other = Db::open(&at, options()).unwrap();
    other.put("k", "other").unwrap();
    refused("another store");
    other.close().unwrap();
    fs::remove_dir_all(&at).unwrap();
    fs::rename(&aside, &at).unwrap();
    assert!(reader.refresh().unwrap(), "it is back, and was closed meanwhile");
    // An older state of the same store, as who restores a copy of its files makes it.
    let copy = |from: &Path, to: &Path| {
        fs::create_dir(to).unwrap();
        fs::read_dir(from).unwrap().map(|e| e.unwrap()).for_each(|e| {
            fs::copy(e.path(), to.join(e.file_name())).unwrap();
        });
    };
    copy(&at, &aside);
    let writer = Db::open(&at, options()).unwrap();
    writer.put("k", "newer").unwrap();
    assert!(reader.refresh().unwrap());
    writer.put("k", "old").unwrap();
    assert!(reader.refresh().unwrap());
    writer.close().unwrap();
    fs::remove_dir_all(&at).unwrap();
    fs::rename(&aside, &at).unwrap();
    refused("an older state of it");
}

/// Damage of what is new is told, not passed over; what was seen goes on being seen.
#[test]
fn damage_of_what_is_new_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = both(dir.path());
    writer.put("k", "1").unwrap();
    reader.refresh().unwrap();
    writer.flush().unwrap();
    writer.put("k", [2; 3000]).unwrap();
    writer.put("k", [3; 3000]).unwrap();
    writer.sync().unwrap();
    writer.put("k", [4; 3000]).unwrap();
    let logs = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    let logs = logs.filter(|p| p.extension().is_some_and(|e| e == "log"));
    let find = |p: std::path::PathBuf| {
        let at = fs::read(&p).unwrap().windows(1000).position(|w| w == [2; 1000])?;
        Some((p, at as u64))
    };
    let (path, at) = logs.filter_map(find).next().unwrap();
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    use std::os::unix::fs::FileExt;
    file.write_all_at(&[9], at).unwrap();
    let e = reader.refresh().unwrap_err();
    assert!(matches!(e, Error::Corrupt { offset: Some(_), .. }), "{e}");
    assert_eq!(get(&reader, "k"), Some(b"1".to_vec()));
    file.write_all_at(&[2], at).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(get(&reader, "k"), Some(vec![4; 3000]));
    // In what follows the frames that were read, too.
    writer.put("k", [5; 3000]).unwrap();
    writer.sync().unwrap();
    writer.put("k", [6; 3000]).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(get(&reader, "k"), Some(vec![6; 3000]));
}

/// Whatever is ingested between two reads of an open, or of a refresh: no later write is seen without it.
#[test]
fn no_later_write_is_seen_without_an_ingest() {
    let number = |v: Option<ringdb::Value>| v.map_or(0, |v| u32::from_be_bytes(v[..].try_into().unwrap()));
    for refreshes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let writer = Arc::new(Db::open(dir.path(), options()).unwrap());
        writer.put("note", 0_u32.to_be_bytes()).unwrap();
        let (io, disk) = failing::dying(i64::MAX, ErrorKind::Io);
        let open = || {
            let env = ringdb::SystemEnv::shared();
            Db::open_read_only_with_env(dir.path(), options(), io.clone(), env).unwrap()
        };
        let mut reader = open();
        let mut all_seen = 0;
        // Before its n-th read.
        for n in 1..100_u32 {
            let reads = Arc::new(AtomicU32::new(0));
            let (of_hook, beside) = (Arc::clone(&reads), Arc::clone(&writer));
            // The log has something to be read in any case.
            writer.put("other", n.to_be_bytes()).unwrap();
            disk.before_reads(move || {
                if of_hook.fetch_add(1, SeqCst) + 1 == n {
                    beside.ingest([(format!("k{n:08}"), n.to_be_bytes())]).unwrap();
                    beside.put("note", n.to_be_bytes()).unwrap();
                }
            });
            match refreshes {
                true => drop(reader.refresh().unwrap()),
                false => reader = open(),
            }
            disk.before_reads(|| {});
            if reads.load(SeqCst) < n {
                assert!(n > 4 && all_seen > 1, "{n} reads, {all_seen} seen");
                break;
            }
            let snapshot = reader.snapshot();
            let note = number(snapshot.get("note").unwrap());
            let there = number(snapshot.get(format!("k{note:08}")).unwrap());
            assert_eq!(there, note, "a note without its ingest, before read {n}; refreshes: {refreshes}");
            all_seen += u32::from(note == n);
            assert!(number(snapshot.get("other").unwrap()) == n);
        }
    }
}
