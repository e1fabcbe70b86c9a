//! Whether what is said to poll polls: interrupts of the drive's queues, and calls of `nvme_poll`.

use serde::{Deserialize, Serialize};

use super::super::images::Kernel;
use super::super::job::{Check, Findings, Job, Machine, Results};
use crate::error::{Failure, Result};

pub const JOB: Job = Job {
    name: "iopoll",
    asks: "do iopoll and its kin poll, or do they wait for interrupts? (system 1's wish, system 5's setting)",
    tests: None,
    machines,
    script: include_str!("iopoll.sh"),
    afterwards: None,
    judge,
};

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    status: i32,
    /// Reads of the block layer, which commands of NVMe pass by.
    reads: u64,
    interrupts: u64,
    polls: u64,
    said: String,
}

fn machines() -> Vec<Machine> {
    Kernel::ALL.iter().flat_map(|k| [0, 1].map(|polls| Machine::new(*k, 4, polls))).collect()
}

/// What is known of each way to read.
enum Way {
    Interrupts,
    Polls,
    /// It says that it polls, and does not.
    Silent,
    Refused(&'static str),
}

fn expected(machine: &Machine, name: &str) -> Way {
    let polling = machine.poll_queues > 0;
    match name {
        "ringdb io_uring?iopoll&hybrid_iopoll" => Way::Refused("hybrid_iopoll needs Linux 6.13"),
        _ if !name.contains("hipri") && !name.contains("iopoll") => Way::Interrupts,
        _ if polling => Way::Polls,
        // ringdb asks the device, too, because the kernel 6.1 says nothing.
        _ if name.starts_with("ringdb") => Way::Refused("nvme.poll_queues"),
        _ if machine.kernel == Kernel::V6_1 || name.contains("io_uring_cmd") => Way::Silent,
        _ => Way::Refused("not supported"),
    }
}

fn check(machine: &Machine, row: &Row) -> Check {
    let Row { name, status, reads, interrupts, polls, said } = row;
    let found =
        format!("{reads} reads of the block layer, {interrupts} interrupts, {polls} calls of nvme_poll");
    // Commands of NVMe are no reads of the block layer; fio gives 2000 of them.
    let wanted = if *reads > 0 { *reads } else { 2000 };
    let by_interrupts = *status == 0 && *polls == 0 && *interrupts * 10 >= wanted * 9;
    // A few interrupts are those of the file system's own writes.
    let few = *interrupts * 100 <= wanted;
    match expected(machine, name) {
        Way::Interrupts => Check::new(format!("{name} waits for interrupts"), by_interrupts, found),
        Way::Polls => Check::new(format!("{name} polls"), *status == 0 && few && *polls >= wanted, found),
        Way::Silent => {
            Check::new(format!("{name} uses interrupts, and does not say so"), by_interrupts, found)
        }
        Way::Refused(why) => Check::new(
            format!("{name} is refused"),
            *status != 0 && said.contains(why),
            format!("{found}; {said}"),
        ),
    }
}

fn judge(machine: &Machine, results: &Results) -> Result<Findings> {
    let rows = results.json_lines("rows.json")?.into_iter().map(serde_json::from_value);
    let rows: Vec<Row> = rows
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Failure::Failed(format!("rows.json of the guest: {e}")))?;
    let mut checks: Vec<Check> = rows.iter().map(|r| check(machine, r)).collect();
    checks.push(Check::new("all eight ways were tried", rows.len() == 8, rows.len().to_string()));
    Ok(Findings { checks, data: serde_json::to_value(rows)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, status: i32, interrupts: u64, polls: u64, said: &str) -> Row {
        Row { name: name.into(), status, reads: 2000, interrupts, polls, said: said.into() }
    }

    #[test]
    fn counts_decide_who_polls() {
        let (without, with) = (Machine::new(Kernel::V6_1, 4, 0), Machine::new(Kernel::V6_1, 4, 1));
        let holds = |m: &Machine, r: Row| check(m, &r).holds;
        assert!(holds(&with, row("fio io_uring hipri", 0, 3, 70_000, "")));
        assert!(!holds(&with, row("fio io_uring hipri", 0, 2000, 0, "")));
        assert!(!holds(&with, row("fio io_uring hipri", 0, 2000, 70_000, "")));
        assert!(holds(&with, row("fio io_uring", 0, 2000, 0, "")));
        assert!(!holds(&with, row("fio io_uring", 1, 2000, 0, "")));
        assert!(holds(&without, row("fio io_uring hipri", 0, 2011, 0, "")));
        let refusal = "needs nvme.poll_queues=N";
        assert!(holds(&without, row("ringdb io_uring?iopoll", 4, 0, 0, refusal)));
        assert!(!holds(&without, row("ringdb io_uring?iopoll", 0, 2000, 0, "")));
        assert!(!holds(&without, row("ringdb io_uring?iopoll", 4, 0, 0, "no such file")));
        let new = Machine::new(Kernel::V6_12, 4, 0);
        assert!(holds(&new, row("fio io_uring hipri", 1, 0, 0, "Operation not supported")));
    }
}
