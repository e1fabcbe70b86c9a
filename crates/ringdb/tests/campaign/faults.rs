//! Each operation of a history fails in turn, in each way that fits it.
//!
//! A history is run in lives, from one opening of the store to the next. The calls of a life go wrong one by one, each
//! time from the disk that the life began with, until no call is left. After the fault the steps go on: they succeed,
//! or fail with an error of the right kind. Then the process is killed, or the power cut, and nothing that was
//! acknowledged may be missing.

use std::collections::BTreeMap;
use std::path::Path;

use ringdb::engineswap::sim::{CrashOutcome, Disk, Plan};
use ringdb::{Backups, Error, ErrorKind};

use crate::history::{Shape, Step};
use crate::job::{Job, Progress};
use crate::lab::{Lab, Turn};
use crate::model::{BACKUPS, Facts, Script, check, checkpoint_dir};
use crate::run::{Run, STORE};
use crate::support::Rng;
use crate::survive::Case;

/// Steps that follow a failure, at most.
const STEPS_AFTER: usize = 5;
/// Steps of one life: few, since every case lives through it from its beginning.
const LIFE: usize = 12;
/// More calls than a life has.
const MOST: u64 = 10_000;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    /// The rule of the plan; `{n}` is the number of the call.
    rule: &'static str,
    /// The kinds of error that the store may answer with; none: it must not notice.
    answers: &'static [ErrorKind],
}

const STOP: &[ErrorKind] = &[ErrorKind::Stop];
/// Nothing was touched: the store goes on when the shortage ends, without being opened again.
const RETRY: &[ErrorKind] = &[ErrorKind::Retry];
const SPACE: &[ErrorKind] = &[ErrorKind::Stop, ErrorKind::Retry];

/// Syncs of directories are few, and what depends on one comes long after it: each of them is tried.
const NAMES: &str = "names";

