//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::args::BenchArgs;
use crate::coding::CodingArgs;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::engine::{Engine, Settings};
use crate::fileperf::args::FilePerfArgs;
use crate::keys::KeyArgs;
use crate::lab::LabArgs;
use crate::out::parse_bytes;
use crate::store::{DurabilityArg, RangeArgs, StoreArgs};
use crate::top::TopArgs;
use crate::trace::TraceArgs;

/// Operate, measure and diagnose a ringdb store.
///
/// Exit codes: 0 when it went well; 1 when the answer is no: a key that `get` was asked for is absent, `verify` or
/// `backup --verify` found problems, `salvage` could make no new store; 2 when the arguments are wrong; 3 when
/// `salvage` made a new store but something was lost; 4 when it failed; 128 and the signal's number when a signal ended
/// it.
#[derive(Parser, Debug)]
#[command(name = "ringdb", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Load records from files or standard input
    Load(LoadArgs),
    /// Load all records of another kind of store
    ///
    /// A LevelDB store and tables of `export` come as one, by an ingest: all of it is there when the command has
    /// ended, or nothing if it was ended before. RocksDB's records come in batches.
    Import(ImportArgs),
    /// Write all records to standard output or a file, in a format that `load` reads back byte for byte
    Dump(DumpArgs),
    /// Write the records of a range as sorted tables, which `import --from tables` takes into any store
    ///
    /// Safe beside a running writer. If it does not come to its end there is no export: `import` refuses what is left.
    Export(ExportArgs),
    /// Print the values of keys; exit code 1 if one is absent
    Get(GetArgs),
    /// Set a key
    Put(PutArgs),
    /// Merge operands into the value of a key, by the merge operator of the keyspace
    ///
    /// `add` sums numbers (--number), `max` keeps the greatest, `append` puts one behind the other, `append:SEPARATOR`
    /// with something between them. All operands are merged together or none.
    Merge(MergeArgs),
    /// Delete keys, or all keys of a range at the cost of one
    Del(DelArgs),
    /// Print pairs in key order, a line each
    Scan(ScanArgs),
    /// Count keys
    Count(CountArgs),
    /// Print counters and sizes
    Stats(PlainArgs),
    /// Print what a store counts, for Prometheus; or serve it by HTTP
    ///
    /// Of a store that another process has open, by its socket. Counters start when a store is opened, so that of one
    /// that nobody has open only sizes say something.
    Metrics(MetricsArgs),
    /// Watch a store that another process has open: rates, latencies, levels, compactions, stalls, memory
    ///
    /// It asks that process by the socket in the store's directory, every second. q quits.
    Top(TopArgs),
    /// Read every byte, check every checksum, order and reference; exit code 1 if anything is wrong
    ///
    /// Each problem is named with its file, level, block, offset and range of keys, and how much it affects.
    /// Safe beside a running writer.
    Verify(PlainArgs),
    /// Recover all that can be read of a damaged store into a new one; exit code 3 if something was lost
    ///
    /// SRC is never changed. It works when tables, the log, CURRENT or the manifest are damaged or missing. What was
    /// lost, and where keys may be out of date because of that, is listed. Exit codes: 0 all was recovered, 1 there is
    /// no new store, 2 the arguments are wrong, 3 there is a new store but something was lost.
    Salvage(SalvageArgs),
    /// Merge the tables down to the last level
    Compact(CompactArgs),
    /// Write what memtables and the log hold to tables
    Flush(PlainArgs),
    /// Copy the store, by hard links, into a new directory of the same file system
    Checkpoint(CheckpointArgs),
    /// Say which format version the store and its files have, and raise it to the newest; --dry-run only says
    ///
    /// An upgrade begins a new manifest, and flushes what the log holds; from then on older builds refuse the store.
    /// Tables of older versions stay as they are and stay readable. Any other verb that writes does the same.
    Upgrade(UpgradeArgs),
    /// Back the store up: one more generation in a directory on any file system
    ///
    /// Tables that a former generation has are not copied again. Every block of the others is checked on its way. A
    /// crash leaves the former generations whole. `--verify` and `--list` look at what is there, without a store.
    Backup(BackupArgs),
    /// Make a new store of a backup, checking every byte
    Restore(RestoreArgs),
    /// List, create or drop keyspaces
    Keyspaces(KeyspacesArgs),
    /// Measure: db_bench's workloads on any I/O engine
    Bench(Box<BenchArgs>),
    /// Measure: reads and writes of one file, as fio does, on any I/O engine
    Fileperf(Box<FilePerfArgs>),
    /// Say what works here, measure it for some seconds, recommend an engine and settings
    Doctor(DoctorArgs),
    /// Measure: repeat the published studies of I/O interfaces, side by side with their figures
    Lab(LabArgs),
    /// Say where the time of each request of a program goes, stage by stage, by probes and tracepoints; flame graphs
    ///
    /// Runs a program that has engineswap's probes (this command, RocksDB with the plugin), or attaches to one, under
    /// bpftrace, as root: `ringdb trace --engines posix,io_uring -- ringdb bench --workloads readrandom`. What the
    /// program prints goes to standard error. Events that were lost are told, and the stages are checked against the
    /// whole.
    Trace(TraceArgs),
    /// Index this machine's files and show what overlapping reads give on each I/O engine
    Demo(DemoArgs),
    /// Print a completion script
    Completions(CompletionsArgs),
    /// Print the manual page, or write one page per verb
    Man(ManArgs),
}

