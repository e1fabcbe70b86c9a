//! What studies are made with: this command's own benchmarks, as children.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cleanup::{TempDir, Tied};
use crate::error::{Failure, Result, failed};

/// A row of `ringdb fileperf --json`, as far as studies look at it.
#[derive(Clone, Debug, Deserialize)]
pub struct FileRow {
    pub mode: String,
    pub numjobs: u32,
    pub iodepth: u32,
    pub fixed_buffers: bool,
    pub rps: f64,
    pub rps_rounds: Vec<f64>,
    pub ops: u64,
    pub cpu_us_per_op: f64,
    pub registered: u64,
    pub latency_us: Latency,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Latency {
    pub avg: f64,
    pub p50: f64,
    pub p99: f64,
}

/// A row of `ringdb bench --json`.
#[derive(Clone, Debug, Deserialize)]
pub struct StoreRow {
    pub workload: String,
    pub ops_per_s: f64,
    pub p99_us: f64,
    pub device_read_bytes: u64,
    pub ops: u64,
}

/// Where studies run, and how long.
pub struct Lab {
    exe: PathBuf,
    dir: TempDir,
    pub rounds: u32,
    pub seconds: f64,
    commands: RefCell<Vec<String>>,
}

/// A child that is ended with its owner.
pub struct Background {
    child: Child,
    _tied: Tied,
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a child says until its end, which a signal to this process is, too.
fn output(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (child, _tied) = Tied::spawn(command)?;
    child.wait_with_output()
}

/// The path of a program, since bpftrace wants one; its name if there is none.
fn found(name: &str) -> String {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&dirs).map(|d| d.join(name)).find(|p| p.is_file());
    path.map_or(name.into(), |p| p.display().to_string())
}

impl Lab {
    pub fn new(dir: Option<&Path>, rounds: u32, seconds: f64) -> Result<Lab> {
        let dir = match dir {
            Some(dir) => TempDir::new_in(dir, ".ringdb-lab-")?,
            None => TempDir::new("ringdb-lab-")?,
        };
        Ok(Lab { exe: std::env::current_exe()?, dir, rounds, seconds, commands: RefCell::default() })
    }

    /// A path in the lab's directory.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The commands since the last call, as a user would type them.
    pub fn take_commands(&self) -> Vec<String> {
        self.commands.take()
    }

    /// What runs, on these CPUs or on all.
    fn line(&self, cpus: Option<&str>, args: &[String]) -> Vec<String> {
        let mut line: Vec<String> = cpus.map_or(vec![], |c| vec![found("taskset"), "-c".into(), c.into()]);
        line.push(self.exe.display().to_string());
        line.extend_from_slice(args);
        line
    }

    fn note(&self, cpus: Option<&str>, args: &[String]) {
        let before = cpus.map_or(String::new(), |c| format!("taskset -c {c} "));
        let quoted = args.iter().map(|a| if a.contains(['&', '?']) { format!("'{a}'") } else { a.clone() });
        let line = format!("{before}ringdb {}", quoted.collect::<Vec<_>>().join(" "));
        let line = line.replace(&self.dir.path().display().to_string(), "DIR");
        self.commands.borrow_mut().push(line);
    }

    fn rows<T: DeserializeOwned>(&self, cpus: Option<&str>, mut args: Vec<String>) -> Result<Vec<T>> {
        self.note(cpus, &args);
        args.extend(["--json".into(), "-".into()]);
        let line = self.line(cpus, &args);
        // The matrix leaves a plot where it runs.
        let run = output(Command::new(&line[0]).args(&line[1..]).current_dir(self.dir.path()));
        let run = run.map_err(|e| Failure::Failed(format!("{}: {e}", line[0])))?;
        if !run.status.success() {
            return failed(format!(
                "ringdb {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&run.stderr).trim()
            ));
        }
        // A table comes before the list.
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let start = text.find("\n[").map_or(0, |i| i + 1);
        serde_json::from_str(&text[start..])
            .map_err(|e| Failure::Failed(format!("what fileperf or bench said: {e}")))
    }

    fn file_args(&self, file: &str, seconds: f64, engines: &[&str], args: &[&str]) -> Vec<String> {
        let mut all = vec!["fileperf".to_string(), "--filename".into(), file.into()];
        all.extend(["--runtime".into(), format!("{seconds}s")]);
        if !args.contains(&"--warmup") {
            all.extend(["--warmup".into(), "100ms".into()]);
        }
        for engine in engines {
            all.extend(["--io".into(), (*engine).into()]);
        }
        all.extend(args.iter().map(ToString::to_string));
        all
    }

    /// The same in the lab's rounds.
    fn file_rounds(&self, file: &str, seconds: f64, engines: &[&str], args: &[&str]) -> Vec<String> {
        let mut all = self.file_args(file, seconds, engines, args);
        all.extend(["--rounds".into(), self.rounds.to_string()]);
        all
    }

    /// `fileperf` on a file of the lab's directory, the engines in turn.
    pub fn fileperf(&self, cpus: Option<&str>, engines: &[&str], args: &[&str]) -> Result<Vec<FileRow>> {
        self.rows(cpus, self.file_rounds(&self.path("file"), self.seconds, engines, args))
    }

    /// All cells of `fileperf --matrix`, on another file.
    pub fn matrix(&self, file: &str, engine: &str, args: &[&str]) -> Result<Vec<FileRow>> {
        let args: Vec<&str> = ["--matrix"].iter().chain(args).copied().collect();
        self.rows(None, self.file_rounds(file, self.seconds / 4.0, &[engine], &args))
    }

