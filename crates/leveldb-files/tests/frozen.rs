//! A small store that LevelDB 1.23 made (testdata/leveldb), whole and changed in every way.

mod support;

use std::collections::BTreeMap;

use leveldb_files::{Error, Store};
use support::{Pairs, Random, all, files, frozen};

type Files = BTreeMap<String, Vec<u8>>;

fn file(files: &Files, end: &str) -> String {
    files.keys().find(|n| n.contains(end)).expect("the file").clone()
}

/// Reads a store in memory: its pairs, and whether something was left out at an end.
fn read(files: &Files, checksums: bool) -> leveldb_files::Result<(Pairs, bool)> {
    let store = Store::in_memory(files.clone(), checksums)?;
    let torn = !store.torn_tails().is_empty();
    Ok((all(store)?, torn))
}

#[test]
fn the_frozen_store_is_read() {
    let (dir, expected) = frozen();
    assert!(expected.len() > 40 && dir.join("LOCK").exists());
    let store = Store::open(&dir).expect("the frozen store");
    let total = store.bytes();
    let mut pairs = store.into_pairs().expect("its pairs");
    let mut n = 0;
    while let Some((key, value)) = pairs.next_pair().expect("a pair") {
        assert!((key, value) == (&*expected[n].0, &*expected[n].1), "pair {n}");
        n += 1;
    }
    assert_eq!((n, pairs.bytes_read()), (expected.len(), total));
    assert!(pairs.next_pair().expect("the end").is_none());
    // Until LevelDB 1.13 tables were called so.
    let mut old = files(&dir);
    let table = file(&old, ".ldb");
    let bytes = old.remove(&table).expect("a table");
    old.insert(table.replace(".ldb", ".sst"), bytes);
    assert!(read(&old, true).is_ok_and(|(got, torn)| got == expected && !torn));
}

#[test]
fn every_changed_byte_is_noticed_or_means_nothing() {
    let (dir, expected) = frozen();
    let whole = files(&dir);
    let (mut errors, mut same, mut torn_tails) = (0, 0, 0);
    for name in whole.keys().filter(|n| !n.starts_with("LO")) {
        for at in 0..whole[name].len() {
            for flip in [1, 0x80, 0xFF] {
                let mut changed = whole.clone();
                changed.get_mut(name).expect("the file")[at] ^= flip;
                match read(&changed, true) {
                    Err(_) => errors += 1,
                    Ok((got, false)) => {
                        assert!(got == expected, "{name}, byte {at}: {} pairs", got.len());
                        same += 1;
                    }
                    // A length that is too large looks as a record that was not finished.
                    Ok((_, true)) => {
                        assert!(!name.ends_with(".ldb"), "{name}, byte {at}");
                        torn_tails += 1;
                    }
                }
            }
        }
    }
    // What LevelDB would read of a table and this does not: its filter, and the padding of its footer.
    assert!(
        errors > 10 * same && same > 0 && torn_tails > 0,
        "{errors} errors, {same} the same, {torn_tails} torn"
    );
}

#[test]
fn files_that_are_cut_off_are_noticed() {
    let (dir, expected) = frozen();
    let whole = files(&dir);
    for name in whole.keys().filter(|n| !n.starts_with("LO")) {
        for len in (0..whole[name].len()).step_by(if name.ends_with(".log") { 61 } else { 1 }) {
            let mut cut = whole.clone();
            cut.get_mut(name).expect("the file").truncate(len);
            match read(&cut, true) {
                Err(e) => assert!(matches!(e, Error::Damaged { .. } | Error::NoStore { .. }), "{e}"),
                // At the end of a record nothing tells.
                Ok((got, torn)) => {
                    assert!(torn || got.len() < expected.len(), "{name}: {len} bytes");
                    assert!(name.ends_with(".log") || name.starts_with("MANIFEST"), "{name}: {len} bytes");
                }
            }
        }
    }
}

#[test]
fn missing_files_are_named() {
    let (dir, _) = frozen();
    let whole = files(&dir);
    for (end, words) in [
        ("CURRENT", "no file CURRENT"),
        ("MANIFEST", "which CURRENT names, is missing"),
        (".ldb", "this table, which the manifest names, is missing"),
        (".log", "is missing: writes may have been in it"),
    ] {
        let mut left = whole.clone();
        left.retain(|n, _| !n.contains(end));
        let e = read(&left, true).expect_err(end).to_string();
        assert!(e.contains(words), "{end}: {e}");
    }
    let none = Store::open(dir.join("no")).expect_err("nothing there").to_string();
    assert!(none.contains("no such directory"), "{none}");
    let empty = tempfile::tempdir().expect("a directory");
    let e = Store::open(empty.path()).expect_err("nothing in it").to_string();
    assert!(e.contains(&format!("in {}: it has no file CURRENT", empty.path().display())), "{e}");
    let file = Store::open(dir.join("CURRENT")).expect_err("a file").to_string();
    assert!(file.contains("it is a file"), "{file}");
}

#[test]
fn another_order_or_another_kind_of_store_is_refused() {
    let (dir, _) = frozen();
    let whole = files(&dir);
    let name = file(&whole, "MANIFEST");
    let change = |at: usize, to: &[u8]| {
        let mut changed = whole.clone();
        changed.get_mut(&name).expect("the manifest")[at..at + to.len()].copy_from_slice(to);
        read(&changed, false).expect_err("refused")
    };
    // Behind the header of the piece, the field and the length.
    let e = change(9, b"leveldb.Another");
    assert!(
        matches!(e, Error::Unsupported { .. }) && e.to_string().contains("'leveldb.AnothereComparator'"),
        "{e}"
    );
    assert!(e.to_string().contains("ringdb load"), "{e}");
    let e = change(7, &[100]).to_string();
    assert!(e.contains("field 100") && e.contains("--from rocksdb"), "{e}");
    let e = change(0, b"ringdb").to_string();
    assert!(e.contains("ringdb's own"), "{e}");
    let table = &whole[&file(&whole, ".ldb")];
    // How a block is compressed: one of the bytes that are 1.
    let e = (0..table.len()).filter(|at| table[*at] == 1).find_map(|at| {
        let mut other = whole.clone();
        other.get_mut(&file(&whole, ".ldb")).expect("a table")[at] = 2;
        read(&other, false).err().map(|e| e.to_string()).filter(|e| e.contains("compressed in way 2"))
    });
    assert!(e.is_some());
}

#[test]
fn random_changes_without_checksums_end_well() {
    let (dir, _) = frozen();
    let whole = files(&dir);
    let names: Vec<&String> = whole.keys().filter(|n| !n.starts_with("LO")).collect();
    let mut random = Random(7);
    let mut ok = 0;
    for _ in 0..20_000 {
        let mut changed = whole.clone();
        for _ in 0..=random.below(3) {
            let bytes = changed.get_mut(names[random.below(names.len() as u64) as usize]).expect("a file");
            if bytes.is_empty() {
                continue;
            }
            // The ends of files, where footer and index are, as often as the rest.
            let back = if random.below(2) == 0 { 200.min(bytes.len()) } else { bytes.len() };
            let at = bytes.len() - 1 - random.below(back as u64) as usize;
            match random.below(6) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5) as usize],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, random.next() as u8),
                4 => drop(bytes.remove(at)),
                _ => {
                    let to = bytes.len().min(at + 8);
                    bytes[at..to].fill(0xFF);
                }
            }
        }
        ok += usize::from(read(&changed, false).is_ok());
    }
    assert!((1..20_000).contains(&ok), "{ok} of 20,000 read");
}
