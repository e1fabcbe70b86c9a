//! Opening the store that the arguments name.

use std::ffi::OsString;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ringdb::socket::Remote;
use ringdb::{
    Db, Durability, ExportReport, FormatReport, Ingester, Iter, Keyspace, Options, ReadOptions,
    TracingListener, Value, VerifyOptions, VerifyReport, WriteBatch,
};

use crate::coding::Coding;
use crate::engine::{Engine, Settings};
use crate::error::{Failure, Result, failed};
use crate::keys::KeyArgs;
use crate::out::parse_bytes;

/// The store.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
    /// I/O engine: auto, posix, libaio, io_uring, with options as in io_uring?depth=128, or sim (a simulated disk,
    /// gone afterwards); or @FILE for what `ringdb doctor --write FILE` recommends [default: auto]
    #[arg(long, value_name = "URI")]
    pub io: Option<Engine>,
    /// Settings of the store from a TOML file: the fields of `Options` by name, as cache_bytes = "64 MiB". Other
    /// options of the command line go before it; it goes before what the store remembers
    #[arg(long, value_name = "FILE")]
    pub options: Option<Settings>,
    /// Memory budget for cache, index, filters and memtables together [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub cache_bytes: Option<u64>,
    /// Read tables past the page cache: memory is then bounded by --cache-bytes
    #[arg(long)]
    pub direct_reads: bool,
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Tell of flushes, compactions, slowed writers and failures on standard error, as they happen
    #[arg(long, short)]
    pub verbose: bool,
}

/// A range of keys.
#[derive(Args, Debug)]
pub struct RangeArgs {
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,
}

/// Durability as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Not logged: lost with the process unless flushed
    None,
    /// Survives the death of the process
    Process,
    /// On the device before the call returns
    Sync,
}

impl From<Durability> for DurabilityArg {
    fn from(d: Durability) -> DurabilityArg {
        match d {
            Durability::None => DurabilityArg::None,
            Durability::Process => DurabilityArg::Process,
            Durability::Sync => DurabilityArg::Sync,
        }
    }
}

impl From<DurabilityArg> for Durability {
    fn from(d: DurabilityArg) -> Durability {
        match d {
            DurabilityArg::None => Durability::None,
            DurabilityArg::Process => Durability::Process,
            DurabilityArg::Sync => Durability::Sync,
        }
    }
}

/// The settings that the arguments give.
pub fn options(args: &StoreArgs) -> Options {
    let file = args.options.as_ref().map_or_else(Options::default, |s| s.0.clone());
    let o = args.io.as_ref().map_or(file.clone(), |io| io.over(file));
    // A flag can only add: a settings file may have said it before.
    let o = if args.direct_reads { o.with_direct_reads(true) } else { o };
    let o = told(args.verbose, args.keys.over(o));
    match args.cache_bytes {
        Some(n) => o.with_cache_bytes(n),
        None => o,
    }
}

/// These settings, with a listener that tells on standard error if `verbose`.
pub fn told(verbose: bool, options: Options) -> Options {
    if !verbose {
        return options;
    }
    let to_stderr =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    // There is one for the process: a second store of a command goes to it, too.
    let _ = to_stderr.try_init();
    options.with_listener(TracingListener)
}

/// A wrong engine URI is wrong usage, said before any file is touched.
pub fn check_engine(uri: &str) -> Result<()> {
    match engineswap::Io::from_uri_for(uri, engineswap::Uses::default()) {
        Ok(io) => {
            static SAID: std::sync::Once = std::sync::Once::new();
            let info = io.info();
            if info.name == "sim" {
                // What one command writes there no other sees.
                SAID.call_once(|| {
                    eprintln!(
                        "note: {} is a disk in memory; what it holds is gone when this command ends",
                        info.uri
                    );
                });
            }
            Ok(())
        }
        Err(e) if e.kind() == engineswap::ErrorKind::InvalidInput => Err(Failure::Usage(e.to_string())),
        Err(e) => Err(e.into()),
    }
}

/// Opens for reading only: works beside a running writer, never makes anything.
pub fn open_for_reading(args: &StoreArgs) -> Result<Db> {
    let o = options(args).with_create_if_missing(false);
    check_engine(&o.io)?;
    must_exist(&args.db)?;
    Ok(Db::open_read_only(&args.db, o)?)
}

