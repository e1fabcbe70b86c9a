//! [`Damage`]: the tables that the store cannot read, wholly or in part, and leaves alone.
//!
//! A table that could not be opened stays so until the store is opened again. One in which background work has met
//! a bad block is left alone for a while, and longer each time that this happens, since reading may fail for
//! reasons that pass. Neither is ever picked for a compaction meanwhile, so their files stay where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Core;
use crate::files::{self, FileKind};
use crate::stats::DamagedTable;
use crate::sync::{Mutex, lock};
use crate::table::Table;
use crate::{Error, key};

/// How long a table is left alone after the first failure of background work, and at most.
const FIRST_REST: Duration = Duration::from_secs(30);
const LAST_REST: Duration = Duration::from_secs(3600);

/// What background work has met, by table.
#[derive(Default)]
pub(crate) struct Damage {
    met: Mutex<BTreeMap<u64, Met>>,
}

struct Met {
    why: Error,
    times: u32,
    /// Left alone until then.
    until: Duration,
}

/// Whether an error says that what is stored cannot be read, rather than that this process may not, or cannot now.
pub(crate) fn is_damage(e: &Error) -> bool {
    // What the machine or the process has run out of: EAGAIN, ENOMEM, ENFILE, EMFILE.
    const SHORTAGE: [i32; 4] = [11, 12, 23, 24];
    match e {
        Error::Corrupt { .. } => true,
        Error::Io(e) => match e.kind() {
            engineswap::ErrorKind::NotFound | engineswap::ErrorKind::UnexpectedEof => true,
            engineswap::ErrorKind::Io => e.errno().is_some_and(|n| !SHORTAGE.contains(&n)),
            _ => false,
        },
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

impl Core {
    /// The tables to leave alone at this moment.
    pub(super) fn tables_left_alone(&self) -> BTreeSet<u64> {
        let version = lock(&self.tree).version.clone();
        let mut all: BTreeSet<u64> = version
            .tables()
            .filter(|(_, t)| t.why_unreadable().is_some())
            .map(|(_, t)| t.meta().file_id)
            .collect();
        let now = self.env.now();
        all.extend(lock(&self.damage.met).iter().filter(|(_, m)| m.until > now).map(|(id, _)| *id));
        all
    }

    /// Background work has failed: if that is because of a table's file, the table is left alone from now on.
    pub(super) fn leave_alone(&self, why: &Error) -> bool {
        let Some(id) = table_of(why).filter(|_| is_damage(why)) else { return false };
        if !lock(&self.tree).version.tables().any(|(_, t)| t.meta().file_id == id) {
            return false;
        }
        let now = self.env.now();
        let mut met = lock(&self.damage.met);
        let times = met.get(&id).map_or(0, |m| m.times);
        let rest = (FIRST_REST * (1 << times.min(10))).min(LAST_REST);
        met.insert(id, Met { why: why.clone(), times: times + 1, until: now + rest });
        true
    }

    /// Why the first damaged table from one internal key to another (included if `last_too`) is so, if there is one.
    pub(super) fn damage_within(&self, from: &[u8], to: &[u8], last_too: bool) -> Option<Error> {
        let version = lock(&self.tree).version.clone();
        version.tables().find_map(|(_, t)| {
            let m = t.meta();
            let before = m.smallest.as_slice() < to || (last_too && m.smallest == to);
            let inside = m.largest.as_slice() >= from && before;
            self.why_damaged(t).filter(|_| inside)
        })
    }

    fn why_damaged(&self, table: &Table) -> Option<Error> {
        let met = || lock(&self.damage.met).get(&table.meta().file_id).map(|m| m.why.clone());
        table.why_unreadable().cloned().or_else(met)
    }

    /// For the store's own account of itself.
    pub(super) fn damaged_tables(&self) -> Vec<DamagedTable> {
        let version = lock(&self.tree).version.clone();
        // What a compaction has got over after all is no news.
        lock(&self.damage.met).retain(|id, _| version.tables().any(|(_, t)| t.meta().file_id == *id));
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