/// The keyspace.
#[derive(Args, Debug)]
pub struct KeyspaceArg {
    /// Work on this keyspace instead of the default one
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
}

/// A record format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Key, TAB, value; \t \n \r \\ stand for bytes that would end a field
    Tsv,
    /// Comma-separated with a header line; the columns are chosen by name
    Csv,
    /// One JSON object a line: {"key": .., "value": ..}, or key_base64, key_hex, value_base64, value_hex
    Jsonl,
    /// Length-prefixed: the lengths of key and value (4 bytes each, little endian), the key, the value
    Binary,
    /// What RocksDB's `ldb dump --hex` prints: 0xKEY ==> 0xVALUE, a line each, and how many there were
    Ldb,
}

/// A store of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Foreign {
    /// RocksDB, read by its tool `ldb` (Debian: rocksdb-tools)
    Rocksdb,
    /// LevelDB, read without its library; nobody may have it open
    Leveldb,
    /// What `ringdb export` has written
    Tables,
}

/// What to do about a bad record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Stop there; what precedes it is loaded, with --sorted nothing
    Stop,
    /// Report it and go on
    Skip,
}

/// How records are written.
#[derive(Args, Debug)]
pub struct FormatArgs {
    /// Record format [default: by the file's extension, else tsv]
    #[arg(long, short, value_enum)]
    pub format: Option<Format>,
    /// Column of the keys in CSV
    #[arg(long, value_name = "NAME", default_value = "key")]
    pub key_column: String,
    /// Column of the values in CSV
    #[arg(long, value_name = "NAME", default_value = "value")]
    pub value_column: String,
    #[command(flatten)]
    pub coding: CodingArgs,
}

/// Arguments of `load`.
#[derive(Args, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub format: FormatArgs,
    /// What to do about a bad record
    #[arg(long, value_enum, default_value = "stop")]
    pub on_error: OnError,
    /// The records come in ascending order of their keys, each key once: they are ingested, all of them at once.
    /// Faster, and nothing is loaded if one is out of order, or bad without --on-error skip, or the command is
    /// interrupted
    #[arg(long, conflicts_with_all = ["batch_size", "durability"])]
    pub sorted: bool,
    /// Records written in one batch
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: u32,
    /// Durability of the batches; everything is on the device when the command has ended
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Files to load; standard input if none or -
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Arguments of `import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    /// What kind of store it is
    #[arg(long, value_enum)]
    pub from: Foreign,
    /// The column family to import, of RocksDB [default: default]
    #[arg(long, value_name = "NAME")]
    pub column_family: Option<String>,
    /// RocksDB's tool [default: ldb]
    #[arg(long, value_name = "PATH")]
    pub ldb: Option<PathBuf>,
    /// Durability of the batches in which RocksDB's records are written; everything is on the device when the command
    /// has ended
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Directory of the other store, or of the tables
    #[arg(value_name = "SRC")]
    pub src: PathBuf,
}

/// Arguments of `dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub format: FormatArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// The same as --format jsonl
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Print what was written as JSON
    #[arg(long)]
    pub json: bool,
    /// Directory of the tables: it must not exist or be empty
    #[arg(value_name = "OUT")]
    pub dir: PathBuf,
}

