//! Settings that a store remembers: over opens, for each keyspace, changed while it is open.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use ringdb::engineswap::sim::Disk;
use ringdb::{Compression, Db, ErrorKind, Keyspace, KeyspaceOptions, Options, ReadOptions, SystemEnv};

use crate::executor::block_on;
use crate::support::{Rng, disk};
use crate::tables::{Written, written};

const NONE: u64 = 0;
const LZ4: u64 = 1;
const ZSTD: u64 = 2;

fn small() -> Options {
    Options::default().with_cache_bytes(8 << 20).with_memtable_bytes(1 << 20).with_background_threads(2)
}

fn own() -> KeyspaceOptions {
    KeyspaceOptions::default()
}

fn fill(put: impl Fn(&str, &str), round: u64) {
    for i in 0..300 {
        put(&format!("key{i:05}"), &format!("{round}:{}", "text that shrinks ".repeat(20)));
    }
}

/// How all tables are compressed.
fn compressions(dir: &Path) -> Vec<u64> {
    let mut all: Vec<u64> = written(dir).iter().map(|t| t.compression).collect();
    all.dedup();
    all
}

#[test]
fn a_store_is_written_as_it_was_begun() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let zstd = small().with_compression(Compression::Lz4).with_last_level_compression(Compression::Zstd);
    let db = Db::open(&dir, zstd.with_block_bytes(16 << 10).with_filter_bits_per_key(4)).unwrap();
    fill(|k, v| db.put(k, v).unwrap(), 0);
    db.close().unwrap();
    for round in 1..4 {
        let db = Db::open(&dir, small()).unwrap();
        let o = db.options();
        assert_eq!((o.compression, o.last_level_compression), (Compression::Lz4, Compression::Zstd));
        assert_eq!((o.block_bytes, o.filter_bits_per_key, o.cache_bytes), (16 << 10, 4, 8 << 20));
        fill(|k, v| db.put(k, v).unwrap(), round);
        db.flush().unwrap();
        assert!(compressions(&dir).contains(&LZ4));
        db.compact_range(..).unwrap();
        assert_eq!(compressions(&dir), [ZSTD]);
        assert!(written(&dir).iter().all(|t| (t.block_bytes, t.filter_bits_per_key) == (16 << 10, 4)));
        db.close().unwrap();
    }
    // A copy remembers them too.
    let db = Db::open(&dir, small()).unwrap();
    db.checkpoint(tmp.path().join("copy")).unwrap();
    let copy = Db::open_read_only(tmp.path().join("copy"), small()).unwrap();
    assert_eq!(copy.options().last_level_compression, Compression::Zstd);
    assert_eq!(copy.stats().settings, db.stats().settings);
}

