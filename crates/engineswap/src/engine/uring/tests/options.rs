//! Setup flags, the registered ring, and waiting in groups.

use super::*;
use crate::ErrorKind;
use crate::engine::uring::raw::RawRing;
use crate::engine::uring::ring::{Ring, Setup};
use crate::engine::uring::sys;

#[test]
fn setup_flags_reach_the_kernel_and_can_be_left_out() {
    let flags = sys::SETUP_SUBMIT_ALL
        | sys::SETUP_COOP_TASKRUN
        | sys::SETUP_SINGLE_ISSUER
        | sys::SETUP_DEFER_TASKRUN
        | sys::SETUP_NO_SQARRAY;
    let names = ["submit_all", "coop_taskrun", "single_issuer", "defer_taskrun", "no_sqarray"];
    let uri = format!("io_uring?{}", names.join("&"));
    match Io::from_uri(&uri) {
        Ok(_) => {
            let Some(all) = traced(&uri) else { return };
            assert_eq!(setup_flags(&all) & flags, flags, "{all}");
        }
        Err(e) => {
            assert!(e.to_string().contains("needs Linux"), "{e}");
            println!("skipped: {e}");
        }
    }
    let uri = format!("io_uring?{}=off", names.join("=off&"));
    let Some(none) = traced(&uri) else { return };
    assert_eq!(setup_flags(&none) & flags, 0, "{none}");
}

#[test]
fn a_refused_request_stops_those_after_it_unless_all_are_submitted() {
    for (flags, want) in [(sys::SETUP_SUBMIT_ALL, 3), (0, 2)] {
        let mut ring = match Ring::new(4, &Setup { flags, ..Setup::default() }) {
            Ok(ring) => ring,
            Err(e) => return println!("skipped: {}", std::io::Error::from_raw_os_error(e)),
        };
        // Not a kind of request.
        for opcode in [sys::OP_NOP, 255, sys::OP_NOP] {
            // SAFETY: requests that point to nothing.
            assert!(unsafe { ring.put(sys::Sqe { opcode, ..Default::default() }) });
        }
        assert_eq!(ring.enter(0, 0), Ok(want));
        let results: Vec<i32> = std::iter::from_fn(|| ring.take()).map(|c| c.1).collect();
        assert_eq!(results, [0, -libc::EINVAL, 0][..want as usize]);
    }
}

#[test]
fn a_ring_of_a_single_issuer_is_its_threads_alone() {
    for (flags, want) in [(sys::SETUP_SINGLE_ISSUER, Err(libc::EEXIST)), (0, Ok(0))] {
        let ring = match Ring::new(4, &Setup { flags, ..Setup::default() }) {
            Ok(ring) => ring,
            Err(e) => return println!("skipped: {}", std::io::Error::from_raw_os_error(e)),
        };
        let fd = ring.fd();
        let got = std::thread::spawn(move || sys::enter(fd, 1, 0, 0, 0)).join().unwrap();
        assert_eq!(got, want);
    }
}

#[test]
fn a_registered_ring_is_entered_by_its_number() {
    let Some(on) = traced("io_uring?registered_ring") else { return };
    let Some(off) = traced("io_uring?registered_ring=off") else { return };
    let (on, off) = (enter_flags(&on), enter_flags(&off));
    assert!(on.len() >= 4 && on.iter().all(|f| f & sys::ENTER_REGISTERED_RING != 0), "{on:?}");
    assert!(off.len() >= 4 && off.iter().all(|f| f & sys::ENTER_REGISTERED_RING == 0), "{off:?}");
    // Sixteen in a thread; what asks for none in particular does without.
    let io = open("io_uring?registered_ring").unwrap();
    let queues: Vec<_> = (0..16).map_while(|_| io.queue(2).ok()).collect();
    let e = io.queue(2).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(e.to_string().contains("at most 16"), "{e}");
    assert!(open("io_uring").unwrap().queue(2).is_ok());
    drop(queues);
    assert!(io.queue(2).is_ok());
}

