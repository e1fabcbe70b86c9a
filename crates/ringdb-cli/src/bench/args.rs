//! Arguments of `ringdb bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ringdb::{Compression, Options};

use super::dist::Distribution;
use super::workload::Workload;
use crate::engine::Settings;
use crate::out::{parse_bytes, parse_seconds};
use crate::store::DurabilityArg;

/// Compression as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressionArg {
    /// Not at all
    None,
    /// LZ4
    Lz4,
    /// Zstandard, level 1
    Zstd,
}

impl From<CompressionArg> for Compression {
    fn from(c: CompressionArg) -> Compression {
        match c {
            CompressionArg::None => Compression::None,
            CompressionArg::Lz4 => Compression::Lz4,
            CompressionArg::Zstd => Compression::Zstd,
        }
    }
}

/// What to run, on what, how long.
///
/// Workloads have db_bench's names and meaning. The fill workloads start with a fresh store; the others run on
/// what is there. If the first workload needs keys and there is no store yet, the keys are loaded first and
/// that is not measured. Every read is checked: a wrong value, a missing key or a key that should not be there
/// ends the run with exit code 4.
///
/// The column "reads from" says whether a row has read the device, the page cache, or nothing but the store's memory.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Workloads, in this order
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "fillseq,fillrandom,readrandom,multireadrandom,seekrandom,readseq"
    )]
    pub workloads: Vec<Workload>,
    /// Keys in the key space
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub num: u64,
    /// Operations of a run, all threads together [default: --num; for fillsync a thousandth of it; without end
    /// if --duration is given]. A key is an operation, also in a batch; so is a row of readseq
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,
    /// Bytes of a key: 8 bytes of number, then the digit 0
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub key_size: u16,
    /// Bytes of a value; values compress to about a half
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_bytes)]
    pub value_size: u64,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// Clients are so many tasks with an operation each, on --threads threads, instead of the threads themselves: for
    /// fillrandom, overwrite, fillsync, readrandom and readmissing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["open_loop", "batch_size", "sample"])]
    pub async_tasks: Option<u32>,
    /// Keys in one write or one multi_get [default: 1, for multireadrandom 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: Option<u32>,
    /// Steps after each seek of seekrandom
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seek_nexts: u32,
    /// Memory budget for cache, index, filters and memtables together; the default is less than a third of the default
    /// data
    #[arg(long, value_name = "BYTES", default_value = "32MiB", value_parser = parse_bytes)]
    pub cache_bytes: u64,
    /// Read tables past the page cache: what is not in --cache-bytes comes from the device
    #[arg(long)]
    pub direct_reads: bool,
    /// Bytes of a memtable [default: 64 MiB, at most a quarter of --cache-bytes]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memtable_bytes: Option<u64>,
    /// I/O engines, separated by commas or given several times: each gets a store of its own and the same
    /// workloads, in turn. @FILE takes what `ringdb doctor --write FILE` recommends; options given here win
    #[arg(long, value_name = "URI", value_delimiter = ',', default_value = "auto")]
    pub io: Vec<String>,
    /// Times that each workload is run on each engine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Durability of the store [default: process; for fillsync sync]
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Compression of all levels [default: none; as the store remembers with --use-existing-db]
    #[arg(long, value_enum)]
    pub compression: Option<CompressionArg>,
    /// Tell of flushes, compactions, slowed writers and failures on standard error, as they happen
    #[arg(long, short)]
    pub verbose: bool,
    /// Encrypt the store, with a key that is made of --seed: for its speed, not as a secret
    #[arg(long)]
    pub encrypt: bool,
    /// Bloom filter bits per key [default: 10; as the store remembers with --use-existing-db]
    #[arg(long, value_name = "N")]
    pub bloom_bits: Option<u32>,
    /// Threads that flush and compact, 0 to choose by the machine
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub background_threads: usize,
    /// Of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// End each run after this time: 10, 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub duration: Option<f64>,
    /// Start this many operations a second, all threads together, whatever the store does; latencies count from
    /// the intended start
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub open_loop: Option<f64>,
    /// Time one call of so many (1: every call). Scans are timed in runs of 64 rows in any case
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,
    /// Write the results as a JSON list, - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory of the store [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// Run on the store that an earlier bench left in --db; not possible for fill workloads
    #[arg(long, requires = "db")]
    pub use_existing_db: bool,
    /// Which keys the ycsb workloads choose [default: latest for ycsb-d, else zipfian]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    #[command(flatten)]
    pub mix: MixArgs,
    /// Settings of the stores from a TOML file: the fields of `Options` by name. Other options of the command line go
    /// before it
    #[arg(long, value_name = "FILE")]
    pub options: Option<Settings>,
    /// What files say
    #[arg(skip)]
    pub settings: Options,
}