#[test]
fn what_is_given_overrides_what_is_remembered_and_is_remembered() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    Db::open(&dir, small().with_compression(Compression::Zstd)).unwrap().close().unwrap();
    // The default, but given.
    Db::open(&dir, small().with_compression(Compression::None)).unwrap().close().unwrap();
    let db = Db::open(&dir, small()).unwrap();
    assert_eq!(db.options().compression, Compression::None);
    db.close().unwrap();
    // By its field.
    let mut o = small();
    o.filter_bits_per_key = 3;
    Db::open(&dir, o).unwrap().close().unwrap();
    // A read-only open writes nothing, so what is given there changes nothing.
    let db = Db::open_read_only(&dir, small().with_filter_bits_per_key(5)).unwrap();
    assert_eq!(db.options().filter_bits_per_key, 3);
    let e =
        db.existing_keyspace("default").unwrap().unwrap().alter(&own().with_block_bytes(8192)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::FixCall);
    // A size of blocks can be changed, too: tables of both are read.
    let db = Db::open(&dir, small()).unwrap();
    fill(|k, v| db.put(k, v).unwrap(), 0);
    db.close().unwrap();
    let db = Db::open(&dir, small().with_block_bytes(32 << 10)).unwrap();
    for i in (0..300).step_by(2) {
        db.put(format!("key{i:05}"), "new").unwrap();
    }
    db.flush().unwrap();
    let sizes: Vec<u64> = written(&dir).iter().map(|t| t.block_bytes).collect();
    assert!(sizes.contains(&4096) && sizes.contains(&(32 << 10)), "{sizes:?}");
    assert_eq!(db.iter().map(|p| p.unwrap()).filter(|(_, v)| &v[..] == b"new").count(), 150);
    assert_eq!(db.get("key00001").unwrap().unwrap()[..2], *b"0:");
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn each_keyspace_has_its_tables_written_in_its_own_way() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let db = Db::open(&dir, small()).unwrap();
    let logs = own().with_compression(Compression::Lz4).with_last_level_compression(Compression::Zstd);
    let a = db.keyspace_with("a", &logs.with_block_bytes(8192)).unwrap();
    let b = db.keyspace("b").unwrap();
    let c = db.keyspace_with("c", &own().with_filter_bits_per_key(0)).unwrap();
    let all = |round| {
        fill(|k, v| db.put(k, v).unwrap(), round);
        [&a, &b, &c].into_iter().for_each(|k| fill(|key, v| k.put(key, v).unwrap(), round));
        db.flush().unwrap();
    };
    all(0);
    let table = |id, block_bytes, compression, filter_bits_per_key| Written {
        keyspaces: (id, id),
        block_bytes,
        compression,
        filter_bits_per_key,
    };
    let upper = [
        table(0, 4096, NONE, 14),
        table(1, 8192, LZ4, 14),
        table(2, 4096, NONE, 14),
        table(3, 4096, NONE, 0),
    ];
    assert_eq!(written(&dir), upper);
    [&a, &b, &c].into_iter().for_each(|k| k.compact_range(..).unwrap());
    db.compact_range(..).unwrap();
    assert_eq!(written(&dir)[1], table(1, 8192, ZSTD, 10));

    // Changed while it is open: new tables have it, over a reopen too.
    b.alter(&own().with_compression(Compression::Lz4).with_last_level_compression(Compression::Lz4)).unwrap();
    c.alter(&own().with_filter_bits_per_key(5)).unwrap();
    assert_eq!(c.options().filter_bits_per_key, Some(5));
    all(1);
    [&a, &b, &c].into_iter().for_each(|k| k.compact_range(..).unwrap());
    let expected = [
        table(0, 4096, NONE, 10),
        table(1, 8192, ZSTD, 10),
        table(2, 4096, LZ4, 10),
        table(3, 4096, NONE, 5),
    ];
    assert_eq!(written(&dir), expected);
    // The store's settings are those of the keyspaces that have none of their own.
    let default = db.keyspace("default").unwrap();
    default.alter(&own().with_filter_bits_per_key(7)).unwrap();
    assert_eq!((b.options().filter_bits_per_key, c.options().filter_bits_per_key), (Some(7), Some(5)));
    assert_eq!((db.options().filter_bits_per_key, a.options().block_bytes), (7, Some(8192)));
    let named: Vec<String> = db.stats().settings.iter().map(|s| s.keyspace.clone()).collect();
    assert_eq!(named, ["default", "a", "b", "c"]);
    let before = db.stats().settings;
    drop((a, b, c, default));
    db.close().unwrap();
    let db = Db::open(&dir, small()).unwrap();
    assert_eq!(db.stats().settings, before);
    // An unknown setting's keyspace may go, and its name come back without its settings.
    assert!(db.drop_keyspace("c").unwrap());
    assert_eq!(db.keyspace("c").unwrap().options().filter_bits_per_key, Some(7));
    assert_eq!(
        db.keyspace_with("c", &own().with_filter_bits_per_key(1)).unwrap().options().filter_bits_per_key,
        Some(1)
    );
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn wrong_settings_change_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path().join("db"), small()).unwrap();
    let e = db.keyspace_with("a", &own().with_block_bytes(5000)).unwrap_err();
    assert!(e.to_string().contains("block_bytes is 5000"), "{e}");
    assert_eq!(db.keyspaces().unwrap(), Vec::<String>::new());
    let a = db.keyspace("a").unwrap();
    assert!(a.alter(&own().with_filter_bits_per_key(65)).is_err());
    assert_eq!(a.options().filter_bits_per_key, Some(10));
    assert!(db.drop_keyspace("a").unwrap());
    assert!(a.alter(&own().with_filter_bits_per_key(5)).unwrap_err().to_string().contains("dropped"));
}

