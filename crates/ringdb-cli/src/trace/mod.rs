//! `ringdb trace`: where the time of each request goes, stage by stage, and flame graphs.
//!
//! A program with engineswap's probes runs under bpftrace ([`tracer`], [`script`]), which tells a line of marks for
//! each request ([`marks`]); they are split into stages and added up ([`stages`]) and told ([`report`], [`plot`]).
//! [`flame`] graphs where CPU time and waits go.

pub mod flame;
mod marks;
mod plot;
pub mod report;
mod script;
pub mod stages;
mod tracer;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use self::flame::{Flame, Folded};
use self::report::{Record, Traced};
use self::tracer::Target;
use crate::error::{Result, at, failed, usage};
use crate::out;

/// Arguments of `trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Attach to this process, until it ends or the time is up
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "engines", "rounds"])]
    pub pid: Option<u32>,
    /// The file that has engineswap's probes, where it is not the program: RocksDB's plugin, a library
    #[arg(long, value_name = "FILE")]
    pub probes: Option<PathBuf>,
    /// Run the command on each of these engines in turn: their URI takes the place of {engine} in it, or is given to a
    /// ringdb command as --io
    #[arg(long, value_name = "URI,...", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Rounds of all engines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// Longest time of one run; a program that then still runs is ended, a process attached to goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Trace one in so many requests: less cost for the program, less to lose
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub one_in: u32,
    /// A flame graph instead: of CPU time, or of waits
    #[arg(long, value_enum, conflicts_with_all = ["one_in", "json"], requires = "out")]
    pub flame: Option<Flame>,
    /// The stacks of another run (.folded), for the difference to them
    #[arg(long, value_name = "FILE", requires = "flame")]
    pub against: Option<PathBuf>,
    /// Write pictures (SVG) into this directory: stages.svg, or the flame graphs with their stacks
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write all figures as JSON, - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The program and its arguments; `ringdb` is this command
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "pid")]
    pub command: Vec<OsString>,
}

/// A run: what it is called, and its command.
struct Run {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
}

/// The program of this name, as a shell finds it.
fn program(name: &OsString) -> Result<PathBuf> {
    let named = Path::new(name);
    if named == Path::new("ringdb") {
        return Ok(std::env::current_exe()?);
    }
    if named.components().count() > 1 {
        return Ok(named.into());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&dirs).map(|d| d.join(named)).find(|p| p.is_file()) {
        Some(path) => Ok(path),
        None => usage(format!("no program '{}' in PATH", named.display())),
    }
}

/// The command on an engine.
fn on(engine: &str, command: &[OsString]) -> Result<Vec<OsString>> {
    const PLACE: &str = "{engine}";
    let has = |a: &OsString| a.to_string_lossy().contains(PLACE);
    if command.iter().any(has) {
        let put =
            |a: &OsString| if has(a) { a.to_string_lossy().replace(PLACE, engine).into() } else { a.clone() };
        return Ok(command.iter().map(put).collect());
    }
    if Path::new(&command[0]).file_name() != Some("ringdb".as_ref()) {
        return usage("--engines: say by {engine} where the command takes the engine");
    }
    Ok(command.iter().cloned().chain(["--io".into(), engine.into()]).collect())
}

fn runs(args: &TraceArgs) -> Result<Vec<Run>> {
    let run = |name: &str, command: &[OsString]| -> Result<Run> {
        Ok(Run { name: name.into(), program: program(&command[0])?, args: command[1..].to_vec() })
    };
    match (&args.command[..], &args.engines[..]) {
        ([], _) => Ok(vec![]),
        (command, []) => Ok(vec![run("", command)?]),
        (command, engines) => engines.iter().map(|e| run(e, &on(e, command)?)).collect(),
    }
}

/// Does what the arguments say.
pub fn trace(args: &TraceArgs) -> Result<()> {
    let runs = runs(args)?;
    if let Some(flame) = args.flame {
        return flames(args, flame, &runs);
    }
    let (all, command) = (traced(args, &runs)?, &args.command);
    let command: Vec<String> = command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(dir) = &args.out {
        at(dir, std::fs::create_dir_all(dir))?;
        let svg = plot::stacked(&all, &command.join(" ")).or_else(failed)?;
        let file = dir.join("stages.svg");
        at(&file, std::fs::write(&file, svg))?;
    }
    let record = Record::new(&all, command, args.one_in);
    match &args.json {
        Some(file) if file.as_os_str() == "-" => return out::json(&record),
        Some(file) => at(file, std::fs::write(file, serde_json::to_vec_pretty(&record)?))?,
        None => {}
    }
    out::text(&report::text(&all))
}

/// The file with the probes of a run, or of the process.
fn probes(args: &TraceArgs, run: Option<&Run>) -> Result<PathBuf> {
    match (&args.probes, run, args.pid) {
        (Some(file), ..) => tracer::probes_of(file),
        (None, Some(run), _) => tracer::probes_of(&run.program),
        (None, None, Some(pid)) => tracer::probes_of_process(pid),
        (None, None, None) => usage("a command, or --pid"),
    }
}

