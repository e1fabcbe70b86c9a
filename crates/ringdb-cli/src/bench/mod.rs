//! `ringdb bench`: db_bench's workloads on any I/O engine.
//!
//! [`run`] plays one workload on one [`target::Target`] and makes a [`row::Row`] of it; [`bench()`] decides what
//! is run on which store in which order. Workers ([`point`], [`scan`], [`mixgraph`], [`ycsb`]) make one call of
//! the store at a time and check what they read against [`presence::Presence`].

pub mod args;
mod dist;
pub mod drive;
pub mod keys;
pub mod meter;
mod mixgraph;
mod point;
mod presence;
mod row;
mod run;
mod scan;
mod source;
mod target;
mod tasks;
mod workload;
mod ycsb;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use ringdb::Durability;

use self::args::BenchArgs;
use self::keys::{Keys, Values};
use self::row::Row;
use self::target::{Setup, Target};
use self::workload::Workload;
use crate::cleanup::{self, TempDir};
use crate::error::{Result, at, failed, usage};
use crate::out::{self, human_bytes, human_count};
use crate::store;

/// Runs the workloads and prints the results.
pub fn bench(args: &BenchArgs) -> Result<()> {
    check(args)?;
    let temp = if args.db.is_none() { Some(TempDir::new("ringdb-bench-")?) } else { None };
    let base = match (&args.db, &temp) {
        (Some(dir), _) => dir.clone(),
        (None, Some(t)) => t.path().join("store"),
        (None, None) => return failed("no directory for the store"),
    };
    let largest = args.value_size.max(args.mix.mix_max_value_size) as usize;
    let setup = Setup {
        keys: Keys { size: args.key_size.into() },
        values: Values::new(largest),
        value_size: args.value_size as usize,
        num: args.num,
    };
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if !to_stdout {
        announce(args, &base)?;
    }
    let mut stores =
        Stores { args, setup: &setup, base, open: args.io.iter().map(|_| None).collect(), run: 0 };
    let rows = stores.all()?;
    stores.close()?;
    drop(temp);
    match &args.json {
        Some(_) if to_stdout => return out::json(&rows),
        Some(path) => {
            let mut file = at(path, File::create(path))?;
            serde_json::to_writer_pretty(&mut file, &rows)?;
            at(path, file.write_all(b"\n"))?;
        }
        None => {}
    }
    let mut text = row::runs_table(&rows);
    if args.io.len() > 1 || args.rounds > 1 {
        text = text + "\n" + &row::side_by_side(&rows);
    }
    let notes = source::notes(&rows);
    if !notes.is_empty() {
        text = text + "\n" + &notes;
    }
    out::text(&text)
}

/// What the argument parser cannot see.
fn check(args: &BenchArgs) -> Result<()> {
    for uri in &args.io {
        store::check_engine(uri)?;
    }
    let keys = Keys { size: args.key_size.into() };
    if keys.capacity() < args.num.saturating_mul(2) {
        return usage(format!("keys of {} bytes are too few for --num {}", args.key_size, args.num));
    }
    if args.value_size > 1 << 30 {
        return usage("--value-size is at most 1 GiB");
    }
    let m = &args.mix;
    if [m.mix_get_ratio, m.mix_put_ratio, m.mix_seek_ratio].iter().any(|r| !(*r >= 0.0 && r.is_finite()))
        || m.mix_get_ratio + m.mix_put_ratio + m.mix_seek_ratio <= 0.0
    {
        return usage("the --mix ratios must not be negative, nor all 0");
    }
    if args.use_existing_db {
        if let Some(w) = args.workloads.iter().find(|w| w.is_fresh()) {
            return usage(format!("{} starts with a fresh store: not with --use-existing-db", w.name()));
        }
        if args.io.len() > 1
            && let Some(w) = args.workloads.iter().find(|w| w.writes())
        {
            return usage(format!(
                "{} writes: with --use-existing-db and several engines, which share the store, all workloads must only read",
                w.name()
            ));
        }
    } else if let Some(dir) = &args.db
        && std::fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some())
    {
        return usage(format!(
            "{} is not empty: give --use-existing-db to run on the store there, or another directory",
            dir.display()
        ));
    }
    Ok(())
}

