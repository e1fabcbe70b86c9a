//! Every option of every engine's URI, and what shows that it acts: no way in may take one and ignore it.
//!
//! A way in (fileperf, the store, fio, RocksDB) runs a program with each option under strace, and once without. The
//! option's sign must be in the one and not in the other, or the program refuses the option by name with the reason.
//! The tests of the ways include this file; the list is held against what the library itself says is valid.

#![allow(dead_code, clippy::unwrap_used)] // for tests, of which none uses all of it

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What shows that an option acts.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    /// A call has one of these words.
    Has(&'static [&'static str]),
    /// No call has any of these words.
    Lacks(&'static [&'static str]),
    /// A ring is set up with this flag of the kernel's interface.
    RingFlag(u64),
    /// No ring is.
    NoRingFlag(u64),
    /// Rings and contexts are no larger than this.
    EntriesAtMost(u64),
    /// A wait for so many completions or more. Seen by a tracepoint, since a program under strace is so slow to submit
    /// that most completions are there before it waits; and so is the next.
    WaitsFor(u64),
    /// A ring is entered with this flag of the kernel's interface.
    EnterFlag(u64),
    /// Fewer threads are made.
    FewerThreads,
    /// A call is made hundreds of times more often.
    Often(&'static str),
    /// The kernel's tracepoint of requests shows this flag.
    RequestFlag(u64),
}

/// An option with a value whose effect can be seen.
pub struct Row {
    pub engine: &'static str,
    pub option: &'static str,
    pub value: &'static str,
    /// What it needs beside it; there in the run without it, too.
    pub with: &'static str,
    /// It concerns transfers through the page cache.
    pub buffered: bool,
    /// It concerns operations with nothing else in flight.
    pub alone: bool,
    /// Kernel, device or machine may not have it: then it is refused.
    pub may_be_refused: bool,
    pub sign: Sign,
}

impl Row {
    fn load(&self) -> Load {
        Load { buffered: self.buffered, alone: self.alone }
    }
}

const fn row(engine: &'static str, option: &'static str, value: &'static str, sign: Sign) -> Row {
    Row { engine, option, value, with: "", buffered: false, alone: false, may_be_refused: false, sign }
}

const fn ring(option: &'static str, value: &'static str, sign: Sign) -> Row {
    row("io_uring", option, value, sign)
}

const fn beside(with: &'static str, row: Row) -> Row {
    Row { with, ..row }
}

const fn refusable(row: Row) -> Row {
    Row { may_be_refused: true, ..row }
}

const fn alone(row: Row) -> Row {
    Row { alone: true, ..row }
}

use Sign::{
    EnterFlag, EntriesAtMost, FewerThreads, Has, Lacks, NoRingFlag, Often, RequestFlag, RingFlag, WaitsFor,
};

/// All of them, but those of the simulated disk, which no system call shows.
pub const ROWS: &[Row] = &[
    row("posix", "threads", "2", FewerThreads),
    Row { buffered: true, ..row("posix", "nowait", "off", Lacks(&["RWF_NOWAIT"])) },
    // A thread of the pool is woken for each.
    alone(row("posix", "queue_always", "on", Often("futex("))),
    row("libaio", "depth", "3", EntriesAtMost(3)),
    alone(row("libaio", "queue_always", "on", Often("io_submit("))),
    ring("depth", "3", EntriesAtMost(4)),
    ring("single_issuer", "off", NoRingFlag(1 << 12)),
    ring("defer_taskrun", "off", NoRingFlag(1 << 13)),
    ring("coop_taskrun", "off", NoRingFlag(1 << 8)),
    ring("no_sqarray", "off", NoRingFlag(1 << 16)),
    ring("submit_all", "off", NoRingFlag(1 << 7)),
    ring("sqpoll", "on", RingFlag(1 << 1)),
    beside("sqpoll", ring("sqpoll_idle_ms", "77", Has(&["sq_thread_idle=77"]))),
    beside("sqpoll", refusable(ring("sqpoll_cpu", "0", RingFlag(1 << 2)))),
    beside("sqpoll", ring("sqpoll_share", "off", NoRingFlag(1 << 5))),
    refusable(ring("iopoll", "on", RingFlag(1 << 0))),
    beside("iopoll", refusable(ring("hybrid_iopoll", "on", RingFlag(1 << 17)))),
    ring("force_async", "on", RequestFlag(1 << 4)),
    alone(ring("queue_always", "on", Often("io_uring_enter("))),
    ring("fixed_buffers", "on", Has(&["IORING_REGISTER_BUFFERS"])),
    ring("clone_buffers", "on", Has(&["0x1e /* IORING_REGISTER_"])),
    ring("fixed_files", "on", Has(&["IORING_REGISTER_FILES"])),
    ring("provided_buffers", "on", Has(&["IORING_REGISTER_PBUF_RING"])),
    ring("registered_ring", "off", Lacks(&["IORING_REGISTER_RING_FDS"])),
    ring("bounded_workers", "3", Has(&["IORING_REGISTER_IOWQ_MAX_WORKERS"])),
    ring("unbounded_workers", "3", Has(&["IORING_REGISTER_IOWQ_MAX_WORKERS"])),
    ring("worker_cpus", "0", Has(&["IORING_REGISTER_IOWQ_AFF"])),
    ring("reap", "32", WaitsFor(20)),
    // The bound is in a structure that comes with the call; nothing else needs one.
    beside("reap=32", refusable(ring("min_wait_us", "50", EnterFlag(1 << 3)))),
];

