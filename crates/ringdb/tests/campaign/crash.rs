//! Power is cut, and the process killed, in the middle of each operation of a history in turn.

use ringdb::engineswap::sim::{CrashOutcome, Disk};

use crate::history::Shape;
use crate::job::{Job, Progress};
use crate::lab::Lab;
use crate::model::{Facts, Script};
use crate::run::Run;
use crate::support::Rng;
use crate::survive::Case;

/// The n-th outcome of a cut: all is kept, as when only the process dies; all is lost; whatever comes of a seed.
pub fn outcome(n: u64, seed: u64) -> CrashOutcome {
    match n {
        0 => CrashOutcome::Everything,
        1 => CrashOutcome::Nothing,
        n => CrashOutcome::Random(seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
    }
}

/// Runs the history once and keeps what the disk held in the middle of every operation.
pub fn record(job: &Job, shape: &Shape, script: &Script) -> Result<Lab, String> {
    let lab = Lab::new(job.disk());
    lab.disk.record(true);
    let mut run = Run::new(lab.clone(), shape, script);
    run.open().map_err(|e| format!("a new store does not open: {e}"))?;
    for i in 0..script.steps.len() {
        run.step(i).map_err(|e| format!("step {i} ({:?}): {e}", script.steps[i]))?;
    }
    run.abandon();
    Ok(lab)
}

/// Cuts in each operation, with `job.outcomes` outcomes each. `only`: this operation and outcome alone.
pub fn crash(job: &Job, progress: &mut Progress, only: Option<(usize, u64)>) {
    let shape = job.shape();
    let script = Script::new(shape, shape.steps(job.seed, job.durability), job.durability);
    let mut recorded = None;
    let what = || format!("{} steps without a fault", script.steps.len());
    progress.case("history", what, &Disk::new(0), || {
        recorded = Some(record(job, shape, &script)?);
        Ok(0)
    });
    let Some(lab) = recorded else { return };
    let notes = lab.notes();
    let mut notes = notes.iter().peekable();
    let mut facts = Facts::default();
    let case = Case { shape, script: &script };
    let points = lab.disk.points();
    progress.history(points as u64);
    for at in 0..=points {
        while let Some((_, note)) = notes.next_if(|(before, _)| *before <= at) {
            facts.note(&script, note);
        }
        if only.is_some_and(|(o, _)| o != at) || !(at as u64 + job.seed).is_multiple_of(job.every) {
            continue;
        }
        let point = lab.disk.point(at);
        let facts_now = facts.clone();
        for n in 0..job.outcomes {
            if only.is_some_and(|(_, o)| o != n) {
                continue;
            }
            let outcome = outcome(n, job.seed.wrapping_mul(1_000_003).wrapping_add(at as u64));
            let disk = match &point {
                Some(p) => lab.disk.crash_at(p, outcome).0,
                None => lab.disk.crash(outcome),
            };
            let facts = match outcome {
                CrashOutcome::Everything => facts_now.clone().killed(),
                _ => facts_now.clone(),
            };
            let mut rng = Rng(job.seed ^ (at as u64) << 20 ^ n << 50);
            // A quarter is cut again during the recovery, a few of them once more.
            let depth = if rng.chance(4) { 1 + u32::from(rng.chance(4)) } else { 0 };
            let what = || {
                let next = point.as_ref().map_or("the end".into(), |p| {
                    format!("operation {}: {} {}", p.operation, p.call.name(), p.path.display())
                });
                format!("{outcome:?} in change {at} of {points} ({next}); {facts_now:?}")
            };
            let left = disk.clone_now();
            progress.case(&format!("{at}:{n}"), what, &left, || case.survive(disk, &facts, &mut rng, depth));
            if progress.is_over() {
                return;
            }
        }
    }
}
