//! Flame graphs: where the CPU time of a program goes (by perf's samples), or where its threads wait (by bpftrace), and
//! what differs between two runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use inferno::collapse::Collapse;
use inferno::{differential, flamegraph};
use rustix::process::{Pid, Signal, kill_process};

use super::tracer::{Target, trace};
use crate::cleanup::{TempDir, Tied};
use crate::error::{Failure, Result, failed};

/// What a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flame {
    /// Where the CPU time goes (perf, 199 samples a second of each CPU)
    OnCpu,
    /// Where threads wait, from when they stop running until they run again (bpftrace)
    OffCpu,
}

impl Flame {
    pub fn name(self) -> &'static str {
        match self {
            Flame::OnCpu => "on-cpu",
            Flame::OffCpu => "off-cpu",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Flame::OnCpu => "samples",
            Flame::OffCpu => "us",
        }
    }
}

/// Stacks, frames joined by `;`, and how much each has.
pub type Folded = BTreeMap<String, u64>;

/// Runs perf over a target until that ends; its samples as stacks. `Err` if there is no perf.
pub fn on_cpu(target: &mut Target, limit: Duration) -> Result<Folded> {
    let dir = TempDir::new("ringdb-flame-")?;
    let data = dir.path().join("perf.data");
    let pid = target.pid().to_string();
    let mut command = Command::new("perf");
    let sample = ["record", "-q", "-e", "cpu-clock", "-F", "199", "--call-graph", "dwarf", "-p", &pid, "-o"];
    command.args(sample).arg(&data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = Tied::spawn(&mut command);
    let (mut perf, _tied) = spawned
        .map_err(|e| Failure::Failed(format!("perf cannot be run ({e}); Debian's package is linux-perf")))?;
    // It has begun when it has opened its events.
    let fds = format!("/proc/{}/fd", perf.id());
    let opened = || {
        let fds = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        fds.filter_map(|f| std::fs::read_link(f.path()).ok())
            .any(|l| l.to_string_lossy().contains("perf_event"))
    };
    let until = Instant::now() + Duration::from_secs(20);
    while !opened() && Instant::now() < until && perf.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // All of them, of each CPU and thread.
    std::thread::sleep(Duration::from_millis(200));
    target.go();
    let ended = target.wait(limit, &AtomicBool::new(false));
    if let Some(pid) = Pid::from_raw(perf.id().cast_signed()) {
        let _ = kill_process(pid, Signal::INT);
    }
    perf.wait()?;
    ended?;
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "comm,pid,tid,time,event,ip,sym,dso", "-i"]).arg(&data);
    let said = script.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let mut folded = Vec::new();
    let mut folder = inferno::collapse::perf::Folder::default();
    folder
        .collapse(&said.stdout[..], &mut folded)
        .map_err(|e| Failure::Failed(format!("perf's samples: {e}")))?;
    let folded = parse_folded(&String::from_utf8_lossy(&folded));
    match folded.is_empty() {
        true => failed("perf took no sample: the program is too short, or perf may not sample here"),
        false => Ok(folded),
    }
}

/// The waits of a target's threads until it ends, in microseconds.
pub fn off_cpu(program: &str, target: &mut Target, limit: Duration) -> Result<Folded> {
    let mut waits = Waits::default();
    trace(program, target, limit, &mut |line| waits.line(line))?;
    match waits.folded.is_empty() {
        true => failed("no thread waited"),
        false => Ok(waits.folded),
    }
}

/// Reads bpftrace's `@waits[thread, operation, stack]: nanoseconds`, whose stack has a line for each frame.
#[derive(Debug, Default)]
struct Waits {
    folded: Folded,
    /// The thread and its operation, and the frames so far, innermost first.
    open: Option<(String, Vec<String>)>,
}