/// What a program is to do: hundreds of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    /// Through the page cache, or not.
    pub buffered: bool,
    /// One after the other, or 32 and more in flight.
    pub alone: bool,
}

/// A way in, and the program that goes it.
pub struct Way<'a> {
    pub name: &'static str,
    /// A directory of the test's own, on a disk.
    pub dir: &'a Path,
    /// Options that would do nothing here, with a part of the reason.
    pub refuses: &'static [(&'static str, &'static str)],
    /// Whether it can be made to read through the page cache. Options for that are not looked at otherwise.
    pub buffered: bool,
    /// The program for an engine's URI.
    pub command: &'a dyn Fn(&str, Load) -> Command,
}

/// What the library itself says are the options of an engine.
pub fn options_of(engine: &str) -> Vec<String> {
    let e = engineswap::Io::from_uri(&format!("{engine}?nonsense")).err().unwrap().to_string();
    e.split_once("valid: ").unwrap().1.split(", ").map(str::to_owned).collect()
}

/// The table has every option, and no other.
pub fn check_complete() {
    for engine in ["posix", "libaio", "io_uring"] {
        let here = ROWS.iter().filter(|r| r.engine == engine);
        let mut named: Vec<&str> = here.map(|r| r.option).collect();
        let mut valid = options_of(engine);
        named.sort_unstable();
        valid.sort_unstable();
        assert_eq!(named, valid, "the options of {engine}");
    }
}

/// Whether strace can be used here.
fn can_trace() -> bool {
    let ran = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let works = ran.is_ok_and(|o| o.status.success());
    if !works {
        println!("skipped: strace does not work here");
    }
    works
}

struct Ran {
    good: bool,
    output: String,
    calls: String,
}

impl Ran {
    fn lines<'a>(&'a self, call: &'a str) -> impl Iterator<Item = &'a str> {
        self.calls.lines().filter(move |l| l.contains(call) && !l.contains("resumed>"))
    }
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

const CALLS: &str =
    "trace=io_uring_setup,io_uring_enter,io_uring_register,io_setup,io_submit,preadv2,clone,clone3";

/// The kernel's tracepoints of submitted requests and of the calls that enter a ring, of this thread and its children;
/// in an instance of tracefs of its own.
pub struct Requests(PathBuf);

impl Requests {
    /// From now on.
    pub fn watch() -> Option<Requests> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = format!(
            "/sys/kernel/tracing/instances/engineswap-options-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        std::fs::create_dir(&dir).ok()?;
        let it = Requests(dir.into());
        let tid = std::fs::read_link("/proc/thread-self").ok()?;
        it.set("options/event-fork", "1")?;
        it.set("set_event_pid", tid.file_name()?.to_str()?)?;
        it.set("events/io_uring/io_uring_submit_req/enable", "1")?;
        it.set("events/syscalls/sys_enter_io_uring_enter/enable", "1")?;
        Some(it)
    }

    /// What there was.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.0.join("trace")).unwrap()
    }