/// Everything in a keyspace, by every way of reading.
fn check(k: &Keyspace, expected: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) {
    let pairs = || k.iter().map(|p| p.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec()));
    assert!(pairs().eq(expected.clone()), "{what}: forward");
    let back: Vec<_> = k.iter().rev().map(|p| p.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(back.into_iter().rev().eq(expected.clone()), "{what}: in reverse");
    let unkept = ReadOptions::default().fill_cache(false);
    let keys: Vec<&Vec<u8>> = expected.keys().collect();
    for options in [&ReadOptions::default(), &unkept] {
        let got = k.multi_get_with(&keys, options).unwrap();
        assert!(
            got.iter().map(|v| v.as_deref()).eq(expected.values().map(|v| Some(&v[..]))),
            "{what}: at once"
        );
    }
    for (key, value) in expected.iter().step_by(7) {
        assert_eq!(k.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
        let deadline = ReadOptions::default().with_deadline(Duration::from_secs(60));
        assert_eq!(
            k.get_with(key, &deadline).unwrap().as_deref(),
            Some(&value[..]),
            "{what}: by the reactor"
        );
    }
    let mut stream = k.range_async_with(.., &unkept);
    let streamed = std::iter::from_fn(|| block_on(poll_fn(|cx| Pin::new(&mut stream).poll_next(cx))))
        .map(|p| p.unwrap());
    assert!(streamed.map(|(k, v)| (k.to_vec(), v.to_vec())).eq(expected.clone()), "{what}: streamed");
}

#[test]
fn blocks_of_every_size_are_read_beside_each_other() {
    for (seed, direct) in [(1, false), (2, true)] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("db");
        let options = || {
            Options::default()
                .with_cache_bytes(2 << 20)
                .with_memtable_bytes(256 << 10)
                .with_direct_reads(direct)
        };
        let mut db = Db::open(&dir, options().with_block_bytes(16 << 10)).unwrap();
        let mut rng = Rng(seed);
        let sizes = [
            ("small", 4096, Compression::None),
            ("packed", 4096, Compression::Lz4),
            ("default", 16 << 10, Compression::None),
            ("large", 64 << 10, Compression::None),
            ("large packed", 32 << 10, Compression::Zstd),
        ];
        let mut content: BTreeMap<&str, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
        for round in 0..3 {
            for (name, block_bytes, compression) in sizes {
                let settings = own().with_compression(compression).with_last_level_compression(compression);
                let k = db.keyspace_with(name, &settings.with_block_bytes(block_bytes)).unwrap();
                for _ in 0..400 {
                    let key = format!("{:06}", rng.below(5000)).into_bytes();
                    let mut value = vec![0; [10, 100, 700, 6000][rng.below(4) as usize]];
                    value.iter_mut().step_by(3).for_each(|b| *b = rng.next() as u8);
                    k.put(&key, &value).unwrap();
                    content.entry(name).or_default().insert(key, value);
                }
            }
            for (name, ..) in sizes {
                check(&db.keyspace(name).unwrap(), &content[name], &format!("{name}, round {round}"));
            }
            match round {
                0 => db.flush().unwrap(),
                1 => sizes.iter().for_each(|(n, ..)| db.keyspace(n).unwrap().compact_range(..).unwrap()),
                _ => {}
            }
            // Another size of frames may follow from what there is now.
            db.close().unwrap();
            db = Db::open(&dir, options()).unwrap();
            for (name, ..) in sizes {
                check(&db.keyspace(name).unwrap(), &content[name], &format!("{name}, after round {round}"));
            }
        }
        let of = |id: u8| {
            written(&dir).iter().filter(|t| t.keyspaces.0 == id).map(|t| t.block_bytes).collect::<Vec<_>>()
        };
        let all: Vec<u64> = (0..5).flat_map(|id| of(id).into_iter().take(1)).collect();
        assert_eq!(all, [16 << 10, 4096, 4096, 64 << 10, 32 << 10]);
        assert!(db.verify().unwrap().is_ok());
    }
}

/// Tables of different keyspaces are not merged again and again for being many.
#[test]
fn many_keyspaces_with_different_settings_come_to_rest() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let db = Db::open(&dir, small()).unwrap();
    let spaces: Vec<Keyspace> = (0..40)
        .map(|i| db.keyspace_with(&format!("{i}"), &own().with_filter_bits_per_key(i % 2 + 3)).unwrap())
        .collect();
    for round in 0..6 {
        for k in &spaces {
            fill(|key, v| k.put(key, &v[..20]).unwrap(), round);
        }
        db.flush().unwrap();
    }
    let wait = || std::thread::sleep(Duration::from_millis(300));
    let mut before = db.stats();
    for _ in 0..20 {
        wait();
        let now = db.stats();
        if now.compactions == before.compactions && now.immutable_memtables == 0 {
            assert!(now.compactions < 40, "{:?}", now.compaction_reasons);
            assert!(written(&dir).iter().all(|t| t.keyspaces.0 == t.keyspaces.1));
            return;
        }
        before = now;
    }
    panic!("compactions go on: {:?}", before.compaction_reasons);
}

