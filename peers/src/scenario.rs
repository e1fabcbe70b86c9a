//! What is measured: scenarios, each with its data, settings and rows.

use serde::{Deserialize, Serialize};

use crate::tasks::Tasks;

/// Pairs of one size under one setting, and what is done with them, in order.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub pairs: u64,
    pub value_bytes: usize,
    pub cache_bytes: u64,
    /// Reads past the page cache, for stores that can.
    pub direct: bool,
    /// The store is told that every write is durable.
    pub sync_store: bool,
    pub rows: &'static [Row],
}

/// A workload and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub work: Work,
    pub threads: u64,
    /// Operations of all threads together. One operation may be many keys or rows.
    pub ops: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Every pair once, in random order, not synced.
    Fill,
    /// Random pairs again, not synced.
    Overwrite,
    /// Waits until the store has flushed and compacted what it wants to.
    Settle,
    /// Durable puts of random pairs.
    SyncPuts,
    /// Durable batches of as many pairs.
    SyncBatches(usize),
    Get,
    GetMissing,
    MultiGet(usize),
    /// Gets of one key each, by tasks.
    Tasks(Tasks),
    /// From a random key, so many rows.
    Seek(usize),
    /// All rows.
    Scan,
}

/// What one row of one store came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub row: String,
    /// Keys or rows a second.
    pub per_second: f64,
    /// Microseconds of one operation.
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub longest: f64,
    /// CPU time of the whole process per key, in microseconds, background work included.
    pub cpu: f64,
    /// Bytes read from and written to the device per key, by the process's own account.
    pub read: f64,
    pub written: f64,
    /// Resident memory at its end, and bytes of the store's files.
    pub resident: u64,
    pub disk: u64,
}

const fn row(name: &'static str, work: Work, threads: u64, ops: u64) -> Row {
    Row { name, work, threads, ops }
}

const MIB: u64 = 1 << 20;
const SMALL: Scenario = Scenario {
    name: "",
    about: "",
    pairs: 5_000_000,
    value_bytes: 100,
    cache_bytes: 256 * MIB,
    direct: false,
    sync_store: false,
    rows: &[],
};

const FILL: Row = row("fillrandom", Work::Fill, 1, 0);
const SETTLE: Row = row("settle", Work::Settle, 1, 0);

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "page-cache",
        about: "a cache of 256 MiB, 580 MB of data, memory free for the page cache",
        rows: &[
            FILL,
            row("overwrite", Work::Overwrite, 1, 5_000_000),
            SETTLE,
            row("readrandom", Work::Get, 1, 1_000_000),
            row("readrandom, 16 threads", Work::Get, 16, 2_000_000),
            row("readmissing", Work::GetMissing, 1, 1_000_000),
            row("multi_get of 64", Work::MultiGet(64), 1, 15_000),
            row("seek + 10", Work::Seek(10), 1, 300_000),
            row("full scan", Work::Scan, 1, 1),
        ],
        ..SMALL
    },
    Scenario {
        name: "cached",
        about: "a cache of 2 GiB: everything fits",
        cache_bytes: 2048 * MIB,
        rows: &[
            FILL,
            SETTLE,
            row("full scan", Work::Scan, 1, 1),
            row("readrandom", Work::Get, 1, 1_500_000),
            row("readrandom, 2 threads", Work::Get, 2, 3_000_000),
            row("readmissing", Work::GetMissing, 1, 2_000_000),
            row("multi_get of 64", Work::MultiGet(64), 1, 30_000),
            row("seek + 10", Work::Seek(10), 1, 400_000),
            row("seek + 100", Work::Seek(100), 1, 100_000),
        ],
        ..SMALL
    },
    Scenario {
        name: "direct",
        about: "direct reads, a cache of 32 MiB; LMDB and fjall have no direct reads and are not asked",
        cache_bytes: 32 * MIB,
        direct: true,
        rows: &[
            FILL,
            SETTLE,
            row("get", Work::Get, 1, 60_000),
            row("get, 16 threads", Work::Get, 16, 300_000),
            row("multi_get of 16", Work::MultiGet(16), 1, 10_000),
            row("multi_get of 64", Work::MultiGet(64), 1, 4_000),
            row("multi_get of 64, 2 threads", Work::MultiGet(64), 2, 6_000),
            row("seek + 10", Work::Seek(10), 1, 40_000),
            row("seek + 100", Work::Seek(100), 1, 20_000),
        ],
        ..SMALL
    },
    Scenario {
        name: "tasks-cached",
        about: "requests of one key each from tasks, a cache of 1 GiB: everything fits",
        pairs: 2_000_000,
        cache_bytes: 1024 * MIB,
        rows: TASKS,
        ..SMALL
    },
    Scenario {
        name: "tasks-page-cache",
        about: "the same, a cache of 32 MiB and memory free for the page cache",
        pairs: 2_000_000,
        cache_bytes: 32 * MIB,
        rows: TASKS,
        ..SMALL
    },
    Scenario {
        name: "tasks-direct",
        about: "the same, a cache of 32 MiB and direct reads",
        pairs: 2_000_000,
        cache_bytes: 32 * MIB,
        direct: true,
        rows: TASKS,
        ..SMALL
    },
    Scenario {
        name: "sync-store",
        about: "every write durable: the store is told so",
        pairs: 1_000_000,
        sync_store: true,
        rows: &[
            row("1 client", Work::SyncPuts, 1, 15_000),
            row("8 clients", Work::SyncPuts, 8, 80_000),
            row("32 clients", Work::SyncPuts, 32, 200_000),
        ],
        ..SMALL
    },
    Scenario {
        name: "sync-writes",
        about: "durable writes to a store whose other writes are not",
        pairs: 1_000_000,
        rows: &[
            row("1 client", Work::SyncPuts, 1, 15_000),
            row("8 clients", Work::SyncPuts, 8, 80_000),
            row("32 clients", Work::SyncPuts, 32, 200_000),
        ],
        ..SMALL
    },
    Scenario {
        name: "busy",
        about: "durable puts right after a bulk load, while its flushes and compactions run",
        value_bytes: 150,
        cache_bytes: 4096 * MIB,
        rows: &[
            FILL,
            row("durable puts", Work::SyncPuts, 1, 1_000),
            row("durable batches of 1,000", Work::SyncBatches(1000), 1, 100),
            SETTLE,
        ],
        ..SMALL
    },
    Scenario {
        name: "values-1k",
        about: "values of 1 KiB, a cache of 256 MiB",
        pairs: 1_000_000,
        value_bytes: 1 << 10,
        rows: VALUES,
        ..SMALL
    },
    Scenario {
        name: "values-4k",
        about: "values of 4 KiB, a cache of 256 MiB",
        pairs: 400_000,
        value_bytes: 4 << 10,
        rows: VALUES,
        ..SMALL
    },
    Scenario {
        name: "values-16k",
        about: "values of 16 KiB, a cache of 256 MiB",
        pairs: 100_000,
        value_bytes: 16 << 10,
        rows: VALUES,
        ..SMALL
    },
    Scenario {
        name: "values-256k",
        about: "values of 256 KiB, a cache of 256 MiB",
        pairs: 6_000,
        value_bytes: 256 << 10,
        rows: VALUES,
        ..SMALL
    },
];

