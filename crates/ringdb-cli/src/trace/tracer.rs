//! A program under bpftrace: it is begun stopped, goes on when all probes are there, and ends with the tracing.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::cleanup::{TempDir, Tied};
use crate::error::{Failure, Result, at, failed, usage};

/// How often ends are looked for.
const LOOK: Duration = Duration::from_millis(20);
/// bpftrace takes seconds where many probes are put in; more than this is none.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long it says nothing when a signal was lost on it.
const QUIET: Duration = Duration::from_secs(3);
/// Requests in flight that its maps have room for; what exceeds it is not told, and counted as lost.
const KEYS: &str = "16384";

/// Where tracepoints are, if this machine lets them be used.
pub fn events() -> Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return failed("tracing needs root: sudo ringdb trace ...");
    }
    let version = Command::new("bpftrace").arg("--version").stdin(Stdio::null()).output();
    if let Err(e) = version {
        return failed(format!("bpftrace cannot be run ({e}); Debian's package is bpftrace"));
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return failed(
            "this kernel does not describe its types (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)",
        );
    }
    let places = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"].map(PathBuf::from);
    match places.into_iter().find(|p| p.join("sched/sched_switch").is_dir()) {
        Some(place) => Ok(place),
        None => failed("there are no tracepoints: mount -t tracefs nodev /sys/kernel/tracing"),
    }
}

/// Whether a file has the probes.
fn has_probes(file: &Path) -> bool {
    let note = b"engineswap\0submit\0";
    std::fs::read(file).is_ok_and(|bytes| bytes.windows(note.len()).any(|w| w == note))
}

/// The file that has the probes of a program that is to be run.
pub fn probes_of(program: &Path) -> Result<PathBuf> {
    let file = at(program, program.canonicalize())?;
    match has_probes(&file) {
        true => usable(file),
        false => usage(format!(
            "{} has no probes of engineswap; --probes names the library that has, as librocksdb_engineswap.so",
            file.display()
        )),
    }
}

/// The file that has the probes of a process, of those that it has mapped.
pub fn probes_of_process(pid: u32) -> Result<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    let maps = maps.map_err(|e| Failure::Failed(format!("process {pid}: {e}")))?;
    let mut files: Vec<&str> = maps.lines().filter_map(|l| l.split_once('/')).map(|(_, path)| path).collect();
    files.dedup();
    let found = files.into_iter().map(|f| PathBuf::from(format!("/{f}"))).find(|f| has_probes(f));
    found.map_or_else(
        || failed(format!("process {pid} has nothing mapped that has probes of engineswap")),
        usable,
    )
}

/// A file whose name bpftrace takes.
pub fn usable(file: PathBuf) -> Result<PathBuf> {
    match file.to_str().is_some_and(|s| !s.contains([':', ',', ' ', '\n', '"', '*'])) {
        true => Ok(file),
        false => failed(format!("bpftrace takes no name like {}", file.display())),
    }
}

/// A program that waits to be told to go on, or a process that runs.
pub enum Target {
    Begun { child: Child, _tied: Tied },
    Running(u32),
}