/// A power cut leaves the settings of before or of after; those of after once the call has returned.
#[test]
fn settings_survive_a_power_cut_when_alter_has_returned() {
    const STORE: &str = "/store";
    let open = |disk: &Disk| Db::open_with_env(STORE, small(), disk.io(), SystemEnv::shared()).unwrap();
    let disk = disk(7, 512);
    disk.record(true);
    let db = open(&disk);
    let bits = |n| own().with_filter_bits_per_key(n);
    let a = db.keyspace_with("a", &bits(2)).unwrap();
    let before = disk.points();
    a.alter(&bits(3)).unwrap();
    db.keyspace("default").unwrap().alter(&bits(4)).unwrap();
    let after = disk.points();
    assert!(after > before + 2, "{before} to {after}");
    let mut seen = BTreeSet::new();
    for at in before..=after {
        for outcome in 0..6 {
            let left = disk.point(at).map_or_else(|| disk.crash(outcome), |p| disk.crash_at(&p, outcome).0);
            let db = open(&left);
            let of = |name: &str| db.keyspace(name).unwrap().options().filter_bits_per_key.unwrap();
            let found = (of("default"), of("a"));
            assert!([(10, 2), (10, 3), (4, 3)].contains(&found), "{found:?}");
            assert!(at < after || found == (4, 3), "an acknowledged change is lost: {found:?}");
            seen.insert(found);
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// The newest version of a keyspace's first key is deleted with a range, an older one is kept for a snapshot.
#[test]
fn tables_are_cut_between_keyspaces_whichever_version_of_a_key_is_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let db = Db::open(&dir, small()).unwrap();
    let a = db.keyspace_with("a", &own().with_block_bytes(8192)).unwrap();
    db.put("k", "v").unwrap();
    a.put("k", "old").unwrap();
    let snapshot = db.snapshot();
    a.put("k", "new").unwrap();
    a.delete_range(..).unwrap();
    db.flush().unwrap();
    let tables: Vec<_> = written(&dir).iter().map(|t| (t.keyspaces, t.block_bytes)).collect();
    assert_eq!(tables, [((0, 0), 4096), ((1, 1), 8192)]);
    assert_eq!(snapshot.keyspace(&a).get("k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(a.get("k").unwrap(), None);
}

#[test]
fn filters_above_the_last_level_have_four_bits_more() {
    const KEYS: u64 = 100_000;
    for (bits, last, above) in [(10, 10, 14), (1, 1, 5), (0, 0, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let o = Options::default().with_io("posix").with_filter_bits_per_key(bits);
        let db = Db::open(dir.path(), o.clone()).unwrap();
        let put =
            |from: u64| (from..from + KEYS).for_each(|i| db.put((2 * i).to_be_bytes(), "value").unwrap());
        // Two runs that overlap, so that they are merged into the last level and not moved there.
        put(0);
        db.flush().unwrap();
        let in_bits = |bytes: u64| 8.0 * bytes as f64 / KEYS as f64;
        let close = |bytes: u64, expected: u32| (in_bits(bytes) - f64::from(expected)).abs() < 0.5;
        let level0 = db.stats().filter_bytes;
        assert!(close(level0, above), "{level0} bytes in level 0, of {bits} bits a key");
        put(0);
        db.flush().unwrap();
        db.compact_range(..).unwrap();
        let lowest = db.stats().filter_bytes;
        assert!(close(lowest, last), "{lowest} bytes in the last level, of {bits} bits a key");
        put(KEYS);
        db.flush().unwrap();
        let both = db.stats().filter_bytes;
        assert!(close(both - lowest, above), "{both} bytes in both, of {bits} bits a key");
        // The setting is what was set.
        assert_eq!(db.options().filter_bits_per_key, bits);
        // They still answer.
        let before = db.stats();
        for i in 0..2000u64 {
            assert_eq!(db.get((34 * i + 1).to_be_bytes()).unwrap(), None);
            assert!(db.get((34 * i).to_be_bytes()).unwrap().is_some());
        }
        assert_eq!(db.stats().filter_negatives > before.filter_negatives, bits > 0);
    }
}
