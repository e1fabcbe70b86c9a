//! One history under one seed, and how its cases fare.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringdb::Durability;
use ringdb::engineswap::sim::Disk;
use ringdb::engineswap::uri::SimConfig;

use crate::faults::Kind;
use crate::history::Shape;

/// What is done to the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Crash,
    Faults,
    /// Several threads, with both.
    Crowd,
}

/// A history and what is to be tried with it. As text: `crash:fill:process:17`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub mode: Mode,
    pub shape: String,
    pub durability: Durability,
    pub seed: u64,
    /// Outcomes for each cut.
    pub outcomes: u64,
    /// One operation in so many.
    pub every: u64,
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = match self.mode {
            Mode::Crash => "crash",
            Mode::Faults => "faults",
            Mode::Crowd => "crowd",
        };
        let log = if self.durability == Durability::Sync { "sync" } else { "process" };
        write!(f, "{mode}:{}:{log}:{}", self.shape, self.seed)
    }
}

impl Job {
    /// From its text; also the rest behind it, which names a case.
    pub fn parse(text: &str) -> Option<(Job, Option<String>)> {
        let mut parts = text.splitn(5, ':');
        let mode = match parts.next()? {
            "crash" => Mode::Crash,
            "faults" => Mode::Faults,
            "crowd" => Mode::Crowd,
            _ => return None,
        };
        let shape = parts.next()?.to_string();
        if Shape::named(&shape).is_none()
            && !(mode == Mode::Crowd && crate::crowd::NAMES.contains(&&shape[..]))
        {
            return None;
        }
        let durability = match parts.next()? {
            "process" => Durability::Process,
            "sync" => Durability::Sync,
            _ => return None,
        };
        let seed = parts.next()?.parse().ok()?;
        let job = Job { mode, shape, durability, seed, outcomes: 6, every: 1 };
        Some((job, parts.next().map(str::to_string)))
    }

    /// An empty disk. Of sixteen seeds three need direct transfers aligned to 4 KiB, three to more than the store's own
    /// blocks, so that it goes through the page cache; four write every page to a new place (copy on write).
    pub fn disk(&self) -> Disk {
        let align = match self.seed % 16 {
            8..=10 => 4096,
            11..=13 => 16384,
            _ => SimConfig::default().align,
        };
        let cow = matches!(self.seed % 16, 10 | 13..=15);
        let config = SimConfig { seed: self.seed, align, cow, ..SimConfig::default() };
        Disk::from_config(&config).expect("a disk")
    }

    pub fn shape(&self) -> &'static Shape {
        Shape::named(&self.shape).expect("a history's name")
    }

    /// Does it all, or one case of it.
    pub fn run(&self, progress: &mut Progress, case: Option<&str>) {
        progress.job = self.to_string();
        let parts: Vec<&str> = case.map(|c| c.split([':', '.']).collect()).unwrap_or_default();
        let number = |i: usize| -> u64 {
            parts.get(i).and_then(|p| p.parse().ok()).unwrap_or_else(|| panic!("a wrong case: {case:?}"))
        };
        match self.mode {
            Mode::Crash => {
                crate::crash::crash(self, progress, case.map(|_| (number(0) as usize, number(1))));
            }
            Mode::Faults => {
                let kind = |name: &str| Kind::named(name).unwrap_or_else(|| panic!("no fault {name}"));
                let only = case.map(|_| (number(0) as usize, number(1), kind(parts.get(2).unwrap_or(&""))));
                crate::faults::faults(self, progress, only);
            }
            Mode::Crowd => {
                let what = parts.first().map(|w| w.to_string());
                let only = what.map(|what| crate::crowd::Only { what, at: number(1), outcome: number(2) });
                crate::crowd::crowd(self, progress, only);
            }
        }
    }
}

/// What has been counted.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    pub cases: u64,
    /// Those of them with several threads.
    #[serde(default)]
    pub crowds: u64,
    pub crash_points: u64,
    pub faults: u64,
    /// Injected faults by kind and by what they hit.
    pub by_kind: BTreeMap<String, u64>,
    pub by_operation: BTreeMap<String, u64>,
    /// Faults whose operation was never reached.
    pub not_reached: u64,
    pub histories: u64,
    pub operations: u64,
}

