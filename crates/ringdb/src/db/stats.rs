//! The store's own account of itself.

use crate::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeMap;

use super::Db;
use super::core::Core;
use crate::compaction::pick::{Reason, targets};
use crate::compaction::scheduler::{Scheduler, Settings};
use crate::compaction_filter::registry::Filters;
use crate::key;
use crate::seal::ring::written_with;
use crate::stats::{LevelStats, Stats, TableInfo};
use crate::sync::lock;
use crate::table::{Table, TableMeta};

impl Db {
    /// The tables of the tree, level by level.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// let tables = db.tables();
    /// assert_eq!((tables.len(), tables[0].from.as_str(), tables[0].entries), (1, "k", 1));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn tables(&self) -> Vec<TableInfo> {
        self.core().tables()
    }
}

impl Core {
    /// See [`crate::Db::stats`].
    pub fn stats(&self) -> Stats {
        let info = self.io.info();
        let cache = self.cache.stats();
        let mut s = Stats {
            io: info.uri,
            io_reasons: info.reasons,
            last_sequence: self.views.visible(),
            snapshots: self.views.snapshot_count(),
            cache_capacity_bytes: cache.capacity_bytes,
            cache_used_bytes: cache.used_bytes,
            memory_bytes: cache.used_bytes
                + cache.index_bytes
                + cache.filter_bytes
                + cache.memtable_bytes
                + cache.background_bytes
                + cache.iterator_bytes,
            memtable_memory_bytes: cache.memtable_bytes,
            background_memory_bytes: cache.background_bytes,
            iterator_memory_bytes: cache.iterator_bytes,
            index_bytes: cache.index_bytes,
            filter_bytes: cache.filter_bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            filter_negatives: cache.filter_negatives,
            async_page_cache_reads: self.odds.hits(),
            encryption_key: self.write_side.as_ref().and_then(|_| written_with(&self.io)),
            settings: self.keyspaces.all_settings(),
            socket: self.served.tell(),
            recovered_damage: lock(&self.recovered_damage).clone(),
            damaged_tables: self.quarantine.damaged_tables(),
            ..Stats::default()
        };
        if let Some(w) = &self.write_side {
            s.log_bytes = w.log.bytes();
            s.log_mapped_bytes = w.log.mapped_bytes();
            s.log_written_bytes = w.log.written_bytes();
            s.log_syncs = w.log.syncs();
            let counts = w.commits.counts();
            (s.write_groups, s.write_batches) = (counts.groups, counts.batches);
            add_scheduler(&w.scheduler, &mut s);
            add_filters(self.keyspaces.filters(), &mut s);
        }
        self.reactor.add_stats(&mut s);
        self.tree.add_stats(&mut s);
        let version = self.tree.version();
        let targets = targets(version.levels(), &Settings::new(&self.options).shape).bytes;
        for (level, tables) in version.levels().iter().enumerate() {
            let metas = || tables.iter().map(|t| t.meta());
            let l = LevelStats {
                level: level as u32,
                tables: tables.len() as u64,
                bytes: metas().map(|m| m.file_bytes).sum(),
                entries: metas().map(|m| m.entries).sum(),
                target_bytes: targets[level],
            };
            s.table_bytes += l.bytes;
            s.table_entries += l.entries;
            if level == 0 || l.tables > 0 {
                s.levels.push(l);
            }
        }
        s.tables_by_key = by_key(version.tables().map(|(_, t)| &**t));
        s.listener_panics = self.events.panics();
        s.latencies = self.latencies.tell();
        s.stopped = self.health.latch().reason().map(str::to_string);
        s
    }

    /// See [`crate::Db::tables`].
    pub fn tables(&self) -> Vec<TableInfo> {
        let of = |level: usize, meta: &TableMeta, encryption_key| TableInfo {
            number: meta.file_id,
            level: level as u32,
            bytes: meta.file_bytes,
            entries: meta.entries,
            from: key::printable(&meta.smallest),
            to: key::printable(&meta.largest),
            encryption_key,
        };
        self.tree.version().tables().map(|(level, t)| of(level, t.meta(), key_of(t))).collect()
    }
}

/// How many tables need each key; 0: none.
fn by_key<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<(u32, u64)> {
    let mut all = BTreeMap::new();
    tables.for_each(|t| *all.entry(key_of(t).unwrap_or(0)).or_default() += 1);
    all.into_iter().collect()
}

/// The number of the key that a table is encrypted with.
fn key_of(table: &Table) -> Option<u32> {
    table.parts().seal().map(|seal| seal.stamp().key)
}

fn add_scheduler(scheduler: &Scheduler, s: &mut Stats) {
    let c = &scheduler.counters;
    let reasons = Reason::ALL.into_iter().zip(&c.by_reason);
    s.compaction_reasons =
        reasons.map(|(r, n)| (r.name(), n.load(Relaxed))).filter(|(_, n)| *n > 0).collect();
    s.compactions = c.compactions.load(Relaxed);
    s.trivial_moves = c.trivial_moves.load(Relaxed);
    s.compaction_read_bytes = c.compaction_read_bytes.load(Relaxed);
    s.compaction_written_bytes = c.compaction_written_bytes.load(Relaxed);
    s.write_delays = c.write_delays.load(Relaxed);
    s.write_delay_us = c.write_delay_us.load(Relaxed);
    s.write_delay_reason = scheduler.reason();
    (s.running_compactions, s.flush_running) = scheduler.running();
    (s.background_errors, s.background_error) = scheduler.background_errors();
}

fn add_filters(filters: &Filters, s: &mut Stats) {
    [s.compaction_filter_seen, s.compaction_filter_removed, s.compaction_filter_changed] = filters.counts();
    let (failures, last) = filters.failures();
    s.background_errors += failures;
    s.background_error = s.background_error.take().or(last);
}
