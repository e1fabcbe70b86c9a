//! Ingesting: sorted pairs become tables, which come to the tree as one, at the deepest level that takes each.
//!
//! The tables are written as compactions write theirs, with the sequence number 0. When they are durable, the commit
//! queue gives them one number, at which they go into the tree ([`crate::commit::Place`]); the manifest has it
//! ([`crate::table::TableMeta::given`]), and readers of such a table add it to what they find. Why so:
//! docs/decisions/0052-ingest.md.

use std::fmt;
use std::sync::Arc;

use super::compact::StoreCompactionEnv;
use super::core::Core;
use super::keyspaces::KeyspaceState;
use super::view::View;
use super::write::{ActiveWriter, StoreCommitEnv, WriteSide};
use crate::commit::Place;
use crate::compaction::CompactionEnv;
use crate::compaction::output::{Outputs, PendingFiles};
use crate::compaction::pick::{Busy, LAST, level_for};
use crate::compaction::scheduler::On;
use crate::cursor::Cursor;
use crate::events::Event;
use crate::files::FileKind;
use crate::key::{KeyBuf, Kind, SEQ_MAX, Seq, check_limits};
use crate::manifest::Version;
use crate::table::{Reads, Table, TableMeta, TableParts};
use crate::{Error, ErrorKind, Result, purpose};

/// Pairs between looks at whether the store still takes writes.
const LOOK_EVERY: u64 = 1024;
/// Bytes of a key that an error shows.
const MOST_SHOWN: usize = 100;

/// Takes pairs in ascending order of their keys, for [`Ingester::finish`] to make all of them part of the keyspace at
/// once. Dropped before that, it leaves nothing.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// let mut ingester = db.ingester()?;
/// for i in 0..10_000_u32 {
///     ingester.add(i.to_be_bytes(), "value")?;
/// }
/// assert!(db.get(7_u32.to_be_bytes())?.is_none());
/// assert_eq!(ingester.finish()?, 10_000);
/// assert!(db.get(7_u32.to_be_bytes())?.is_some());
/// # Ok::<(), ringdb::Error>(())
/// ```
pub struct Ingester<'a> {
    core: &'a Core,
    side: &'a Arc<WriteSide>,
    keyspace: &'a KeyspaceState,
    out: Outputs<'a, StoreCompactionEnv>,
    /// The last key.
    last: Vec<u8>,
    pairs: u64,
    bytes: u64,
    failed: Option<Error>,
}

impl fmt::Debug for Ingester<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingester").field("pairs", &self.pairs).finish_non_exhaustive()
    }
}

impl<'a> Ingester<'a> {
    pub(super) fn new(core: &'a Core, keyspace: &'a KeyspaceState) -> Result<Ingester<'a>> {
        let side = core.write_side()?;
        core.health.check_writable()?;
        keyspace.check()?;
        let table_bytes = core.options.compacted_table_bytes();
        // Which level takes them is known at the end; most often it is the last.
        let out =
            Outputs::new(&*side.compaction, LAST, table_bytes, (table_bytes, 0), purpose::COMPACTION_WRITE);
        let (last, failed) = (Vec::new(), None);
        Ok(Ingester { core, side, keyspace, out, last, pairs: 0, bytes: 0, failed })
    }

    /// Adds a pair. Nobody sees it before [`Ingester::finish`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key does not come after the one before, or key or value are longer than they can be;
    /// otherwise what writing a file can meet. After an error nothing more is taken, and `finish` fails too.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let added = self.add_pair(key.as_ref(), value.as_ref());
        self.failed = added.as_ref().err().cloned();
        added
    }

    fn add_pair(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.core.health.check_process()?;
        check_limits(key, value)?;
        if self.pairs > 0 && self.last.as_slice() >= key {
            let (key, last) = (shown(key), shown(&self.last));
            return Err(Error::Invalid(format!(
                "pairs to be ingested come in ascending order, each key once: {key} comes after {last}"
            )));
        }
        if self.pairs.is_multiple_of(LOOK_EVERY) {
            self.core.health.check_writable()?;
        }
        let internal = KeyBuf::new(&self.keyspace.prefix, key);
        self.out.add(internal.as_slice(), 0, Kind::Put, value, true)?;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Makes all pairs part of the keyspace at once, in place of older values of the same keys. They are durable when
    /// this returns, and so is everything that was written before. Returns how many there are.
    ///
    /// Snapshots from before do not see them. Transactions that have read something between the first and the last key
    /// fail with [`Error::Conflict`]. Other writers wait while the manifest is written, and if they go on writing
    /// between the first and the last key, for the flush of a small memtable.
    ///
    /// # Errors
    /// That of an [`Ingester::add`] before; [`Error::KeyspaceDropped`]; what writing a file can meet. Nothing was
    /// ingested then, unless the store has stopped writing: whether it was shows when the store is opened again.
    pub fn finish(self) -> Result<u64> {
        let Ingester { core, side, keyspace, out, pairs, bytes, failed, .. } = self;
        failed.map_or(Ok(()), Err)?;
        core.check_open()?;
        if pairs == 0 {
            return Ok(0);
        }
        let start = core.env.now();
        let store = &*side.compaction;
        let (metas, pending) = out.finish()?;
        store.sync_dir()?;
        let parts = metas.iter().map(|m| load(store, m)).collect::<Result<Vec<_>>>()?;
        let (Some(first), Some(last)) = (metas.first(), metas.last()) else { return Ok(0) };
        let mut placing =
            Placing { core, side, keyspace, parts, from: first.smallest.clone(), to: last.largest.clone() };
        // As for any writer: level 0 may be behind.
        side.scheduler.admit(bytes)?;
        // The most of what has to wait for the disk, while other writers go on.
        match placing.meets_memory(&core.views.newest())? {
            true => side.flush()?,
            false => side.sync()?,
        }
        let (from, behind) = (placing.from.clone(), placing.behind());
        let placed = side.commits.place((&from, &behind), &mut placing);
        settle(pending, &placed);
        side.scheduler.tables_came(store);
        placed?;
        core.events.tell(|| Event::Ingested {
            keyspace: keyspace.name.clone(),
            pairs,
            tables: metas.len() as u64,
            written_bytes: metas.iter().map(|m| m.file_bytes).sum(),
            took: core.env.now().saturating_sub(start),
        });
        Ok(pairs)
    }
}