impl Counts {
    pub fn add(&mut self, more: &Counts) {
        self.cases += more.cases;
        self.crowds += more.crowds;
        self.crash_points += more.crash_points;
        self.faults += more.faults;
        self.not_reached += more.not_reached;
        self.histories += more.histories;
        self.operations += more.operations;
        for (to, from) in [(&mut self.by_kind, &more.by_kind), (&mut self.by_operation, &more.by_operation)] {
            for (k, n) in from {
                *to.entry(k.clone()).or_default() += n;
            }
        }
    }
}

/// A case that failed.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    pub case: String,
    pub what: String,
    pub message: String,
}

/// Counts cases, tells about them, and gives up at the first that fails.
pub struct Progress {
    pub job: String,
    pub counts: Counts,
    pub failure: Option<Failure>,
    /// At most so many cases.
    pub limit: u64,
    mode: Mode,
    told: Instant,
    /// The case at work and when it began, for the watchdog.
    current: Arc<Mutex<Option<(String, Instant)>>>,
    loud: bool,
}

/// The longest that one case may take.
const HUNG: Duration = Duration::from_secs(60);

/// The first panic of any thread since it was last taken.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

impl Progress {
    /// With `loud`, tells the parent how far it is, a line of JSON each.
    pub fn new(mode: Mode, limit: u64, loud: bool) -> Progress {
        std::panic::set_hook(Box::new(|p| {
            let text = format!("{p}").replace('\n', ": ");
            PANIC.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(text);
        }));
        let current: Arc<Mutex<Option<(String, Instant)>>> = Arc::default();
        let watched = current.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                if let Some((case, since)) = &*watched.lock().unwrap()
                    && since.elapsed() > HUNG
                {
                    let failure =
                        Failure { case: case.clone(), what: String::new(), message: "it hangs".into() };
                    say(&serde_json::json!({ "failure": failure }));
                    std::process::exit(2);
                }
            }
        });
        Progress {
            job: String::new(),
            counts: Counts::default(),
            failure: None,
            limit,
            mode,
            told: Instant::now(),
            current,
            loud,
        }
    }

    /// A history, or a life of it, of so many operations.
    pub fn history(&mut self, operations: u64) {
        self.counts.histories += 1;
        self.counts.operations += operations;
    }

    pub fn is_over(&self) -> bool {
        self.failure.is_some() || self.counts.cases >= self.limit
    }

    /// Runs one case, which returns how many crash points it was.
    pub fn case(
        &mut self,
        id: &str,
        what: impl Fn() -> String,
        disk: &Disk,
        run: impl FnOnce() -> Result<u64, String>,
    ) {
        let case = format!("{}:{id}", self.job);
        *self.current.lock().unwrap() = Some((case.clone(), Instant::now()));
        let result = catch_unwind(AssertUnwindSafe(run));
        *self.current.lock().unwrap() = None;
        let panic = PANIC.lock().unwrap_or_else(|e| e.into_inner()).take();
        let result = match (result, panic) {
            (Ok(r), None) => r,
            (_, Some(p)) => Err(format!("a panic: {p}")),
            (Err(_), None) => Err("a panic".into()),
        };
        self.counts.cases += 1;
        self.counts.crowds += u64::from(self.mode == Mode::Crowd);
        match result {
            Ok(n) if self.mode != Mode::Faults => self.counts.crash_points += n,
            Ok(_) => {}
            Err(message) => {
                keep(&case, disk);
                self.failure = Some(Failure { case, what: what(), message });
            }
        }
        if self.loud && self.told.elapsed() > Duration::from_millis(500) {
            self.told = Instant::now();
            say(&serde_json::json!({ "counts": self.counts }));
        }
    }

    /// A fault was to be injected, and has hit these calls.
    pub fn fault(&mut self, kind: &str, hits: &[String]) {
        if hits.is_empty() {
            self.counts.not_reached += 1;
            return;
        }
        self.counts.faults += 1;
        *self.counts.by_kind.entry(kind.into()).or_default() += 1;
        for hit in hits {
            *self.counts.by_operation.entry(hit.clone()).or_default() += 1;
        }
    }

    /// The last word.
    pub fn finish(&self) {
        say(&serde_json::json!({ "counts": self.counts }));
        if let Some(f) = &self.failure {
            say(&serde_json::json!({ "failure": f }));
        }
        say(&serde_json::json!({ "done": true }));
    }
}

fn say(line: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone needs no answer.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Keeps the disk that a failed case began with, to be looked at with the `ringdb` command.
fn keep(case: &str, disk: &Disk) {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("campaign").join(case.replace([':', '.'], "-"));
    let _ = std::fs::remove_dir_all(&to);
    if let Err(e) = disk.dump(&to) {
        eprintln!("{e}");
    }
}