    fn set(&self, file: &str, text: &str) -> Option<()> {
        std::fs::write(self.0.join(file), text).ok()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.set("tracing_on", "0");
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn run(way: &Way<'_>, uri: &str, row: &Row) -> Option<Ran> {
    let program = (way.command)(uri, row.load());
    if matches!(row.sign, RequestFlag(_) | WaitsFor(_) | EnterFlag(_)) {
        return run_watched(program);
    }
    let log = way.dir.join("calls");
    let mut c = Command::new("strace");
    let calls = match row.sign {
        // These are many everywhere.
        Often("futex(") => "trace=futex",
        _ => CALLS,
    };
    c.args(["-f", "-o"]).arg(&log).args(["-e", calls, "-e", "signal=none", "-X", "verbose"]);
    if let Some(dir) = program.get_current_dir() {
        c.current_dir(dir);
    }
    for (name, value) in program.get_envs() {
        // For the program, not for strace: it may be something to load.
        let name = name.to_str().unwrap();
        c.arg("-E").arg(value.map_or(name.into(), |v| format!("{name}={}", v.to_str().unwrap())));
    }
    c.arg("--").arg(program.get_program()).args(program.get_args());
    let out = c.stdin(Stdio::null()).output().unwrap();
    let calls = std::fs::read_to_string(&log).unwrap_or_default();
    Some(Ran { good: out.status.success(), output: text(&out), calls })
}

/// Runs it with the kernel's tracepoints on; `None` without tracefs.
fn run_watched(mut program: Command) -> Option<Ran> {
    let seen = Requests::watch()?;
    let out = program.stdin(Stdio::null()).output().unwrap();
    Some(Ran { good: out.status.success(), output: text(&out), calls: seen.text() })
}

/// The number after a word, in either notation.
fn number_after(line: &str, word: &str) -> Option<u64> {
    let digits = line.split_once(word)?.1.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Whether the sign is in a run, which `other` is compared with.
fn shows(sign: Sign, ran: &Ran, other: &Ran) -> bool {
    let has = |words: &[&str]| ran.calls.lines().any(|l| words.iter().any(|w| l.contains(w)));
    let threads = |r: &Ran| r.lines("clone").count();
    let sizes = || {
        let of = |call: &'static str| ran.lines(call).filter_map(move |l| number_after(l, call));
        of("io_uring_setup(").chain(of("io_setup("))
    };
    let entered =
        |field: &'static str| ran.lines("io_uring_enter(").filter_map(move |l| number_after(l, field));
    let flags = || ran.lines("io_uring_setup(").filter_map(|l| number_after(l, "flags="));
    match sign {
        Has(words) => has(words),
        Lacks(words) => !has(words),
        EntriesAtMost(n) => sizes().count() > 0 && sizes().all(|m| m <= n),
        RingFlag(f) => flags().any(|n| n & f != 0),
        NoRingFlag(f) => flags().count() > 0 && flags().all(|n| n & f == 0),
        // At its end a program may wait for all that is left.
        WaitsFor(n) => entered("min_complete: ").filter(|min| *min >= n).count() > 1,
        EnterFlag(f) => entered("flags: ").any(|flags| flags & f != 0),
        FewerThreads => threads(ran) < threads(other),
        Often(call) => ran.lines(call).count() > other.lines(call).count() + 200,
        RequestFlag(f) => {
            ran.lines("io_uring_submit_req").any(|l| number_after(l, "flags ").is_some_and(|n| n & f != 0))
        }
    }
}

/// Every option acts on this way in, or is refused by name and with the reason.
pub fn check(way: &Way<'_>) {
    check_complete();
    if !can_trace() {
        return;
    }
    let mut without: BTreeMap<(String, Load, bool), Option<Ran>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in ROWS.iter().filter(|r| way.buffered || !r.buffered) {
        let join = |parts: [&str; 2]| {
            let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            [row.engine, &parts.join("&")].join(if parts.is_empty() { "" } else { "?" })
        };
        let named = format!("{}={}", row.option, row.value);
        let (base, uri) = (join([row.with, ""]), join([row.with, &named]));
        let key = (base.clone(), row.load(), matches!(row.sign, RequestFlag(_) | WaitsFor(_) | EnterFlag(_)));
        let base = without.entry(key).or_insert_with(|| run(way, &base, row));
        let (Some(base), Some(ran)) = (base, run(way, &uri, row)) else {
            println!("{} {uri}: skipped: no tracefs that this user may use", way.name);
            continue;
        };
        let refusal = way.refuses.iter().find(|(o, _)| *o == row.option).map(|r| r.1);
        let fine = match (refusal, ran.good) {
            (Some(why), good) => !good && ran.output.contains(row.option) && ran.output.contains(why),
            (None, true) => shows(row.sign, &ran, base) && !(base.good && shows(row.sign, base, &ran)),
            (None, false) => {
                let by_name = [row.option, row.with.split('=').next().unwrap()];
                row.may_be_refused && by_name.iter().any(|name| !name.is_empty() && ran.output.contains(name))
            }
        };
        println!("{} {uri}: {}", way.name, if ran.good { "acts" } else { "refused" });
        if !fine {
            let end = ran.output.len().saturating_sub(600);
            let end = (end..).find(|i| ran.output.is_char_boundary(*i)).unwrap();
            let base =
                if base.good && shows(row.sign, base, &ran) { " (and so does the run without)" } else { "" };
            let shown = shows(row.sign, &ran, &ran);
            wrong.push(format!("{uri}: {:?} shows: {shown}{base}\n{}", row.sign, &ran.output[end..]));
        }
    }
    assert!(wrong.is_empty(), "{}: accepted and ignored, or not refused:\n{}", way.name, wrong.join("\n"));
}
