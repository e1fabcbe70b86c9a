//! A child by fork() has the parent's handles of a store and may not touch anything with them.
#![allow(clippy::unwrap_used)]

#[path = "support/executor.rs"]
mod executor;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use executor::{block_on, poll_once};
use ringdb::{Db, Durability, Error, ErrorKind, Options, WriteBatch, WriteOptions};

fn options(d: Durability) -> Options {
    // Not through the page cache, which would answer a read at once.
    let options = Options::default().with_cache_bytes(2 << 20).with_memtable_bytes(64 << 10);
    options.with_durability(d).with_direct_reads(true)
}

/// What the child does with what it has inherited.
fn child(dir: &std::path::Path, db: Db) {
    let refused = |what: &str, e: Error| {
        assert!(e.to_string().contains("fork"), "{what}: {e}");
        assert_eq!(e.kind(), ErrorKind::FixCall, "{what}: {e}");
    };
    refused("put", db.put("child", "x").unwrap_err());
    refused("delete", db.delete("parent").unwrap_err());
    let mut batch = WriteBatch::new();
    batch.put("child", "x");
    let sync = WriteOptions::default().durability(Durability::Sync);
    refused("write", db.write(batch, &sync).unwrap_err());
    let mut batch = WriteBatch::new();
    batch.put("child", "x");
    refused("write_async", block_on(db.write_async(batch, &sync)).unwrap_err());
    refused("sync", db.sync().unwrap_err());
    refused("sync_async", block_on(db.sync_async()).unwrap_err());
    refused("flush", db.flush().unwrap_err());
    refused("compact_range", db.compact_range(..).unwrap_err());
    refused("keyspace", db.keyspace("child").map(drop).unwrap_err());
    refused("checkpoint", db.checkpoint(dir.join("copy")).unwrap_err());
    refused("get", db.get("parent").map(drop).unwrap_err());
    refused("iter", db.iter().next().unwrap().map(drop).unwrap_err());
    refused("get_async", block_on(db.get_async("parent")).map(drop).unwrap_err());
    refused("multi_get_async", block_on(db.multi_get_async(&["parent", "000"])).map(drop).unwrap_err());
    refused("range_async", block_on(db.range_async(..).next()).unwrap().map(drop).unwrap_err());
    let snapshot = db.snapshot();
    refused("a snapshot", snapshot.get("parent").map(drop).unwrap_err());
    drop(snapshot);
    refused("close", db.clone().close().unwrap_err());
    drop(db);
    // The parent still has the lock.
    let e = Db::open(dir, options(Durability::Process).with_io("posix")).map(drop).unwrap_err();
    assert!(matches!(e, Error::Locked(_)), "{e}");
}

/// Whether a stream's first pair has to be waited for.
fn stream_waits(stream: &mut ringdb::RangeStream) -> bool {
    let next = std::pin::pin!(stream.next());
    next.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}

/// 0 in the child, which is ended by a signal if it hangs.
fn fork() -> libc::pid_t {
    // SAFETY: the child allocates and locks, which glibc's fork allows, and ends without running what is the parent's.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a plain system call.
        unsafe { libc::alarm(60) };
    }
    pid
}

/// Ends the child.
fn exit(good: bool) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(i32::from(!good)) }
}

fn wait_for(child: libc::pid_t, d: Durability) {
    let mut status = -1;
    // SAFETY: the kernel fills `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "{d:?}: the child failed (see above), or hung");
}

