//! Stores that LevelDB itself made (Debian: libleveldb-dev), read back.

mod support;

use std::io::Read;
use std::path::Path;

use leveldb_files::{Error, Store};
use support::{Random, Script, Settings, all, files, maker};

/// A history with overwritten and deleted keys, values of many sizes, compactions, and writes that are only in the log.
fn history(seed: u64, steps: u64) -> Script {
    let (mut script, mut random) = (Script::default(), Random(seed));
    let key = |r: &mut Random| match r.below(20) {
        0 => vec![0xFF; r.below(5) as usize],
        1 => r.below(50).to_be_bytes().to_vec(),
        2 => [b"long".as_slice(), &vec![b'k'; r.below(3000) as usize]].concat(),
        _ => format!("key{:05}", r.below(4000)).into_bytes(),
    };
    script.put(b"", b"the empty key");
    for step in 0..steps {
        let key = key(&mut random);
        match random.below(100) {
            0..20 => script.delete(&key),
            20 if step % 7 == 0 => script.call(b'R'),
            21 if step % 11 == 0 => script.call(b'C'),
            22 => {
                let n = random.below(100_000) as usize;
                script.put(&key, &random.bytes(n));
            }
            23..30 => script.put(&key, b""),
            _ => {
                let n = random.below(300) as usize;
                script.put(&key, &random.bytes(n));
            }
        }
    }
    script
}

#[test]
fn what_leveldb_wrote_is_what_is_read() {
    let tmp = tempfile::tempdir().expect("a directory");
    let Some(program) = maker(tmp.path()) else { return };
    let usual =
        Settings { compression: 1, write_buffer: 4 << 20, block: 4096, max_file: 2 << 20, filter_bits: 0 };
    let small =
        Settings { compression: 0, write_buffer: 64 << 10, block: 1024, max_file: 1 << 20, filter_bits: 10 };
    let mut levels = 0;
    for (i, settings) in [usual, small, Settings { compression: 1, ..small }].into_iter().enumerate() {
        for (j, steps) in [0, 1, 300, 20_000].into_iter().enumerate() {
            let dir = tmp.path().join(format!("store-{i}-{j}"));
            let script = history((i * 10 + j) as u64, steps);
            script.run(&program, &dir, settings);
            let before = files(&dir);
            let store = Store::open(&dir).unwrap_or_else(|e| panic!("{settings:?}, {steps} steps: {e}"));
            assert_eq!(store.torn_tails(), []);
            let got = all(store).unwrap_or_else(|e| panic!("{settings:?}, {steps} steps: {e}"));
            assert!(got == script.expected(), "{settings:?}, {steps} steps: {} pairs", got.len());
            assert!(files(&dir) == before, "the store has changed");
            levels = levels.max(before.keys().filter(|n| n.ends_with(".ldb")).count());
        }
    }
    assert!(levels > 5, "at most {levels} tables");
}

#[test]
fn a_log_that_is_cut_off_ends_there() {
    let tmp = tempfile::tempdir().expect("a directory");
    let Some(program) = maker(tmp.path()) else { return };
    let settings =
        Settings { compression: 1, write_buffer: 4 << 20, block: 4096, max_file: 2 << 20, filter_bits: 0 };
    let mut script = Script::default();
    let mut random = Random(3);
    for i in 0..200_u32 {
        // Over the ends of blocks, and sometimes over several blocks.
        let n = if i % 50 == 7 { 90_000 } else { 700 };
        script.put(&i.to_be_bytes(), &random.bytes(n));
    }
    let dir = tmp.path().join("store");
    script.run(&program, &dir, settings);
    let (whole, expected) = (files(&dir), script.expected());
    let log = whole.keys().find(|n| n.ends_with(".log")).expect("a log").clone();
    let len = whole[&log].len();
    let mut lengths: Vec<usize> = (0..len).step_by(997).chain(len - 40..=len).collect();
    lengths.extend((1..len >> 15).flat_map(|b| (b << 15) - 8..(b << 15) + 8));
    for cut in lengths {
        let mut files = whole.clone();
        files.get_mut(&log).expect("the log").truncate(cut);
        let store = Store::in_memory(files, true).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
        let torn: u64 = store.torn_tails().iter().map(|t| t.bytes).sum();
        let got = all(store).expect("all pairs");
        assert!(expected.starts_with(&got), "cut at {cut}");
        assert!(got.len() == 200 || cut < len, "{} pairs of the whole log", got.len());
        let behind =
            |got: usize| expected[..got].iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() as u64;
        assert!(behind(got.len()) + torn <= cut as u64, "cut at {cut}: {torn} bytes left out");
    }
}

#[test]
fn a_store_that_is_in_use_is_refused() {
    let tmp = tempfile::tempdir().expect("a directory");
    let Some(program) = maker(tmp.path()) else { return };
    let settings =
        Settings { compression: 1, write_buffer: 4 << 20, block: 4096, max_file: 2 << 20, filter_bits: 0 };
    let dir = tmp.path().join("store");
    let mut script = Script::default();
    script.put(b"key", b"value");
    script.call(b'S');
    let mut child = script.start(&program, &dir, settings);
    let mut said = [0; 5];
    child.stdout.as_mut().expect("its output").read_exact(&mut said).expect("it says that it is open");
    let refused = Store::open(&dir);
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert!(matches!(&refused, Err(Error::InUse(d)) if *d == dir), "{refused:?}");
    // And LevelDB is refused as long as this has it.
    let store = Store::open(&dir).expect("nobody has it now");
    assert!(!Script::default().start(&program, &dir, settings).wait().expect("it ends").success());
    assert_eq!(all(store).expect("all pairs"), [(b"key".to_vec(), b"value".to_vec())]);
    Script::default().run(&program, &dir, settings);
}

/// `LEVELDB_FREEZE=1 cargo test -p leveldb-files --test real freeze` makes testdata/leveldb anew.
#[test]
fn freeze() {
    if std::env::var_os("LEVELDB_FREEZE").is_none() {
        return;
    }
    let tmp = tempfile::tempdir().expect("a directory");
    let program = maker(tmp.path()).expect("LevelDB");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/leveldb");
    std::fs::remove_dir_all(&dir).ok();
    std::fs::create_dir_all(&dir).expect("the directory");
    let settings =
        Settings { compression: 1, write_buffer: 64 << 10, block: 1024, max_file: 1 << 20, filter_bits: 10 };
    let (mut script, mut random) = (Script::default(), Random(1));
    let key = |i: u64| format!("key{i:03}").into_bytes();
    for i in 0..60 {
        script.put(&key(i), &random.bytes(20 + i as usize));
    }
    script.call(b'C');
    (0..60).step_by(5).for_each(|i| script.delete(&key(i)));
    (0..60).step_by(7).for_each(|i| script.put(&key(i), b"overwritten"));
    script.call(b'R');
    script.delete(b"key001");
    script.put(b"key002", b"from the log");
    script.put(b"", b"the empty key");
    script.put(b"large", &[b'L'; 33_000]);
    script.run(&program, &dir.join("store"), settings);
    for said in ["LOG", "LOG.old"] {
        std::fs::remove_file(dir.join("store").join(said)).ok();
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let lines: String = script.expected().iter().map(|(k, v)| format!("{}\t{}\n", hex(k), hex(v))).collect();
    std::fs::write(dir.join("pairs.tsv"), lines).expect("pairs.tsv");
}
