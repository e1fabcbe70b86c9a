//! The store's own account of itself.

use crate::sync::atomic::Ordering::Acquire;

use super::Core;
use crate::stats::{LevelStats, Stats};
use crate::sync::lock;

impl Core {
    /// See [`crate::Db::stats`].
    pub fn stats(&self) -> Stats {
        let info = self.io.info();
        let cache = self.cache.stats();
        let mut s = Stats {
            io: info.uri,
            io_reasons: info.reasons,
            last_sequence: self.visible.load(Acquire),
            snapshots: self.snapshots.count(),
            cache_capacity_bytes: cache.capacity_bytes,
            cache_used_bytes: cache.used_bytes,
            index_bytes: cache.index_bytes,
            filter_bytes: cache.filter_bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            filter_negatives: cache.filter_negatives,
            recovered_damage: self.recovered_damage.clone(),
            damaged_tables: self.damaged_tables(),
            ..Stats::default()
        };
        if let Some(w) = &self.writes {
            s.log_bytes = w.log.bytes();
            s.log_written_bytes = w.log.written_bytes();
            s.log_syncs = w.log.syncs();
            let w = lock(&w.state);
            s.write_groups = w.groups;
            s.write_batches = w.batches;
        }
        let version = {
            let t = lock(&self.tree);
            s.immutable_memtables = t.immutables.len() as u64;
            s.memtable_bytes = t.immutables.iter().map(|i| i.mem.bytes()).sum::<u64>() + t.active.bytes();
            s.flushes = t.flushes;
            s.flush_written_bytes = t.flush_written_bytes;
            t.version.clone()
        };
        let targets = self.background.level_targets(version.levels());
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
        self.background.add_stats(&mut s);
        s.stopped = self.health.stopped().map(str::to_string);
        s
    }
}
