//! Databases of every format version that was ever released stay readable: copies of testdata/formats are opened
//! on every engine.
#![allow(clippy::unwrap_used)]

use crate::frozen_v1 as v1;
use crate::support;

use std::fs;
use std::path::{Path, PathBuf};

use ringdb::{Compression, Db, Iter, Keyspace, Options, WriteBatch, WriteOptions};

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/formats")
}

fn copy_of(version: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(formats().join(version)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

fn options(engine: &str, version: &str) -> Options {
    let o = Options::default().with_cache_bytes(4 << 20).with_create_if_missing(false).with_io(engine);
    #[cfg(feature = "encryption")]
    if version == "v3" {
        return o.with_encryption(v1::keys());
    }
    let _ = version;
    o
}

fn keyspace(db: &Db, name: &str) -> Option<Keyspace> {
    (!name.is_empty()).then(|| db.existing_keyspace(name).unwrap().unwrap())
}

fn check(db: &Db, expected: &v1::Content, what: &str) {
    for name in ["", "stock", "text"] {
        let k = keyspace(db, name);
        let pairs: Vec<(&[u8], &[u8])> =
            expected.iter().filter(|((n, _), _)| *n == name).map(|((_, k), v)| (&k[..], &v[..])).collect();
        let iter = || k.as_ref().map_or_else(|| db.iter(), Keyspace::iter);
        let all = |i: &mut dyn Iterator<Item = <Iter as Iterator>::Item>| {
            i.map(|kv| kv.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect::<Vec<_>>()
        };
        let got = all(&mut iter());
        assert!(
            got.iter().map(|(k, v)| (&k[..], &v[..])).eq(pairs.iter().copied()),
            "{what}: '{name}' forward"
        );
        let got = all(&mut iter().rev());
        let want = pairs.iter().rev().copied();
        assert!(got.iter().map(|(k, v)| (&k[..], &v[..])).eq(want), "{what}: '{name}' in reverse");
        let keys: Vec<&[u8]> = pairs.iter().map(|p| p.0).collect();
        let got = k.as_ref().map_or_else(|| db.multi_get(&keys), |k| k.multi_get(&keys)).unwrap();
        assert!(
            got.iter().map(|v| v.as_deref()).eq(pairs.iter().map(|p| Some(p.1))),
            "{what}: '{name}' at once"
        );
        for (key, value) in pairs {
            let got = k.as_ref().map_or_else(|| db.get(key), |k| k.get(key)).unwrap();
            assert_eq!(got.as_deref(), Some(value), "{what}: '{name}' {key:?}");
        }
    }
    // Deleted in level 0, in the log, and never there.
    for gone in ["key00008", "key00003", "key02003", "no"] {
        assert_eq!(
            expected.contains_key(&("", gone.into())),
            db.get(gone).unwrap().is_some(),
            "{what}: {gone}"
        );
    }
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
}

#[test]
fn version_1_is_read_and_written() {
    read_and_written("v1", |db| {
        // It did not say how it was written, but its tables do.
        assert_eq!(db.options().last_level_compression, Compression::Zstd);
        assert_eq!(db.keyspace("text").unwrap().options(), db.keyspace("default").unwrap().options());
    });
}

#[test]
fn version_2_is_read_and_written() {
    read_and_written("v2", |db| {
        let o = db.options();
        assert_eq!((o.compression, o.last_level_compression), (Compression::None, Compression::Zstd));
        let text = db.keyspace("text").unwrap().options();
        assert_eq!(v1::text_settings().over(&text), text);
        assert_ne!(text, db.keyspace("stock").unwrap().options());
    });
}

#[cfg(feature = "encryption")]
#[test]
fn version_3_is_read_and_written() {
    read_and_written("v3", |db| {
        assert_eq!(db.options().last_level_compression, Compression::Zstd);
        assert!(db.tables().iter().all(|t| t.encryption_key == Some(1)));
    });
}

fn read_and_written(version: &str, settings: fn(&Db)) {
    for engine in support::engines() {
        let dir = copy_of(version);
        settings(&Db::open_read_only(dir.path(), options(engine, version)).unwrap());
        let mut expected = v1::content();
        assert!(!expected.contains_key(&("", b"key00008".to_vec())), "the content has tombstones");
        check(&Db::open_read_only(dir.path(), options(engine, version)).unwrap(), &expected, engine);
        assert!(Db::verify_dir(dir.path(), &options(engine, version)).unwrap().is_ok());

        let db = Db::open(dir.path(), options(engine, version)).unwrap();
        assert_eq!(db.keyspaces().unwrap(), v1::KEYSPACES);
        let levels = db.stats().levels;
        assert!(levels[0].tables >= 2 && levels.iter().skip(1).any(|l| l.tables > 0), "{levels:?}");
        check(&db, &expected, engine);
        let mut batch = WriteBatch::new();
        for i in (0..2000).step_by(9) {
            let key = format!("key{i:05}").into_bytes();
            batch.put(&key, engine);
            expected.insert(("", key), engine.into());
        }
        let stock = db.keyspace("stock").unwrap();
        batch.delete_in(&stock, "large");
        expected.remove(&("stock", b"large".to_vec()));
        db.write(batch, &WriteOptions::default()).unwrap();
        check(&db, &expected, engine);
        drop((stock, db));

        let db = Db::open(dir.path(), options(engine, version)).unwrap();
        db.compact_range(..).unwrap();
        check(&db, &expected, engine);
        settings(&db);
        db.close().unwrap();
        check(&Db::open(dir.path(), options(engine, version)).unwrap(), &expected, engine);
    }
}
