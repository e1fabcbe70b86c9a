use std::path::Path;

use ringdb::{Compression, Db, Durability, Options, WriteBatch, WriteOptions};

use super::{FILTER_BITS, Found, Key, MEMTABLE_BYTES, Result, Store, look};
use crate::scenario::Scenario;

pub struct Ringdb(Db);

pub fn open(dir: &Path, s: &Scenario) -> Result<Ringdb> {
    let options = Options::default()
        .with_cache_bytes(s.cache_bytes)
        .with_memtable_bytes(MEMTABLE_BYTES.min(s.cache_bytes / 4))
        .with_filter_bits_per_key(FILTER_BITS)
        .with_compression(Compression::None)
        .with_last_level_compression(Compression::None)
        .with_direct_reads(s.direct)
        .with_durability(if s.sync_store { Durability::Sync } else { Durability::Process });
    Ok(Ringdb(Db::open(dir, options)?))
}

fn durability(sync: bool) -> WriteOptions {
    WriteOptions::default().durability(if sync { Durability::Sync } else { Durability::Process })
}

impl Store for Ringdb {
    fn put(&self, key: &Key, value: &[u8], sync: bool) -> Result<()> {
        if !sync {
            return Ok(self.0.put(key, value)?);
        }
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        Ok(self.0.write(batch, &durability(true))?)
    }

    fn put_all(&self, pairs: &[(Key, &[u8])], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::new();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.0.write(batch, &durability(sync))?)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        Ok(self.0.get(key)?.map(|v| look(&v)))
    }

    fn get_future(&self, key: &Key) -> Option<Found> {
        let found = self.0.get_async(key);
        Some(Box::pin(async { Ok(found.await?.map(|v| look(&v))) }))
    }

    fn multi_get(&self, keys: &[Key]) -> Result<usize> {
        Ok(self.0.multi_get(keys)?.iter().flatten().filter(|v| look(v) > 0).count())
    }

    fn scan(&self, from: Option<&Key>, rows: usize) -> Result<usize> {
        // By the cursor, as RocksDB by its raw iterator: the iterator copies each pair.
        let mut all = self.0.cursor();
        let mut more = match from {
            Some(from) => all.seek(from)?,
            None => all.first()?,
        };
        let mut seen = 0;
        while more
            && seen < rows
            && let (Some(key), Some(value)) = (all.key(), all.value())
        {
            look(key);
            look(value);
            seen += 1;
            more = all.next()?;
        }
        Ok(seen)
    }

    fn settle(&self) -> Result<()> {
        self.0.flush()?;
        Ok(self.0.wait_idle()?)
    }
}