impl Target {
    /// Begins a program, stopped. What it says goes to standard error.
    pub fn begin(program: &Path, args: &[OsString]) -> Result<Target> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).arg(program).args(args);
        let said = std::io::stderr().as_fd().try_clone_to_owned()?;
        let (child, _tied) = Tied::spawn(command.stdin(Stdio::null()).stdout(said))?;
        let target = Target::Begun { child, _tied };
        // A signal that comes before it has stopped would be lost.
        let until = Instant::now() + PATIENCE;
        while !target.is_stopped() {
            if Instant::now() > until {
                return failed("the program could not be held");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(target)
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    pub fn pid(&self) -> u32 {
        match self {
            Target::Begun { child, .. } => child.id(),
            Target::Running(pid) => *pid,
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Lets it go on.
    pub fn go(&self) {
        if let Target::Begun { .. } = self {
            self.signal(Signal::CONT);
        }
    }

    /// Whether it has ended: `Err` if by something else than success.
    pub fn ended(&mut self) -> Option<Result<()>> {
        match self {
            Target::Begun { child, .. } => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) if status.success() => Some(Ok(())),
                Ok(Some(status)) => Some(failed(format!("the program ended with {status}"))),
                Err(e) => Some(Err(e.into())),
            },
            Target::Running(pid) => {
                let pid = Pid::from_raw(pid.cast_signed())?;
                test_kill_process(pid).is_err().then_some(Ok(()))
            }
        }
    }

    /// Waits for its end, at most so long. A program of ours that still runs is ended, and that is said.
    pub fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> Result<()> {
        let until = Instant::now() + limit;
        while Instant::now() < until && !stop.load(Relaxed) {
            if let Some(end) = self.ended() {
                return end;
            }
            std::thread::sleep(LOOK);
        }
        if let Target::Begun { child, .. } = self {
            if !stop.load(Relaxed) {
                crate::error::warn("the time is up: the program is ended (--seconds)");
            }
            let _ = child.kill();
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Target::Begun { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What bpftrace says besides what it was asked for.
#[derive(Debug, Default)]
pub struct Said {
    /// Events that it could not hand over.
    pub lost: u64,
    errors: String,
}

impl Said {
    fn of(text: &str) -> Said {
        let lost = |l: &str| l.strip_prefix("Lost ")?.split(' ').next()?.parse::<u64>().ok();
        Said { lost: text.lines().filter_map(lost).sum(), errors: text.trim().to_string() }
    }
}

/// Runs a program of bpftrace over a target until that ends or the time is up; each line that it says.
pub fn trace(
    program: &str,
    target: &mut Target,
    limit: Duration,
    each: &mut dyn FnMut(&str),
) -> Result<Said> {
    let dir = TempDir::new("ringdb-trace-")?;
    let file = dir.path().join("program.bt");
    at(&file, std::fs::write(&file, program))?;
    let mut command = Command::new("bpftrace");
    let env = [
        ("BPFTRACE_STRLEN", "16"),
        ("BPFTRACE_MAP_KEYS_MAX", KEYS),
        ("BPFTRACE_PERF_RB_PAGES", "1024"),
        ("BPFTRACE_MAX_PROBES", "1024"),
    ];
    command.arg(&file).envs(env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut tracer, _tied) = Tied::spawn(&mut command)?;
    let (Some(out), Some(mut err)) = (tracer.stdout.take(), tracer.stderr.take()) else {
        return failed("bpftrace has no output");
    };
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let lines = AtomicU64::new(0);
    let pid = Pid::from_raw(tracer.id().cast_signed());
    let (ended, said) = std::thread::scope(|s| {
        let errors = s.spawn(move || {
            let mut text = Vec::new();
            let _ = err.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let watch = s.spawn(|| watch(target, limit, pid, [&begun, &over], &lines));
        for line in BufReader::new(out).split(b'\n').map_while(std::result::Result::ok) {
            let line = String::from_utf8_lossy(&line);
            lines.fetch_add(1, Relaxed);
            if line.trim() == "begun" {
                begun.store(true, Relaxed);
            } else {
                each(&line);
            }
        }
        over.store(true, Relaxed);
        (watch.join(), errors.join())
    });
    let status = tracer.wait()?;
    let said = Said::of(&said.unwrap_or_default());
    if !begun.load(Relaxed) || !status.success() {
        return failed(format!("bpftrace: {}", said.errors));
    }
    ended.unwrap_or_else(|_| failed("the program could not be watched"))?;
    Ok(said)
}

/// Lets the target go on when the probes are there, and ends the tracer behind it.
fn watch(
    target: &mut Target,
    limit: Duration,
    tracer: Option<Pid>,
    [begun, over]: [&AtomicBool; 2],
    lines: &AtomicU64,
) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !begun.load(Relaxed) && !over.load(Relaxed) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    let ended = if begun.load(Relaxed) {
        target.go();
        target.wait(limit, over)
    } else {
        Ok(())
    };
    // It says all that it has first; a signal then would cut that off. But one may be lost on it: it looks whether
    // there was one, and then waits for events, which come no more.
    let patient = Instant::now() + PATIENCE;
    let (mut told, mut heard) = (None::<Instant>, 0);
    while !over.load(Relaxed) {
        let now = lines.load(Relaxed);
        let silent = now == heard && told.is_some_and(|at| at.elapsed() > QUIET);
        if let Some(pid) = tracer.filter(|_| told.is_none() || silent) {
            let signal = if Instant::now() > patient { Signal::KILL } else { Signal::INT };
            let _ = kill_process(pid, signal);
            told = Some(Instant::now());
        } else if now != heard {
            told = Some(Instant::now());
        }
        heard = now;
        std::thread::sleep(LOOK);
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_added_up() {
        let said = Said::of("WARNING: x\nLost 12 events\nLost 3 events\n");
        assert_eq!((said.lost, said.errors.lines().count()), (15, 3));
        assert_eq!(Said::of("").lost, 0);
    }

    #[test]
    fn only_files_with_probes_have_some() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lib.so");
        std::fs::write(&file, b"..engineswap\0submit\08@").unwrap();
        assert_eq!(probes_of(&file).unwrap(), file.canonicalize().unwrap());
        std::fs::write(&file, b"engineswap submit").unwrap();
        assert!(matches!(probes_of(&file), Err(Failure::Usage(why)) if why.contains("--probes")));
        assert!(usable(PathBuf::from("/a b")).is_err());
    }

    #[test]
    fn a_program_waits_until_it_is_told_and_is_ended_when_the_time_is_up() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let begin =
            |script: &str| Target::begin(Path::new("/bin/sh"), &["-c".into(), script.into()]).unwrap();
        let mut target = begin(&format!("touch {}", made.display()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(target.ended().is_none() && !made.exists());
        target.go();
        target.wait(Duration::from_secs(20), &AtomicBool::new(false)).unwrap();
        assert!(made.exists());
        // Told at once, it is not told too early.
        for _ in 0..20 {
            let mut fails = begin("exit 3");
            fails.go();
            assert!(fails.wait(Duration::from_secs(20), &AtomicBool::new(false)).is_err());
        }
        let mut endless = begin("while :; do :; done");
        endless.go();
        endless.wait(Duration::from_millis(50), &AtomicBool::new(false)).unwrap();
        assert!(endless.ended().is_some());
    }
}
