//! `ringdb lab guest`: jobs in an emulated machine with an NVMe drive, polling queues, kernel probes and other kernels.
//!
//! [`images`] is what `make guest` has built; [`job`] says what a job is, and [`jobs`] has them; [`qemu`] runs a
//! machine; [`parcel`] takes files in and out. The machine is emulated by software: its speeds mean nothing, its counts
//! do.

mod images;
mod job;
mod jobs;
mod parcel;
mod qemu;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::images::{About, Images, Kernel};
use self::job::{Findings, Job, Machine, tail};
use self::parcel::Content;
use self::qemu::Qemu;
use crate::cleanup::TempDir;
use crate::error::{Failure, Result, failed, usage};
use crate::out;

/// Arguments of `lab guest`.
#[derive(Args, Debug)]
pub struct GuestArgs {
    /// What to do
    #[command(subcommand)]
    pub what: What,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum What {
    /// List the jobs
    List(ListArgs),
    /// Run a job in the guest; exit code 1 if something that it checks does not hold
    ///
    /// `make guest` in ringdb's repository builds the guest. It has no network, it never uses /dev/kvm, and it ends in
    /// any case. Its speeds mean nothing; jobs count what the kernel does.
    Run(RunArgs),
}

/// Arguments of `lab guest list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab guest run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The job (`lab guest list`)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Only with this kernel
    #[arg(long, value_name = "VERSION", value_enum)]
    pub kernel: Option<Kernel>,
    /// A build of this command to take into the guest, such as target/static/ringdb [default: this one]
    #[arg(long, value_name = "FILE")]
    pub command: Option<PathBuf>,
    /// The test program that the job runs
    #[arg(long, value_name = "FILE")]
    pub tests: Option<PathBuf>,
    /// Seconds that each machine may run, a minute of them for its boot and end [default: the job's]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// Show the guest's console on standard error
    #[arg(long)]
    pub console: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Does what the arguments say.
pub fn guest(args: &GuestArgs) -> Result<()> {
    match &args.what {
        What::List(a) => list(a),
        What::Run(a) => run(a),
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    asks: &'static str,
    machines: Vec<String>,
    /// The test program that --tests has to name.
    tests: Option<&'static str>,
}

fn list(args: &ListArgs) -> Result<()> {
    let machines = |j: &Job| (j.machines)().iter().map(Machine::words).collect();
    let listed = |j: &Job| Listed { name: j.name, asks: j.asks, machines: machines(j), tests: j.tests };
    let all: Vec<Listed> = jobs::all().iter().map(listed).collect();
    if args.json {
        return out::json(&all);
    }
    let row = |l: &Listed| vec![l.name.into(), l.machines.len().to_string(), l.asks.into()];
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    out::text(&out::table(&["job", "machines", "asks"], &rows, 3))
}

/// What came of one machine.
#[derive(Serialize)]
struct Booted {
    machine: Machine,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Found(Findings),
    Failed(String),
}

/// What came of all of them.
#[derive(Serialize)]
struct Record<'a> {
    ringdb: &'static str,
    job: &'static str,
    asks: &'static str,
    guest: &'a About,
    machines: Vec<Booted>,
}

impl Booted {
    fn holds(&self) -> bool {
        matches!(&self.outcome, Outcome::Found(f) if f.checks.iter().all(|c| c.holds))
    }

