use std::path::Path;

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{FILTER_BITS, Key, MEMTABLE_BYTES, Result, Store, look};
use crate::scenario::Scenario;

pub struct Fjall {
    db: Database,
    pairs: Keyspace,
}

pub fn open(dir: &Path, s: &Scenario) -> Result<Fjall> {
    let db = Database::builder(dir).cache_size(s.cache_bytes).worker_threads(2).open()?;
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS as f32));
    let pairs = db.keyspace("pairs", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES.min(s.cache_bytes / 4))
            .data_block_compression_policy(CompressionPolicy::disabled())
            .index_block_compression_policy(CompressionPolicy::disabled())
            .filter_policy(FilterPolicy::all(filter))
    })?;
    Ok(Fjall { db, pairs })
}

impl Store for Fjall {
    fn put(&self, key: &Key, value: &[u8], sync: bool) -> Result<()> {
        if !sync {
            return Ok(self.pairs.insert(key, value)?);
        }
        self.put_all(&[(*key, value)], true)
    }

    fn put_all(&self, pairs: &[(Key, &[u8])], sync: bool) -> Result<()> {
        let mut batch = self.db.batch().durability(sync.then_some(PersistMode::SyncData));
        pairs.iter().for_each(|(key, value)| batch.insert(&self.pairs, key, *value));
        Ok(batch.commit()?)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        Ok(self.pairs.get(key)?.map(|v| look(&v)))
    }

    fn multi_get(&self, keys: &[Key]) -> Result<usize> {
        // It has no call for many keys.
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key)?.is_some());
        }
        Ok(found)
    }

    fn scan(&self, from: Option<&Key>, rows: usize) -> Result<usize> {
        let all = match from {
            Some(from) => self.pairs.range(from.as_slice()..),
            None => self.pairs.iter(),
        };
        let mut seen = 0;
        for pair in all.take(rows) {
            let (key, value) = pair.into_inner()?;
            look(&key);
            look(&value);
            seen += 1;
        }
        Ok(seen)
    }

    fn settle(&self) -> Result<()> {
        self.pairs.rotate_memtable_and_wait()?;
        let mut quiet = 0;
        while quiet < 20 {
            let busy = self.db.active_compactions() > 0 || self.db.outstanding_flushes() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
        Ok(())
    }
}
