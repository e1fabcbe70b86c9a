//! Tables written, opened and scanned again, whole and damaged.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::{Io, Purpose};
use proptest::prelude::*;

use super::block::{BlockView, Find};
use super::format::unpack_block;
use super::read_ahead::Ahead;
use super::writer::{TableOptions, TableWriter};
use super::{Reads, TableMeta, TableParts, TableScan};
use crate::cursor::Cursor;
use crate::cursor::model::Entry;
use crate::error::{Error, Result};
use crate::key::{self, Kind, SEQ_MAX, Seq};
use crate::options::Compression;

const FILE: u64 = 31;
const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn io() -> Io {
    Io::from_uri("posix").unwrap()
}

fn options(compression: Compression, block_bytes: u32) -> TableOptions {
    TableOptions {
        block_bytes,
        compression,
        filter_bits_per_key: 10,
        expected_bytes: 100_000,
        buffer_bytes: u64::MAX,
        most_keys: None,
        most_hashes: usize::MAX,
        reads: Reads::PageCache,
        seal: None,
        purpose: Purpose(1),
    }
}

fn write(path: &Path, entries: &[Entry], options: TableOptions) -> Result<TableMeta> {
    let compressed = options.compression != Compression::None;
    let mut w = TableWriter::create(&io(), path, FILE, options)?;
    for e in entries {
        w.add(&e.key, e.seq, e.kind, &e.value)?;
    }
    let estimate = w.estimated_bytes();
    let meta = w.finish()?;
    assert_eq!(std::fs::metadata(path).unwrap().len(), meta.file_bytes);
    // The block being gathered counts with its full length, however well it may compress.
    let slack = 8192 + meta.file_bytes / 4;
    assert!(estimate + slack > meta.file_bytes, "{estimate} {}", meta.file_bytes);
    assert!(compressed || estimate < meta.file_bytes + slack, "{estimate} {}", meta.file_bytes);
    Ok(meta)
}

fn open(path: &Path) -> Result<Arc<TableParts>> {
    TableParts::load(&io(), path, FILE, Reads::PageCache, Purpose(2)).map(Arc::new)
}

fn collect(scan: &mut TableScan) -> Result<Vec<Entry>> {
    let mut all = vec![];
    while scan.valid() {
        all.push(Entry {
            key: scan.key().to_vec(),
            seq: scan.seq(),
            kind: scan.kind(),
            value: scan.value().to_vec(),
        });
        scan.next()?;
    }
    Ok(all)
}

fn scan_all(parts: &Arc<TableParts>) -> Result<Vec<Entry>> {
    let mut scan = TableScan::new(&io(), parts, None, Purpose(3))?;
    scan.seek_to_first()?;
    collect(&mut scan)
}

/// A get as a reader does it: filter, index, block, and the next block when told.
fn get(parts: &TableParts, key: &[u8], seq: Seq) -> Result<Option<Entry>> {
    if !parts.filter.may_contain(key::hash(key)) {
        return Ok(None);
    }
    let Some(first) = parts.index.find_block(key) else { return Ok(None) };
    for block in first..parts.index.blocks() {
        let pos = parts.index.block_pos(block);
        let mut stored = vec![0; pos.stored_len as usize];
        // Through the page cache: a direct read would need aligned buffers.
        std::fs::File::open(&parts.path).unwrap().read_exact_at(&mut stored, pos.offset).unwrap();
        let mut out = vec![0xCC; pos.block_len as usize + 10];
        unpack_block(&stored, &pos, &mut out, (FILE, parts.seal()), block)
            .map_err(|e| parts.corrupt_block(block, e))?;
        match BlockView::trusted(&out).find(key, seq) {
            Find::Found(e) => {
                let mut k = vec![];
                e.key_into(&mut k);
                return Ok(Some(Entry { key: k, seq: e.seq, kind: e.kind, value: e.value.to_vec() }));
            }
            Find::Absent => return Ok(None),
            Find::Next => {}
        }
    }
    Ok(None)
}

fn put(key: Vec<u8>, seq: Seq, value: Vec<u8>) -> Entry {
    Entry { key, seq, kind: Kind::Put, value }
}

