//! `ringdb demo`: the main job on real input. It indexes this machine's own files, loads the records, closes,
//! reopens and verifies the store, then reads at random one by one, in batches and by prefix on each I/O engine
//! with a cache much smaller than the data, checks all that it reads, and shows what overlap gives.

mod index;
mod measure;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ringdb::{Db, Options, WriteBatch, WriteOptions};
use serde::Serialize;

use self::index::{Entry, Record};
use self::measure::Row;
use crate::cleanup::{self, TempDir};
use crate::engine::Settings;
use crate::error::{Result, failed};
use crate::out::{self, human_bytes, human_count, parse_bytes, parse_seconds};
use crate::store;

/// Arguments of `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// I/O engines to compare, separated by commas or given several times; @FILE takes what `ringdb doctor
    /// --write FILE` recommends
    #[arg(long, value_name = "URI", value_delimiter = ',', default_value = "posix,libaio,io_uring")]
    pub io: Vec<String>,
    /// Index the files below these directories [default: /usr, then others until there are 100,000 files]
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// Index at most this many files
    #[arg(long, value_name = "N", default_value_t = 250_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_files: u32,
    /// Time of each measurement: 3, 3s, 500ms
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Memory budget while reading [default: a twentieth of the data]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub cache_bytes: Option<u64>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Settings of the stores from a TOML file: the fields of `Options` by name. Other options of the command line go
    /// before it
    #[arg(long, value_name = "FILE")]
    pub options: Option<Settings>,
    /// What files say of stores
    #[arg(skip)]
    pub settings: Options,
}

impl DemoArgs {
    /// Takes the engines and settings of files, unless `given`, an option's name, was on the command line.
    pub fn settle(&mut self, given: impl Fn(&str) -> bool) -> Result<()> {
        self.settings = crate::engine::settle(&mut self.io, self.options.as_ref(), given("io"))?;
        let file = self.settings.given().contains(&"cache_bytes").then_some(self.settings.cache_bytes);
        self.cache_bytes = self.cache_bytes.or(file);
        Ok(())
    }
}

/// Keys in one multi_get.
const BATCH: usize = 64;

#[derive(Serialize)]
struct Report {
    files: u64,
    record_bytes: u64,
    table_bytes: u64,
    cache_bytes: u64,
    verified_bytes: u64,
    index_seconds: f64,
    seconds: f64,
    unavailable: Vec<String>,
    rows: Vec<Row>,
}

/// Does it all in a temporary directory that is gone afterwards, however it ends.
pub fn demo(args: &DemoArgs) -> Result<()> {
    let begun = Instant::now();
    if !(args.seconds > 0.0 && args.seconds <= 60.0) {
        return crate::error::usage("--seconds is between 0 and 60");
    }
    let temp = TempDir::new("ringdb-demo-")?;
    let dir = temp.path().join("store");
    let say = |s: String| if args.json { Ok(()) } else { out::text(&s) };
    if cleanup::in_memory(temp.path()) {
        say(format!("{} is in memory: reads will not wait for a device\n", temp.path().display()))?;
    }

    let (entries, record_bytes) = load(args, &dir)?;
    let index_seconds = begun.elapsed().as_secs_f64();
    say(format!(
        "indexed and loaded {} files in {index_seconds:.1} s: {} of records (path -> size, mode, mtime, digest, first bytes)\n",
        human_count(entries.len() as u64),
        human_bytes(record_bytes),
    ))?;

    let start = Instant::now();
    let db = Db::open_read_only(&dir, Options::default().with_create_if_missing(false))?;
    let report = db.verify()?;
    if let Some(p) = report.problems.first() {
        return failed(format!("verify after reopening found {}: {}", p.file, p.detail));
    }
    let table_bytes = db.stats().table_bytes;
    drop(db);
    say(format!(
        "closed, reopened and verified {} of tables and logs in {:.1} s\n",
        human_bytes(report.bytes),
        start.elapsed().as_secs_f64()
    ))?;

    let cache_bytes = args.cache_bytes.unwrap_or(table_bytes.max(record_bytes) / 20).max(1 << 20);
    say(format!(
        "reading past the page cache with a memory budget of {}, {:.0} times less than the data:\n\n",
        human_bytes(cache_bytes),
        table_bytes as f64 / cache_bytes as f64
    ))?;
    let (rows, unavailable) = measure_all(args, &dir, &entries, cache_bytes)?;
    drop(temp);
    if args.json {
        return out::json(&Report {
            files: entries.len() as u64,
            record_bytes,
            table_bytes,
            cache_bytes,
            verified_bytes: report.bytes,
            index_seconds,
            seconds: begun.elapsed().as_secs_f64(),
            unavailable,
            rows,
        });
    }
    out::text(&measure::table(&rows))?;
    for u in unavailable {
        out::text(&format!("not available: {u}\n"))?;
    }
    out::text(&format!(
        "\n{}every record read was checked; {:.0} s in all; nothing is left behind\n",
        measure::conclusion(&rows),
        begun.elapsed().as_secs_f64()
    ))
}

