//! Several writers and readers at once, with flushes and compactions among them, in an order that the seed gives.
//!
//! A life runs without a fault first, and is cut at moments drawn from it. Then it runs again with each kind
//! of fault at a call drawn from the seed; up to there it is the same life. Whatever happens, readers see
//! what they must: nothing older than what was acknowledged before they looked, batches whole across
//! keyspaces, and the same for as long as they hold a snapshot or an iterator.
//!
//! Of a second kind of crowd most clients are tasks: they write, sync and read by futures, of which several wait at a
//! time, some with deadlines, and some are dropped.

mod ledger;
mod life;
mod reader;
mod tasks;
mod ways;
mod writer;

use std::sync::Arc;

use ringdb::engineswap::sim::{CrashOutcome, Disk, Plan};

use crate::crash::outcome;
use crate::faults::{KINDS, Kind, no_bus_error};
use crate::job::{Job, Progress};
use crate::support::Rng;
use ledger::{Ledger, Survivors};
use life::Life;

/// The names that stand for a history's in a job's text: of threads, and of tasks.
pub const NAMES: [&str; 2] = ["crowd", TASKS];
const TASKS: &str = "tasks";
/// Moments of the whole life that are cut, for each outcome of the job.
const CUTS: u64 = 8;
/// Faults of each kind in a job that leaves nothing out.
const FAULTS: u64 = 16;
/// And lies.
const LIES: u64 = 96;

/// A device that says that it has synced and has not: what is durable by then may be missing, and the store has to
/// notice, or to hold less of what was written in the order in which it was written.
const LIE: Kind = Kind::lie();

/// One case of a job, to be run alone.
pub struct Only {
    /// `cut`, or the name of a fault.
    pub what: String,
    /// The moment of the cut, or the number of the call that fails.
    pub at: u64,
    /// The outcome of the cut, or of the one behind the fault.
    pub outcome: u64,
}

/// Runs a job's lives.
pub fn crowd(job: &Job, progress: &mut Progress, only: Option<Only>) {
    let wanted = |what: &str| only.as_ref().is_none_or(|o| o.what == what);
    let mut rng = Rng(job.seed ^ 0xC0_FFEE);
    let mut whole = None;
    progress.case(
        "life",
        || "without a fault".into(),
        &Disk::new(0),
        || {
            whole = Some(undisturbed(job)?);
            Ok(0)
        },
    );
    let Some((disk, ledger)) = whole else { return };
    progress.history(disk.operations());
    let points = disk.points() as u64;
    for _ in 0..CUTS * job.outcomes {
        let (mut at, mut n) = (rng.below(points), rng.below(6));
        if let Some(o) = &only {
            (at, n) = (o.at, o.outcome);
        }
        if !wanted("cut") || progress.is_over() {
            break;
        }
        let Some(point) = disk.point(at as usize) else { break };
        let outcome = outcome(n, job.seed ^ at << 20);
        let what = || {
            let path = point.path.display();
            format!("{outcome:?} in operation {}: {} {path}", point.operation, point.call.name())
        };
        let left = disk.crash_at(&point, outcome).0;
        let survivors = Survivors::of(&ledger, Some(point.operation), outcome == CrashOutcome::Everything);
        progress
            .case(&format!("cut.{at}.{n}"), what, &left, || life::check(&left, job, &survivors).map(|()| 1));
        if only.is_some() {
            return;
        }
    }
    for kind in KINDS.into_iter().chain([LIE]) {
        let times = if kind == LIE { LIES } else { FAULTS };
        for _ in 0..(times / job.every).max(1) {
            // Most rules match a part of the calls: the smaller numbers hit.
            let most = disk.operations() >> rng.below(6);
            let (mut at, mut n) = (1 + rng.below(most.max(1)), rng.below(6));
            if let Some(o) = &only {
                (at, n) = (o.at, o.outcome);
            }
            if !wanted(kind.name) || progress.is_over() {
                break;
            }
            let mut hits = vec![];
            let what = || format!("{} at call {at}", kind.name);
            progress.case(&format!("{}.{at}.{n}", kind.name), what, &Disk::new(0), || {
                disturbed(job, kind, at, n, &mut hits)
            });
            progress.fault(kind.name, &hits);
            if only.is_some() {
                return;
            }
        }
    }
}

/// The life without faults: all goes well. What the disk held at every moment of it, and what was done.
fn undisturbed(job: &Job) -> Result<(Disk, Ledger), String> {
    let disk = job.disk();
    disk.record(true);
    let ledger = Life::new(job, &disk, None).run(job)?;
    let again = job.disk();
    Life::new(job, &again, None).run(job)?;
    if (again.operations(), again.fingerprint()) != (disk.operations(), disk.fingerprint()) {
        return Err("the same seed makes another life".into());
    }
    Ok((disk, ledger))
}

/// The life with a fault, and then a cut.
fn disturbed(job: &Job, kind: Kind, at: u64, n: u64, hits: &mut Vec<String>) -> Result<u64, String> {
    let disk = job.disk();
    disk.set_plan(kind.plan(at));
    let life = Life::new(job, &disk, Some(kind));
    let result = life.run(job);
    hits.extend(disk.faults_hit().into_keys().filter(|h| kind.name == "full" || !h.ends_with(" full")));
    no_bus_error(&disk)?;
    let ledger = result?;
    let outcome = outcome(n, job.seed ^ at << 20);
    let mut survivors = Survivors::of(&ledger, None, outcome == CrashOutcome::Everything);
    if kind.name == LIE.name {
        survivors = survivors.of_a_liar();
    }
    life::check(&disk.crash(outcome), job, &survivors)
        .map_err(|e| format!("then {outcome:?}: {e} (hit {hits:?})"))?;
    Ok(1)
}

/// No more faults, and room again.
fn mend(disk: &Disk) {
    disk.set_plan(Plan::parse("on any nth 1 full 1000m").unwrap_or_else(|e| panic!("{e}")));
}

/// What all threads of a life share.
type Shared = Arc<Life>;
