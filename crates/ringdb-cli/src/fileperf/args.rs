//! Arguments of `ringdb fileperf`.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};

use crate::error::{Result, usage};
use crate::out::{parse_bytes, parse_seconds};

/// What is done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Reads at random places
    Randread,
    /// Reads one after the other
    Seqread,
    /// Writes at random places
    Randwrite,
    /// Writes one after the other
    Seqwrite,
    /// Reads and writes at random places, mixed by --rwmixread
    Randrw,
}

impl Mode {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Randread => "randread",
            Mode::Seqread => "seqread",
            Mode::Randwrite => "randwrite",
            Mode::Seqwrite => "seqwrite",
            Mode::Randrw => "randrw",
        }
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        !matches!(self, Mode::Randread | Mode::Seqread)
    }

    /// Whether places are random.
    pub fn random(self) -> bool {
        !matches!(self, Mode::Seqread | Mode::Seqwrite)
    }
}

/// Measure reads and writes of one file on I/O engines.
///
/// The file is written before it is read, so that no read meets an unwritten extent: a file that is missing is
/// made, one that is whole is taken as it is. Each engine runs --rounds times, in turn with the others; rates are
/// the median of these rounds. Every job is a thread with a queue and random numbers of its own. On posix a job of
/// depth 1 uses plain pread and pwrite (with queue_always the engine's pool), deeper ones the pool (as many threads as
/// requests in flight, at most 256, unless the URI says threads=).
#[derive(Args, Debug)]
pub struct FilePerfArgs {
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub numjobs: u32,
    /// Requests in flight of each job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub iodepth: u32,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = parse_bytes)]
    pub bs: u64,
    /// What to do
    #[arg(long, value_enum, default_value = "randread")]
    pub rw: Mode,
    /// Reads among the requests of randrw, in percent [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: Option<u8>,
    /// Bytes of the file that are used
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_bytes)]
    pub size: u64,
    /// Time to measure each engine (and each cell of the matrix), its rounds together: 10, 10s, 500ms
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_seconds)]
    pub runtime: f64,
    /// How often each is measured, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// Time before each round that does not count
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_seconds)]
    pub warmup: f64,
    /// The file, kept afterwards, or a block device [default: a temporary file, removed at the end]
    #[arg(long, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub direct: bool,
    /// Use buffers that are registered with the kernel (the engine's option fixed_buffers)
    #[arg(long, conflicts_with = "matrix")]
    pub fixed_buffers: bool,
    /// Use files that are registered with the kernel (the engine's option fixed_files)
    #[arg(long)]
    pub fixed_files: bool,
    /// Submit so many requests, and wait for so many, with one call; at most --iodepth
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
    /// Compute for so many microseconds before each submission, as a program does that uses what it read
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub think_us: u32,
    /// I/O engines, separated by commas or given several times; @FILE takes what `ringdb doctor` wrote
    #[arg(long, value_name = "URI", value_delimiter = ',', default_value = "auto")]
    pub io: Vec<String>,
    /// Run {1, 16} jobs x {1, 16} depth x {randwrite, randread}, with and without registered buffers; adds a plot
    /// beside the JSON or CSV file, or fileperf-matrix.svg here
    #[arg(long, conflicts_with_all = ["numjobs", "iodepth", "rw", "rwmixread"])]
    pub matrix: bool,
    /// Check every byte that is read, and all of the file at the end of each round; each job then has a part of
    /// the file to itself
    #[arg(long)]
    pub verify: bool,
    /// Write the results as a JSON list, - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results as CSV, - for standard output
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl FilePerfArgs {
    /// Takes the engines of files that --io names. There is no store that their settings could be for.
    pub fn settle(&mut self) -> Result<()> {
        let unused = crate::engine::names(&crate::engine::settle(&mut self.io, None, true)?);
        if !unused.is_empty() {
            crate::error::warn(&format!("not used here, where there is no store: {}", unused.join(", ")));
        }
        Ok(())
    }

    /// What clap cannot check.
    pub fn check(&self) -> Result<()> {
        if self.runtime <= 0.0 {
            return usage("--runtime must be above 0");
        }
        if self.rwmixread.is_some() && self.rw != Mode::Randrw {
            return usage("--rwmixread is for --rw randrw");
        }
        if !(512..=1 << 30).contains(&self.bs) || !self.bs.is_multiple_of(512) {
            return usage("--bs takes a multiple of 512 up to 1 GiB");
        }
        if self.size < self.bs {
            return usage("--size is smaller than --bs: there would be nothing to do");
        }
        let (jobs, depth) = if self.matrix { (16, 16) } else { (self.numjobs, self.iodepth) };
        if self.batch > depth {
            return usage(format!("--batch {} is more than the {depth} requests in flight", self.batch));
        }
        // A block is in flight once at a time, so that every read has one right answer.
        let own = self.size / self.bs / u64::from(jobs);
        if self.verify && own <= u64::from(depth) {
            return usage(format!(
                "--verify gives each job a part of the file to itself; {own} blocks are too few for {depth} in flight: raise --size"
            ));
        }
        if self.bs.saturating_mul(u64::from(jobs) * u64::from(depth)) > 16 << 30 {
            return usage("the buffers would take more than 16 GiB: fewer jobs, depth or --bs");
        }
        if [&self.json, &self.csv].iter().filter(|f| f.as_ref().is_some_and(|p| p.as_os_str() == "-")).count()
            > 1
        {
            return usage("only one of --json and --csv can go to standard output");
        }
        Ok(())
    }
}
