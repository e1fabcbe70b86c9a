//! `ringdb lab`: the published studies of I/O interfaces, repeated side by side with their figures.
//!
//! [`studies`] has an entry ([`study`]) for each published experiment: what it asked, what it printed, and the function
//! that asks the same here, or what it needs that an ordinary machine has not. [`program`] runs this command's own
//! benchmarks as children, their rounds in turn, and counts what the kernel did by tracepoints; [`ratio`] compares
//! rounds and judges; [`report`] writes the page and the record. [`guest`] is another way: jobs in an emulated machine.

mod guest;
mod program;
mod ratio;
mod report;
mod studies;
mod study;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::guest::GuestArgs;
use self::program::Lab;
use self::report::Repeated;
use self::study::{Entry, How};
use crate::error::{Result, at, usage};
use crate::out;

/// Arguments of `lab`.
#[derive(Args, Debug)]
pub struct LabArgs {
    /// What to do
    #[command(subcommand)]
    pub what: What,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum What {
    /// List the published experiments, and what each needs
    List(ListArgs),
    /// Repeat experiments; exit code 1 if one of them could not be repeated here
    ///
    /// Each is scaled to this machine, its rounds run in turn with those of what it is compared with, and what the
    /// kernel did is counted by tracepoints (bpftrace, as root) in a run of its own, so that counting costs no speed.
    Run(RunArgs),
    /// Run jobs in an emulated machine, with an NVMe drive and older kernels
    Guest(GuestArgs),
}

/// Arguments of `lab list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Experiments by their ids (`lab list`), or all
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    /// Rounds of each side of a comparison
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// Seconds that each side of a comparison is measured, its rounds together
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Where the files and stores are made, in a directory that is removed: the disk that is measured
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write a page (Markdown)
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Write a record of all figures, - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn seconds(s: &str) -> std::result::Result<f64, String> {
    match s.parse() {
        Ok(n) if (0.1..=3600.0).contains(&n) => Ok(n),
        _ => Err("from 0.1 to 3600 seconds".into()),
    }
}

/// Does what the arguments say.
pub fn lab(args: &LabArgs) -> Result<()> {
    match &args.what {
        What::List(a) => list(a),
        What::Run(a) => run(a),
        What::Guest(a) => guest::guest(a),
    }
}

#[derive(Serialize)]
struct Listed {
    id: &'static str,
    title: &'static str,
    here: bool,
    needs: &'static str,
}

fn list(args: &ListArgs) -> Result<()> {
    let listed = |e: &Entry| {
        let (here, needs) = match e.how {
            How::Here(_) => (true, ""),
            How::Needs(what) => (false, what),
        };
        Listed { id: e.id, title: e.title, here, needs }
    };
    let all: Vec<Listed> = studies::all().map(listed).collect();
    if args.json {
        return out::json(&all);
    }
    let row = |l: &Listed| {
        vec![l.id.into(), l.title.into(), if l.here { "runs here".into() } else { l.needs.into() }]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    out::text(&out::table(&["id", "experiment", "needs"], &rows, 3))
}

/// The entries that the arguments name, in the order of the list.
fn chosen(ids: &[String]) -> Result<Vec<&'static Entry>> {
    let everything = ids.iter().any(|id| id == "all");
    for id in ids.iter().filter(|id| *id != "all") {
        match studies::all().find(|e| e.id == id) {
            None => return usage(format!("no experiment '{id}'; `ringdb lab list` lists them")),
            Some(Entry { how: How::Needs(what), .. }) => return usage(format!("{id} needs {what}")),
            Some(_) => {}
        }
    }
    let here = |e: &&Entry| matches!(e.how, How::Here(_));
    let named = |e: &&'static Entry| everything || ids.iter().any(|id| id == e.id);
    Ok(studies::all().filter(named).filter(here).collect())
}

fn run(args: &RunArgs) -> Result<()> {
    let chosen = chosen(&args.ids)?;
    let lab = Lab::new(args.dir.as_deref(), args.rounds, args.seconds)?;
    let to_stdout = args.json.as_deref().is_some_and(|f| f.as_os_str() == "-");
    let bar = out::count_bar(Some(chosen.len() as u64));
    let mut repeated = Vec::new();
    for entry in chosen {
        let How::Here(study) = entry.how else { continue };
        bar.set_message(entry.id);
        let found = study(&lab);
        let one = Repeated::new(entry, found, lab.take_commands());
        if !to_stdout {
            bar.suspend(|| out::text(&report::section(&one)))?;
        }
        repeated.push(one);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let record = report::Record::new(&lab, repeated);
    if let Some(page) = &args.page {
        at(page, std::fs::write(page, report::page(&record)))?;
    }
    match &args.json {
        Some(_) if to_stdout => out::json(&record)?,
        Some(file) => at(file, std::fs::write(file, serde_json::to_vec_pretty(&record)?))?,
        None => {}
    }
    record.verdict()
}
