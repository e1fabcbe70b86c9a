//! The commit of a write with a claim, and what becomes of the claim if the commit queue cannot judge it.

use std::sync::Arc;

use crate::bounds::Bounds;
use crate::commit::{Claim, ReadSet, Verdict, Write};
use crate::cursor::Cursor;
use crate::db::view::{View, Views};
use crate::db::write::WriteSide;
use crate::key::{self, SEQ_MAX, Seq};
use crate::memtable::Memtable;
use crate::table::cursor::TableCursor;
use crate::table::reader::Table;
use crate::{Durability, Error, Result};

/// Recent writes that are looked at under the queue's lock at first: some microseconds.
const FEW: usize = 512;
/// After so many looks at memtables and tables, each beside writers that wrote more meanwhile than is kept of recent
/// writes, it is a conflict.
const TRIES: usize = 8;

/// Commits if nothing of `reads` was written after `basis`; what was read is registered as a snapshot. A conflict is
/// told when what was written is published: whoever tries again sees it.
pub(super) fn commit(
    store: &WriteSide,
    views: &Views,
    write: &Write<'_>,
    durability: Durability,
    (reads, mut basis): (&ReadSet, Seq),
) -> Result<()> {
    if reads.is_empty() {
        return store.commits.commit(write, durability);
    }
    let mut most = FEW;
    for _ in 0..TRIES {
        match store.commits.commit_checked(write, durability, &Claim { reads, basis, most })? {
            Verdict::Committed => return Ok(()),
            Verdict::Conflict { key, seq } => {
                store.commits.wait_applied(seq)?;
                return Err(conflict(&key));
            }
            Verdict::Unknown { settle } => {
                store.commits.wait_applied(settle)?;
                let (now, view) = views.visible_within();
                if let Some(key) = written_since(&view, reads, basis)? {
                    return Err(conflict(&key));
                }
                (basis, most) = (now, usize::MAX);
            }
        }
    }
    Err(conflict(b""))
}

/// Fails if anything of `reads` was written after `basis`, or if a compaction filter may have changed what they would
/// show at `now`; both are registered as snapshots.
pub(super) fn check_now(views: &Views, reads: &ReadSet, basis: Seq, now: Seq) -> Result<()> {
    // What a filter does is no write: that newer views may show something else is all that tells of it. Two snapshots
    // of one number show the same.
    if now > basis && views.kept(Some(basis)).is_some() {
        return Err(conflict(b""));
    }
    match written_since(&views.newest(), reads, basis)? {
        Some(key) => Err(conflict(&key)),
        None => Ok(()),
    }
}

fn conflict(key: &[u8]) -> Error {
    let key = if key.is_empty() {
        "more than can be told".into()
    } else {
        format!("key \"{}\"", key::printable(key))
    };
    Error::Conflict { key }
}

/// A key of `reads` of which there is a version after `basis`, or that a range deleted since then covers. Without any
/// lock; it may read blocks.
fn written_since(view: &View, reads: &ReadSet, basis: Seq) -> Result<Option<Vec<u8>>> {
    let deleted = view.ranges();
    for (hash, key) in reads.keys() {
        let newer = |m: &Arc<Memtable>| m.get(key, hash, SEQ_MAX).is_some_and(|e| e.seq > basis);
        let behind = [key, &[0]].concat();
        if view.memtables().any(newer)
            || deleted.newest(key, SEQ_MAX) > basis
            || tables_have(view, Some(hash), (key, Some(&behind)), basis)?.is_some()
        {
            return Ok(Some(key.to_vec()));
        }
    }
    for (from, to) in reads.ranges() {
        // One that is gone from the list by now has nothing to delete of what the transaction saw: `basis` is a
        // snapshot's.
        if deleted.newest_within(from, to.as_deref(), SEQ_MAX) > basis {
            return Ok(Some(from.clone()));
        }
        for m in view.memtables() {
            if let Some(key) = memtable_has(m, from, to.as_deref(), basis)? {
                return Ok(Some(key));
            }
        }
        if let Some(key) = tables_have(view, None, (from, to.as_deref()), basis)? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn memtable_has(m: &Arc<Memtable>, from: &[u8], to: Option<&[u8]>, basis: Seq) -> Result<Option<Vec<u8>>> {
    let mut cursor = m.cursor();
    cursor.seek(from)?;
    first_after(&mut cursor, to, basis)
}

/// The first key of a range of which a table that is young enough has a version after `basis`; with a hash, it is a
/// range of one key.
fn tables_have(
    view: &View,
    hash: Option<u64>,
    (from, to): (&[u8], Option<&[u8]>),
    basis: Seq,
) -> Result<Option<Vec<u8>>> {
    let bounds = Arc::new(Bounds { lower: from.to_vec(), upper: to.map(<[u8]>::to_vec) });
    let may_have = |table: &Table| {
        let meta = table.meta();
        meta.max_seq > basis
            && bounds.overlap(&meta.smallest, &meta.largest)
            && hash.is_none_or(|hash| table.filter().may_contain(hash))
    };
    for (_, table) in view.version.tables().filter(|(_, table)| may_have(table)) {
        let mut cursor = TableCursor::new(table, &bounds, false);
        cursor.seek(from)?;
        if let Some(key) = first_after(&mut cursor, to, basis)? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// From where the cursor stands on and before `to`: the first key with a version after `basis`.
fn first_after(cursor: &mut impl Cursor, to: Option<&[u8]>, basis: Seq) -> Result<Option<Vec<u8>>> {
    while cursor.valid() {
        // The place of a block that cannot be read: the step beyond it is the error.
        if cursor.seq() <= SEQ_MAX {
            if to.is_some_and(|to| cursor.key() >= to) {
                break;
            }
            if cursor.seq() > basis {
                return Ok(Some(cursor.key().to_vec()));
            }
        }
        cursor.next()?;
    }
    Ok(None)
}
