//! One suite for every engine, buffered and direct, on every file system that can be had here.
//!
//! `cargo test -p engineswap --test conformance [-- PART_OF_A_CASE]`. Environment:
//! - `ENGINESWAP_TEST_REQUIRE=io_uring,libaio,posix,tmpfs,target,ext4,xfs,btrfs` (any of them): a named engine or
//!   file system that is not to be had fails the suite instead of being skipped with its reason;
//! - `ENGINESWAP_TEST_SEED=N`: the seed of the random cases (printed when one fails).
//!
//! An engine that the machine has, by a raw system call, but that engineswap does not open, fails the suite.
//! Mounts are made in a mount namespace of this process, on loop devices that clear themselves, of images that
//! have no name any more: whatever happens, nothing is left behind.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/arena.rs"]
mod arena;
mod batches;
mod buffers;
mod files;
mod model;
mod names;
mod places;
mod pools;
mod queues;
mod shared;
mod space;
mod vectored;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, File, Io, Op, OpenHow, Purpose};

/// What a case runs with.
pub struct Ctx {
    pub io: Io,
    pub uri: &'static str,
    /// An empty directory of its own.
    pub dir: PathBuf,
    pub direct: bool,
    pub seed: u64,
}

impl Ctx {
    /// Whether the files are in memory and this [`Io`]'s alone.
    pub fn simulated(&self) -> bool {
        self.uri.starts_with("sim")
    }

    /// Whether what is alone goes through a queue, too.
    pub fn queues_always(&self) -> bool {
        self.uri.contains("queue_always")
    }

    pub fn how(&self) -> OpenHow {
        OpenHow::read_write().direct(if self.direct { Direct::Require } else { Direct::No })
    }

    pub fn open(&self, name: &str) -> File {
        self.io.open(&self.dir.join(name), &self.how()).unwrap()
    }

    pub fn buffered(&self, name: &str) -> File {
        self.io.open(&self.dir.join(name), &OpenHow::read_write()).unwrap()
    }

    /// A file of `pages` pages of 4096 bytes, each filled by [`page`].
    pub fn filled(&self, name: &str, pages: u64) -> File {
        let f = self.open(name);
        let mut data = AlignedBuf::zeroed(pages as usize * 4096);
        for (i, p) in data.chunks_mut(4096).enumerate() {
            p.copy_from_slice(&page(i as u64));
        }
        f.write_all_at(&data, 0, P).unwrap();
        f
    }

    /// The transfer unit: what offsets and lengths must be multiples of, where it matters.
    pub fn unit(&self, f: &File) -> u64 {
        f.alignment().offset as u64
    }
}

pub const P: Purpose = Purpose(3);

pub fn buf(len: usize) -> Buf {
    Buf::Aligned(aligned(len))
}

/// Zeros; of the arena that is registered with the engine under test, if one is and has any of that size left.
pub fn aligned(len: usize) -> AlignedBuf {
    match buffers::registered(len) {
        Some(mut b) => {
            b.fill(0);
            b
        }
        None => AlignedBuf::zeroed(len),
    }
}

pub fn bytes(b: &Buf) -> &[u8] {
    match b {
        Buf::Aligned(b) => b,
        Buf::Arena(b) => b,
        Buf::Pooled(b) => b,
        _ => panic!("no single buffer"),
    }
}

/// The content of page `n`: no two alike, no two bytes in a row alike.
pub fn page(n: u64) -> Vec<u8> {
    (0..4096u64).map(|i| (n.wrapping_mul(31) ^ i ^ (i >> 8).wrapping_mul(n + 7)) as u8).collect()
}

pub fn read_page(f: &File, n: u64) -> Op {
    Op::read(f, n * 4096, 4096, buf(4096), P).user(n)
}

pub fn write_page(f: &File, n: u64) -> Op {
    let mut b = aligned(4096);
    b.copy_from_slice(&page(n));
    Op::write(f, n * 4096, 4096, Buf::Aligned(b), P).user(n)
}

