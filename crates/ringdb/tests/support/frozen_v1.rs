//! What the frozen databases of format version 1 hold. A frozen database never changes, so neither does this:
//! a new version gets a content of its own.
#![allow(dead_code)]

use std::collections::BTreeMap;

/// One write: keyspace (empty for the default one), key, and the value, or `None` to delete.
pub type Write = (&'static str, Vec<u8>, Option<Vec<u8>>);
/// Keyspace, key, value.
pub type Content = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// Keyspaces that are there at the end.
pub const KEYSPACES: [&str; 2] = ["stock", "text"];
/// A keyspace that had keys and was dropped.
pub const DROPPED: &str = "dropped";

/// The settings of the keyspace "text" in the store of version 2, where keyspaces have some.
pub fn text_settings() -> ringdb::KeyspaceOptions {
    ringdb::KeyspaceOptions::default()
        .with_compression(ringdb::Compression::Lz4)
        .with_block_bytes(8192)
        .with_filter_bits_per_key(5)
}

/// The key of the store of version 3.
#[cfg(feature = "encryption")]
pub fn keys() -> ringdb::StaticKeys {
    ringdb::StaticKeys::new(1, ringdb::EncryptionKey::new([7; 32])).expect("a key")
}

fn number(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let step = || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 56) as u8
    };
    std::iter::repeat_with(step).take(len).collect()
}

fn text(i: u64) -> Vec<u8> {
    format!("the value of number {i}, which is {} and compresses well", i * i % 1009).into_bytes()
}

/// The writes, in the order in which they happened; each part was made durable in its own way.
pub struct Parts {
    /// Compacted to the last level, in Zstandard.
    pub last_level: Vec<Write>,
    /// In a table of level 0, in LZ4.
    pub lz4: Vec<Write>,
    /// In a table of level 0, not compressed.
    pub plain: Vec<Write>,
    /// Each in a frame of the log, and one batch.
    pub logged: Vec<Write>,
    pub batch: Vec<Write>,
}

pub fn parts() -> Parts {
    let mut last_level: Vec<Write> = (0..1500).map(|i| ("", number(i), Some(text(i)))).collect();
    last_level.extend((0..100).map(|i| ("text", number(i * 3), Some(text(i)))));
    last_level.extend((0..50).map(|i| (DROPPED, number(i), Some(b"gone".to_vec()))));
    last_level.push(("stock", b"large".to_vec(), Some(noise(1, 20_000))));
    last_level.push(("stock", vec![], Some(vec![])));
    let mut lz4: Vec<Write> = (0..300).map(|i| ("", number(i * 4), Some(text(i + 7)))).collect();
    lz4.extend((0..200).map(|i| ("", number(i * 7 + 1), None)));
    lz4.push(("text", vec![0xff; 300], Some(b"a long key".to_vec())));
    let mut plain: Vec<Write> = (0..20).map(|i| ("", number(i * 50 + 2), Some(noise(i, 30)))).collect();
    plain.push(("", number(3), None));
    plain.push(("stock", b"large, not compressed".to_vec(), Some(noise(2, 5_000))));
    plain.push(("text", number(0), None));
    let mut logged: Vec<Write> = (0..20).map(|i| ("", number(2000 + i), Some(text(i)))).collect();
    logged.push(("", number(2003), None));
    logged.push(("", vec![0, 0xff, 0], Some(vec![0; 3])));
    let batch = vec![
        ("", b"batch".to_vec(), Some(b"one".to_vec())),
        ("stock", b"batch".to_vec(), Some(b"two".to_vec())),
        ("text", number(3), None),
    ];
    Parts { last_level, lz4, plain, logged, batch }
}

/// What all of it comes to.
pub fn content() -> Content {
    let p = parts();
    let mut all = Content::new();
    for (keyspace, key, value) in [p.last_level, p.lz4, p.plain, p.logged, p.batch].into_iter().flatten() {
        match value {
            _ if keyspace == DROPPED => {}
            Some(v) => drop(all.insert((keyspace, key), v)),
            None => drop(all.remove(&(keyspace, key))),
        }
    }
    all
}