/// All kinds.
pub const KINDS: [Kind; 16] = [
    Kind { name: NAMES, rule: "on sync_dir nth {n} EIO", answers: STOP },
    Kind { name: "EIO", rule: "on any nth {n} EIO", answers: STOP },
    Kind {
        name: "ENOSPC",
        rule: "on create,write,allocate,rename,link,mkdir nth {n} ENOSPC",
        answers: SPACE,
    },
    // Asking for a file's size is not interrupted.
    Kind {
        name: "EINTR",
        rule: "on read,write,fsync,fdatasync,sync_dir,open,create,rename,unlink,link,mkdir,truncate,allocate nth {n} \
               EINTR",
        answers: &[],
    },
    Kind { name: "ENOMEM", rule: "on any nth {n} ENOMEM", answers: SPACE },
    Kind { name: "EMFILE", rule: "on open,create,list,lock nth {n} EMFILE", answers: RETRY },
    // Of what is made before anything is written.
    Kind { name: "no-memory", rule: "on create,open,map,allocate nth {n} ENOMEM", answers: RETRY },
    // Direct transfers stop at a unit, unless the file ends.
    Kind { name: "short-write", rule: "on write nth {n} short 4096", answers: &[] },
    Kind { name: "short-read", rule: "on read nth {n} short 4096", answers: &[] },
    Kind { name: "short-manifest", rule: "on read,write MANIFEST* nth {n} short 7", answers: &[] },
    Kind { name: "torn", rule: "on write nth {n} torn", answers: STOP },
    Kind { name: "fsync", rule: "on fsync,fdatasync,sync_dir nth {n} EIO", answers: STOP },
    Kind { name: "ring", rule: "on submit,wait nth {n} ring", answers: STOP },
    Kind { name: "dead", rule: "on any after {n} EIO", answers: STOP },
    Kind { name: "full", rule: "on create,write,allocate nth {n} full 0", answers: SPACE },
    Kind {
        name: "flip",
        rule: "on read *.sst nth {n} flip 1234567",
        answers: &[ErrorKind::Stop, ErrorKind::Repair],
    },
];

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|k| k.name == name)
    }

    /// One sync, or durable write, that is claimed and not done. Nothing is noticed before the power is cut.
    pub const fn lie() -> Kind {
        Kind { name: "lie", rule: "on write,fsync,fdatasync,sync_dir nth {n} lie", answers: &[] }
    }

    /// Whether a store may answer with this error when these calls have failed.
    pub fn explains(&self, e: &Error, hits: &BTreeMap<String, u64>) -> bool {
        !hits.is_empty() && self.answers.contains(&e.kind())
    }

    /// Whether a read may fail when these calls have failed.
    pub fn explains_a_read(&self, hits: &BTreeMap<String, u64>) -> bool {
        !hits.is_empty() && !self.answers.is_empty()
    }

    pub fn plan(&self, n: u64) -> Plan {
        // `after` counts what still succeeds.
        let n = if self.name == "dead" { n - 1 } else { n };
        Plan::parse(&self.rule.replace("{n}", &n.to_string())).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// What a life begins with.
struct Life {
    disk: Disk,
    facts: Facts,
    first: usize,
    last: usize,
}

/// The history, with the store opened anew every few steps.
fn script(job: &Job) -> Script {
    let mut steps = Vec::new();
    for (i, step) in job.shape().steps(job.seed, job.durability).into_iter().enumerate() {
        if i % LIFE == LIFE - 1 {
            steps.push(Step::Reopen { close: i % (2 * LIFE) == LIFE - 1 });
        }
        steps.push(step);
    }
    Script::new(job.shape(), steps, job.durability)
}

/// Runs a life without faults; returns the disk that it leaves and what holds then.
fn live(shape: &Shape, script: &Script, life: &Life) -> Result<(Disk, Facts, u64), String> {
    let lab = Lab::new(life.disk.clone_now());
    let before = lab.disk.operations();
    let mut run = Run::new(lab.clone(), shape, script);
    run.begin().map_err(|e| format!("the store does not open: {e}"))?;
    for i in life.first..life.last {
        run.step(i).map_err(|e| format!("step {i} ({:?}): {e}", script.steps[i]))?;
    }
    run.abandon();
    let operations = lab.disk.operations() - before;
    Ok((lab.disk.clone_now(), facts_of(&lab, script, &life.facts), operations))
}

fn facts_of(lab: &Lab, script: &Script, before: &Facts) -> Facts {
    let mut facts = before.clone();
    lab.notes().iter().for_each(|(_, note)| facts.note(script, note));
    facts
}

/// Has each call of the job's history fail; `only`: one of one life, in one way.
pub fn faults(job: &Job, progress: &mut Progress, only: Option<(usize, u64, Kind)>) {
    let (shape, script) = (job.shape(), script(job));
    let (mut disk, mut facts) = (job.disk(), Facts::default());
    let reopens: Vec<usize> =
        (0..script.steps.len()).filter(|i| matches!(script.steps[*i], Step::Reopen { .. })).collect();
    let mut first = 0;
    for (l, last) in reopens.into_iter().chain([script.steps.len()]).enumerate() {
        // The reopening itself belongs to the life that it ends.
        let last = (last + 1).min(script.steps.len());
        if first == last {
            continue;
        }
        let life = Life { disk: disk.clone_now(), facts: facts.clone(), first, last };
        let mut left = None;
        progress.case(
            &format!("life {l}"),
            || "without a fault".into(),
            &life.disk,
            || {
                left = Some(live(shape, &script, &life)?);
                Ok(0)
            },
        );
        let Some((next, after, operations)) = left else { return };
        (disk, facts, first) = (next, after, last);
        progress.history(operations);
        for kind in KINDS {
            if only.is_some_and(|o| (o.0, o.2) != (l, kind)) {
                continue;
            }
            let every = if kind.name == NAMES { 1 } else { job.every };
            let mut n = 1 + (job.seed + l as u64) % every;
            while n < MOST {
                n = only.map_or(n, |o| o.1);
                let what = || format!("{} at call {n} of life {l} ({})", kind.name, kind.rule);
                let mut hits = vec![];
                progress.case(&format!("{l}.{n}.{}", kind.name), what, &life.disk, || {
                    one(job, &script, &life, kind, n, &mut hits)
                });
                progress.fault(kind.name, &hits);
                if progress.is_over() {
                    return;
                }
                if hits.is_empty() || only.is_some() {
                    break;
                }
                n += every;
            }
        }
    }
}

/// One life with one fault.
fn one(
    job: &Job,
    script: &Script,
    life: &Life,
    kind: Kind,
    n: u64,
    hits: &mut Vec<String>,
) -> Result<u64, String> {
    let lab = Lab::new(life.disk.clone_now());
    lab.disk.set_plan(kind.plan(n));
    let mut run = Run::new(lab.clone(), job.shape(), script);
    let result = go(&mut run, life, kind);
    no_bus_error(&lab.disk)?;
    // Mending is a rule of its own.
    let full = |hit: &String| hit.ends_with(" full");
    hits.extend(lab.disk.faults_hit().into_keys().filter(|h| kind.name == "full" || !full(h)));
    let stopped = result?;
    mend(&lab);
    if stopped {
        reads_go_on(&run, life)?;
    }
    run.abandon();
    if hits.is_empty() {
        return Ok(0);
    }
    let facts = facts_of(&lab, script, &life.facts);
    let mut rng = Rng(job.seed ^ n << 8 ^ (kind.name.len() as u64) << 50);
    let case = Case { shape: job.shape(), script };
    // What a failed sync has lost shows when the power is cut.
    let outcome = match rng.below(3) {
        0 => CrashOutcome::Everything,
        1 => CrashOutcome::Nothing,
        _ => CrashOutcome::Random(rng.next()),
    };
    let facts = if outcome == CrashOutcome::Everything { facts.killed() } else { facts };
    case.survive(lab.disk.crash(outcome), &facts, &mut rng, 0)
        .map_err(|e| format!("then {outcome:?}: {e} (hit {hits:?}); {facts:?}"))
}

/// No more faults, and room again.
fn mend(lab: &Lab) {
    lab.disk.set_plan(Plan::parse("on any nth 1 full 1000m").unwrap_or_else(|e| panic!("{e}")));
}

/// A store to mapped memory without space for it ends the process on a real machine.
pub fn no_bus_error(disk: &Disk) -> Result<(), String> {
    disk.bus_error().map_or(Ok(()), |store| Err(format!("SIGBUS: a store found no space: {store}")))
}

/// Directories whose names could not be synced are removed by the store. Those that could not be removed either are by
/// somebody: nothing tells the next try of them, and no later sync covers their names.
pub fn clear_away(disk: &Disk, dir: impl AsRef<Path>) {
    if disk.faults_hit().keys().any(|hit| hit.starts_with("rmdir ")) {
        let left = dir.as_ref().ancestors().filter(|d| d.parent().is_some());
        left.for_each(|d| drop(disk.io().remove_dir(d)));
    }
}

/// The same for a first backup that has failed, of which more may be left than directories.
fn clear_backups_away(disk: &Disk) {
    for file in disk.files().iter().filter(|f| f.starts_with(BACKUPS)) {
        let _ = disk.io().remove_file(file);
    }
    let inner = ["generations/000001", "generations", "tables"].map(|d| Path::new(BACKUPS).join(d));
    inner.iter().for_each(|d| drop(disk.io().remove_dir(d)));
    clear_away(disk, BACKUPS);
}

fn is_hit(lab: &Lab) -> bool {
    !lab.disk.faults_hit().is_empty()
}

/// Does the steps of a life until some have followed the fault; true if the store has stopped writing.
fn go(run: &mut Run, life: &Life, kind: Kind) -> Result<bool, String> {
    let mut after = 0;
    if let Err(e) = run.begin() {
        right_kind(&e, run, kind).map_err(|e| format!("opening: {e}"))?;
        mend(&run.lab);
        run.abandon();
        clear_away(&run.lab.disk, STORE);
        run.begin().map_err(|e| format!("the store does not open after a failed opening: {e}"))?;
    }
    for i in life.first..life.last {
        let mut tries = 0;
        while let Err(e) = run.step(i) {
            right_kind(&e, run, kind).map_err(|e| format!("step {i} ({:?}): {e}", run.script.steps[i]))?;
            let Some(db) = &run.db else {
                // It failed to close, or to open again.
                return Ok(false);
            };
            if db.stats().stopped.is_some() {
                return Ok(true);
            }
            if let (Step::Write { .. } | Step::Ingest(_), ErrorKind::Retry) = (&run.script.steps[i], e.kind())
            {
                nothing_written(run, i)?;
            }
            tries += 1;
            if tries == 3 {
                // Somebody sees to it.
                mend(&run.lab);
                if let Step::Checkpoint = run.script.steps[i] {
                    clear_away(&run.lab.disk, checkpoint_dir(i));
                    if run.shape.backs_up && Backups::open_with_io(BACKUPS, run.lab.disk.io()).is_err() {
                        clear_backups_away(&run.lab.disk);
                    }
                }
            }
            if let Step::Checkpoint = run.script.steps[i]
                && tries > 3
            {
                // What is left of the first try is in the way.
                break;
            }
            if tries > 3 && !db.stats().damaged_tables.is_empty() {
                // A table that could not be read is left alone, and compactions of its range fail, until the store is
                // opened again, which comes next.
                return Ok(false);
            }
            if tries > 60 {
                return Err(format!("step {i} ({:?}) fails for good: {e}", run.script.steps[i]));
            }
            run.wait_for_another_try();
        }
        if is_hit(&run.lab) {
            after += 1;
            if after > STEPS_AFTER {
                break;
            }
        }
    }
    Ok(false)
}

/// A write that may be repeated has left nothing behind.
fn nothing_written(run: &Run, i: usize) -> Result<(), String> {
    let Some(db) = &run.db else { return Ok(()) };
    let n = run.script.number(i).to_le_bytes();
    for marker in ["n", "u"] {
        if db.get(marker).map_err(|e| format!("get: {e}"))?.as_deref() == Some(&n[..]) {
            return Err(format!("step {i}: the write is refused and there all the same"));
        }
    }
    Ok(())
}

fn right_kind(e: &Error, run: &Run, kind: Kind) -> Result<(), String> {
    let hits = run.lab.disk.faults_hit();
    if hits.is_empty() {
        return Err(format!("an error without a fault: {e}"));
    }
    // What is left of a checkpoint that failed is in the way of the next try.
    let in_the_way = matches!(e, Error::Invalid(what) if what.contains("checkpoint"));
    if !in_the_way && !kind.answers.contains(&e.kind()) {
        return Err(format!("an error of kind {:?}: {e} (hit {hits:?})", e.kind()));
    }
    if let (Error::Stopped(why), Some(db)) = (e, &run.db)
        && (why.is_empty() || db.stats().stopped.is_none())
    {
        return Err(format!("a store that has stopped says {why:?}, {:?}", db.stats().stopped));
    }
    Ok(())
}

/// A store that has stopped refuses writes for good and holds all that was acknowledged.
fn reads_go_on(run: &Run, life: &Life) -> Result<(), String> {
    let Some(db) = &run.db else { return Ok(()) };
    run.lab.give_turn(Turn::All);
    match db.put("more", "x") {
        Err(Error::Stopped(_)) => {}
        r => return Err(format!("a write to a store that has stopped: {r:?}")),
    }
    let facts = facts_of(&run.lab, run.script, &life.facts).killed();
    check(db, run.script, &facts).map(drop).map_err(|e| format!("a store that has stopped: {e}"))
}
