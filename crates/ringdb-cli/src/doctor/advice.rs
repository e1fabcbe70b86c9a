//! From what was seen and measured to a URI and settings, each with its reason: the published guidelines as code.

use serde::Serialize;

use super::features::Feature;
use super::measure::{Commits, Reads, Submission, Writes};
use super::ranking::{self, Choice};
use super::system::System;
use crate::out::human_bytes;

/// A setting of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name in a settings file.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Why.
    pub reason: String,
}

/// What is recommended.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The engine.
    pub io: String,
    /// Why this engine with these options, and why not others.
    pub reasons: Vec<String>,
    /// Settings of a store.
    pub settings: Vec<Setting>,
}

/// What the advice follows from.
pub struct Findings<'a> {
    /// The machine.
    pub system: &'a System,
    /// What works.
    pub features: &'a [Feature],
    /// Reads.
    pub reads: &'a [Reads],
    /// Commits.
    pub commits: &'a [Commits],
    /// Sequential writes.
    pub writes: &'a [Writes],
    /// How long a submission holds its thread, on io_uring.
    pub submission: Option<Submission>,
}

impl Findings<'_> {
    fn works(&self, name: &str) -> bool {
        self.features.iter().any(|f| f.name == name && f.works)
    }

    fn at(&self, io: &str, depth: u32) -> Option<&Reads> {
        self.reads.iter().find(|r| r.io == io && r.iodepth == depth)
    }
}

/// Makes the recommendation.
pub fn advise(f: &Findings<'_>) -> Advice {
    let mut reasons = Vec::new();
    let choice = ranking::choose(f.reads);
    let engine = choice.as_ref().map_or("posix", |c| c.best.io.split('?').next().unwrap_or("posix"));
    if let Some(c) = &choice {
        reasons.push(said(f, c));
    }
    let mut options = Vec::new();
    if engine == "io_uring" {
        ring_options(f, &mut options, &mut reasons);
    } else {
        for name in ["io_uring", "libaio"] {
            if let Some(no) = f.features.iter().find(|x| x.name == name && !x.works) {
                reasons.push(format!("{name} cannot be had: {}", no.detail));
            }
        }
    }
    let io = match options.is_empty() {
        true => engine.to_string(),
        false => format!("{engine}?{}", options.join("&")),
    };
    Advice { io, reasons, settings: settings(f) }
}

/// What the engines' rates and CPU times say.
fn said(f: &Findings<'_>, c: &Choice<'_>) -> String {
    let figures = |r: &Reads| format!("{:.0} at {:.1} us", r.rps, r.cpu_us_per_op);
    let all = f.reads.iter().filter(|r| r.iodepth == ranking::DEPTH);
    let all: Vec<String> = all.map(|r| format!("{} {}", r.io, figures(r))).collect();
    let names: Vec<&str> = c.equals.iter().map(|r| r.io.as_str()).collect();
    let verdict = match names.is_empty() {
        true => "no other is as fast at as little CPU".into(),
        false => format!(
            "no difference to {} outside the spread of the rounds, and the simplest",
            names.join(" and ")
        ),
    };
    let rounds = c.best.rps_rounds.len();
    format!(
        "{}: {verdict} (reads/s with {} in flight at CPU time each, {rounds} rounds: {})",
        c.best.io,
        ranking::DEPTH,
        all.join(", ")
    )
}

