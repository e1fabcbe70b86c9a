//! A store of the least kind: memtables are vectors, the manifest is memory, tables are real.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::super::helpers::{Helpers, Parts, Shared};
use super::super::{Change, CompactionEnv, Frozen, Levels};
use crate::cursor::Cursor;
use crate::cursor::model::{Entry, VecCursor};
use crate::files::{self, FileKind};
use crate::key::{self, Kind, Seq};
use crate::ranges::RangeState;
use crate::settings::{SettingsMap, TableSettings};
use crate::sync::{Mutex, lock};
use crate::table::meta::TableMeta;
use crate::table::{Reads, TableParts, TableScan};
use crate::{Error, Options, Result, purpose};

/// Newest first within a key.
pub(super) type Versions = BTreeMap<(Vec<u8>, std::cmp::Reverse<Seq>), (Kind, Vec<u8>)>;

pub(super) struct TestTable {
    io: Io,
    parts: Arc<TableParts>,
    obsolete: AtomicBool,
}

impl AsRef<TableMeta> for TestTable {
    fn as_ref(&self) -> &TableMeta {
        &self.parts.properties.meta
    }
}

impl Drop for TestTable {
    fn drop(&mut self) {
        if self.obsolete.load(SeqCst) {
            self.io.remove_file(&self.parts.path).expect("an obsolete table's file is there");
        }
    }
}

#[derive(Default)]
struct State {
    levels: Levels<TestTable>,
    /// Oldest first.
    immutables: VecDeque<Vec<Entry>>,
    dropped: Vec<u32>,
    snapshots: Vec<Seq>,
    fail_install: VecDeque<Error>,
    stopped: Option<String>,
    /// In place of what the options say.
    settings: Option<Arc<SettingsMap>>,
}

pub(super) struct TestTree {
    /// Tables to be left where they are.
    pub quarantined: Mutex<BTreeSet<u64>>,
    io: Io,
    dir: tempfile::TempDir,
    options: Options,
    state: Mutex<State>,
    visible: AtomicU64,
    next_file: AtomicU64,
}

impl CompactionEnv for TestTree {
    type Table = TestTable;
    type MemCursor = VecCursor;

    fn io(&self) -> &Io {
        &self.io
    }
    fn dir(&self) -> &Path {
        self.dir.path()
    }
    fn options(&self) -> &Options {
        &self.options
    }
    fn table_settings(&self) -> Arc<SettingsMap> {
        lock(&self.state)
            .settings
            .clone()
            .unwrap_or_else(|| Arc::new(SettingsMap::uniform(TableSettings::of_store(&self.options))))
    }
    fn levels(&self) -> Levels<TestTable> {
        lock(&self.state).levels.clone()
    }
    fn immutables(&self) -> Vec<Frozen<VecCursor>> {
        let state = lock(&self.state);
        state
            .immutables
            .iter()
            .map(|m| Frozen {
                cursor: VecCursor::new(m.clone()),
                bytes: 1 << 20,
                entries: m.len() as u64,
                ranges: vec![],
            })
            .collect()
    }
    fn immutable_count(&self) -> usize {
        lock(&self.state).immutables.len()
    }
    fn ranges(&self) -> Arc<RangeState> {
        Arc::default()
    }
    fn views(&self) -> Vec<Seq> {
        let visible = self.visible.load(SeqCst);
        lock(&self.state).snapshots.iter().copied().chain([visible]).collect()
    }
    fn wall_clock(&self) -> u64 {
        0
    }

    fn dropped_keyspaces(&self) -> Vec<u32> {
        lock(&self.state).dropped.clone()
    }
    fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, SeqCst)
    }
    fn table_parts(&self, table: &TestTable) -> Arc<TableParts> {
        Arc::clone(&table.parts)
    }
    fn open_table(&self, meta: TableMeta) -> Result<Arc<TestTable>> {
        let path = FileKind::Table(meta.file_id).path(self.dir.path());
        let parts = TableParts::load(&self.io, &path, meta.file_id, Reads::PageCache, purpose::TABLE_OPEN)?;
        assert_eq!(parts.properties.meta, meta);
        Ok(Arc::new(TestTable {
            io: self.io.clone(),
            parts: Arc::new(parts),
            obsolete: AtomicBool::new(false),
        }))
    }
    fn install(&self, change: Change<TestTable>) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(e) = state.fail_install.pop_front() {
            return Err(e);
        }
        for (level, t) in &change.removed {
            let tables = &mut state.levels[*level];
            let before = tables.len();
            tables.retain(|x| !Arc::ptr_eq(x, t));
            assert_eq!(tables.len() + 1, before, "a removed table was not there");
            if change.added.iter().all(|(_, a)| !Arc::ptr_eq(a, t)) {
                t.obsolete.store(true, SeqCst);
            }
        }
        for (level, t) in change.added {
            state.levels[level].push(t);
        }
        state.immutables.drain(..change.flushed);
        for (level, tables) in state.levels.iter_mut().enumerate() {
            if level == 0 {
                tables.sort_by_key(|t| std::cmp::Reverse((**t).as_ref().max_seq));
            } else {
                tables.sort_by(|a, b| (**a).as_ref().smallest.cmp(&(**b).as_ref().smallest));
                let disjoint =
                    tables.windows(2).all(|w| (*w[0]).as_ref().largest < (*w[1]).as_ref().smallest);
                assert!(disjoint, "tables of level {level} overlap");
            }
        }
        Ok(())
    }
    fn quarantined(&self) -> BTreeSet<u64> {
        lock(&self.quarantined).clone()
    }
    fn stop_writing(&self, why: &Error) {
        lock(&self.state).stopped.get_or_insert(why.to_string());
    }
}

