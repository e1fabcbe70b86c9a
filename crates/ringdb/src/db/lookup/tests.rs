use engineswap::Io;

use super::*;
use crate::cache::Cache;
use crate::coding::crc32c;
use crate::db::testing::{Fixture, Plan, table_options, version};
use crate::db::view::Views;
use crate::key::SEQ_MAX;
use crate::memtable::Memtable;
use crate::options::Compression;
use crate::table::block::checksum_seed;
use crate::table::reads::Reads;
use crate::table::writer::TableWriter;

/// A version: keyspace, key, sequence number, value or tombstone.
type Entry<'a> = (u32, &'a str, Seq, Option<&'a str>);

/// Tables and a memtable with just these versions.
struct Tree {
    dir: tempfile::TempDir,
    cache: Arc<Cache>,
    views: Views,
}

impl Tree {
    /// `tables`: the level of each and its versions, in order. The first has file number 1.
    fn new(filter_bits: u32, memtable: &[Entry<'_>], tables: &[(usize, &[Entry<'_>])]) -> Tree {
        let (dir, io) = (tempfile::tempdir().unwrap(), Io::from_uri("auto").unwrap());
        let cache = Cache::new(4 << 20, 4096);
        let mut levels = vec![Vec::new(); 7];
        for (file_id, (level, entries)) in (1..).zip(tables) {
            let path = dir.path().join(format!("{file_id:06}.sst"));
            let options = table_options(Compression::None, filter_bits);
            let mut writer = TableWriter::create(&io, &path, file_id, options).unwrap();
            for (keyspace, key, seq, value) in *entries {
                let key = KeyBuf::new(&Prefix::new(*keyspace), key.as_bytes());
                writer.add(key.as_slice(), *seq, kind(value), value.unwrap_or("").as_bytes()).unwrap();
            }
            let meta = writer.finish().unwrap();
            levels[*level].push(Table::open(&io, &cache, &path, meta, Reads::PageCache).unwrap());
        }
        let (active, mut writer) = Memtable::new(1 << 20);
        for (keyspace, key, seq, value) in memtable {
            let key = KeyBuf::new(&Prefix::new(*keyspace), key.as_bytes());
            let (key, value) = (key.as_slice(), (kind(value), value.unwrap_or("").as_bytes()));
            writer.insert(key, key::hash(key), *seq, value.0, value.1);
        }
        let view = View::new(active, Vec::new(), version(&levels));
        Tree { views: Views::new(cache.collector(), view, SEQ_MAX), dir, cache }
    }

    /// Drives a lookup by hand: the file and the number of each block that it needs, and the answer.
    fn walk(&self, keyspace: u32, key: &str, seq: Seq) -> (Vec<(u64, u32)>, Result<Option<Value>>) {
        let view = self.views.newest();
        let mut needed = Vec::new();
        let answer =
            drive(&self.views, &view, &Prefix::new(keyspace), key.as_bytes(), seq, |table, number| {
                needed.push((table.meta().file_id, number));
                table.read_block(number, false, purpose::USER_READ)
            });
        (needed, answer)
    }

    /// Puts all blocks of a file into the cache.
    fn load(&self, file_id: u64) {
        let view = self.views.newest();
        let table = view.tables().tables().iter().find(|t| t.meta().file_id == file_id).unwrap();
        for number in 0..table.index().blocks() {
            let block = table.read_block(number, true, purpose::USER_READ).unwrap();
            table.keep(number, block);
            assert!(table.is_cached(number));
        }
    }
}

fn kind(value: &Option<&str>) -> Kind {
    if value.is_some() { Kind::Put } else { Kind::Delete }
}

fn drive(
    views: &Views,
    view: &View,
    prefix: &Prefix,
    key: &[u8],
    seq: Seq,
    mut read: impl FnMut(&Table, u32) -> Result<Block>,
) -> Result<Option<Value>> {
    let mut lookup = Lookup::new(view, prefix, key, seq);
    loop {
        // A guard for each step: none is held while it waits.
        if let Step::Done(answer) = lookup.step(view, &views.pin())? {
            return Ok(answer);
        }
        let (table, number) = lookup.needed(view);
        if let Some(answer) = lookup.give(view, &read(table, number)?)? {
            return Ok(answer);
        }
    }
}