fn ring_options(f: &Findings<'_>, options: &mut Vec<&'static str>, reasons: &mut Vec<String>) {
    let mut push = |on: bool, option: &'static str, why: String| {
        if on {
            options.push(option);
        }
        reasons.push(why);
    };
    let spare = f.system.cores >= 4;
    // What it gains in all rounds but the outermost.
    let gain = match (f.at("io_uring?sqpoll", 1), f.at("io_uring", 1)) {
        (Some(with), Some(without)) => ranking::spread(&with.rps_rounds, &without.rps_rounds).0 - 1.0,
        _ => 0.0,
    };
    let sqpoll = f.works("io_uring?sqpoll") && spare && gain > 0.1;
    push(
        sqpoll,
        "sqpoll",
        match (f.works("io_uring?sqpoll"), spare) {
            (false, _) => "no sqpoll: it does not work here".into(),
            (_, false) => {
                format!("no sqpoll: its thread wants a core to itself, and there are {}", f.system.cores)
            }
            _ if sqpoll => format!(
                "sqpoll: {:+.0} % for lone reads, and {} cores leave one for its thread",
                gain * 100.0,
                f.system.cores
            ),
            _ => format!("no sqpoll: {:+.0} % for lone reads is not worth a core", gain * 100.0),
        },
    );
    reasons.push(
        "single_issuer, defer_taskrun, coop_taskrun: not named; rings have them by themselves where the kernel does".into(),
    );
    reasons.push(
        "no fixed_files: no gain was seen, and rings that have them go without single_issuer and defer_taskrun".into(),
    );
    let mut push = |on: bool, option: &'static str, why: String| {
        if on {
            options.push(option);
        }
        reasons.push(why);
    };
    if let Some(s) = f.submission {
        let blocks = s.submit_us > 0.5 * s.total_us && s.total_us > 15.0;
        let idle = f.system.cores >= 4;
        let force = blocks && idle && f.works("io_uring?force_async");
        push(
            force,
            "force_async",
            format!(
                "{}force_async: submitting takes {:.1} us of the {:.1} us of a read, so it {}{}",
                if force { "" } else { "no " },
                s.submit_us,
                s.total_us,
                if blocks { "blocks" } else { "does not block" },
                if blocks && !idle { ", but workers would need idle cores" } else { "" }
            ),
        );
    }
    let poll = f.works("io_uring?iopoll");
    reasons.push(match poll {
        true => "iopoll works: worth a measurement of its own (`ringdb fileperf --direct --io io_uring?iopoll`); it takes direct reads and writes only".into(),
        false => "no iopoll: a polled read of this file is refused".to_string(),
    });
    reasons.push("no fixed_buffers: no gain above noise at 4 KiB; `ringdb fileperf --matrix --bs 64k` measures it for larger requests".into());
}

fn settings(f: &Findings<'_>) -> Vec<Setting> {
    let mut out = Vec::new();
    if let Some(m) = f.system.memory_available_bytes {
        let cache = (m / 4).max(64 << 20) >> 20;
        let reason = format!("a quarter of the {} MiB of memory that are available", m >> 20);
        out.push(Setting { name: "cache_bytes", value: format!("{cache}MiB"), reason });
    }
    let threads = f.system.cores.clamp(2, 4);
    let reason =
        format!("{} cores; two at least, so that a flush need not wait for a compaction", f.system.cores);
    out.push(Setting { name: "background_threads", value: threads.to_string(), reason });
    let unit = f.system.device.as_ref().and_then(|d| d.logical_block_bytes).unwrap_or(512);
    let block = unit.next_power_of_two().clamp(4096, 65_536);
    let reason = format!("one point read is one direct read; the device's blocks are of {unit} bytes");
    out.push(Setting { name: "block_bytes", value: block.to_string(), reason });
    out
}

