//! `ringdb fileperf`: one file, read and written as fio does, on any engine.
//!
//! - [`mod@args`]: the options; [`mod@prepare`]: the file, written before it is read; [`pattern`]: what it holds.
//! - [`job`]: a thread with its requests; [`run`]: jobs together, measured.
//! - [`row`], [`plot`]: results.

pub mod args;
pub mod job;
mod pattern;
mod plot;
mod prepare;
pub mod row;
pub mod run;

use std::path::{Path, PathBuf};

use engineswap::uri::PosixConfig;
use engineswap::{Config, Io, Uses};

use self::args::{FilePerfArgs, Mode};
use self::prepare::prepare;
pub use self::prepare::write_whole;
use self::row::{Difference, Row};
use self::run::{Sample, Spec};
use crate::error::{Failure, Result, at, failed, usage};
use crate::out;

/// An engine, opened with the options that the arguments ask for.
struct Target {
    /// As it was given.
    given: String,
    fixed_buffers: bool,
    /// Jobs of depth 1 make plain calls.
    plain: bool,
    io: Io,
}

/// One engine with one combination of jobs, depth and mode.
struct Cell<'a> {
    target: &'a Target,
    jobs: u32,
    depth: u32,
    mode: Mode,
    rounds: Vec<Sample>,
}

