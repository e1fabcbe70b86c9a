//! The completion interface: tags, a bounded number of reads, a descriptor, streams of keys, a store that closes.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

use crate::async_reads::{KEYS, check, filled, key};
use crate::support::{self, Rng, seed};

use ringdb::engineswap::sim::Disk;
use ringdb::{Db, Error, ErrorKind, Options};

fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Whether a descriptor is readable, within so many milliseconds.
fn is_readable(fd: std::os::fd::BorrowedFd<'_>, most: i32) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which the kernel fills in.
    unsafe { libc::poll(&mut entry, 1, most) == 1 }
}

fn readable(fd: std::os::fd::BorrowedFd<'_>, what: &str) {
    assert!(is_readable(fd, 100_000), "{what}: the descriptor tells nothing");
}

#[test]
fn answers_come_with_their_tags_and_the_descriptor_tells_of_them() {
    let mut rng = Rng(seed("reads"));
    for engine in support::engines() {
        for direct in [false, true] {
            let dir = temp();
            let db = filled(dir.path(), engine, direct);
            for depth in [1, 10, 300] {
                let mut reads = db.reads(depth).unwrap();
                assert_eq!((reads.depth(), reads.open()), (depth, 0));
                let mut asked = BTreeMap::new();
                let mut next = 0;
                while next < 1000 || !asked.is_empty() {
                    while next < 1000 && asked.len() < depth {
                        let i = rng.below(KEYS + 10);
                        reads.submit(next, key(i)).unwrap();
                        asked.insert(next, i);
                        next += 1;
                    }
                    if asked.len() == depth {
                        let e = reads.submit(0, "more").unwrap_err();
                        assert!(matches!(e, Error::WouldBlock) && e.kind() == ErrorKind::WouldBlock, "{e}");
                    }
                    assert_eq!(reads.open(), asked.len());
                    if rng.chance(3) {
                        let min = rng.below(asked.len() as u64 + 2) as usize;
                        assert!(reads.wait(min).unwrap() >= min.min(asked.len()));
                    }
                    let mut came = 0;
                    while let Some((tag, answer)) = reads.poll() {
                        check(asked.remove(&tag).unwrap(), answer);
                        came += 1;
                    }
                    if came == 0 && !asked.is_empty() {
                        readable(reads.fd().unwrap(), engine);
                    }
                }
                assert!(reads.poll().is_none() && reads.wait(5).unwrap() == 0);
            }
        }
    }
}

#[test]
fn a_descriptor_is_silent_when_there_is_nothing_more() {
    for engine in support::engines() {
        let dir = temp();
        let db = filled(dir.path(), engine, true);
        let mut reads = db.reads(16).unwrap();
        reads.fd().unwrap();
        for round in 0..20 {
            (0..16).for_each(|n| reads.submit(n, key(round * 700 + n * 30)).unwrap());
            let mut came = 0;
            while came < 16 {
                match reads.poll() {
                    Some((n, answer)) => {
                        check(round * 700 + n * 30, answer);
                        came += 1;
                    }
                    None => readable(reads.fd().unwrap(), engine),
                }
            }
            // What rang for the last one has been heard.
            assert!(reads.poll().is_none() && !is_readable(reads.fd().unwrap(), 0), "{engine}");
        }
    }
}