/// What the measured commits and writes say, for people.
pub fn remarks(f: &Findings<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let best = |one: bool| {
        let those = f.commits.iter().filter(|c| (c.in_flight == 1) == one);
        those.max_by(|a, b| a.per_second.total_cmp(&b.per_second))
    };
    if let (Some(one), Some(many)) = (best(true), best(false)) {
        out.push(format!("one durable commit at a time: {} is fastest, {:.0}/s", one.method, one.per_second));
        let verdict = match many.per_second > one.per_second * 1.2 {
            true => {
                "for durable writes by several threads open the store with durability sync, whose log does this"
            }
            false => "overlap gains little on this device",
        };
        out.push(format!("{} in flight: {:.0}/s; {verdict}", many.in_flight, many.per_second));
    }
    if let Some(w) = f.writes.iter().max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second)) {
        out.push(format!(
            "sequential writes: {} is fastest, {}/s",
            w.method,
            human_bytes(w.bytes_per_second as u64)
        ));
    }
    if let Some(d) = &f.system.device
        && d.write_cache.as_deref() == Some("write back")
        && d.fua == Some(false)
    {
        out.push(format!(
            "{} has a write cache and no FUA: every durable write ends with a flush of the device",
            d.name
        ));
    }
    if matches!(f.system.file_system.as_deref(), Some("tmpfs" | "ramfs")) {
        out.push("this file system is in memory: nothing on it survives a power cut, and its figures say nothing of a disk".into());
    }
    if let (Some(n), false) = (f.system.memlock_bytes, f.system.ipc_lock) {
        out.push(format!(
            "at most {} KiB may be locked in memory (ulimit -l): registered buffers must fit",
            n >> 10
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fileperf::row::Latency;

    fn reads(io: &str, iodepth: u32, rps: f64, cpu: f64) -> Reads {
        Reads::of(io, iodepth, vec![rps; 5], vec![cpu; 5], Latency::default())
    }

    fn works(names: &[&'static str]) -> Vec<Feature> {
        names.iter().map(|name| Feature { name, works: true, detail: String::new() }).collect()
    }

    fn system(cores: usize) -> System {
        System { cores, memory_available_bytes: Some(8 << 30), ..System::default() }
    }

    fn advice(
        system: &System,
        features: &[Feature],
        reads: &[Reads],
        submission: Option<Submission>,
    ) -> Advice {
        advise(&Findings { system, features, reads, commits: &[], writes: &[], submission })
    }

    #[test]
    fn of_equally_fast_engines_the_cheaper_one() {
        let f = works(&[
            "io_uring",
            "libaio",
            "posix",
            "io_uring?coop_taskrun",
            "io_uring?fixed_files",
            "io_uring?sqpoll",
        ]);
        let r = [
            reads("posix", 32, 251e3, 9.0),
            reads("libaio", 32, 245e3, 6.0),
            reads("io_uring", 32, 250e3, 4.0),
        ];
        let a = advice(&system(2), &f, &r, None);
        // What rings have by themselves is not named, nor what gains nothing.
        assert_eq!(a.io, "io_uring");
        assert!(
            a.reasons.iter().any(|r| r.contains("no sqpoll") && r.contains("there are 2")),
            "{:?}",
            a.reasons
        );
        // Where nothing differs it is the simplest, and that is said.
        let r = [reads("libaio", 32, 250e3, 3.8), reads("io_uring", 32, 245e3, 4.0)];
        let a = advice(&system(2), &f, &r, None);
        assert_eq!(a.io, "libaio");
        assert!(a.reasons[0].contains("no difference to io_uring"), "{:?}", a.reasons);
        let r = [reads("libaio", 32, 250e3, 2.0), reads("io_uring", 32, 245e3, 4.0)];
        assert_eq!(advice(&system(2), &f, &r, None).io, "libaio");
        let r = [reads("posix", 32, 250e3, 9.0), reads("io_uring", 32, 150e3, 4.0)];
        assert_eq!(advice(&system(2), &f, &r, None).io, "posix");
    }

    #[test]
    fn sqpoll_needs_a_core_and_a_gain() {
        let f = works(&["io_uring", "io_uring?sqpoll", "io_uring?single_issuer&defer_taskrun"]);
        let r = |gain: f64| {
            [
                reads("io_uring", 1, 1e4, 4.0),
                reads("io_uring?sqpoll", 1, 1e4 * gain, 9.0),
                reads("io_uring", 32, 1e5, 4.0),
            ]
        };
        assert_eq!(advice(&system(8), &f, &r(1.3), None).io, "io_uring?sqpoll");
        assert_eq!(advice(&system(8), &f, &r(1.05), None).io, "io_uring");
        assert_eq!(advice(&system(2), &f, &r(1.3), None).io, "io_uring");
    }

    #[test]
    fn forced_async_only_where_submission_blocks() {
        let f = works(&["io_uring", "io_uring?force_async"]);
        let r = [reads("io_uring", 32, 1e5, 4.0)];
        let io = |cores, submit_us| {
            advice(&system(cores), &f, &r, Some(Submission { submit_us, total_us: 80.0 })).io
        };
        assert_eq!(io(8, 70.0), "io_uring?force_async");
        assert_eq!(io(8, 5.0), "io_uring");
        assert_eq!(io(2, 70.0), "io_uring");
    }

    #[test]
    fn what_is_recommended_can_be_read_back() {
        let a = advice(&system(3), &works(&["posix"]), &[reads("posix", 32, 1.0, 1.0)], None);
        let text = super::super::file_text("/data", &a);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io");
        std::fs::write(&path, text).unwrap();
        let e = ringdb::Options::load(path).unwrap();
        assert_eq!(e.given(), ["io", "cache_bytes", "block_bytes", "background_threads"]);
        assert_eq!((e.io.as_str(), e.cache_bytes, e.background_threads), ("posix", 2 << 30, 3));
        assert_eq!(e.block_bytes, 4096);
    }
}
