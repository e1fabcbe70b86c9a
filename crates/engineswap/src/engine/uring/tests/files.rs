//! Registered files: in the ring's table while they are open, out of it when they are closed.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, mpsc};

use super::options::pipe;
use super::*;
use crate::engine::RawQueue;
use crate::engine::owned::Owned;
use crate::engine::uring::files::{Files, RingFiles};
use crate::engine::uring::queue::{Registered, UringQueue};
use crate::engine::uring::ring::{Ring, Setup};
use crate::stats::Stats;
use crate::uri::UringConfig;
use crate::{Error, ErrorKind, Queue};

const FREE: &str = "io_uring?fixed_files";
const OWNED: &str = "io_uring?fixed_files&single_issuer";

/// The engine; `None`, said aloud, if this kernel cannot do it.
fn fixed(uri: &str) -> Option<Io> {
    match Io::from_uri(uri) {
        Ok(io) => Some(io),
        Err(e) => {
            assert!(e.to_string().contains("needs Linux") || open("io_uring").is_none(), "{e}");
            println!("skipped: {e}");
            None
        }
    }
}

/// How many tables of this process's rings name this path.
fn tables_with(path: &Path) -> usize {
    let want = path.to_str().unwrap();
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = infos.filter_map(|f| std::fs::read_to_string(f.path()).ok());
    texts
        .filter(|t| {
            let lines = t.lines().skip_while(|l| !l.starts_with("UserFiles:"));
            let mut files =
                lines.skip(1).take_while(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit()));
            files.any(|l| l.contains(want))
        })
        .count()
}

#[test]
fn a_file_is_registered_while_it_is_open() {
    let Some(io) = fixed(FREE) else { return };
    assert!(io.info().uri.contains("single_issuer=off"), "{}", io.info().uri);
    let dir = dir();
    let f = filled(&io, dir.path(), 8);
    let other = io.open(&dir.path().join("f"), &OpenHow::read()).unwrap();
    let path = f.path().canonicalize().unwrap();
    let (mut one, mut two) = (io.queue(8).unwrap(), io.queue(8).unwrap());
    assert_eq!(tables_with(&path), 0);
    for n in 0..8 {
        one.push(read_page(&f, n)).unwrap();
        two.push(read_page(if n % 2 == 0 { &f } else { &other }, n)).unwrap();
    }
    assert_eq!((finish(&mut one), finish(&mut two)), (8, 8));
    assert_eq!((io.stats().fixed_files, tables_with(&path)), (16, 2));
    drop(f);
    assert_eq!(tables_with(&path), 1, "the other handle is in one table");
    drop(other);
    assert_eq!(tables_with(&path), 0);
    // Its place is another's now, whose bytes come.
    let g = io.open(&dir.path().join("g"), &OpenHow::read_write()).unwrap();
    g.write_all_at(&page(100), 0, P).unwrap();
    one.push(read_page(&g, 0)).unwrap();
    one.wait(1).unwrap();
    let Buf::Aligned(b) = one.pop().unwrap().buf else { panic!("no buffer") };
    assert!(b[..] == page(100));
    // A file that has its place in another engine's tables has none here.
    let strange = fixed(FREE).unwrap();
    let h = strange.open(&path, &OpenHow::read()).unwrap();
    let mut three = strange.queue(4).unwrap();
    for n in 0..2 {
        let before = (io.stats().fixed_files, strange.stats().fixed_files);
        three.push(read_page(&h, n)).unwrap();
        one.push(read_page(&h, n)).unwrap();
        assert_eq!((finish(&mut three), finish(&mut one)), (1, 1));
        assert_eq!((io.stats().fixed_files, strange.stats().fixed_files), (before.0, before.1 + 1));
    }
}

/// Whether the read end of this pipe is really closed.
fn is_closed(writer: &mut std::fs::File) -> bool {
    matches!(writer.write(b"x"), Err(e) if e.raw_os_error() == Some(libc::EPIPE))
}

/// A pipe whose read end is in a ring's table, and its write end.
fn registered_pipe(io: &Io, q: &mut Queue, dir: &Path) -> (File, std::fs::File) {
    // The handle for both ends is only needed to open the others without waiting.
    let both = pipe(io, dir);
    let read = io.open(both.path(), &OpenHow::read()).unwrap();
    let mut how = std::fs::OpenOptions::new();
    let mut write = how.write(true).custom_flags(libc::O_NONBLOCK).open(both.path()).unwrap();
    write.write_all(&page(1)).unwrap();
    q.push(read_page(&read, 0).user(1)).unwrap();
    assert_eq!(finish(q), 1);
    drop(both);
    assert_eq!(tables_with(&read.path().canonicalize().unwrap()), 1);
    (read, write)
}