/// The beginning of a user's key, for people.
fn shown(key: &[u8]) -> String {
    let end = if key.len() > MOST_SHOWN { "..." } else { "" };
    format!("'{}{end}'", key[..key.len().min(MOST_SHOWN)].escape_ascii())
}

/// The files stay, unless nothing has happened.
fn settle(pending: PendingFiles, placed: &Result<()>) {
    let nothing = |e: &Error| matches!(e.kind(), ErrorKind::Retry) || matches!(e, Error::KeyspaceDropped(_));
    if !placed.as_ref().is_err_and(nothing) {
        pending.keep();
    }
}

fn load(store: &StoreCompactionEnv, meta: &TableMeta) -> Result<TableParts> {
    let path = FileKind::Table(meta.file_id).path(store.dir());
    let reads = Reads::from_option(store.options().direct_reads);
    TableParts::load_as(store.io(), &path, meta, reads, purpose::TABLE_OPEN)
}

/// Tables on their way into the tree.
struct Placing<'a> {
    core: &'a Core,
    side: &'a WriteSide,
    keyspace: &'a KeyspaceState,
    /// Taken when they go.
    parts: Vec<TableParts>,
    /// The first and the last key.
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Placing<'_> {
    /// The key behind the last one.
    fn behind(&self) -> Vec<u8> {
        [self.to.as_slice(), &[0]].concat()
    }

    /// Whether a memtable has something between the first and the last key.
    fn meets_memory(&self, view: &View) -> Result<bool> {
        for m in view.memtables() {
            let mut cursor = m.cursor();
            cursor.seek(&self.from)?;
            if cursor.valid() && cursor.key() <= self.to.as_slice() {
                return Ok(true);
            }
            if m.has_ranges() && m.ranges().newest_within(&self.from, Some(&self.behind()), SEQ_MAX) > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The level of each table; `None` if memtables have to be flushed first.
    fn levels(&self, version: &Version<Table>, busy: &Busy) -> Result<Option<Vec<usize>>> {
        let level = |p: &TableParts| level_for(version.levels(), busy, &p.properties.meta);
        let levels: Vec<usize> = self.parts.iter().map(level).collect();
        let view = self.core.views.newest();
        // Runs of level 0 are ordered by their newest numbers, also once they are merged: an older memtable must not
        // come to it later.
        let overtakes = levels.contains(&0) && view.memtables().any(|m| !m.is_empty());
        Ok((!overtakes && !self.meets_memory(&view)?).then_some(levels))
    }
}

impl Place<StoreCommitEnv> for Placing<'_> {
    fn flush(&mut self, applied: Seq) -> Result<()> {
        self.side.scheduler.wait_for(On::Flushes, || self.side.compaction.tree.is_flushed(applied))
    }

    fn install(
        &mut self,
        env: &StoreCommitEnv,
        w: &mut ActiveWriter,
        seq: Seq,
        flushed: bool,
    ) -> Result<bool> {
        let side = self.side;
        let (from, to) = (self.from.clone(), self.to.clone());
        side.scheduler.beside((&from, &to), |busy| {
            env.replace_memtable(w, seq - 1, |fresh| {
                side.versions.ingest(fresh, |version| {
                    self.keyspace.check()?;
                    let Some(levels) = self.levels(version, busy)? else {
                        assert!(!flushed, "nothing is left in memtables");
                        return Ok(None);
                    };
                    let (io, cache) = (&self.core.io, &self.core.cache);
                    let tables = self.parts.drain(..).map(|p| Table::ingested(io, cache, p, seq));
                    Ok(Some(levels.into_iter().zip(tables).collect()))
                })
            })
        })
    }
}