/// Arguments of `get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// Print an object a key: {"key": .., "value": ..}; the value of an absent key is null
    #[arg(long, conflicts_with = "raw")]
    pub json: bool,
    /// Print nothing but the bytes of the values: no line end after them
    #[arg(long)]
    pub raw: bool,
    /// Keys
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<OsString>,
}

/// Arguments of `put`.
#[derive(Args, Debug)]
pub struct PutArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// Durability of the write
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// Take the value from this file, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub value_file: Option<PathBuf>,
    /// Key
    #[arg(value_name = "KEY")]
    pub key: OsString,
    /// Value
    #[arg(value_name = "VALUE", required_unless_present = "value_file")]
    pub value: Option<OsString>,
}

/// Arguments of `merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// Give the keyspace this merge operator first: add, max, append, append:SEPARATOR. It keeps it; the store and the
    /// keyspace are made if missing
    #[arg(long, value_name = "NAME")]
    pub operator: Option<String>,
    /// The operands are whole numbers, which `add` takes: 8 bytes, little endian
    #[arg(long, conflicts_with = "hex")]
    pub number: bool,
    /// Durability of the write
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// Key
    #[arg(value_name = "KEY")]
    pub key: OsString,
    /// Operands, oldest first
    #[arg(value_name = "OPERAND", required = true, allow_negative_numbers = true)]
    pub operands: Vec<OsString>,
}

/// Arguments of `del`.
#[derive(Args, Debug)]
pub struct DelArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    /// Durability of the deletion
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// Delete the keys of a range
    #[command(flatten)]
    pub range: RangeArgs,
    /// Delete all keys of the keyspace
    #[arg(long, conflicts_with_all = ["prefix", "from", "to", "keys"])]
    pub all: bool,
    /// Keys; it is no error if one is absent
    #[arg(value_name = "KEY")]
    pub keys: Vec<OsString>,
}

/// Arguments of `scan`.
#[derive(Args, Debug)]
pub struct ScanArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// At most this many pairs
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// Print keys without values
    #[arg(long)]
    pub keys_only: bool,
    /// Print an object a line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `count`.
#[derive(Args, Debug)]
pub struct CountArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `stats`, `flush` and `verify`.
#[derive(Args, Debug)]
pub struct PlainArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `metrics`.
#[derive(Args, Debug)]
pub struct MetricsArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// In OpenMetrics instead of Prometheus's text format
    #[arg(long)]
    pub open_metrics: bool,
    /// Serve them at http://ADDRESS:PORT/metrics until a signal ends it: of whichever process has the store open then.
    /// Only on addresses of this machine, as 127.0.0.1:9464; port 0 takes a free one. In the format that
    /// who asks accepts
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["open_metrics", "io", "options", "cache_bytes", "direct_reads"])]
    pub listen: Option<SocketAddr>,
}

/// Arguments of `salvage`.
#[derive(Args, Debug)]
pub struct SalvageArgs {
    /// I/O engine: auto, posix, libaio, io_uring, with options as in io_uring?depth=128; or @FILE for what
    /// `ringdb doctor --write FILE` recommends [default: auto]
    #[arg(long, value_name = "URI")]
    pub io: Option<Engine>,
    /// A settings file (TOML), of which io is used
    #[arg(long, value_name = "FILE")]
    pub options: Option<Settings>,
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Take whole frames of the log that follow a gap in it too: newer writes are there then, though older ones
    /// between them are missing
    #[arg(long)]
    pub frames_after_gaps: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Directory of the damaged store; nobody may have it open for writing
    #[arg(value_name = "SRC")]
    pub src: PathBuf,
    /// Directory of the new store: it must not exist or be empty, and lie outside of SRC
    #[arg(value_name = "DST")]
    pub dst: PathBuf,
}