/// The versions of the store's format, without opening it.
pub fn format(args: &StoreArgs) -> Result<FormatReport> {
    let o = options(args);
    check_engine(&o.io)?;
    must_exist(&args.db)?;
    Ok(Db::format(&args.db, &o)?)
}

/// Verifies the store: opened if that can be done, else what its directory holds.
pub fn verify(args: &StoreArgs, verify: &VerifyOptions) -> Result<VerifyReport> {
    let options = options(args).with_create_if_missing(false);
    check_engine(&options.io)?;
    must_exist(&args.db)?;
    match Db::open_read_only(&args.db, options.clone()) {
        Ok(db) => Ok(db.verify_with(verify)?),
        Err(ringdb::Error::Corrupt { .. } | ringdb::Error::Io(_)) => {
            Ok(Db::verify_dir_with(&args.db, &options, verify)?)
        }
        Err(e) => Err(e.into()),
    }
}

/// Opens for writing, with the lock. `create` makes a missing store.
pub fn open_for_writing(args: &StoreArgs, create: bool, durability: Option<DurabilityArg>) -> Result<Db> {
    warned(writable(args, create, durability)??)
}

fn writable(args: &StoreArgs, create: bool, durability: Option<DurabilityArg>) -> Result<ringdb::Result<Db>> {
    let o = options(args);
    let create = create && o.create_if_missing;
    let mut o = o.with_create_if_missing(create);
    check_engine(&o.io)?;
    if !create {
        must_exist(&args.db)?;
    }
    if let Some(d) = durability {
        o = o.with_durability(d.into());
    }
    Ok(Db::open(&args.db, o))
}

fn warned(db: Db) -> Result<Db> {
    if let Some(what) = db.stats().recovered_damage {
        crate::error::warn(&what);
    }
    Ok(db)
}

/// A store that can be worked on.
pub enum Reached {
    /// Opened here, for writing.
    Here(Db),
    /// Open in another process, which does what it is asked for.
    There(Remote),
}

/// Opens for writing; if another process has the store, connects to it.
pub fn open_or_reach(args: &StoreArgs) -> Result<Reached> {
    match writable(args, false, None)? {
        Ok(db) => warned(db).map(Reached::Here),
        Err(e @ ringdb::Error::Locked(_)) => match Remote::connect(&args.db)? {
            Some(remote) => Ok(Reached::There(remote)),
            None => failed(format!(
                "{e}; it does not answer at a socket there, by which it could be asked to do this (a build without \
                 one, `socket = false` in its options, or no socket could be made: `Stats::socket` says why)"
            )),
        },
        Err(e) => Err(e.into()),
    }
}

/// The process that has the store open and serves it, if there is one that may be asked.
pub fn reach(args: &StoreArgs) -> Result<Option<Remote>> {
    must_exist(&args.db)?;
    Remote::connect(&args.db).or_else(|e| {
        crate::error::warn(&format!("{e}; this is what a reader sees"));
        Ok(None)
    })
}

/// A path as another process has to be told it.
pub fn for_another(path: &Path) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    Ok(crate::error::at(path, std::path::absolute(path))?.into_os_string().into_vec())
}

/// Says so if there is no such directory.
pub fn must_exist(dir: &Path) -> Result<()> {
    match std::fs::metadata(dir) {
        Ok(m) if m.is_dir() => Ok(()),
        Ok(_) => failed(format!("{} is a file; --db takes the directory of a store", dir.display())),
        Err(e) => {
            failed(format!("no store in {}: {e}; `ringdb put` or `ringdb load` make one", dir.display()))
        }
    }
}

/// The keys that a verb works on: the default keyspace or a named one.
pub struct Space {
    /// The store.
    pub db: Db,
    keyspace: Option<Keyspace>,
}

impl Space {
    /// A keyspace that must exist.
    pub fn existing(db: Db, name: Option<&str>) -> Result<Space> {
        let Some(name) = name else { return Ok(Space { db, keyspace: None }) };
        match db.existing_keyspace(name)? {
            Some(k) => Ok(Space { db, keyspace: Some(k) }),
            None => {
                let names = db.keyspaces()?;
                let known = if names.is_empty() { "none".into() } else { names.join(", ") };
                failed(format!("no keyspace '{name}' in this store; it has: {known}"))
            }
        }
    }

    /// A keyspace, made if missing.
    pub fn made(db: Db, name: Option<&str>) -> Result<Space> {
        let keyspace = name.map(|n| db.keyspace(n)).transpose()?;
        Ok(Space { db, keyspace })
    }

