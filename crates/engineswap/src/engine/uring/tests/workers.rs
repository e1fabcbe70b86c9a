//! Worker threads of the kernel: made on demand, limited, bound to CPUs.

use super::*;
use crate::OpKind;

/// Runs in a thread of its own: one that has opened the engine has a worker already, made by the probing, which
/// no limit or binding set later can touch.
fn apart<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| s.spawn(f).join()).unwrap_or_else(|e| std::panic::resume_unwind(e))
}

/// The most workers seen, and the CPUs that they were bound to, while 64 syncs at a time were done.
fn seen(uri: &str) -> Option<(usize, Vec<String>)> {
    let io = open(uri)?;
    Some(apart(|| seen_with(&io)))
}

fn seen_with(io: &Io) -> (usize, Vec<String>) {
    let dir = dir();
    let f = filled(io, dir.path(), 64);
    let mut q = io.queue(64).unwrap();
    let (mut most, mut cpus) = (0, Vec::new());
    for _ in 0..4 {
        // A sync keeps its worker waiting, so that the next one needs another.
        for _ in 0..64 {
            q.push(Op::sync_data(&f, P)).unwrap();
        }
        q.submit().unwrap();
        while q.in_flight() > 0 {
            let now = threads("iou-wrk");
            most = most.max(now.len());
            cpus.extend(now.iter().filter_map(|t| cpus_of(t)));
            q.wait(1).unwrap();
            while let Some(d) = q.pop() {
                d.result.unwrap();
            }
        }
    }
    let now = threads("iou-wrk");
    cpus.extend(now.iter().filter_map(|t| cpus_of(t)));
    (most.max(now.len()), cpus)
}

#[test]
fn forced_operations_go_to_workers() {
    let Some(io) = open("io_uring?force_async") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 64);
    let mut q = io.queue(64).unwrap();
    for n in 0..64 {
        q.push(read_page(&f, n)).unwrap();
    }
    assert_eq!(finish(&mut q), 64);
    assert_eq!(io.stats().punted, 64);
    assert!(!threads("iou-wrk").is_empty());
    // A buffered write is not done by a plain call then.
    let b = io.open(&dir.path().join("b"), &OpenHow::read_write()).unwrap();
    let mut w = read_page(&b, 0);
    w.kind = OpKind::Write { dsync: false };
    q.push(w).unwrap();
    q.wait(1).unwrap();
    assert_eq!(q.pop().unwrap().result.unwrap(), 4096);
    assert_eq!((io.stats().punted, io.stats().inline), (65, 0));
}

#[test]
fn one_operation_alone_can_be_forced() {
    let Some(io) = open("io_uring") else { return };
    let dir = dir();
    // Cached, so that no other read has a reason to go to a worker.
    filled(&io, dir.path(), 64);
    let f = io.open(&dir.path().join("f"), &OpenHow::read()).unwrap();
    for n in 0..64 {
        io.run(vec![read_page(&f, n)]).into_iter().for_each(check);
    }
    for forced in [0, 1] {
        apart(|| {
            let mut q = io.queue(64).unwrap();
            for n in 0..64 {
                let op = read_page(&f, n);
                q.push(if n == 7 && forced == 1 { op.force_async() } else { op }).unwrap();
            }
            assert_eq!(finish(&mut q), 64);
            assert_eq!((io.stats().punted, threads("iou-wrk").len()), (forced as u64, forced));
        });
    }
}

#[test]
fn workers_keep_to_their_limit() {
    let Some((most, _)) = seen("io_uring?force_async&bounded_workers=1&unbounded_workers=1") else { return };
    assert_eq!(most, 1);
    // Without the limit there are more, though not every time: on a busy machine one may have done all the work
    // before a second is needed.
    let more = (0..50).any(|_| seen("io_uring?force_async").is_some_and(|(free, _)| free > 1));
    assert!(more, "never more than one worker without a limit");
}

#[test]
fn workers_keep_to_their_cpus() {
    let Some((most, cpus)) = seen("io_uring?force_async&worker_cpus=0") else { return };
    assert!(most > 0 && !cpus.is_empty());
    assert!(cpus.iter().all(|c| c == "0"), "{cpus:?}");
    let e = Io::from_uri("io_uring?worker_cpus=900").err().unwrap();
    assert!(e.to_string().contains("CPUs that this thread may use"), "{e}");
}
