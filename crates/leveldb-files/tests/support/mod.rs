//! Stores for the tests, made by LevelDB itself.
#![allow(dead_code)] // each test file uses a part

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The program that does with LevelDB what its input says; `None`, said with the reason, without LevelDB.
pub fn maker(dir: &Path) -> Option<PathBuf> {
    let (source, program) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/make.c"), dir.join("make"));
    if !Path::new("/usr/include/leveldb/c.h").exists() {
        eprintln!(
            "SKIPPED: there is no LevelDB here to compare with; it comes with the package libleveldb-dev"
        );
        return None;
    }
    let cc = Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&program).arg("-lleveldb").output();
    match cc {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(e) => {
            eprintln!("SKIPPED: no C compiler: {e}");
            return None;
        }
    }
    Some(program)
}

/// How LevelDB is to write.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub compression: u32,
    pub write_buffer: u32,
    pub block: u32,
    pub max_file: u32,
    pub filter_bits: u32,
}

/// What LevelDB is told, and what is in the store afterwards.
#[derive(Default)]
pub struct Script {
    pub bytes: Vec<u8>,
    pub pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Script {
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.push(b'P');
        self.bytes.extend((key.len() as u32).to_le_bytes());
        self.bytes.extend((value.len() as u32).to_le_bytes());
        self.bytes.extend(key);
        self.bytes.extend(value);
        self.pairs.insert(key.into(), value.into());
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.bytes.push(b'D');
        self.bytes.extend((key.len() as u32).to_le_bytes());
        self.bytes.extend(key);
        self.pairs.remove(key);
    }

    /// `C`: compact; `R`: open again; `S`: say that it is open, and wait.
    pub fn call(&mut self, what: u8) {
        self.bytes.push(what);
    }

    /// Starts LevelDB on `dir`.
    pub fn start(&self, program: &Path, dir: &Path, s: Settings) -> Child {
        let numbers =
            [s.compression, s.write_buffer, s.block, s.max_file, s.filter_bits].map(|n| n.to_string());
        let mut command = Command::new(program);
        command.arg(dir).args(numbers).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let written = child.stdin.take().expect("its input").write_all(&self.bytes);
        written.expect("it takes its input");
        child
    }

    /// Lets LevelDB do it, in `dir`.
    pub fn run(&self, program: &Path, dir: &Path, s: Settings) {
        let status = self.start(program, dir, s).wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    pub fn expected(&self) -> Pairs {
        self.pairs.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// All pairs of an open store.
pub fn all(store: leveldb_files::Store) -> leveldb_files::Result<Pairs> {
    let mut pairs = store.into_pairs()?;
    let mut all = Pairs::new();
    while let Some((key, value)) = pairs.next_pair()? {
        all.push((key.into(), value.into()));
    }
    Ok(all)
}

/// The files of a directory.
pub fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("the directory");
    let paths = entries.map(|e| e.expect("an entry").path());
    let name = |p: &Path| p.file_name().and_then(|n| n.to_str()).expect("a name").to_string();
    paths.map(|p| (name(&p), std::fs::read(&p).expect("a file"))).collect()
}

/// The frozen store, and its pairs.
pub fn frozen() -> (PathBuf, Pairs) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/leveldb");
    let text = std::fs::read_to_string(dir.join("pairs.tsv")).expect("pairs.tsv");
    let field = |hex: &str| -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        (0..hex.len()).step_by(2).map(digits).collect()
    };
    let pair = |line: &str| line.split_once('\t').map(|(k, v)| (field(k), field(v))).expect("a pair");
    (dir.join("store"), text.lines().map(pair).collect())
}

/// A small generator of numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Bytes that compress by about a half.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|i| if i % 64 < 32 { b'x' } else { self.next() as u8 }).collect()
    }
}