    /// `fileperf` with arguments that differ from side to side, in rounds that take turns; each side's rows.
    pub fn in_turn(&self, sides: &[(&str, &[&str])], args: &[&str]) -> Result<Vec<Vec<FileRow>>> {
        let mut all: Vec<Vec<FileRow>> = vec![Vec::new(); sides.len()];
        let (file, seconds) = (self.path("file"), self.seconds / f64::from(self.rounds));
        let before = self.commands.borrow().len();
        for _ in 0..self.rounds {
            for (rows, (engine, own)) in all.iter_mut().zip(sides) {
                let args: Vec<&str> = args.iter().chain(*own).copied().collect();
                rows.extend(self.rows::<FileRow>(None, self.file_args(&file, seconds, &[engine], &args))?);
            }
        }
        self.commands.borrow_mut().truncate(before + sides.len());
        Ok(all)
    }

    /// `fileperf` beside others, until it is dropped.
    pub fn beside(&self, engine: &str, args: &[&str]) -> Result<Background> {
        let args = self.file_args(&self.path("file"), 3600.0, &[engine], args);
        self.note(None, &args);
        let line = self.line(None, &args);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Tied::spawn(&mut command);
        let (child, _tied) = begun.map_err(|e| Failure::Failed(format!("{}: {e}", line[0])))?;
        Ok(Background { child, _tied })
    }

    /// `bench` in rounds that take turns; each side's rows, in its order. With `fill` the store is filled by that
    /// first, on any engine and unmeasured, and settles; without, it is fresh.
    pub fn bench(
        &self,
        sides: &[(&str, &[&str])],
        fill: &[&str],
        args: &[&str],
    ) -> Result<Vec<Vec<StoreRow>>> {
        let mut all: Vec<Vec<StoreRow>> = vec![Vec::new(); sides.len()];
        let (before, db) = (self.commands.borrow().len(), self.path("db"));
        for _ in 0..self.rounds {
            for (rows, (engine, own)) in all.iter_mut().zip(sides) {
                let _ = std::fs::remove_dir_all(&db);
                let line = |engine: &str, args: &[&str]| -> Vec<String> {
                    let line = ["bench", "--db", &db, "--io", engine].into_iter();
                    line.chain(args.iter().chain(*own).copied()).map(str::to_owned).collect()
                };
                let mut measured = line(engine, args);
                if !fill.is_empty() {
                    let workloads = ["--workloads", "fillrandom,flush,waitforcompaction"];
                    self.rows::<StoreRow>(None, line("auto", &[&workloads, fill].concat()))?;
                    measured.push("--use-existing-db".into());
                }
                rows.extend(self.rows::<StoreRow>(None, measured)?);
            }
        }
        let _ = std::fs::remove_dir_all(&db);
        let each = if fill.is_empty() { 1 } else { 2 };
        self.commands.borrow_mut().truncate(before + each * sides.len());
        Ok(all)
    }

    /// How often each of these happened while `fileperf` ran for a second, by tracepoints of its process and its
    /// kernel workers: the name, and a probe of bpftrace, with a condition behind `&&`. `Err` in words where that is
    /// not possible.
    pub fn counts(
        &self,
        cpus: Option<&str>,
        engine: &str,
        args: &[&str],
        probes: &[(&str, &str)],
    ) -> std::result::Result<BTreeMap<String, u64>, String> {
        let (rows, log) = (self.path("counted.json"), self.path("counted.log"));
        // What is warmed up with would be counted, and is not among the requests.
        let args: Vec<&str> = args.iter().copied().chain(["--warmup", "0"]).collect();
        let mut child = self.file_args(&self.path("file"), 1.0, &[engine], &args);
        self.note(cpus, &child);
        child.extend(["--json".into(), rows.clone()]);
        let line = self.line(cpus, &child);
        let script: String = probes
            .iter()
            .map(|(name, probe)| {
                let (probe, also) = probe.split_once(" && ").unwrap_or((probe, "1"));
                format!("{probe} /pid == cpid && {also}/ {{ @{name} = count(); }} ")
            })
            .collect();
        let counts = ["-f", "json", "-o", &log, "-c", &line.join(" "), "-e", &script];
        let run = output(Command::new("bpftrace").args(counts));
        let run = run.map_err(|e| format!("not counted: bpftrace: {e}"))?;
        let said = String::from_utf8_lossy(&run.stderr).trim().to_owned();
        if !run.status.success() {
            return Err(format!("not counted: bpftrace: {said}"));
        }
        let text = std::fs::read_to_string(&log).map_err(|e| format!("not counted: {e}"))?;
        let mut counts: BTreeMap<String, u64> =
            probes.iter().map(|(name, _)| ((*name).to_string(), 0)).collect();
        for line in text.lines() {
            let Ok(v) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let Some(map) = v["data"].as_object().filter(|_| v["type"] == "map") else { continue };
            for (name, n) in map {
                counts.insert(name.trim_start_matches('@').into(), n.as_u64().unwrap_or(0));
            }
        }
        let rows = std::fs::read(&rows).map_err(|e| format!("not counted: {e}"))?;
        let rows: Vec<FileRow> = serde_json::from_slice(&rows).map_err(|e| format!("not counted: {e}"))?;
        counts.insert("requests".into(), rows.iter().map(|r| r.ops).sum());
        Ok(counts)
    }
}