fn target(args: &TraceArgs, run: Option<&Run>) -> Result<Target> {
    match (run, args.pid) {
        (Some(run), _) => Target::begin(&run.program, &run.args),
        (None, Some(pid)) => Ok(Target::Running(pid)),
        (None, None) => usage("a command, or --pid"),
    }
}

/// Traces each run, in turn; the requests of each engine.
fn traced(args: &TraceArgs, runs: &[Run]) -> Result<Vec<Traced>> {
    let sides: Vec<Option<&Run>> = if runs.is_empty() { vec![None] } else { runs.iter().map(Some).collect() };
    let files: Vec<PathBuf> = sides.iter().map(|run| probes(args, *run)).collect::<Result<_>>()?;
    let events = tracer::events()?;
    let mut all: Vec<Traced> = sides.iter().map(|r| Traced::new(r.map_or("", |r| r.name.as_str()))).collect();
    let bar = out::count_bar(None);
    for _ in 0..args.rounds {
        for ((one, run), file) in all.iter_mut().zip(&sides).zip(&files) {
            let mut target = target(args, *run)?;
            let script = script::requests(&events, target.pid(), file, args.one_in);
            bar.set_message(one.engine.clone());
            let limit = Duration::from_secs(args.seconds.into());
            let said = tracer::trace(&script, &mut target, limit, &mut |line| {
                one.line(line);
                bar.set_position(one.all.requests);
            })?;
            one.lost += said.lost;
        }
    }
    bar.finish_and_clear();
    match all.iter().find(|t| t.all.requests == 0) {
        Some(t) if t.seen == 0 => {
            failed(format!("{}: the program made no request that could be traced", t.engine))
        }
        Some(t) => failed(format!("{}: all {} requests were lost; see --one-in", t.engine, t.seen)),
        None => Ok(all),
    }
}

/// The stacks of a run.
pub fn stacks(flame: Flame, target: &mut Target, probes: Option<&Path>, seconds: u32) -> Result<Folded> {
    let limit = Duration::from_secs(seconds.into());
    match flame {
        Flame::OnCpu => flame::on_cpu(target, limit),
        Flame::OffCpu => flame::off_cpu(&script::waits(target.pid(), probes), target, limit),
    }
}

/// The name of a file for an engine.
fn file_name(engine: &str) -> String {
    engine
        .chars()
        .map(|c| if c.is_alphanumeric() || matches!(c, '-' | '_' | '=') { c } else { '-' })
        .collect()
}

fn flames(args: &TraceArgs, kind: Flame, runs: &[Run]) -> Result<()> {
    let Some(dir) = &args.out else { return usage("--flame needs --out") };
    if args.rounds != 1 {
        return usage("--flame: each engine once; a difference is of two runs");
    }
    tracer::events()?;
    at(dir, std::fs::create_dir_all(dir))?;
    let mut before = args.against.as_deref().map(flame::read_folded).transpose()?;
    let sides: Vec<Option<&Run>> = if runs.is_empty() { vec![None] } else { runs.iter().map(Some).collect() };
    let bar = out::count_bar(Some(sides.len() as u64));
    let mut made = String::new();
    let mut write = |name: String, text: String| -> Result<()> {
        let file = dir.join(name);
        made += &format!("{}\n", file.display());
        at(&file, std::fs::write(&file, text))
    };
    for run in sides {
        let name = run.map_or("", |r| r.name.as_str());
        bar.set_message(name.to_string());
        let mut target = target(args, run)?;
        let file = probes(args, run).ok();
        let folded = stacks(kind, &mut target, file.as_deref(), args.seconds)?;
        let stem = [kind.name(), &file_name(name)].join(if name.is_empty() { "" } else { "-" });
        write(format!("{stem}.folded"), flame::folded_text(&folded))?;
        write(format!("{stem}.svg"), flame::svg(kind, &folded, &format!("{} {name}", kind.name()))?)?;
        match &before {
            Some(before) => {
                let title = format!("{} {name}: difference", kind.name());
                write(format!("{stem}-difference.svg"), flame::difference(kind, before, &folded, &title)?)?;
            }
            None => before = Some(folded),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    out::text(&made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: &[&str]) -> Vec<OsString> {
        of.iter().map(OsString::from).collect()
    }

    #[test]
    fn an_engine_takes_its_place_in_the_command() {
        let on = |command: &[&str]| on("libaio?depth=4", &words(command));
        assert_eq!(on(&["ringdb", "bench"]).unwrap(), words(&["ringdb", "bench", "--io", "libaio?depth=4"]));
        assert_eq!(on(&["x", "--fs=e://{engine}"]).unwrap(), words(&["x", "--fs=e://libaio?depth=4"]));
        assert!(on(&["db_bench", "--num=1"]).is_err());
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(program(&"sh".into()).unwrap().is_absolute());
        assert_eq!(program(&"ringdb".into()).unwrap(), std::env::current_exe().unwrap());
        assert!(program(&"no-such-program-here".into()).is_err());
        assert_eq!(file_name("io_uring?queue_always"), "io_uring-queue_always");
    }
}