fn value(v: &str) -> Option<Value> {
    Some(Value::copy_from(v.as_bytes()))
}

/// Three tables whose ranges hold "k", the key itself in the oldest. No filters.
fn k_in_the_oldest() -> Tree {
    Tree::new(
        0,
        &[],
        &[
            (6, &[(0, "a", 1, Some("a")), (0, "k", 2, Some("old")), (0, "z", 3, Some("z"))]),
            (1, &[(0, "b", 4, Some("b")), (0, "y", 5, Some("y"))]),
            (0, &[(0, "c", 6, Some("c")), (0, "x", 7, Some("x"))]),
        ],
    )
}

#[test]
fn goes_on_in_the_table_behind_the_block_that_was_given() {
    let t = k_in_the_oldest();
    let (needed, answer) = t.walk(0, "k", 9);
    assert_eq!((needed, answer.unwrap()), (vec![(3, 0), (2, 0), (1, 0)], value("old")));
    // What is cached is not asked for.
    t.load(2);
    let (needed, answer) = t.walk(0, "k", 9);
    assert_eq!((needed, answer.unwrap()), (vec![(3, 0), (1, 0)], value("old")));
    // The ranges leave out tables too.
    assert_eq!(t.walk(0, "a", 9).0, [(1, 0)]);
    assert_eq!(t.walk(0, "zz", 9).0, []);
    t.load(1);
    t.load(3);
    let (needed, answer) = t.walk(0, "k", 9);
    assert_eq!((needed, answer.unwrap()), (vec![], value("old")));
    assert_eq!(t.walk(0, "kk", 9).1.unwrap(), None);
}

#[test]
fn names_the_place_of_the_block_in_its_file() {
    let t = k_in_the_oldest();
    let view = t.views.newest();
    let mut lookup = Lookup::new(&view, &Prefix::new(0), b"k", 9);
    assert!(matches!(lookup.step(&view, &t.views.pin()), Ok(Step::Needs)));
    let (table, number) = lookup.needed(&view);
    let pos = table.index().block_pos(number);
    let file = std::fs::read(table.path()).unwrap();
    let bytes = &file[pos.offset as usize..][..pos.stored_len as usize];
    BlockView::validate(bytes, table.meta().file_id, number).unwrap();
    // To ask again changes nothing.
    assert!(matches!(lookup.step(&view, &t.views.pin()), Ok(Step::Needs)));
    assert_eq!(lookup.needed(&view).0.path(), table.path());
}

#[test]
fn a_tombstone_is_an_answer_and_what_is_too_new_is_none() {
    let t = Tree::new(
        0,
        &[(0, "k", 9, Some("mem"))],
        &[(6, &[(0, "k", 2, Some("old"))]), (0, &[(0, "k", 6, None), (0, "k", 4, Some("mid"))])],
    );
    for (seq, needed, answer) in [
        (9, vec![], value("mem")),
        (8, vec![(2, 0)], None),
        (6, vec![(2, 0)], None),
        (5, vec![(2, 0)], value("mid")),
        (3, vec![(2, 0), (1, 0)], value("old")),
        (1, vec![(2, 0), (1, 0)], None),
    ] {
        let (n, a) = t.walk(0, "k", seq);
        assert_eq!((n, a.unwrap()), (needed, answer), "at {seq}");
    }
    let t = Tree::new(0, &[(0, "k", 9, None)], &[(6, &[(0, "k", 2, Some("old"))])]);
    assert_eq!(t.walk(0, "k", 9).1.unwrap(), None);
    assert_eq!(t.walk(0, "k", 8).1.unwrap(), value("old"));
}

#[test]
fn versions_of_a_key_may_go_on_in_the_next_blocks() {
    let long = "v".repeat(300);
    let versions: Vec<Entry<'_>> = (1..=60).rev().map(|seq| (0, "k", seq, Some(long.as_str()))).collect();
    let t = Tree::new(10, &[], &[(1, &versions)]);
    let (newest, _) = t.walk(0, "k", 60);
    let (oldest, answer) = t.walk(0, "k", 1);
    assert_eq!(newest, [(1, 0)]);
    assert!(oldest.len() > 3 && oldest.is_sorted() && answer.unwrap() == value(&long), "{oldest:?}");
    let (all, answer) = t.walk(0, "k", 0);
    assert_eq!((all, answer.unwrap()), (oldest, None));
}

