//! Where the reads of a run came from: the store's own memory, the page cache or the device. A table of rates says
//! little about engines and devices if nobody knows which rows have reached them.

use engineswap::{IoStats, OpClass};
use ringdb::IO_PURPOSES;
use serde::Serialize;

use super::row::Row;

/// Where what was read came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The store's own memory had it all: no file was read.
    Store,
    /// Files were read, and the page cache had them (but for less than a hundredth).
    PageCache,
    /// Some of it.
    Mixed,
    /// Nine tenths at least.
    Device,
}

/// Bytes of files that reads of the store asked for, and those that others did: compactions, opened tables.
pub fn asked(io: &IoStats) -> (u64, u64) {
    let of = |mine: bool| {
        let names = IO_PURPOSES.iter().filter(|(_, name)| ["user-read", "scan-read"].contains(name) == mine);
        names.map(|(p, _)| io.of(OpClass::Read, *p).bytes).sum()
    };
    (of(true), of(false))
}

impl Source {
    /// `asked` bytes of files were read for the workload, `other` beside it; the device read `device` for the process.
    pub fn of((asked, other): (u64, u64), device: u64) -> Source {
        let device = device.saturating_sub(other);
        match asked {
            0 => Source::Store,
            _ if device < asked / 100 + 1 => Source::PageCache,
            _ if device >= asked / 10 * 9 => Source::Device,
            _ => Source::Mixed,
        }
    }

    /// For the table.
    pub fn name(self) -> &'static str {
        match self {
            Source::Store => "memory",
            Source::PageCache => "page cache",
            Source::Mixed => "both",
            Source::Device => "device",
        }
    }
}

/// Workloads whose reads of files are one block at a time, if they are not given a batch.
const LONE: [&str; 8] =
    ["readrandom", "readmissing", "readwhilewriting", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f"];

/// What the table's reader has to know about these rows.
pub fn notes(rows: &[Row]) -> String {
    let mut text = String::new();
    let any = |s: Source| rows.iter().any(|r| r.reads_from == Some(s));
    if any(Source::Store) {
        text += "memory: the store's own cache had all that was read; more --num or less --cache-bytes reaches the files\n";
    }
    if any(Source::PageCache) || any(Source::Mixed) {
        text += "page cache: files were read, but not the device (both: some of it was); --direct-reads reads the device\n";
    }
    let engines: std::collections::BTreeSet<&str> = rows.iter().map(|r| r.io.as_str()).collect();
    let lone = |r: &&Row| r.batch_size <= 1 && r.async_tasks.is_none() && LONE.contains(&r.workload.as_str());
    if engines.len() > 1
        && let Some(r) = rows.iter().find(lone)
    {
        text += &format!(
            "{} and others read one block at a time, by the same system call (pread) on every engine: what sets such \
             rows apart is not the engine but the noise of this machine\n",
            r.workload
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_did_not_read_is_not_its() {
        for (asked, other, device, want) in [
            (0, 0, 0, Source::Store),
            (0, 500, 500, Source::Store),
            (4096, 0, 0, Source::PageCache),
            (4096, 0, 4096, Source::Device),
            // What a compaction has read is not the workload's.
            (100_000, 70_000, 70_500, Source::PageCache),
            (100_000, 70_000, 120_000, Source::Mixed),
            (100_000, 0, 95_000, Source::Device),
        ] {
            assert_eq!(Source::of((asked, other), device), want, "{asked} {other} {device}");
        }
    }

    #[test]
    fn rows_that_say_nothing_of_device_or_engine_are_explained() {
        let row = |workload: &str, io: &str, reads_from| Row {
            workload: workload.into(),
            io: io.into(),
            batch_size: 1,
            reads_from,
            ..Row::default()
        };
        assert_eq!(notes(&[row("fillrandom", "posix", None)]), "");
        assert!(notes(&[row("readrandom", "posix", Some(Source::Store))]).starts_with("memory:"));
        let two = [
            row("readrandom", "posix", Some(Source::PageCache)),
            row("readrandom", "io_uring", Some(Source::Device)),
        ];
        let text = notes(&two);
        assert!(
            text.contains("--direct-reads") && text.contains("pread") && !text.contains("memory:"),
            "{text}"
        );
        let batches = two.map(|r| Row { batch_size: 64, workload: "multireadrandom".into(), ..r });
        assert!(!notes(&batches).contains("pread"));
        let tasks =
            batches.map(|r| Row { batch_size: 1, async_tasks: Some(8), workload: "readrandom".into(), ..r });
        assert!(!notes(&tasks).contains("pread"));
    }
}
