//! [`StoreCompactionEnv`]: the store as flushes and compactions see it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::Io;

use super::health::Health;
use super::keyspaces::Keyspaces;
use super::quarantine::Quarantine;
use super::tree::LsmTree;
use super::version_set::VersionSet;
use super::view::Views;
use crate::cache::{Cache, Charge, Owner};
use crate::compaction::{Change, CompactionEnv, Frozen, Levels};
use crate::compaction_filter::registry::Filters;
use crate::files::FileKind;
use crate::key::Seq;
use crate::memtable::{MemCursor, Memtable};
use crate::operator::registry::Operator;
use crate::ranges::RangeState;
use crate::settings::SettingsMap;
use crate::store_dir::StoreDir;
use crate::table::{Reads, Table, TableMeta, TableParts};
use crate::{Error, Options, Result};

/// See the module.
pub(crate) struct StoreCompactionEnv {
    pub io: Io,
    pub dir: PathBuf,
    pub home: Arc<StoreDir>,
    pub options: Options,
    pub cache: Arc<Cache>,
    pub tree: Arc<LsmTree>,
    pub versions: Arc<VersionSet>,
    pub views: Arc<Views>,
    pub keyspaces: Arc<Keyspaces>,
    pub quarantine: Arc<Quarantine>,
    pub health: Arc<Health>,
}

impl CompactionEnv for StoreCompactionEnv {
    type Table = Table;
    type MemCursor = MemCursor;

    fn io(&self) -> &Io {
        &self.io
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn sync_dir(&self) -> Result<()> {
        self.home.sync()
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn table_settings(&self) -> Arc<SettingsMap> {
        self.keyspaces.settings()
    }

    fn levels(&self) -> Levels<Table> {
        self.tree.version().levels().to_vec()
    }

    fn immutables(&self) -> Vec<Frozen<MemCursor>> {
        let frozen = |m: &Arc<Memtable>| Frozen {
            cursor: m.cursor(),
            bytes: m.bytes(),
            entries: m.entries(),
            ranges: m.ranges().all().cloned().collect(),
        };
        self.tree.immutables().iter().map(frozen).collect()
    }

    fn immutable_count(&self) -> usize {
        self.tree.immutable_count()
    }

    fn ranges(&self) -> Arc<RangeState> {
        Arc::clone(self.tree.version().ranges())
    }

    fn views(&self) -> Vec<Seq> {
        self.views.readable()
    }

    fn operator(&self, internal: &[u8]) -> Option<Operator> {
        self.keyspaces.operators().of_key(internal)
    }

    fn filters(&self) -> Option<&Filters> {
        Some(self.keyspaces.filters())
    }

    fn wall_clock(&self) -> u64 {
        self.views.newest().clock().now()
    }

    fn stopped(&self) -> Option<String> {
        self.health.latch().reason().map(str::to_string)
    }

    fn dropped_keyspaces(&self) -> Vec<u32> {
        self.keyspaces.dropped()
    }

    fn new_file_number(&self) -> u64 {
        self.versions.new_file_number()
    }

    fn table_parts(&self, table: &Table) -> Arc<TableParts> {
        table.parts().clone()
    }

    fn open_table(&self, meta: TableMeta) -> Result<Arc<Table>> {
        let path = FileKind::Table(meta.file_id).path(&self.dir);
        Table::open(&self.io, &self.cache, &path, meta, Reads::from_option(self.options.direct_reads))
    }

    fn charge(&self, bytes: u64) -> Option<Charge> {
        Some(self.cache.charge(Owner::Background, bytes))
    }

    fn install(&self, change: Change<Table>) -> Result<()> {
        self.versions.install(&change)
    }

    fn quarantined(&self) -> BTreeSet<u64> {
        self.quarantine.tables()
    }

    fn quarantine(&self, why: &Error) -> bool {
        self.quarantine.add(why)
    }

    fn stop_writing(&self, why: &Error) {
        self.health.latch().fail(why.clone());
    }
}
