//! Sealed tables: they read back with the key, and say nothing without it.

use std::path::Path;
use std::sync::Arc;

use engineswap::{Io, Purpose};

use super::reads::Reads;
use super::walk::{BlockWalk, Window};
use super::writer::{TableOptions, TableWriter};
use super::{TableParts, TableScan};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::key::Kind;
use crate::options::Compression;
use crate::seal::provider::{EncryptionKey, Provider};
use crate::seal::ring::{for_writing, with_keys};
use crate::seal::static_keys::StaticKeys;

const FILE: u64 = 31;
const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn io(key: u8) -> Io {
    let keys = StaticKeys::new(1, EncryptionKey::new([key; 32])).expect("a key");
    with_keys(&Io::from_uri("posix").expect("posix"), &Provider(Some(Arc::new(keys))))
}

fn key(i: u64) -> Vec<u8> {
    format!("\0secret-key-{i:06}").into_bytes()
}

/// Of many lengths; every 50th is streamed where tables are not compressed.
fn value(i: u64) -> Vec<u8> {
    let len = if i % 50 == 7 { 150_000 } else { (i * 37 % 900) as usize };
    let text = format!("secret value {i} ");
    text.bytes().cycle().take(len).collect()
}

fn write(io: &Io, path: &Path, compression: Compression, n: u64) {
    let options = TableOptions {
        block_bytes: 4096,
        compression,
        filter_bits_per_key: 10,
        expected_bytes: 1 << 20,
        buffer_bytes: u64::MAX,
        most_keys: None,
        most_hashes: usize::MAX,
        reads: Reads::PageCache,
        seal: for_writing(io).expect("keys"),
        purpose: Purpose(1),
    };
    let mut w = TableWriter::create(io, path, FILE, options).expect("a table");
    (0..n).for_each(|i| w.add(&key(i), 5, Kind::Put, &value(i)).expect("an entry"));
    w.finish().expect("a table");
}

/// All pairs, if the table can be read to its end.
fn read(io: &Io, path: &Path, lazy: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let parts = Arc::new(TableParts::load(io, path, FILE, Reads::PageCache, Purpose(2))?);
    let mut scan = match lazy {
        false => TableScan::new(io, &parts, None, Purpose(3))?,
        true => TableScan::lazy(io, &parts, None, super::read_ahead::Ahead::MOST, Purpose(3))?,
    };
    let mut all = Vec::new();
    scan.seek_to_first()?;
    while scan.valid() {
        scan.load_value()?;
        all.push((scan.key().to_vec(), scan.value().to_vec()));
        scan.next()?;
    }
    Ok(all)
}

#[test]
fn sealed_tables_read_back_and_say_nothing_without_the_key() {
    let dir = tempfile::tempdir().expect("a directory");
    for compression in ALL {
        let path = dir.path().join(format!("{compression:?}"));
        write(&io(1), &path, compression, 300);
        let want: Vec<_> = (0..300).map(|i| (key(i), value(i))).collect();
        for lazy in [false, true] {
            assert!(read(&io(1), &path, lazy).expect("readable") == want, "{compression:?}");
        }
        let parts = TableParts::load(&io(1), &path, FILE, Reads::PageCache, Purpose(2)).expect("readable");
        let window = Window::over(parts.file().expect("open"), Purpose(2)).expect("open");
        let (seal, index) = (parts.seal_shared(), Arc::new(parts.index));
        let mut walk = BlockWalk::new(window, index.clone(), (FILE, seal));
        (0..index.blocks()).for_each(|n| assert!(walk.block(n).is_ok(), "{compression:?} block {n}"));

        let bytes = std::fs::read(&path).expect("a file");
        assert!(!bytes.windows(6).any(|w| w == b"secret"), "{compression:?}: it can be read");
        let e = read(&io(2), &path, false).expect_err("another key");
        assert!(matches!(e, Error::Key { key: 1, .. }), "{e}");
        let e = read(&Io::from_uri("posix").expect("posix"), &path, false).expect_err("no key");
        assert!(e.to_string().contains("no keys were given"), "{e}");
    }
}

#[test]
fn two_tables_of_the_same_pairs_have_nothing_in_common() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    paths.iter().for_each(|path| write(&io(1), path, Compression::None, 40));
    let [a, b] = paths.map(|path| std::fs::read(path).expect("a file"));
    assert_eq!(a.len(), b.len());
    let same = a[..4096].iter().zip(&b[..4096]).filter(|(a, b)| a == b).count();
    assert!(same < 100, "{same} of 4096 bytes are the same");
}

#[test]
fn every_changed_byte_of_a_sealed_table_is_noticed_or_does_not_matter() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t");
    for compression in ALL {
        let _ = std::fs::remove_file(&path);
        write(&io(1), &path, compression, 7);
        let want: Vec<_> = (0..7).map(|i| (key(i), value(i))).collect();
        let bytes = std::fs::read(&path).expect("a file");
        assert!(read(&io(1), &path, false).expect("readable") == want);
        for i in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[i] ^= 0x20;
            std::fs::write(&path, changed).expect("a file");
            match read(&io(1), &path, false) {
                Ok(pairs) => assert!(pairs == want, "{compression:?} byte {i}"),
                Err(Error::Corrupt { .. } | Error::Key { .. } | Error::NewerFormat { .. }) => {}
                Err(e) => panic!("{compression:?} byte {i}: {e}"),
            }
        }
    }
}
