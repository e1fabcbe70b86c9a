//! The campaign against stores with a broken safety rule: each must be caught, within a bounded number of cases, and
//! the store whose rules are whole must pass the very same cases.

use std::process::{Command, Stdio};
use std::time::Instant;

use ringdb::mutation::{Mutation, set};

use crate::job::{Job, Mode, Progress};

/// Cases that may be needed to catch one.
const BOUND: u64 = 5000;

pub fn named(name: &str) -> Option<Mutation> {
    Mutation::ALL.iter().copied().find(|m| m.describe().0 == name)
}

/// What is tried against a mutation: what should catch it first, then the rest.
fn jobs(mutation: Mutation) -> Vec<Job> {
    let first: &[&str] = match mutation {
        Mutation::SkipDirectorySync | Mutation::SkipEveryDirectorySync | Mutation::SkipTableSync => {
            &["crash:flush:process:1"]
        }
        Mutation::AcknowledgeBeforeSync => &["crash:flush:process:1", "crash:flush:sync:1"],
        Mutation::IgnoreFailedSync | Mutation::IgnoreShortWrite | Mutation::PublishBeforeLog => {
            &["faults:recycle:process:1", "faults:recycle:sync:1", "faults:mixed:process:1"]
        }
        // Seen by a segment that was made on demand, for a frame larger than one, whose name the thread that
        // prepares the next should have made durable.
        Mutation::ForgetFailedDirectorySync => &[
            "faults:recycle:process:1",
            "faults:recycle:process:2",
            "faults:recycle:process:3",
            "faults:recycle:process:4",
            "faults:recycle:process:5",
            "faults:recycle:process:6",
            "faults:recycle:process:7",
            "faults:recycle:sync:1",
            "faults:recycle:sync:2",
        ],
        Mutation::GoOnAfterFailure => &["faults:flush:sync:1", "faults:manifest:process:1"],
        Mutation::UnlinkBeforeManifest | Mutation::DropTombstones => &["crash:compact:process:1"],
        Mutation::ReleaseLogEarly | Mutation::TrustRecycledFrame => {
            &["crash:recycle:process:1", "crash:recycle:sync:1"]
        }
        Mutation::BelieveTornTail | Mutation::ReplayOverGap => &["crash:recovery:process:1"],
        Mutation::ReuseSequenceNumbers => &["crash:recovery:process:1"],
        Mutation::SkipManifestSync
        | Mutation::CurrentBeforeManifest
        | Mutation::SkipCurrentSync
        | Mutation::MarkEarly => &["crash:manifest:process:1"],
        Mutation::SyncNothing => &["crash:futures:process:1", "crowd:tasks:process:1"],
        Mutation::ResolveBeforeSync => &["crash:futures:process:1", "crowd:tasks:process:1"],
        Mutation::SkipValidation => {
            &["crowd:crowd:process:1", "crowd:crowd:process:2", "crowd:crowd:process:3"]
        }
        Mutation::VouchEarly => &["crash:recycle:process:1", "crash:recycle:sync:1"],
        Mutation::ForgetRangesAtFlush => &["crash:flush:process:1", "crash:compact:process:1"],
        Mutation::MergeIntoNothing => &["crash:flush:process:1", "crash:compact:process:1"],
        Mutation::DropExpired => &["crash:expire:process:1", "crash:expire:process:2"],
        Mutation::DropFiltered => &["crash:filter:process:1", "crash:filter:process:2"],
        Mutation::DropRangesEarly => &["crash:flush:process:1", "crash:compact:process:1"],
    };
    let rest = ["crash", "faults"].into_iter().flat_map(|mode| {
        ["mixed", "compact", "recycle", "recovery", "fill", "keyspaces", "checkpoint"]
            .into_iter()
            .flat_map(move |shape| ["process", "sync"].map(|log| format!("{mode}:{shape}:{log}:2")))
    });
    let jobs = first.iter().map(|s| s.to_string()).chain(rest);
    jobs.map(|text| {
        let (job, _) = Job::parse(&text).unwrap_or_else(|| panic!("{text}: no job"));
        let every = match (job.mode, mutation) {
            // Every sync of a directory is tried whatever this says; one of them in many histories is what matters.
            (Mode::Faults, Mutation::ForgetFailedDirectorySync) => 40,
            (Mode::Faults, _) => 2,
            _ => 1,
        };
        Job { every, ..job }
    })
    .collect()
}

/// One mutation, in this process.
pub fn one(name: &str) {
    let mutation = named(name).unwrap_or_else(|| panic!("{name}: no such mutation"));
    let mut before = 0;
    for job in jobs(mutation) {
        set(Some(mutation));
        let mut broken = Progress::new(job.mode, BOUND - before, false);
        job.run(&mut broken, None);
        let Some(failure) = &broken.failure else {
            before += broken.counts.cases;
            if before >= BOUND {
                break;
            }
            continue;
        };
        set(None);
        let mut whole = Progress::new(job.mode, broken.counts.cases, false);
        job.run(&mut whole, None);
        if let Some(f) = &whole.failure {
            println!("{name}: the whole store fails too: {} {} {}", f.case, f.what, f.message);
            std::process::exit(1);
        }
        let message: String = failure.message.chars().take(160).collect();
        println!(
            "{name}: caught after {} cases by {}: {message}",
            before + broken.counts.cases,
            failure.case
        );
        return;
    }
    println!("{name}: not caught in {before} cases");
    std::process::exit(1);
}

/// All mutations, each in a process of its own, since a broken store may do anything.
pub fn all() {
    println!(
        "mutations: each safety rule is broken once; RINGDB_MUTATION=NAME and RINGDB_CAMPAIGN=CASE replay one"
    );
    let start = Instant::now();
    let mut failed = Vec::new();
    for pair in Mutation::ALL.chunks(2) {
        let children: Vec<_> = pair
            .iter()
            .map(|m| {
                let name = m.describe().0;
                let child = Command::new(std::env::current_exe().expect("this program"))
                    .args(["mutated", name])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("a process for a mutation");
                (*m, child)
            })
            .collect();
        for (m, child) in children {
            let out = child.wait_with_output().expect("its output");
            let (name, what) = m.describe();
            println!("{}", String::from_utf8_lossy(&out.stdout).trim_end());
            if !out.status.success() {
                println!("  {name}:{what}");
                failed.push(name);
            }
        }
    }
    println!(
        "{} mutations in {:.0} s, not caught: {failed:?}",
        Mutation::ALL.len(),
        start.elapsed().as_secs_f64()
    );
    if !failed.is_empty() {
        std::process::exit(1);
    }
}