/// A lookup that needs block after block: the later ones are begun by the poll that takes the earlier ones, and may be
/// there at once.
#[test]
fn the_descriptor_tells_of_blocks_that_come_at_once() {
    const TABLES: u64 = 3;
    let (key, value) = (|i: u64| format!("{:06}", i % 2500 * TABLES + i / 2500), |i: u64| vec![i as u8; 400]);
    for engine in support::engines() {
        for direct in [false, true] {
            let dir = temp();
            let options = |mib: u64| {
                let o = Options::default().with_io(engine).with_direct_reads(direct);
                o.with_filter_bits_per_key(0).with_cache_bytes(mib << 20)
            };
            for table in 0..TABLES {
                let db = Db::open(dir.path(), options(64)).unwrap();
                (table * 2500..(table + 1) * 2500).for_each(|i| db.put(key(i), value(i)).unwrap());
                db.close().unwrap();
            }
            let db = Db::open_read_only(dir.path(), options(1)).unwrap();
            assert!(db.stats().levels[0].tables >= 2, "each has a part of every range of keys");
            let mut reads = db.reads(4).unwrap();
            let mut rng = Rng(seed("blocks"));
            for _ in 0..400 {
                let asked: Vec<u64> = (0..4).map(|_| rng.below(2500 * TABLES)).collect();
                asked.iter().for_each(|i| reads.submit(*i, key(*i)).unwrap());
                let mut came = 0;
                while came < asked.len() {
                    match reads.poll() {
                        Some((i, answer)) => {
                            assert_eq!(answer.unwrap().unwrap(), value(i));
                            came += 1;
                        }
                        None => assert!(is_readable(reads.fd().unwrap(), 10_000), "{engine}, {direct}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_stream_gives_every_key_once() {
    for engine in support::engines() {
        let dir = temp();
        let db = filled(dir.path(), engine, false);
        let snapshot = db.snapshot();
        db.put(key(1), "newer").unwrap();
        for window in [1, 7, 300] {
            let some: Vec<u64> = (0..KEYS).step_by(7).collect();
            let mut seen = BTreeMap::new();
            for (k, answer) in snapshot.multi_get_stream(some.iter().map(|i| key(*i)), window).unwrap() {
                let i: u64 = k[3..].parse().unwrap();
                check(i, answer);
                *seen.entry(i).or_insert(0) += 1;
            }
            assert!(seen.len() == some.len() && seen.values().all(|n| *n == 1), "{engine}: {}", seen.len());
        }
        let mut stream = db.multi_get_stream((0..KEYS).map(key), 64).unwrap();
        assert!(stream.next().is_some());
        drop(stream);
        let (_, newer) = db.multi_get_stream([key(1)], 4).unwrap().next().unwrap();
        assert_eq!(newer.unwrap().as_deref(), Some(&b"newer"[..]));
        let ks = db.keyspace("other").unwrap();
        assert!(ks.multi_get_stream(["a", "b"], 4).unwrap().all(|(_, got)| got.unwrap().is_none()));
    }
}

#[test]
fn a_closed_store_answers_what_is_open() {
    for engine in support::engines() {
        let dir = temp();
        let db = filled(dir.path(), engine, true);
        let mut reads = db.reads(100).unwrap();
        (0..100).for_each(|n| reads.submit(n, key(n * 150)).unwrap());
        let stream = db.multi_get_stream((0..KEYS).map(key), 8).unwrap();
        let _ = reads.wait(3).unwrap();
        db.close().unwrap();
        for _ in 0..100 {
            match reads.poll() {
                Some((_, Err(Error::Closed))) => {}
                Some((n, answer)) => check(n * 150, answer),
                None => panic!("{engine}: a read that nobody answers"),
            }
        }
        assert_eq!(reads.open(), 0);
        assert!(matches!(reads.submit(1, "k"), Err(Error::Closed)));
        assert!(matches!(reads.wait(1), Err(Error::Closed)) && matches!(reads.fd(), Err(Error::Closed)));
        // Each key is answered, all with that error.
        assert!(stream.take(50).all(|(_, answer)| matches!(answer, Err(Error::Closed))));
    }
}

#[test]
fn a_simulated_disk_has_no_descriptor() {
    let disk = Disk::new(5);
    let options = Options::default().with_cache_bytes(1 << 20);
    let db = Db::open_with_env("/db", options, disk.io(), ringdb::SystemEnv::shared()).unwrap();
    (0..2000u32).for_each(|n| db.put(n.to_be_bytes(), vec![n as u8; 900]).unwrap());
    db.flush().unwrap();
    let mut reads = db.reads(32).unwrap();
    assert_eq!(reads.fd().unwrap_err().kind(), ErrorKind::FixCall);
    for n in 0..2000u32 {
        while reads.submit(n.into(), n.to_be_bytes()).is_err() {
            reads.wait(1).unwrap();
            let (tag, answer) = reads.poll().unwrap();
            assert_eq!(answer.unwrap().as_deref(), Some(&vec![tag as u8; 900][..]));
        }
    }
}
