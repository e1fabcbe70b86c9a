//! `ringdb load`: records into the store, in batches.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use ringdb::{MAX_KEY_BYTES, MAX_VALUE_BYTES, WriteBatch, WriteOptions};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Format, ImportArgs, LoadArgs, OnError};
use crate::error::{Failure, Result, at, failed};
use crate::formats::{self, Next, RecordReader};
use crate::out::{self, human_bytes, human_count};
use crate::store::{self, DurabilityArg, Space};

/// A batch is committed when it holds this many bytes, whatever its count.
const BATCH_BYTES: usize = 4 << 20;

/// How long an interrupted load may wait for the record that it is reading.
const PATIENCE: Duration = Duration::from_millis(500);

/// In place of a count of records: they are becoming part of the store.
const UNKNOWN: u64 = u64::MAX;

/// What was loaded.
#[derive(Default, Serialize)]
pub(super) struct Summary {
    pub(super) records: u64,
    pub(super) skipped: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Summary {
    /// Prints it.
    pub(super) fn say(&self, json: bool) -> Result<()> {
        if json {
            return out::json(self);
        }
        let skipped = match self.skipped {
            0 => String::new(),
            n => format!(", {n} bad ones skipped"),
        };
        out::text(&format!(
            "loaded {} records ({}) in {:.2} s{skipped}\n",
            human_count(self.records),
            human_bytes(self.bytes),
            self.seconds
        ))
    }
}

/// What reads records and commits them.
pub(super) struct Loader {
    on_error: OnError,
    batch_size: usize,
    space: Space,
    batch: WriteBatch,
    options: WriteOptions,
    summary: Summary,
    bar: ProgressBar,
    interrupt: Arc<Interrupt>,
}

/// Loads the files, or standard input.
pub fn load(args: &LoadArgs) -> Result<()> {
    let from_stdin = args.files.is_empty() || args.files.iter().any(|f| is_stdin(f));
    let mut total = 0;
    for f in args.files.iter().filter(|f| !is_stdin(f)) {
        let m = at(f, std::fs::metadata(f))?;
        if m.is_dir() {
            return failed(format!("{} is a directory; give files, or - for standard input", f.display()));
        }
        total += m.len();
    }
    let db = store::open_for_writing(&args.store, true, args.durability)?;
    let loader = Loader {
        on_error: args.on_error,
        batch_size: args.batch_size as usize,
        space: Space::made(db, args.keyspace.keyspace.as_deref())?,
        batch: WriteBatch::new(),
        options: write_options(args.durability),
        summary: Summary::default(),
        bar: out::bytes_bar((!from_stdin).then_some(total)),
        interrupt: Interrupt::watch()?,
    };
    finish(loader, args.json, |loader| loader.all(args))
}

fn write_options(durability: Option<DurabilityArg>) -> WriteOptions {
    durability.map_or_else(WriteOptions::default, |d| WriteOptions::default().durability(d.into()))
}

/// Loads what `read` reads into a store that `import` was asked for.
pub(super) fn load_foreign(args: &ImportArgs, read: impl FnOnce(&mut Loader) -> Result<()>) -> Result<()> {
    let db = store::open_for_writing(&args.store, true, args.durability)?;
    let loader = Loader {
        on_error: OnError::Stop,
        batch_size: 1000,
        space: Space::made(db, args.keyspace.keyspace.as_deref())?,
        batch: WriteBatch::new(),
        options: write_options(args.durability),
        summary: Summary::default(),
        bar: out::bytes_bar(None),
        interrupt: Interrupt::watch()?,
    };
    finish(loader, args.json, read)
}

fn finish(mut loader: Loader, json: bool, read: impl FnOnce(&mut Loader) -> Result<()>) -> Result<()> {
    let start = Instant::now();
    let done = read(&mut loader);
    loader.commit()?;
    loader.space.db.flush()?;
    loader.bar.finish_and_clear();
    loader.summary.seconds = start.elapsed().as_secs_f64();
    let s = &loader.summary;
    if let Err(e) = &done {
        let why = if matches!(e, Failure::Interrupted(_)) { "interrupted: " } else { "" };
        crate::error::warn(&format!("{why}{} records are loaded", human_count(s.records)));
    } else {
        s.say(json)?;
    }
    loader.space.db.close()?;
    done
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Loader {
    fn all(&mut self, args: &LoadArgs) -> Result<()> {
        if args.files.is_empty() {
            return self.input(args, Path::new("-"));
        }
        args.files.iter().try_for_each(|f| self.input(args, f))
    }

    fn input(&mut self, args: &LoadArgs, path: &Path) -> Result<()> {
        let (name, input): (String, Box<dyn BufRead>) = if is_stdin(path) {
            ("standard input".into(), Box::new(BufReader::new(self.bar.wrap_read(io::stdin()))))
        } else {
            let file = at(path, File::open(path))?;
            let input = BufReader::with_capacity(256 << 10, self.bar.wrap_read(file));
            (path.display().to_string(), Box::new(input))
        };
        let format = args.format.format.or_else(|| formats::by_extension(path)).unwrap_or(Format::Tsv);
        let mut reader =
            formats::reader(format, &args.format, input).or_else(|e| failed(format!("{name}: {e}")))?;
        self.records(&name, &mut *reader)
    }

    /// The bar that shows how much was read.
    pub(super) fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Loads all that `reader` reads of the input `name`.
    pub(super) fn records(&mut self, name: &str, reader: &mut dyn RecordReader) -> Result<()> {
        loop {
            if let Some(signal) = self.interrupt.came() {
                return Err(Failure::Interrupted(signal));
            }
            let next = reader.next().map_err(|e| Failure::Failed(format!("{name}: {e}")))?;
            let (line, why) = match next {
                Next::End => return Ok(()),
                Next::Bad { line, why } => (line, why),
                Next::Record { line, key, value } => match too_long(&key, &value) {
                    Some(why) => (line, why),
                    None => {
                        self.add(&key, &value)?;
                        continue;
                    }
                },
            };
            let message = format!("{name}, line {line}: {why}");
            if self.on_error == OnError::Stop {
                return failed(format!("{message}; mend it, or go on past bad records with --on-error skip"));
            }
            self.summary.skipped += 1;
            self.bar.suspend(|| crate::error::warn(&format!("{message}; skipped")));
        }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.space.put_in(&mut self.batch, key, value);
        self.summary.records += 1;
        self.summary.bytes += (key.len() + value.len()) as u64;
        if self.batch.len() >= self.batch_size || self.batch.size_bytes() >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            let n = self.batch.len() as u64;
            self.space.db.write(std::mem::take(&mut self.batch), &self.options)?;
            self.interrupt.loaded.fetch_add(n, Relaxed);
        }
        Ok(())
    }
}

/// A signal that asks the command to end. It is looked at before each record, so that what was read is committed and
/// counted. Where a record does not come (standard input is a terminal or an idle pipe), another thread says
/// what has been committed by then and ends the process; so does a second signal.
pub(super) struct Interrupt {
    signal: AtomicI32,
    noticed: AtomicBool,
    /// Records committed.
    loaded: AtomicU64,
}

impl Interrupt {
    pub(super) fn watch() -> Result<Arc<Interrupt>> {
        let it = Arc::new(Interrupt {
            signal: AtomicI32::new(0),
            noticed: AtomicBool::new(false),
            loaded: AtomicU64::new(0),
        });
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let watched = it.clone();
        std::thread::spawn(move || watched.run(&mut signals));
        Ok(it)
    }

