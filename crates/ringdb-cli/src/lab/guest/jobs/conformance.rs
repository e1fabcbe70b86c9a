//! The matrix of kernels: the engines' conformance suite, and a store on each engine.

use serde_json::json;

use super::super::images::Kernel;
use super::super::job::{Bus, Check, Disk, Findings, Job, Machine, Results, tail};
use crate::error::Result;

pub const JOB: Job = Job {
    name: "conformance",
    asks: "do engines and store behave alike on kernels 6.1 and 6.12, on 1 and 4 CPUs, and where io_uring is forbidden?",
    tests: Some(
        "engineswap's test program conformance (`cargo test -p engineswap --test conformance --no-run` names it)",
    ),
    machines,
    script: include_str!("conformance.sh"),
    afterwards: None,
    judge,
};

const ALL: &str = "posix,libaio,io_uring";

fn machines() -> Vec<Machine> {
    let with = |kernel, cpus, polls, set: &[(&'static str, &str)]| {
        let variables = set.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        let disks = vec![
            Disk { serial: "test", mib: 1024, bus: Bus::Virtio },
            Disk { serial: "nvme", mib: 64, bus: Bus::Nvme(cpus + polls) },
        ];
        let machine = Machine::new(kernel, cpus, polls);
        Machine { variables, disks, memory_mib: 3072, seconds: 2400, ..machine }
    };
    let mut all = Vec::new();
    for kernel in Kernel::ALL {
        for (cpus, polls) in [(1, 0), (4, 1)] {
            all.push(with(kernel, cpus, polls, &[("REQUIRED", ALL)]));
        }
    }
    // The kernel 6.1 has no kernel.io_uring_disabled.
    all.push(with(Kernel::V6_12, 4, 0, &[("REQUIRED", "posix,libaio"), ("FORBIDDEN", "1")]));
    all
}

fn judge(machine: &Machine, results: &Results) -> Result<Findings> {
    let output = results.text("conformance.txt");
    let summary = output.lines().find(|l| l.contains(" cases in ") && l.ends_with("failures"));
    let skipped: Vec<&str> = output.lines().filter(|l| l.starts_with("skipped ")).collect();
    let clean = results.text("conformance.status").trim() == "0" && summary.is_some();
    let found = match (clean, summary) {
        (true, Some(line)) => line.to_string(),
        _ => format!("{} {}", reasons(&output), tail(&output, 12)),
    };
    let mut checks = vec![Check::new("every case of the conformance suite passes", clean, found)];
    let stores = results.json_lines("stores.json")?;
    for store in &stores {
        let (io, said) = (&store["io"], store["said"].as_str().unwrap_or_default());
        let what = format!("a store on {} is filled, read and verified", io.as_str().unwrap_or_default());
        checks.push(Check::new(what, store["status"] == 0, said));
    }
    let set = |name: &str| machine.variables.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v);
    let wanted = set("REQUIRED").split(',').count() + 1;
    checks.push(Check::new("every engine had its store", stores.len() == wanted, stores.len().to_string()));
    if !set("FORBIDDEN").is_empty() {
        let said = results.text("forbidden.txt");
        let refused = results.text("forbidden.status").trim() == "4" && said.contains("io_uring_disabled");
        checks.push(Check::new("io_uring is refused with the reason", refused, said.trim()));
    }
    let data = json!({ "summary": summary, "skipped": skipped, "stores": stores });
    Ok(Findings { checks, data })
}

/// The first panics of the suite, each with its message, which stands in the line below.
fn reasons(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let panics = lines.windows(2).filter(|w| w[0].contains("panicked at")).take(4);
    panics.flatten().copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(files: &[(&str, &str)]) -> Results {
        Results { files: files.iter().map(|(n, t)| (n.to_string(), t.as_bytes().to_vec())).collect() }
    }

    #[test]
    fn a_suite_without_its_last_line_has_not_passed() {
        let machine = &machines()[0];
        let stores: String = ["posix", "libaio", "io_uring", "auto"]
            .iter()
            .map(|io| format!("{{\"io\": \"{io}\", \"status\": 0, \"said\": \"\"}}\n"))
            .collect();
        let run = |text: &str, status: &str, stores: &str| {
            let files = [("conformance.txt", text), ("conformance.status", status), ("stores.json", stores)];
            judge(machine, &results(&files)).unwrap().checks.iter().all(|c| c.holds)
        };
        let last = "skipped sim: no\n4000 cases in 40.0 s, 0 failures\n";
        assert!(run(last, "0\n", &stores));
        assert!(!run(last, "101\n", &stores));
        assert!(!run("", "0\n", &stores));
        assert!(!run(last, "0\n", &stores.replace("status\": 0", "status\": 4")));
        assert!(!run(last, "0\n", stores.split_once('\n').unwrap().1));
        assert!(judge(machine, &results(&[("stores.json", "oops")])).is_err());
        let text = "ok\nthread 'main' panicked at a.rs:1:\nno completion\nstack\n";
        assert_eq!(reasons(text), "thread 'main' panicked at a.rs:1:\nno completion");
    }
}