fn announce(args: &BenchArgs, base: &Path) -> Result<()> {
    let mut root = base.to_path_buf();
    while !root.exists() && root.pop() {}
    if root.as_os_str().is_empty() {
        root = PathBuf::from(".");
    }
    let memory = if cleanup::in_memory(&root) { " (in memory: no device is measured)" } else { "" };
    out::text(&format!(
        "{} keys of {} bytes, values of {}: {}; memory budget {}; tables read {}; {} thread(s); store in {}{memory}\n",
        human_count(args.num),
        args.key_size,
        human_bytes(args.value_size),
        human_bytes(args.num.saturating_mul(u64::from(args.key_size).saturating_add(args.value_size))),
        human_bytes(args.cache_bytes),
        if args.direct_reads { "directly" } else { "through the page cache" },
        args.threads,
        base.display(),
    ))
}

/// The stores of a bench, one per engine.
struct Stores<'a> {
    args: &'a BenchArgs,
    setup: &'a Setup,
    base: PathBuf,
    open: Vec<Option<Target>>,
    /// Runs so far: they draw different random numbers.
    run: u64,
}

impl Stores<'_> {
    fn all(&mut self) -> Result<Vec<Row>> {
        let args = self.args;
        let engines = args.io.len();
        let mut rows = Vec::new();
        for workload in &args.workloads {
            for round in 0..args.rounds as usize {
                self.run += 1;
                // The order turns, so that a drift of the machine falls on all engines alike.
                for i in 0..engines {
                    let e = (i + round) % engines;
                    let target = self.prepare(*workload, e)?;
                    let mut row = run::run(args, self.setup, &target, *workload, self.run)?;
                    row.round = round as u32 + 1;
                    rows.push(row);
                    if engines > 1 && workload.writes() {
                        // The next engine's run must not share the machine with this one's compactions.
                        target.settle()?;
                    }
                    self.open[e] = Some(target);
                }
            }
        }
        Ok(rows)
    }

    fn dir(&self, e: usize) -> PathBuf {
        if self.args.io.len() == 1 || self.args.use_existing_db {
            return self.base.clone();
        }
        let name = self.args.io[e].split(['?', '/', ':']).next().unwrap_or("io");
        self.base.join(format!("{e}-{name}"))
    }

    /// The store that a workload needs.
    fn prepare(&mut self, workload: Workload, e: usize) -> Result<Target> {
        let (args, io, dir) = (self.args, &self.args.io[e], self.dir(e));
        let default = if workload == Workload::Fillsync { Durability::Sync } else { Durability::Process };
        let durability = target::durability(args.durability, default);
        match self.open[e].take() {
            Some(t) if workload.is_fresh() => {
                t.db.close()?;
                at(&dir, std::fs::remove_dir_all(&dir))?;
                Target::fresh(args, io, &dir, durability)
            }
            // A store that fillsync has left is not what the other writers are to be measured on.
            Some(t) if workload.writes() && t.durability != durability => t.reopen(args, durability),
            Some(t) => Ok(t),
            None if args.use_existing_db => Target::existing(args, self.setup, io, &dir, args.io.len() > 1),
            None => {
                let t = Target::fresh(args, io, &dir, durability)?;
                if !workload.is_fresh() {
                    crate::error::warn(&format!("loading {} keys first", human_count(args.num)));
                    t.preload(self.setup)?;
                }
                Ok(t)
            }
        }
    }

    fn close(&mut self) -> Result<()> {
        for t in self.open.drain(..).flatten() {
            t.db.close()?;
        }
        Ok(())
    }
}
