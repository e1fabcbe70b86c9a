//! Devices that fail or are slow under a writing store: it says so, and loses nothing that it acknowledged.

use serde::{Deserialize, Serialize};

use super::super::images::Kernel::{V6_1, V6_12};
use super::super::job::{Bus, Check, Disk, Findings, Job, Machine, Results};
use super::powercut::{FS_MIB, TESTS};
use crate::error::{Failure, Result};

pub const JOB: Job = Job {
    name: "faults",
    asks: "does a device that fails or is slow give the right error, and is all there that was acknowledged?",
    tests: Some(TESTS),
    machines,
    script: include_str!("faults.sh"),
    afterwards: None,
    judge,
};

fn machines() -> Vec<Machine> {
    [(V6_1, "ext4", "posix"), (V6_12, "ext4", "io_uring"), (V6_12, "xfs", "libaio")]
        .map(|(kernel, fs, io)| {
            let variables = vec![("FS", fs.to_string()), ("IO", io.into())];
            let disks = vec![Disk { serial: "test", mib: FS_MIB + 1, bus: Bus::Virtio }];
            Machine { disks, variables, seconds: 900, ..Machine::new(kernel, 2, 0) }
        })
        .into()
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    /// `writes`: they and flushes fail; `all`: reads, too; `slow`: each takes 20 ms.
    fault: String,
    durability: String,
    /// The writer's exit status.
    status: i32,
    said: String,
    /// The status of the check afterwards.
    checked: i32,
    counts: Option<Counts>,
    why: String,
}

/// For each writer a batch.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Counts {
    /// The last that was acknowledged as durable.
    acknowledged: Vec<u64>,
    /// The last that is there.
    found: Vec<u64>,
}

/// What a mapped log may end a process with when its device fails: SIGBUS.
const SIGBUS: i32 = 128 + 7;

impl Row {
    fn ended_well(&self) -> bool {
        match (self.fault.as_str(), self.status) {
            ("slow", status) => status == 0,
            (_, SIGBUS) => self.durability == "process",
            (_, status) => status == 1 && self.said.contains("of writer") && !self.said.contains("panicked"),
        }
    }

    fn checks(&self) -> [Check; 2] {
        let Row { fault, durability, status, said, why, .. } = self;
        let how = if fault == "slow" { "writes on" } else { "is told so" };
        let counts = self
            .counts
            .as_ref()
            .map_or(why.clone(), |c| format!("acknowledged {:?}, found {:?}", c.acknowledged, c.found));
        let some = self.counts.as_ref().is_some_and(|c| c.acknowledged.iter().all(|n| *n > 0));
        [
            Check::new(
                format!("{fault} ({durability}): the writer {how}"),
                self.ended_well(),
                format!("exit status {status}: {said}"),
            ),
            Check::new(
                format!("{fault} ({durability}): all that was acknowledged is there, verify is clean"),
                self.checked == 0 && some,
                counts,
            ),
        ]
    }
}

fn judge(_: &Machine, results: &Results) -> Result<Findings> {
    let rows = results.json_lines("rows.json")?.into_iter().map(serde_json::from_value);
    let rows: Vec<Row> = rows
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Failure::Failed(format!("rows.json of the guest: {e}")))?;
    let mut checks: Vec<Check> = rows.iter().flat_map(Row::checks).collect();
    checks.push(Check::new("all six were tried", rows.len() == 6, rows.len().to_string()));
    Ok(Findings { checks, data: serde_json::to_value(rows)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_a_panic_and_a_loss_are_defects() {
        let row = Row {
            fault: "writes".into(),
            durability: "sync".into(),
            status: 1,
            said: "batch 7 of writer 1: Input/output error".into(),
            checked: 0,
            counts: Some(Counts { acknowledged: vec![6, 6, 6], found: vec![6, 7, 6] }),
            why: String::new(),
        };
        let holds = |row: &Row| row.checks().iter().all(|c| c.holds);
        assert!(holds(&row));
        assert!(!holds(&Row { status: 124, ..row.clone() }));
        assert!(!holds(&Row { status: 0, ..row.clone() }));
        assert!(!holds(&Row { status: SIGBUS, ..row.clone() }));
        assert!(holds(&Row { status: SIGBUS, durability: "process".into(), ..row.clone() }));
        assert!(!holds(&Row { said: "thread panicked: of writer".into(), ..row.clone() }));
        assert!(!holds(&Row { checked: 1, ..row.clone() }));
        assert!(!holds(&Row { counts: None, ..row.clone() }));
        let nothing = Some(Counts { acknowledged: vec![0, 0, 0], found: vec![6, 7, 6] });
        assert!(!holds(&Row { counts: nothing, ..row.clone() }));
        assert!(!holds(&Row { fault: "slow".into(), ..row.clone() }));
        assert!(holds(&Row { fault: "slow".into(), status: 0, ..row.clone() }));
    }
}
