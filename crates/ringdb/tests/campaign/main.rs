//! The crash campaign: every operation of many histories is where the power is cut, and where an operation fails.
//!
//! `cargo test -p ringdb --test campaign` does a slice of it; `make campaign` does as much as is asked for. Every case
//! has a name, for example `crash:fill:process:17:412:3` (history, log medium, seed, event, outcome), and
//! `RINGDB_CAMPAIGN=` that name runs it alone. The method is in docs/experiments/0008-crash-campaign.md.

#![allow(clippy::unwrap_used)]

mod crash;
mod crowd;
mod env;
#[path = "../support/executor.rs"]
mod executor;
mod faults;
mod history;
mod job;
mod lab;
mod model;
#[cfg(feature = "mutations")]
mod mutations;
mod parent;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod survive;

use job::{Job, Progress};

const HELP: &str = "\
usage: campaign [run] [options]
  --crash-points N   so many cuts at least (default 100000)
  --faults N         so many faults at least (default 100000)
  --seconds S        at most so long
  --seed N           the first seed (default: from the clock)
  --outcomes N       outcomes of each cut (default 6)
  --every N          one operation in N (default 1)
  --crowds N         crowds in a round (default: as many as histories)
  --jobs N           processes at once (default: the cores)
  --history NAME     this history only
  --out FILE         the result as JSON, and where to go on after an interruption (default target/campaign.json;
                     relative to the repository)
RINGDB_CAMPAIGN=CASE runs one case alone. Without arguments a slice for CI is run.";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Ok(case) = std::env::var("RINGDB_CAMPAIGN") {
        replay(&case);
    }
    match args.first().map(String::as_str) {
        // What a parent starts.
        Some("job") => {
            let (mut job, _) = Job::parse(&args[1]).expect("a job");
            job.outcomes = args[2].parse().expect("outcomes");
            job.every = args[3].parse().expect("every");
            let mut progress = Progress::new(job.mode, args[4].parse().expect("a limit"), true);
            job.run(&mut progress, None);
            progress.finish();
        }
        Some("run") => parent::campaign(&parent::Wanted::from_args(&args[1..])),
        #[cfg(feature = "mutations")]
        Some("mutations") => mutations::all(),
        #[cfg(feature = "mutations")]
        Some("mutated") => mutations::one(&args[1]),
        Some("--help" | "-h") => {
            println!("{HELP}\n\nhistories:");
            history::SHAPES.iter().for_each(|s| println!("  {:<12} {}", s.name, s.what));
            let what = "several writers and readers at once, in an order that the seed gives";
            let tasks = "the same with asynchronous clients";
            crowd::NAMES.iter().zip([what, tasks]).for_each(|(name, what)| println!("  {name:<12} {what}"));
        }
        // The harness of the other tests lists its tests like this.
        Some("--list") => println!("campaign: test"),
        // A filter of `cargo test` that means other tests.
        Some(name) if !name.starts_with('-') && !"campaign".contains(name) => {}
        _ => parent::campaign(&parent::Wanted::slice()),
    }
}

/// Runs one case, tells all about it, and ends the process.
fn replay(case: &str) -> ! {
    let Some((job, case)) = Job::parse(case) else {
        eprintln!("RINGDB_CAMPAIGN={case}: no such case\n{HELP}");
        std::process::exit(2)
    };
    let mut progress = Progress::new(job.mode, u64::MAX, false);
    mutate(std::env::var("RINGDB_MUTATION").ok().as_deref());
    let job = Job { outcomes: 64, ..job };
    job.run(&mut progress, case.as_deref());
    match &progress.failure {
        Some(f) => {
            println!("FAILED {}\n  {}\n  {}", f.case, f.what, f.message);
            std::process::exit(1)
        }
        None => {
            println!("{} cases passed: {:?}", progress.counts.cases, progress.counts);
            std::process::exit(i32::from(progress.counts.cases == 0))
        }
    }
}

/// Breaks a safety rule of the store in this process.
#[cfg(feature = "mutations")]
fn mutate(name: Option<&str>) {
    let Some(name) = name.filter(|n| !n.is_empty()) else { return };
    ringdb::mutation::set(Some(mutations::named(name).unwrap_or_else(|| panic!("{name}: no such mutation"))));
}

#[cfg(not(feature = "mutations"))]
fn mutate(name: Option<&str>) {
    if let Some(name) = name.filter(|n| !n.is_empty()) {
        panic!("{name}: this build has no mutations; add --features mutations");
    }
}