/// Arguments of `compact`.
#[derive(Args, Debug)]
pub struct CompactArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub keyspace: KeyspaceArg,
    #[command(flatten)]
    pub coding: CodingArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Write every table of the store anew, in all keyspaces, as it would be written now: with the newest key of
    /// --key-file, and the settings of now
    #[arg(long, conflicts_with_all = ["keyspace", "prefix", "from", "to"])]
    pub rewrite: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `checkpoint`.
#[derive(Args, Debug)]
pub struct CheckpointArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// The new directory
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
}

/// Arguments of `upgrade`.
#[derive(Args, Debug)]
pub struct UpgradeArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Change nothing: only say what an upgrade would do
    #[arg(long)]
    pub dry_run: bool,
    /// Print the versions as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `backup`.
#[derive(Args, Debug)]
pub struct BackupArgs {
    /// Directory of the store
    #[arg(long, value_name = "DIR", required_unless_present_any = ["verify", "list"])]
    pub db: Option<PathBuf>,
    /// I/O engine: auto, posix, libaio, io_uring, with options as in io_uring?depth=128; or @FILE for what
    /// `ringdb doctor --write FILE` recommends [default: auto]
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
    /// Keep this many generations, with the new one; remove older ones [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Make no backup: read every byte of those that are there; exit code 1 if anything is wrong
    #[arg(long, conflicts_with_all = ["db", "keep", "list"])]
    pub verify: bool,
    /// Make no backup: list those that are there
    #[arg(long, conflicts_with_all = ["db", "keep"])]
    pub list: bool,
    /// Tell of flushes, compactions, slowed writers and failures on standard error, as they happen
    #[arg(long, short)]
    pub verbose: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// The directory of the backups, one for each store; made if missing
    #[arg(value_name = "TO")]
    pub dir: PathBuf,
}

/// Arguments of `restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// I/O engine: auto, posix, libaio, io_uring, with options as in io_uring?depth=128; or @FILE for what
    /// `ringdb doctor --write FILE` recommends [default: auto]
    #[arg(long, value_name = "URI")]
    pub io: Option<Engine>,
    /// A settings file (TOML), of which io is used
    #[arg(long, value_name = "FILE")]
    pub options: Option<Settings>,
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Restore this generation instead of the newest
    #[arg(long, value_name = "N")]
    pub generation: Option<u64>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// The directory of the backups
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
    /// Directory of the new store: it must not exist or be empty
    #[arg(value_name = "TO")]
    pub to: PathBuf,
}

/// Arguments of `keyspaces`.
#[derive(Args, Debug)]
pub struct KeyspacesArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Make a keyspace
    #[arg(long, value_name = "NAME", conflicts_with = "drop")]
    pub create: Option<String>,
    /// Drop a keyspace with all its keys
    #[arg(long, value_name = "NAME")]
    pub drop: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write ringdb.1 and a page per verb into this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_on_a_store_takes_the_store_and_the_engine() {
        for c in Cli::command().get_subcommands() {
            let has = |name: &str| c.get_arguments().any(|a| a.get_long() == Some(name));
            if !["completions", "man", "help", "lab", "trace"].contains(&c.get_name()) {
                // It asks who has the store open, and opens none.
                if c.get_name() == "top" {
                    assert!(has("json") && has("db"));
                    continue;
                }
                assert!(has("io") || c.get_name() == "doctor", "{}", c.get_name());
                // What `metrics` prints is a format that other programs read; `stats --json` has the same.
                assert!(has("json") || c.get_name() == "metrics", "{}", c.get_name());
                assert!(
                    has("db") || ["demo", "fileperf", "salvage", "restore"].contains(&c.get_name()),
                    "{}",
                    c.get_name()
                );
                assert!(has("direct-reads") || !has("db") || c.get_name() == "doctor", "{}", c.get_name());
                // Those that open no store have nothing that settings could be for.
                assert!(has("options") || ["doctor", "fileperf"].contains(&c.get_name()), "{}", c.get_name());
            }
        }
    }

    #[test]
    fn the_default_bench_has_more_data_than_memory() {
        let cli = Cli::try_parse_from(["ringdb", "bench"]).unwrap();
        let Verb::Bench(a) = cli.verb else { panic!("another verb") };
        assert!(a.num * (u64::from(a.key_size) + a.value_size) >= 3 * a.cache_bytes, "{a:?}");
    }
}
