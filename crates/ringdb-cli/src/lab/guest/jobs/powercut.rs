//! Power cuts of a whole machine: what every moment of the disk's log leaves is recovered on this machine, and checked
//! against what had been acknowledged by then.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::super::images::Kernel::{self, V6_1, V6_12};
use super::super::job::{Bus, Check, Disk, Findings, Job, Machine, Results};
use super::super::parcel::Files;
use super::super::qemu::{Qemu, program};
use crate::error::{Result, at};

pub const TESTS: &str =
    "ringdb's test program power_cuts (`cargo test -p ringdb --test power_cuts --no-run` names it)";

pub const JOB: Job = Job {
    name: "powercut",
    asks: "does a power cut at any moment leave a sound store with every acknowledged Sync write, on ext4, xfs and btrfs?",
    tests: Some(TESTS),
    machines: campaign,
    script: include_str!("powercut.sh"),
    afterwards: Some(afterwards),
    judge,
};

pub const SMOKE: Job = Job {
    name: "powercut-smoke",
    asks: "the same at a hundred moments",
    machines: || vec![machine(V6_12, "ext4", "auto", "process", 100, None)],
    ..JOB
};

pub const MISTAKES: Job = Job {
    name: "powercut-mistakes",
    asks: "are three broken safety rules found by power cuts? (the test program with the feature `mutations`)",
    machines: mistakes,
    ..JOB
};

fn campaign() -> Vec<Machine> {
    [
        (V6_12, "ext4", "io_uring", "sync"),
        (V6_1, "ext4", "posix", "process"),
        (V6_1, "xfs", "libaio", "sync"),
        (V6_12, "xfs", "io_uring", "process"),
        (V6_12, "btrfs", "posix", "sync"),
        (V6_1, "btrfs", "io_uring", "process"),
    ]
    .map(|(kernel, fs, io, durability)| machine(kernel, fs, io, durability, 1700, None))
    .into()
}

fn mistakes() -> Vec<Machine> {
    ["acknowledge-before-sync", "skip-table-sync", "skip-every-directory-sync"]
        .map(|name| machine(V6_12, "ext4", "auto", "process", 2000, Some(name)))
        .into()
}

/// Where the file system ends, and records begin.
pub const FS_MIB: u64 = 320;
const SEED: u64 = 1;
/// What a disk after a power cut may take at most; there are three for each moment.
const SECONDS_EACH: u64 = 3;

fn machine(
    kernel: Kernel,
    fs: &str,
    io: &str,
    durability: &str,
    points: u64,
    mistake: Option<&str>,
) -> Machine {
    let mut variables = vec![
        ("FS", fs.to_string()),
        ("IO", io.into()),
        ("DURABILITY", durability.into()),
        ("LIVES", "6".into()),
        ("BATCHES", "250".into()),
        ("POINTS", points.to_string()),
    ];
    variables.extend(mistake.map(|m| ("MISTAKE", m.to_string())));
    let disks = vec![Disk { serial: "test", mib: FS_MIB + 1, bus: Bus::Logged }];
    Machine { disks, variables, seconds: 900, ..Machine::new(kernel, 2, 0) }
}

fn set<'a>(machine: &'a Machine, name: &str) -> &'a str {
    machine.variables.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v)
}

/// Has the test program go through the log, in a mount namespace of its own.
fn afterwards(
    runner: &Qemu,
    machine: &Machine,
    dir: &Path,
    tests: &Path,
    hear: &mut dyn FnMut(&str),
) -> Result<Files> {
    let points = set(machine, "POINTS");
    let seconds = 60 + 3 * SECONDS_EACH * points.parse::<u64>().unwrap_or_default();
    let out = dir.join("replay.json");
    let mut command = Command::new(program("unshare", "util-linux")?);
    command.args(["--mount", "--propagation", "private", "--"]).arg(tests).arg("replay").arg(&out);
    command.arg(dir.join(machine.disks[0].log()));
    command.args([set(machine, "FS"), &(FS_MIB << 20).to_string(), set(machine, "DURABILITY"), points]);
    command.arg(SEED.to_string());
    if !set(machine, "MISTAKE").is_empty() {
        command.arg("until-loss");
    }
    hear("@@ power cuts");
    runner.bounded(["going through the log", "what mounts the disks (as root)"], &command, seconds, hear)?;
    Ok([("replay.json".to_string(), at(&out, std::fs::read(&out))?)].into())
}

fn judge(machine: &Machine, results: &Results) -> Result<Findings> {
    let found = results.json("replay.json")?;
    let count = |name: &str| found[name].as_u64().unwrap_or_default();
    let told: Vec<&str> = found["told"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let words =
        format!("{} losses at {} moments, {} disks: ", count("losses"), count("points"), count("cases"));
    let first = told.first().map_or(String::new(), |t| format!("first: {t}"));
    if !set(machine, "MISTAKE").is_empty() {
        let what = format!("{} is found", set(machine, "MISTAKE"));
        return Ok(Findings {
            checks: vec![Check::new(what, count("losses") > 0, words + &first)],
            data: found,
        });
    }
    let wanted = set(machine, "POINTS").parse().unwrap_or(u64::MAX);
    let names = ["flushes", "compactions", "recycled", "manifests", "acknowledgements", "stores"];
    let counts: Vec<String> = names.iter().map(|n| format!("{} {n}", count(n))).collect();
    let checks = vec![
        Check::new(
            "nothing acknowledged is lost, all is in order, verify is clean",
            count("losses") == 0,
            words + &first,
        ),
        Check::new("so many moments were tried", count("points") >= wanted, count("points").to_string()),
        Check::new(
            "there were flushes, compactions, recycled segments and new manifests among them",
            names.iter().all(|n| count(n) >= 2),
            counts.join(", "),
        ),
    ];
    Ok(Findings { checks, data: found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(machine: &Machine, changed: &[(&str, u64)]) -> bool {
        let mut found = serde_json::json!({
            "points": 1700, "cases": 5000, "losses": 0, "told": [], "flushes": 50, "compactions": 20, "recycled": 30,
            "manifests": 9, "acknowledgements": 900, "stores": 4900,
        });
        changed.iter().for_each(|(name, value)| found[name] = (*value).into());
        let files = [("replay.json".to_string(), found.to_string().into_bytes())];
        judge(machine, &Results { files: files.into() }).unwrap().checks.iter().all(|c| c.holds)
    }

    #[test]
    fn a_loss_is_a_defect_or_what_a_mistake_must_show() {
        let (good, bad) = (&campaign()[0], &mistakes()[0]);
        assert!(holds(good, &[]));
        for changed in
            [("losses", 1), ("points", 1699), ("recycled", 0), ("manifests", 1), ("acknowledgements", 0)]
        {
            assert!(!holds(good, &[changed]), "{changed:?}");
        }
        assert!(holds(bad, &[("losses", 1)]));
        assert!(!holds(bad, &[]));
    }

    #[test]
    fn the_campaign_has_ten_thousand_moments_on_three_file_systems() {
        let points: u64 = campaign().iter().map(|m| set(m, "POINTS").parse::<u64>().unwrap()).sum();
        assert!(points >= 10_000);
        for fs in ["ext4", "xfs", "btrfs"] {
            let of: Vec<Machine> = campaign().into_iter().filter(|m| set(m, "FS") == fs).collect();
            assert!(of.iter().any(|m| set(m, "DURABILITY") == "sync"));
            assert!(of.iter().any(|m| set(m, "DURABILITY") == "process"));
        }
    }
}
