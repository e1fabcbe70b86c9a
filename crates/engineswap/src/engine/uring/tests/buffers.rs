//! Registered buffers: used where they lie in a registered arena, gone when they are not, refused with a reason.

use super::*;
use crate::ErrorKind;
use crate::engine::uring::sys;
use crate::mem::BufArena;

/// The lines of this process's rings that name registered memory at this address.
fn registered_at(address: *const u8) -> usize {
    let want = format!("0x{:x}/", address as usize);
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = infos.filter_map(|f| std::fs::read_to_string(f.path()).ok());
    texts.map(|t| t.lines().filter(|l| l.contains(&want)).count()).sum()
}

fn read_into(f: &File, n: u64, buf: Buf) -> Op {
    Op::read(f, n * 4096, 4096, buf, P).user(n)
}

#[test]
fn buffers_of_a_registered_arena_are_used_as_such() {
    for uri in ["io_uring?fixed_buffers", "io_uring?clone_buffers=off", "io_uring?sqpoll"] {
        let Some(io) = open(uri) else { return };
        let dir = dir();
        let f = filled(&io, dir.path(), 16);
        let (others, bufs) = (BufArena::new(4096, 64), BufArena::new(4096, 16));
        let mut q = io.queue(16).unwrap();
        let mut round = |what: &str, want: u64| {
            let before = io.stats().fixed;
            for n in 0..4 {
                q.push(read_into(&f, n, Buf::Aligned(others.alloc().unwrap()))).unwrap();
                q.push(read_into(&f, n, Buf::Aligned(bufs.alloc().unwrap()))).unwrap();
                q.push(read_page(&f, n)).unwrap();
            }
            let mut done = 0;
            while q.in_flight() > 0 {
                q.wait(1).unwrap();
                while let Some(d) = q.pop() {
                    assert_eq!(d.result.unwrap(), 4096);
                    let bytes = match &d.buf {
                        Buf::Aligned(b) => &b[..],
                        _ => panic!("no buffer came back"),
                    };
                    assert!(bytes == page(d.user), "{uri}, {what}: page {}", d.user);
                    done += 1;
                }
            }
            assert_eq!((done, io.stats().fixed - before), (12, want), "{uri}: {what}");
        };
        round("nothing registered", 0);
        let mut one = io.register_buffers(others.region()).unwrap();
        assert_eq!(one.refusal(), None, "{uri}");
        round("others registered", 4);
        let two = io.register_buffers(bufs.region()).unwrap();
        round("others and buffers registered", 8);
        let address = bufs.region().base();
        assert!(registered_at(address) > 0, "{uri}: the kernel does not know the memory");
        drop(two);
        round("buffers taken out", 4);
        assert_eq!(registered_at(address), 0, "{uri}: the kernel still has the memory");
        one.replace(bufs.region()).unwrap();
        round("others replaced by buffers", 4);
        drop(one);
        round("all taken out", 0);
    }
}

#[test]
fn writes_from_registered_buffers_arrive() {
    let Some(io) = open("io_uring?fixed_buffers") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 8);
    let bufs = BufArena::new(1 << 16, 4);
    let _registered = io.register_buffers(bufs.region()).unwrap();
    let mut q = io.queue(8).unwrap();
    for i in 0..4u64 {
        let mut b = bufs.alloc().unwrap();
        for (k, p) in b.chunks_mut(4096).enumerate() {
            p.copy_from_slice(&page(100 + i * 16 + k as u64));
        }
        let mut w = Op::write(&f, i << 16, 1 << 16, Buf::Aligned(b), P);
        w.kind = crate::OpKind::Write { dsync: true };
        q.push(w).unwrap();
    }
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        while let Some(d) = q.pop() {
            assert_eq!(d.result.unwrap(), 1 << 16);
        }
    }
    assert_eq!(io.stats().fixed, 4);
    let mut back = vec![0; 4096];
    for n in 0..64 {
        f.read_exact_at(&mut back, n * 4096, P).unwrap();
        assert!(back == page(100 + n), "page {n}");
    }
}

#[test]
fn vectored_transfers_inside_of_one_registered_arena_use_it() {
    let Some(io) = open("io_uring?fixed_buffers") else { return };
    let ring = crate::engine::uring::ring::Ring::new(1, &Default::default()).unwrap();
    if !ring.knows(&[sys::OP_READV_FIXED, sys::OP_WRITEV_FIXED]) {
        return println!("skipped: vectored transfers of registered buffers need Linux 6.15");
    }
    let dir = dir();
    let f = filled(&io, dir.path(), 8);
    let (one, two) = (BufArena::new(4096, 8), BufArena::new(4096, 8));
    let _registered =
        [io.register_buffers(one.region()).unwrap(), io.register_buffers(two.region()).unwrap()];
    let mut q = io.queue(8).unwrap();
    let mut transfer = |op: Op, want: u64| {
        let before = io.stats().fixed;
        q.push(op).unwrap();
        q.wait(1).unwrap();
        let d = q.pop().unwrap();
        let Buf::Pieces(v) = d.buf else { panic!("the pieces are gone") };
        assert_eq!((d.result.unwrap(), io.stats().fixed - before), (v.len() as u64 * 4096, want));
        v
    };
    let piece = |arena: &std::sync::Arc<BufArena>| arena.alloc().unwrap().into();
    let v = transfer(Op::readv(&f, 4096, (0..4).map(|_| piece(&one)).collect(), P), 1);
    assert!(v.iter().enumerate().all(|(i, b)| b.bytes() == page(1 + i as u64)));
    let mut w = Op::writev(&f, 6 * 4096, v, P);
    w.kind = crate::OpKind::Write { dsync: true };
    drop(transfer(w, 1));
    let mut back = vec![0; 4096];
    for n in 0..4 {
        f.read_exact_at(&mut back, (6 + n) * 4096, P).unwrap();
        assert!(back == page(1 + n), "page {n}");
    }
    // Not where the pieces lie in two arenas, or outside.
    transfer(Op::readv(&f, 0, vec![piece(&one), piece(&two)], P), 0);
    transfer(Op::readv(&f, 0, vec![piece(&one), AlignedBuf::zeroed(4096).into()], P), 0);
}

