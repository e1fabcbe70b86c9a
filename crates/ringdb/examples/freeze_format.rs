//! Makes the frozen database of the present format version: `make freeze-format`. Once, when a version is new;
//! what is in testdata/formats stays as it was written.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/frozen_v1.rs"]
mod content;

use std::fs;
use std::path::Path;

use content::{DROPPED, Write};
use ringdb::{Compression, Db, Options, WriteBatch, WriteOptions};

fn put_all(db: &Db, writes: &[Write]) {
    for w in writes {
        write(db, std::slice::from_ref(w));
    }
}

fn write(db: &Db, writes: &[Write]) {
    let mut batch = WriteBatch::new();
    for (keyspace, key, value) in writes {
        let k = (!keyspace.is_empty()).then(|| db.keyspace(keyspace).unwrap());
        match (k, value) {
            (Some(k), Some(v)) => batch.put_in(&k, key, v),
            (Some(k), None) => batch.delete_in(&k, key),
            (None, Some(v)) => batch.put(key, v),
            (None, None) => batch.delete(key),
        }
    }
    db.write(batch, &WriteOptions::default()).unwrap();
}

fn main() {
    let to = std::env::args().nth(1).expect("the directory to make");
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("store");
    let with = |c: Compression| {
        let o = Options::default()
            .with_cache_bytes(8 << 20)
            .with_memtable_bytes(1 << 20)
            .with_log_segment_bytes(64 << 10);
        // Version 3 is that of encrypted stores.
        #[cfg(feature = "encryption")]
        let o = o.with_encryption(content::keys());
        Db::open(&dir, o.with_compression(c).with_last_level_compression(Compression::Zstd)).unwrap()
    };
    let p = content::parts();
    let db = with(Compression::Lz4);
    put_all(&db, &p.last_level);
    db.flush().unwrap();
    for k in [db.keyspace("text").unwrap(), db.keyspace("stock").unwrap(), db.keyspace(DROPPED).unwrap()] {
        k.compact_range(..).unwrap();
    }
    db.compact_range(..).unwrap();
    let levels: Vec<u64> = db.stats().levels.iter().map(|l| l.tables).collect();
    assert!(levels[0] == 0 && *levels.last().unwrap() > 0, "{levels:?}");
    put_all(&db, &p.lz4);
    db.close().unwrap();
    let db = with(Compression::None);
    put_all(&db, &p.plain);
    db.close().unwrap();
    let db = with(Compression::None);
    assert_eq!(db.stats().levels[0].tables, 2, "{:?}", db.stats().levels);
    // What version 2 brought: settings of a keyspace, altered once.
    let text = db.keyspace_with("text", &content::text_settings().with_filter_bits_per_key(3)).unwrap();
    text.alter(&content::text_settings()).unwrap();
    drop(text);
    put_all(&db, &p.logged);
    write(&db, &p.batch);
    assert!(db.drop_keyspace(DROPPED).unwrap());
    drop(db);

    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        if name != "LOCK" {
            fs::write(Path::new(&to).join(name), bytes).unwrap();
        }
    }
}
