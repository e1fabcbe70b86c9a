//! What the kernel's own tracepoints say of requests: `events/io_uring` of tracefs, in an instance of each test's own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;
use crate::mem::{BufArena, ReadPool};

/// Flags of requests in the kernel are those of their submission, as far as these go.
const FIXED_FILE: u64 = 1 << 0;
const LINK: u64 = 1 << 2;
const ASYNC: u64 = 1 << 4;
const BUFFER_SELECT: u64 = 1 << 5;

struct Event {
    name: String,
    text: String,
}

impl Event {
    /// The number after this word.
    fn number(&self, word: &str) -> Option<u64> {
        let at = self.text.find(&format!("{word} "))? + word.len() + 1;
        let digits = self.text[at..].split([' ', ',']).next()?;
        match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

/// An instance of tracefs, removed when this goes.
struct Instance(PathBuf);

impl Instance {
    fn new() -> Result<Instance, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let root = roots.iter().map(Path::new).find(|r| r.join("events/io_uring").is_dir());
        let root = root.ok_or("no tracefs is mounted that this user may read and that knows io_uring")?;
        let name = format!("engineswap-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let dir = root.join("instances").join(name);
        std::fs::create_dir(&dir).map_err(|e| format!("tracefs gives no instance: {e}"))?;
        Ok(Instance(dir))
    }

    fn set(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("tracing_on"), "0");
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// What the kernel says of io_uring while `f` runs on a thread of its own: of that thread alone, or of whoever does
/// something for its rings. `None`, said aloud, where it says nothing.
fn events_of<T: Send>(alone: bool, f: impl FnOnce() -> T + Send) -> Option<Vec<Event>> {
    let instance = match Instance::new() {
        Ok(i) => i,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    instance.set("buffer_size_kb", "1024");
    let tid = std::thread::scope(|s| {
        let watched = s.spawn(|| {
            if alone {
                instance.set("set_event_pid", &my_tid().to_string());
            }
            instance.set("events/io_uring/enable", "1");
            f();
            instance.set("events/io_uring/enable", "0");
            my_tid()
        });
        watched.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    });
    let text = std::fs::read_to_string(instance.0.join("trace")).unwrap();
    let parse = |l: &str| {
        let at = l.find(": io_uring_")? + 2;
        let (name, text) = l[at..].split_once(": ")?;
        Some(Event { name: name.into(), text: text.into() })
    };
    let ring = |l: &str| Some(l.split_once("ring ")?.1.split(',').next()?.to_string());
    let lines = || text.lines().filter(|l| !l.starts_with('#'));
    let made = |l: &&str| l.contains("io_uring_create") && l.contains(&format!("-{tid} "));
    let rings: Vec<String> = lines().filter(made).filter_map(ring).collect();
    let mine = |l: &&str| alone || ring(l).is_some_and(|r| rings.contains(&r));
    let events: Vec<Event> = lines().filter(mine).filter_map(parse).collect();
    if events.is_empty() {
        println!("skipped: tracefs shows nothing of this process (another PID namespace?)");
        return None;
    }
    Some(events)
}

fn events<T: Send>(f: impl FnOnce() -> T + Send) -> Option<Vec<Event>> {
    events_of(true, f)
}

fn of<'a>(events: &'a [Event], name: &str) -> Vec<&'a Event> {
    events.iter().filter(|e| e.name == name).collect()
}

/// The submitted reads, and how many of them have this flag.
fn reads_with(events: &[Event], flag: u64) -> (usize, usize) {
    let all = of(events, "io_uring_submit_req");
    let reads: Vec<_> = all.into_iter().filter(|e| e.text.contains("opcode READ")).collect();
    let has = |e: &&&Event| e.number("flags").is_some_and(|f| f & flag != 0);
    (reads.len(), reads.iter().filter(has).count())
}

/// Sixteen direct reads in four rounds through a queue that is made and dropped in `f`'s thread.
fn sixteen(uri: &str) -> Option<Vec<Event>> {
    sixteen_of(true, uri)
}

fn sixteen_of(alone: bool, uri: &str) -> Option<Vec<Event>> {
    let io = match Io::from_uri(uri) {
        Ok(io) => io,
        Err(e) => {
            println!("skipped: {e}");
            return None;
        }
    };
    let dir = dir();
    let f = filled(&io, dir.path(), 16);
    events_of(alone, || {
        let mut q = io.queue(8).unwrap();
        for round in 0..4 {
            for i in 0..4 {
                q.push(read_page(&f, round * 4 + i)).unwrap();
            }
            assert_eq!(finish(&mut q), 4);
        }
    })
}

#[test]
fn registered_files_are_not_looked_up() {
    let Some(with) = sixteen("io_uring?fixed_files") else { return };
    let Some(without) = sixteen("io_uring") else { return };
    assert_eq!(reads_with(&with, FIXED_FILE), (16, 16));
    assert_eq!(reads_with(&without, FIXED_FILE), (16, 0));
    let lookups = [&with, &without].map(|e| of(e, "io_uring_file_get").len());
    assert_eq!(lookups, [0, 16]);
    // One registration of the table is all that there is beside.
    let registered = |e: &[Event]| of(e, "io_uring_register").len();
    assert!(registered(&with) > registered(&without));
}

#[test]
fn forced_requests_are_queued_for_workers() {
    let Some(all) = sixteen("io_uring?force_async") else { return };
    assert_eq!((reads_with(&all, ASYNC), of(&all, "io_uring_queue_async_work").len()), ((16, 16), 16));
    let io = open("io_uring").unwrap();
    let dir = dir();
    filled(&io, dir.path(), 16);
    // Cached, so that nothing else is queued.
    let f = io.open(&dir.path().join("f"), &OpenHow::read()).unwrap();
    (0..16).for_each(|n| io.run(vec![read_page(&f, n)]).into_iter().for_each(check));
    let one = events(|| {
        let mut q = io.queue(16).unwrap();
        for n in 0..16 {
            let op = read_page(&f, n);
            q.push(if n == 5 { op.force_async() } else { op }).unwrap();
        }
        assert_eq!(finish(&mut q), 16);
    });
    let Some(one) = one else { return };
    assert_eq!((reads_with(&one, ASYNC), of(&one, "io_uring_queue_async_work").len()), ((16, 1), 1));
}

#[test]
fn completions_are_worked_on_where_the_flags_say() {
    let run = |uri: &str| {
        let e = sixteen(uri)?;
        Some((of(&e, "io_uring_task_work_run").len(), of(&e, "io_uring_local_work_run").len()))
    };
    let Some((task, local)) = run("io_uring?single_issuer&defer_taskrun") else { return };
    if task + local == 0 {
        return println!("skipped: this file system completes reads while they are submitted");
    }
    assert!(local > 0 && task == 0, "deferred: {local} runs at the wait, {task} elsewhere");
    let Some((task, local)) = run("io_uring?defer_taskrun=off") else { return };
    assert!(task > 0 && local == 0, "not deferred: {local} runs at the wait, {task} elsewhere");
}

#[test]
fn groups_are_waited_for_in_the_kernel() {
    let Some(events) = sixteen("io_uring?reap=4") else { return };
    let waits = of(&events, "io_uring_cqring_wait");
    let min: Vec<_> = waits.iter().filter_map(|e| e.number("min_events")).collect();
    assert!(!min.is_empty() && min.iter().all(|n| *n == 4), "{min:?}");
    let Some(events) = sixteen("io_uring") else { return };
    let waits = of(&events, "io_uring_cqring_wait");
    assert!(waits.iter().all(|e| e.number("min_events") == Some(1)));
}

#[test]
fn a_polling_thread_submits() {
    for (uri, by) in [("io_uring?sqpoll&sqpoll_share=off", 1), ("io_uring", 0)] {
        let Some(events) = sixteen_of(false, uri) else { return };
        let submitted = of(&events, "io_uring_submit_req");
        let who: Vec<_> = submitted.iter().filter_map(|e| e.number("sq_thread")).collect();
        assert_eq!(who, [by; 16], "{uri}");
    }
}

#[test]
fn rings_have_the_flags_that_they_are_given() {
    use crate::engine::uring::sys;
    for (uri, on, off) in [
        ("io_uring?no_sqarray&submit_all", sys::SETUP_NO_SQARRAY | sys::SETUP_SUBMIT_ALL, 0),
        ("io_uring?no_sqarray=off&submit_all=off", 0, sys::SETUP_NO_SQARRAY | sys::SETUP_SUBMIT_ALL),
        ("io_uring?sqpoll", sys::SETUP_SQPOLL | sys::SETUP_ATTACH_WQ, sys::SETUP_DEFER_TASKRUN),
        ("io_uring?sqpoll&sqpoll_share=off", sys::SETUP_SQPOLL, sys::SETUP_ATTACH_WQ),
        ("io_uring?coop_taskrun&defer_taskrun=off", sys::SETUP_COOP_TASKRUN, sys::SETUP_DEFER_TASKRUN),
    ] {
        let Some(events) = sixteen(uri) else { continue };
        let made = of(&events, "io_uring_create");
        let flags = made.iter().find_map(|e| e.number("flags")).unwrap() as u32;
        assert_eq!((flags & on, flags & off), (on, 0), "{uri}: {flags:#x}");
    }
}

#[test]
fn kinds_of_requests_follow_the_memory() {
    let Some(io) = open("io_uring") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 16);
    let arena = BufArena::new(4096, 8);
    let pool = ReadPool::new(4096, 2);
    let registered = io.register_buffers(arena.region()).unwrap();
    let fixed = registered.refusal().is_none();
    let all = events(|| {
        let mut q = io.queue(8).unwrap();
        let mut one = |op: Op| {
            q.push(op).unwrap();
            q.wait(1).unwrap();
            q.pop().unwrap().result.unwrap()
        };
        let piece = || arena.alloc().unwrap();
        assert_eq!(one(Op::read(&f, 0, 4096, Buf::Aligned(piece()), P)), 4096);
        assert_eq!(one(Op::readv(&f, 0, vec![piece().into(), piece().into()], P)), 8192);
        let apart = vec![piece().into(), AlignedBuf::zeroed(4096).into()];
        assert_eq!(one(Op::readv(&f, 0, apart, P)), 8192);
        assert_eq!(one(Op::read_from_pool(&f, 0, 4096, &pool, P)), 4096);
        // And a chain, whose requests are linked.
        q.push(read_page(&f, 1).then()).unwrap();
        q.push(read_page(&f, 2).then()).unwrap();
        q.push(read_page(&f, 3)).unwrap();
        assert_eq!(finish(&mut q), 3);
    });
    let Some(all) = all else { return };
    let submitted = of(&all, "io_uring_submit_req");
    let kinds: Vec<String> = submitted
        .iter()
        .filter_map(|e| Some(e.text.split_once("opcode ")?.1.split(',').next()?.to_string()))
        .collect();
    let ring = crate::engine::uring::ring::Ring::new(1, &Default::default()).unwrap();
    let vectors = ring.knows(&[crate::engine::uring::sys::OP_READV_FIXED]);
    let one = if fixed { "READ_FIXED" } else { "READ" };
    let two = if fixed && vectors { "READV_FIXED" } else { "READV" };
    assert_eq!(kinds, [one, two, "READV", "READ", "READ", "READ", "READ"]);
    let links: Vec<bool> =
        submitted.iter().map(|e| e.number("flags").is_some_and(|f| f & LINK != 0)).collect();
    assert_eq!(links, [false, false, false, false, true, true, false]);
    assert_eq!(of(&all, "io_uring_link").len(), 2);
    if io.stats().chosen == 1 {
        assert_eq!(reads_with(&all, BUFFER_SELECT).1, 1);
        let with_buffer = of(&all, "io_uring_complete").into_iter().filter(|e| e.number("cflags") == Some(1));
        // The first buffer of the pool, number 0.
        assert_eq!(with_buffer.count(), 1);
    }
}