/// Kilobytes of pinned memory of this process.
fn pinned_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmPin:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs one of this module's children with `sh -c` around it.
fn child(name: &str, shell: &str) -> Option<String> {
    let exe = std::env::current_exe().unwrap();
    let name = format!("engine::uring::tests::buffers::{name}");
    let line = format!("{shell} '{}' --exact {name} --nocapture --test-threads=1", exe.display());
    let run = Command::new("sh").args(["-c", &line]).env("ENGINESWAP_TEST_CHILD", "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    if said.contains("not found") || said.contains("Operation not permitted") {
        println!("skipped: {said}");
        return None;
    }
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    Some(said)
}

#[test]
fn clones_pin_memory_once() {
    if std::env::var_os("ENGINESWAP_TEST_CHILD").is_none() {
        // In a process of its own, where nobody else pins memory.
        child("clones_pin_memory_once", "exec");
        return;
    }
    const MIB: u64 = 8;
    let Some(io) = open("io_uring") else { return };
    if let Err(e) = Io::from_uri("io_uring?clone_buffers")
        .and_then(|io| io.register_buffers(BufArena::new(4096, 1).region()).map(drop))
    {
        return println!("skipped: {e}");
    }
    drop(io);
    let dir = dir();
    for (uri, times) in [("io_uring?clone_buffers", 1), ("io_uring?clone_buffers=off", 3)] {
        let io = open(uri).unwrap();
        let f = filled(&io, dir.path(), 4);
        let bufs = BufArena::new(1 << 16, (MIB << 4) as usize);
        let before = pinned_kb();
        let registered = io.register_buffers(bufs.region()).unwrap();
        let mut queues: Vec<_> = (0..3).map(|_| io.queue(4).unwrap()).collect();
        for q in &mut queues {
            q.push(read_into(&f, 1, Buf::Aligned(bufs.alloc().unwrap()))).unwrap();
            q.wait(1).unwrap();
            assert_eq!(q.pop().unwrap().result.unwrap(), 4096);
        }
        assert_eq!(io.stats().fixed, 3);
        // A ring that was tried and closed is taken apart in the background.
        eventually(uri, || (pinned_kb() - before) >> 10 == MIB * times);
        drop((queues, registered, io));
        eventually("unpinned", || pinned_kb() == before);
    }
}

#[test]
fn a_refusal_degrades_or_says_why() {
    if std::env::var_os("ENGINESWAP_TEST_CHILD").is_none() {
        child(
            "a_refusal_degrades_or_says_why",
            "ulimit -l 1024; [ $(id -u) = 0 ] && set -- setpriv --bounding-set=-ipc_lock --inh-caps=-all; exec \"$@\"",
        );
        return;
    }
    let Some(io) = open("io_uring?depth=8") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 4);
    let bufs = BufArena::new(1 << 16, 64);
    let registered = io.register_buffers(bufs.region()).unwrap();
    assert!(registered.refusal().unwrap().contains("RLIMIT_MEMLOCK"), "{:?}", registered.refusal());
    let ops = (0..4).map(|n| read_into(&f, n, Buf::Aligned(bufs.alloc().unwrap()))).collect();
    for d in io.run(ops) {
        assert_eq!(d.result.unwrap(), 4096);
    }
    assert_eq!(io.stats().fixed, 0);
    let asked = open("io_uring?depth=8&fixed_buffers").unwrap();
    let e = asked.register_buffers(bufs.region()).err().unwrap();
    assert_eq!((e.kind(), e.errno()), (ErrorKind::Unsupported, Some(libc::ENOMEM)));
    assert!(e.to_string().contains("RLIMIT_MEMLOCK"), "{e}");
    // What fits is registered all the same.
    let few = BufArena::new(1 << 16, 2);
    assert_eq!(asked.register_buffers(few.region()).unwrap().refusal(), None);
    // Engines without the notion go on without.
    let posix = Io::from_uri("posix").unwrap();
    assert!(posix.register_buffers(few.region()).unwrap().refusal().unwrap().contains("posix"));
}

