//! What belongs to a process: rings, contexts, threads and descriptors, when it forks ([`forks`]) and when it has more
//! threads than descriptors ([`many`]). The parent that forks has threads of its own only, so there is no harness.
//!
//! Each case runs in a process of its own, bounded in time. Engines that do not work here are skipped, with the reason.

#![allow(clippy::unwrap_used, missing_docs)]

mod forks;
mod many;

use std::process::{Command, Stdio};
use std::time::Instant;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, Done, File, Io, Op, OpenHow, Purpose};

/// The longest that a case may take; it ends itself then.
const SECONDS: u32 = 60;

pub const P: Purpose = Purpose(0);
pub const PAGE: u64 = 4096;

type Case = (&'static str, fn(&str));

const CASES: &[(&[&str], Case)] = &[
    (forks::ENGINES, ("fork", forks::both_sides_go_on)),
    (many::ENGINES, ("idle", many::idle_threads_leave_descriptors)),
    (&["io_uring"], ("closed", many::a_closed_engine_keeps_nothing_for_good)),
    (&["io_uring"], ("full", many::a_file_is_opened_when_descriptors_run_out)),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, case, uri] = &args[..]
        && first == "child"
    {
        // SAFETY: no handler: the signal ends the process.
        unsafe { libc::alarm(SECONDS) };
        let run = CASES.iter().find(|c| c.1.0 == case).unwrap().1.1;
        return run(uri);
    }
    if args.iter().any(|a| a == "--list") {
        return each(|name, _, _| println!("{name}: test"));
    }
    let chosen: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    let (mut ran, mut failed, start) = (0, 0, Instant::now());
    each(|name, case, uri| {
        if !chosen.is_empty() && !chosen.iter().any(|c| name.contains(c.as_str())) {
            return;
        }
        if let Err(e) = Io::from_uri(uri) {
            return println!("skipped {name}: {e}");
        }
        ran += 1;
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["child", case, uri]).stdin(Stdio::null()).status().unwrap();
        if !status.success() {
            println!("FAILED {name}: {status} (a signal 14: it hung)");
            failed += 1;
        }
    });
    println!("{ran} cases in {:.1} s, {failed} failures", start.elapsed().as_secs_f64());
    if failed > 0 {
        std::process::exit(101);
    }
}

fn each(mut what: impl FnMut(&str, &str, &str)) {
    for (engines, (case, _)) in CASES {
        engines.iter().for_each(|uri| what(&format!("{case}:{uri}"), case, uri));
    }
}

/// A directory on a file system with direct I/O, if the build has one: the system's own may be tmpfs.
pub fn dir() -> tempfile::TempDir {
    // Tests run in the folder of their crate.
    tempfile::tempdir_in(".").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The byte that fills a page.
pub fn byte(page: u64) -> u8 {
    (page * 7 + 1) as u8
}

pub fn filled(io: &Io, dir: &std::path::Path, pages: u64) -> File {
    let f = io.open(&dir.join("f"), &OpenHow::read_write().direct(Direct::Prefer)).unwrap();
    let mut all = AlignedBuf::zeroed((pages * PAGE) as usize);
    all.chunks_mut(PAGE as usize).enumerate().for_each(|(i, page)| page.fill(byte(i as u64)));
    f.write_all_at(&all, 0, P).unwrap();
    f
}

pub fn read(f: &File, page: u64) -> Op {
    Op::read(f, page * PAGE, PAGE, Buf::Aligned(AlignedBuf::zeroed(PAGE as usize)), P).user(page)
}

/// The page that a read's tag names, whole.
pub fn check(done: Done) {
    assert_eq!(done.result.unwrap(), PAGE);
    let Buf::Aligned(b) = done.buf else { panic!("another buffer came back") };
    assert!(b.iter().all(|x| *x == byte(done.user)), "page {}", done.user);
}
