//! [`Quarantine`]: the tables that the store cannot read, wholly or in part. No compaction picks one, so their files
//! stay where they are.
//!
//! A table that could not be opened stays so until the store is opened again. One in which background work has met
//! a bad block is quarantined for a while, and longer each time that this happens, since reading may fail for
//! reasons that pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::tree::LsmTree;
use crate::files::{self, FileKind};
use crate::stats::DamagedTable;
use crate::sync::{Mutex, lock};
use crate::table::Table;
use crate::{Env, Error, key};

/// How long a table is quarantined after the first failure of background work, and at most.
const FIRST_PERIOD: Duration = Duration::from_secs(30);
const LAST_PERIOD: Duration = Duration::from_secs(3600);

/// See the module.
pub(crate) struct Quarantine {
    tree: Arc<LsmTree>,
    env: Arc<dyn Env>,
    /// The tables that background work could not read.
    failed: Mutex<BTreeMap<u64, Failed>>,
}

struct Failed {
    why: Error,
    times: u32,
    /// Quarantined until then.
    until: Duration,
}

/// Whether an error says that what is stored cannot be read, rather than that this process may not, or cannot now.
pub(crate) fn is_damage(e: &Error) -> bool {
    match e {
        Error::Corrupt { .. } => true,
        Error::Io(e) => {
            use engineswap::ErrorKind::{Io, NotFound, UnexpectedEof};
            // An error that the kernel did not report is the engine's own trouble, and says nothing of the disk.
            matches!(e.kind(), NotFound | UnexpectedEof) || (e.kind() == Io && e.errno().is_some())
        }
        _ => false,
    }
}

/// The table that an error is about.
fn table_of(e: &Error) -> Option<u64> {
    let path = match e {
        Error::Corrupt { path, .. } => path,
        Error::Io(e) => e.path()?,
        _ => return None,
    };
    match files::parse(path.file_name()?.to_str()?)? {
        FileKind::Table(id) => Some(id),
        _ => None,
    }
}

impl Quarantine {
    /// Of the tables of `tree`.
    pub fn new(tree: Arc<LsmTree>, env: Arc<dyn Env>) -> Arc<Quarantine> {
        Arc::new(Quarantine { tree, env, failed: Mutex::default() })
    }

    /// The tables quarantined at this moment.
    pub fn tables(&self) -> BTreeSet<u64> {
        let version = self.tree.version();
        let mut all: BTreeSet<u64> = version
            .tables()
            .filter(|(_, t)| t.why_unreadable().is_some())
            .map(|(_, t)| t.meta().file_id)
            .collect();
        let now = self.env.now();
        all.extend(lock(&self.failed).iter().filter(|(_, f)| f.until > now).map(|(id, _)| *id));
        all
    }

    /// Background work has failed. True if that is because of a table's file, which is quarantined from now on.
    pub fn add(&self, why: &Error) -> bool {
        let Some(id) = table_of(why).filter(|_| is_damage(why)) else { return false };
        if !self.tree.version().tables().any(|(_, t)| t.meta().file_id == id) {
            return false;
        }
        let now = self.env.now();
        let mut failed = lock(&self.failed);
        let times = failed.get(&id).map_or(0, |f| f.times);
        let period = (FIRST_PERIOD * (1 << times.min(10))).min(LAST_PERIOD);
        failed.insert(id, Failed { why: why.clone(), times: times + 1, until: now + period });
        true
    }

    /// Why the first damaged table from one internal key to another (included if `last_too`) is so, if there is one.
    pub fn damage_within(&self, from: &[u8], to: &[u8], last_too: bool) -> Option<Error> {
        self.tree.version().tables().find_map(|(_, t)| {
            let m = t.meta();
            let before = m.smallest.as_slice() < to || (last_too && m.smallest == to);
            let inside = m.largest.as_slice() >= from && before;
            self.why_damaged(t).filter(|_| inside)
        })
    }

    fn why_damaged(&self, table: &Table) -> Option<Error> {
        let failed = || lock(&self.failed).get(&table.meta().file_id).map(|f| f.why.clone());
        table.why_unreadable().cloned().or_else(failed)
    }

    /// For the store's own account of itself.
    pub fn damaged_tables(&self) -> Vec<DamagedTable> {
        let version = self.tree.version();
        // What a compaction has got over after all is no news.
        lock(&self.failed).retain(|id, _| version.tables().any(|(_, t)| t.meta().file_id == *id));
        let damaged = version.tables().filter_map(|(level, t)| Some((level, t, self.why_damaged(t)?)));
        damaged
            .map(|(level, t, why)| {
                let m = t.meta();
                DamagedTable {
                    file: t.path().display().to_string(),
                    level: level as u32,
                    bytes: m.file_bytes,
                    entries: m.entries,
                    from: key::printable(&m.smallest),
                    to: key::printable(&m.largest),
                    unreadable: t.why_unreadable().is_some(),
                    reason: why.to_string(),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_in_trouble_is_no_damage() {
        use engineswap::ErrorKind::{Exhausted, Io, NotFound, UnexpectedEof};
        let of = |kind| Error::Io(engineswap::Error::new(kind, "read", "why"));
        assert!(is_damage(&of(NotFound)) && is_damage(&of(UnexpectedEof)));
        // As the kernel says it, and as an engine does whose thread has panicked.
        let eio = std::io::Error::from_raw_os_error(5);
        assert!(is_damage(&Error::Io(engineswap::Error::from_std("read", &eio))));
        assert!(!is_damage(&of(Io)) && !is_damage(&of(Exhausted)));
    }
}
