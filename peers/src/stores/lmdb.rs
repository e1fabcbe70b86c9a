use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};

use super::{Key, Result, Store, look};
use crate::scenario::Scenario;

pub struct Lmdb {
    env: &'static Env,
    pairs: Database<'static, Bytes, Bytes>,
}

/// Room for the pairs several times over.
fn map_bytes(s: &Scenario) -> usize {
    let pages = s.pairs as usize * (s.value_bytes + 64).next_multiple_of(64) * 4 + (2 << 30);
    pages.next_multiple_of(1 << 20)
}

pub fn open(dir: &Path, s: &Scenario) -> Result<Lmdb> {
    std::fs::create_dir_all(dir)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes(s)).max_readers(256);
    // SAFETY: one process, one opening; without NO_SYNC commits are durable, with it they are synced on demand.
    let env = unsafe {
        options.flags(if s.sync_store { EnvFlags::empty() } else { EnvFlags::NO_SYNC });
        options.open(dir)?
    };
    // The process ends after its measurement.
    let env: &'static Env = Box::leak(Box::new(env));
    let transaction = env.write_txn()?;
    let pairs = env
        .create_databases_and_commit(transaction, |create, transaction| {
            let pairs: Database<Bytes, Bytes> = create.create_database(transaction, None)?;
            heed::Result::Ok(CommitOrAbort::<_, ()>::Commit(pairs))
        })?
        .unwrap_commit();
    Ok(Lmdb { env, pairs })
}

impl Lmdb {
    fn commit(
        &self,
        change: impl FnOnce(&mut heed::RwTxn<'_>) -> heed::Result<()>,
        sync: bool,
    ) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        change(&mut transaction)?;
        transaction.commit()?;
        if sync {
            // Nothing to do for an environment that syncs each commit.
            self.env.force_sync()?;
        }
        Ok(())
    }
}

impl Store for Lmdb {
    fn put(&self, key: &Key, value: &[u8], sync: bool) -> Result<()> {
        self.commit(|t| self.pairs.put(t, key, value), sync)
    }

    fn put_all(&self, pairs: &[(Key, &[u8])], sync: bool) -> Result<()> {
        self.commit(|t| pairs.iter().try_for_each(|(key, value)| self.pairs.put(t, key, value)), sync)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        let transaction = self.env.read_txn()?;
        Ok(self.pairs.get(&transaction, key)?.map(look))
    }

    fn multi_get(&self, keys: &[Key]) -> Result<usize> {
        let transaction = self.env.read_txn()?;
        let mut found = 0;
        for key in keys {
            found += usize::from(self.pairs.get(&transaction, key)?.is_some_and(|v| look(v) > 0));
        }
        Ok(found)
    }

    fn scan(&self, from: Option<&Key>, rows: usize) -> Result<usize> {
        let transaction = self.env.read_txn()?;
        let from = from.map_or(&[][..], |k| k.as_slice());
        let mut seen = 0;
        let range = (std::ops::Bound::Included(from), std::ops::Bound::<&[u8]>::Unbounded);
        if from.is_empty() {
            for pair in self.pairs.iter(&transaction)?.take(rows) {
                let (key, value) = pair?;
                look(key);
                look(value);
                seen += 1;
            }
            return Ok(seen);
        }
        for pair in self.pairs.range(&transaction, &range)?.take(rows) {
            let (key, value) = pair?;
            look(key);
            look(value);
            seen += 1;
        }
        Ok(seen)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }
}
