//! Tables in a row. Those whose ranges do not overlap are read one after the other, so that few are open at a time: a
//! level is one run, and so is much of what a repair leaves in level 0.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::Result;
use crate::files::Files;
use crate::key;
use crate::manifest::TableFile;
use crate::store::{Store, table_names};
use crate::table::Table;

/// Tables whose ranges ascend.
pub(crate) struct Run {
    left: VecDeque<TableFile>,
    table: Table,
}

impl Run {
    /// The tables as few runs; each stands on its first entry.
    pub(crate) fn all(store: &Store, read: &Rc<Cell<u64>>) -> Result<Vec<Run>> {
        let mut tables: Vec<TableFile> = store.state.tables().cloned().collect();
        tables.sort_by(|a, b| key::compare(&a.smallest, &b.smallest));
        let mut rows: Vec<VecDeque<TableFile>> = Vec::new();
        // The rows that may take one more, the one that ends first at the front.
        let mut ends: std::collections::BTreeSet<(End, usize)> = Default::default();
        for table in tables {
            let first =
                ends.first().filter(|(end, _)| key::compare(&end.0, &table.smallest) == Ordering::Less);
            let row = match first.map(|(_, row)| *row) {
                Some(row) => {
                    ends.pop_first();
                    row
                }
                None => {
                    rows.push(VecDeque::new());
                    rows.len() - 1
                }
            };
            ends.insert((End(table.largest.clone()), row));
            rows[row].push_back(table);
        }
        let open = |mut row: VecDeque<TableFile>| {
            let first = row.pop_front()?;
            Some(open_table(store, first, read).map(|table| Run { left: row, table }))
        };
        rows.into_iter().filter_map(open).collect()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.table.key()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.table.value()
    }

    /// Goes to the next entry; whether there is one. Within a table the order is checked there; between two, the
    /// manifest says it, and each table's ends are checked against the manifest.
    pub(crate) fn step(&mut self, store: &Store, read: &Rc<Cell<u64>>) -> Result<bool> {
        if self.table.step()? {
            return Ok(true);
        }
        let Some(next) = self.left.pop_front() else { return Ok(false) };
        self.table = open_table(store, next, read)?;
        Ok(true)
    }
}

fn open_table(store: &Store, meta: TableFile, read: &Rc<Cell<u64>>) -> Result<Table> {
    let files: &Files = &store.files;
    let [new, old] = table_names(meta.number);
    let name = if files.len(&new)?.is_some() { new } else { old };
    Table::open(files.open(&name, read)?, meta, store.state.last_sequence(), store.checksums)
}

/// An internal key, in the order of internal keys.
#[derive(PartialEq, Eq)]
struct End(Vec<u8>);

impl Ord for End {
    fn cmp(&self, other: &End) -> Ordering {
        key::compare(&self.0, &other.0)
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