#[test]
fn completions_are_waited_for_in_groups() {
    let dir = dir();
    let calls = |uri: &str| {
        let io = open(uri)?;
        let f = filled(&io, dir.path(), 64);
        let mut q = io.queue(32).unwrap();
        let before = io.stats().submit_calls;
        let (mut next, mut done) = (0, 0);
        while done < 512 {
            while next < 512 && q.push(read_page(&f, next % 64)).is_ok() {
                next += 1;
            }
            q.wait(1).unwrap();
            while let Some(d) = q.pop() {
                check(d);
                done += 1;
            }
        }
        Some(io.stats().submit_calls - before)
    };
    let Some(grouped) = calls("io_uring?reap=16") else { return };
    assert!(grouped <= 512 / 16 + 2, "{grouped} calls for 512 reads in groups of 16");
}

/// A pipe with a name: a read from it ends when somebody writes.
pub(super) fn pipe(io: &Io, dir: &Path) -> File {
    let path = dir.join("pipe");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name is a zero-terminated string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    io.open(&path, &OpenHow { read: true, write: true, ..OpenHow::default() }).unwrap()
}

#[test]
fn a_group_is_not_waited_for_longer_than_said() {
    let uri = "io_uring?reap=2&min_wait_us=2000";
    if let Err(e) = Io::from_uri(uri) {
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        return println!("skipped: {e}");
    }
    let Some(io) = open(uri) else { return };
    let dir = dir();
    let (f, pipe) = (filled(&io, dir.path(), 1), pipe(&io, dir.path()));
    let mut q = io.queue(4).unwrap();
    q.push(read_page(&pipe, 0).user(9)).unwrap();
    q.push(read_page(&f, 0)).unwrap();
    // Nobody has written: only the time can end this wait.
    q.wait(1).unwrap();
    check(q.pop().unwrap());
    assert!(q.pop().is_none());
    std::fs::write(pipe.path(), page(9)).unwrap();
    assert_eq!(finish(&mut q), 1);
    let Some(trace) = traced(uri) else { return };
    assert!(enter_flags(&trace).iter().any(|f| f & sys::ENTER_EXT_ARG != 0), "{trace}");
}

/// A wait that submits nothing, and whose time ends before anything comes: the kernel answers ETIME.
#[test]
fn the_end_of_a_bounded_wait_is_no_failure() {
    for more in ["", "&sqpoll", "&defer_taskrun=off&single_issuer=off"] {
        let uri = format!("io_uring?reap=3&min_wait_us=300{more}");
        if let Err(e) = Io::from_uri(&uri) {
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            return println!("skipped: {e}");
        }
        let Some(io) = open(&uri) else { return };
        let dir = dir();
        let pipe = pipe(&io, dir.path());
        let mut q = io.queue(4).unwrap();
        for n in 0..3 {
            q.push(read_page(&pipe, n)).unwrap();
        }
        q.submit().unwrap();
        let path = pipe.path().to_path_buf();
        let writer = std::thread::spawn(move || {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(20));
                std::fs::write(&path, page(1)).unwrap();
            }
        });
        let before = io.stats().submit_calls;
        let mut got = 0;
        while got < 3 {
            q.wait(1).unwrap_or_else(|e| panic!("{uri}: {e}"));
            while let Some(done) = q.pop() {
                assert_eq!(done.result.unwrap(), 4096, "{uri}");
                got += 1;
            }
        }
        writer.join().unwrap();
        // When the time is over there is nothing to look for every 300 us.
        let calls = io.stats().submit_calls - before;
        assert!(calls < 60, "{calls} calls for three waits: {uri}");
    }
}

/// A ring that is entered with the bound alone, in every way that leads there.
#[test]
fn a_ring_has_no_error_for_time_that_is_over() {
    for flags in [0, sys::SETUP_SINGLE_ISSUER | sys::SETUP_DEFER_TASKRUN, sys::SETUP_SQPOLL] {
        let mut ring = match Ring::new(4, &Setup { flags, idle_ms: 1, ..Setup::default() }) {
            Ok(ring) if ring.has_min_wait() => ring,
            Ok(_) => return println!("skipped: min_wait_us needs Linux 6.12"),
            Err(e) => return println!("skipped: {}", std::io::Error::from_raw_os_error(e)),
        };
        assert_eq!(ring.enter(2, 100), Ok(0), "{flags:#x}");
    }
}