const VALUES: &[Row] = &[
    FILL,
    row("overwrite", Work::Overwrite, 1, 0),
    SETTLE,
    row("get", Work::Get, 1, 200_000),
    row("seek + 10", Work::Seek(10), 1, 40_000),
    row("full scan", Work::Scan, 1, 1),
];

const fn tasks(name: &'static str, tasks: usize, pool: usize, ops: u64) -> Row {
    row(name, Work::Tasks(Tasks { tasks, pool }), 1, ops)
}

/// ringdb's tasks wait for futures; the others' for a pool of so many threads.
const TASKS: &[Row] = &[
    FILL,
    SETTLE,
    tasks("1 task, pool of 16", 1, 16, 30_000),
    tasks("16 tasks, pool of 16", 16, 16, 150_000),
    tasks("64 tasks, pool of 16", 64, 16, 150_000),
    tasks("64 tasks, pool of 64", 64, 64, 150_000),
    tasks("1,024 tasks, pool of 16", 1024, 16, 200_000),
    tasks("1,024 tasks, pool of 64", 1024, 64, 200_000),
    tasks("10,000 tasks, pool of 64", 10_000, 64, 200_000),
];

impl Scenario {
    /// The one of that name, scaled.
    pub fn find(name: &str, scale: f64) -> Result<Scenario, String> {
        let Some(found) = ALL.iter().find(|s| s.name == name) else {
            let names: Vec<&str> = ALL.iter().map(|s| s.name).collect();
            return Err(format!("no scenario '{name}': there are {}", names.join(", ")));
        };
        Ok(Scenario {
            pairs: ((found.pairs as f64 * scale) as u64).max(1000),
            cache_bytes: ((found.cache_bytes as f64 * scale) as u64).max(8 * MIB),
            ..*found
        })
    }

    /// Operations of a row: as scaled; the number of pairs if the row does not say.
    pub fn ops(&self, row: &Row, scale: f64) -> u64 {
        match row.work {
            Work::Settle | Work::Scan => 1,
            // Of large values no more than a few times what there is.
            _ if row.ops == 0 => self.pairs,
            Work::Get | Work::Seek(_) => ((row.ops as f64 * scale) as u64).clamp(1, self.pairs * 4),
            _ => ((row.ops as f64 * scale) as u64).max(row.threads),
        }
    }
}

/// Prints what there is.
pub fn list() {
    for s in ALL {
        println!("{}: {} ({} pairs of 16 + {} bytes)", s.name, s.about, s.pairs, s.value_bytes);
        for r in s.rows {
            println!("    {}", r.name);
        }
    }
}
