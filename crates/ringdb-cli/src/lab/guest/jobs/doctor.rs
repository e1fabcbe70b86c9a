//! What `ringdb doctor` finds on each kernel, with and without polling queues.

use super::super::images::Kernel;
use super::super::job::{Check, Findings, Job, Machine, Results};
use crate::error::Result;

pub const JOB: Job = Job {
    name: "doctor",
    asks: "does doctor tell what each kernel and drive has, polling that is not to be had included?",
    tests: None,
    machines,
    script: include_str!("doctor.sh"),
    afterwards: None,
    judge,
};

fn machines() -> Vec<Machine> {
    Kernel::ALL.iter().flat_map(|k| [0, 1].map(|polls| Machine::new(*k, 2, polls))).collect()
}

fn judge(machine: &Machine, results: &Results) -> Result<Findings> {
    let data = results.json("doctor.json")?;
    let all = data["features"].as_array().cloned().unwrap_or_default();
    let feature = |name: &str| {
        let it = all.iter().find(|f| f["name"] == name);
        let works = it.and_then(|f| f["works"].as_bool());
        (works, it.map_or(String::new(), |f| f["detail"].as_str().unwrap_or_default().to_string()))
    };
    let expects = |name: &str, works: bool| {
        let (found, detail) = feature(name);
        let what = format!("{name} {}", if works { "works" } else { "is refused" });
        Check::new(what, found == Some(works), detail)
    };
    let new = machine.kernel == Kernel::V6_12;
    let checks = vec![
        expects("posix", true),
        expects("libaio", true),
        expects("io_uring", true),
        expects("io_uring?single_issuer&defer_taskrun", true),
        expects("io_uring?no_sqarray", new),
        // The kernel 6.1 takes the flag where nothing can be polled, and uses interrupts.
        expects("io_uring?iopoll", machine.poll_queues > 0),
        expects("io_uring?iopoll&hybrid_iopoll", false),
        expects("O_DIRECT", true),
    ];
    Ok(Findings { checks, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(iopoll: bool) -> Results {
        let feature =
            |name: &str, works: bool| format!(r#"{{"name":"{name}","works":{works},"detail":"d"}}"#);
        let list = [
            feature("posix", true),
            feature("libaio", true),
            feature("io_uring", true),
            feature("io_uring?single_issuer&defer_taskrun", true),
            feature("io_uring?no_sqarray", false),
            feature("io_uring?iopoll", iopoll),
            feature("io_uring?iopoll&hybrid_iopoll", false),
            feature("O_DIRECT", true),
        ];
        let text = format!(r#"{{"features":[{}]}}"#, list.join(","));
        Results { files: [("doctor.json".to_string(), text.into_bytes())].into() }
    }

    #[test]
    fn polling_that_is_not_there_must_be_refused() {
        let without = Machine::new(Kernel::V6_1, 2, 0);
        let all = |f: Findings| f.checks.iter().all(|c| c.holds);
        assert!(all(judge(&without, &results(false)).unwrap()));
        assert!(!all(judge(&without, &results(true)).unwrap()));
        assert!(!all(judge(&Machine::new(Kernel::V6_1, 2, 1), &results(false)).unwrap()));
        let none = Results { files: [("doctor.json".to_string(), b"kernel panic".to_vec())].into() };
        assert!(judge(&without, &none).unwrap_err().to_string().contains("no JSON"));
    }
}