    fn text(&self) -> String {
        let mut s = format!("{}\n", self.machine.words());
        match &self.outcome {
            Outcome::Failed(why) => s += &format!("  failed: {why}\n"),
            Outcome::Found(f) => {
                for c in &f.checks {
                    s += &format!("  {:6}{}: {}\n", if c.holds { "holds" } else { "NO" }, c.what, c.found);
                }
            }
        }
        s
    }
}

fn run(args: &RunArgs) -> Result<()> {
    let Some(job) = jobs::all().into_iter().find(|j| j.name == args.job) else {
        return usage(format!("no job '{}'; `ringdb lab guest list` lists them", args.job));
    };
    match (job.tests, &args.tests) {
        (Some(what), None) => return usage(format!("{} needs --tests FILE: {what}", job.name)),
        (None, Some(_)) => return usage(format!("{} runs no test program: leave --tests out", job.name)),
        _ => {}
    }
    let command = match &args.command {
        Some(file) => file.clone(),
        None => std::env::current_exe()?,
    };
    let carried = Carried { command, tests: args.tests.clone() };
    carried.check()?;
    let mut machines = (job.machines)();
    machines.retain(|m| args.kernel.is_none_or(|k| k == m.kernel));
    let (qemu, images) = (Qemu::find()?, Images::find()?);
    let bar = out::count_bar(Some(machines.len() as u64));
    let mut booted: Vec<Booted> = Vec::new();
    for mut machine in machines {
        machine.seconds = args.timeout.unwrap_or(machine.seconds);
        let mut hear = |said: &str| {
            if args.console {
                bar.suspend(|| eprintln!("{said}"));
            }
            if let Some(news) = said.strip_prefix("@@ ") {
                bar.set_message(format!("{}: {news}", machine.words()));
            }
        };
        hear("@@ booting");
        let found = one(&qemu, &images, &job, &machine, &carried, &mut hear);
        let outcome = found.map_or_else(|e| Outcome::Failed(e.to_string()), Outcome::Found);
        let one = Booted { machine, outcome };
        if !args.json {
            bar.suspend(|| out::text(&one.text()))?;
        }
        booted.push(one);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (ringdb, about) = (env!("CARGO_PKG_VERSION"), &images.about);
    let holds = booted.iter().all(Booted::holds);
    if args.json {
        out::json(&Record { ringdb, job: job.name, asks: job.asks, guest: about, machines: booted })?;
    }
    if holds { Ok(()) } else { Err(Failure::Negative) }
}

/// The programs that go into the guest.
struct Carried {
    command: PathBuf,
    tests: Option<PathBuf>,
}

impl Carried {
    fn check(&self) -> Result<()> {
        let mut all = [Some(&self.command), self.tests.as_ref()].into_iter().flatten();
        match all.find(|f| !f.is_file()) {
            Some(file) => failed(format!("{}: no such file", file.display())),
            None => Ok(()),
        }
    }

    /// They, and the script with its variables.
    fn files(&self, job: &Job, machine: &Machine) -> Vec<(&'static str, Content)> {
        let mut set: Vec<(&str, String)> = machine.variables.clone();
        set.push(("POLL_QUEUES", machine.poll_queues.to_string()));
        // A test program knows the directory of its build for temporary files, which the guest has to have.
        let program = self.tests.as_ref().and_then(|t| t.canonicalize().ok());
        if let Some(build) = program.as_ref().and_then(|t| t.ancestors().nth(3)) {
            set.push(("TESTS_TMP", build.join("tmp").display().to_string()));
        }
        let quoted = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
        let set: String =
            set.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
        let mut files = vec![
            ("script", Content::Text(format!("{set}{}\n{}", jobs::PRELUDE, job.script))),
            ("seconds", Content::Text(machine.script_seconds().to_string())),
            ("ringdb", Content::Program(self.command.clone())),
        ];
        files.extend(self.tests.clone().map(|t| ("tests", Content::Program(t))));
        files
    }
}

/// Boots one machine, and judges what it brings back.
fn one(
    qemu: &Qemu,
    images: &Images,
    job: &Job,
    machine: &Machine,
    carried: &Carried,
    hear: &mut dyn FnMut(&str),
) -> Result<Findings> {
    let dir = TempDir::new("ringdb-guest-")?;
    let mut results = qemu.run(images, machine, &carried.files(job, machine), dir.path(), hear)?;
    let said = |name: &str| tail(&results.text(name), 10);
    match results.status() {
        Some(0) => {
            if let (Some(afterwards), Some(tests)) = (job.afterwards, &carried.tests) {
                results.files.extend(afterwards(qemu, machine, dir.path(), tests, hear)?);
            }
            (job.judge)(machine, &results)
        }
        Some(jobs::NOT_HERE) => failed(format!(
            "the guest (C library {}) cannot run this command: {}; `make static` builds one that needs no library: \
             --command target/static/ringdb",
            images.about.libc,
            said("stderr")
        )),
        Some(124 | 137) => {
            let seconds = machine.script_seconds();
            failed(format!("the script took longer than {seconds} seconds (--timeout): {}", said("stderr")))
        }
        status => failed(format!(
            "the script ended with {}: {} {}",
            status.map_or("no status".into(), |s| s.to_string()),
            said("stdout"),
            said("stderr")
        )),
    }
}
