//! How a running submitter is told of completions: reschedule interrupts and calls of `kick_process`, by the kind of
//! task work and by where the interrupt is served.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::images::Kernel;
use super::super::job::{Bus, Check, Disk, Findings, Job, Machine, Results};
use crate::error::{Failure, Result};

pub const JOB: Job = Job {
    name: "coop",
    asks: "do COOP_TASKRUN and DEFER_TASKRUN spare reschedule interrupts, where and from which depth? (s2-e4, e5, e7)",
    tests: None,
    machines,
    script: include_str!("coop.sh"),
    afterwards: None,
    judge,
};

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    /// `on` or `off` the CPU that serves the queue's interrupt.
    place: String,
    depth: u32,
    /// `default`, `coop` or `defer`.
    what: String,
    status: i32,
    reads: u64,
    /// Reschedule interrupts that the submitter's CPU got.
    reschedules: u64,
    /// Calls of `kick_process`.
    kicks: u64,
    /// Calls of `wake_up_state`.
    wakes: u64,
    said: String,
}

/// Fewer queues than CPUs, so that some CPUs share one.
fn machines() -> Vec<Machine> {
    let disk = || vec![Disk { serial: "test", mib: 256, bus: Bus::Nvme(2) }];
    Kernel::ALL.map(|k| Machine { disks: disk(), ..Machine::new(k, 4, 0) }).into()
}

fn judge(_: &Machine, results: &Results) -> Result<Findings> {
    let rows = results.json_lines("rows.json")?.into_iter().map(serde_json::from_value);
    let rows: Vec<Row> = rows
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Failure::Failed(format!("rows.json of the guest: {e}")))?;
    let row = |place: &str, depth: u32, what: &str| {
        let it = rows.iter().find(|r| (r.place.as_str(), r.depth, r.what.as_str()) == (place, depth, what));
        let lacks =
            || Failure::Failed(format!("the guest has not measured {what} at depth {depth}, {place}"));
        it.ok_or_else(lacks)
    };
    let mut checks = vec![Check::new(
        "every measurement ended well",
        rows.iter().all(|r| r.status == 0 && r.reads > 0),
        rows.iter().map(|r| r.reads.to_string()).collect::<Vec<_>>().join(", ") + " reads",
    )];
    // What starting and ending a program costs is in each count; several times that is another thing.
    let many = |n: u64, beside: u64| n >= 5 * beside.max(8);
    let (away, home) = (row("off", 16, "default")?, row("on", 16, "default")?);
    for what in ["coop", "defer"] {
        let spared = row("off", 16, what)?;
        checks.push(Check::new(
            format!("off the interrupt's CPU, reschedule interrupts come by default and not with {what}"),
            many(away.reschedules, spared.reschedules),
            format!("{} against {}", away.reschedules, spared.reschedules),
        ));
        let spared = row("on", 16, what)?;
        checks.push(Check::new(
            format!("on the interrupt's CPU, calls of kick_process come by default and not with {what}"),
            many(home.kicks, spared.kicks),
            format!("{} against {}", home.kicks, spared.kicks),
        ));
    }
    checks.push(Check::new(
        "on the interrupt's CPU, no reschedule interrupts come by default either",
        many(away.reschedules, home.reschedules),
        format!("{} off it, {} on it", away.reschedules, home.reschedules),
    ));
    let (lone, lone_coop) = (row("off", 1, "default")?, row("off", 1, "coop")?);
    checks.push(Check::new(
        "at depth 1 the submitter sleeps and is woken, and nobody is kicked",
        !many(lone.kicks, lone_coop.kicks) && !many(lone.reschedules, lone_coop.reschedules),
        format!(
            "kicks {} by default, {} with coop; reschedule interrupts {}, {}; wake-ups {}",
            lone.kicks, lone_coop.kicks, lone.reschedules, lone_coop.reschedules, lone.wakes
        ),
    ));
    Ok(Findings { checks, data: json!({ "places": results.json("places.json")?, "rows": rows }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as a guest gave them, with the reschedule interrupts of one of them changed.
    fn judged(coop_off: u64) -> Findings {
        let counts = [
            ("off", 1, "default", 8, 51),
            ("off", 1, "coop", 7, 52),
            ("off", 1, "defer", 7, 55),
            ("off", 16, "default", 498, 551),
            ("off", 16, "coop", coop_off, 55),
            ("off", 16, "defer", 5, 55),
            ("on", 16, "default", 5, 532),
            ("on", 16, "coop", 6, 61),
            ("on", 16, "defer", 5, 63),
        ];
        let line = |(place, depth, what, reschedules, kicks): (&str, u32, &str, u64, u64)| {
            let row = Row {
                place: place.into(),
                depth,
                what: what.into(),
                status: 0,
                reads: 5000,
                reschedules,
                kicks,
                wakes: 500,
                said: String::new(),
            };
            serde_json::to_string(&row).unwrap() + "\n"
        };
        let rows: String = counts.map(line).concat();
        let files =
            [("rows.json".to_string(), rows.into_bytes()), ("places.json".to_string(), b"{}".to_vec())];
        judge(&machines()[0], &Results { files: files.into() }).unwrap()
    }

    #[test]
    fn interrupts_that_are_not_spared_are_seen() {
        let good = judged(6);
        assert!(good.checks.len() == 7 && good.checks.iter().all(|c| c.holds), "{:?}", good.checks);
        assert_eq!(judged(400).checks.iter().filter(|c| !c.holds).count(), 1);
        let none = Results { files: [("rows.json".to_string(), vec![])].into() };
        assert!(judge(&machines()[0], &none).unwrap_err().to_string().contains("has not measured"));
    }
}
