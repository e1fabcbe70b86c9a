//! A lookup that meets operands: it gathers them, newest first, on its way to what they are merged into.

use super::{At, Lies, Lookup, copied};
use crate::db::view::View;
use crate::key::{Kind, Seq};
use crate::operator::operands::Operands;
use crate::table::block::{BlockView, Find};
use crate::table::reader::Table;
use crate::{Result, Value};

/// What an operand-seeking step has come to: the value, or that there is none; `None` if older versions count, too.
type Come = Result<Option<Option<Vec<u8>>>>;

impl Lookup {
    /// Whether it has met operands and is on its way to what is older.
    pub fn has_operands(&self) -> bool {
        self.operands.is_some()
    }

    /// The next older version.
    fn meet(&mut self, view: &View, kind: Kind, seq: Seq, value: &[u8]) -> Come {
        let key = self.key.as_slice();
        if kind == Kind::Merge && seq >= self.cover {
            if self.presence {
                // A key with an operand is there, whatever that is merged into (decision 51).
                return self.end(Some(b"")).map(Some);
            }
            let operands = self
                .operands
                .get_or_insert_with(|| Box::new(Operands::new(view.operator(self.key.as_slice()), true)));
            operands.push(key, value)?;
            // Nothing is older than the number 0.
            let Some(below) = seq.checked_sub(1) else { return self.end(None).map(Some) };
            self.seq = below;
            return Ok(None);
        }
        let value = self.live(view, kind, seq, value);
        self.end(value).map(Some)
    }

    /// The value that comes of `value`, with which the operands end, if it met any.
    fn end(&mut self, value: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        self.walk.at = At::Done;
        match self.operands.take() {
            Some(operands) => operands.resolve(self.key.as_slice(), value).map(Some),
            None => Ok(value.map(<[u8]>::to_vec)),
        }
    }

    /// The memtables' newest version is an operand: gathers theirs.
    #[cold]
    pub(super) fn merge_memtables(
        &mut self,
        view: &View,
        make: impl FnOnce(&[u8], Lies) -> Value,
    ) -> Result<Option<Option<Value>>> {
        let key = self.key.as_slice().to_vec();
        for m in view.memtables() {
            for entry in m.versions(&key, self.hash, self.seq) {
                if let Some(answer) = self.meet(view, entry.kind, entry.seq, entry.value)? {
                    return Ok(Some(answer.map(|value| make(&value, Lies::Made))));
                }
            }
        }
        Ok(None)
    }

    /// Gathers operands from block `number` of a table, and goes on behind it or has the answer.
    #[cold]
    pub(super) fn merge_block(
        &mut self,
        view: &View,
        (table, number): (&Table, u32),
        block: &[u8],
        make: impl FnOnce(&[u8], Lies) -> Value,
    ) -> Result<Option<Option<Value>>> {
        loop {
            match BlockView::trusted(block).find(self.key.as_slice(), self.seq) {
                // Of a table that was ingested, the number is not in the block, and the key is there once.
                Find::Found(entry) if entry.seq + table.given() > self.seq => {
                    self.walk.at = At::Tables;
                    return Ok(None);
                }
                Find::Found(entry) => {
                    let seq = entry.seq + table.given();
                    if let Some(answer) = self.meet(view, entry.kind, seq, entry.value)? {
                        return Ok(Some(answer.map(|value| make(&value, Lies::Made))));
                    }
                }
                Find::Next if number + 1 < table.index().blocks() => {
                    self.walk.at = At::Block(number + 1);
                    return Ok(None);
                }
                Find::Next | Find::Absent => {
                    self.walk.at = At::Tables;
                    return Ok(None);
                }
            }
        }
    }

    /// What comes of the operands if nothing is older; nothing without operands.
    #[inline]
    pub(super) fn nothing_older(&mut self, make: impl FnOnce(&[u8], Lies) -> Value) -> Result<Option<Value>> {
        if self.operands.is_none() {
            return Ok(None);
        }
        Ok(self.end(None)?.map(|value| make(&value, Lies::Made)))
    }

    /// The answer of a lookup that has come to its end with operands.
    #[cold]
    pub fn merge_the_rest(&mut self) -> Result<Option<Value>> {
        self.nothing_older(copied)
    }
}