#[test]
fn a_closed_file_is_closed_though_an_idle_thread_has_it_in_its_ring() {
    let Some(io) = fixed(FREE) else { return };
    let dir = dir();
    let (file_to, file_from) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let (io, path) = (&io, dir.path());
        s.spawn(move || {
            let mut q = io.queue(4).unwrap();
            file_to.send(registered_pipe(io, &mut q, path)).unwrap();
            // Does nothing with its ring until the end.
            let _ = ended.recv();
        });
        let (file, mut writer) = file_from.recv().unwrap();
        assert!(!is_closed(&mut writer));
        drop(file);
        assert!(is_closed(&mut writer), "the ring keeps the file open");
        drop(end);
    });
}

#[test]
fn a_ring_of_a_single_issuer_lets_go_at_its_next_call() {
    let Some(io) = fixed(OWNED) else { return };
    assert!(io.info().uri.contains("&single_issuer&"), "{}", io.info().uri);
    type Call = (&'static str, fn(Queue) -> Option<Queue>);
    let calls: [Call; 5] = [
        ("submit", |mut q| {
            q.submit().unwrap();
            Some(q)
        }),
        ("wait", |mut q| {
            q.wait(0).unwrap();
            Some(q)
        }),
        ("pop", |mut q| {
            assert!(q.pop().is_none());
            Some(q)
        }),
        ("cancel", |mut q| {
            assert_eq!(q.cancel(7).unwrap(), 0);
            Some(q)
        }),
        ("drop", |_| None),
    ];
    for (name, call) in calls {
        let dir = dir();
        let mut q = io.queue(4).unwrap();
        let (file, mut writer) = registered_pipe(&io, &mut q, dir.path());
        std::thread::scope(|s| s.spawn(move || drop(file)).join().unwrap());
        assert!(!is_closed(&mut writer), "it is not to be had from another thread");
        let _q = call(q);
        assert!(is_closed(&mut writer), "{name}");
    }
}

#[test]
fn a_queue_that_is_dropped_keeps_no_file_open() {
    for uri in [FREE, OWNED] {
        let Some(io) = fixed(uri) else { return };
        let dir = dir();
        let mut q = io.queue(4).unwrap();
        let (file, mut writer) = registered_pipe(&io, &mut q, dir.path());
        drop(q);
        drop(file);
        assert!(is_closed(&mut writer), "{uri}");
    }
}

/// Every file in turn reads its own page through `q`; how many times a registered file was used.
fn read_each(q: &mut Owned<UringQueue>, files: &[File], stats: &Stats) -> u64 {
    let before = stats.snapshot().fixed_files;
    for f in files {
        assert!(q.push(read_page(f, 0)).is_ok());
    }
    q.wait(files.len()).unwrap();
    for _ in files {
        assert_eq!(q.pop().unwrap().result.unwrap(), 4096);
    }
    stats.snapshot().fixed_files - before
}

#[test]
fn files_that_find_no_place_are_used_by_their_descriptors() {
    let Some(io) = fixed(FREE) else { return };
    let dir = dir();
    let setup = Setup::default();
    let ring = Ring::new(8, &setup).unwrap();
    let places = Files::with_places(3);
    let registered =
        Registered { files: Some(RingFiles::new(&places, &ring).unwrap()), ..Default::default() };
    let stats = Arc::new(Stats::new(c"io_uring"));
    let mut q = Owned::new(UringQueue::new(ring, 8, &UringConfig::default(), registered, &stats));
    let make = |i: u64| {
        let f = io.open(&dir.path().join(i.to_string()), &OpenHow::read_write()).unwrap();
        f.write_all_at(&page(i), 0, P).unwrap();
        f
    };
    let mut files: Vec<File> = (0..5).map(make).collect();
    assert_eq!(read_each(&mut q, &files, &stats), 3);
    assert_eq!(read_each(&mut q, &files, &stats), 3, "the same have the places");
    // Two that have places go: others take them, each its own bytes.
    files.drain(..2);
    assert_eq!(read_each(&mut q, &files, &stats), 3);
    for (i, f) in (2..).zip(&files) {
        assert!(q.push(read_page(f, 0).user(i)).is_ok());
    }
    q.wait(3).unwrap();
    for _ in 0..3 {
        let d = q.pop().unwrap();
        let Buf::Aligned(b) = d.buf else { panic!("no buffer") };
        assert!(b[..] == page(d.user), "file {}", d.user);
    }
    // Thousands of files, one after the other, are no more than that.
    drop(files);
    for i in 0..3000 {
        let f = make(i % 7);
        assert_eq!(read_each(&mut q, &[f], &stats), 1);
    }
}

#[test]
fn closing_and_reading_at_once_goes_well() {
    for uri in [FREE, OWNED, "io_uring?fixed_files&sqpoll"] {
        let Some(io) = fixed(uri) else { return };
        let dir = dir();
        for i in 0..8u64 {
            std::fs::write(dir.path().join(i.to_string()), page(i)).unwrap();
        }
        let rounds = if uri.contains("sqpoll") { 20 } else { 100 };
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let (io, dir) = (&io, dir.path());
                s.spawn(move || {
                    for round in 0..rounds {
                        let own: Vec<(u64, File)> = (0..8)
                            .map(|i| (i + t + round) % 8)
                            .map(|i| (i, io.open(&dir.join(i.to_string()), &OpenHow::read()).unwrap()))
                            .collect();
                        // The files are closed here, by their operations, or on another thread.
                        let ops = own.iter().map(|(i, f)| read_page(f, 0).user(*i)).collect();
                        let away = std::thread::spawn(move || drop(own));
                        for d in io.run(ops) {
                            let Buf::Aligned(b) = d.buf else { panic!("no buffer") };
                            assert!(b[..] == page(d.user), "{uri}: file {}", d.user);
                        }
                        away.join().unwrap();
                    }
                });
            }
        });
        assert!(io.stats().fixed_files > 0, "{uri}");
    }
}