/// The verb.
pub fn fileperf(args: &FilePerfArgs) -> Result<()> {
    args.check()?;
    let (targets, notes) = targets(args)?;
    let file = prepare(args)?;
    let mut cells = cells(args, &targets);
    let mut generations = args.verify.then(|| vec![0u32; (args.size / args.bs) as usize]);
    let rounds = args.rounds as usize;
    let bar = out::count_bar(Some((cells.len() * rounds) as u64));
    bar.set_message("measuring");
    for round in 0..rounds {
        // Every round begins with another cell, so that none always has the same one before it.
        let n = cells.len();
        for i in 0..n {
            let cell = &mut cells[(i + round) % n];
            let spec = spec(args, &file.path, cell, round);
            cell.rounds.push(run::run(&cell.target.io, &spec, generations.as_deref_mut())?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut rows = Vec::new();
    for cell in &cells {
        let fixed = (cell.target.fixed_buffers, args.fixed_files);
        let spec = spec(args, &file.path, cell, 0);
        rows.push(Row::new(&cell.target.given, &cell.target.io.info().uri, fixed, &spec, &cell.rounds)?);
    }
    if args.matrix {
        compare(&mut rows);
    }
    report(args, &rows, &notes)
}

fn spec<'a>(args: &FilePerfArgs, path: &'a Path, cell: &Cell<'_>, round: usize) -> Spec<'a> {
    Spec {
        path,
        size: args.size / args.bs * args.bs,
        mode: cell.mode,
        read_percent: args.rwmixread.unwrap_or(50),
        jobs: cell.jobs,
        depth: cell.depth,
        bs: args.bs,
        batch: args.batch.min(cell.depth),
        think: std::time::Duration::from_micros(args.think_us.into()),
        direct: args.direct,
        fixed_buffers: cell.target.fixed_buffers,
        plain: cell.target.plain && cell.depth == 1,
        warmup: job::duration(args.warmup),
        time: job::duration(args.runtime / f64::from(args.rounds)),
        seed: u64::from(std::process::id()) << 8 | round as u64,
    }
}

fn cells<'a>(args: &FilePerfArgs, targets: &'a [Target]) -> Vec<Cell<'a>> {
    let mut shapes = vec![(args.rw, args.numjobs, args.iodepth)];
    if args.matrix {
        shapes.clear();
        for mode in [Mode::Randwrite, Mode::Randread] {
            for jobs in [1, 16] {
                shapes.extend([1, 16].map(|depth| (mode, jobs, depth)));
            }
        }
    }
    let mut out = Vec::new();
    for (mode, jobs, depth) in shapes {
        out.extend(targets.iter().map(|target| Cell { target, jobs, depth, mode, rounds: Vec::new() }));
    }
    out
}

/// Opens the engines. The matrix takes each with and without registered buffers; one that has none is said in a note.
fn targets(args: &FilePerfArgs) -> Result<(Vec<Target>, Vec<String>)> {
    let (jobs, depth) = if args.matrix { (16, 16) } else { (args.numjobs, args.iodepth) };
    let (mut targets, mut notes) = (Vec::new(), Vec::new());
    for given in &args.io {
        let plain = engine_uri(given, jobs, depth)?;
        let with = |options: &[(&str, bool)]| {
            let mut uri = plain.clone();
            for (name, _) in options.iter().filter(|(_, on)| *on) {
                uri.push(if uri.contains('?') { '&' } else { '?' });
                uri.push_str(name);
            }
            uri
        };
        let files = ("fixed_files", args.fixed_files);
        let first = with(&[files, ("fixed_buffers", args.fixed_buffers)]);
        let config = resolved(&first, args)?;
        if args.matrix && config.buffers {
            return usage(format!(
                "--io {given}: --matrix takes each engine with and without registered buffers"
            ));
        }
        let target =
            |fixed_buffers, io| Target { given: given.clone(), fixed_buffers, plain: config.plain, io };
        targets.push(target(config.buffers, open(&first)?));
        if args.matrix {
            match open(&with(&[files, ("fixed_buffers", true)])) {
                Ok(io) => targets.push(target(true, io)),
                Err(why) => notes.push(format!("{given}: no rows with registered buffers: {why}")),
            }
        }
    }
    Ok((targets, notes))
}

/// What the options of an engine ask of this program.
struct Asked {
    /// Its buffers are registered.
    buffers: bool,
    /// One request at a time may be a plain call: nothing was asked for that such a call could not do.
    plain: bool,
}

/// An option acts or is refused, here as everywhere.
fn resolved(uri: &str, args: &FilePerfArgs) -> Result<Asked> {
    let wrong = |why: &str| usage(format!("--io {uri}: {why}"));
    match uri.parse::<Config>() {
        Ok(Config::Sim(_)) => wrong(
            "the engine 'sim' is a disk in memory, which has no file to measure; valid: auto, posix, libaio, io_uring",
        ),
        Ok(Config::IoUring(c)) if c.iopoll && !args.direct => {
            wrong("'iopoll' polls for direct transfers, and there are none without --direct")
        }
        Ok(Config::IoUring(c)) => {
            let buffers = c.fixed_buffers == Some(true) || c.clone_buffers == Some(true);
            Ok(Asked { buffers, plain: false })
        }
        Ok(Config::Posix(c)) => {
            Ok(Asked { buffers: false, plain: !uri.contains("nowait") && !c.queue_always })
        }
        // Anything else that is wrong shows when it is opened.
        _ => Ok(Asked { buffers: false, plain: false }),
    }
}

fn open(uri: &str) -> Result<Io> {
    // Buffers are registered when that is asked for; there are no pools.
    let uses = Uses { registered_buffers: true, pools: false };
    Io::from_uri_for(uri, uses).map_err(|e| match e.kind() {
        engineswap::ErrorKind::InvalidInput => Failure::Usage(format!("--io {uri}: {e}")),
        _ => Failure::Failed(format!("--io {uri}: {e}")),
    })
}

/// The URI with room for what is to be in flight, unless it says itself how much it has.
fn engine_uri(given: &str, jobs: u32, depth: u32) -> Result<String> {
    // `auto` takes no options, so it is resolved first.
    let uri = match given.parse::<Config>() {
        Ok(Config::Auto) => open(given)?.info().uri,
        _ => given.to_string(),
    };
    let join = if uri.contains('?') { '&' } else { '?' };
    let named = |name: &str| uri.split(['?', '&']).any(|o| o.starts_with(name));
    Ok(match uri.parse::<Config>() {
        Ok(Config::Posix(c)) if depth > 1 && (!named("threads=") || given == "auto") => {
            let threads = jobs.saturating_mul(depth).min(256);
            Config::Posix(PosixConfig { threads, ..c }).to_string()
        }
        Ok(Config::Libaio(c)) if c.depth < depth => deeper(&uri, join, named("depth="), c.depth, depth)?,
        Ok(Config::IoUring(c)) if c.depth < depth => deeper(&uri, join, named("depth="), c.depth, depth)?,
        _ => uri,
    })
}

fn deeper(uri: &str, join: char, named: bool, has: u32, depth: u32) -> Result<String> {
    match named {
        true => {
            usage(format!("--io {uri} has room for {has} requests in flight, --iodepth asks for {depth}"))
        }
        false => Ok(format!("{uri}{join}depth={depth}")),
    }
}

/// Sets each row with registered buffers against the one without.
fn compare(rows: &mut [Row]) {
    let plain: Vec<Row> = rows.iter().filter(|r| !r.fixed_buffers).cloned().collect();
    for r in rows.iter_mut().filter(|r| r.fixed_buffers) {
        let same = |p: &&Row| (&p.io, p.mode, p.numjobs, p.iodepth) == (&r.io, r.mode, r.numjobs, r.iodepth);
        if let Some(p) = plain.iter().find(same) {
            r.against_plain_percent = Some(Difference::between(&r.rps_rounds, &p.rps_rounds));
        }
    }
}

fn report(args: &FilePerfArgs, rows: &[Row], notes: &[String]) -> Result<()> {
    let json = serde_json::to_vec_pretty(rows)?;
    let mut table = true;
    for (file, bytes) in [(&args.json, json), (&args.csv, row::rows_csv(rows)?)] {
        match file {
            Some(p) if p.as_os_str() == "-" => {
                table = false;
                out::text(&format!("{}\n", String::from_utf8_lossy(&bytes).trim_end()))?;
            }
            Some(p) => at(p, std::fs::write(p, bytes))?,
            None => {}
        }
    }
    if table {
        out::text(&row::rows_table(rows))?;
    }
    for note in notes {
        eprintln!("ringdb: {note}");
    }
    if args.matrix {
        let named = [&args.json, &args.csv].into_iter().flatten().find(|p| p.as_os_str() != "-");
        let path = named.map_or(PathBuf::from("fileperf-matrix.svg"), |p| p.with_extension("svg"));
        let svg = plot::svg(rows).map_err(Failure::Failed)?;
        at(&path, std::fs::write(&path, svg))?;
        eprintln!("ringdb: plot in {}", path.display());
    }
    let short: u64 = rows.iter().map(|r| r.short_ios).sum();
    if short > 0 {
        return failed(format!("{short} requests were short: the file ends before --size"));
    }
    Ok(())
}
