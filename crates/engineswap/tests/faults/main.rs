//! Faults that the kernel is made to answer, by `strace -e inject`: the right data or the right error, never a hang,
//! never a success that is none.
//!
//! Each case is a child of its own under strace, bounded in time. It does the work of [`child`] and writes down how
//! each operation ended; its files are looked at afterwards. strace skips the call that it answers, so where it
//! says that a part was transferred, that part is in its place already.
//!
//! Skipped, with the reason, where there is no strace or it may not trace.

#![allow(clippy::unwrap_used, missing_docs)]

mod cases;
mod child;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cases::{Case, Want};

/// The longest that a child may take; it ends itself then.
pub const LIMIT: Duration = Duration::from_secs(60);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, uri, work, dir] = &args[..]
        && first == "child"
    {
        return child::run(uri, work, Path::new(dir));
    }
    let chosen: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    if args.iter().any(|a| a == "--list") {
        cases::all().iter().for_each(|c| println!("{}: test", c.name()));
        return;
    }
    if let Err(why) = strace_works() {
        println!("skipped: {why}");
        return;
    }
    let (mut ran, mut failed) = (0, Vec::new());
    let start = Instant::now();
    for engine in ["posix", "libaio", "io_uring"] {
        if let Err(e) = engineswap::Io::from_uri(engine) {
            println!("skipped {engine}: {e}");
            continue;
        }
        let calls = Calls::of_opening(engine);
        for case in cases::all().iter().filter(|c| c.engine == engine) {
            if !chosen.is_empty() && !chosen.iter().any(|c| case.name().contains(c.as_str())) {
                continue;
            }
            ran += 1;
            if let Err(why) = check(case, &calls) {
                println!("FAILED {}: {why}", case.name());
                failed.push(case.name());
            }
        }
    }
    println!("{ran} faults in {:.1} s, {} failures", start.elapsed().as_secs_f64(), failed.len());
    if !failed.is_empty() {
        std::process::exit(101);
    }
}

fn strace_works() -> Result<(), String> {
    let out = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=getppid", "-e", "inject=getppid:retval=1", "true"])
        .output()
        .map_err(|e| format!("strace cannot be run: {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("strace may not trace here: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

/// How often an engine's opening makes each call, so that faults can begin right after it.
struct Calls(String);

impl Calls {
    fn of_opening(engine: &str) -> Calls {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        strace(
            &["-e".into(), "trace=%desc,io_setup,io_submit,io_getevents".into()],
            &log,
            engine,
            "open",
            dir.path(),
        )
        .unwrap();
        Calls(std::fs::read_to_string(log).unwrap())
    }

    fn of(&self, call: &str) -> usize {
        let is = |l: &&str| l.split_whitespace().nth(1).is_some_and(|c| c.starts_with(&format!("{call}(")));
        self.0.lines().filter(is).count()
    }
}

/// Runs a child under strace until it ends.
fn strace(options: &[String], log: &Path, engine: &str, work: &str, dir: &Path) -> Result<(), String> {
    let mut child = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(log)
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .args(["child", engine, work])
        .arg(dir)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT + Duration::from_secs(30);
    loop {
        match child.try_wait().unwrap() {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("the child ended with {status} (a signal 14: it hung)")),
            None if Instant::now() > end => {
                child.kill().unwrap();
                return Err("it hangs".into());
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn check(case: &Case, calls: &Calls) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    child::prepare(&file, case.work);
    let (mut options, mut names) = (Vec::new(), Vec::new());
    for fault in case.faults {
        let (call, answer) = fault.split_once(':').unwrap();
        // `when=+N` counts from the end of the engine's opening.
        let (what, when) = answer.split_once(":when=").unwrap_or((answer, "1+"));
        let when = match when.strip_prefix('+') {
            None => when.to_string(),
            Some(n) => {
                let digits = n.find(|c: char| !c.is_ascii_digit()).unwrap_or(n.len());
                format!("{}{}", n[..digits].parse::<usize>().unwrap() + calls.of(call), &n[digits..])
            }
        };
        names.push(call);
        options.extend(["-e".to_string(), format!("inject={call}:{what}:when={when}")]);
    }
    options.extend(["-e".to_string(), format!("trace={}", names.join(","))]);
    if case.on_file {
        // Nobody else's calls, and no descriptors of anything else.
        options.extend(["-P".to_string(), file.display().to_string()]);
    }
    let log = dir.path().join("log");
    let all = |why: String| {
        let of = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let log = of("log");
        let tail: Vec<&str> = log.lines().rev().take(12).collect();
        format!("{why}\n--- child\n{}--- last calls, newest first\n{}\n", of("out"), tail.join("\n"))
    };
    strace(&options, &log, case.engine, case.work, dir.path()).map_err(all)?;
    if !std::fs::read_to_string(&log).unwrap().contains("INJECTED") {
        return Err(all("nothing was injected".into()));
    }
    let out = std::fs::read_to_string(dir.path().join("out")).unwrap_or_default();
    judge(case, &out).and_then(|()| child::verify(&file, &out)).map_err(all)
}

/// Whether the operations ended as they should.
fn judge(case: &Case, out: &str) -> Result<(), String> {
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for l in out.lines() {
        let (op, rest) = l.split_once(' ').ok_or("a broken line")?;
        lines.push((op, rest.split_once(' ').ok_or("a broken line")?.1));
    }
    if lines.pop() != Some(("done", "ok")) {
        return Err("the child did not get to its end".into());
    }
    if lines.iter().any(|l| l.1.starts_with("wrong")) {
        return Err("a success that is none".into());
    }
    let ok = |(_, outcome): &(&str, &str)| *outcome == "ok";
    let fails = |l: &(&str, &str), errno: i32| l.1.starts_with(&format!("err {errno} "));
    let after = |l: &(&str, &str)| l.1.contains("Canceled") || l.1.contains("SyncFailed");
    let good = match case.want {
        Want::Ok => !lines.is_empty() && lines.iter().all(ok),
        Want::Some(errno) => {
            lines.iter().any(|l| fails(l, errno))
                && lines.iter().all(|l| ok(l) || fails(l, errno) || after(l))
        }
        Want::All(op, errno) => {
            let (named, rest): (Vec<_>, Vec<_>) = lines.iter().partition(|l| l.0.starts_with(op));
            !named.is_empty()
                && named.iter().all(|l| fails(l, errno))
                && rest.iter().all(|l| ok(l) || after(l))
        }
        Want::Says(op, part) => lines.iter().any(|l| l.0 == op && l.1.contains(part)),
    };
    if good { Ok(()) } else { Err(format!("not as wanted: {:?}", case.want)) }
}