impl Waits {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("@waits[") {
            let mut names = rest.split(',').map(str::trim);
            let (thread, op) = (names.next().unwrap_or(""), names.next().unwrap_or(""));
            let root = match op {
                "" => thread.to_string(),
                op => format!("{thread};engineswap {op}"),
            };
            self.open = Some((root.replace(' ', "_").replace("engineswap_", "engineswap "), Vec::new()));
        } else if let Some(frame) = line.strip_prefix('\t').and_then(|l| l.split_once(' ')) {
            let name = frame.1.split(['+', ' ']).next().unwrap_or("?");
            if let Some((_, frames)) = &mut self.open {
                frames.push(name.to_string());
            }
        }
        let Some(ns) = line.rsplit_once("]: ").and_then(|(_, n)| n.trim().parse::<u64>().ok()) else {
            return;
        };
        if let Some((root, mut frames)) = self.open.take() {
            frames.push(root);
            frames.reverse();
            *self.folded.entry(frames.join(";")).or_insert(0) += ns.div_ceil(1000);
        }
    }
}

/// Reads `stack count` lines.
pub fn parse_folded(text: &str) -> Folded {
    let line = |l: &str| -> Option<(String, u64)> {
        let (stack, n) = l.rsplit_once(' ')?;
        Some((stack.to_string(), n.parse().ok()?))
    };
    let mut all = Folded::new();
    for (stack, n) in text.lines().filter_map(line) {
        *all.entry(stack).or_insert(0) += n;
    }
    all
}

/// Writes them.
pub fn folded_text(folded: &Folded) -> String {
    folded.iter().map(|(stack, n)| format!("{stack} {n}\n")).collect()
}

/// A graph as SVG.
pub fn svg(flame: Flame, folded: &Folded, title: &str) -> Result<String> {
    draw(flame, &folded_text(folded), title)
}

/// The second run's graph, coloured by what it has more (red) or less (blue) than the first, as shares of each.
pub fn difference(flame: Flame, before: &Folded, after: &Folded, title: &str) -> Result<String> {
    let options = differential::Options { normalize: true, ..Default::default() };
    let mut lines = Vec::new();
    let (before, after) = (folded_text(before), folded_text(after));
    differential::from_readers(options, before.as_bytes(), after.as_bytes(), &mut lines)
        .map_err(|e| Failure::Failed(format!("the difference: {e}")))?;
    draw(flame, &String::from_utf8_lossy(&lines), title)
}

fn draw(flame: Flame, lines: &str, title: &str) -> Result<String> {
    let mut options = flamegraph::Options::default();
    options.title = title.to_string();
    options.count_name = flame.unit().to_string();
    // The same input, the same picture.
    options.hash = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.lines(), &mut svg)
        .map_err(|e| Failure::Failed(format!("the flame graph: {e}")))?;
    Ok(String::from_utf8_lossy(&svg).into_owned())
}

/// The stacks of a file that a former run has left.
pub fn read_folded(file: &Path) -> Result<Folded> {
    let text = crate::error::at(file, std::fs::read_to_string(file))?;
    let folded = parse_folded(&text);
    match folded.is_empty() {
        true => failed(format!("{}: no stacks", file.display())),
        false => Ok(folded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = "@waits[ringdb-log, , \n\tffffffff821facd8 __schedule+1560\n\tffffffff813a7407 futex_wait+71\n]: 2000\n\
         @waits[ringdb main, write, \n\tffffffff821facd8 __schedule+1560\n\tffffffff81b5fbbc io_cqring_wait+652\n]: 5500\n";

    fn recorded() -> Folded {
        let mut waits = Waits::default();
        RECORDED.lines().for_each(|l| waits.line(l));
        waits.folded
    }

    #[test]
    fn waits_are_stacks_from_the_thread_inwards() {
        let all = recorded();
        assert_eq!(all["ringdb-log;futex_wait;__schedule"], 2);
        assert_eq!(all["ringdb_main;engineswap write;io_cqring_wait;__schedule"], 6);
        assert_eq!(parse_folded(&folded_text(&all)), all);
    }

    #[test]
    fn a_graph_and_a_difference_name_their_frames() {
        let all = recorded();
        let one = svg(Flame::OffCpu, &all, "waits").unwrap();
        assert!(one.contains("<svg") && one.contains("io_cqring_wait") && one.contains("waits"));
        let mut more = all.clone();
        more.insert("ringdb-log;read".into(), 4);
        let two = difference(Flame::OffCpu, &all, &more, "more waits").unwrap();
        assert!(two.contains("<svg") && two.contains("ringdb-log"), "{two}");
    }
}