/// A pipe, open for both.
fn pipe(io: &Io, dir: &std::path::Path) -> File {
    let path = dir.join("pipe");
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a path with its NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    io.open(&path, &OpenHow { create: false, ..OpenHow::read_write() }).unwrap()
}

#[test]
fn what_waits_in_the_ring_keeps_its_place_in_the_table() {
    for uri in ["io_uring?fixed_buffers", "io_uring?clone_buffers=off"] {
        let Some(io) = open(uri) else { return };
        let dir = dir();
        let (f, pipe) = (filled(&io, dir.path(), 8), pipe(&io, dir.path()));
        let (one, two) = (BufArena::new(4096, 8), BufArena::new(4096, 8));
        let read =
            |n, arena: &std::sync::Arc<BufArena>| read_into(&f, n, Buf::Aligned(arena.alloc().unwrap()));
        let mut registered = io.register_buffers(one.region()).unwrap();
        let mut q = io.queue(8).unwrap();
        // A failure must not wait for the pipe.
        let _end = Written(&pipe);
        // The second of the chain is in the kernel, which has not started it.
        q.push(Op::read(&pipe, 0, 5, Buf::Aligned(AlignedBuf::zeroed(4096)), P).user(100).then()).unwrap();
        q.push(read(1, &one)).unwrap();
        q.submit().unwrap();
        assert_eq!(io.stats().fixed, 1, "{uri}");
        registered.replace(two.region()).unwrap();
        let done = |q: &mut crate::Queue, n: u64| {
            q.wait(1).unwrap();
            let d = q.pop().unwrap();
            assert_eq!((d.user, d.result.unwrap()), (n, if n == 100 { 5 } else { 4096 }), "{uri}");
            let Buf::Aligned(b) = d.buf else { panic!("the buffer is gone") };
            assert!(n == 100 || b[..] == page(n));
        };
        // Neither arena is named while the old place may still be looked up.
        for n in [2, 3] {
            q.push(read(n, if n == 2 { &one } else { &two })).unwrap();
            done(&mut q, n);
        }
        assert_eq!(io.stats().fixed, 1, "{uri}");
        write_to(&pipe, b"bytes");
        done(&mut q, 100);
        done(&mut q, 1);
        q.push(read(4, &two)).unwrap();
        done(&mut q, 4);
        assert_eq!(io.stats().fixed, 2, "{uri}: the ring has not followed");
        assert_eq!(registered_at(one.region().base()), 0, "{uri}: the kernel still has the memory");
    }
}

/// Writes to a pipe at the end.
struct Written<'a>(&'a File);

impl Drop for Written<'_> {
    fn drop(&mut self) {
        write_to(self.0, b"bytes");
    }
}

/// Without an offset, which a pipe has not.
fn write_to(f: &File, bytes: &[u8]) {
    let fd = f.raw_fd().unwrap();
    // SAFETY: bytes that live for the call, and an open descriptor.
    assert_eq!(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }, bytes.len() as isize);
}

/// Changes the table as fast as it can while a queue runs chains and single transfers in both arenas.
fn changing(uri: &str) {
    let Some(io) = open(uri) else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 64);
    let arenas = [BufArena::new(4096, 64), BufArena::new(4096, 64)];
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|s| {
        let changes = s.spawn(|| {
            let mut n = 0usize;
            while !stop.load(relaxed) {
                let mut one = io.register_buffers(arenas[n % 2].region()).unwrap();
                let two = io.register_buffers(arenas[1 - n % 2].region()).unwrap();
                one.replace(arenas[1 - n % 2].region()).unwrap();
                drop(two);
                n += 1;
                std::thread::yield_now();
            }
            n
        });
        let mut q = io.queue(32).unwrap();
        let (mut done, mut wrong) = (0, Vec::new());
        for round in 0..400u64 {
            for k in 0..8 {
                let n = (round * 7 + k) % 64;
                if let Some(b) = arenas[k as usize % 2].alloc() {
                    let op = read_into(&f, n, Buf::Aligned(b));
                    let _ = q.push(if k % 4 == 3 { op } else { op.then() });
                }
            }
            q.wait(6).unwrap();
            while let Some(d) = q.pop() {
                let Buf::Aligned(b) = &d.buf else { panic!("the buffer is gone") };
                match d.result {
                    Ok(n) => assert!(n == 4096 && b[..] == page(d.user), "{uri}: page {}", d.user),
                    Err(e) => wrong.push(e),
                }
                done += 1;
            }
        }
        drop(q);
        stop.store(true, relaxed);
        assert!(changes.join().unwrap() > 0 && done > 1000 && io.stats().fixed > 0, "{uri}: {done}");
        assert!(wrong.is_empty(), "{uri}: {} of {done} failed, the first: {}", wrong.len(), wrong[0]);
    });
}

#[test]
fn the_table_changes_under_load() {
    for base in ["io_uring", "io_uring?force_async&bounded_workers=4", "io_uring?sqpoll&sqpoll_idle_ms=5"] {
        for clones in ["clone_buffers=off", "fixed_buffers"] {
            changing(&format!("{base}{}{clones}", if base.contains('?') { '&' } else { '?' }));
        }
    }
}