    /// The values of many keys.
    pub fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Value>>> {
        Ok(match &self.keyspace {
            Some(k) => k.multi_get(keys)?,
            None => self.db.multi_get(keys)?,
        })
    }

    /// Adds a write to a batch.
    pub fn put_in(&self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
        match &self.keyspace {
            Some(k) => batch.put_in(k, key, value),
            None => batch.put(key, value),
        }
    }

    /// Adds a merge to a batch.
    pub fn merge_in(&self, batch: &mut WriteBatch, key: &[u8], operand: &[u8]) {
        match &self.keyspace {
            Some(k) => batch.merge_in(k, key, operand),
            None => batch.merge(key, operand),
        }
    }

    /// Adds a deletion to a batch.
    pub fn delete_in(&self, batch: &mut WriteBatch, key: &[u8]) {
        match &self.keyspace {
            Some(k) => batch.delete_in(k, key),
            None => batch.delete(key),
        }
    }

    /// Adds the deletion of all keys within bounds to a batch.
    pub fn delete_range_in(&self, batch: &mut WriteBatch, bounds: Bounds) {
        match &self.keyspace {
            Some(k) => batch.delete_range_in(k, bounds),
            None => batch.delete_range(bounds),
        }
    }

    /// The pairs within bounds, without sweeping the cache.
    pub fn range(&self, bounds: Bounds) -> Iter {
        let o = ReadOptions::default().fill_cache(false);
        match &self.keyspace {
            Some(k) => k.range_with(bounds, &o),
            None => self.db.range_with(bounds, &o),
        }
    }

    /// Writes the pairs within bounds as sorted tables.
    pub fn export(&self, bounds: Bounds, dir: &Path) -> Result<ExportReport> {
        Ok(match &self.keyspace {
            Some(k) => k.export_range(bounds, dir)?,
            None => self.db.export_range(bounds, dir)?,
        })
    }

    /// Takes pairs in ascending order, to be made part of the store at once.
    pub fn ingester(&self) -> Result<Ingester<'_>> {
        Ok(match &self.keyspace {
            Some(k) => k.ingester()?,
            None => self.db.ingester()?,
        })
    }

    /// Compacts the tables within bounds.
    pub fn compact(&self, bounds: Bounds) -> Result<()> {
        match &self.keyspace {
            Some(k) => k.compact_range(bounds)?,
            None => self.db.compact_range(bounds)?,
        }
        Ok(())
    }
}

/// Lower and upper bound of keys.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bounds that `--prefix`, `--from` and `--to` give together; `None` when no key can be within.
pub fn bounds(args: &RangeArgs, coding: Coding) -> Result<Option<Bounds>> {
    let arg = |name: &str, v: &Option<OsString>| v.as_deref().map(|v| coding.argument(name, v)).transpose();
    let mut from = arg("--from", &args.from)?;
    let mut to = arg("--to", &args.to)?;
    if let Some(prefix) = arg("--prefix", &args.prefix)? {
        if let Some(end) = prefix_end(&prefix) {
            to = Some(to.map_or(end.clone(), |t| t.min(end)));
        }
        from = Some(from.map_or(prefix.clone(), |f| f.max(prefix)));
    }
    if let (Some(f), Some(t)) = (&from, &to)
        && f >= t
    {
        return Ok(None);
    }
    Ok(Some((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded))))
}

/// The first key after all keys that begin with `prefix`; `None` if there is no such key.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(prefix: Option<&str>, from: Option<&str>, to: Option<&str>) -> Option<Bounds> {
        let os = |s: Option<&str>| s.map(OsString::from);
        let a = RangeArgs { prefix: os(prefix), from: os(from), to: os(to) };
        bounds(&a, Coding::Text).unwrap()
    }

    #[test]
    fn ranges_and_prefixes_meet() {
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(range(None, None, None), Some((Unbounded, Unbounded)));
        assert_eq!(range(Some("ab"), None, None), Some((Included(b"ab".into()), Excluded(b"ac".into()))));
        assert_eq!(
            range(Some("ab"), Some("abc"), Some("z")),
            Some((Included(b"abc".into()), Excluded(b"ac".into())))
        );
        assert_eq!(
            range(Some("ab"), Some("a"), Some("abx")),
            Some((Included(b"ab".into()), Excluded(b"abx".into())))
        );
        assert_eq!(range(Some("b"), None, Some("a")), None);
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