#[test]
fn a_refusal_says_what_is_missing() {
    let Some(e) = refused("io_uring?fixed_files&registered_ring=off", "io_uring_register:error=EINVAL")
    else {
        return;
    };
    assert!(e.contains("fixed_files needs Linux 5.19"), "{e}");
    // Whoever does not ask goes on without.
    assert!(refused("io_uring?fixed_files=off", "io_uring_register:error=EINVAL").is_none());
    let e = Io::from_uri("io_uring?fixed_files=perhaps").err().unwrap();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
}

/// What the engine says when it is opened under such an injected fault; `None` if it opens (or cannot be traced).
pub(super) fn refused(uri: &str, fault: &str) -> Option<String> {
    let run = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={fault}")])
        .arg(std::env::current_exe().unwrap())
        .args(["engine::uring::tests::files::opening_child", "--exact", "--nocapture", "--test-threads=1"])
        .env("ENGINESWAP_TEST_URI", uri)
        .output();
    let run = match run {
        Ok(run) => run,
        Err(e) => {
            println!("skipped: no strace here: {e}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    said.split_once("refused: ").map(|(_, why)| why.lines().next().unwrap_or_default().to_string())
}

/// Opens the engine of ENGINESWAP_TEST_URI and says how that went.
#[test]
fn opening_child() {
    let Ok(uri) = std::env::var("ENGINESWAP_TEST_URI") else { return };
    let opened: Result<Io, Error> = Io::from_uri(&uri);
    if let Err(e) = opened {
        println!("refused: {e}");
    }
}

/// A child that ends in the ordinary way drops its copies of files and queues; the kernel's tables are its parent's.
#[test]
fn a_child_leaves_the_tables_of_its_parent_alone() {
    let Some(io) = fixed(FREE) else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 8);
    let path = f.path().canonicalize().unwrap();
    let mut queue = io.queue(8).unwrap();
    let read = |queue: &mut Queue| {
        queue.push(read_page(&f, 1)).unwrap();
        queue.push(read_page(&f, 2)).unwrap();
        queue.wait(2).unwrap();
        std::iter::from_fn(|| queue.pop()).map(|done| done.result.unwrap()).sum::<u64>()
    };
    let bytes = read(&mut queue);
    assert!(bytes > 0);
    assert_eq!(tables_with(&path), 1);
    // SAFETY: the child drops what it has, and ends without running anything else of the test's process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(queue);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: the kernel fills `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(tables_with(&path), 1);
    assert_eq!(read(&mut queue), bytes);
}