/// Indexes and loads; gives the entries in key order and the bytes of all records.
fn load(args: &DemoArgs, dir: &std::path::Path) -> Result<(Vec<Entry>, u64)> {
    let paths = index::paths(&args.root, args.max_files as usize)?;
    // What the engines are compared with, which is memory and reads, is not for the load.
    let options =
        Options::default().with_io("auto").with_memtable_bytes(16 << 20).with_cache_bytes(128 << 20);
    let db = Db::open(dir, options.over(args.settings.clone()).with_create_if_missing(true))?;
    let bar = out::count_bar(Some(paths.len() as u64));
    bar.set_message("indexing and loading");
    let mut entries = Vec::with_capacity(paths.len());
    let mut bytes = 0;
    let mut batch = WriteBatch::new();
    let options = WriteOptions::default();
    index::read_all(&paths, |Record { key, value }| {
        bytes += (key.len() + value.len()) as u64;
        batch.put(&key, &value);
        entries.push(Entry { digest: index::digest(&value), key });
        if batch.size_bytes() > 256 << 10 {
            bar.set_position(entries.len() as u64);
            db.write(std::mem::take(&mut batch), &options)?;
        }
        Ok(())
    })?;
    db.write(batch, &options)?;
    db.flush()?;
    db.close()?;
    bar.finish_and_clear();
    if entries.is_empty() {
        return failed("no readable files found; name directories with --root");
    }
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok((entries, bytes))
}

/// Each measurement in two rounds, the engines in turn.
fn measure_all(
    args: &DemoArgs,
    dir: &std::path::Path,
    entries: &[Entry],
    cache_bytes: u64,
) -> Result<(Vec<Row>, Vec<String>)> {
    const ROUNDS: u32 = 2;
    let mut unavailable = Vec::new();
    let mut stores = Vec::new();
    for io in &args.io {
        match store::check_engine(io) {
            Ok(()) => {
                let o = Options::default()
                    .with_create_if_missing(false)
                    .with_io(io)
                    .with_direct_reads(true)
                    .with_cache_bytes(cache_bytes)
                    .over(args.settings.clone());
                stores.push((io.clone(), Db::open_read_only(dir, o)?));
            }
            Err(crate::error::Failure::Failed(why)) => unavailable.push(format!("{io}: {why}")),
            Err(e) => return Err(e),
        }
    }
    let mut rows = Vec::new();
    for how in measure::How::ALL {
        let first = rows.len();
        rows.extend(stores.iter().map(|(io, _)| Row::new(io, how)));
        for round in 0..ROUNDS {
            for (i, (_, db)) in stores.iter().enumerate() {
                let time = Duration::from_secs_f64(args.seconds / f64::from(ROUNDS));
                measure::measure(db, dir, entries, how, time, round, &mut rows[first + i])?;
            }
        }
    }
    rows.iter_mut().for_each(Row::finish);
    Ok((rows, unavailable))
}