impl TestTree {
    pub fn new(io: Io) -> Arc<TestTree> {
        let state = State { levels: vec![vec![]; 7], ..State::default() };
        Arc::new(TestTree {
            quarantined: Mutex::default(),
            io,
            dir: tempfile::tempdir().expect("a directory"),
            options: Options::default(),
            state: Mutex::new(state),
            visible: AtomicU64::new(0),
            next_file: AtomicU64::new(1),
        })
    }

    /// Adds an immutable memtable; its writes are published.
    pub fn freeze(&self, entries: Vec<Entry>) -> usize {
        let newest = entries.iter().map(|e| e.seq).max().unwrap_or(0);
        self.visible.fetch_max(newest, SeqCst);
        let mut state = lock(&self.state);
        state.immutables.push_back(entries);
        state.immutables.len()
    }

    pub fn snapshot(&self) -> Seq {
        let seq = self.visible.load(SeqCst);
        lock(&self.state).snapshots.push(seq);
        seq
    }

    pub fn release_oldest_snapshot(&self) {
        let mut state = lock(&self.state);
        if !state.snapshots.is_empty() {
            state.snapshots.remove(0);
        }
    }

    pub fn drop_keyspace(&self, id: u32) {
        lock(&self.state).dropped.push(id);
    }

    pub fn fail_next_install(&self, e: Error) {
        lock(&self.state).fail_install.push_back(e);
    }

    pub fn stopped(&self) -> Option<String> {
        lock(&self.state).stopped.clone()
    }

    /// Every version in memtables and tables, sorted.
    pub fn versions(&self) -> Versions {
        let mut all = BTreeMap::new();
        let state = lock(&self.state);
        for e in state.immutables.iter().flatten() {
            let old = all.insert((e.key.clone(), std::cmp::Reverse(e.seq)), (e.kind, e.value.clone()));
            assert!(old.is_none());
        }
        for t in state.levels.iter().flatten() {
            let mut scan = TableScan::new(&self.io, &t.parts, None, purpose::VERIFY).expect("a scan");
            scan.seek_to_first().expect("a scan");
            while scan.valid() {
                let key = (scan.key().to_vec(), std::cmp::Reverse(scan.seq()));
                assert!(all.insert(key, (scan.kind(), scan.value().to_vec())).is_none(), "a version twice");
                scan.next().expect("a scan");
            }
        }
        all
    }

    /// Whoever looks through the tables newest first, as reads do, finds the newest version of each key first.
    pub fn check_order(&self) {
        let mut oldest: BTreeMap<Vec<u8>, Seq> = BTreeMap::new();
        for t in self.levels().iter().flatten() {
            let mut scan = TableScan::new(&self.io, &t.parts, None, purpose::VERIFY).expect("a scan");
            scan.seek_to_first().expect("a scan");
            while scan.valid() {
                let before = oldest.insert(scan.key().to_vec(), scan.seq());
                assert!(
                    before.is_none_or(|b| b > scan.seq()),
                    "{:?} is hidden by an older version",
                    scan.key()
                );
                scan.next().expect("a scan");
            }
        }
    }

    /// Compares what every view sees with `model`, and the files with the tables.
    pub fn check(&self, model: &[Entry]) {
        let versions = self.versions();
        let dropped = self.dropped_keyspaces();
        for view in self.views() {
            let mut expected: BTreeMap<&[u8], (Seq, &Entry)> = BTreeMap::new();
            for e in model.iter().filter(|e| e.seq <= view) {
                let newest = expected.entry(&e.key).or_insert((e.seq, e));
                if newest.0 < e.seq {
                    *newest = (e.seq, e);
                }
            }
            let expected: BTreeMap<&[u8], &[u8]> = expected
                .into_iter()
                .filter(|(k, (_, e))| {
                    e.kind == Kind::Put && !dropped.contains(&key::split(k).expect("internal").0)
                })
                .map(|(k, (_, e))| (k, e.value.as_slice()))
                .collect();
            let mut found: BTreeMap<&[u8], (Kind, &[u8])> = BTreeMap::new();
            for ((key, seq), (kind, value)) in &versions {
                if seq.0 <= view {
                    found.entry(key).or_insert((*kind, value));
                }
            }
            found.retain(|k, (kind, _)| {
                *kind == Kind::Put && !dropped.contains(&key::split(k).expect("internal").0)
            });
            let found: BTreeMap<&[u8], &[u8]> = found.into_iter().map(|(k, (_, v))| (k, v)).collect();
            assert!(found == expected, "view {view} of {:?} sees something else", self.views());
        }
        self.check_files();
    }

    /// Each table has its file and no other file is there.
    pub fn check_files(&self) {
        let tables: BTreeSet<u64> = self.levels().iter().flatten().map(|t| (**t).as_ref().file_id).collect();
        let files: BTreeSet<u64> = std::fs::read_dir(self.dir.path())
            .expect("the directory")
            .map(|f| match files::parse(f.expect("an entry").file_name().to_str().expect("a name")) {
                Some(FileKind::Table(n)) => n,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(files, tables);
    }
}

/// Threads of a test.
pub(super) struct Threads(pub usize);

impl Helpers for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn share(&self, parts: usize, job: Parts) {
        let shared = Arc::new(Shared::new(parts, job));
        for _ in 1..self.0 {
            let s = Arc::clone(&shared);
            std::thread::spawn(move || while s.do_one() {});
        }
        while shared.do_one() {}
        shared.wait();
    }
}