#[test]
fn keyspaces_are_apart() {
    let entries = [
        (0, "k", 1, Some("zero")),
        (1, "k", 2, Some("one")),
        (239, "k", 3, None),
        (300, "k", 4, Some("wide")),
    ];
    for t in [Tree::new(0, &[], &[(2, &entries)]), Tree::new(10, &entries, &[])] {
        for (keyspace, answer) in
            [(0, value("zero")), (1, value("one")), (2, None), (239, None), (300, value("wide")), (301, None)]
        {
            assert_eq!(t.walk(keyspace, "k", 9).1.unwrap(), answer, "keyspace {keyspace}");
        }
    }
}

#[test]
fn filters_spare_the_blocks() {
    let keys = ["b", "d", "f", "h"].map(|k| (0, k, 1, Some("v")));
    let t = Tree::new(16, &[], &[(6, &keys), (3, &keys), (0, &keys), (0, &keys)]);
    for key in ["c", "e", "g"] {
        assert_eq!((t.walk(0, key, 9).0.len(), t.walk(0, key, 9).1.unwrap()), (0, None));
    }
    assert_eq!(t.cache.stats().filter_negatives, 3 * 2 * 4);
    let (needed, answer) = t.walk(0, "d", 9);
    assert!(needed.len() == 1 && answer.unwrap() == value("v"));
}

#[test]
fn a_damaged_block_is_an_error_and_not_an_absence() {
    let t = k_in_the_oldest();
    let path = t.dir.path().join("000002.sst");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let (needed, answer) = t.walk(0, "k", 9);
    assert_eq!(needed, [(3, 0), (2, 0)]);
    assert!(matches!(&answer, Err(Error::Corrupt { path: at, .. }) if *at == path), "{answer:?}");
    // By the way of a get, too; what newer tables answer is served.
    let mut lookup = Lookup::new(&t.views.newest(), &Prefix::new(0), b"k", 9);
    let view = t.views.newest();
    assert!(matches!(lookup.step(&view, &t.views.pin()), Ok(Step::Needs)));
    assert!(lookup.finish(&view, true, |_, _| None).is_err());
    assert_eq!(t.walk(0, "c", 9).1.unwrap(), value("c"));
}

#[test]
fn a_read_through_the_page_cache_takes_the_bytes_of_its_block_alone() {
    let f = Fixture::new(Plan { compression: Compression::Lz4, ..Plan::default() });
    let view = f.views.newest();
    let mut compressed = 0;
    for table in view.tables().tables() {
        for number in 0..table.index().blocks() {
            let pos = table.index().block_pos(number);
            let read = || table.io().stats().of(engineswap::OpClass::Read, purpose::USER_READ).bytes;
            let before = read();
            table.read_block(number, false, purpose::USER_READ).unwrap();
            assert_eq!(read() - before, u64::from(pos.stored_len));
            compressed += u32::from(pos.stored_len < pos.block_len);
        }
    }
    assert!(compressed > 10, "{compressed}");
}