#[test]
fn a_child_changes_nothing_and_its_parent_goes_on() {
    for d in [Durability::Process, Durability::Sync, Durability::None] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options(d)).unwrap();
        for i in 0..200 {
            db.put(format!("{i:03}"), vec![b'v'; 1000]).unwrap();
        }
        db.put("parent", "x").unwrap();
        db.flush().unwrap();
        let (old, snapshot) = (db.iter(), db.snapshot());
        let mut reads: Vec<_> = (0..200).map(|i| db.get_async(format!("{i:03}"))).collect();
        let mut write =
            db.write_async(WriteBatch::new(), &WriteOptions::default().durability(Durability::Sync));
        let _ = poll_once(&mut write);
        let mut read = db.get_async("parent");
        let mut stream = db.range_async(..);
        assert!(stream_waits(&mut stream), "{d:?}: all is in memory");
        assert!(reads.iter_mut().map(poll_once).any(|poll| poll.is_pending()), "{d:?}: all is in memory");
        let _ = poll_once(&mut read);
        let handle = db.clone();
        let pid = fork();
        if pid == 0 {
            let done = catch_unwind(AssertUnwindSafe(|| {
                drop((old, snapshot, handle));
                assert!(block_on(stream.next()).unwrap().unwrap_err().to_string().contains("fork"));
                drop(stream);
                if let Err(e) = block_on(read) {
                    assert!(e.to_string().contains("fork") || e.to_string().contains("again"), "{e}");
                }
                drop((reads, write));
                child(dir.path(), db);
            }));
            exit(done.is_ok());
        }
        wait_for(pid, d);

        assert_eq!(old.count(), 201, "{d:?}");
        let pairs = std::iter::from_fn(|| block_on(stream.next()));
        assert_eq!(pairs.map(Result::unwrap).count(), 201, "{d:?}");
        for read in reads {
            match block_on(read) {
                Ok(value) => assert_eq!(value.as_deref(), Some(&[b'v'; 1000][..])),
                // It was ready at its first poll.
                Err(e) => assert!(e.to_string().contains("again"), "{d:?}: {e}"),
            }
        }
        drop((read, write));
        for i in 200..300 {
            db.put(format!("{i:03}"), vec![b'v'; 1000]).unwrap();
        }
        assert_eq!(snapshot.get("250").unwrap(), None);
        db.flush().unwrap();
        db.compact_range(..).unwrap();
        drop((snapshot, handle));
        db.close().unwrap();
        let db = Db::open(dir.path(), options(d)).unwrap();
        assert_eq!(db.get("child").unwrap(), None, "{d:?}");
        assert_eq!(db.iter().count(), 301, "{d:?}");
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn what_is_on_its_way_is_refused_in_the_child_and_goes_on_in_the_parent() {
    for d in [Durability::Process, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options(d)).unwrap();
        (0..200).for_each(|i| db.put(format!("{i:03}"), vec![b'v'; 1000]).unwrap());
        db.flush().unwrap();
        let mut batch = WriteBatch::new();
        batch.put("late", "x");
        let how =
            WriteOptions::default().durability(Durability::Sync).with_deadline(Duration::from_secs(1000));
        let (mut late, mut sync) = (db.write_async(batch, &how), db.sync_async());
        assert!(poll_once(&mut late).is_pending() && poll_once(&mut sync).is_pending());
        let mut reads = db.reads(200).unwrap();
        (0..200).for_each(|i| reads.submit(i, format!("{i:03}")).unwrap());
        // Finds an answer in memory, or begins the reads.
        let left = 200 - usize::from(reads.poll().is_some());
        let pid = fork();
        if pid == 0 {
            let done = catch_unwind(AssertUnwindSafe(|| {
                let refused = |result: ringdb::Result<()>| {
                    assert!(result.is_err_and(|e| e.to_string().contains("fork")));
                };
                refused(block_on(late));
                refused(block_on(sync));
                refused(reads.submit(1000, "000"));
                refused(reads.wait(200).map(drop));
                while reads.poll().is_some() {}
                drop((reads, db));
            }));
            exit(done.is_ok());
        }
        wait_for(pid, d);
        block_on(late).unwrap();
        block_on(sync).unwrap();
        assert_eq!(reads.wait(left).unwrap(), left);
        for _ in 0..left {
            let (tag, value) = reads.poll().unwrap();
            assert!(tag < 200 && value.unwrap().is_some_and(|v| v[..] == [b'v'; 1000]));
        }
        assert!(db.get("late").unwrap().is_some());
        drop(reads);
        db.close().unwrap();
    }
}

#[test]
fn an_ingester_is_of_no_use_in_the_child_which_leaves_its_files_to_the_parent() {
    let d = Durability::Process;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options(d)).unwrap();
    let pairs = || (0..30_000u32).map(|i| (i.to_be_bytes(), [7; 100]));
    let (mut ingester, mut begun) = (db.ingester().unwrap(), db.ingester().unwrap());
    for (key, value) in pairs() {
        ingester.add(key, value).unwrap();
    }
    begun.add("z", "never").unwrap();
    let pid = fork();
    if pid == 0 {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let refused = |e: ringdb::Error| assert!(e.to_string().contains("fork"), "{e}");
            refused(begun.add("zz", "child").unwrap_err());
            drop(begun);
            refused(ingester.add("zz", "child").unwrap_err());
            refused(ingester.finish().unwrap_err());
        }));
        exit(done.is_ok());
    }
    wait_for(pid, d);
    drop(begun);
    assert_eq!(ingester.finish().unwrap(), 30_000);
    assert!(db.iter().map(Result::unwrap).eq(pairs().map(|(k, v)| (k[..].into(), v[..].into()))));
    assert!(db.verify().unwrap().is_ok());
}
