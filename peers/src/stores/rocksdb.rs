use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, DataBlockIndexType, Options,
    ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::{FILTER_BITS, Key, MEMTABLE_BYTES, Result, Store, look};
use crate::scenario::Scenario;

pub struct Rocksdb {
    db: DB,
    tuned: bool,
}

static IO_URING: AtomicBool = AtomicBool::new(false);

/// RocksDB asks the application whether it may use io_uring.
#[unsafe(no_mangle)]
extern "C" fn RocksDbIOUringEnable() -> bool {
    IO_URING.load(Relaxed)
}

pub fn open(dir: &Path, s: &Scenario, tuned: bool) -> Result<Rocksdb> {
    IO_URING.store(tuned, Relaxed);
    let mut table = BlockBasedOptions::default();
    let cache = match tuned {
        true => Cache::new_hyper_clock_cache(s.cache_bytes as usize, 0),
        false => Cache::new_lru_cache(s.cache_bytes as usize),
    };
    table.set_block_cache(&cache);
    table.set_bloom_filter(FILTER_BITS.into(), false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(MEMTABLE_BYTES.min(s.cache_bytes / 4) as usize);
    options.set_compression_type(DBCompressionType::None);
    options.set_bottommost_compression_type(DBCompressionType::None);
    options.set_max_background_jobs(2);
    if s.direct {
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
    }
    if tuned {
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        options.set_recycle_log_file_num(4);
        options.set_enable_pipelined_write(true);
        options.set_level_compaction_dynamic_level_bytes(true);
    }
    options.set_block_based_table_factory(&table);
    // By name, for the call with many keys wants a handle.
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    Ok(Rocksdb { db: DB::open_cf_descriptors(&options, dir, [family])?, tuned })
}

impl Rocksdb {
    fn reads(&self) -> ReadOptions {
        let mut reads = ReadOptions::default();
        reads.set_async_io(self.tuned);
        reads
    }
}

fn writes(sync: bool) -> WriteOptions {
    let mut writes = WriteOptions::default();
    writes.set_sync(sync);
    writes
}

impl Store for Rocksdb {
    fn put(&self, key: &Key, value: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.put_opt(key, value, &writes(sync))?)
    }

    fn put_all(&self, pairs: &[(Key, &[u8])], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.db.write_opt(batch, &writes(sync))?)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        Ok(self.db.get_pinned(key)?.map(|v| look(&v)))
    }

    fn multi_get(&self, keys: &[Key]) -> Result<usize> {
        let Some(family) = self.db.cf_handle("default") else { return Err("no column family".into()) };
        let mut found = 0;
        for value in self.db.batched_multi_get_cf_opt(&family, keys, false, &self.reads()) {
            found += usize::from(value?.is_some_and(|v| look(&v) > 0));
        }
        Ok(found)
    }

    fn scan(&self, from: Option<&Key>, rows: usize) -> Result<usize> {
        // By the raw iterator: the other copies each pair.
        let mut all = self.db.raw_iterator_opt(self.reads());
        match from {
            Some(from) => all.seek(from),
            None => all.seek_to_first(),
        }
        let mut seen = 0;
        while seen < rows
            && let Some((key, value)) = all.item()
        {
            look(key);
            look(value);
            seen += 1;
            all.next();
        }
        all.status()?;
        Ok(seen)
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }
}
