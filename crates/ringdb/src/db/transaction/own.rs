//! What a transaction has written of a key ([`Own`]), and merges: an operand says nothing of what it is merged into, so
//! it is no read.

use super::{Tracked, Transaction};
use crate::db::keyspace::Keyspace;
use crate::db::keyspaces::Lives;
use crate::db::ttl;
use crate::key::{self, Kind, check_limits};
use crate::log::payload;
use crate::operator::operands::Operands;
use crate::sync::lock;
use crate::{Result, Value};

/// What a transaction has written of a key.
#[derive(Clone)]
pub(super) struct Own {
    base: Base,
    /// Merged into it, oldest first.
    operands: Option<Box<Operands>>,
}

/// What operands are merged into.
#[derive(Clone)]
enum Base {
    /// What the store has: the transaction has only merged.
    Store,
    Put(Value),
    Deleted,
}

impl Own {
    /// A put, or a deletion.
    pub fn set(value: Option<&[u8]>) -> Own {
        Own { base: value.map_or(Base::Deleted, |v| Base::Put(Value::copy_from(v))), operands: None }
    }

    /// Whether what is seen of the key depends on what the store has.
    pub fn needs_store(&self) -> bool {
        matches!(self.base, Base::Store)
    }

    /// Whether there is a value, whatever the store has.
    pub fn is_there(&self) -> bool {
        self.operands.is_some() || matches!(self.base, Base::Put(_))
    }

    /// What is seen of an internal key. `stored`: what the store has, if that counts.
    pub fn value(self, key: &[u8], stored: Option<Value>) -> Result<Option<Value>> {
        let base = match self.base {
            Base::Store => stored,
            Base::Put(value) => Some(value),
            Base::Deleted => None,
        };
        match self.operands {
            None => Ok(base),
            Some(operands) => Ok(Some(operands.resolve(key, base.as_deref())?.into())),
        }
    }

    /// Fails for operands where puts have got a time to live since they were merged.
    pub fn check_lives(&self, lives: &Lives, key: &[u8]) -> Result<()> {
        match (&self.operands, key::split(key)) {
            (Some(_), Some((id, _))) => ttl::check_merge(lives.of(id)),
            _ => Ok(()),
        }
    }

    /// Appends the operations that it is of an internal key to those of a batch; how many they are.
    pub fn encode(&mut self, ops: &mut Vec<u8>, key: &[u8]) -> u32 {
        let mut count = 0;
        let mut add = |kind: Kind, value: &[u8]| {
            payload::encode_internal(ops, kind, key, value);
            count += 1;
        };
        match &self.base {
            Base::Store => {}
            Base::Put(value) => add(Kind::Put, value),
            Base::Deleted => add(Kind::Delete, b""),
        }
        if let Some(operands) = &mut self.operands {
            operands.collapse_all(key);
            operands.iter().for_each(|(_, operand)| add(Kind::Merge, operand));
        }
        count
    }
}

impl Tracked {
    fn merge(&mut self, keyspace: &Keyspace, key: Vec<u8>, operand: &[u8]) -> Result<()> {
        self.take_room(key.len() + operand.len())?;
        let operator = || keyspace.core().keyspaces.operators().of_key(&key);
        let own = self.writes.entry(key.clone()).or_insert(Own { base: Base::Store, operands: None });
        let operands = own.operands.get_or_insert_with(|| Box::new(Operands::new(operator(), false)));
        operands.push(&key, operand)
    }
}

impl Transaction {
    /// Merges an operand into a key of the default keyspace, at the commit; see [`Transaction::merge_in`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.keyspace("default")?.alter(&ringdb::KeyspaceOptions::default().with_merge_operator("add"))?;
    /// // Both count one visit, and neither has read the counter: they do not conflict.
    /// let (one, other) = (db.transaction(), db.transaction());
    /// one.merge("visits", 1u64.to_le_bytes())?;
    /// other.merge("visits", 1u64.to_le_bytes())?;
    /// one.commit()?;
    /// other.commit()?;
    /// assert_eq!(db.get("visits")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::merge_in`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_in(&self.keyspace, key, operand)
    }

    /// Merges an operand into a key of a keyspace, at the commit; see [`Keyspace::merge`].
    ///
    /// A merge is no read: transactions that merge into one key do not conflict, whoever commits first. Who reads
    /// the key in the transaction sees its operands merged into what it sees of the key else, and has read it.
    ///
    /// # Errors
    /// As [`Keyspace::merge`]; [`crate::Error::Invalid`] if all writes together are too long, and for a keyspace of
    /// another store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let tags = db.keyspace_with("tags", &ringdb::KeyspaceOptions::default().with_merge_operator("append:,"))?;
    /// tags.put("page", "red")?;
    /// let tx = db.transaction();
    /// tx.merge_in(&tags, "page", "round")?;
    /// assert_eq!(tx.get_in(&tags, "page")?.as_deref(), Some(&b"red,round"[..]));
    /// tx.commit()?;
    /// assert_eq!(tags.get("page")?.as_deref(), Some(&b"red,round"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn merge_in(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        check_limits(key, operand)?;
        self.check(keyspace)?;
        let prefix = &keyspace.state().prefix;
        ttl::check_merge(keyspace.state().life())?;
        keyspace.core().keyspaces.operators().check(prefix.as_slice(), operand)?;
        let mut tracked = lock(&self.tracked);
        tracked.merge(keyspace, super::internal(prefix, key), operand)?;
        tracked.touch(keyspace.state());
        tracked.refill(prefix.as_slice(), key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::registry::Registry;

    #[test]
    fn many_operands_are_committed_as_one_behind_what_they_are_merged_into() {
        for (mut own, before) in
            [(Own::set(Some(b"put")), 1), (Own::set(None), 1), (Own { base: Base::Store, operands: None }, 0)]
        {
            let mut operands = Box::new(Operands::new(Some(Registry::default().find("append:,")), false));
            (0..5000).for_each(|i| operands.push(b"\0k", i.to_string().as_bytes()).unwrap());
            own.operands = Some(operands);
            let mut ops = Vec::new();
            assert_eq!(own.encode(&mut ops, b"\0k"), before + 1);
            assert_eq!(payload::decode(&ops).count(), before as usize + 1);
        }
    }
}