pub type Case = (&'static str, fn(&Ctx));

fn cases() -> Vec<Case> {
    [
        files::CASES,
        names::CASES,
        queues::CASES,
        shared::CASES,
        vectored::CASES,
        pools::CASES,
        batches::CASES,
        model::CASES,
        buffers::CASES,
    ]
    .concat()
}

const URIS: [&str; 14] = [
    "posix",
    "posix?threads=1&nowait=off",
    "libaio",
    "io_uring",
    "io_uring?depth=64&single_issuer=off&defer_taskrun=off&coop_taskrun=off&no_sqarray=off&fixed_files",
    "io_uring?sqpoll&sqpoll_idle_ms=5",
    "io_uring?force_async&bounded_workers=4&submit_all=off&registered_ring=off&reap=4",
    "posix?queue_always",
    "libaio?queue_always",
    "io_uring?queue_always",
    "sim?seed=9&queue_always",
    "sim?seed=7",
    "sim?seed=5&cow",
    // With a plan that no caller may notice.
    "sim?reorder=off&align=4096&plan=on+any+every+3+EINTR;on+read,write+every+5+EAGAIN;on+read,write+every+7+short+4096",
];

/// The engines with a registered arena, from which the cases have their pages; where an engine has no such
/// thing, or its kernel, it must not matter.
const REGISTERED: [&str; 7] = [
    "posix",
    "libaio",
    "io_uring?fixed_buffers&fixed_files",
    "io_uring?clone_buffers=off&single_issuer=off&defer_taskrun=off&force_async&bounded_workers=4",
    "io_uring?sqpoll&sqpoll_idle_ms=5&fixed_buffers",
    "io_uring?queue_always&fixed_buffers",
    "sim?seed=11",
];

fn required(what: &str) -> bool {
    std::env::var("ENGINESWAP_TEST_REQUIRE").unwrap_or_default().split(',').any(|r| r.trim() == what)
}

struct Report {
    failed: Vec<String>,
    ran: usize,
}

impl Report {
    fn run(&mut self, name: &str, case: impl FnOnce()) {
        self.ran += 1;
        if catch_unwind(AssertUnwindSafe(case)).is_err() {
            eprintln!("FAILED {name}");
            self.failed.push(name.to_string());
        }
    }

    fn skip(&mut self, what: &str, why: &str) {
        println!("skipped {what}: {why}");
        if required(what) {
            self.failed.push(format!("{what} is required, but: {why}"));
        }
    }
}

/// Every case on a disk in memory, which has no place among the machine's file systems.
fn simulated(uri: &'static str, io: &Io, seed: u64, chosen: &dyn Fn(&str) -> bool, report: &mut Report) {
    let began = Instant::now();
    for direct in [false, true] {
        for (i, (name, case)) in cases().into_iter().enumerate() {
            let full = format!("{name} [{uri}, {}]", if direct { "direct" } else { "buffered" });
            if chosen(&full) {
                let dir = PathBuf::from(format!("/cases/{i}-{direct}"));
                io.create_dir_all(&dir).unwrap();
                let ctx = Ctx { io: io.clone(), uri, dir, direct, seed };
                report.run(&full, || case(&ctx));
            }
        }
    }
    for (name, case) in space::CASES {
        let full = format!("{name} [{uri}, small]");
        if chosen(&full) {
            let small =
                Io::from_uri(&format!("{uri}{}capacity=2m", if uri.contains('?') { "&" } else { "?" }))
                    .unwrap();
            report.run(&full, || case(&small, &places::FileSystem { name: "memory", dir: "/".into() }));
        }
    }
    println!("{uri}: {} ms", began.elapsed().as_millis());
}

/// Every case with registered buffers, in the first place that the machine has.
fn registered(
    uri: &'static str,
    io: &Io,
    seed: u64,
    places: &[places::FileSystem],
    chosen: &dyn Fn(&str) -> bool,
    report: &mut Report,
) {
    let began = Instant::now();
    let simulated = uri.starts_with("sim");
    let has_direct = |p: &&places::FileSystem| simulated || p.direct(io);
    let Some(place) = places.iter().find(has_direct).or(places.first()) else { return };
    let modes: &[bool] = if has_direct(&place) { &[false, true] } else { &[false] };
    let registered = buffers::Registered::new(io);
    let before = io.stats().fixed;
    let mut ran = 0;
    for &direct in modes {
        for (i, (name, case)) in cases().into_iter().enumerate() {
            let mode = if direct { "direct" } else { "buffered" };
            let full = format!("{name} [{uri}, registered, {mode}]");
            if !chosen(&full) {
                continue;
            }
            let own = tempfile::Builder::new().prefix("case").tempdir_in(&place.dir).unwrap();
            let mut ctx = Ctx { io: io.clone(), uri, dir: own.path().to_path_buf(), direct, seed };
            if simulated {
                ctx.dir = PathBuf::from(format!("/registered/{i}-{direct}"));
                io.create_dir_all(&ctx.dir).unwrap();
            }
            report.run(&full, || case(&ctx));
            ran += 1;
        }
    }
    let used = io.stats().fixed - before;
    if registered.in_use() && ran > 20 {
        report.run(&format!("registered buffers are used [{uri}]"), || assert!(used > 0));
    }
    println!(
        "{uri}, registered: {} ms, {used} requests with registered buffers",
        began.elapsed().as_millis()
    );
}

fn main() {
    if let Some(path) = std::env::var_os("ENGINESWAP_TEST_LOCK") {
        names::lock_child(Path::new(&path));
    }
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if std::env::args().any(|a| a == "--list") {
        cases().iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let chosen = |name: &str| args.is_empty() || args.iter().any(|a| name.contains(a.as_str()));
    let seed = std::env::var("ENGINESWAP_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    let start = Instant::now();
    let mut report = Report { failed: Vec::new(), ran: 0 };
    let mounts = places::Mounts::new();
    let places = places::all(&mounts, &mut |what, why| report.skip(what, why));

    let mut engines = Vec::new();
    for uri in URIS {
        let name = uri.split('?').next().unwrap_or(uri);
        match (Io::from_uri(uri), places::kernel_has(name)) {
            (Ok(io), _) => {
                assert_eq!(io.info().name, name, "{uri} opened something else");
                engines.push((uri, io));
            }
            (Err(e), Ok(())) if uri.contains('?') && e.to_string().contains("needs Linux") => {
                report.skip(uri, &e.to_string())
            }
            (Err(e), Ok(())) => {
                report.failed.push(format!("{uri} does not open although the kernel has it: {e}"))
            }
            (Err(e), Err(why)) => report.skip(name, &format!("{why} ({e})")),
        }
    }

    for uri in REGISTERED {
        match Io::from_uri(uri) {
            Ok(io) => registered(uri, &io, seed, &places, &chosen, &mut report),
            Err(e) => report.skip(uri, &e.to_string()),
        }
    }
    let small = space::small_places(&mounts, &mut |what, why| report.skip(what, why));
    for (uri, io) in engines.iter().filter(|(uri, _)| uri.starts_with("sim")) {
        simulated(uri, io, seed, &chosen, &mut report);
    }
    for (uri, io) in engines.iter().filter(|(uri, _)| !uri.starts_with("sim")) {
        // The variants of an engine differ in their queues, not in what they do to a file system.
        // And a polling thread, which needs a core of its own, is slow where it has none.
        let some = match uri {
            _ if uri.contains("sqpoll") => 1,
            _ if uri.contains('?') => 2,
            _ => places.len(),
        };
        for place in places.iter().take(some) {
            for direct in [false, true] {
                if direct && !place.direct(io) {
                    println!("skipped direct I/O on {}: the file system has none", place.name);
                    continue;
                }
                let began = Instant::now();
                for (name, case) in cases() {
                    let full = format!(
                        "{name} [{uri}, {}, {}]",
                        place.name,
                        if direct { "direct" } else { "buffered" }
                    );
                    if !chosen(&full) {
                        continue;
                    }
                    let dir = tempfile::Builder::new().prefix("case").tempdir_in(&place.dir).unwrap();
                    let ctx = Ctx { io: io.clone(), uri, dir: dir.path().to_path_buf(), direct, seed };
                    report.run(&full, || case(&ctx));
                }
                let mode = if direct { "direct" } else { "buffered" };
                println!("{uri} on {} {mode}: {} ms", place.name, began.elapsed().as_millis());
            }
        }
        for (name, case) in space::CASES {
            for place in &small {
                let full = format!("{name} [{uri}, small {}]", place.name);
                if chosen(&full) {
                    report.run(&full, || case(io, place));
                }
            }
        }
    }
    drop((engines, mounts));
    println!(
        "{} cases in {:.1} s, {} failures",
        report.ran,
        start.elapsed().as_secs_f64(),
        report.failed.len()
    );
    for f in &report.failed {
        println!("  failed: {f}");
    }
    if !report.failed.is_empty() {
        println!("(seed {seed})");
        std::process::exit(101);
    }
}