impl BenchArgs {
    /// Takes the settings of --options and of files that --io names, unless `given`, an option's name, was on the
    /// command line.
    pub fn settle(&mut self, given: impl Fn(&str) -> bool) -> crate::error::Result<()> {
        let file = crate::engine::settle(&mut self.io, self.options.as_ref(), given("io"))?;
        let says = file.given();
        let from_file = |name: &str, option: &str| says.contains(&name) && !given(option);
        if from_file("cache_bytes", "cache_bytes") {
            self.cache_bytes = file.cache_bytes;
        }
        if from_file("background_threads", "background_threads") {
            self.background_threads = file.background_threads;
        }
        if from_file("memtable_bytes", "memtable_bytes") {
            self.memtable_bytes = Some(file.memtable_bytes);
        }
        if from_file("durability", "durability") {
            self.durability = Some(file.durability.into());
        }
        // A flag can only add.
        self.direct_reads |= file.direct_reads;
        self.settings = file;
        Ok(())
    }
}

/// db_bench's parameters of mixgraph.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "mixgraph (the defaults are those of the engineswap study)")]
pub struct MixArgs {
    /// Keys of a range are accessed as y = a * x^b
    #[arg(long, value_name = "A", default_value_t = 0.002312)]
    pub key_dist_a: f64,
    /// The exponent; 0 for either makes all keys alike
    #[arg(long, value_name = "B", default_value_t = 0.3467)]
    pub key_dist_b: f64,
    /// Ranges are accessed as a * exp(b*x) + c * exp(d*x); all four 0 turn ranges off
    #[arg(long, value_name = "A", default_value_t = 14.18, allow_negative_numbers = true)]
    pub keyrange_dist_a: f64,
    /// b of the ranges
    #[arg(long, value_name = "B", default_value_t = -2.917, allow_negative_numbers = true)]
    pub keyrange_dist_b: f64,
    /// c of the ranges
    #[arg(long, value_name = "C", default_value_t = 0.0164, allow_negative_numbers = true)]
    pub keyrange_dist_c: f64,
    /// d of the ranges
    #[arg(long, value_name = "D", default_value_t = -0.08082, allow_negative_numbers = true)]
    pub keyrange_dist_d: f64,
    /// Number of ranges
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub keyrange_num: u64,
    /// Location of the generalized Pareto distribution of value sizes
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    pub value_theta: f64,
    /// Its shape
    #[arg(long, value_name = "K", default_value_t = 0.2615)]
    pub value_k: f64,
    /// Its scale
    #[arg(long, value_name = "SIGMA", default_value_t = 25.45)]
    pub value_sigma: f64,
    /// Location of the generalized Pareto distribution of scan lengths
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    pub iter_theta: f64,
    /// Its shape
    #[arg(long, value_name = "K", default_value_t = 2.517)]
    pub iter_k: f64,
    /// Its scale
    #[arg(long, value_name = "SIGMA", default_value_t = 14.236)]
    pub iter_sigma: f64,
    /// Share of gets
    #[arg(long, value_name = "RATIO", default_value_t = 0.83)]
    pub mix_get_ratio: f64,
    /// Share of puts
    #[arg(long, value_name = "RATIO", default_value_t = 0.14)]
    pub mix_put_ratio: f64,
    /// Share of seeks
    #[arg(long, value_name = "RATIO", default_value_t = 0.03)]
    pub mix_seek_ratio: f64,
    /// Largest value
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(10..=1 << 20))]
    pub mix_max_value_size: u64,
    /// Scan lengths are taken modulo this
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub mix_max_scan_len: u64,
    /// Limit the rate of accesses to a sine wave over time: a * sin(b*t + c) + d a second
    #[arg(long)]
    pub sine_mix_rate: bool,
    /// How often the rate is set anew
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    pub sine_mix_rate_interval_milliseconds: u64,
    /// Noise on the rate, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    pub sine_mix_rate_noise: f64,
    /// Amplitude
    #[arg(long, value_name = "A", default_value_t = 1000.0)]
    pub sine_a: f64,
    /// Frequency
    #[arg(long, value_name = "B", default_value_t = 0.000073)]
    pub sine_b: f64,
    /// Phase
    #[arg(long, value_name = "C", default_value_t = 0.0)]
    pub sine_c: f64,
    /// Mean
    #[arg(long, value_name = "D", default_value_t = 4500.0)]
    pub sine_d: f64,
}

fn positive_time(s: &str) -> Result<f64, String> {
    match parse_seconds(s)? {
        x if x > 0.0 => Ok(x),
        _ => Err(format!("'{s}' is no time")),
    }
}

fn positive(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(x) if x > 0.0 && x < 1e12 => Ok(x),
        _ => Err(format!("'{s}' is not a positive number")),
    }
}
