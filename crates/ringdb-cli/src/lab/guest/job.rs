//! What a job is: machines to boot, a script that runs in each, and checks of what it brings back.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::images::Kernel;
use super::parcel::Files;
use super::qemu::Qemu;
use crate::error::{Failure, Result};

/// Something to find out in the guest.
pub struct Job {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks.
    pub asks: &'static str,
    /// Whether it runs a test program, which the caller has to name, and which one.
    pub tests: Option<&'static str>,
    /// The machines, booted one after the other.
    pub machines: fn() -> Vec<Machine>,
    /// What runs in each, as root: bash, in a directory with `ringdb` and `tests`. What it leaves in /tmp/results
    /// comes back.
    pub script: &'static str,
    /// What is done here afterwards with the disks, which lie in the directory. The files that it leaves are results.
    pub afterwards: Option<Afterwards>,
    /// What follows from what came back.
    pub judge: fn(&Machine, &Results) -> Result<Findings>,
}

/// What runs programs, the machine, the directory of its disks, the test program, and who hears of the progress.
pub type Afterwards = fn(&Qemu, &Machine, &Path, &Path, &mut dyn FnMut(&str)) -> Result<Files>;

/// A disk for the script, empty; it finds it by `disk SERIAL`.
#[derive(Clone, Debug, Serialize)]
pub struct Disk {
    pub serial: &'static str,
    pub mib: u64,
    pub bus: Bus,
}

/// What a disk is to the guest.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bus {
    /// An NVMe drive with so many pairs of queues. With many requests in flight from several threads, QEMU 7.2's loses
    /// some of them; few at a time it serves.
    Nvme(u32),
    Virtio,
    /// One of virtio that logs each write and flush, in the format of dm-log-writes, to [`Disk::log`].
    Logged,
}

impl Disk {
    /// The name of its log.
    pub fn log(&self) -> String {
        format!("{}.log", self.serial)
    }
}

/// A machine to boot.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub kernel: Kernel,
    pub cpus: u32,
    pub memory_mib: u32,
    /// Polling queues of each NVMe drive, among those that it has.
    pub poll_queues: u32,
    pub disks: Vec<Disk>,
    /// Variables of the script.
    pub variables: Vec<(&'static str, String)>,
    /// How long it may run, from its start to its end.
    pub seconds: u64,
}

/// What booting and switching off may take.
const BOOT_SECONDS: u64 = 60;

impl Machine {
    /// With an NVMe drive "test" that has a pair of queues for each CPU.
    pub fn new(kernel: Kernel, cpus: u32, poll_queues: u32) -> Machine {
        let test = Disk { serial: "test", mib: 1024, bus: Bus::Nvme(cpus + poll_queues) };
        Machine {
            kernel,
            cpus,
            memory_mib: 2048,
            poll_queues,
            disks: vec![test],
            variables: vec![],
            seconds: 300,
        }
    }

    /// How long its script may take.
    pub fn script_seconds(&self) -> u64 {
        self.seconds.saturating_sub(BOOT_SECONDS).max(1)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        let set = self.variables.iter().map(|(name, value)| format!(", {name}={value}"));
        let cpus = if self.cpus == 1 { "1 CPU".into() } else { format!("{} CPUs", self.cpus) };
        let polls = if self.poll_queues > 0 { ", polling queues" } else { "" };
        format!("{}, {cpus}{polls}{}", self.kernel.name(), set.collect::<String>())
    }
}

/// What a machine brought back.
pub struct Results {
    pub files: Files,
}

impl Results {
    /// A file's text; what is not UTF-8 is marked as such.
    pub fn text(&self, name: &str) -> String {
        self.files.get(name).map_or(String::new(), |b| String::from_utf8_lossy(b).into_owned())
    }

    /// A file's value.
    pub fn json(&self, name: &str) -> Result<Value> {
        let text = self.text(name);
        let say = |e| Failure::Failed(format!("{name} of the guest is no JSON ({e}): {}", tail(&text, 10)));
        serde_json::from_str(text.trim()).map_err(say)
    }

    /// The lines of a file, each a value.
    pub fn json_lines(&self, name: &str) -> Result<Vec<Value>> {
        let say = |e, line: &str| Failure::Failed(format!("{name} of the guest is no JSON ({e}): {line}"));
        self.text(name).lines().map(|l| serde_json::from_str(l).map_err(|e| say(e, l))).collect()
    }

    /// The exit status of the script.
    pub fn status(&self) -> Option<i32> {
        self.text("status").trim().parse().ok()
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Something that a job claims, and whether it is so.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub what: String,
    pub holds: bool,
    /// The counts that say so.
    pub found: String,
}

impl Check {
    pub fn new(what: impl Into<String>, holds: bool, found: impl Into<String>) -> Check {
        Check { what: what.into(), holds, found: found.into() }
    }
}

/// What came of a machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    pub checks: Vec<Check>,
    /// All counts.
    pub data: Value,
}
