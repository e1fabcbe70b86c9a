//! `ringdb doctor`: what works here, how fast, and which engine and settings follow from it.
//!
//! - [`system`]: what the kernel says; [`features`]: what works, by doing it; [`measure`]: a few seconds of numbers.
//! - [`advice`]: the recommendation, a pure function of these.
//!
//! Everything happens in a temporary directory inside of the one that is asked about, removed at the end.

mod advice;
mod features;
mod measure;
mod ranking;
mod system;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use engineswap::{Direct, Io, OpenHow};
use serde::Serialize;

use self::advice::{Advice, Findings};
use self::features::Feature;
use crate::cleanup::TempDir;
use crate::error::{Result, at, failed};
use crate::fileperf::write_whole;
use crate::out::{human_bytes, human_count, table};

/// Say what works here, measure it for some seconds, and recommend an engine and settings.
///
/// Each feature is tried by doing it, on a temporary file in the directory; nothing is left behind. The file that
/// --write makes, TOML, is for `--options FILE` of the other verbs, and for `Options::load`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("where").required(true))]
pub struct DoctorArgs {
    /// Directory of a store
    #[arg(long, value_name = "DIR", group = "where")]
    pub db: Option<PathBuf>,
    /// Any directory in which files can be made
    #[arg(long, value_name = "DIR", group = "where")]
    pub dir: Option<PathBuf>,
    /// Write the recommendation to this file
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `auto` takes here.
#[derive(Debug, Serialize)]
struct Auto {
    io: String,
    reasons: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    directory: PathBuf,
    system: system::System,
    features: Vec<Feature>,
    auto: Auto,
    /// Whether the measurements bypassed the page cache.
    direct: bool,
    reads: Vec<measure::Reads>,
    submission: Option<measure::Submission>,
    commits: Vec<measure::Commits>,
    writes: Vec<measure::Writes>,
    recommended: Advice,
    remarks: Vec<String>,
}

/// The verb.
pub fn doctor(args: &DoctorArgs) -> Result<()> {
    let Some(dir) = args.db.as_deref().or(args.dir.as_deref()) else {
        return failed("--db or --dir is needed");
    };
    if args.db.is_some() && !dir.join("CURRENT").is_file() {
        return failed(format!("no store in {}; --dir takes any directory", dir.display()));
    }
    at(dir, std::fs::metadata(dir))?;
    let report = examine(dir)?;
    if let Some(file) = &args.write {
        at(file, std::fs::write(file, file_text(&dir.display().to_string(), &report.recommended)))?;
    }
    match args.json {
        true => crate::out::json(&report),
        false => crate::out::text(&text(&report)),
    }
}

fn examine(dir: &Path) -> Result<Report> {
    let scratch = TempDir::new_in(dir, ".ringdb-doctor-")?;
    let file = scratch.path().join("data");
    write_whole(&file, measure::FILE_BYTES)?;
    let system = system::look(dir);
    let features = features::try_all(&file)?;
    let auto = Io::from_uri("auto")?.info();
    let direct = Io::from_uri("posix")?.open(&file, &OpenHow::read().direct(Direct::Require)).is_ok();
    let works = |name: &str| features.iter().any(|f| f.name == name && f.works);
    let candidates = ["posix", "libaio", "io_uring", "io_uring?sqpoll"];
    // A polling thread beside the reader on too few cores measures the scheduler only.
    let sensible = |name: &str| !name.contains("sqpoll") || system.cores >= 4;
    let candidates: Vec<String> =
        candidates.into_iter().filter(|c| works(c) && sensible(c)).map(str::to_string).collect();
    let reads = measure::reads(&file, direct, &candidates)?;
    let ring = works("io_uring");
    let best = Io::from_uri(if ring { "io_uring" } else { "posix" })?;
    let submission = if ring { Some(measure::submission(&best, &file)?) } else { None };
    let commits = measure::commits(&best, &file, scratch.path())?;
    let writes = measure::writes(&best, &file, scratch.path())?;
    let findings = Findings {
        system: &system,
        features: &features,
        reads: &reads,
        commits: &commits,
        writes: &writes,
        submission,
    };
    let (recommended, remarks) = (advice::advise(&findings), advice::remarks(&findings));
    let auto = Auto { io: auto.uri, reasons: auto.reasons };
    let directory = dir.to_path_buf();
    Ok(Report {
        directory,
        system,
        features,
        auto,
        direct,
        reads,
        submission,
        commits,
        writes,
        recommended,
        remarks,
    })
}

/// The settings file (TOML) that `--options FILE` and `--io @FILE` read.
fn file_text(dir: &str, advice: &Advice) -> String {
    let mut s = format!("# What `ringdb doctor` recommends for {}\n", dir.escape_debug());
    for r in &advice.reasons {
        s.push_str(&format!("# {}\n", r.replace('\n', " ")));
    }
    s.push_str(&format!("io = {:?}\n", advice.io));
    for x in &advice.settings {
        // Numbers as they are, sizes with a unit as text.
        let value = x.value.parse::<u64>().map_or_else(|_| format!("{:?}", x.value), |n| n.to_string());
        s.push_str(&format!("# {}\n{} = {value}\n", x.reason, x.name));
    }
    s
}

fn system_lines(s: &system::System) -> Vec<(&'static str, String)> {
    let known = |x: Option<String>| x.unwrap_or_else(|| "not known".into());
    let yes = |x: Option<bool>| x.map_or("not known".into(), |b| if b { "yes" } else { "no" }.to_string());
    let mut out = vec![
        ("kernel", s.kernel.clone()),
        ("cores", s.cores.to_string()),
        ("memory available", known(s.memory_available_bytes.map(human_bytes))),
        ("seccomp filter", yes(Some(s.seccomp_filter))),
        ("kernel.io_uring_disabled", known(s.io_uring_disabled.map(|n| n.to_string()))),
        (
            "memory that may be locked",
            match (s.memlock_bytes, s.ipc_lock) {
                (None, _) => "no limit".into(),
                (Some(n), true) => format!("{} (lifted by CAP_IPC_LOCK)", human_bytes(n)),
                (Some(n), false) => human_bytes(n),
            },
        ),
        ("transparent huge pages", known(s.huge_pages.clone())),
        ("file system", format!("{} on {}", known(s.file_system.clone()), known(s.mount_point.clone()))),
    ];
    match &s.device {
        None => out.push(("device", "none, or none that the kernel names".into())),
        Some(d) => out.extend([
            ("device", d.name.clone()),
            ("  rotational", yes(d.rotational)),
            ("  hardware queues, requests each", {
                let queues = known(d.hardware_queues.map(|n| n.to_string()));
                format!("{queues}, {}", known(d.nr_requests.map(|n| n.to_string())))
            }),
            ("  scheduler", known(d.scheduler.clone())),
            ("  write cache", known(d.write_cache.clone())),
            ("  FUA", yes(d.fua)),
            ("  polling queues", yes(d.poll_queues)),
            ("  logical, physical block", {
                let logical = known(d.logical_block_bytes.map(|n| n.to_string()));
                format!("{logical}, {}", known(d.physical_block_bytes.map(|n| n.to_string())))
            }),
        ]),
    }
    out
}

fn text(r: &Report) -> String {
    let mut s = String::new();
    // Writing to a string cannot fail.
    let mut line =
        |l: std::fmt::Arguments<'_>| s.write_fmt(l).and_then(|()| s.write_char('\n')).unwrap_or_default();
    line(format_args!("{}", r.directory.display()));
    for (name, value) in system_lines(&r.system) {
        line(format_args!("  {name:34}{value}"));
    }
    line(format_args!("\nTried"));
    for f in &r.features {
        line(format_args!("  {:38}{:5}{}", f.name, if f.works { "yes" } else { "no" }, f.detail));
    }
    line(format_args!("\nauto takes {}", r.auto.io));
    for why in &r.auto.reasons {
        line(format_args!("  {why}"));
    }
    let how = if r.direct { "direct" } else { "through the page cache: this file system has no direct I/O" };
    line(format_args!("\nRandom reads of 4 KiB, {how}"));
    let reads: Vec<Vec<String>> = r
        .reads
        .iter()
        .map(|x| {
            let (min, max) = x.rps_spread;
            let mut cells = vec![format!("  {}", x.io), x.iodepth.to_string()];
            cells.extend([x.rps, min, max].map(|n| human_count(n as u64)));
            cells.extend([x.latency_us.p50, x.latency_us.p99].map(|n| format!("{n:.0}")));
            cells.push(format!("{:.1}", x.cpu_us_per_op));
            cells
        })
        .collect();
    let header = ["  io", "depth", "reads/s", "min", "max", "p50 us", "p99 us", "CPU us/read"];
    line(format_args!("{}", table(&header, &reads, 1)));
    line(format_args!("Durable commits of 4 KiB"));
    for c in &r.commits {
        line(format_args!(
            "  {:46}{} in flight {:>10}/s",
            c.method,
            c.in_flight,
            human_count(c.per_second as u64)
        ));
    }
    line(format_args!("\nSequential writes of {}, durable at the end", human_bytes(measure::FILE_BYTES)));
    for w in &r.writes {
        line(format_args!("  {:46}{:>8}/s", w.method, human_bytes(w.bytes_per_second as u64)));
    }
    line(format_args!(""));
    for x in &r.remarks {
        line(format_args!("  {x}"));
    }
    line(format_args!("\nRecommended\n  io = {}", r.recommended.io));
    for why in &r.recommended.reasons {
        line(format_args!("      {why}"));
    }
    for x in &r.recommended.settings {
        line(format_args!("  {} = {}\n      {}", x.name, x.value, x.reason));
    }
    s
}