/// A block is read again and again, and its structure checked the first time only. Another block in its place, whose
/// checksum is right, is not believed.
#[test]
fn a_block_that_has_changed_is_checked_again() {
    let t = k_in_the_oldest();
    let view = t.views.newest();
    let table = &view.tables().tables()[2];
    let read = || table.read_block(0, true, purpose::USER_READ);
    for _ in 0..3 {
        assert!(read().is_ok());
    }
    let good = std::fs::read(table.path()).unwrap();
    let mut bytes = good.clone();
    let block = &mut bytes[..table.index().block_pos(0).stored_len as usize];
    // No entries.
    block[4..6].fill(0);
    let sum = crc32c(checksum_seed(table.meta().file_id, 0), &block[4..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(table.path(), &bytes).unwrap();
    for _ in 0..2 {
        let why = read().err().expect("a block without entries").to_string();
        assert!(why.contains("no entries"), "{why}");
    }
    std::fs::write(table.path(), &good).unwrap();
    assert!(read().is_ok());
}

#[test]
fn a_table_that_did_not_open_is_an_error_within_its_range() {
    let t = k_in_the_oldest();
    let view = t.views.newest();
    let mut levels = vec![Vec::new(); 7];
    for (level, table) in [(0, 0), (1, 1), (6, 2)] {
        levels[level] = vec![view.tables().tables()[table].clone()];
    }
    let lost = levels[1][0].clone();
    let why = Error::corrupt(lost.path(), None, "gone");
    let io = Io::from_uri("auto").unwrap();
    levels[1][0] = Table::unreadable(&io, &t.cache, lost.path(), lost.meta().clone(), why);
    t.views.publish(View::new(view.active.clone(), Vec::new(), version(&levels)));
    let (needed, answer) = t.walk(0, "k", 9);
    assert!(needed == [(3, 0)] && answer.is_err(), "{needed:?} {answer:?}");
    for (key, answer) in [("c", value("c")), ("a", value("a")), ("z", value("z")), ("ab", None)] {
        assert_eq!(t.walk(0, key, 9).1.unwrap(), answer, "{key}");
    }
}

#[test]
fn looks_ahead_and_stays_where_it_is() {
    let t = k_in_the_oldest();
    let view = t.views.newest();
    let mut lookup = Lookup::new(&view, &Prefix::new(0), b"k", 9);
    assert!(matches!(lookup.step(&view, &t.views.pin()), Ok(Step::Needs)));
    for loaded in [vec![3, 2, 1], vec![3, 1], vec![3]] {
        let mut all = Vec::new();
        lookup.look_ahead(&view, &t.views.pin(), |table, _| all.push(table.meta().file_id));
        assert_eq!(all, loaded);
        assert_eq!(lookup.needed(&view).0.meta().file_id, 3);
        // With the oldest cached too, the value is known to end the walk there.
        t.load(if loaded.len() == 3 { 2 } else { 1 });
    }
    assert_eq!(lookup.finish(&view, false, |_, _| None).unwrap(), value("old"));
}

#[test]
fn another_thread_may_resume_it() {
    fn is_parkable<T: Send + 'static>(t: T) -> T {
        t
    }
    let t = k_in_the_oldest();
    let parked: Vec<Parked> = ["k", "a", "kk"]
        .into_iter()
        .map(|key| {
            let guard = t.views.pin();
            let view = t.views.load(&guard);
            let mut lookup = Lookup::new(view, &Prefix::new(0), key.as_bytes(), 9);
            assert!(matches!(lookup.step(view, &guard), Ok(Step::Needs)));
            is_parkable(Parked::new(view, lookup))
        })
        .collect();
    // The view that they keep is no longer the newest.
    let view = t.views.newest();
    t.views.publish(View::new(view.active.clone(), Vec::new(), version(&[])));
    drop(view);
    let answers =
        std::thread::spawn(|| parked.into_iter().map(|p| p.finish(true).unwrap()).collect::<Vec<_>>());
    assert_eq!(answers.join().unwrap(), [value("old"), value("a"), None]);
    assert_eq!(t.walk(0, "k", 9).1.unwrap(), None);
}

#[test]
#[should_panic(expected = "an answered lookup goes on")]
fn an_answered_lookup_is_not_asked_again() {
    let t = Tree::new(10, &[(0, "k", 1, Some("v"))], &[]);
    let view = t.views.newest();
    let mut lookup = Lookup::new(&view, &Prefix::new(0), b"k", 9);
    assert!(matches!(lookup.step(&view, &t.views.pin()), Ok(Step::Done(Some(_)))));
    let _ = lookup.step(&view, &t.views.pin());
}

#[test]
fn answers_as_the_model_does_whatever_is_cached() {
    for (seed, filter_bits, compression) in [(1, 10, Compression::None), (2, 0, Compression::Lz4)] {
        let mut f = Fixture::new(Plan { seed, filter_bits, compression, level0: 20, ..Plan::default() });
        let view = f.views.newest();
        for i in 0..4000 {
            let (key, seq) = (f.some_key(), f.some_seq());
            let got = drive(&f.views, &view, &f.prefix, &key, seq, |table, number| {
                let block = table.read_block(number, true, purpose::USER_READ)?;
                // Some of what is read is found in the cache the next time.
                Ok(if i % 3 == 0 { table.keep(number, block) } else { block })
            });
            assert_eq!(got.unwrap().as_deref(), f.expect(&key, seq), "{} at {seq}", key.escape_ascii());
        }
    }
}