fn numbered(n: u64, value_len: usize) -> Vec<Entry> {
    (0..n).map(|i| put(format!("\0user{i:08}").into_bytes(), i + 1, vec![i as u8; value_len])).collect()
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn what_is_written_is_read_with_every_compression() {
    let dir = Dir::new();
    let mut entries = numbered(20_000, 100);
    entries[77].kind = Kind::Delete;
    entries[77].value.clear();
    for (i, c) in ALL.into_iter().enumerate() {
        for block_bytes in [4096, 16384] {
            let path = dir.file(&format!("{i}-{block_bytes}"));
            let meta = write(&path, &entries, options(c, block_bytes)).unwrap();
            let parts = open(&path).unwrap();
            assert_eq!(parts.properties.meta, meta);
            assert_eq!((meta.entries, meta.tombstones, meta.min_seq, meta.max_seq), (20_000, 1, 1, 20_000));
            assert_eq!((&meta.smallest, &meta.largest), (&entries[0].key, &entries[19_999].key));
            assert_eq!(parts.properties.keys, 20_000);
            assert_eq!(parts.index.is_regular(), c == Compression::None);
            assert!(scan_all(&parts).unwrap() == entries);
            for e in entries.iter().step_by(1999) {
                assert_eq!(get(&parts, &e.key, SEQ_MAX).unwrap().as_ref(), Some(e));
                assert_eq!(get(&parts, &e.key, e.seq - 1).unwrap(), None);
            }
            assert_eq!(get(&parts, b"\0zzz", SEQ_MAX).unwrap(), None);
        }
    }
}

#[test]
fn ranges_start_and_end_where_they_should() {
    let dir = Dir::new();
    let entries = numbered(9000, 300);
    for c in [Compression::None, Compression::Lz4] {
        let path = dir.file(&format!("{c:?}"));
        write(&path, &entries, options(c, 4096)).unwrap();
        let parts = open(&path).unwrap();
        let k = |i: usize| entries[i].key.clone();
        let after = |i: usize| [k(i), vec![0]].concat();
        let cases = [(k(0), Some(k(9))), (after(12), Some(k(5000))), (after(4000), None), (k(5), Some(k(5)))];
        let extra = (0..400).map(|i| (k(i * 20), Some(after(i * 20 + i))));
        // One scan is sought again and again: what was in flight before must not be taken for what is asked.
        let mut again = TableScan::new(&io(), &parts, None, Purpose(3)).unwrap();
        for (from, to) in cases.into_iter().chain(extra) {
            let mut scan = TableScan::new(&io(), &parts, to.as_deref(), Purpose(3)).unwrap();
            scan.seek(&from).unwrap();
            let want: Vec<&Entry> =
                entries.iter().filter(|e| e.key >= from && to.as_ref().is_none_or(|t| e.key < *t)).collect();
            assert!(collect(&mut scan).unwrap().iter().eq(want.iter().copied()));
            again.seek(&from).unwrap();
            assert_eq!(again.key(), entries.iter().find(|e| e.key >= from).unwrap().key);
            assert_eq!(again.value().len(), 300);
        }
        again.seek(b"\x01").unwrap();
        assert!(!again.valid());
    }
}

#[test]
fn long_keys_and_values_and_versions_over_many_blocks() {
    let dir = Dir::new();
    let mut entries = vec![put(vec![0], 9, vec![])];
    entries.push(put([vec![0], vec![b'a'; 64 << 10]].concat(), 5, b"longest".to_vec()));
    entries.push(put([vec![0], vec![b'b'; 70]].concat(), 5, vec![3; 3 << 20]));
    entries.push(put(b"\0bc".to_vec(), 4, vec![4; 200_000]));
    entries.push(put(b"\0bc".to_vec(), 3, vec![5; 150_000]));
    for seq in (1..2000).rev() {
        entries.push(put(b"\0many".to_vec(), seq * 10, vec![6; 20]));
    }
    for seq in (1..20).rev() {
        entries.push(put(b"\0z".to_vec(), seq * 10, vec![7; 1800]));
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
    for c in ALL {
        let path = dir.file(&format!("{c:?}"));
        write(&path, &entries, options(c, 4096)).unwrap();
        let parts = open(&path).unwrap();
        assert!(scan_all(&parts).unwrap() == entries);
        for seq in [0, 5, 9, 10, 25, 9995, 19_989, 19_990, SEQ_MAX] {
            for e in entries
                .iter()
                .filter(|e| e.seq % 10 != 0)
                .chain(&[entries[1000].clone(), put(b"\0z".to_vec(), 0, vec![])])
            {
                let want = entries.iter().find(|w| w.key == e.key && w.seq <= seq);
                assert!(get(&parts, &e.key, seq).unwrap().as_ref() == want, "{c:?} {seq}");
            }
        }
        let mut scan = TableScan::new(&io(), &parts, Some(b"\0many\0"), Purpose(3)).unwrap();
        scan.seek(b"\0many").unwrap();
        assert_eq!(collect(&mut scan).unwrap().len(), 1999);
    }
}

#[test]
fn wrong_calls_are_refused() {
    let dir = Dir::new();
    let o = options(Compression::None, 4096);
    let path = dir.file("a");
    assert!(TableWriter::create(&io(), &path, FILE, o.clone()).unwrap().finish().is_err());
    assert!(TableWriter::create(&io(), &path, FILE, o.clone()).is_err(), "the file exists");
    let mut w = TableWriter::create(&io(), &dir.file("b"), FILE, o).unwrap();
    w.add(b"\0b", 5, Kind::Put, b"").unwrap();
    for (key, seq) in [(&b"\0b"[..], 5), (b"\0b", 6), (b"\0a", 1), (b"", 1), (b"\0c", SEQ_MAX + 1)] {
        assert!(matches!(w.add(key, seq, Kind::Put, b""), Err(Error::Invalid(_))), "{key:?} {seq}");
    }
    w.add(b"\0b", 4, Kind::Put, b"").unwrap();
    assert_eq!(w.finish().unwrap().entries, 2);
}

#[test]
fn the_sync_may_be_awaited_later() {
    let dir = Dir::new();
    let mut finishing = vec![];
    for i in 0..3 {
        let path = dir.file(&format!("{i}"));
        let mut w = TableWriter::create(&io(), &path, FILE, options(Compression::None, 4096)).unwrap();
        for e in numbered(1000, 50) {
            w.add(&e.key, e.seq, e.kind, &e.value).unwrap();
        }
        finishing.push((path, w.finish_start().unwrap()));
    }
    for (path, f) in finishing {
        let entries = f.meta().entries;
        assert_eq!(f.wait().unwrap().entries, entries);
        assert_eq!(scan_all(&open(&path).unwrap()).unwrap().len(), 1000);
    }
}

/// Whatever byte is changed, the answer is an error or the same.
#[test]
fn every_changed_byte_of_a_table_is_noticed_or_does_not_matter() {
    let dir = Dir::new();
    for c in ALL {
        let path = dir.file(&format!("{c:?}"));
        let entries = numbered(40, 40);
        write(&path, &entries, options(c, 4096)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut noticed = 0;
        for i in 0..bytes.len() {
            // Every byte of plain blocks has its own test beside the block builder, and padding is long.
            let plain_data = c == Compression::None && i < 4096;
            if i % 16 != 0 && (plain_data || bytes[i..].iter().take(16).all(|b| *b == 0)) {
                continue;
            }
            file.write_all_at(&[bytes[i] ^ 1 << (i % 8)], i as u64).unwrap();
            let answer = open(&path).and_then(|parts| scan_all(&parts));
            file.write_all_at(&bytes[i..=i], i as u64).unwrap();
            match answer {
                Ok(got) => assert!(got == entries, "byte {i}"),
                Err(Error::Corrupt { .. }) => noticed += 1,
                Err(e) => panic!("byte {i}: {e}"),
            }
        }
        assert!(noticed > 200, "{noticed}");
    }
}

#[test]
fn cut_and_foreign_files_are_refused() {
    let dir = Dir::new();
    let path = dir.file("t");
    write(&path, &numbered(500, 100), options(Compression::None, 4096)).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(TableParts::load(&io(), &path, FILE + 1, Reads::PageCache, Purpose(0)).is_err());
    for len in [0, 1, 100, 4096, 8192, bytes.len() - 4096, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        assert!(matches!(open(&path), Err(Error::Corrupt { .. })), "{len}");
    }
    // Two blocks exchanged: each is whole, but not in its place.
    let mut b = bytes.clone();
    b[..8192].rotate_left(4096);
    std::fs::write(&path, &b).unwrap();
    assert!(matches!(scan_all(&open(&path).unwrap()), Err(Error::Corrupt { offset: Some(0), .. })));
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), any::<u8>()];
    let prefix = prop_oneof![6 => Just(0usize), 2 => Just(60), 1 => Just(3000)];
    let key = (prefix, proptest::collection::vec(byte, 0..5));
    let key = key.prop_map(|(n, t)| [vec![0], vec![b'p'; n], t].concat());
    let seq = prop_oneof![1u64..30, Just(1 << 30), Just(SEQ_MAX)];
    let value = prop_oneof![6 => 0usize..200, 2 => 0usize..4000, 1 => 0usize..140_000];
    let one = (key, seq, 0u8..5, value).prop_map(|(key, seq, kind, n)| Entry {
        key,
        seq,
        kind: [Kind::Put, Kind::Delete, Kind::Put, Kind::Delete, Kind::Merge][usize::from(kind)],
        value: if kind % 2 == 0 { (0..n).map(|i| ((i * i) >> 7) as u8).collect() } else { vec![] },
    });
    proptest::collection::vec(one, 1..300).prop_map(|mut v| {
        v.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
        v.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
        v
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tables_answer_as_the_model_does(entries in any_entries(), c in 0usize..3, big in any::<bool>(), bits in 0u32..12) {
        let dir = Dir::new();
        let path = dir.file("t");
        let o = TableOptions { filter_bits_per_key: bits, ..options(ALL[c], if big { 16384 } else { 4096 }) };
        write(&path, &entries, o).unwrap();
        let parts = open(&path).unwrap();
        prop_assert!(scan_all(&parts).unwrap() == entries);
        for e in entries.iter().step_by(entries.len() / 20 + 1) {
            prop_assert!(parts.filter.may_contain(key::hash(&e.key)));
            for seq in [e.seq, e.seq - 1, SEQ_MAX] {
                let want = entries.iter().find(|w| w.key == e.key && w.seq <= seq);
                prop_assert!(get(&parts, &e.key, seq).unwrap().as_ref() == want);
            }
            let mut scan = TableScan::new(&io(), &parts, None, Purpose(3)).unwrap();
            let from = [&e.key[..], &[0]].concat();
            scan.seek(&from).unwrap();
            let at = entries.partition_point(|w| w.key < from);
            prop_assert!(collect(&mut scan).unwrap() == entries[at..]);
        }
    }

    /// A table's file overwritten at random places never panics and never gives a wrong answer.
    #[test]
    fn damaged_tables_are_noticed(hits in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..20), c in 0usize..3) {
        let dir = Dir::new();
        let path = dir.file("t");
        let entries = numbered(300, 60);
        write(&path, &entries, options(ALL[c], 4096)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, v) in hits {
            let at = at as usize % bytes.len();
            bytes[at] = v;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(got) = open(&path).and_then(|parts| scan_all(&parts)) {
            prop_assert!(got == entries);
        }
    }
}

/// A scan that leaves large values where they are yields the same, whichever of them are asked for, and meets damage in
/// all of them.
#[test]
fn lazy_scans_are_the_same_and_check_what_they_pass_over() {
    let dir = Dir::new();
    let path = dir.file("t");
    let mut all = numbered(40, 100);
    for (i, len) in [(3, 3 << 20), (4, 5 << 20), (17, (1 << 20) + 5000), (39, 2 << 20)] {
        all[i].value = (0..len).map(|b| (b % 251) as u8).collect();
    }
    write(&path, &all, options(Compression::None, 4096)).unwrap();
    let parts = open(&path).unwrap();
    let choices: [fn(usize) -> bool; 3] = [|_| true, |_| false, |i| i % 2 == 0];
    for ahead in [Ahead::MOST, Ahead::of_bytes(0)] {
        for wanted in choices {
            let mut scan = TableScan::lazy(&io(), &parts, None, ahead, Purpose(3)).unwrap();
            scan.seek_to_first().unwrap();
            for (i, e) in all.iter().enumerate() {
                assert!(scan.valid() && scan.key() == e.key && (scan.seq(), scan.kind()) == (e.seq, e.kind));
                if wanted(i) {
                    scan.load_value().unwrap();
                    assert!(scan.value() == e.value, "value {i}");
                }
                scan.next().unwrap();
            }
            assert!(!scan.valid());
        }
        for (from, to) in [(3, 18), (4, 5), (5, 40), (17, 39)] {
            let (start, end) = (all[from].key.clone(), all.get(to).map(|e| e.key.clone()));
            let mut scan = TableScan::lazy(&io(), &parts, end.as_deref(), ahead, Purpose(3)).unwrap();
            scan.seek(&start).unwrap();
            for e in &all[from..to] {
                scan.load_value().unwrap();
                assert!(scan.key() == e.key && scan.value() == e.value);
                scan.next().unwrap();
            }
            assert!(!scan.valid());
        }
    }
    // Every byte counts, of the front, of the key, of the value, of the padding; wanted or not.
    let whole = std::fs::read(&path).unwrap();
    let block = parts.index.find_block(&all[4].key).unwrap();
    let pos = parts.index.block_pos(block);
    for at in [0, 5, 6, 9, 17, 25, 30, 40, 60, 200_000, 4 << 20, pos.stored_len as usize - 1] {
        let mut bytes = whole.clone();
        bytes[pos.offset as usize + at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let parts = open(&path).unwrap();
        for load in [false, true] {
            let mut scan = TableScan::lazy(&io(), &parts, None, Ahead::MOST, Purpose(3)).unwrap();
            let mut go = || {
                scan.seek_to_first()?;
                while scan.valid() {
                    if load {
                        scan.load_value()?;
                    }
                    scan.next()?;
                }
                Ok(())
            };
            let r: Result<()> = go();
            assert!(matches!(r, Err(Error::Corrupt { .. })), "byte {at}, load {load}: {r:?}");
        }
    }
}

#[test]
fn hashes_of_many_keys_take_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let keys = 300_000u64;
    for most_keys in [Some(keys), None] {
        let path = dir.path().join(format!("{most_keys:?}"));
        let most_hashes = 20_000;
        let o = TableOptions {
            most_keys,
            most_hashes,
            expected_bytes: keys * 16,
            buffer_bytes: 0,
            ..options(Compression::None, 4096)
        };
        let mut w = TableWriter::create(&io(), &path, FILE, o).unwrap();
        let mut most = 0;
        for k in 0..keys {
            w.add(&k.to_be_bytes(), k, Kind::Put, b"").unwrap();
            most = most.max(w.memory());
        }
        w.finish().unwrap();
        let parts = open(&path).unwrap();
        let index = 2 * parts.index.bytes();
        // The filter itself takes 10 bits a key; up to twice as many until it is known how many keys there are.
        let bound = index + (most_hashes as u64 + 8192) * 8 + keys * 20 / 8 + (64 << 10);
        assert!(most <= bound, "{most} bytes, {bound} would do: {most_keys:?}");
        assert!(parts.filter.bytes() <= keys * 20 / 8, "{} bytes of filter", parts.filter.bytes());
        let hash = |k: u64| crate::key::hash(&k.to_be_bytes());
        assert!((0..keys).all(|k| parts.filter.may_contain(hash(k))));
        let passed = (keys..2 * keys).filter(|&k| parts.filter.may_contain(hash(k))).count() as u64;
        assert!(passed < keys / 50, "{passed} absent keys of {keys} pass");
    }
}