    fn run(&self, signals: &mut Signals) {
        let mut signals = signals.forever();
        let Some(first) = signals.next() else { return };
        self.signal.store(first, Relaxed);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.noticed.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.noticed.load(Relaxed) {
            // The rest may take its time; who is in a hurry asks again.
            let _ = signals.next();
        }
        crate::error::warn(&match self.loaded.load(Relaxed) {
            UNKNOWN => "interrupted: `ringdb count` says whether the records are in the store".into(),
            n => format!("interrupted: {} records are loaded", human_count(n)),
        });
        std::process::exit(128 + first);
    }

    /// From here on one signal is too late: what is being done is done whole, or not at all.
    pub(super) fn not_now(&self) {
        self.loaded.store(UNKNOWN, Relaxed);
        self.noticed.store(true, Relaxed);
    }

    /// The signal, if one came.
    pub(super) fn came(&self) -> Option<u8> {
        let signal = u8::try_from(self.signal.load(Relaxed)).ok().filter(|s| *s != 0)?;
        self.noticed.store(true, Relaxed);
        Some(signal)
    }
}

/// What is wrong with a record that no store takes.
pub(super) fn too_long(key: &[u8], value: &[u8]) -> Option<String> {
    if key.len() as u64 > MAX_KEY_BYTES as u64 {
        return Some(format!("the key has {} bytes; at most {MAX_KEY_BYTES} are possible", key.len()));
    }
    if value.len() as u64 > MAX_VALUE_BYTES as u64 {
        return Some(format!("the value has {} bytes; at most {MAX_VALUE_BYTES} are possible", value.len()));
    }
    None
}
